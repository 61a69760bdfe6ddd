// Moves: a collective in parts. First bytes are brought from other ranks, by whoever can while
// kernels run; then the rank does by itself what is left: it adds what was brought. Which bytes is
// a pure function of the call and of the rank's place in its group, so that a plan counts the
// workspace in which they wait, and a test checks them without any rank.
#pragma once

#include <vector>

#include "tegula/kernels/kernel.h"

namespace tegula {

// `count` runs of `bytes` of what the group's rank `giver` shows, from byte `from` on and each
// `stride` further, laid from `to` on, each `to_stride` further. The rank may be its own giver.
struct Move {
  enum Of : uint8_t { kOperand, kResult, kWorkspace };
  int64_t giver = 0;
  Of of = kOperand;
  int64_t from = 0, bytes = 0, stride = 0, count = 1;
  uint8_t* to = nullptr;
  int64_t to_stride = 0;
};

// In the background there is one round. In the foreground a round begins when all ranks have
// finished the one before.
struct CollectiveMoves {
  int (*n_rounds)(const KernelCall& call) = nullptr;  // null: 1
  // Appends those of a round for the rank at `index` of the group. What only passes goes into the
  // result, what is added into the workspace.
  void (*list)(const KernelCall& call, int64_t index, int round,
               std::vector<Move>& moves) = nullptr;
  // Does what is left when they are done; null: nothing.
  void (*finish)(const KernelCall& call, int64_t index, int round) = nullptr;
};

}  // namespace tegula
