#include "tegula/kernels/cpu/common/attention_tasks.h"

#include <numeric>

#include "tegula/base/algorithm.h"
#include "tegula/base/round.h"

namespace tegula::kernel {

RowTasks::RowTasks(const Shape& shape, int64_t first, int64_t n, int64_t n_next)
    : shape_(shape),
      first_(first),
      n_(n),
      n_next_(n_next),
      blocks_(ceil_div(shape.rows, shape.block)) {
  const int64_t sharing = shape.n_threads / std::gcd(shape.n_threads, n);
  if (shape.is_causal) turns_ = std::min(blocks_, sharing);
}

RowTasks::InTurn RowTasks::in_turn(int64_t i) const {
  InTurn x{0, i, 0};
  for (; x.at >= (x.size = ceil_div(blocks_ - x.turn, turns_)); x.at -= x.size) ++x.turn;
  return x;
}

RowBlock RowTasks::block(int64_t task) const {
  const InTurn x = in_turn(task % blocks_);
  const int64_t r0 = (blocks_ - 1 - x.turn - x.at * turns_) * shape_.block;
  return {first_ + task / blocks_, r0, static_cast<int>(std::min(shape_.block, shape_.rows - r0))};
}

RowTasks::Next RowTasks::after(int64_t task, int64_t most) const {
  int64_t thread = task * shape_.n_threads / count();
  while (part(count(), thread + 1) <= task) ++thread;
  const int64_t begin = part(count(), thread), end = part(count(), thread + 1);
  // Its tasks on the pair after this one, counted on into the pairs that come next.
  const int64_t done = std::min(pair_end(task), end), more = n_next_ * blocks_;
  int64_t to = done, to_end = end;
  if (to == end) to = count() + part(more, thread), to_end = count() + part(more, thread + 1);
  to_end = std::min(to_end, pair_end(to));
  Next next;
  next.is_there = task + 1 < end || to < to_end;
  if (next.is_there) next.block = block(task + 1 < end ? task + 1 : to);
  if (to >= to_end) return next;
  // The task's part of the thread's part of that pair's keys.
  const int64_t keys = shape_.keys * (to_end - to) / blocks_;
  const double before = work_before(std::max(begin, pair_end(task) - blocks_));
  const double all = work_before(done) - before;
  const auto until = [&](int64_t t) {
    return static_cast<int64_t>(static_cast<double>(keys) * (work_before(t) - before) / all);
  };
  const int64_t from = until(task);
  next.key_pair = first_ + to / blocks_;
  next.first_key = shape_.keys * (to % blocks_) / blocks_ + from;
  next.keys = (until(task + 1) - from) * std::min(keys, most) / std::max<int64_t>(1, keys);
  return next;
}

// The share of all work, about, that the tasks before this one are.
double RowTasks::work_before(int64_t task) const {
  const int64_t pairs = task / blocks_;
  const InTurn x = in_turn(task % blocks_);
  double done = static_cast<double>(x.at) / static_cast<double>(x.size);  // of the turn
  if (shape_.is_causal) done = 1 - (1 - done) * (1 - done);
  const double turns_done = static_cast<double>(pairs * turns_ + x.turn) + done;
  return turns_done / static_cast<double>(n_ * turns_);
}

}  // namespace tegula::kernel
