#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/io/html.h"
#include "tegula/plan/gantt.h"
#include "tegula/planner/pipeline.h"
#include "tegula/planner/print.h"
#include "tegula/planner/report.h"

namespace tegula::planner {

namespace {

constexpr char kStyle[] =
    "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:960px;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;font-size:13px}td,th{padding:2px 8px;text-align:left;"
    "border-bottom:1px solid #ddd}svg{max-width:100%;height:auto}svg text{font:11px system-ui,"
    "sans-serif}.wide{overflow-x:auto}</style>\n";
// Distinguishable in print and for most eyes.
constexpr const char* kFills[] = {"#3766b0", "#7aa7e8", "#dd7d31", "#57a854", "#b07aa1", "#e15759",
                                  "#76b7b2", "#edc948", "#9c755f", "#bab0ac", "#4e4e4e", "#d3a6c8"};

// One bar of parts side by side, `whole` wide, with a legend below.
template <size_t N>
void bar(std::string& out, const std::array<Part, N>& parts, double whole, const char* unit,
         double scale) {
  constexpr double kWidth = 880;
  out += "<svg viewBox=\"0 0 900 30\">";
  double x = 10;
  for (size_t i = 0; i < N; ++i) {
    const double width = kWidth * parts[i].value / whole;
    if (width < 0.05) continue;
    print(out,
          "<rect x=\"%.2f\" y=\"4\" width=\"%.2f\" height=\"22\" "
          "fill=\"%s\"><title>%s</title></rect>",
          x, width, kFills[i % std::size(kFills)], parts[i].name);
    x += width;
  }
  print(out,
        "<rect x=\"10\" y=\"4\" width=\"%.0f\" height=\"22\" fill=\"none\" "
        "stroke=\"#888\"/></svg>\n<p>",
        kWidth);
  for (size_t i = 0; i < N; ++i)
    if (parts[i].value > 0)
      print(out, "<span style=\"color:%s\">■</span> %s %.4g %s &nbsp;",
            kFills[i % std::size(kFills)], parts[i].name, parts[i].value * scale, unit);
  out += "</p>\n";
}

void layouts_table(std::string& out, const Answer& a) {
  out +=
      "<h2>Layouts</h2>\n<div class=\"wide\"><table><tr><th>layout<th>s a step<th>from<th>to<th>MFU"
      "<th>HFU<th>GB<th>reserved<th><th>bubble<th>bound by</tr>\n";
  for (size_t i = 0; i < a.found.best.size(); ++i) {
    const StepPrice& p = a.found.best[i];
    const Reserve r = reserve_of(*a.cluster, a.job, p.layout, p.peak_bytes());
    print(out,
          "<tr><td>%s<td>%.4g<td>%.4g<td>%.4g<td>%.1f %%<td>%.1f %%<td>%.1f<td>%.1f to "
          "%.1f<td>%s<td>%.1f %%<td>%s</tr>\n",
          escape_html(to_string(p.layout)).c_str(), p.step_s(), a.intervals[i].low,
          a.intervals[i].high, 100 * mfu(a, p), 100 * hfu(a, p), p.peak_bytes() / 1e9, r.low / 1e9,
          r.high / 1e9, std::string(fit_name(r.fit)).c_str(), 100 * p.bubble(),
          std::string(p.bound_by()).c_str());
  }
  out += "</table></div>\n";
}

// Every product, and attention, of a layer and the head: operations a second over intensity, both
// logarithmic, under the roof of memory's bandwidth and the peak.
void roofline(std::string& out, const Answer& a, const StepPrice& best) {
  const Accelerator& d = a.cluster->device;
  const double peak = d.peak(a.job.dtype), ridge = d.ridge(a.job.dtype);
  const double low = 0.1, high = 1e5;
  const auto x = [&](double intensity) {
    return 60 + 820 * std::log10(std::clamp(intensity, low, high) / low) / std::log10(high / low);
  };
  const auto y = [&](double flops) {
    return 20 + 260 * (1 - std::log10(std::max(flops / peak, 1e-5) * 1e5) / 5);
  };
  out += "<h2>Roofline of a micro-batch on one rank</h2>\n<svg viewBox=\"0 0 900 320\">";
  print(out,
        "<polyline points=\"%.1f,%.1f %.1f,%.1f %.1f,%.1f\" fill=\"none\" stroke=\"#444\"/>"
        "<text x=\"%.1f\" y=\"%.1f\">%.4g TFLOP/s, ridge %.0f FLOPs a byte</text>",
        x(low), y(low * d.memory_bytes_per_s), x(ridge), y(peak), x(high), y(peak), x(ridge) + 6,
        y(peak) - 6, peak / 1e12, ridge);
  for (int decade = 0; decade <= 5; ++decade)
    print(out, "<text x=\"%.1f\" y=\"300\">%g</text>", x(std::pow(10, decade)) - 12,
          std::pow(10, decade));
  out += "<text x=\"700\" y=\"315\">FLOPs a byte</text>";
  const RankShape s = rank_shape(best.layout, a.preset.model, a.job);
  size_t colour = 0;
  for (const LayerWork& list : {layer_work(a.preset.model, s), head_work(a.preset.model, s)})
    for (const Work& w : list.forward) {
      if (w.flops <= 0) continue;
      const WorkPrice p = price(w, d, kExpected, a.job.dtype);
      const char* fill = kFills[colour % std::size(kFills)];
      const double legend = 130 + 15 * static_cast<double>(colour++);
      print(
          out,
          "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"%s\"/><circle cx=\"470\" cy=\"%.1f\" "
          "r=\"4\" fill=\"%s\"/><text x=\"480\" y=\"%.1f\">%s: %.4g a byte, %.4g TFLOP/s, bound by "
          "%s</text>",
          x(w.flops / w.bytes), y(w.flops / p.seconds), fill, legend - 4, fill, legend,
          std::string(w.name).c_str(), w.flops / w.bytes, w.flops / p.seconds / 1e12,
          std::string(bound_name(p.bound)).c_str());
    }
  out += "</svg>\n";
}

// Memory of the fullest rank's micro-batches in flight over the step, by the schedule's times.
void memory_over_time(std::string& out, const StepPrice& p, const PipelineRun& run) {
  struct Event {
    double at;
    int change;
  };
  std::vector<Event> events;
  for (const Simulated::Item& item : run.simulated.items) {
    if (item.rank != static_cast<int>(p.worst_stage)) continue;
    const PartKind kind = run.chain.program.parts[static_cast<size_t>(item.run.part)].kind;
    const bool is_last = run.schedule.weight_gradients_apart ? kind == PartKind::kWeightGradient
                                                             : kind == PartKind::kBackward;
    if (kind == PartKind::kForward) events.push_back({item.begin_s, 1});
    if (is_last) events.push_back({item.end_s, -1});
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const Event& a, const Event& b) { return a.at < b.at; });
  int now = 0, most = 1;
  for (const Event& e : events) now += e.change, most = std::max(most, now);
  const double held = p.peak_bytes() - p.memory.activations, top = p.peak_bytes();
  const auto y = [&](double bytes) { return 20 + 180 * (1 - bytes / top); };
  print(out,
        "<h2>Memory of stage %lld over the step</h2>\n<svg viewBox=\"0 0 900 220\"><polyline "
        "fill=\"none\" "
        "stroke=\"#3766b0\" points=\"60,%.1f",
        static_cast<long long>(p.worst_stage), y(held));
  now = 0;
  double last = y(held);
  for (const Event& e : events) {
    const double x = 60 + 820 * e.at / run.simulated.step_s;
    now += e.change;
    const double next = y(held + p.memory.activations * now / most);
    print(out, " %.1f,%.1f %.1f,%.1f", x, last, x, next);
    last = next;
  }
  print(out, "\"/><text x=\"62\" y=\"14\">%.1f GB at most, %.1f GB always</text></svg>\n",
        top / 1e9, held / 1e9);
}

void rejected_table(std::string& out, const Answer& a) {
  out += "<h2>Why not</h2>\n<div class=\"wide\"><table><tr><th>layout<th>why</tr>\n";
  for (const Rejected& r : a.found.rejected)
    out += cat("<tr><td>", escape_html(to_string(r.price.layout)), "<td>", escape_html(r.why),
               "</tr>\n");
  out += "</table></div>\n";
}

}  // namespace

std::string to_html(const Answer& a) {
  const StepPrice& p = a.found.best[0];
  const std::string title = cat(escape_html(a.preset.model.name), " on ", a.cluster->n_devices,
                                " × ", escape_html(a.cluster->device.name));
  std::string out = cat("<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>", title,
                        "</title>\n", kStyle, "<h1>", title, "</h1>\n");
  print(out, "<p>%s parameters, %s tokens a step in sequences of %s; %s layouts, %s fit.</p>\n",
        grouped(a.params.total).c_str(), grouped(a.job.batch_tokens).c_str(),
        grouped(a.job.seqlen).c_str(), grouped(a.found.n_layouts).c_str(),
        grouped(a.found.n_fit).c_str());
  layouts_table(out, a);
  out += "<h2>A step</h2>\n";
  bar(out, p.seconds.parts(), p.step_s(), "s", 1);
  // Bytes never there together are taken off the gradients.
  std::array<Part, 7> memory = p.memory.parts();
  memory[1].value += memory[6].value, memory[6].value = 0;
  print(out, "<h2>Memory of %.0f GB</h2>\n", visible_bytes(a.cluster->device) / 1e9);
  bar(out, memory, visible_bytes(a.cluster->device), "GB", 1e-9);
  StepPricer pricer(a.preset.model, a.params, *a.cluster, a.job);
  if (p.layout.pp > 1)
    if (const auto run = run_pipeline(pricer, p); run.ok()) {
      memory_over_time(out, p, *run);
      // The picture of many thousands of boxes is as large as it is grey.
      if (run->simulated.items.size() < 20000)
        out += cat("<h2>The pipeline</h2>\n<div class=\"wide\">",
                   gantt_svg(run->chain.program, run->simulated, to_string(p.layout)), "</div>\n");
    }
  roofline(out, a, p);
  rejected_table(out, a);
  return out + "</html>\n";
}

}  // namespace tegula::planner
