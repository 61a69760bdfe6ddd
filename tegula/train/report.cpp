#include "tegula/train/report.h"

#include <algorithm>
#include <map>

#include "tegula/io/file.h"
#include "tegula/train/svg.h"

namespace tegula {

namespace {

constexpr const char* kStyle = R"(<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:820px;margin:2em auto;padding:0 1em;color:#222;background:#fff}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}
table{border-collapse:collapse;width:100%}td,th{padding:.2em .6em;border-bottom:1px solid #ddd;text-align:right}
td:first-child,th:first-child{text-align:left}
svg{width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:#555}
.grid{stroke:#e4e4e4;fill:none}.line{fill:none;stroke-width:1.6}.equal{color:#070}.differs{color:#b00}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}td,th{border-color:#333}.grid{stroke:#333}svg text{fill:#aaa}}
</style>)";

std::string fixed(double v, const char* format) {
  char b[64];
  std::snprintf(b, sizeof b, format, v);
  return b;
}

std::string row(std::initializer_list<std::string> cells, const char* tag = "td") {
  std::string out = "<tr>";
  for (const std::string& c : cells) out += cat("<", tag, ">", c, "</", tag, ">");
  return out + "</tr>\n";
}

// Planned beside measured, and whether they are one number.
std::string compare(const std::string& what, int64_t planned, int64_t measured) {
  return row({what, std::to_string(planned), std::to_string(measured),
              planned == measured ? "<span class=\"equal\">equal</span>"
                                  : "<span class=\"differs\">differs</span>"});
}

struct OpTime {
  double seconds = 0;
  int64_t launches = 0, flops = 0, bytes = 0;
};

// Per op (and kernel): time of the timed steps, costs of one.
std::map<std::string, OpTime> times_by_op(const Trainer& t) {
  std::map<std::string, OpTime> by_op;
  for (size_t i = 0; i < t.plan().steps.size(); ++i) {
    const Step& s = t.plan().steps[i];
    OpTime& o = by_op[cat(s.op->name, " (", s.kernel ? s.kernel->name : "reference", ")")];
    o.seconds += t.step_stats()[i].seconds;
    o.flops += s.flops, o.bytes += s.bytes, ++o.launches;
  }
  return by_op;
}

std::string loss_chart(const TrainHistory& h) {
  Series train{"training", "#3b78c3", {}}, eval{"validation", "#c3553b", {}};
  for (const StepReport& s : h.steps) train.points.emplace_back(s.step, s.loss);
  for (const EvalPoint& e : h.evals) eval.points.emplace_back(e.step, e.loss);
  Axis x, y;
  x.label = "step", y.label = "loss (nats a token)";
  fit(x, y, {train, eval});
  return chart(x, y, {train, eval});
}

std::string op_table(const std::map<std::string, OpTime>& by_op, int64_t timed_steps) {
  std::vector<std::pair<std::string, OpTime>> sorted(by_op.begin(), by_op.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  double total = 0;
  for (const auto& [name, o] : sorted) total += o.seconds;
  std::string out = "<table>" + row({"op (kernel)", "launches a step", "ms a step", "share",
                                     "GFLOP/s", "GB/s (least bytes)"},
                                    "th");
  const double n = static_cast<double>(std::max<int64_t>(timed_steps, 1));
  for (const auto& [name, o] : sorted) {
    const double s = o.seconds / n;
    if (s <= 0) continue;
    out += row({escape_html(name), std::to_string(o.launches), fixed(s * 1e3, "%.3f"),
                fixed(100 * o.seconds / total, "%.1f %%"),
                fixed(static_cast<double>(o.flops) / s / 1e9, "%.2f"),
                fixed(static_cast<double>(o.bytes) / s / 1e9, "%.2f")});
  }
  return out + "</table>\n";
}

std::string roofline(const std::map<std::string, OpTime>& by_op, int64_t timed_steps,
                     const MachineSpeed& speed) {
  Series ops{"", "#3b78c3", {}, false};
  const double n = static_cast<double>(std::max<int64_t>(timed_steps, 1));
  double low = 0.05, high = 200;
  for (const auto& [name, o] : by_op) {
    if (o.flops == 0 || o.bytes == 0 || o.seconds <= 0) continue;
    const double intensity = static_cast<double>(o.flops) / static_cast<double>(o.bytes);
    const double rate = static_cast<double>(o.flops) * n / o.seconds;
    low = std::min(low, intensity / 1.5), high = std::max(high, intensity * 1.5);
    ops.points.emplace_back(intensity, rate);
    ops.titles.push_back(cat(name, ": ", si(intensity), " FLOP/byte, ", si(rate), "FLOP/s"));
  }
  Series roof{"roof", "#c3553b", {}};
  const double ridge = speed.flops_per_s / speed.bytes_per_s;
  roof.points = {
      {low, low * speed.bytes_per_s}, {ridge, speed.flops_per_s}, {high, speed.flops_per_s}};
  Axis x, y;
  x.is_log = y.is_log = true;
  x.label = "arithmetic intensity (FLOP per byte moved at least)", y.label = "FLOP/s";
  fit(x, y, {roof, ops});
  return chart(x, y, {roof, ops}, 760, 360);
}

std::string memory_chart(const Plan& plan) {
  std::vector<double> live(plan.steps.size() + 1, 0);
  for (const Slot& s : plan.slots) {
    if (s.kind != SlotKind::kArena) continue;
    for (int i = s.first_step; i <= s.last_step && i < static_cast<int>(live.size()); ++i)
      live[static_cast<size_t>(i)] += static_cast<double>(s.bytes);
  }
  Series arena{"live bytes", "#3b78c3", {}, true, true}, top{"arena", "#c3553b", {}};
  for (size_t i = 0; i < live.size(); ++i) arena.points.emplace_back(i, live[i]);
  const auto end = static_cast<double>(plan.steps.size());
  top.points = {{0, static_cast<double>(plan.arena_bytes)},
                {end, static_cast<double>(plan.arena_bytes)}};
  Axis x, y;
  x.label = "step of the plan", y.label = "bytes";
  fit(x, y, {arena, top});
  y.low = 0;
  return chart(x, y, {arena, top});
}

}  // namespace

Status write_report(const std::string& path, const Trainer& t, const TrainSummary& s,
                    const TrainHistory& history, const MachineSpeed& speed) {
  const TrainConfig& c = t.config();
  const auto by_op = times_by_op(t);
  std::string page =
      cat("<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Tegula: ",
          escape_html(c.model.type), "</title>\n", kStyle, "\n<h1>Training ",
          escape_html(c.model.type), "</h1>\n<p>", escape_html(t.data_summary), "</p>\n");
  page += cat(
      "<p>", c.model.n_layers, " layers, width ", c.model.d_model, ", sequences of ",
      c.model.max_seqlen, ", batch ", c.batch, c.accumulate > 1 ? cat(" × ", c.accumulate) : "",
      ", ", s.params, " parameters, ", s.steps, " steps. Median step ", fixed(s.step_ms, "%.2f"),
      " ms, ", fixed(s.tokens_per_s, "%.0f"), " tokens/s, MFU ",
      fixed(100 * static_cast<double>(s.flops_per_step_planned) / (s.step_ms / 1e3) /
                speed.flops_per_s,
            "%.1f"),
      " % of ", si(speed.flops_per_s), "FLOP/s probed.</p>\n<h2>Loss</h2>\n", loss_chart(history));
  page +=
      cat("<p>Training ", fixed(s.train_loss, "%.4f"), ", validation ", fixed(s.val_loss, "%.4f"),
          " (whole split).</p>\n<h2>Predicted beside measured</h2>\n<table>",
          row({"", "planned", "measured", ""}, "th"),
          compare("FLOPs a step", s.flops_per_step_planned, s.flops_per_step_counted),
          compare("peak bytes", s.peak_bytes_planned, s.peak_bytes_measured), "</table>\n",
          "<p>FLOPs are counted by the kernels per executed tile; executed, with masked and padded "
          "elements: ",
          s.flops_per_step_executed,
          ". Peak memory is the highest byte written in a "
          "poisoned arena, plus weights and state; its lower bound for this order of ops is ",
          s.lower_bound_bytes, " bytes. Compiled in ", fixed(s.compile_ms, "%.1f"), " ms.</p>\n");
  page += cat("<h2>Time per op</h2>\n", op_table(by_op, t.timed_steps()), "<h2>Roofline</h2>\n",
              roofline(by_op, t.timed_steps(), speed), "<h2>Memory of the plan</h2>\n",
              memory_chart(t.plan()), "</html>\n");
  return replace_file(path, page);
}

}  // namespace tegula
