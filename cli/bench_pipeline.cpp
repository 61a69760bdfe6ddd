// `tegula bench pipeline`: a schedule on processes whose parts sleep as long as they are said to
// take and exchange messages of true size, beside the simulator.
#include <sys/prctl.h>
#include <time.h>

#include <cstdio>

#include "cli/bench.h"
#include "cli/command.h"
#include "tegula/base/algorithm.h"
#include "tegula/base/amounts.h"
#include "tegula/base/clock.h"
#include "tegula/plan/rank_program.h"
#include "tegula/plan/simulate.h"
#include "tegula/plan/stage_chain.h"
#include "tegula/runtime/program_session.h"
#include "tegula/runtime/rank_group.h"

namespace tegula::cli {

namespace {

struct Options {
  std::string schedule = "1f1b", bytes = "1MiB";
  std::vector<double> part_ms = {5, 5, 5};
  int64_t processes = 2, accumulate = 8, interleave = 0, steps = 10;
  bool json = false;
};

struct Work {
  Schedule schedule;
  StageChain chain;
  Simulated simulated;
};

Result<Work> work_of(const Options& o) {
  Work w;
  const ScheduleDef* def = TEGULA_TRY(find_schedule(o.schedule));
  const auto p = static_cast<int>(o.processes);
  const int stages = p * (o.interleave > 0 ? static_cast<int>(o.interleave) : def->stages_per_rank);
  w.schedule = TEGULA_TRY(make_schedule(*def, {p, stages, static_cast<int>(o.accumulate), 1}));
  TEGULA_TRY(share_halves(w.schedule));
  if (o.part_ms.size() != 1 && o.part_ms.size() != 3)
    return invalid_argument(cat("--part-ms has ", o.part_ms.size(),
                                " times: give one for all, or three (forward, backward, weight "
                                "gradients)"));
  const auto bytes = read_bytes(o.bytes);
  if (!bytes.ok()) return invalid_argument(cat("--bytes '", o.bytes, "': write a size: 1MiB"));
  const auto seconds = [&](size_t i) { return 1e-3 * o.part_ms[o.part_ms.size() == 1 ? 0 : i]; };
  StagePrice price;
  price.forward_s = seconds(0), price.backward_s = seconds(1);
  price.weight_gradients_s = seconds(2), price.output_bytes = *bytes;
  w.chain = chain_of(w.schedule, std::vector(static_cast<size_t>(stages), price));
  w.simulated = TEGULA_TRY(simulate(w.chain.program, with_update(w.schedule, w.chain.program),
                                    {.seconds = w.chain.seconds}));
  return w;
}

// Sleeps until a part's time is over, counted from now.
void sleep_part(void* context, const PartRun& run) {
  const StageChain& chain = *static_cast<const StageChain*>(context);
  const double seconds = chain.seconds[static_cast<size_t>(run.part)];
  timespec until;
  ::clock_gettime(CLOCK_MONOTONIC, &until);
  const int64_t ns = until.tv_nsec + static_cast<int64_t>(seconds * 1e9);
  until.tv_sec += ns / 1000000000, until.tv_nsec = ns % 1000000000;
  while (seconds > 0 && ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
  }
}

void print(const Options& o, const Work& w, double step_ms, double longest_ms, double waited_ms) {
  const double simulated_ms = 1e3 * w.simulated.step_s;
  if (!o.json) {
    std::printf(
        "%s on %lld processes, %lld micro-batches: %.2f ms a step, simulated %.2f ms "
        "(%.3f x), %.1f %% of it waiting; longest %.2f ms\n",
        o.schedule.c_str(), static_cast<long long>(o.processes),
        static_cast<long long>(o.accumulate), step_ms, simulated_ms, step_ms / simulated_ms,
        100 * w.simulated.bubble, longest_ms);
    return;
  }
  print_line(Json::object({{"schedule", o.schedule},
                           {"processes", o.processes},
                           {"micro_batches", o.accumulate},
                           {"steps", o.steps},
                           {"step_ms", step_ms},
                           {"longest_step_ms", longest_ms},
                           {"simulated_ms", simulated_ms},
                           {"bubble", w.simulated.bubble},
                           {"first_rank_waited_ms", waited_ms}}));
}

Result<int> run_rank(const Options& o, Segment& segment) {
  ::prctl(PR_SET_TIMERSLACK, 1);
  const Work w = TEGULA_TRY(work_of(o));
  RankGroup group(Mesh{{{std::string(kPipelineAxis), o.processes}}}, segment);
  Rank rank(1);
  const int64_t r = group.first_rank();
  group.join(rank, r);
  // Each process goes by its own list alone.
  const std::vector<std::shared_ptr<const Plan>> none(w.chain.program.parts.size(),
                                                      std::make_shared<const Plan>());
  const MicroGroups groups{o.accumulate, has_halves(w.schedule) ? 2 : 1};
  const auto program = std::make_shared<const PlannedProgram>(TEGULA_TRY(
      plan_ranks(w.chain.program, none, {}, groups, w.schedule))[static_cast<size_t>(r)]);
  Store store(rank);
  const Region flows = TEGULA_TRY(Region::between_guards(rank.memory, program->flow_bytes));
  const auto session =
      TEGULA_TRY(ProgramSession::create(program, rank, store,
                                        {.flows = flows.data(),
                                         .instead = sleep_part,
                                         .context = const_cast<StageChain*>(&w.chain)}));
  double all_ms = 0, longest_ms = 0, waited_ms = 0;
  for (int64_t step = -1; step < o.steps; ++step) {
    TEGULA_TRY(segment.exchange(""));
    const Stopwatch watch;
    TEGULA_TRY(group.run([&](int64_t) { return session->run(); }));
    TEGULA_TRY(segment.exchange(""));
    const double took_ms = watch.ms();
    if (step < 0) continue;  // memory is touched for the first time
    all_ms += took_ms, longest_ms = std::max(longest_ms, took_ms);
    waited_ms += 1e3 * session->waited_s();
  }
  const auto n = static_cast<double>(o.steps);
  if (segment.process() == 0) print(o, w, all_ms / n, longest_ms, waited_ms / n);
  return 0;
}

int run(const Options& o) {
  if (const auto work = work_of(o); !work.ok()) return report(work.error(), kUsage);
  return run_processes({std::string(kPipelineAxis), o.processes}, false,
                       [&](Segment& segment) { return run_rank(o, segment); });
}

}  // namespace

void add_bench_pipeline(const Command& bench, int& exit_code) {
  static Options o;
  const auto cmd = bench.add_command(
      "pipeline", "A schedule on processes whose parts sleep, beside the simulator");
  cmd.add_option("--schedule", o.schedule, "As tegula train has them").type_name("NAME");
  whole(cmd.add_option("--processes", o.processes, "Processes, a rank of the pipeline each"), 2,
        64);
  whole(cmd.add_option("--accumulate", o.accumulate, "Micro-batches of a step"), 1, 1 << 16);
  whole(cmd.add_option("--interleave", o.interleave, "Stages of each rank; 0: as the schedule has"),
        0, 1 << 10);
  real(cmd.add_option("--part-ms", o.part_ms,
                      "How long each part takes: one time, or F,B,W of a stage and micro-batch"),
       0, 1e6)
      .split_at(',')
      .type_name("F,B,W");
  cmd.add_option("--bytes", o.bytes, "Of each message between stages").type_name("BYTES");
  whole(cmd.add_option("--steps", o.steps, "Steps in a row, after one that does not count"), 1,
        1 << 16);
  cmd.add_flag("--json", o.json, "One JSON object on the last line");
  cmd.callback([&exit_code] { exit_code = run(o); });
}

}  // namespace tegula::cli
