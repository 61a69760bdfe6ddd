// Watches from outside what runs do with their memory.
//
//   auto watch = MemoryWatch::create(arena, plans, MemoryWatch::Workspaces::kApart);
//   session.watch(watch->get());
//   watch->begin(0xa5), session.run(), watch->end();  // and once more with another byte
//   watch->claimed_bytes(), watch->written_bytes()
//
// claimed: the end of what was taken in the arena: results of steps, and of workspaces what kernels
// say they have laid out. written: the end of what was really changed, at most that. Neither reads
// the offsets or sizes that were planned. That nobody took more is shown by what lies behind: the
// arena's spare bytes and, of workspaces that lie apart, a tail. A kernel that writes there, or
// claims more than it was given, is an error that names it, after its step; further off lie pages
// that end the process.
#pragma once

#include <optional>
#include <span>

#include "tegula/base/memory.h"
#include "tegula/plan/plan.h"
#include "tegula/runtime/memory.h"

namespace tegula {

class MemoryWatch {
 public:
  // Workspaces where they were planned; or, at the price of filling them for each step, in memory
  // of their own with a tail behind them.
  enum class Workspaces : uint8_t { kInArena, kApart };

  // The arena of these plans; what it has beyond the largest of theirs is spare. The arena must
  // outlive the watch. Error: no memory.
  static Result<std::unique_ptr<MemoryWatch>> create(Region& arena,
                                                     std::span<const Plan* const> plans,
                                                     Workspaces workspaces);

  // Before a run: fills all with this byte. A byte written with the same value is not seen, so
  // what is to be known for sure takes two runs with different ones.
  void begin(uint8_t value, ThreadPool* pool = nullptr);
  // After it. Error: what a kernel did to memory that was not its own.
  Status end();

  int64_t claimed_bytes() const;  // in whole lines of kAlignment, as memory is handed out
  int64_t written_bytes() const { return written_; }

  // For Session: what a step did.
  struct Done {
    const Plan* plan = nullptr;
    size_t step = 0;
    std::span<const TensorRef> out;
    void* workspace = nullptr;  // as planned
    int64_t claimed_bytes = 0;  // of it
    bool is_apart = true;       // the workspace was the watch's
  };
  // The workspace to hand out instead.
  void* open(void* workspace, int64_t bytes);
  Status close(const Done& done);

 private:
  MemoryWatch(Region& arena, int64_t planned_bytes) : arena_(arena), planned_(planned_bytes) {}
  void claim_results(const Done& done);
  Status check_workspace(const Done& done, int64_t bytes);
  Status check_spare(const Done& done);
  Error blame(const Done& done, std::string what);
  // The offset of memory in the arena; -1: elsewhere.
  int64_t offset_of(const void* p) const;

  Region& arena_;
  int64_t planned_;
  Region apart_;  // a workspace and its tail
  uint8_t value_ = 0;
  int64_t claimed_ = 0, written_ = 0;  // ends in the arena
  std::optional<Error> error_;         // the first
};

}  // namespace tegula
