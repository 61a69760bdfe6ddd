// Zero bubble in a V (ZB-V; Qi et al. 2023, section 6): rank r holds stages r and 2p − 1 − r, so a
// micro-batch goes down through the ranks and up again, and the last stage's gradient begins where
// the first stage lies. With F = B = W and m ≥ 2p − 1 no rank waits between its first part and its
// last, for the activations of p micro-batches (2p of half a rank's layers), as many as 1F1B keeps.
#include "tegula/plan/schedule.h"

namespace tegula {

namespace {

// One rank's list, which leaves out what there are no micro-batches for.
class Rank {
 public:
  Rank(int rank, const ScheduleShape& shape)
      : stage_{rank, shape.n_stages - 1 - rank}, n_(shape.n_micro_batches) {}

  // Chunk 0 is on the way down, chunk 1 on the way up.
  void forward(int chunk) { put(0, PartKind::kForward, chunk, n_); }
  void backward(int chunk) { put(1, PartKind::kBackward, chunk, next_[0][chunk]); }
  void weights(int chunk) { put(2, PartKind::kWeightGradient, chunk, next_[1][chunk]); }
  bool has_forward() const { return next_[0][0] < n_ || next_[0][1] < n_; }
  int n_micro_batches() const { return n_; }
  std::vector<Instr> list() && { return std::move(list_); }

 private:
  void put(int kind, PartKind part, int chunk, int end) {
    if (next_[kind][chunk] < end) list_.push_back({part, stage_[chunk], next_[kind][chunk]++});
  }
  int stage_[2];
  int n_;
  int next_[3][2] = {};  // F, B, W of each chunk
  std::vector<Instr> list_;
};

std::vector<Instr> list_of(int r, const ScheduleShape& shape) {
  const int p = shape.n_ranks;
  Rank rank(r, shape);
  // Until the first micro-batch comes up again; until its gradient does; until the room is full.
  for (int i = 0; i < 2 * (p - r) - 1; ++i) rank.forward(0);
  for (int i = 0; i < r; ++i) rank.forward(1), rank.forward(0);
  for (int i = 0; i < p - r; ++i) rank.forward(1), rank.backward(1), rank.weights(1);
  // Then each chunk in turn gives back what it takes.
  while (rank.has_forward())
    for (int chunk : {0, 1}) rank.forward(chunk), rank.backward(chunk), rank.weights(chunk);
  // Gradients that others wait for first; weight gradients fill the time that they take.
  for (int i = 0; i < r; ++i) rank.backward(0), rank.backward(1);
  for (int i = 0; i < p - r; ++i) rank.backward(0), rank.weights(0);
  for (int chunk : {1, 0})
    for (int i = 0; i < rank.n_micro_batches(); ++i) rank.backward(chunk);
  for (int chunk : {1, 0})
    for (int i = 0; i < rank.n_micro_batches(); ++i) rank.weights(chunk);
  return std::move(rank).list();
}

Result<RankLists> make(const ScheduleShape& shape) {
  return each_rank(shape, [&](int r) { return list_of(r, shape); });
}

}  // namespace

extern constinit const ScheduleDef zero_bubble_v_schedule = {
    .name = "zero_bubble_v",
    .known_as = "zb-v",
    .doc = "stages down the ranks and up again, no waiting within a rank (ZB-V)",
    .weight_gradients_apart = true,
    .stages_per_rank = 2,
    .make = make};

}  // namespace tegula
