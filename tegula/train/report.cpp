#include "tegula/train/report.h"

#include <cmath>
#include <map>

#include "tegula/base/algorithm.h"
#include "tegula/base/text.h"
#include "tegula/io/file.h"
#include "tegula/io/html.h"
#include "tegula/plan/places.h"
#include "tegula/train/report_charts.h"
#include "tegula/train/settings.h"
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
.facts{color:#666}p{overflow-wrap:anywhere}.wide{overflow-x:auto}.wide>svg{min-width:600px}
.curves{display:flex;flex-wrap:wrap;gap:0 1em}.curves>svg{flex:1 1 300px;max-width:420px;min-width:0}
pre{font-size:.85em;white-space:pre-wrap;overflow-wrap:anywhere;background:#8881;padding:.6em .8em;margin:.6em 0}
.prompt{color:#777}
svg{width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:#555}
.grid{stroke:#e4e4e4;fill:none}.line{fill:none;stroke-width:1.6}.faint{stroke-opacity:.35;stroke-width:1}
.band0{fill:#8881}.band1{fill:#8883}.band2{fill:#8880}.equal{color:#070}.differs{color:#b00}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}td,th{border-color:#333}
.grid{stroke:#333}svg text{fill:#aaa}th,.facts,.prompt,td small{color:#999}.equal{color:#6c6}.differs{color:#f77}}
</style>)";

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

// By the roofline, of one launch.
double least_ms(const Step& s, const MachineSpeed& speed) {
  return 1e3 * std::max(static_cast<double>(s.flops) / speed.flops_per_s,
                        static_cast<double>(s.bytes) / speed.bytes_per_s);
}

// The times of one place in the model, in all its layers, by phase.
struct PlaceTime {
  std::string place;
  double ms[3] = {}, least_ms = 0;
  int64_t launches = 0;
  double sum() const { return ms[0] + ms[1] + ms[2]; }
};

std::vector<PlaceTime> times_by_place(const Trainer& t, const MachineSpeed& speed) {
  std::vector<PlaceTime> places;  // in the order of the model
  const double n = static_cast<double>(std::max<int64_t>(t.timed_steps(), 1));
  for (size_t i = 0; i < t.plan().steps.size(); ++i) {
    const Step& s = t.plan().steps[i];
    if (s.flops == 0 && s.bytes == 0) continue;
    const std::string name = place_in_layers(s.scope);
    auto p = std::find_if(places.begin(), places.end(),
                          [&](const PlaceTime& x) { return x.place == name; });
    if (p == places.end()) p = places.insert(places.end(), {name});
    p->ms[static_cast<size_t>(s.phase)] += t.step_stats()[i].seconds * 1e3 / n;
    p->least_ms += least_ms(s, speed), ++p->launches;
  }
  return places;
}

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
    o.least_ms += least_ms(s, speed);
    o.flops += s.flops, o.bytes += s.bytes, ++o.launches;
  }
  std::vector<OpTime> sorted;
  for (auto& [key, o] : by_op) sorted.push_back(std::move(o));
  std::sort(sorted.begin(), sorted.end(),
            [](const OpTime& a, const OpTime& b) { return a.ms > b.ms; });
  return sorted;
}

std::string share_bar(double share) {
  return cat("<span class=\"bar\" style=\"width:", printed("%.0f", 70 * share), "px\"></span>",
             printed("%.1f", 100 * share), " %");
}

std::string place_table(const std::vector<PlaceTime>& places) {
  PlaceTime all;
  for (const PlaceTime& p : places) {
    for (size_t k = 0; k < 3; ++k) all.ms[k] += p.ms[k];
    all.least_ms += p.least_ms, all.launches += p.launches;
  }
  const auto cells = [](const std::string& name, const std::string& share, const PlaceTime& p) {
    return row({name, std::to_string(p.launches), share, printed("%.3f", p.sum()),
                printed("%.3f", p.ms[0]), printed("%.3f", p.ms[1]), printed("%.3f", p.ms[2]),
                printed("%.3f", p.least_ms)});
  };
  std::string out = "<div class=\"wide\"><table id=\"places\">" +
                    row({"part of the model", "launches a step", "share", "ms a step", "forward",
                         "backward", "update", "ms by the roofline"},
                        "th");
  for (const PlaceTime& p : places)
    out += cells(escape_html(p.place), share_bar(all.sum() > 0 ? p.sum() / all.sum() : 0), p);
  return out + cells("all", "", all) + "</table></div>\n";
}

std::string op_table(const std::vector<OpTime>& ops) {
  double total = 0, least = 0;
  for (const OpTime& o : ops) total += o.ms, least += o.least_ms;
  std::string out =
      "<div class=\"wide\"><table>" + row({"op and kernel", "launches a step", "share", "ms a step",
                                           "ms by the roofline", "GFLOP/s", "GB/s (least bytes)"},
                                          "th");
  for (const OpTime& o : ops) {
    const double share = total > 0 ? o.ms / total : 0, s = o.ms > 0 ? o.ms / 1e3 : HUGE_VAL;
    out += row({cat(o.op, "<small>", o.kernel, "</small>"), std::to_string(o.launches),
                share_bar(share), printed("%.3f", o.ms), printed("%.3f", o.least_ms),
                printed("%.2f", static_cast<double>(o.flops) / s / 1e9),
                printed("%.2f", static_cast<double>(o.bytes) / s / 1e9)});
  }
  return out + row({"all", "", "", printed("%.3f", total), printed("%.3f", least), "", ""}) +
         "</table></div>\n";
}

std::string samples_html(const std::vector<TextSample>& samples) {
  if (samples.empty()) return "";
  std::string out =
      "<h2>Samples</h2>\n<p class=\"facts\">Drawn at temperature 0.8 from the last weights, after "
      "the "
      "beginning of the validation split (grey).</p>\n";
  for (const TextSample& s : samples)
    out += cat("<pre class=\"sample\"><span class=\"prompt\">", escape_html(s.prompt), "</span>",
               escape_html(s.text), "</pre>\n");
  return out;
}

// The name that the kernel says of the machine; "" where it says nothing.
std::string cpu_name() {
  const auto text = read_file("/proc/cpuinfo");
  const size_t at = text.ok() ? text->find("model name") : std::string::npos;
  if (at == std::string::npos) return "";
  const size_t begin = text->find(':', at) + 2;
  return text->substr(begin, text->find('\n', begin) - begin);
}

}  // namespace

Status write_report(const std::string& path, const Trainer& t, const TrainSummary& s,
                    const TrainHistory& history, const MachineSpeed& speed,
                    const Utilisation& utilisation, const std::vector<TextSample>& samples) {
  const TrainConfig& c = t.config();
  const auto ops = times_by_op(t, speed);
  std::string page = cat(
      "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>Tegula: ",
      escape_html(c.model.type), "</title>\n", kStyle, "\n<h1>Training ", escape_html(c.model.type),
      "</h1>\n<p>", grouped(s.params), " parameters, ", c.model.n_layers, " layers, width ",
      c.model.d_model, "; ", s.steps, " steps of ", c.batch,
      c.accumulate > 1 ? cat(" × ", c.accumulate) : "", " sequences of ", c.row_length(),
      " tokens. Training loss ", printed("%.4f", s.train_loss),
      std::isnan(s.eval.val_loss)
          ? ""
          : cat(", validation ", printed("%.4f", s.eval.val_loss), " (whole split; ",
                std::isnan(s.eval.bits_per_byte)
                    ? std::string("masked tokens")
                    : cat(printed("%.3f", s.eval.bits_per_byte), " bits a byte"),
                "; lowest: ", printed("%.4f", s.best_val_loss), " at step ", s.best_step, ")"),
      ". Median step ", printed("%.2f", s.step_ms), " ms, ", printed("%.0f", s.tokens_per_s),
      " tokens/s, MFU ", printed("%.1f", 100 * utilisation.mfu(s.step_ms)), " %, HFU ",
      printed("%.1f", 100 * utilisation.hfu(s.step_ms)), " %.</p>\n<p class=\"facts\">",
      escape_html(t.data_summary), ". ", escape_html(cpu_name()), ", ", t.plan().target.n_threads,
      t.plan().target.n_threads == 1 ? " thread" : " threads", "; probed: ", si(speed.flops_per_s),
      "FLOP/s, ", si(speed.bytes_per_s), "B/s.</p>\n<h2>Loss</h2>\n", loss_chart(history),
      "<h2>Learning rate, gradient norm, throughput</h2>\n",
      step_curves(history, c.batch * c.accumulate * c.row_length()), samples_html(samples));
  page +=
      cat("<h2>Predicted beside measured</h2>\n<div class=\"wide\"><table>",
          row({"", "planned", "measured", ""}, "th"),
          compare("FLOPs a step", s.flops_per_step_planned, s.flops_per_step_counted),
          compare("peak bytes", s.peak_bytes_planned, s.peak_bytes_measured), "</table></div>\n",
          "<p>FLOPs are counted by the kernels per executed tile; executed, with masked and padded "
          "elements: ",
          grouped(s.flops_per_step_executed),
          ". Computed again to save memory: ", grouped(s.flops_per_step_recomputed),
          ", which HFU has and MFU has not; both count ",
          grouped(static_cast<int64_t>(utilisation.model_flops)),
          " of the model, products and attention over all keys. Peak memory is where what results "
          "and kernels claimed in the arena ends, which nobody "
          "wrote behind, plus weights and state; the last bytes written end at ",
          grouped(s.peak_bytes_written), ". Its lower bound for this order of ops is ",
          grouped(s.lower_bound_bytes), " bytes. ", explain_process_memory(s), " Compiled in ",
          printed("%.1f", s.compile_ms), " ms.</p>\n");
  page += cat(
      "<h2>Time per part of the model</h2>\n", place_table(times_by_place(t, speed)),
      "<p>A star stands for all layers. What belongs to no part, as the gradient's norm, is "
      "<i>other</i>.</p>\n<h2>Time per op</h2>\n",
      op_table(ops), "<p>",
      c.accumulate > 1 ? cat("Of one of a step's ", c.accumulate, " micro-steps. ") : "",
      "By the roofline: FLOPs or least bytes of each launch, whichever takes longer at the "
      "probed speeds. What fits in the caches can be faster.</p>\n<h2>Roofline</h2>\n",
      roofline_chart(ops, speed), "<h2>Memory of the plan</h2>\n", memory_chart(t.plan(), t.cost()),
      "<h2>Configuration</h2>\n<p>As a file for <code>tegula train --config</code>:</p>\n"
      "<pre id=\"config\">",
      escape_html(settings_toml(c)), "</pre>\n</html>\n");
  return replace_file(path, page);
}

}  // namespace tegula
