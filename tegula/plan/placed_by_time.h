// Buffers that have their places, by when they live: finds the smallest gap for one more.
//
// A gap is found without a look at what does not live at the same time. Steps lie in blocks, and a
// binary tree stands over the blocks. A node knows what lives at any of its steps and what lives
// throughout them, as runs of memory. What lives throughout a node is handed down to its children
// when a search passes it, so that a new buffer is noted at few nodes. What lives in a part of a
// block is a list. Buffers of one size come one after the other, and many of them begin in one
// block and end in one block. So the gaps that their blocks leave are kept from one search to the
// next.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tegula/plan/memory.h"

namespace tegula {

struct Placed {
  int64_t begin, end;
  int first, last;
};

class PlacedByTime {
 public:
  explicit PlacedByTime(int n_steps);

  // Puts b into the smallest gap of at least `need` bytes during its life; ties: lowest. Fast where
  // many calls in turn have one `need`, and the largest come first.
  int64_t place(const Lifetime& b, int64_t need);

 private:
  // Pieces of memory in their order: of what is taken they do not touch, gaps may.
  using Runs = std::vector<std::pair<int64_t, int64_t>>;

  // The blocks that a lifetime meets, and those that it covers.
  struct Window {
    Window() = default;
    Window(const Lifetime& b, int block);
    bool operator==(const Window&) const = default;
    bool covers(int k) const { return full_from <= k && k < full_to; }
    int first = -1, last = -1, full_from = -1, full_to = -1;
  };

  // It stands for the blocks [from, to); its children are 2 at and 2 at + 1.
  struct Node {
    size_t at;
    int from, to;
    Node left() const { return {2 * at, from, from + (to - from) / 2}; }
    Node right() const { return {2 * at + 1, from + (to - from) / 2, to}; }
    bool is_block() const { return to - from == 1; }
  };

  static void add_run(Runs& runs, int64_t begin, int64_t end);
  void add_runs(Runs& runs, const Runs& more);
  void cut_gaps(const Runs& taken);

  void add(const Node& node, const Placed& p);
  void find_gaps();
  void find(const Node& node);
  void hand_down(const Node& node);
  void find_partly(int block, const Lifetime& b);
  int64_t smallest_gap(int64_t need);

  int block_, leaves_ = 1;
  // By node. At any of its steps, but for what was not yet handed down from above; throughout.
  std::vector<Runs> any_, throughout_;
  std::vector<std::vector<Placed>> partly_;  // by block, in the order of memory
  // The gaps of at least need_ bytes that are left by what lives throughout the first and last
  // block of a window and by what lives at any step between.
  Window window_;
  int64_t need_ = 0;
  Runs gaps_;
  // Kept for a search.
  std::vector<const Runs*> taken_;
  Runs some_, cut_;
};

}  // namespace tegula
