// A value kept in 16 bits is widened again where a later phase reads it, so that what waits between
// the forward and the backward part is the narrow value, not a copy twice its size. A parameter's
// row that is widened and then repeated, a norm's scale beside several rows, is repeated first: a
// group has no place for what its columns alone share, so the cast would be a kernel of its own.
// `fuse` makes these casts loads. Keeps bits: widening is exact.
#include <map>

#include "tegula/ir/builder.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/lower_tile.h"
#include "tegula/passes/pass.h"

namespace tegula {

namespace {

class WidenAgain {
 public:
  WidenAgain(Module& module, const Function& f) : f_(f), rw_(module, f) {}

  bool has_work() const {
    for (const Node& n : f_.nodes)
      for (ValueId v : n.inputs)
        if (is_wanted(n, v)) return true;
    return false;
  }

  Result<Function> run() {
    for (const Node& n : f_.nodes) {
      std::vector<std::pair<ValueId, Var>> first;
      for (ValueId v : n.inputs)
        if (is_wanted(n, v)) {
          first.emplace_back(v, rw_.at(v));
          rw_.bind(v, again(v, n.phase));
        }
      rw_.clone(n);
      for (const auto& [v, cast] : first) rw_.bind(v, cast);
    }
    return rw_.finish();
  }

 private:
  // The cast whose value v is, or repeats.
  const Node* cast_of(ValueId v) const {
    const Node* from = f_.producer(v);
    if (repeats(v)) from = f_.producer(from->inputs[0]);
    return from != nullptr && from->op == &cast_op ? from : nullptr;
  }
  bool repeats(ValueId v) const {
    const Node* from = f_.producer(v);
    return from != nullptr && from->op == &broadcast_op;
  }

  // Does n, which a body can hold, read a cast of an earlier phase, or one that is repeated?
  bool is_wanted(const Node& n, ValueId v) const {
    const Node* from = cast_of(v);
    if (from == nullptr) return false;
    if (repeats(v) ? f_.producer(from->inputs[0]) != nullptr : from->phase >= n.phase) return false;
    const DType narrow = f_.type(from->inputs[0]).dtype;
    return (narrow == DType::kBF16 || narrow == DType::kF16) && f_.type(v).dtype == DType::kF32 &&
           tile_role(f_, n) == TileRole::kElementwise;
  }

  Var again(ValueId v, Phase phase) {
    Var& cast_again = made_[{v, phase}];
    if (!cast_again.valid()) {
      const Node& from = *cast_of(v);
      rw_.builder().set_origin(from.origin);
      rw_.builder().set_phase(phase);
      Var narrow = rw_.at(from.inputs[0]);
      if (repeats(v)) narrow = broadcast(narrow, f_.type(v).shape, from.origin.loc);
      cast_again = cast(narrow, f_.type(v).dtype, from.origin.loc);
    }
    return cast_again;
  }

  const Function& f_;
  Rewriter rw_;
  std::map<std::pair<ValueId, Phase>, Var> made_;
};

Result<bool> run(Module& module, Function& f, const PassOptions&) {
  WidenAgain pass(module, f);
  return rewrite_if_any(pass, f);
}

}  // namespace

extern const PassDef widen_again_pass = {
    .name = "widen_again",
    .doc = "casts from 16 bits anew in the phase that reads them, and of what is repeated",
    .phase = PassPhase::kFuse,
    .needs = kIsUnfused,
    .run = run,
};

}  // namespace tegula
