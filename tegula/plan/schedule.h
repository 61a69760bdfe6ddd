// Schedule: who runs which part of which micro-batch in what order, as data; and the one loop that
// follows it, whatever the backend: counting, one rank in turns, ranks.
//
// A schedule is an order for each stage. What waits for what is not in it: that follows from the
// program's flows alone. The loop gives each instruction to the backend as soon as everything that
// it reads has been made, so a backend sees an order that is right for it, and an order that can
// never go on is an error (a deadlock), which names what each stage waits for.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/result.h"
#include "tegula/passes/program.h"

namespace tegula {

struct Instr {
  PartKind kind = PartKind::kForward;
  int micro_batch = 0;  // 0 for parts that run once a step
};

// Per stage. A part that the program has not (no gradient flows out of the first stage) is passed
// over; kForward stands for kWhole where there is one stage.
using Schedule = std::vector<std::vector<Instr>>;

struct ScheduleDef {
  std::string_view name;  // = file stem
  std::string_view doc;   // one line, with its source
  bool weight_gradients_apart = false;
  // Without the update, whose parts follow everything. Micro-batches' gradients are summed in
  // ascending order in all schedules: their bits are the same.
  Schedule (*make)(int n_stages, int n_micro_batches) = nullptr;
};

std::span<const ScheduleDef* const> all_schedules();
Result<const ScheduleDef*> find_schedule(std::string_view name);  // the error lists the names

// The schedule with the update's parts behind it.
Schedule schedule_of(const ScheduleDef& def, const Program& program);

// One run of a part: its index in the program and its micro-batch.
struct PartRun {
  int part = 0;
  int micro_batch = 0;
};

class ScheduleLoop {
 public:
  ScheduleLoop(const Program& program, const Schedule& schedule);

  // backend.run(PartRun, stage) -> Status, in an order in which what is read has been made.
  template <class Backend>
  Status follow(Backend& backend) {
    for (size_t left = count(); left > 0;) {
      bool any = false;
      for (size_t stage = 0; stage < schedule_.size(); ++stage) {
        const PartRun* next = ready(stage);
        if (!next) continue;
        TEGULA_TRY(backend.run(*next, static_cast<int>(stage)));
        finish(stage);
        any = true, --left;
      }
      if (!any) return deadlock();
    }
    return {};
  }
  // What a run must wait for: the makers of all it reads.
  std::vector<PartRun> sources(const PartRun& run) const;

 private:
  size_t count() const;
  const PartRun* ready(size_t stage) const;  // null: nothing is left, or it must wait
  void finish(size_t stage);
  Error deadlock() const;
  size_t slot(const PartRun& run) const;

  const Program& program_;
  std::vector<std::vector<PartRun>> schedule_;  // per stage, of parts that there are
  std::vector<size_t> at_;
  std::vector<uint8_t> done_;            // per (part, micro-batch)
  std::vector<std::vector<int>> reads_;  // per part: the parts whose flows it reads
};

// The counting backend: time if every stage has a device of its own and flows take none.
struct ScheduleCount {
  double seconds = 0;       // from the first start to the last end
  double busy_seconds = 0;  // Σ over the stages
  double bubble = 0;        // 1 − busy / (stages · seconds)
  std::vector<int64_t>
      peak_bytes;              // per stage: flows made or awaited there, until it has read them
  std::vector<PartRun> order;  // as the loop ran them
};
// seconds: of each part, for example its plan's.
Result<ScheduleCount> count_schedule(const Program& program, const Schedule& schedule,
                                     std::span<const double> seconds);

}  // namespace tegula
