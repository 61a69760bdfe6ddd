#include "tegula/train/timeline.h"

#include <cstdio>
#include <map>

#include "tegula/base/algorithm.h"
#include "tegula/base/text.h"
#include "tegula/io/html.h"
#include "tegula/ir/opdef.h"
#include "tegula/plan/gantt.h"

namespace tegula {

namespace {

constexpr double kWidth = 1400, kLeft = 130, kRow = 34;
constexpr const char* kRows[] = {"products", "other kernels", "copies", "host", "the rest"};
constexpr size_t kRest = 4;
constexpr const char* kKindNames[] = {"kernel", "copy", "fill"};  // of DeviceSpan::Kind
constexpr const char* kStyle =
    "body{font:14px system-ui,sans-serif;margin:24px;color:#222}td,th{padding:2px 12px 2px "
    "0;text-align:left}td.n,th.n{text-align:right}.wide{overflow-x:auto}";

constexpr const char* kLegend =
    "<span style=\"color:#3b78c3\">forward</span>, <span style=\"color:#c3553b\">backward</span>, "
    "<span style=\"color:#3f9150\">update</span>; milliseconds; names on hover.</p>\n";

constexpr const char* kColors[] = {"#3b78c3", "#c3553b", "#3f9150", "#c39a3b", "#999"};
constexpr int kWeights = 3, kMessages = 4;  // of a pipeline, behind the phases

Queue queue_of(const Step& step, bool is_device) {
  if (is_device && !step.kernel && step.regions.empty()) return Queue::kHost;
  const std::string_view op = step.op->name;
  if (op == "copy" || op == "concat" || op == "pad" || op == "reshape") return Queue::kCopies;
  return step.op->precision == Precision::kLow ? Queue::kProducts : Queue::kKernels;
}

std::string rect(double from_ms, double to_ms, double scale, size_t row, const char* color,
                 const std::string& title) {
  return cat("<rect x=\"", printed("%.2f", kLeft + from_ms * scale), "\" y=\"",
             printed("%.0f", kRow * static_cast<double>(row) + 4), "\" width=\"",
             printed("%.2f", std::max((to_ms - from_ms) * scale, 0.2)), "\" height=\"", kRow - 8,
             "\" fill=\"", color, "\"><title>", escape_html(title), "</title></rect>\n");
}

std::string text(double x, size_t row, std::string_view more, std::string_view what) {
  return cat("<text x=\"", printed("%.2f", x), "\" y=\"",
             printed("%.0f", kRow * (static_cast<double>(row) + 0.6)), "\" font-size=\"13\"", more,
             ">", what, "</text>\n");
}

std::string svg_begin(double bottom) {
  return cat("<div class=wide><svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", kWidth,
             "\" height=\"", bottom + 24, "\">\n");
}

std::string page_begin(std::string_view title) {
  const std::string t = escape_html(title);
  return cat("<!doctype html><html lang=en><meta charset=utf-8><title>", t, "</title><style>",
             kStyle, "</style><h1>", t, "</h1>\n<p>");
}

// Time marks below the rows, at round numbers.
std::string axis(double all_ms, double scale, double bottom) {
  double every = 1e-4;
  for (int i = 0; all_ms / every > 12; ++i) every *= i % 3 == 1 ? 2.5 : 2;
  std::string out;
  for (double t = 0; t <= all_ms; t += every)
    out += cat("<text x=\"", printed("%.1f", kLeft + t * scale), "\" y=\"", bottom + 16,
               "\" font-size=\"11\" text-anchor=\"middle\">", printed("%g", t), "</text>\n");
  return out;
}

struct Sum {
  int64_t calls = 0;
  double ms = 0;
};

std::string table(const std::vector<TimelineEvent>& events, double all_ms) {
  std::map<std::string, Sum> by_kernel;
  for (const TimelineEvent& e : events) {
    Sum& s = by_kernel[cat(e.op, " ", e.kernel)];
    ++s.calls, s.ms += e.own_ms;
  }
  std::vector<std::pair<std::string, Sum>> rows(by_kernel.begin(), by_kernel.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.ms > b.second.ms; });
  std::string out =
      "<table><tr><th>op, kernel</th><th class=n>calls</th><th class=n>ms</th><th class=n>share of "
      "the step</th></tr>\n";
  for (const auto& [name, s] : rows)
    out += cat("<tr><td>", escape_html(name), "</td><td class=n>", s.calls, "</td><td class=n>",
               printed("%.4f", s.ms), "</td><td class=n>", printed("%.1f", 100 * s.ms / all_ms),
               " %</td></tr>\n");
  return out + "</table>\n";
}

}  // namespace

std::vector<TimelineEvent> timeline_of(const Plan& plan, std::span<const StepStats> stats,
                                       int64_t timed_steps) {
  std::vector<TimelineEvent> events;
  double at = 0;
  const bool is_device = plan.target.device != DeviceKind::kCpu;
  for (size_t i = 0; i < plan.steps.size() && i < stats.size() && timed_steps > 0; ++i) {
    const Step& step = plan.steps[i];
    const double ms = 1e3 * stats[i].seconds / static_cast<double>(timed_steps);
    if (ms <= 0) continue;
    events.push_back({std::string(step.op->name),
                      std::string(step.kernel            ? step.kernel->name
                                  : step.regions.empty() ? "reference"
                                                         : "bodies"),
                      step.scope, step.phase, queue_of(step, is_device), at, at + ms, ms});
    at += ms;
  }
  return events;
}

std::vector<TimelineEvent> placed_events(const Plan& plan, std::span<const int64_t> launches,
                                         std::span<const DeviceSpan> spans) {
  const std::vector<int> steps = steps_of(spans, launches);
  const std::vector<double> own = own_ms(spans);
  std::vector<TimelineEvent> events;
  for (size_t k = 0; k < spans.size(); ++k) {
    const DeviceSpan& s = spans[k];
    TimelineEvent e{.op = kKindNames[s.kind], .kernel = s.name, .scope = {}};
    e.begin_ms = s.begin_ms, e.end_ms = s.end_ms, e.own_ms = own[k];
    if (s.kind != DeviceSpan::kKernel) e.queue = Queue::kCopies, e.kernel = cat(s.bytes, " bytes");
    if (!steps.empty() && steps[k] >= 0) {
      const Step& step = plan.steps[steps[k]];
      e.op = step.op->name, e.scope = step.scope, e.phase = step.phase;
      if (s.kind == DeviceSpan::kKernel) e.queue = queue_of(step, true);
    }
    events.push_back(std::move(e));
  }
  return events;
}

namespace {

// Where no bar is, from the first one's beginning to the last one's end.
std::string gaps(const std::vector<TimelineEvent>& events, double scale) {
  std::string out;
  double until = events.empty() ? 0 : events[0].begin_ms;
  for (const TimelineEvent& e : events) {
    if (e.begin_ms > until)
      out += rect(until, e.begin_ms, scale, kRest, "#999",
                  cat("gap before ", e.op, ": ", printed("%.4f", e.begin_ms - until), " ms"));
    until = std::max(until, e.end_ms);
  }
  return out;
}

// The caption of bars end to end.
std::string what_is_said(const Timeline& t, double busy) {
  std::string said = cat(t.events.size(), " ops take ", printed("%.4f", busy), " ms");
  const double rest = t.step_ms - busy;
  if (t.step_ms > 0)
    said +=
        cat(" of a step of ", printed("%.4f", t.step_ms), " ms; ",
            rest > 0 ? cat(printed("%.4f", rest), " ms (", printed("%.1f", 100 * rest / t.step_ms),
                           " %) are in none of them")
                     : std::string("steps that are not timed op by op are faster than their sum"));
  return said;
}

}  // namespace

std::string timeline_html(const Timeline& t, std::string_view title) {
  double end = 0;
  for (const TimelineEvent& e : t.events) end = std::max(end, e.end_ms);
  const double all = std::max({end, t.is_placed ? 0 : t.step_ms, 1e-6});
  const double scale = (kWidth - kLeft - 20) / all, bottom = kRow * 5;
  std::string svg = svg_begin(bottom);
  for (size_t row = 0; row <= kRest; ++row)
    svg += text(4, row, "", row == kRest && t.is_placed ? "gaps" : kRows[row]);
  for (const TimelineEvent& e : t.events)
    svg +=
        rect(e.begin_ms, e.end_ms, scale, static_cast<size_t>(e.queue),
             kColors[static_cast<size_t>(e.phase)],
             cat(e.op, " (", e.kernel, ") ", e.scope, ": ", printed("%.4f", e.end_ms - e.begin_ms),
                 " ms from ", printed("%.4f", e.begin_ms)));
  if (t.is_placed)
    svg += gaps(t.events, scale);
  else if (t.step_ms > end)
    svg += rect(end, t.step_ms, scale, kRest, "#999",
                cat("not in any op: ", printed("%.4f", t.step_ms - end), " ms"));
  svg += axis(all, scale, bottom) + "</svg></div>\n";
  const std::string said = t.is_placed ? cat(t.events.size(),
                                             " kernels and copies of one replayed step, as the "
                                             "device ran them")
                                       : what_is_said(t, end);
  return cat(page_begin(title), said, ". ", t.note.empty() ? "" : cat(escape_html(t.note), ". "),
             kLegend, svg, "<h2>By kernel</h2>\n", table(t.events, all), "</html>\n");
}

namespace {

// One bar of a rank; as a text, a line.
struct RankBar {
  int64_t rank = 0;
  int is_exchange = 0, color = 0;
  double begin_ms = 0, end_ms = 0;
  int part = -1, micro_batch = -1;  // of a pipeline: what runs, or what the exchange is within
  std::string what;
};

std::string line_of(const RankBar& b) {
  return cat(b.rank, ' ', b.is_exchange, ' ', b.color, printed(" %.6f %.6f ", b.begin_ms, b.end_ms),
             b.part, ' ', b.micro_batch, ' ', b.what, '\n');
}

Result<RankBar> read_bar(const std::string& line) {
  RankBar b;
  long long rank = 0;
  int end = 0;
  if (std::sscanf(line.c_str(), "%lld %d %d %lf %lf %d %d %n", &rank, &b.is_exchange, &b.color,
                  &b.begin_ms, &b.end_ms, &b.part, &b.micro_batch, &end) != 7 ||
      b.color < 0 || b.color > kMessages)
    return internal_error(cat("this is no bar of a rank: ", line));
  b.rank = rank, b.what = line.substr(static_cast<size_t>(end));
  return b;
}

std::string what_runs(const Plan& plan, size_t i) {
  const Step& s = plan.steps[i];
  const std::string_view half = s.starts >= 0 ? " begins" : s.ends >= 0 ? " ends" : "";
  return cat(s.op->name, half, " of ", plan.name, s.scope.empty() ? "" : ", ", s.scope);
}

int color_of(PartKind kind) {
  if (kind == PartKind::kWeightGradient) return kWeights;
  return kind == PartKind::kForward ? 0 : is_per_micro_batch(kind) ? 1 : 2;
}

// By ProgramStep::Kind.
constexpr const char* kDoes[] = {
    "", "sums joined behind ", "expect ", "wait for ", "send ", "reclaim ", "clear "};

}  // namespace

std::string bars_of_rank(int64_t rank, const Plan& plan, std::span<const StepStats> stats) {
  std::string text;
  for (size_t i = 0; i < plan.steps.size() && i < stats.size(); ++i)
    if (const Step& s = plan.steps[i]; stats[i].ended_s > 0)
      text += line_of({rank, s.op->collective != nullptr, static_cast<int>(s.phase),
                       1e3 * stats[i].began_s, 1e3 * stats[i].ended_s, -1, -1, what_runs(plan, i)});
  return text;
}

std::string bars_of_rank(int64_t rank, const ProgramSession& session) {
  const PlannedProgram& p = session.program();
  std::string text;
  for (const ProgramSession::Ran& ran : session.ran()) {
    const ProgramStep& s = p.steps[ran.step];
    RankBar b{rank, 1, kMessages, 1e3 * ran.began_s, 1e3 * ran.ended_s};
    if (ran.collective >= 0)
      b.what = what_runs(p.plan_of(s), static_cast<size_t>(ran.collective)) + " in ";
    b.what += kDoes[static_cast<size_t>(s.kind)];
    if (s.kind > ProgramStep::Kind::kJoin) {
      const Message& m = p.messages[s.message];
      b.what += cat(text_of(p.program, m), ", pp ", m.from, " to ", m.to);
    } else {
      const Part& part = p.program.parts[s.run.part];
      const bool is_run = s.kind == ProgramStep::Kind::kRun;
      b.is_exchange = ran.collective >= 0, b.color = color_of(part.kind);
      b.part = is_run ? s.run.part : -1;
      b.micro_batch = is_run && is_per_micro_batch(part.kind) ? s.run.micro_batch : -1;
      b.what += text_of(Instr{part.kind, part.stage, s.run.micro_batch});
    }
    text += line_of(b);
  }
  return text;
}

namespace {

// The schedule with the mean time of each part, its ranks apart.
Result<std::string> simulated_below(std::span<const RankBar> bars, const PlannedProgram& pipeline) {
  std::vector<Sum> sums(pipeline.program.parts.size());
  for (const RankBar& b : bars) {
    if (b.part < 0 || b.is_exchange) continue;
    const auto part = static_cast<size_t>(b.part);
    if (part >= sums.size()) return internal_error(cat("a bar of part ", part));
    ++sums[part].calls, sums[part].ms += b.end_ms - b.begin_ms;
  }
  std::vector<double> seconds;
  for (const Sum& sum : sums)
    seconds.push_back(1e-3 * sum.ms / static_cast<double>(std::max<int64_t>(sum.calls, 1)));
  const Simulated s =
      TEGULA_TRY(simulate(pipeline.program, pipeline.schedule, {.seconds = seconds}));
  return cat(
      "<p>Numbers are micro-batches, as each rank's list has them; <span style=\"color:#c39a3b\">"
      "weight gradients</span>, messages grey.</p>\n<h2>The schedule, simulated</h2>\n<p>A row for "
      "each place along pp. Parts take the mean of what they took above, on a processor of their "
      "own; messages take no time: ",
      printed("%.4f", 1e3 * s.step_s), " ms, ", printed("%.1f", 100 * s.bubble),
      " % of it waiting.</p>\n<div class=wide>", gantt_svg(pipeline.program, s, "Simulated"),
      "</div>\n");
}

Result<std::vector<RankBar>> read_bars(std::span<const std::string> texts, int64_t n_ranks) {
  std::vector<RankBar> bars;
  for (std::string_view text : texts)
    while (!text.empty()) {
      bars.push_back(TEGULA_TRY(read_bar(std::string(take_until('\n', text)))));
      if (bars.back().rank < 0 || bars.back().rank >= n_ranks)
        return internal_error(cat("a bar of rank ", bars.back().rank, " of ", n_ranks));
    }
  double first = bars.empty() ? 0 : bars[0].begin_ms;
  for (const RankBar& b : bars) first = std::min(first, b.begin_ms);
  for (RankBar& b : bars) b.begin_ms -= first, b.end_ms -= first;
  return bars;
}

}  // namespace

Result<std::string> ranks_html(std::span<const std::string> texts, int64_t n_ranks,
                               std::string_view title, const PlannedProgram* pipeline) {
  const std::vector<RankBar> bars = TEGULA_TRY(read_bars(texts, n_ranks));
  double all = 1e-6;
  for (const RankBar& b : bars) all = std::max(all, b.end_ms);
  const double scale = (kWidth - kLeft - 20) / all;
  const double bottom = kRow * static_cast<double>(2 * n_ranks);
  std::string svg = svg_begin(bottom);
  std::vector<double> computes(static_cast<size_t>(n_ranks)), exchanges(computes.size());
  for (size_t row = 0; row < 2 * computes.size(); ++row)
    svg += text(4, row, "", row % 2 == 0 ? cat("rank ", row / 2) : "exchanges");
  for (const RankBar& b : bars) {
    const auto rank = static_cast<size_t>(b.rank);
    const double ms = b.end_ms - b.begin_ms;
    (b.is_exchange ? exchanges : computes)[rank] += ms;
    if (b.is_exchange && b.part >= 0) computes[rank] -= ms;
    const size_t row = 2 * rank + (b.is_exchange ? 1 : 0);
    svg += rect(b.begin_ms, b.end_ms, scale, row, kColors[b.color],
                cat(b.what, ": ", printed("%.4f", ms), " ms from ", printed("%.4f", b.begin_ms)));
    if (b.micro_batch >= 0 && !b.is_exchange && ms * scale > 24)
      svg += text(kLeft + (b.begin_ms + ms / 2) * scale, row,
                  " fill=\"#fff\" text-anchor=\"middle\"", cat(b.micro_batch));
  }
  svg += axis(all, scale, bottom) + "</svg></div>\n";
  if (pipeline) svg += TEGULA_TRY(simulated_below(bars, *pipeline));
  std::string sums =
      "<table><tr><th>rank</th><th class=n>computes, ms</th><th class=n>exchanges and waits, "
      "ms</th><th class=n>neither, ms</th></tr>\n";
  for (size_t r = 0; r < computes.size(); ++r)
    sums += cat("<tr><td>", r, "</td><td class=n>", printed("%.4f", computes[r]),
                "</td><td class=n>", printed("%.4f", exchanges[r]), "</td><td class=n>",
                printed("%.4f", all - computes[r] - exchanges[r]), "</td></tr>\n");
  return cat(page_begin(title), "The last step, ", printed("%.4f", all),
             " ms from its first op to its last one, by the machine's clock. ", kLegend, svg,
             "<h2>By rank</h2>\n", sums, "</table></html>\n");
}

Result<std::string> timeline_page(const Trainer& trainer, const TrainSummary& summary) {
  if (trainer.timed_steps() == 0)
    return invalid_argument("--timeline: no step was timed: the first two steps of a run are not");
  const Plan& plan = trainer.plan();
  const int64_t parts = trainer.config().accumulate;
  const std::string of =
      cat(trainer.config().model.type, ", ", trainer.config().dtype, ", ", plan.target.name);
  if (const auto& bars = trainer.rank_bars(); !bars.empty()) {
    const Mesh& mesh = trainer.config().mesh;
    const CompiledStages* const stages = trainer.stages();
    return ranks_html(
        bars, mesh.n_ranks(),
        cat(parts > 1 && !stages ? "The last micro-batch of a step, and its update, on "
                                 : "A training step on ",
            to_text(mesh), stages ? cat(", ", trainer.config().schedule) : "", ": ", of),
        stages ? stages->ranks[0].get() : nullptr);
  }
  const RunTrace& trace = trainer.trace();
  Timeline t;
  t.step_ms = summary.step_ms;
  if (!trace.spans.empty()) {
    t.is_placed = true;
    t.events = placed_events(plan, trainer.launches(), trace.spans);
    t.note = gaps_of(trace, summary.step_ms);
    return timeline_html(t, cat("A training step: ", of));
  }
  t.events = timeline_of(plan, trainer.step_stats(), trainer.timed_steps());
  if (parts > 1) t.step_ms = 0;
  if (plan.target.device != DeviceKind::kCpu)
    t.note = cat(
        "Ops are drawn end to end; when the device ran them is unknown: ",
        trace.missing.empty() ? cat("step ", kTracedStep, " of a run is traced") : trace.missing);
  return timeline_html(t, cat(parts > 1 ? "A micro-batch of a step: " : "A training step: ", of));
}

}  // namespace tegula
