// RankRun: what one rank of a training run has for itself: memory, sessions, its share of the
// batch.
#pragma once

#include <vector>

#include "tegula/base/memory.h"
#include "tegula/runtime/memory_watch.h"
#include "tegula/runtime/session.h"

namespace tegula {

struct RankRun {
  explicit RankRun(int n_threads) : rank(n_threads), store(rank) {}
  explicit RankRun(Device& device) : rank(device), store(rank) {}
  Rank rank;
  Store store;
  Region arena;  // shared by the plans, which run in turns
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<int32_t> tokens, targets;
  // Watches the step's plans: its first two runs, or all. None of a device, whose arena is only
  // looked at after them.
  std::unique_ptr<MemoryWatch> watch;
  int64_t written_bytes = 0;                // of a device's arena
  std::unique_ptr<MemoryWatch> eval_watch;  // with --check
};
using RankRuns = std::vector<std::unique_ptr<RankRun>>;

// The weights that all ranks hold together, as whole tensors of the host: rank 0's own store where
// it is alone and has no device, else a copy.
struct WholeStore {
  std::unique_ptr<Rank> rank;
  std::unique_ptr<Store> copy;
  Store* store = nullptr;
};
// `has_values`: their values are copied too; else zeros, to be loaded and given out again.
Result<WholeStore> whole_store(const RankRuns& ranks, bool has_values);
// Every rank takes its shares of it.
Status give_out(const WholeStore& whole, const RankRuns& ranks);

}  // namespace tegula
