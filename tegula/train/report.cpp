#include "tegula/train/report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "tegula/io/file.h"
#include "tegula/train/svg.h"

namespace tegula {

namespace {

constexpr const char* kStyle = R"(<style>
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:860px;margin:2em auto;padding:0 1em;color:#222;background:#fff}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}
table{border-collapse:collapse;width:100%;font-size:.9em}
td,th{padding:.2em .5em;border-bottom:1px solid #ddd;text-align:right;font-weight:normal;white-space:nowrap}
th{color:#666;font-size:.85em;white-space:normal;vertical-align:bottom}
td:first-child,th:first-child{text-align:left}td small{color:#777;margin-left:.4em}
.bar{display:inline-block;height:.7em;background:#3b78c3;margin-right:.4em}
.facts{color:#666}
svg{width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:#555}
.grid{stroke:#e4e4e4;fill:none}.line{fill:none;stroke-width:1.6}.faint{stroke-opacity:.35;stroke-width:1}
.band0{fill:#8881}.band1{fill:#8882}.equal{color:#070}.differs{color:#b00}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}td,th{border-color:#333}
.grid{stroke:#333}svg text{fill:#aaa}th,.facts,td small{color:#999}.equal{color:#6c6}.differs{color:#f77}}
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
  return row({what, grouped(planned), grouped(measured),
              planned == measured ? "<span class=\"equal\">equal</span>"
                                  : "<span class=\"differs\">differs</span>"});
}

// Of one op and kernel, in one step of training.
struct OpTime {
  std::string op, kernel;
  double ms = 0, least_ms = 0;  // measured; by the roofline, launch by launch
  int64_t launches = 0, flops = 0, bytes = 0;
};

std::vector<OpTime> times_by_op(const Trainer& t, const MachineSpeed& speed) {
  std::map<std::pair<std::string_view, std::string_view>, OpTime> by_op;
  const double n = static_cast<double>(std::max<int64_t>(t.timed_steps(), 1));
  for (size_t i = 0; i < t.plan().steps.size(); ++i) {
    const Step& s = t.plan().steps[i];
    if (s.flops == 0 && s.bytes == 0) continue;  // a concat whose operands lie in place
    const std::string_view kernel = s.kernel ? s.kernel->name : "reference";
    OpTime& o = by_op[{s.op->name, kernel}];
    o.op = s.op->name, o.kernel = kernel;
    o.ms += t.step_stats()[i].seconds * 1e3 / n;
    o.least_ms += 1e3 * std::max(static_cast<double>(s.flops) / speed.flops_per_s,
                                 static_cast<double>(s.bytes) / speed.bytes_per_s);
    o.flops += s.flops, o.bytes += s.bytes, ++o.launches;
  }
  std::vector<OpTime> sorted;
  for (auto& [key, o] : by_op) sorted.push_back(std::move(o));
  std::sort(sorted.begin(), sorted.end(),
            [](const OpTime& a, const OpTime& b) { return a.ms > b.ms; });
  return sorted;
}

std::string loss_chart(const TrainHistory& h) {
  Series raw{"", "#3b78c3", {}}, train{"training (mean)", "#3b78c3", {}},
      eval{"validation", "#c3553b", {}};
  raw.is_faint = true;
  // A running mean over about a fiftieth of the run, from the first step on.
  const double keep = 1 - 1 / std::max(1.0, static_cast<double>(h.steps.size()) / 50);
  double sum = 0, weight = 0;
  for (const StepReport& s : h.steps) {
    raw.points.emplace_back(s.step, s.loss);
    sum = keep * sum + s.loss, weight = keep * weight + 1;
    train.points.emplace_back(s.step, sum / weight);
  }
  Series dots{"", eval.color, {}, false};
  for (const EvalPoint& e : h.evals) {
    eval.points.emplace_back(e.step, e.loss);
    dots.titles.push_back(cat("step ", e.step, ": ", fixed(e.loss, "%.4f")));
  }
  dots.points = eval.points;
  Axis x, y;
  x.label = "step", y.label = "loss (nats a token)";
  fit(x, y, {raw, eval});
  return chart(x, y, {raw, train, eval, dots});
}

std::string op_table(const std::vector<OpTime>& ops) {
  double total = 0, least = 0;
  for (const OpTime& o : ops) total += o.ms, least += o.least_ms;
  std::string out = "<table>" + row({"op and kernel", "launches a step", "share", "ms a step",
                                     "ms by the roofline", "GFLOP/s", "GB/s (least bytes)"},
                                    "th");
  for (const OpTime& o : ops) {
    const double share = total > 0 ? o.ms / total : 0, s = o.ms > 0 ? o.ms / 1e3 : HUGE_VAL;
    out += row({cat(o.op, "<small>", o.kernel, "</small>"), std::to_string(o.launches),
                cat("<span class=\"bar\" style=\"width:", fixed(70 * share, "%.0f"), "px\"></span>",
                    fixed(100 * share, "%.1f"), " %"),
                fixed(o.ms, "%.3f"), fixed(o.least_ms, "%.3f"),
                fixed(static_cast<double>(o.flops) / s / 1e9, "%.2f"),
                fixed(static_cast<double>(o.bytes) / s / 1e9, "%.2f")});
  }
  return out + row({"all", "", "", fixed(total, "%.3f"), fixed(least, "%.3f"), "", ""}) +
         "</table>\n";
}

std::string roofline(const std::vector<OpTime>& all, const MachineSpeed& speed) {
  Series ops{"", "#3b78c3", {}, false};
  double low = 0.05, high = 200;
  for (const OpTime& o : all)
    if (o.flops > 0 && o.bytes > 0) {
      const double intensity = static_cast<double>(o.flops) / static_cast<double>(o.bytes);
      low = std::min(low, intensity / 1.5), high = std::max(high, intensity * 1.5);
    }
  for (const OpTime& o : all) {
    if (o.bytes == 0 || o.ms <= 0) continue;
    // What only moves bytes stands at the left end, as far below the roof as its bandwidth is.
    const double s = o.ms / 1e3, moved = static_cast<double>(o.bytes) / s;
    const double intensity =
        o.flops ? static_cast<double>(o.flops) / static_cast<double>(o.bytes) : low;
    ops.points.emplace_back(intensity, intensity * moved);
    ops.titles.push_back(cat(o.op, ": ", o.flops ? cat(si(intensity), " FLOP/byte, ") : "",
                             si(static_cast<double>(o.flops) / s), "FLOP/s, ", si(moved), "B/s"));
    ops.labels.push_back(o.flops ? o.op : o.op + " (moves only)");
  }
  Series roof{"roof", "#c3553b", {}};
  const double ridge = speed.flops_per_s / speed.bytes_per_s;
  roof.points = {
      {low, low * speed.bytes_per_s}, {ridge, speed.flops_per_s}, {high, speed.flops_per_s}};
  Axis x, y;
  x.is_log = y.is_log = true;
  x.label = "arithmetic intensity (FLOP per byte moved at least)", y.label = "FLOP/s";
  fit(x, y, {roof, ops});
  return chart(x, y, {roof, ops}, {}, 760, 400);
}

constexpr double kMib = 1 << 20;

std::string memory_chart(const Plan& plan, const StepCost& cost) {
  const size_t n = plan.steps.size();
  std::vector<double> live(n + 1, 0);
  for (const Slot& s : plan.slots) {
    if (s.kind != SlotKind::kArena) continue;
    for (size_t i = static_cast<size_t>(s.first_step);
         i <= static_cast<size_t>(s.last_step) && i < n; ++i)
      live[i] += static_cast<double>(s.bytes) / kMib;
  }
  Series arena{"live", "#3b78c3", {}, true, true}, top{"arena", "#c3553b", {}};
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
  if (bands.size() > 8) bands.clear();  // recomputation interleaves them
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
      cat(chart(x, y, {arena, top}, bands), "<p>The arena has ",
          fixed(static_cast<double>(plan.arena_bytes) / kMib, "%.2f"), " MiB; beside it lie ",
          fixed(static_cast<double>(cost.state_bytes) / kMib, "%.2f"),
          " MiB of weights, optimizer state and sums of gradients. ", held.size(),
          " buffers are live at the peak, in step ", peak, "; the largest: ");
  for (size_t i = 0; i < held.size() && i < 6; ++i)
    out += cat(i ? ", " : "", escape_html(held[i]->name.empty() ? "a workspace" : held[i]->name),
               " (", fixed(static_cast<double>(held[i]->bytes) / kMib, "%.2f"), " MiB)");
  return out + ".</p>\n";
}

// What the kernel says of the machine; "" where it says nothing.
std::string cpu_name() {
  const auto text = read_file("/proc/cpuinfo");
  const size_t at = text.ok() ? text->find("model name") : std::string::npos;
  if (at == std::string::npos) return "";
  const size_t begin = text->find(':', at) + 2;
  return text->substr(begin, text->find('\n', begin) - begin);
}

}  // namespace

Status write_report(const std::string& path, const Trainer& t, const TrainSummary& s,
                    const TrainHistory& history, const MachineSpeed& speed) {
  const TrainConfig& c = t.config();
  const auto ops = times_by_op(t, speed);
  std::string page = cat(
      "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Tegula: ",
      escape_html(c.model.type), "</title>\n", kStyle, "\n<h1>Training ", escape_html(c.model.type),
      "</h1>\n<p>", grouped(s.params), " parameters, ", c.model.n_layers, " layers, width ",
      c.model.d_model, "; ", s.steps, " steps of ", c.batch,
      c.accumulate > 1 ? cat(" × ", c.accumulate) : "", " sequences of ", c.model.max_seqlen,
      " tokens. Training loss ", fixed(s.train_loss, "%.4f"),
      std::isnan(s.val_loss) ? ""
                             : cat(", validation ", fixed(s.val_loss, "%.4f"), " (whole split)"),
      ". Median step ", fixed(s.step_ms, "%.2f"), " ms, ", fixed(s.tokens_per_s, "%.0f"),
      " tokens/s, MFU ",
      fixed(100 * static_cast<double>(s.flops_per_step_planned) / (s.step_ms / 1e3) /
                speed.flops_per_s,
            "%.1f"),
      " %.</p>\n<p class=\"facts\">", escape_html(t.data_summary), ". ", escape_html(cpu_name()),
      ", ", t.plan().n_threads, t.plan().n_threads == 1 ? " thread" : " threads",
      "; probed: ", si(speed.flops_per_s), "FLOP/s, ", si(speed.bytes_per_s),
      "B/s.</p>\n<h2>Loss</h2>\n", loss_chart(history));
  page +=
      cat("<h2>Predicted beside measured</h2>\n<table>", row({"", "planned", "measured", ""}, "th"),
          compare("FLOPs a step", s.flops_per_step_planned, s.flops_per_step_counted),
          compare("peak bytes", s.peak_bytes_planned, s.peak_bytes_measured), "</table>\n",
          "<p>FLOPs are counted by the kernels per executed tile; executed, with masked and padded "
          "elements: ",
          grouped(s.flops_per_step_executed),
          ". Peak memory is the highest byte written in a poisoned arena, plus weights and state; "
          "its lower bound for this order of ops is ",
          grouped(s.lower_bound_bytes), " bytes. Compiled in ", fixed(s.compile_ms, "%.1f"),
          " ms.</p>\n");
  page +=
      cat("<h2>Time per op</h2>\n", op_table(ops),
          "<p>By the roofline: FLOPs or least bytes of each launch, whichever takes longer at the "
          "probed speeds. What fits in the caches can be faster.</p>\n<h2>Roofline</h2>\n",
          roofline(ops, speed), "<h2>Memory of the plan</h2>\n", memory_chart(t.plan(), t.cost()),
          "</html>\n");
  return replace_file(path, page);
}

}  // namespace tegula
