// Casts go where arithmetic is, which makes them free (`fuse`): from before a slice to behind it,
// and from behind a concatenation to its operands. So a head whose halves a rotation reads is never
// written in f32, nor are the halves that it leaves. A cast gives each element the same value
// wherever it stands: bits stay.
#include <algorithm>

#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/peephole.h"

namespace tegula {

namespace {

// slice(reshape(cast(x))) of a narrow x: it is the slice that is cast.
Var slice_rule(Peephole& p, const Node& n) {
  const Var x = p.in(n, 0);
  const Node* shaped = p.made_by(x, reshape_op);
  const Node* widened = p.made_by(shaped ? p.operand(*shaped, 0) : x, cast_op);
  if (!widened) return {};
  const Var narrow = p.operand(*widened, 0);
  if (size_bytes(narrow.dtype()) >= size_bytes(x.dtype())) return {};
  const Var from = shaped ? reshape(narrow, x.shape()) : narrow;
  const auto dim = static_cast<int>(n.attrs.i("dim"));
  return cast(slice(from, dim, n.attrs.i("start"), n.attrs.dims("size")[0], n.attrs.i("step")),
              x.dtype(), n.origin.loc);
}

// The concatenation that x is, maybe seen through reshapes, of results of arithmetic or of such
// concatenations; and that nothing else reads.
const Node* joined(const Peephole& p, ValueId v) {
  const Function& f = p.fn();
  const Node* n = f.producer(v);
  for (; n && n->op == &reshape_op && p.is_read_once(v); n = f.producer(v)) v = n->inputs[0];
  if (!n || n->op != &concat_op || !p.is_read_once(v)) return nullptr;
  const auto is_computed = [&](ValueId piece) {
    const Node* m = f.producer(piece);
    while (m && m->op == &reshape_op) m = f.producer(m->inputs[0]);
    return m && (m->op->is_elementwise || joined(p, piece));
  };
  return std::ranges::all_of(n->inputs, is_computed) ? n : nullptr;
}

// The cast of x: of the operands where it is such a concatenation.
Var narrowed(Peephole& p, const Var& x, DType to, Loc loc) {
  const Node* concat_node = joined(p, x.id());
  if (!concat_node) return cast(x, to, loc);
  const auto dim = static_cast<int>(concat_node->attrs.i("dim"));
  std::vector<Var> pieces;
  for (size_t k = 0; k < concat_node->inputs.size(); ++k)
    pieces.push_back(p.operand(*concat_node, k));
  for (Var& piece : pieces) piece = narrowed(p, piece, to, loc);
  return reshape(concat(pieces, dim), x.shape());
}

// cast(reshape(concat(a, b))) to a narrow type: a and b are cast.
Var cast_rule(Peephole& p, const Node& n) {
  const Var x = p.in(n, 0);
  const DType to = p.result_type(n).dtype;
  if (size_bytes(to) >= size_bytes(x.dtype()) || !joined(p, x.id())) return {};
  return narrowed(p, x, to, n.origin.loc);
}

Result<bool> run(Module& module, Function& f, const PassOptions&) {
  static constexpr Peephole::Rule kRules[] = {{&slice_op, slice_rule}, {&cast_op, cast_rule}};
  const bool changed = TEGULA_TRY(Peephole::rewrite(module, f, kRules));
  if (changed) remove_dead_nodes(f);
  return changed;
}

}  // namespace

extern const PassDef move_casts_pass = {
    .name = "move_casts",
    .doc = "casts what a slice takes and what is put together, not the whole",
    .phase = PassPhase::kCombine,
    .needs = kIsUnfused,
    .run = run,
};

}  // namespace tegula
