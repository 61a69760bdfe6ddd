// Rank: what one participant of a run has for itself: threads, a device, the account of its memory,
// the counts of its kernels. Nothing that measures or holds is the process's, so several ranks in
// one process, each driven by a thread of its own, measure what they themselves took and did.
//
//   Rank rank(/*n_threads=*/2);
//   const auto s = TEGULA_TRY(Session::create(plan, rank));
//   TEGULA_TRY(s->run());
//   rank.counters.math_flops, rank.memory.peak_bytes()
//
// It outlives its sessions, stores and eager arrays, and one thread at a time calls any of them.
// That thread is not one of a pool's: in there loops run inline.
#pragma once

#include "tegula/base/thread_pool.h"
#include "tegula/kernels/kernel.h"
#include "tegula/runtime/memory.h"

namespace tegula {

class Device;  // kernels/device.h
class Peers;   // kernels/peers.h

struct Rank {
  // n_threads counts the caller; 0 means one per core that this process may use.
  explicit Rank(int n_threads = 0) : pool(n_threads) {}
  // The data that its sessions and stores hold lies on the device, and launches go into its stream.
  explicit Rank(Device& runs_on) : pool(1), device(&runs_on) {}

  ThreadPool pool;
  Device* device = nullptr;  // null: the CPU alone
  MemoryAccount memory;      // of all Regions made for this rank
  Counters counters;         // of all kernels that its sessions launched
  Peers* peers = nullptr;    // the other ranks (runtime/rank_group.h); null: there are none
  // A run that would compile kernels of a device after this time (base/clock.h) fails instead; what
  // was compiled by then is kept. 0: it compiles as long as it takes.
  double compiles_until_s = 0;
};

}  // namespace tegula
