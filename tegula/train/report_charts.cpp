#include "tegula/train/report_charts.h"

#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/base/text.h"
#include "tegula/io/html.h"
#include "tegula/train/svg.h"

namespace tegula {

namespace {

constexpr double kMib = 1 << 20;
constexpr const char *kBlue = "#3b78c3", *kRed = "#c3553b", *kGreen = "#3f9150";

// Wider than a small screen: it scrolls there, and the page does not.
std::string wide(const std::string& chart) {
  return cat("<div class=\"wide\">", chart, "</div>\n");
}

// A running mean over about a fiftieth of the run, from the first step on.
Series running_mean(const Series& raw, const char* name) {
  Series mean{name, raw.color, {}};
  const double keep = 1 - 1 / std::max(1.0, static_cast<double>(raw.points.size()) / 50);
  double sum = 0, weight = 0;
  for (const auto& [x, y] : raw.points) {
    if (!std::isfinite(y)) continue;
    sum = keep * sum + y, weight = keep * weight + 1;
    mean.points.emplace_back(x, sum / weight);
  }
  return mean;
}

std::string small_curve(const char* label, const Series& raw, bool is_noisy) {
  Axis x, y;
  x.label = "step", y.label = label;
  fit(x, y, {raw});
  if (is_noisy) y.low = std::min(y.low, 0.0);
  Series faint = raw;
  faint.is_faint = is_noisy;
  std::vector<Series> shown = {faint};
  if (is_noisy) shown.push_back(running_mean(raw, ""));
  return chart(x, y, shown, {}, 380, 210);
}

}  // namespace

std::string loss_chart(const TrainHistory& h) {
  Series raw{"", kBlue, {}}, eval{"validation", kRed, {}};
  raw.is_faint = true;
  for (const StepReport& s : h.steps) raw.points.emplace_back(s.step, s.loss);
  Series dots{"", eval.color, {}, false};
  Series split{"training split", kGreen, {}};  // by the weights and rows of an evaluation
  for (const EvalReport& e : h.evals) {
    eval.points.emplace_back(e.step, e.val_loss);
    if (std::isfinite(e.train_loss)) split.points.emplace_back(e.step, e.train_loss);
    dots.titles.push_back(cat("step ", e.step, ": ", printed("%.4f", e.val_loss)));
  }
  dots.points = eval.points;
  Axis x, y;
  x.label = "step", y.label = "loss (nats a token)";
  fit(x, y, {raw, eval, split});
  return wide(chart(x, y, {raw, running_mean(raw, "training (mean)"), split, eval, dots}));
}

std::string step_curves(const TrainHistory& h, int64_t tokens_per_step) {
  Series lr{"", kBlue, {}}, norm{"", kBlue, {}}, speed{"", kBlue, {}};
  for (const StepReport& s : h.steps) {
    if (std::isfinite(s.lr)) lr.points.emplace_back(s.step, s.lr);
    if (std::isfinite(s.grad_norm)) norm.points.emplace_back(s.step, s.grad_norm);
    if (s.step_ms > 0)
      speed.points.emplace_back(s.step, static_cast<double>(tokens_per_step) / s.step_ms * 1e3);
  }
  return cat("<div class=\"curves\">\n", small_curve("learning rate", lr, false),
             small_curve("gradient norm, before clipping", norm, true),
             small_curve("tokens/s", speed, true), "</div>\n");
}

std::string roofline_chart(const std::vector<OpTime>& all, const MachineSpeed& speed) {
  Series ops{"", kBlue, {}, false};
  double low = 0.05, high = 200;
  for (const OpTime& o : all)
    if (o.flops > 0 && o.bytes > 0) {
      const double intensity = static_cast<double>(o.flops) / static_cast<double>(o.bytes);
      low = std::min(low, intensity / 1.5), high = std::max(high, intensity * 1.5);
    }
  for (const OpTime& o : all) {
    if (o.bytes == 0 || o.ms <= 0) continue;
    // An op without FLOPs stands at the left end, as far below the roof as its bandwidth is.
    const double s = o.ms / 1e3, moved = static_cast<double>(o.bytes) / s;
    const double intensity =
        o.flops ? static_cast<double>(o.flops) / static_cast<double>(o.bytes) : low;
    ops.points.emplace_back(intensity, intensity * moved);
    ops.titles.push_back(cat(o.op, ": ", o.flops ? cat(si(intensity), " FLOP/byte, ") : "",
                             si(static_cast<double>(o.flops) / s), "FLOP/s, ", si(moved), "B/s"));
    ops.labels.push_back(o.flops ? o.op : o.op + " (moves only)");
  }
  Series roof{"roof", kRed, {}};
  const double ridge = speed.flops_per_s / speed.bytes_per_s;
  roof.points = {
      {low, low * speed.bytes_per_s}, {ridge, speed.flops_per_s}, {high, speed.flops_per_s}};
  Axis x, y;
  x.is_log = y.is_log = true;
  x.label = "arithmetic intensity (FLOP per byte moved at least)", y.label = "FLOP/s";
  fit(x, y, {roof, ops});
  return wide(chart(x, y, {roof, ops}, {}, 760, 400));
}

std::string memory_chart(const Plan& plan, const StepCost& cost) {
  const size_t n = plan.steps.size();
  std::vector<double> live(n + 1, 0);
  for (const Slot& s : plan.slots) {
    if (s.kind != SlotKind::kArena) continue;
    for (size_t i = static_cast<size_t>(s.first_step);
         i <= static_cast<size_t>(s.last_step) && i < n; ++i)
      live[i] += static_cast<double>(s.bytes) / kMib;
  }
  Series arena{"live", kBlue, {}, true, true}, top{"arena", kRed, {}};
  for (size_t i = 0; i <= n; ++i) arena.points.emplace_back(i, live[i]);
  top.points = {{0, static_cast<double>(plan.arena_bytes) / kMib},
                {n, static_cast<double>(plan.arena_bytes) / kMib}};
  const char* names[] = {"forward", "backward", "update"};
  std::vector<Band> bands;
  for (size_t i = 0; i < n; ++i) {
    const char* name = names[static_cast<size_t>(plan.steps[i].phase)];
    if (bands.empty() || bands.back().name != name)
      bands.push_back({static_cast<double>(i), 0, name});
    bands.back().high = static_cast<double>(i + 1);
  }
  Axis x, y;
  x.label = "step of the plan", y.label = "MiB";
  fit(x, y, {arena, top});
  y.low = 0;
  const auto peak = std::max_element(live.begin(), live.end()) - live.begin();
  std::vector<const Slot*> held;
  for (const Slot& s : plan.slots)
    if (s.kind == SlotKind::kArena && s.first_step <= peak && peak <= s.last_step)
      held.push_back(&s);
  std::sort(held.begin(), held.end(), [](auto* a, auto* b) { return a->bytes > b->bytes; });
  std::string out =
      cat(wide(chart(x, y, {arena, top}, bands)), "<p>The arena has ",
          printed("%.2f", static_cast<double>(plan.arena_bytes) / kMib), " MiB; beside it lie ",
          printed("%.2f", static_cast<double>(cost.state_bytes) / kMib),
          " MiB of weights, optimizer state and sums of gradients. ", held.size(),
          " buffers are live at the peak, in step ", peak, "; the largest: ");
  for (size_t i = 0; i < held.size() && i < 6; ++i)
    out += cat(i ? ", " : "", escape_html(held[i]->name.empty() ? "a workspace" : held[i]->name),
               " (", printed("%.2f", static_cast<double>(held[i]->bytes) / kMib), " MiB)");
  return out + ".</p>\n";
}

}  // namespace tegula
