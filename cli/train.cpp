#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "cli/command.h"
#include "cli/config.h"
#include "cli/machine.h"
#include "cli/paths.h"
#include "cli/process.h"
#include "cli/processes.h"
#include "cli/train_flags.h"
#include "tegula/base/algorithm.h"
#include "tegula/base/text.h"
#include "tegula/base/thread_pool.h"
#include "tegula/comm/join.h"
#include "tegula/comm/remote.h"
#include "tegula/io/json.h"
#include "tegula/io/jsonl.h"
#include "tegula/io/run_directory.h"
#include "tegula/planner/layer_work.h"
#include "tegula/planner/model_config.h"
#include "tegula/serve/generator.h"
#include "tegula/train/report.h"
#include "tegula/train/timeline.h"
#include "tegula/train/trainer.h"

namespace tegula::cli {

namespace {

// State that the callbacks share.
struct Progress {
  const TrainConfig* config = nullptr;
  StepCost cost;  // planned
  TrainHistory history;
  std::unique_ptr<JsonlWriter> metrics;
  Status metrics_written;  // the first failure: the run goes on without metrics, and says so
  bool is_terminal = isatty(STDERR_FILENO) == 1;
  MachineSpeed speed;
  Utilisation utilisation;
  double last_print_ms = 0, elapsed_ms = 0;
  int64_t first_step = 0;  // done before this run
};

std::string duration(double s) {
  if (s < 120) return printed("%.0f s", s);
  return s < 7200 ? printed("%.0f min", s / 60) : printed("%.1f h", s / 3600);
}

void print_step(Progress& p, const StepReport& r, bool final) {
  const double mean_ms = p.elapsed_ms / static_cast<double>(r.step - p.first_step);
  const std::string line = printed(
      "step %lld/%lld  loss %.4f  %.0f tokens/s  %.1f ms  MFU %.0f%%  HFU %.0f%%  %.1f MiB  ETA %s",
      static_cast<long long>(r.step), static_cast<long long>(p.config->steps), r.loss,
      r.tokens_per_s, r.step_ms, 100 * p.utilisation.mfu(r.step_ms),
      100 * p.utilisation.hfu(r.step_ms), static_cast<double>(p.cost.peak_bytes()) / (1 << 20),
      duration(static_cast<double>(p.config->steps - r.step) * mean_ms / 1e3).c_str());
  if (!p.is_terminal) {
    std::fprintf(stderr, "%s\n", line.c_str());
    return;
  }
  // A line that wraps could not be overwritten.
  winsize size{};
  const int columns =
      ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
  std::fprintf(stderr, "\r\033[K%.*s%s", columns - 1, line.c_str(), final ? "\n" : "");
}

void add_metric(Progress& p, const Json& row) {
  if (!p.metrics) return;
  p.metrics_written = p.metrics->append(row);
  if (!p.metrics_written.ok()) p.metrics.reset();
}

// False: not one of this run's.
bool add_row(TrainHistory& history, const Json& row, int64_t last_step) {
  const auto number = [&](const char* key) {
    const Json* v = row.find(key);
    return v ? v->number(NAN) : NAN;
  };
  const auto* at = row.find_as<int64_t>("step");
  if (!at || *at < 0 || *at > last_step) return false;
  if (row.find("val_loss")) {
    history.evals.push_back(
        {*at, number("val_loss"), number("train_split_loss"), number("bits_per_byte")});
    return std::isfinite(history.evals.back().val_loss);
  }
  StepReport r;
  r.step = *at, r.loss = number("loss"), r.grad_norm = number("grad_norm");
  r.lr = number("lr"), r.step_ms = number("step_ms");
  history.steps.push_back(r);
  return std::isfinite(r.loss);
}

// The rows that a resumed run wrote before it stopped become its history again.
Status open_metrics(Progress& p, const std::string& path, int64_t step) {
  if (!p.config->resume) {
    p.metrics = std::make_unique<JsonlWriter>(TEGULA_TRY(JsonlWriter::create(path)));
    return {};
  }
  std::vector<std::string> notes;
  p.metrics = std::make_unique<JsonlWriter>(
      TEGULA_TRY(JsonlWriter::resume(path, "step", static_cast<double>(step), notes)));
  int64_t n_strange = 0;
  for (const Json& row : TEGULA_TRY(read_jsonl(path))) {
    const size_t n_steps = p.history.steps.size(), n_evals = p.history.evals.size();
    if (add_row(p.history, row, step)) continue;
    ++n_strange;
    p.history.steps.resize(n_steps), p.history.evals.resize(n_evals);
  }
  if (n_strange > 0)
    notes.push_back(cat(n_strange, n_strange == 1 ? " row of '" : " rows of '", path,
                        "' without a step from 0 to ", step,
                        " and a loss: left out of the report"));
  for (const std::string& note : notes) print_note(note);
  return {};
}

void on_step(void* context, const StepReport& r) {
  auto& p = *static_cast<Progress*>(context);
  p.history.steps.push_back(r);
  p.elapsed_ms += r.step_ms;
  Json row = Json::object({{"step", r.step},
                           {"loss", r.loss},
                           {"grad_norm", r.grad_norm},
                           {"lr", r.lr},
                           {"step_ms", r.step_ms}});
  if (p.config->dtype == "f16") row.set("loss_scale", r.loss_scale);
  add_metric(p, row);
  const double every_ms = p.is_terminal ? 200 : 5000;
  if (r.step == 1 || r.step == p.config->steps || p.elapsed_ms - p.last_print_ms >= every_ms) {
    p.last_print_ms = p.elapsed_ms;
    print_step(p, r, r.step == p.config->steps);
    stop_if_unread();
  }
}

void on_eval(void* context, const EvalReport& e) {
  auto& p = *static_cast<Progress*>(context);
  p.history.evals.push_back(e);
  add_metric(p, Json::object({{"step", e.step},
                              {"val_loss", e.val_loss},
                              {"train_split_loss", e.train_loss},
                              {"bits_per_byte", e.bits_per_byte}}));
  const std::string bits =
      std::isnan(e.bits_per_byte) ? "" : printed("  %.3f bits a byte", e.bits_per_byte);
  std::fprintf(stderr, "%sstep %lld  validation loss %.4f  training split %.4f%s%s\n",
               p.is_terminal ? "\r\033[K" : "", static_cast<long long>(e.step), e.val_loss,
               e.train_loss, bits.c_str(), e.is_best ? "  lowest" : "");
}

Json ranks_json(const TrainSummary& s) {
  return json_list(s.ranks, [](const RankSummary& r) {
    return Json::object({{"flops", r.flops_counted},
                         {"flops_planned", r.flops_planned},
                         {"sent_bytes", r.sent_bytes_counted},
                         {"sent_bytes_planned", r.sent_bytes_planned},
                         {"peak_bytes", r.peak_bytes_measured},
                         {"peak_bytes_planned", r.peak_bytes_planned}});
  });
}

Json links_json(const TrainSummary& s) {
  Json::Array calls = json_list(s.links, [](const LinkUse& l) {
    return Json::object(
        {{"call", l.call}, {"times", l.times}, {"link_s", l.link_s}, {"waited_s", l.waited_s}});
  });
  return Json::object({{"calls", std::move(calls)},
                       {"hidden", std::isnan(s.hidden()) ? Json() : Json(s.hidden())}});
}

Json summary_json(const TrainSummary& s, const Utilisation& u) {
  return Json::object({{"steps", s.steps},
                       {"train_loss", s.train_loss},
                       {"val_loss", s.eval.val_loss},
                       {"train_split_loss", s.eval.train_loss},
                       {"bits_per_byte", s.eval.bits_per_byte},
                       {"best_val_loss", s.best_val_loss},
                       {"best_step", s.best_step < 0 ? Json() : Json(s.best_step)},
                       {"tokens_per_s", s.tokens_per_s},
                       {"step_ms", s.step_ms},
                       {"params", s.params},
                       {"loss_scale", s.loss_scale.scale},
                       {"skipped_steps", s.loss_scale.skipped},
                       {"flops_per_step_planned", s.flops_per_step_planned},
                       {"flops_per_step_counted", s.flops_per_step_counted},
                       {"flops_per_step_executed", s.flops_per_step_executed},
                       {"flops_per_step_recomputed", s.flops_per_step_recomputed},
                       {"model_flops_per_step", u.model_flops},
                       {"peak_flops_per_s", u.peak_flops_per_s},
                       {"mfu", u.mfu(s.step_ms)},
                       {"hfu", u.hfu(s.step_ms)},
                       {"bytes_per_step_planned", s.bytes_per_step_planned},
                       {"peak_bytes_planned", s.peak_bytes_planned},
                       {"peak_bytes_measured", s.peak_bytes_measured},
                       {"peak_bytes_written", s.peak_bytes_written},
                       {"process_touched_bytes", s.process_touched_bytes},
                       {"process_touched_before_bytes", s.process_touched_before_bytes},
                       {"process_peak_bytes", s.process_peak_bytes},
                       {"process_allocated_bytes", s.process_allocated_bytes},
                       {"peak_bytes_lower_bound", s.lower_bound_bytes},
                       {"ranks", ranks_json(s)},
                       {"links", links_json(s)},
                       {"compile_ms", s.compile_ms},
                       {"device", s.device},
                       {"host_steps", s.host_steps},
                       {"device_taken_bytes", s.device_taken_bytes},
                       {"interrupted", s.interrupted}});
}

// Says what the first rank's links took, beside kernels or waited for, and the calls that hid
// least.
void print_links(const TrainSummary& s) {
  double link_s = 0, waited_s = 0;
  for (const LinkUse& l : s.links) link_s += l.link_s, waited_s += l.waited_s;
  std::fprintf(stderr, "links: %.3f s, %.3f s of it waited for: %.1f %% hidden\n", link_s, waited_s,
               100 * s.hidden());
  std::vector<LinkUse> calls = s.links;
  std::sort(calls.begin(), calls.end(),
            [](const LinkUse& a, const LinkUse& b) { return a.waited_s > b.waited_s; });
  constexpr size_t kMost = 5;
  for (size_t i = 0; i < std::min(calls.size(), kMost); ++i)
    if (calls[i].waited_s > 0.01 * link_s)
      std::fprintf(stderr, "  exposed: %.3f of %.3f s, %s\n", calls[i].waited_s, calls[i].link_s,
                   calls[i].call.c_str());
}

// Prints only what there was some of.
void print_summary(const TrainSummary& s) {
  std::fprintf(stderr, "%lld steps", static_cast<long long>(s.steps));
  const bool ran = !std::isnan(s.train_loss);
  if (ran) std::fprintf(stderr, ", train loss %.4f", s.train_loss);
  if (!std::isnan(s.eval.val_loss)) std::fprintf(stderr, ", validation loss %.4f", s.eval.val_loss);
  if (!ran) {
    std::fprintf(stderr, "; planned: %lld FLOPs a step, peak bytes %lld\n",
                 static_cast<long long>(s.flops_per_step_planned),
                 static_cast<long long>(s.peak_bytes_planned));
    return;
  }
  std::fprintf(
      stderr,
      ", %.0f tokens/s\n"
      "FLOPs a step: planned %lld, counted %lld; peak bytes: planned %lld, measured %lld, written "
      "%lld\n%s\n",
      s.tokens_per_s, static_cast<long long>(s.flops_per_step_planned),
      static_cast<long long>(s.flops_per_step_counted),
      static_cast<long long>(s.peak_bytes_planned), static_cast<long long>(s.peak_bytes_measured),
      static_cast<long long>(s.peak_bytes_written), explain_process_memory(s).c_str());
}

// Two texts of the checkpoint that was just saved, for the report. A model that cannot write any
// leaves a note; the training is good without.
std::vector<TextSample> draw_samples(const Trainer& t) {
  constexpr int64_t kPromptTokens = 16, kTokens = 160;
  const TrainConfig& c = t.config();
  if ((*find_model(c.model.type))->sees_ahead) return {};  // it predicts no next token
  auto generator = Generator::load(c.out, {.threads = c.threads});
  std::vector<TextSample> samples;
  Status st = generator.ok() ? Status() : Status(generator.error());
  for (uint64_t seed = 1; st.ok() && seed <= 2; ++seed) {
    TextSample s{t.validation_text(std::clamp<int64_t>(c.row_length() / 4, 1, kPromptTokens)), ""};
    GenerateStats stats;
    const auto add = [](void* text, std::string_view piece) {
      *static_cast<std::string*>(text) += piece;
    };
    const TextRequest request{s.prompt, kTokens, {.temperature = 0.8, .seed = seed}, add, &s.text};
    st = (*generator)->generate(request, stats);
    if (st.ok()) samples.push_back(std::move(s));
  }
  if (!st.ok()) print_note(cat("the report has no samples: ", st.error().message));
  return samples;
}

// A run must not write over what it reads.
Status check_paths(const TrainConfig& c, const std::string& config_file) {
  TEGULA_TRY(
      keep_inputs({"--timeline", c.timeline},
                  {{"--data", c.data}, {"--config", config_file}, {"--batches", c.batches}}));
  if (c.out.empty()) return {};
  for (const NamedPath& in : {NamedPath{"--data", c.data}, NamedPath{"--config", config_file},
                              NamedPath{"--batches", c.batches}})
    if (!in.path.empty() && is_written_by_run(c.out, in.path))
      return invalid_argument(cat("--out '", c.out, "' would overwrite ", in.flag, " '", in.path,
                                  "': choose another --out"));
  for (const NamedPath& in : {NamedPath{"--data", c.data}, NamedPath{"--init-from", c.init_from}})
    if (!in.path.empty() && is_same_place(in.path, c.out))
      return invalid_argument(cat("--out and ", in.flag, " are both '", c.out,
                                  "', and a run does not write where it reads: choose another "
                                  "--out",
                                  in.flag == "--data" ? "" : ", or --resume to go on there"));
  return {};
}

// Before the memory is taken, which may end the process.
void note_memory(const Trainer& t) {
  if (const std::string note = memory_note(t.config(), t.cost()); !note.empty()) print_note(note);
}

void announce(const Trainer& t) {
  const StepCost cost = t.cost();
  std::fprintf(stderr, "%s\n%s: %lld parameters, %.3g FLOPs and %.1f MiB a step (planned)\n",
               t.data_summary.c_str(), t.config().model.type.c_str(),
               static_cast<long long>(t.parameters()), static_cast<double>(cost.flops),
               static_cast<double>(cost.peak_bytes()) / (1 << 20));
  for (const std::string& note : t.notes) print_note(note);
}

// The speed of a rank, or of several at once, on no more threads than there are cores. Of a device,
// what its data sheet says.
MachineSpeed speed_of(const Trainer& t, int64_t n_ranks = 1) {
  const Target& target = t.plan().target;
  if (target.device == DeviceKind::kCpu)
    return probe_machine(std::min(target.n_threads * static_cast<int>(n_ranks), usable_cores()));
  return {t.config().dtype != "f32" ? target.bf16_flops_per_s : target.f32_flops_per_s,
          target.bytes_per_s};
}

double peak_of(const Trainer& t, const MachineSpeed& of_a_rank) {
  const int64_t n = t.config().mesh.n_ranks();
  return n == 1 ? of_a_rank.flops_per_s : speed_of(t, n).flops_per_s;
}

// By the planner's formulas, whose equality with the graph's products is tested for every family.
Utilisation utilisation_of(const Trainer& t, const MachineSpeed& speed) {
  const TrainConfig& c = t.config();
  const int64_t seqlen = c.row_length(), tokens = c.batch * c.accumulate * seqlen;
  const planner::ModelSpec model = planner::model_spec(c.model, c.model.type);
  return {static_cast<double>(tokens) *
              planner::token_flops(model, static_cast<double>(seqlen)).train(),
          static_cast<double>(t.recomputed_flops()), peak_of(t, speed)};
}

Status draw_timeline(const Trainer& t, const TrainSummary& summary) {
  const std::string& path = t.config().timeline;
  if (path.empty() || summary.interrupted) return {};
  TEGULA_TRY(write_result(path, TEGULA_TRY(timeline_page(t, summary))));
  std::fprintf(stderr, "timeline: %s\n", path.c_str());
  return {};
}

// Found before anything is trained.
Status check_timeline(const Trainer& t) {
  const int64_t left = t.config().steps - t.next_step();
  if (t.config().timeline.empty() || left >= kLeastTimelineSteps) return {};
  return invalid_argument(cat("--timeline: ", left,
                              " steps are left to do, and the third is the "
                              "first that is timed: give more --steps"));
}

// A process whose ranks have nothing to say.
Result<int> run_silently(Trainer& t) {
  catch_stop_signals(false);
  const TrainSummary summary = TEGULA_TRY(t.run(stop_requested()));
  return summary.interrupted ? 128 + stop_signal() : 0;
}

Result<int> run(TrainConfig config, const TrainFlags& flags, Segment* segment) {
  config.rule_set = TEGULA_TRY(read_rules(config.rules));
  const auto trainer = TEGULA_TRY(Trainer::create(std::move(config), note_memory, segment));
  Trainer& t = *trainer;
  TEGULA_TRY(check_timeline(t));
  if (!t.is_speaker()) return run_silently(t);
  const std::string& out = t.config().out;
  Progress p;
  p.config = &t.config();
  p.cost = t.cost();
  p.speed = speed_of(t);
  p.utilisation = utilisation_of(t, p.speed);
  announce(t);
  if (!t.config().init_from.empty()) note_on_model(t.config().init_from);
  for (const std::string& note : flags.notes(t.config().model))
    std::fprintf(stderr, "note: %s\n", note.c_str());
  const int64_t first = p.first_step = t.next_step();
  if (first > 0)
    std::fprintf(
        stderr, "resumed after step %lld%s\n", static_cast<long long>(first),
        first < t.config().steps ? "" : ": nothing is left to do, unless --steps is larger");
  if (!out.empty() && first < t.config().steps)
    TEGULA_TRY(open_metrics(p, out + "/metrics.jsonl", first));
  t.context = &p;
  t.on_step = on_step;
  t.on_eval = on_eval;
  catch_stop_signals();  // before this there is nothing to save
  auto summary = t.run(stop_requested());
  if (!summary.ok()) {
    if (p.is_terminal) std::fputs("\n", stderr);  // keeps the progress line
    return std::move(summary).error();
  }
  if (!out.empty() && summary->steps > first) {
    const std::string path = out + "/report.html";
    // Other work may have slowed the first probe down.
    const MachineSpeed again = speed_of(t);
    p.speed.flops_per_s = std::max(p.speed.flops_per_s, again.flops_per_s);
    p.speed.bytes_per_s = std::max(p.speed.bytes_per_s, again.bytes_per_s);
    const auto samples = summary->interrupted ? std::vector<TextSample>{} : draw_samples(t);
    double& peak = p.utilisation.peak_flops_per_s;
    peak = std::max(peak, peak_of(t, p.speed));
    TEGULA_TRY(write_report(path, t, *summary, p.history, p.speed, p.utilisation, samples));
    std::fprintf(stderr, "%sreport: %s\n", p.is_terminal ? "\r\033[K" : "", path.c_str());
  }
  TEGULA_TRY(draw_timeline(t, *summary));
  print_summary(*summary);
  if (t.plan().target.brings && !std::isnan(summary->hidden())) print_links(*summary);
  if (t.config().json) print_line(summary_json(*summary, p.utilisation));
  if (!p.metrics_written.ok()) return p.metrics_written.error();
  if (!summary->interrupted) return 0;
  std::fprintf(stderr, "stopped by a signal after step %lld; %s\n",
               static_cast<long long>(summary->steps),
               out.empty() ? "nothing is saved, since no --out was given"
                           : cat("saved in ", out, ": --resume goes on from there").c_str());
  return 128 + stop_signal();
}

// Ends a run that failed, whose launcher says why; or, without one, one of its processes.
int end_failed(Segment& segment, const Error& error) {
  segment.fail(-1, error);
  Remote* remote = segment.remote();
  if (segment.has_launcher() || !remote->tells_failure()) return kEnvironment;
  const int code = report(segment.failure()->error);
  remote->end_with(code);
  return code;
}

// As one of the processes that somebody else has started.
int run_among(const World& others, TrainConfig config, const TrainFlags& flags) {
  const auto engine = engine_of(config.transport, others);
  auto segment = engine.ok() ? join(others, *engine, size_of_processes(config))
                             : Result<std::unique_ptr<Segment>>(engine.error());
  if (!segment.ok()) return report(segment.error());
  const auto code = run(std::move(config), flags, segment->get());
  return code.ok() ? *code : end_failed(**segment, code.error());
}

// In one process, in one of several, or as who starts these.
int start(TrainConfig config, const TrainFlags& flags, const std::string& config_file) {
  if (const auto link = link_speed_of_environment(); !link.ok())
    return report(link.error(), kUsage);
  if (config.processes == 1) {
    const auto code = run(std::move(config), flags, nullptr);
    return code.ok() ? *code : report(code.error());
  }
  if (const auto others = world()) return run_among(*others, std::move(config), flags);
  const auto here = launched();
  if (!here.ok()) return report(here.error());
  if (!here->segment) {
    const auto code = start_processes(config, config_file);
    return code.ok() ? *code : report(code.error());
  }
  if (here->segment->failure()) return kEnvironment;
  if (here->resumes) config.resume = true, config.overwrite = false, config.init_from.clear();
  const auto code = run(std::move(config), flags, here->segment.get());
  return code.ok() ? *code : end_failed(*here->segment, code.error());
}

}  // namespace

void add_train(const Command& app, int& exit_code) {
  const auto cmd = app.add_command("train", "Train a language model on text");
  static TrainFlags flags;
  flags.add_to(cmd, Purpose::kTrain);
  cmd.callback([cmd, &exit_code] {
    auto config = flags.resolve();
    const Status st = config.ok() ? check_paths(*config, config_file(cmd)) : Status(config.error());
    exit_code =
        st.ok() ? start(std::move(*config), flags, config_file(cmd)) : report(st.error(), kUsage);
  });
}

}  // namespace tegula::cli
