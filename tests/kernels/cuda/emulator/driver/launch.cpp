#include "tests/kernels/cuda/emulator/driver/launch.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>

#include "tegula/base/denormals.h"
#include "tegula/base/str.h"
#include "tegula/kernels/cuda/capability.h"
#include "tests/kernels/cuda/emulator/driver/block.h"
#include "tests/kernels/cuda/emulator/driver/early.h"
#include "tests/kernels/cuda/emulator/driver/faults.h"
#include "tests/kernels/cuda/emulator/driver/memory.h"

namespace tegula::emulated {

namespace {

constexpr unsigned kCopied_bytes = 16;

constexpr Machine kMachine{
    .sync = [](unsigned id, unsigned n, bool waits) { running_block()->sync(id, n, waits); },
    .meet = [](unsigned lanes, const char* what, Join join,
               void* slot) { running_block()->meet(lanes, what, join, slot); },
    .fail = [](const char* message) { running_block()->fail(kLaunchFailed, message); },
    .pause = []() { running_block()->pause(); },
    .shared_address = [](const void* data) { return running_block()->shared_address(data); },
    .shared_data =
        [](unsigned address, unsigned bytes, unsigned alignment) {
          return running_block()->shared_data(address, bytes, alignment);
        },
    .dynamic_shared = []() { return running_block()->dynamic_shared(); },
    .copy_later =
        [](char* to, const void* from, unsigned bytes) {
          Fiber& f = running_block()->current();
          running_block()->begin_copy(to);
          f.copies.push_back({to, from, bytes < kCopied_bytes ? bytes : kCopied_bytes, f.group});
        },
    .end_copies = []() { ++running_block()->current().group; },
    .await_copies = [](unsigned n_left) { running_block()->await_copies(n_left); },
    .get_on = []() { running_block()->get_on(); },
    .access = [](const void* data, unsigned bytes,
                 bool writes) { running_block()->access(data, bytes, writes); },
    .order =
        [](const void* data) {
          running_block()->acquire(data);
          running_block()->release(data);
        },
    .release = [](const void* data) { running_block()->release(data); },
    .acquire = [](const void* data) { running_block()->acquire(data); },
    .arrive_later =
        [](unsigned key, const void* what, unsigned bytes, void (*act)(const void*)) {
          running_block()->arrive_later(key, what, bytes, act);
        },
    .land = [](unsigned key) { running_block()->land(key); },
    .leave_later = [](const void* what, unsigned bytes,
                      void (*act)(const void*)) { running_block()->leave_later(what, bytes, act); },
    .end_bulk_group = []() { ++running_block()->current().bulk_group; },
    .await_bulk = [](unsigned n_left) { running_block()->await_bulk(n_left); },
    .await_launch = []() { running_block()->current().has_waited = true; },
    .load =
        [](const void* data, unsigned bytes) {
          if (running_block()->current().has_waited || !checks_early_loads() ||
              !last_launch_wrote(data, bytes))
            return;
          running_block()->fail(kLaunchFailed, cat("loads ", bytes, " bytes before it has waited ",
                                                   "for the launch before, which wrote them"));
        },
};

}  // namespace

unsigned most_shared_bytes() {
  return static_cast<unsigned>(cuda::max_smem_bytes(setting("FAKE_CUDA_CAPABILITY", 90)));
}

Outcome make_launch(const Function* f, Dim3 grid, Dim3 block, unsigned dynamic_bytes,
                    void* const* arguments, bool is_cooperative, Launch& out) {
  const bool fits = grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.y < 65536 && grid.z < 65536 &&
                    block.x > 0 && block.y > 0 && block.z > 0 && block.z <= 64 &&
                    uint64_t{block.x} * block.y * block.z <= kMostThreads &&
                    dynamic_bytes <= most_shared_bytes() && f != nullptr && arguments != nullptr;
  if (!fits) return {kInvalidValue, ""};
  out = {f, grid, block, dynamic_bytes, {}, is_cooperative};
  if (const auto most = static_cast<uint64_t>(setting("FAKE_CUDA_MULTIPROCESSORS", 132));
      is_cooperative && uint64_t{grid.x} * grid.y * grid.z > most)
    return {kCooperativeTooLarge,
            cat("a cooperative launch of more blocks than the ", most, " multiprocessors")};
  if (f->kernel == nullptr) return {};
  const std::string what = cat(f->kernel->name, ": ");
  if (dynamic_bytes > f->dynamic_bytes)
    return {kInvalidValue, cat(what, dynamic_bytes,
                               " bytes of dynamic shared memory, cuFuncSetAttribute "
                               "allowed ",
                               f->dynamic_bytes)};
  if (const size_t fixed = f->module->static_shared().bytes - 1;  // without touch()'s
      fixed + dynamic_bytes > most_shared_bytes())
    return {kInvalidValue, cat(what, fixed, " bytes of static and ", dynamic_bytes,
                               " of dynamic shared memory: a block has ", most_shared_bytes())};
  if (f->kernel->max_threads != 0 && block.x * block.y * block.z > f->kernel->max_threads)
    return {kLaunchOutOfResources,
            cat(what, block.x * block.y * block.z, " threads, __launch_bounds__ says ",
                f->kernel->max_threads)};
  for (unsigned i = 0; i < f->kernel->n_arguments; ++i) {
    const unsigned bytes = f->kernel->argument_bytes[i];
    auto& copy = out.arguments.emplace_back(bytes / sizeof(std::max_align_t) + 1);
    std::memcpy(copy.data(), arguments[i], bytes);
    for (unsigned at = 0; at + sizeof(uintptr_t) <= bytes; at += sizeof(uintptr_t)) {
      uintptr_t word = 0;
      std::memcpy(&word, static_cast<const char*>(arguments[i]) + at, sizeof word);
      if (is_hosts(word))
        return {kIllegalAddress,
                cat(what, "byte ", at, " of argument ", i,
                    " points to the host's memory, which a device cannot see: copy it there")};
    }
  }
  return {};
}

namespace {

template <class Each>
bool each_block(const Dim3& grid, Each each) {
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x)
        if (!each(Dim3{x, y, z})) return false;
  return true;
}

Outcome run_in_order(const Launch& launch) {
  Block block(launch);
  each_block(launch.grid, [&](Dim3 at) { return block.run(at); });
  return block.outcome();
}

Outcome run_in_turns(const Launch& launch) {
  std::vector<std::unique_ptr<Block>> blocks;
  each_block(launch.grid, [&](Dim3 at) {
    blocks.push_back(std::make_unique<Block>(launch, blocks.size()));
    blocks.back()->begin(at);
    return true;
  });
  if (setting("FAKE_CUDA_BACKWARDS", 0) != 0) std::reverse(blocks.begin(), blocks.end());
  for (bool are_done = false; !are_done;) {
    are_done = true;
    for (const auto& block : blocks) {
      if (block->has_ended()) continue;
      if (!block->go_on()) return block->outcome();
      are_done = are_done && block->has_ended();
    }
  }
  return {};
}

}  // namespace

Outcome run(const Launch& launch) {
  if (launch.function->module->is_unloaded())
    return {kInvalidHandle, "a kernel is launched whose module was unloaded"};
  if (launch.function->kernel == nullptr) {
    const int status = setting("FAKE_CUDA_REAL_LAUNCH", 0);
    return {static_cast<Status>(status),
            status == 0 ? "" : "a kernel compiled for a real GPU is launched on the emulated one"};
  }
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  *launch.function->module->cubin()->machine = &kMachine;
  std::optional<FlushDenormals> flush;
  if (launch.function->module->cubin()->flushes) flush.emplace();
  const CatchFaults faults;
  const bool is_watched = checks_early_loads();
  if (is_watched) begin_writes();
  const Outcome outcome = launch.is_cooperative ? run_in_turns(launch) : run_in_order(launch);
  if (is_watched && outcome.status == kSuccess) end_writes();
  return outcome;
}

}  // namespace tegula::emulated
