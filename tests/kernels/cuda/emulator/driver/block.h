// The running block: its threads take turns where they wait for one another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/kernels/cuda/emulator/driver/launch.h"
#include "tests/kernels/cuda/emulator/driver/races.h"

namespace tegula::emulated {

inline constexpr unsigned kMostThreads = 1024, kBarriers = 16, kWarps = kMostThreads / kWarpSize;
// Shared memory is as aligned as this, and its addresses begin there: static, then dynamic memory.
inline constexpr size_t kSharedPage_bytes = 1024;

// A copy in the background: 16 bytes to shared memory.
struct Copy {
  char* to;
  const void* from;
  unsigned bytes, group;
};

// Something to be done when it is waited for.
struct Later {
  unsigned key;  // a barrier, or a group of the thread's
  void (*act)(const void*);
  alignas(16) char what[160];
};

struct Fiber {
  void* stack = nullptr;  // where it goes on
  Thread thread;
  bool has_ended = false, has_waited = false;  // for the launch before
  int barrier = -1;                            // that it waits at
  unsigned meets = 0;                          // the lanes that it waits for
  const char* meets_for = nullptr;             // the instruction
  std::vector<Copy> copies;
  unsigned group = 0;  // of the copies asked for next
  std::vector<Later> leaving;
  unsigned bulk_group = 0;  // of those
};

struct Meeting {
  unsigned lanes, come = 0;
  const char* what;
  Join join;
};

struct Warp {
  unsigned ready = 0, alive = 0;  // lanes
  std::vector<Meeting> meetings;
  void* slots[kWarpSize] = {};
};

struct Barrier {
  unsigned n_threads = 0, come = 0;
  Clocks clocks{};
  unsigned waiting[kWarps] = {};  // lanes of each warp
};

struct Arena;

class Block {
 public:
  // place: of blocks that run at once, each has its own.
  explicit Block(const Launch& launch, size_t place = 0);
  // Runs the block of this index; false: it failed, `outcome` says how.
  bool run(Dim3 index);
  // The same in turns with others: a turn ends where all threads only wait, or have ended.
  void begin(Dim3 index);
  bool go_on();
  bool has_ended() const { return n_ended_ == n_threads_; }
  const Outcome& outcome() const { return outcome_; }
  bool is_running() const { return is_running_; }

  // The requests of a thread: Machine.
  void sync(unsigned id, unsigned n_threads, bool waits);
  void meet(unsigned lanes, const char* what, Join join, void* slot);
  void pause();
  [[noreturn]] void fail(Status status, const std::string& message);
  unsigned shared_address(const void* data);
  char* shared_data(unsigned address, unsigned bytes, unsigned alignment);
  char* dynamic_shared() const { return dynamic_; }
  Fiber& current() { return fibers_[now_]; }
  void begin_copy(const char* to) {
    if (checks_races_) access(to, 16, true);
  }
  void await_copies(unsigned n_left);
  void get_on() { n_pauses_ = 0; }
  void access(const void* data, unsigned bytes, bool writes);
  void release(const void* data);
  void acquire(const void* data);
  void arrive_later(unsigned key, const void* what, unsigned bytes, void (*act)(const void*));
  void land(unsigned key);
  void leave_later(const void* what, unsigned bytes, void (*act)(const void*));
  void await_bulk(unsigned n_left);
  [[noreturn]] void end_thread();
  void call_kernel() const { launch_.function->kernel->run(arguments_.data()); }
  char* top_of_stack() const;  // of the running thread
  // The description of an address that faulted, if it is shared memory's or a stack's.
  std::string describe_fault(uintptr_t address) const;

 private:
  void begin_threads(Dim3 index);
  void poison();
  void switch_to(unsigned next);
  void switch_away();  // to whoever can run; fails if nobody can
  bool find_ready(unsigned& next) const;
  bool end_meeting_if_all_came(Warp& warp, unsigned first_thread, size_t meeting);
  std::string where() const;
  std::string who_waits() const;

  bool end();

  const Launch& launch_;
  Arena& arena_;
  const unsigned n_threads_, n_warps_;
  std::vector<void*> arguments_;
  StaticShared static_;
  char* dynamic_ = nullptr;
  std::vector<Fiber> fibers_;
  Warp warps_[kWarps];
  Barrier barriers_[kBarriers];
  std::vector<Later> arriving_;
  unsigned dynamic_address_ = 0;
  // Only of a cubin that asks for it.
  const bool checks_races_;
  bool is_engine_ = false;  // what is done is a copy engine's
  Races races_;
  Dim3 index_;
  unsigned now_ = 0, n_ended_ = 0;
  uint64_t n_pauses_ = 0;  // since a thread last got on
  bool takes_turns_ = false;
  unsigned n_pauses_of_turn_ = 0;
  std::vector<char> kept_static_;  // between turns
  void* host_stack_ = nullptr;
  bool is_running_ = false;
  bool is_backwards_ = false;
  Outcome outcome_;
};

// The block whose threads run, or null.
Block* running_block();

}  // namespace tegula::emulated
