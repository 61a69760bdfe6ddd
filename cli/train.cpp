#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>

#include "cli/command.h"
#include "cli/train_flags.h"
#include "tegula/io/json.h"
#include "tegula/io/jsonl.h"
#include "tegula/train/report.h"
#include "tegula/train/trainer.h"

namespace tegula::cli {

namespace {

// What the callbacks share.
struct Progress {
  const TrainConfig* config = nullptr;
  const Trainer* trainer = nullptr;
  TrainHistory history;
  std::unique_ptr<JsonlWriter> metrics;
  bool is_terminal = isatty(STDERR_FILENO) == 1;
  MachineSpeed speed;
  double last_print_ms = 0, elapsed_ms = 0;
};

void print_line(Progress& p, const StepReport& r, bool final) {
  const double mfu = p.speed.flops_per_s > 0 ? static_cast<double>(p.trainer->plan().flops()) *
                                                   static_cast<double>(p.config->accumulate) /
                                                   (r.step_ms / 1e3) / p.speed.flops_per_s
                                             : 0;
  const double left_s = static_cast<double>(p.config->steps - r.step) * r.step_ms / 1e3;
  std::fprintf(
      stderr,
      "%sstep %lld/%lld  loss %.4f  %.0f tokens/s  %.1f ms  MFU %.0f%%  %.1f MiB  ETA %.0f s%s",
      p.is_terminal ? "\r\033[K" : "", static_cast<long long>(r.step),
      static_cast<long long>(p.config->steps), r.loss, r.tokens_per_s, r.step_ms, 100 * mfu,
      static_cast<double>(p.trainer->plan().peak_bytes()) / (1 << 20), left_s,
      p.is_terminal && !final ? "" : "\n");
}

void on_step(void* context, const StepReport& r) {
  auto& p = *static_cast<Progress*>(context);
  p.history.steps.push_back(r);
  p.elapsed_ms += r.step_ms;
  if (p.metrics)
    (void)p.metrics->append(Json::object({{"step", r.step},
                                          {"loss", r.loss},
                                          {"grad_norm", r.grad_norm},
                                          {"lr", r.lr},
                                          {"step_ms", r.step_ms}}));
  const double every_ms = p.is_terminal ? 200 : 5000;
  if (r.step == 1 || r.step == p.config->steps || p.elapsed_ms - p.last_print_ms >= every_ms) {
    p.last_print_ms = p.elapsed_ms;
    print_line(p, r, r.step == p.config->steps);
  }
}

void on_eval(void* context, int64_t step, double loss) {
  auto& p = *static_cast<Progress*>(context);
  p.history.evals.push_back({step, loss});
  if (p.metrics) (void)p.metrics->append(Json::object({{"step", step}, {"val_loss", loss}}));
  std::fprintf(stderr, "%sstep %lld  validation loss %.4f\n", p.is_terminal ? "\r\033[K" : "",
               static_cast<long long>(step), loss);
}

Json summary_json(const TrainSummary& s) {
  return Json::object({{"steps", s.steps},
                       {"train_loss", s.train_loss},
                       {"val_loss", s.val_loss},
                       {"tokens_per_s", s.tokens_per_s},
                       {"step_ms", s.step_ms},
                       {"params", s.params},
                       {"flops_per_step_planned", s.flops_per_step_planned},
                       {"flops_per_step_counted", s.flops_per_step_counted},
                       {"flops_per_step_executed", s.flops_per_step_executed},
                       {"bytes_per_step_planned", s.bytes_per_step_planned},
                       {"peak_bytes_planned", s.peak_bytes_planned},
                       {"peak_bytes_measured", s.peak_bytes_measured},
                       {"peak_bytes_lower_bound", s.lower_bound_bytes},
                       {"compile_ms", s.compile_ms},
                       {"interrupted", s.interrupted}});
}

int run(TrainConfig config) {
  catch_stop_signals();
  auto trainer = Trainer::create(std::move(config));
  if (!trainer.ok()) return report(trainer.error());
  Trainer& t = **trainer;
  Progress p;
  p.config = &t.config();
  p.trainer = &t;
  p.speed = probe_machine(t.config().threads);
  std::fprintf(stderr, "%s\n%s: %lld parameters, %.3g FLOPs and %.1f MiB a step (planned)\n",
               t.data_summary.c_str(), t.config().model.type.c_str(),
               static_cast<long long>(t.parameters()), static_cast<double>(t.plan().flops()),
               static_cast<double>(t.plan().peak_bytes()) / (1 << 20));
  if (!t.config().out.empty()) {
    const std::string path = t.config().out + "/metrics.jsonl";
    auto writer = t.config().resume
                      ? JsonlWriter::resume(path, "step", static_cast<double>(t.next_step()))
                      : JsonlWriter::create(path);
    if (!writer.ok()) return report(writer.error());
    p.metrics = std::make_unique<JsonlWriter>(std::move(*writer));
  }
  t.context = &p;
  t.on_step = on_step;
  t.on_eval = on_eval;
  auto summary = t.run(stop_requested());
  if (!summary.ok()) return report(summary.error());
  if (!t.config().out.empty()) {
    const std::string path = t.config().out + "/report.html";
    auto st = write_report(path, t, *summary, p.history, p.speed);
    if (!st.ok()) return report(st.error());
    std::fprintf(stderr, "report: %s\n", path.c_str());
  }
  std::fprintf(
      stderr,
      "%lld steps, train loss %.4f, validation loss %.4f, %.0f tokens/s\n"
      "FLOPs a step: planned %lld, counted %lld; peak bytes: planned %lld, measured %lld\n",
      static_cast<long long>(summary->steps), summary->train_loss, summary->val_loss,
      summary->tokens_per_s, static_cast<long long>(summary->flops_per_step_planned),
      static_cast<long long>(summary->flops_per_step_counted),
      static_cast<long long>(summary->peak_bytes_planned),
      static_cast<long long>(summary->peak_bytes_measured));
  if (t.config().json) std::printf("%s\n", summary_json(*summary).dump().c_str());
  return summary->interrupted ? 128 + stop_signal() : 0;
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  auto* cmd = app.add_subcommand("train", "Train a language model on text");
  static TrainFlags flags;
  flags.add_to(*cmd);
  cmd->callback([&exit_code] {
    auto config = flags.resolve();
    exit_code = config.ok() ? run(std::move(*config)) : report(config.error());
  });
}

}  // namespace tegula::cli
