#include "tests/kernels/cuda/emulator/driver/block.h"

#include <bit>
#include <cstring>

#include "tegula/base/str.h"
#include "tests/kernels/cuda/emulator/driver/fiber.h"
#include "tests/kernels/cuda/emulator/driver/memory.h"

namespace tegula::emulated {

namespace {

constexpr size_t kDynamic_bytes = 256 << 10;  // more than any device has
constexpr size_t kDynamicAlignment_bytes = 1024;
constexpr unsigned kDynamicAddress = 0x10000, kStaticAddress = 0x1000000;
constexpr uint64_t kMostPauses = uint64_t{1} << 24;
constexpr unsigned char kPoison = 0xff, kPastEnd = 0xa5;

// What all blocks use, one after the other.
struct Arena {
  char* dynamic = guarded_pages(kDynamic_bytes);
  std::vector<char*> stacks;
  char* stack(size_t i) {
    while (stacks.size() <= i) stacks.push_back(guarded_pages(kStack_bytes));
    return stacks[i];
  }
};
Arena& arena() {
  static auto& a = *new Arena();
  return a;
}

Block* the_block = nullptr;

void begin_thread() {
  the_block->call_kernel();
  the_block->end_thread();
}

std::string text_of(Dim3 d) { return cat("(", d.x, ", ", d.y, ", ", d.z, ")"); }

uintptr_t address_of(const void* p) { return reinterpret_cast<uintptr_t>(p); }

}  // namespace

Block* running_block() { return the_block; }

Block::Block(const Launch& launch)
    : launch_(launch),
      n_threads_(launch.block.x * launch.block.y * launch.block.z),
      n_warps_((n_threads_ + kWarpSize - 1) / kWarpSize),
      static_(launch.function->module->static_shared()),
      fibers_(n_threads_),
      is_backwards_(setting("FAKE_CUDA_BACKWARDS", 0) != 0) {
  for (const auto& a : launch.arguments)
    arguments_.push_back(const_cast<std::max_align_t*>(a.data()));
  // Its end is the arena's, so that what lies past it is caught, as far as its alignment lets.
  dynamic_ = arena().dynamic + (kDynamic_bytes - launch.dynamic_bytes) / kDynamicAlignment_bytes *
                                   kDynamicAlignment_bytes;
}

void Block::poison() {
  std::memset(static_.begin, kPoison, static_.bytes);
  std::memset(dynamic_, kPoison, launch_.dynamic_bytes);
  char* end = dynamic_ + launch_.dynamic_bytes;
  std::memset(end, kPastEnd, static_cast<size_t>(arena().dynamic + kDynamic_bytes - end));
}

void Block::begin_threads(Dim3 index) {
  index_ = index, n_ended_ = 0, n_pauses_ = 0;
  now_ = is_backwards_ ? n_threads_ - 1 : 0;
  for (Barrier& b : barriers_) b = {};
  for (unsigned w = 0; w < n_warps_; ++w) {
    const unsigned lanes = std::min(kWarpSize, n_threads_ - w * kWarpSize);
    warps_[w].ready = warps_[w].alive = lanes == kWarpSize ? ~0U : (1U << lanes) - 1;
    warps_[w].meetings.clear();
  }
  const Dim3 dim = launch_.block;
  for (unsigned i = 0; i < n_threads_; ++i) {
    Fiber& f = fibers_[i];
    f.thread = {{i % dim.x, i / dim.x % dim.y, i / dim.x / dim.y}, index, dim, launch_.grid};
    f.has_ended = false, f.barrier = -1, f.meets = 0, f.group = 0;
    f.copies.clear();
    f.stack = fresh_stack(arena().stack(i) + kStack_bytes, begin_thread);
  }
}

bool Block::run(Dim3 index) {
  poison();
  begin_threads(index);
  the_block = this;
  is_running_ = true;
  *launch_.function->module->cubin()->thread = &fibers_[now_].thread;
  tegula_emulated_switch(&host_stack_, fibers_[now_].stack);
  is_running_ = false;
  the_block = nullptr;
  if (outcome_.status != kSuccess) return false;
  const char* end = dynamic_ + launch_.dynamic_bytes;
  for (const char* at = end; at < arena().dynamic + kDynamic_bytes; ++at)
    if (static_cast<unsigned char>(*at) != kPastEnd) {
      outcome_ = {kIllegalAddress, cat(launch_.function->kernel->name, ", block ", text_of(index_),
                                       " of ", text_of(launch_.grid), ": byte ", at - dynamic_,
                                       " of dynamic shared memory was written, the launch gave ",
                                       launch_.dynamic_bytes)};
      return false;
    }
  return true;
}

char* Block::top_of_stack() const { return arena().stack(now_) + kStack_bytes; }

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
  if (++b.come == b.n_threads) {
    for (unsigned w = 0; w < n_warps_; ++w) {
      for (unsigned lanes = b.waiting[w]; lanes != 0; lanes &= lanes - 1)
        fibers_[w * kWarpSize + static_cast<unsigned>(std::countr_zero(lanes))].barrier = -1;
      warps_[w].ready |= b.waiting[w];
      b.waiting[w] = 0;
    }
    b.come = 0;
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
         "order of their numbers): " +
             who_waits());
  switch_away();
}

void Block::end_thread() {
  Warp& warp = warps_[now_ / kWarpSize];
  const unsigned lane = 1U << now_ % kWarpSize;
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

unsigned Block::shared_address(const void* data) {
  const uintptr_t at = address_of(data), dynamic = address_of(dynamic_);
  if (at >= dynamic && at <= dynamic + launch_.dynamic_bytes)
    return kDynamicAddress + static_cast<unsigned>(at - dynamic);
  const uintptr_t fixed = address_of(static_.begin);
  if (at >= fixed && at <= fixed + static_.bytes)  // as aligned as the memory is
    return kStaticAddress +
           static_cast<unsigned>(at - fixed / kDynamicAlignment_bytes * kDynamicAlignment_bytes);
  fail(kIllegalAddress,
       cat("the shared address of what is not in shared memory, but ", describe_address(at)));
}

char* Block::shared_data(unsigned address, unsigned bytes, unsigned alignment) {
  if (address % alignment != 0)
    fail(kIllegalAddress, cat("shared address ", address, " is not aligned to ", alignment));
  if (address < kStaticAddress) {
    const int64_t at = int64_t{address} - kDynamicAddress;
    if (at < 0 || at + bytes > launch_.dynamic_bytes)
      fail(kIllegalAddress, cat("bytes ", at, " to ", at + bytes,
                                " of dynamic shared memory, of which "
                                "the launch gave ",
                                launch_.dynamic_bytes));
    return dynamic_ + at;
  }
  const uintptr_t fixed = address_of(static_.begin);
  const uintptr_t at =
      fixed / kDynamicAlignment_bytes * kDynamicAlignment_bytes + address - kStaticAddress;
  if (at < fixed || at + bytes > fixed + static_.bytes)
    fail(kIllegalAddress, cat("byte ", static_cast<int64_t>(at - fixed), " of the ", static_.bytes,
                              " bytes of static shared memory"));
  return static_.begin + (at - fixed);
}

void Block::await_copies(unsigned n_left) {
  Fiber& f = current();
  size_t done = 0;
  for (; done < f.copies.size() && f.copies[done].group + n_left < f.group; ++done) {
    const Copy& c = f.copies[done];
    std::memcpy(c.to, c.from, c.bytes);
    std::memset(c.to + c.bytes, 0, 16 - c.bytes);
  }
  f.copies.erase(f.copies.begin(), f.copies.begin() + static_cast<ptrdiff_t>(done));
}

std::string Block::describe_fault(uintptr_t address) const {
  const uintptr_t dynamic = address_of(dynamic_);
  const uintptr_t end = address_of(arena().dynamic) + kDynamic_bytes;
  if (address >= end && address < end + 4096)
    return cat("byte ", address - dynamic, " of dynamic shared memory, of which the launch gave ",
               launch_.dynamic_bytes);
  const uintptr_t stack = address_of(arena().stack(now_));
  if (address < stack && address + 4096 >= stack)
    return cat("the thread's stack of ", kStack_bytes, " bytes, which is full");
  return describe_address(address);
}

}  // namespace tegula::emulated
