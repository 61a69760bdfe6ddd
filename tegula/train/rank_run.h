// RankRun: what one rank of a training run has for itself: memory, sessions, its share of the
// batch.
#pragma once

#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/runtime/memory_watch.h"
#include "tegula/runtime/program_session.h"
#include "tegula/runtime/rank_group.h"
#include "tegula/runtime/session.h"

namespace tegula {

struct RankRun {
  explicit RankRun(int n_threads) : rank(n_threads), store(rank) {}
  explicit RankRun(Device& device) : rank(device), store(rank) {}
  Rank rank;
  Store store;
  Region arena;  // shared by the plans, which run in turns
  // Each plan's: one, or one for each slot of the sums that it runs on (ir/micro_groups.h).
  std::vector<std::vector<std::unique_ptr<Session>>> sessions;
  std::vector<std::vector<StepStats>> stats;  // of each plan's steps that are timed
  Region tokens, targets;  // its share of the batch, where other ranks can read it
  int64_t seed = 0;        // of its micro-batch's random numbers
  // A pipeline's: its flows, as much as was seen written of them, and what it runs.
  std::vector<int64_t> seeds;  // of each micro-batch
  Region flows;
  int64_t flow_bytes = 0;
  std::unique_ptr<ProgramSession> step_program, eval_program;
  // Watches the step's plans: its first two runs, or all. None of a device, whose arena is only
  // looked at after them.
  std::unique_ptr<MemoryWatch> watch;
  int64_t written_bytes = 0;                // of a device's arena
  std::unique_ptr<MemoryWatch> eval_watch;  // with --check
};
using RankRuns = std::vector<std::unique_ptr<RankRun>>;  // of this process

// A T for each rank: those of this process's are filled, and others' are fetched.
template <class T>
Status exchange(RankGroup& group, std::vector<T>& of_ranks) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto n = static_cast<size_t>(group.n_own());
  const T* own = of_ranks.data() + group.first_rank();
  const auto all = TEGULA_TRY(group.segment().exchange(
      std::string_view(reinterpret_cast<const char*>(own), n * sizeof(T))));
  for (size_t p = 0; p < all.size(); ++p) {
    if (all[p].size() != n * sizeof(T))
      return internal_error(
          cat("process ", p, " told ", all[p].size(), " bytes, not ", n * sizeof(T)));
    std::memcpy(static_cast<void*>(of_ranks.data() + p * n), all[p].data(), n * sizeof(T));
  }
  return {};
}

std::vector<Store*> stores_of(const RankRuns& ranks);

// The weights and state of a rank that is alone, on the host: its own store, or a copy from its
// device.
struct HostStore {
  std::unique_ptr<Rank> rank;
  std::unique_ptr<Store> copy;
  const Store* store = nullptr;
};
Result<HostStore> host_store(const RankRun& alone);

}  // namespace tegula
