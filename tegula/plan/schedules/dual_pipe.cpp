// DualPipe (DeepSeek-V3 2024, section 3.2.1): two pipelines in opposite directions, as Chimera's,
// whose forward part of one and backward part of the other run together, so that one computes while
// the other sends. Weight gradients come later where a rank would wait. Rank r holds stages r and
// p − 1 − r; even micro-batches go down, odd ones up. It waits for (p/2 − 1)(F&B + B − 3W), where B
// has its W and F&B is such a pair; what is kept are the activations of p + 1 micro-batches.

#include "tegula/base/algorithm.h"
#include "tegula/plan/schedule.h"

namespace tegula {

namespace {

// One rank's list. Direction 0 is the one that reaches this rank first, direction 1 the other.
class Rank {
 public:
  Rank(int rank, int n_ranks) : n_ranks_(n_ranks), rank_(rank) {
    is_lower_half_ = rank >= n_ranks / 2;
  }

  void forward(int direction) { list_.push_back(next(PartKind::kForward, 0, direction)); }
  // With its weight gradients right behind it, or put off.
  void backward(int direction, bool is_put_off) {
    const Instr b = next(PartKind::kBackward, 1, direction);
    list_.push_back(b);
    put_off_.push_back({PartKind::kWeightGradient, b.stage, b.micro_batch});
    if (!is_put_off) weights();
  }
  // The oldest that was put off.
  void weights() {
    if (first_put_off_ < put_off_.size()) list_.push_back(put_off_[first_put_off_++]);
  }
  void pair(int forwards, int backwards) {
    const size_t first = list_.size();
    forward(forwards), backward(backwards, false);
    for (size_t i = first; i + 1 < list_.size(); ++i) list_[i].with_next = true;
  }
  bool has_put_off() const { return first_put_off_ < put_off_.size(); }
  std::vector<Instr> list() && { return std::move(list_); }

 private:
  Instr next(PartKind kind, int row, int direction) {
    const int parity = is_lower_half_ ? 1 - direction : direction;
    return {kind, parity == 0 ? rank_ : n_ranks_ - 1 - rank_,
            2 * count_[row][direction]++ + parity};
  }
  int n_ranks_, rank_;
  bool is_lower_half_ = false;
  int count_[2][2] = {};  // F, B of each direction
  std::vector<Instr> list_, put_off_;
  size_t first_put_off_ = 0;
};

std::vector<Instr> list_of(int r, const ScheduleShape& shape) {
  const int p = shape.n_ranks, n = shape.n_micro_batches / 2;
  // Distance from the outer end and to the middle.
  const int outer = std::min(r, p - 1 - r), inner = p / 2 - 1 - outer;
  Rank rank(r, p);
  for (int i = 0; i < 2 * inner; ++i) rank.forward(0);
  for (int i = 0; i < outer + 1; ++i) rank.forward(0), rank.forward(1);
  for (int i = 0; i < inner; ++i) rank.backward(1, true), rank.weights(), rank.forward(1);
  for (int i = 0; i < n - p + outer + 1; ++i) {
    // In the middle the first two come one right after the other and cannot run together.
    if (i == 0 && inner == 0)
      rank.forward(0), rank.backward(1, false);
    else
      rank.pair(0, 1);
    rank.pair(1, 0);
  }
  for (int i = 0; i < inner; ++i) rank.backward(1, false), rank.pair(1, 0);
  // Weight gradients are put off from the middle of what is left.
  for (int i = 0; i < 2 * (outer + 1); ++i) rank.backward(1 - i % 2, i > outer);
  for (int i = 0; i < inner; ++i) rank.weights(), rank.backward(0, true);
  while (rank.has_put_off()) rank.weights();
  return std::move(rank).list();
}

Result<RankLists> make(const ScheduleShape& shape) {
  const int p = shape.n_ranks, m = shape.n_micro_batches;
  if (p % 2 != 0 || m % 2 != 0 || m < 2 * p)
    return invalid_argument(
        cat("schedule dual_pipe wants an even number of ranks, and of "
            "micro-batches an even number of at least two for each rank: got ",
            p, " ranks and ", m, " micro-batches"));
  return each_rank(shape, [&](int r) { return list_of(r, shape); });
}

}  // namespace

extern constinit const ScheduleDef dual_pipe_schedule = {
    .name = "dual_pipe",
    .known_as = "dualpipe",
    .doc = "two directions, forward and backward together, weights twice (DualPipe)",
    .weight_gradients_apart = true,
    .make = make};

}  // namespace tegula
