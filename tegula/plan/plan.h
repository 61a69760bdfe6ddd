// Plan: every decision of a run, made before it. Immutable, printable, reloadable; the interpreter
// (runtime/session.h) decides nothing.
//
// Memory: *slots* are buffers. A parameter slot persists between runs and is owned by the caller;
// an arena slot has an offset in the one arena. A tensor is a strided view of a slot. Layouts are
// fixed at the symbols' bounds; a run with smaller extents uses a corner of each box, so that no
// offset or stride depends on the run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/ir/extents.h"
#include "tegula/ir/module.h"
#include "tegula/kernels/kernel.h"

namespace tegula {

enum class SlotKind : uint8_t { kParam, kArena };

struct Slot {
  SlotKind kind = SlotKind::kArena;
  int64_t bytes = 0;
  int64_t offset = -1;  // in the arena
  int param = -1;       // parameter index
  int first_step = 0;   // live from the start of this step …
  int last_step = 0;    // … to the end of this one
  std::string name;     // of the value that caused it, for reports
  Phase phase = Phase::kForward;
  bool is_workspace = false;
};

struct PlanTensor {
  int slot = -1;
  int64_t byte_offset = 0;
  Type type;
  int64_t stride[kMaxRank] = {};
  // In the planned function: the value that this is, and the one whose bytes these are (itself, or
  // what it is a view of), which verify_plan follows through memory.
  ValueId value = kNone, holds = kNone;
};

// As a kernel sees them at given extents, data null: strides stay those of the bounds.
std::vector<TensorRef> refs_at(const std::vector<PlanTensor>& tensors,
                               std::span<const int64_t> extents);

// Have they no element at all? A step whose results are so is not launched.
bool are_empty(std::span<const TensorRef> tensors);

struct Mesh;
struct Plan;

// One launch. Exactly one of kernel, reference and region runs it.
//
// A step in the background (a collective) is two steps alike, one that starts it and a later one
// that ends it. Whoever runs the plan may do the work at any moment in between: what it reads and
// writes is live in all of them, since both steps name it, and nobody else touches it.
struct Step {
  const OpDef* op = nullptr;
  const KernelDef* kernel = nullptr;  // null: the op's reference, or a region op
  std::string_view order;             // numeric, chosen before the kernel (kernels/order.h)
  Tuning tuning;                      // of the kernel
  Attrs attrs;
  std::vector<PlanTensor> in, out;
  int workspace = -1;                            // slot
  int starts = -1, ends = -1;                    // work in the background, by its number; -1: none
  std::shared_ptr<const tile::Program> program;  // of an op with a body
  std::vector<std::shared_ptr<const Plan>>
      regions;        // control flow; their arenas lie in `workspace`
  int64_t flops = 0;  // at the bounds, below kUncountable; views and copies 0
  int64_t bytes = 0;  // least bytes: every operand read once, every result written once
  Phase phase = Phase::kForward;
  std::string scope;  // where in the model: "layers.3.attn"
  std::source_location loc;
};

struct Plan {
  std::string name;
  std::vector<Symbol> symbols;
  std::vector<LeastExtent> least;  // per symbol; a run below is refused. Empty: all 0
  std::vector<Slot> slots;
  std::vector<Step> steps;
  // In the function's order. A result lies in an arena slot or, donated, in a parameter's.
  struct Port {
    std::string name;
    Role role = Role::kInput;
    int donated_to = -1;
    PlanTensor tensor;
  };
  std::vector<Port> params, results;
  std::shared_ptr<const Module> module;  // that was planned; null: the plan was loaded
  FuncId function = kNone;               // of the module

  int64_t arena_bytes = 0;        // highest end of an arena slot
  int64_t lower_bound_bytes = 0;  // largest sum of live arena bytes over the steps
  int64_t param_bytes = 0;
  Target target;  // that it is made for
  double compile_ms = 0;

  int64_t peak_bytes() const { return arena_bytes + param_bytes; }
  // Exact: a plan in which one of them is more than 64 bits count is refused.
  int64_t flops() const;
  int64_t bytes() const;
  // Σ of the steps' prices on the target (cost/price.h), by what kernels sustain of its rates where
  // these are known.
  double seconds() const;
  // Steps, regions' too, that no kernel of the target runs: 0 on a CPU, where references do.
  int host_steps() const;
  // Does it need other ranks? Collectives stand in a step alone, never in a region.
  bool has_collectives() const;
  // Works in the background: their numbers are those below.
  int n_background() const;
  // The bytes that the rank at `at` of the mesh gives to others in a run. Exact, as flops() is.
  int64_t sent_bytes(const Mesh& mesh, std::span<const int64_t> at) const;
  // Ports by name; -1: none.
  int find_param(std::string_view wanted) const;
  int find_result(std::string_view wanted) const;
  // A table of the steps, buffers and totals, for people.
  std::string to_string() const;
};

// Error: FLOPs or bytes of all steps together are more than 64 bits count.
Status check_totals(const Plan& plan);

class TuningTable;
class CommTable;

// The bounds, and some smaller extents of all symbols that a run may have.
std::vector<std::vector<int64_t>> some_extents(std::span<const Symbol> symbols,
                                               std::span<const LeastExtent> least);

struct PlanOptions {
  Target target = Target::one_thread();
  bool reorder = true;  // list scheduling on bytes freed
  // Kernel by name for an op ("dot" -> "dot_naive"), for tests and rungs.
  std::vector<std::pair<std::string, std::string>> force_kernel;
  bool use_kernels = true;               // false: references only (tests)
  const TuningTable* tunings = nullptr;  // null: every kernel by its own rule
  // How collectives are done; null: each rank takes from all at once.
  const CommTable* comm = nullptr;
  bool adds_on_the_way = false;  // sums may have an algorithm's order (mode fast)
  // Check the finished plan, see plan/verify.h. None: if the library was built for debugging.
  std::optional<bool> verify;
};

// Plans a function that has been through the passes.
Result<Plan> make_plan(std::shared_ptr<const Module> module, FuncId function,
                       const PlanOptions& options);

// The kernel make_plan would use, or null for the op's reference: the best one of the call's order,
// which is the first query's.
const KernelDef* choose_kernel(const OpDef& op, std::span<const KernelQuery> queries,
                               const PlanOptions& options);

}  // namespace tegula
