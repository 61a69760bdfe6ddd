// Tasks of attention's forward: blocks of rows of (batch, key head) pairs, pair by pair, as
// ThreadPool::parallel_for shares them out, and what a thread most likely does after each.
#pragma once

#include <cstdint>

namespace tegula::kernel {

// Rows [r0, r0 + rows) of the (query, head of the group) rows of a pair.
struct RowBlock {
  int64_t pair = 0, r0 = 0;
  int rows = 0;
};

class RowTasks {
 public:
  struct Shape {
    int64_t rows, keys;  // of a pair
    int64_t block;       // rows of a task, at most
    bool is_causal;
    int64_t n_threads;
  };
  // Pairs [first, first + n), after which come n_next others. Causal: a pair's last rows have most
  // to do and go first, and where threads share a pair, they take blocks in turn. (A thread begins
  // with neighbouring tasks.)
  RowTasks(const Shape& shape, int64_t first, int64_t n, int64_t n_next);

  int64_t first_pair() const { return first_; }
  int64_t pairs() const { return n_; }
  int64_t of_pair() const { return blocks_; }
  int64_t count() const { return n_ * blocks_; }
  RowBlock block(int64_t task) const;

  // After a task: the next one, if any; and keys [first_key, first_key + keys) of the pair that the
  // thread comes to then, for it to fetch before: of what it packs of that pair, the part that the
  // task is of its work till then, in all `most` keys at most.
  struct Next {
    bool is_there = false;
    RowBlock block;
    int64_t key_pair = 0, first_key = 0, keys = 0;
  };
  Next after(int64_t task, int64_t most) const;

 private:
  // Block i of a pair, as tasks come: which turn's, and which of the `size` blocks of that turn.
  struct InTurn {
    int64_t turn, at, size;
  };
  InTurn in_turn(int64_t i) const;
  // The first task of a thread's part of n tasks.
  int64_t part(int64_t n, int64_t thread) const { return n * thread / shape_.n_threads; }
  int64_t pair_end(int64_t task) const { return (task / blocks_ + 1) * blocks_; }
  double work_before(int64_t task) const;

  const Shape shape_;
  const int64_t first_, n_, n_next_, blocks_;
  int64_t turns_ = 1;
};

}  // namespace tegula::kernel
