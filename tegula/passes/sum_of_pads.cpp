#include "tegula/passes/sum_of_pads.h"

#include <algorithm>
#include <cmath>

#include "tegula/ops/math.h"
#include "tegula/ops/table.h"

namespace tegula {

namespace {

struct Piece {
  Var x;
  int64_t dim, lo, hi;
};

bool is_candidate(Peephole& p, Var v) { return p.made_by(v, pad_op) || p.made_by(v, add_op); }

// The leaves of a tree of adds, if all are pads with zeros along one dim; false: not so.
bool collect(Peephole& p, Var v, std::vector<Piece>& pieces, int depth) {
  if (const Node* n = p.made_by(v, pad_op)) {
    const Var x = p.operand(*n, 0);
    const int64_t dim = n->attrs.i("dim");
    if (n->attrs.has("size") || n->attrs.i("interior") != 0 || n->attrs.f("value") != 0 ||
        std::signbit(n->attrs.f("value")) || (!pieces.empty() && pieces[0].dim != dim) ||
        !x.dim(static_cast<int>(dim)).is_const())
      return false;
    pieces.push_back({x, dim, n->attrs.i("lo"), n->attrs.i("hi")});
    return true;
  }
  const Node* n = depth < 64 && pieces.size() < 256 ? p.made_by(v, add_op) : nullptr;
  if (!n) return false;
  const Var a = p.operand(*n, 0), b = p.operand(*n, 1);
  if (!is_candidate(p, a) || !is_candidate(p, b)) return false;
  return collect(p, a, pieces, depth + 1) && collect(p, b, pieces, depth + 1);
}

}  // namespace

Var sum_of_pads(Peephole& p, const Node& n) {
  std::vector<Piece> pieces;
  if (!is_candidate(p, p.in(n, 0)) || !is_candidate(p, p.in(n, 1))) return {};
  if (!collect(p, p.in(n, 0), pieces, 0) || !collect(p, p.in(n, 1), pieces, 0)) return {};
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.lo < b.lo; });
  const auto dim = static_cast<int>(pieces[0].dim);
  int64_t at = 0;
  for (const Piece& piece : pieces) {
    if (piece.lo != at) return {};
    at += piece.x.dim(dim).bound();
  }
  if (pieces.back().hi != 0) return {};
  std::vector<Var> parts;
  for (const Piece& piece : pieces)
    parts.push_back(never_minus_zero(p.fn(), piece.x.id(), true) ? piece.x : add(piece.x, 0.0));
  return concat(parts, dim);
}

bool never_minus_zero(const Function& f, ValueId v, bool sums_count) {
  if (!is_float(f.type(v).dtype)) return true;
  for (int depth = 0; depth < 16; ++depth) {
    const Node* n = f.producer(v);
    if (!n) return false;
    const OpDef* op = n->op;
    if (op == &constant_op) {
      const AttrValue* c = n->attrs.find("value");
      return !c || !(c->get<double>() == 0 && std::signbit(c->get<double>()));
    }
    if (op == &cast_op && !is_float(f.type(n->inputs[0]).dtype)) return true;
    if (op == &add_op) {
      const auto c = uniform_value(f, n->inputs[1]);
      return c && *c == 0 && !std::signbit(*c);
    }
    if ((op->is_view && n->inputs.size() == 1 && !op->has_effect) || op == &copy_op) {
      v = n->inputs[0];
      continue;
    }
    static constexpr const OpDef* kNever[] = {&exp_op, &sigmoid_op, &relu_op, &iota_op,
                                              &random_uniform_op};
    static constexpr const OpDef* kSums[] = {&reduce_sum_op, &dot_op, &attention_op,
                                             &attention_bwd_op};
    return std::ranges::find(kNever, op) != std::end(kNever) ||
           (sums_count && std::ranges::find(kSums, op) != std::end(kSums));
  }
  return false;
}

}  // namespace tegula
