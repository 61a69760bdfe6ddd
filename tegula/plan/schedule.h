// Schedule: which rank runs which part of which micro-batch in what order, as data.
//
// A schedule is a list for each rank. Where a stage's weights lie is in it (a rank holds the stages
// that its list names, two ranks may hold one stage); what waits for what is not: that follows from
// the entries alone (plan/schedule_check.h), or from a program's flows (plan/schedule_loop.h).
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
  int stage = 0;
  int micro_batch = 0;     // 0 for parts that run once a step
  int slice = 0;           // of the micro-batch's tokens
  int weights = 0;         // how many updates of this step its weights have seen
  bool with_next = false;  // begins and ends with the entry behind it (DualPipe's pairs)
};
// "stage 2's forward of micro-batch 1", with its slice where it has one.
std::string text_of(const Instr& instr);

struct ScheduleShape {
  int n_ranks = 1;
  int n_stages = 1;
  int n_micro_batches = 1;
  int n_slices = 1;  // a micro-batch's tokens are cut into so many, one after another
};

using RankLists = std::vector<std::vector<Instr>>;
// The lists that `list_of(rank)` makes.
template <class F>
RankLists each_rank(const ScheduleShape& shape, F&& list_of) {
  RankLists ranks;
  for (int r = 0; r < shape.n_ranks; ++r) ranks.push_back(list_of(r));
  return ranks;
}
// One stage a rank, whose forward and backward parts go in turns.
struct InTurns {
  int ahead = 0;              // forward parts before the first backward part
  bool forward_first = true;  // of a turn; else it is the last in it
  int put_off = -1;           // micro-batches between B and W; -1: B has its W
};
RankLists in_turns(const ScheduleShape& shape, InTurns (*of_rank)(int rank, int n_ranks));

struct Schedule {
  ScheduleShape shape;
  bool trains = true;                   // else forward parts alone
  bool weight_gradients_apart = false;  // W is an entry of its own, else B has it
  RankLists ranks;

  // The rank that runs this micro-batch's part of a stage; -1: none does.
  int rank_of(int stage, int micro_batch) const;
};

struct ScheduleDef {
  std::string_view name;           // = file stem
  std::string_view known_as = {};  // the field's name, where it is another one
  std::string_view doc;            // one line, with its source
  bool trains = true;
  bool weight_gradients_apart = false;
  int stages_per_rank = 1;  // if nothing else is asked for
  bool takes_any_stages_per_rank = false;
  bool takes_slices = false;
  // Without the update, whose parts follow everything. A stage's gradients are summed in ascending
  // order of micro-batches. Errors: numbers that it cannot serve, with those that it could.
  Result<RankLists> (*make)(const ScheduleShape& shape) = nullptr;
};

std::span<const ScheduleDef* const> all_schedules();
// By either name; the error lists them.
Result<const ScheduleDef*> find_schedule(std::string_view name);

// A schedule of `n_stages` stages on as many ranks as it has by default.
ScheduleShape default_shape(const ScheduleDef& def, int n_stages, int n_micro_batches);

// Errors: a number below 1; stages per rank, or slices, that the schedule does not have; its own.
Result<Schedule> make_schedule(const ScheduleDef& def, const ScheduleShape& shape);

// The schedule with the program's update behind it, on the ranks that hold its stages; of two that
// hold one stage, on that of micro-batch 0. What only runs forward has none.
Schedule with_update(Schedule schedule, const Program& program);

}  // namespace tegula
