// PassDef: one rewriting of a function. A pass is one file and one line in pipeline.cpp.
//
// A pass keeps parameters, results, donations and their names; it may add functions to the module
// (bodies of fused nodes). Unless it declares `sums`, it does not change a single bit of any
// result, except for the sign and payload of a NaN and for inputs that are denormal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tegula/ir/opdef.h"
#include "tegula/kernels/target.h"
#include "tegula/passes/planning.h"

namespace tegula {

struct Superoptimise;  // passes/superopt/search.h

enum class Remat : uint8_t {
  kNone,    // keep every activation
  kSqrt,    // keep the values between every √N blocks, recompute the rest
  kBudget,  // the least recomputation whose planned peak fits `memory_bytes`
};

// A value that the backward part computes again instead of reading it, because that takes less
// time.
struct Recomputed {
  std::string scope;    // "layers.3.mlp"
  std::string_view op;  // that made it
  int64_t bytes = 0;
  double saved_s = 0, paid_s = 0;  // of memory traffic; of operations
};

// The bits that are promised across ranks and batch companions. Both modes give equal bits for any
// number of threads, and from run to run.
enum class Mode : uint8_t {
  kExact,  // equal ones: long contractions, and a step's sums over the batch, have up to 8 fixed
           // shards, summed in a tree
  kFast,   // none: a contraction is one chain
};

struct PassOptions {
  Mode mode = Mode::kExact;
  // autocast: matrix products in this dtype; kF32 leaves the function as it is.
  DType compute_dtype = DType::kF32;
  // A step of training, which ranks may share: in kExact its sums over the batch have shards, too.
  bool is_step = false;
  // Weights do not change from run to run, so work on weights alone is done once.
  bool is_inference = false;
  // Products with weights in blocks are of rows of bytes: integer sums (passes/block_weights.cpp).
  bool quantises_rows = false;

  // Whom passes ask for kernels and peaks; null: Planning's own answers. compile() sets those of
  // the plan.
  const Planning* planning = nullptr;

  Remat remat = Remat::kNone;
  int64_t memory_bytes = 0;  // budget of kBudget; under any, loss_grads keeps out
  // The function is a region, whose own peak should fit the budget as far as it can.
  bool is_region = false;
  // blockwise: rows of a block of a feed-forward layer, at most; 0: layers stay whole.
  static constexpr int64_t kAutoBlock = -1;
  int64_t block_rows = 0;
  // The target that work is priced on (cost/price.h); compile() sets that of the plan.
  const Target* target = &Target::one_thread();
  // Where `recompute` lists what it chose; null: nowhere.
  std::vector<Recomputed>* recomputed = nullptr;
  // How long blocks are searched for faster ones, and who times them; null: not at all.
  const Superoptimise* superopt = nullptr;

  const Planning& asked() const {
    static const Planning kAlone;
    return planning ? *planning : kAlone;
  }
};

// Where in the pipeline a pass stands. Orders and precision are chosen on the whole function; at
// kPartition a step may be cut (split.h), and what comes after sees each part alone.
enum class PassPhase : uint8_t {
  kAny,           // tidies up: wherever the pipeline calls for it
  kLoops,         // sees bodies of loops as they were written
  kCanonicalise,  // one form for what is the same, simpler ops for what has no kernel
  kOrder,         // the numeric order of each contraction
  kPrecision,     // the dtype of each contraction
  kPartition,     // no pass: the cut
  kCombine,       // several contractions, or one and what follows it, become one
  kMemory,        // what is kept and what is computed again
  kFuse,          // groups of the rest become one node each
};
// Facts that are true of a function between passes.
enum PassProperty : uint8_t {
  kHasComposites = 1,  // ops that no kernel runs are still whole
  kIsLowered = 2,      // every op has a kernel, or is as simple as it gets
  kIsUnfused = 4,      // no group is a node yet
  kIsGrouped = 8,      // what is worth grouping is grouped
};
inline constexpr uint8_t kAtFirst = kHasComposites | kIsUnfused;

struct PassDef {
  std::string_view name;  // = file stem
  std::string_view doc;   // one line
  // The effect on the order of sums, or the width of what is summed, and so of bits; empty:
  // nothing. tests/passes/sums_sweep_test.cpp holds a pass to it.
  std::string_view sums;
  PassPhase phase = PassPhase::kAny;
  uint8_t needs = 0, gives = 0, takes = 0;  // sets of PassProperty
  // Rewrites f, which stands outside the module meanwhile; true: it changed. After an error f is
  // undefined.
  Result<bool> (*run)(Module&, Function& f, const PassOptions&);
};

// The end of a pass whose object looks f over first, then builds it anew: has_work(), run().
template <class Rewriting>
Result<bool> rewrite_if_any(Rewriting& pass, Function& f) {
  if (!pass.has_work()) return false;
  Function out = TEGULA_TRY(pass.run());
  f = std::move(out);
  return true;
}

}  // namespace tegula
