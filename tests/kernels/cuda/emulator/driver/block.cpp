#include "tests/kernels/cuda/emulator/driver/block.h"

#include <bit>
#include <cstring>
#include <memory>

#include "tegula/base/str.h"
#include "tests/kernels/cuda/emulator/driver/fiber.h"
#include "tests/kernels/cuda/emulator/driver/memory.h"

namespace tegula::emulated {

namespace {

constexpr size_t kDynamic_bytes = 256 << 10;  // more than any device has
constexpr uint64_t kMostPauses = uint64_t{1} << 24;
constexpr unsigned char kPoison = 0xff, kPastEnd = 0xa5;

Block* the_block = nullptr;

void begin_thread() {
  the_block->call_kernel();
  the_block->end_thread();
}

std::string text_of(Dim3 d) { return cat("(", d.x, ", ", d.y, ", ", d.z, ")"); }

uintptr_t address_of(const void* p) { return reinterpret_cast<uintptr_t>(p); }

}  // namespace

// The memory that all blocks of a place use, one after the other.
struct Arena {
  char* dynamic = guarded_pages(kDynamic_bytes);
  std::vector<char*> stacks;
  char* stack(size_t i) {
    while (stacks.size() <= i) stacks.push_back(guarded_pages(kStack_bytes));
    return stacks[i];
  }
  static Arena& of(size_t place) {
    static auto& all = *new std::vector<std::unique_ptr<Arena>>();
    while (all.size() <= place) all.push_back(std::make_unique<Arena>());
    return *all[place];
  }
};

Block* running_block() { return the_block; }

Block::Block(const Launch& launch, size_t place)
    : launch_(launch),
      arena_(Arena::of(place)),
      n_threads_(launch.block.x * launch.block.y * launch.block.z),
      n_warps_((n_threads_ + kWarpSize - 1) / kWarpSize),
      static_(launch.function->module->static_shared()),
      fibers_(n_threads_),
      checks_races_(launch.function->module->cubin()->checks_races),
      is_backwards_(setting("FAKE_CUDA_BACKWARDS", 0) != 0) {
  for (const auto& a : launch.arguments)
    arguments_.push_back(const_cast<std::max_align_t*>(a.data()));
  // Its end is the arena's, so that what lies past it is caught, as far as its alignment lets.
  dynamic_ = arena_.dynamic +
             (kDynamic_bytes - launch.dynamic_bytes) / kSharedPage_bytes * kSharedPage_bytes;
  const auto page = [](size_t bytes) {
    return (bytes + kSharedPage_bytes - 1) / kSharedPage_bytes;
  };
  const size_t fixed = address_of(static_.begin) % kSharedPage_bytes + static_.bytes;
  dynamic_address_ = static_cast<unsigned>((1 + page(fixed)) * kSharedPage_bytes);
}

void Block::poison() {
  std::memset(static_.begin, kPoison, static_.bytes);
  std::memset(dynamic_, kPoison, launch_.dynamic_bytes);
  char* end = dynamic_ + launch_.dynamic_bytes;
  std::memset(end, kPastEnd, static_cast<size_t>(arena_.dynamic + kDynamic_bytes - end));
}

void Block::begin_threads(Dim3 index) {
  index_ = index, n_ended_ = 0, n_pauses_ = 0;
  now_ = is_backwards_ ? n_threads_ - 1 : 0;
  for (Barrier& b : barriers_) b = {};
  arriving_.clear();
  if (checks_races_) races_.begin(n_warps_, static_.bytes + launch_.dynamic_bytes);
  for (unsigned w = 0; w < n_warps_; ++w) {
    const unsigned lanes = std::min(kWarpSize, n_threads_ - w * kWarpSize);
    warps_[w].ready = warps_[w].alive = lanes == kWarpSize ? ~0U : (1U << lanes) - 1;
    warps_[w].meetings.clear();
  }
  const Dim3 dim = launch_.block;
  for (unsigned i = 0; i < n_threads_; ++i) {
    Fiber& f = fibers_[i];
    f.thread = {{i % dim.x, i / dim.x % dim.y, i / dim.x / dim.y}, index, dim, launch_.grid};
    f.has_ended = f.has_waited = false, f.barrier = -1, f.meets = 0, f.group = 0;
    f.copies.clear(), f.leaving.clear(), f.bulk_group = 0;
    f.stack = fresh_stack(arena_.stack(i) + kStack_bytes, begin_thread);
  }
}

bool Block::run(Dim3 index) {
  poison();
  begin_threads(index);
  return go_on();
}

void Block::begin(Dim3 index) {
  takes_turns_ = true;
  poison();
  begin_threads(index);
  kept_static_.assign(static_.begin, static_.begin + static_.bytes);
}

bool Block::go_on() {
  if (takes_turns_) std::memcpy(static_.begin, kept_static_.data(), static_.bytes);
  n_pauses_of_turn_ = 0;
  the_block = this;
  is_running_ = true;
  *launch_.function->module->cubin()->thread = &fibers_[now_].thread;
  tegula_emulated_switch(&host_stack_, fibers_[now_].stack);
  is_running_ = false;
  the_block = nullptr;
  if (takes_turns_) std::memcpy(kept_static_.data(), static_.begin, static_.bytes);
  if (outcome_.status != kSuccess) return false;
  return !has_ended() || end();
}

bool Block::end() {
  const char* end = dynamic_ + launch_.dynamic_bytes;
  for (const char* at = end; at < arena_.dynamic + kDynamic_bytes; ++at)
    if (static_cast<unsigned char>(*at) != kPastEnd) {
      outcome_ = {kIllegalAddress, cat(launch_.function->kernel->name, ", block ", text_of(index_),
                                       " of ", text_of(launch_.grid), ": byte ", at - dynamic_,
                                       " of dynamic shared memory was written, the launch gave ",
                                       launch_.dynamic_bytes)};
      return false;
    }
  return true;
}

char* Block::top_of_stack() const { return arena_.stack(now_) + kStack_bytes; }

std::string Block::where() const {
  return cat(launch_.function->kernel->name, ", block ", text_of(index_), " of ",
             text_of(launch_.grid), ", thread ", text_of(fibers_[now_].thread.thread_index), " of ",
             text_of(launch_.block), ": ");
}

void Block::fail(Status status, const std::string& message) {
  outcome_ = {status, where() + message};
  void* nowhere = nullptr;
  tegula_emulated_switch(&nowhere, host_stack_);
  __builtin_unreachable();
}

bool Block::find_ready(unsigned& next) const {
  const auto first_of = [this](unsigned lanes) {
    return static_cast<unsigned>(is_backwards_ ? 31 - std::countl_zero(lanes)
                                               : std::countr_zero(lanes));
  };
  const unsigned warp = now_ / kWarpSize, lane = now_ % kWarpSize;
  const unsigned later = is_backwards_ ? (1U << lane) - 1 : ~((2U << lane) - 1);
  if (const unsigned lanes = warps_[warp].ready & later; lanes != 0) {
    next = warp * kWarpSize + first_of(lanes);
    return true;
  }
  for (unsigned i = 1; i <= n_warps_; ++i) {  // the own warp last
    const unsigned w = (is_backwards_ ? warp + n_warps_ - i : warp + i) % n_warps_;
    if (warps_[w].ready == 0) continue;
    next = w * kWarpSize + first_of(warps_[w].ready);
    return true;
  }
  return false;
}

void Block::switch_to(unsigned next) {
  Fiber& from = fibers_[now_];
  now_ = next;
  *launch_.function->module->cubin()->thread = &fibers_[next].thread;
  tegula_emulated_switch(&from.stack, fibers_[next].stack);
}

void Block::switch_away() {
  unsigned next = 0;
  if (!find_ready(next)) fail(kLaunchFailed, "no thread of the block can go on: " + who_waits());
  if (next != now_) switch_to(next);
}

// The waits of all threads, like ones together.
std::string Block::who_waits() const {
  std::vector<std::pair<std::string, std::vector<unsigned>>> groups;
  for (unsigned i = 0; i < n_threads_; ++i) {
    const Fiber& f = fibers_[i];
    std::string what = "can go on";
    if (f.has_ended) {
      what = "have ended";
    } else if (f.barrier >= 0) {
      const Barrier& b = barriers_[f.barrier];
      what = cat("wait at ",
                 f.barrier == 0 ? std::string("__syncthreads") : cat("barrier ", f.barrier),
                 ", where ", b.come, " of ", b.n_threads, " have come");
    } else if (f.meets != 0) {
      char mask[16];
      std::snprintf(mask, sizeof mask, "%08x", f.meets);
      what = cat("wait at ", f.meets_for, " for lanes ", mask, " of warp ", i / kWarpSize);
    }
    auto at = groups.begin();
    while (at != groups.end() && at->first != what) ++at;
    if (at == groups.end()) at = groups.insert(at, {what, {}});
    at->second.push_back(i);
  }
  std::string out;
  for (const auto& [what, threads] : groups) {
    out += cat(out.empty() ? "" : "; ", threads.size() == 1 ? "thread " : "threads ");
    for (size_t i = 0; i < threads.size();) {  // runs of neighbours
      size_t end = i + 1;
      while (end < threads.size() && threads[end] == threads[end - 1] + 1) ++end;
      out += cat(i == 0 ? "" : ", ", threads[i]);
      if (end - i > 1) out += cat("-", threads[end - 1]);
      i = end;
      if (i < threads.size() && i > 8) {
        out += ", …";
        break;
      }
    }
    out += " " + what;
  }
  return out;
}

void Block::sync(unsigned id, unsigned n_threads, bool waits) {
  if (n_threads == 0) n_threads = n_threads_;
  Barrier& b = barriers_[id];
  if (id != 0 && n_threads % kWarpSize != 0)
    fail(kLaunchFailed, cat("barrier ", id, " of ", n_threads, " threads: not whole warps"));
  if (b.come == 0) b.n_threads = n_threads;
  if (b.n_threads != n_threads)
    fail(kLaunchFailed,
         cat("barrier ", id, " is of ", b.n_threads, " threads to those that have come, and of ",
             n_threads, " to this one"));
  n_pauses_ = 0;
  const unsigned own = now_ / kWarpSize;
  if (checks_races_) races_.release(own, b.clocks);
  if (++b.come == b.n_threads) {
    for (unsigned w = 0; w < n_warps_; ++w) {
      if (checks_races_ && (b.waiting[w] != 0 || (w == own && waits))) races_.acquire(w, b.clocks);
      for (unsigned lanes = b.waiting[w]; lanes != 0; lanes &= lanes - 1)
        fibers_[w * kWarpSize + static_cast<unsigned>(std::countr_zero(lanes))].barrier = -1;
      warps_[w].ready |= b.waiting[w];
      b.waiting[w] = 0;
    }
    b.come = 0, b.clocks = {};
    return;
  }
  if (!waits) return;
  const unsigned lane = 1U << now_ % kWarpSize, warp = now_ / kWarpSize;
  b.waiting[warp] |= lane;
  warps_[warp].ready &= ~lane;
  current().barrier = static_cast<int>(id);
  switch_away();
}

bool Block::end_meeting_if_all_came(Warp& warp, unsigned first_thread, size_t meeting) {
  const Meeting m = warp.meetings[meeting];
  if (m.come != (m.lanes & warp.alive)) return false;
  warp.meetings.erase(warp.meetings.begin() + static_cast<ptrdiff_t>(meeting));
  if (m.come == 0) return true;
  void* slots[kWarpSize] = {};
  for (unsigned lanes = m.come; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    slots[lane] = warp.slots[lane];
    fibers_[first_thread + lane].meets = 0;
  }
  m.join(slots, m.come);
  warp.ready |= m.come;
  n_pauses_ = 0;
  return true;
}

void Block::meet(unsigned lanes, const char* what, Join join, void* slot) {
  Warp& warp = warps_[now_ / kWarpSize];
  const unsigned lane = now_ % kWarpSize, first_thread = now_ - lane;
  if ((lanes >> lane & 1) == 0)
    fail(kLaunchFailed, cat(what, ": the mask does not name the calling lane ", lane));
  size_t at = 0;
  while (at < warp.meetings.size() && warp.meetings[at].lanes != lanes) ++at;
  if (at == warp.meetings.size()) warp.meetings.push_back({lanes, 0, what, join});
  Meeting& m = warp.meetings[at];
  if (m.join != join)
    fail(kLaunchFailed, cat("lanes of warp ", now_ / kWarpSize, " meet at different instructions: ",
                            what, " here, ", m.what, " of lane ", std::countr_zero(m.come)));
  m.come |= 1U << lane;
  warp.slots[lane] = slot;
  current().meets = lanes, current().meets_for = what;
  warp.ready &= ~(1U << lane);
  if (end_meeting_if_all_came(warp, first_thread, at)) return;
  switch_away();
}

void Block::pause() {
  if (++n_pauses_ > kMostPauses)
    fail(kLaunchFailed,
         "the block waits in a loop for what never comes (blocks run one after the other, in the "
         "order of their numbers, but in a cooperative launch): " +
             who_waits());
  constexpr unsigned kPausesOfThread = 4;
  if (takes_turns_ && ++n_pauses_of_turn_ > kPausesOfThread * n_threads_)
    tegula_emulated_switch(&current().stack, host_stack_);
  switch_away();
}

void Block::end_thread() {
  Warp& warp = warps_[now_ / kWarpSize];
  const unsigned lane = 1U << now_ % kWarpSize;
  if (!current().leaving.empty())
    fail(kLaunchFailed, "the thread ends without waiting for its bulk copies from shared memory");
  current().has_ended = true;
  warp.ready &= ~lane, warp.alive &= ~lane;
  for (size_t i = 0; i < warp.meetings.size();)
    if (!end_meeting_if_all_came(warp, now_ / kWarpSize * kWarpSize, i)) ++i;
  n_pauses_ = 0;
  if (++n_ended_ == n_threads_) {
    void* nowhere = nullptr;
    tegula_emulated_switch(&nowhere, host_stack_);
  }
  switch_away();
  __builtin_unreachable();
}

std::string Block::describe_fault(uintptr_t address) const {
  const uintptr_t dynamic = address_of(dynamic_);
  const uintptr_t end = address_of(arena_.dynamic) + kDynamic_bytes;
  if (address >= end && address < end + 4096)
    return cat("byte ", address - dynamic, " of dynamic shared memory, of which the launch gave ",
               launch_.dynamic_bytes);
  const uintptr_t stack = address_of(arena_.stack(now_));
  if (address < stack && address + 4096 >= stack)
    return cat("the thread's stack of ", kStack_bytes, " bytes, which is full");
  return describe_address(address);
}

}  // namespace tegula::emulated
