// Algebraic identities. Each rule's comment says why it keeps bits; those that would not for some
// value (x·0 with x = inf, x + 0 with x = -0, (a·b)·c, …) are not here, or say what they ask for.
// NaN stays NaN, but its sign and payload may change. Integers wrap, and the rules hold under that.
#include <cmath>

#include "tegula/base/integer.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/peephole.h"
#include "tegula/passes/sum_of_pads.h"

namespace tegula {

namespace {

bool is_plus_zero(const std::optional<double>& v) { return v && *v == 0 && !std::signbit(*v); }
bool is_minus_zero(const std::optional<double>& v) { return v && *v == 0 && std::signbit(*v); }

Var add_rule(Peephole& p, const Node& n) {
  const Var a = p.in(n, 0), b = p.in(n, 1);
  const bool is_fp = is_float(a.dtype());
  for (const auto& [x, y] : {std::pair(a, b), std::pair(b, a)}) {
    const auto c = p.uniform(y);
    // x + (-0) is x for every x; x + 0 unless x is -0, which an integer never is.
    if (is_fp ? is_minus_zero(c) || (is_plus_zero(c) && never_minus_zero(p.fn(), x.id()))
              : c && *c == 0)
      return x;
    // x + (-y) and x - y are the same operation in IEEE 754.
    if (const Node* m = is_fp ? p.made_by(y, neg_op) : nullptr) return sub(x, p.operand(*m, 0));
  }
  return sum_of_pads(p, n);
}

Var sub_rule(Peephole& p, const Node& n) {
  const Var a = p.in(n, 0), b = p.in(n, 1);
  if (!is_float(a.dtype())) {
    if (p.is_uniform(b, 0)) return a;
    return a.id() == b.id() ? zeros_like(a) : Var();  // inf - inf is NaN: integers only
  }
  if (is_plus_zero(p.uniform(b))) return a;  // also for a = -0
  if (const Node* m = p.made_by(b, neg_op)) return add(a, p.operand(*m, 0));
  return {};
}

Var mul_rule(Peephole& p, const Node& n) {
  const Var a = p.in(n, 0), b = p.in(n, 1);
  for (const auto& [x, y] : {std::pair(a, b), std::pair(b, a)}) {
    if (p.is_uniform(y, 1)) return x;                                      // exact
    if (!is_float(x.dtype()) && p.is_uniform(y, 0)) return zeros_like(x);  // NaN·0 is NaN
  }
  return {};
}

// x / 2^k and x · 2^-k round the same real number.
Var div_rule(Peephole& p, const Node& n) {
  const Var a = p.in(n, 0);
  const auto c = p.uniform(p.in(n, 1));
  if (!c) return {};
  if (*c == 1) return a;
  int e = 0;
  const bool is_power = std::abs(std::frexp(*c, &e)) == 0.5;
  if (!is_float(a.dtype()) || !is_power || std::abs(e) > 14) return {};  // within f16's range too
  return mul(a, 1 / *c);
}

Var neg_rule(Peephole& p, const Node& n) {
  if (p.in(n, 0).dtype() == DType::kBool) return {};  // of which neg is the identity
  const Node* m = p.made_by(p.in(n, 0), neg_op);
  return m ? p.operand(*m, 0) : Var();
}

Var idempotent_rule(Peephole& p, const Node& n) {  // max(x, x), x and x, …
  return p.in(n, 0).id() == p.in(n, 1).id() ? p.in(n, 0) : Var();
}

Var logical_rule(Peephole& p, const Node& n) {
  const Var a = p.in(n, 0), b = p.in(n, 1);
  const double neutral = n.op == &logical_and_op ? 1 : 0;
  for (const auto& [x, y] : {std::pair(a, b), std::pair(b, a)})
    if (const auto c = p.uniform(y)) return (*c != 0) == (neutral != 0) ? x : y;
  return idempotent_rule(p, n);
}

Var not_rule(Peephole& p, const Node& n) {
  const Node* m = p.made_by(p.in(n, 0), logical_not_op);
  return m ? p.operand(*m, 0) : Var();
}

Var select_rule(Peephole& p, const Node& n) {
  const Var a = p.in(n, 1), b = p.in(n, 2);
  if (a.id() == b.id()) return a;
  if (const auto c = p.uniform(p.in(n, 0))) return *c != 0 ? a : b;
  const Node* m = p.made_by(p.in(n, 0), logical_not_op);
  return m ? select(p.operand(*m, 0), b, a) : Var();
}

// Does `to` hold every value of `from`?
bool holds(DType to, DType from) {
  if (to == from) return true;
  switch (from) {
    case DType::kBool:
      return true;
    case DType::kU8:
      return to != DType::kI8 && to != DType::kBool && to != DType::kF8E4M3;
    case DType::kI8:
      return to != DType::kU8 && to != DType::kBool && to != DType::kF8E4M3;
    case DType::kI32:
      return to == DType::kI64 || to == DType::kF64;
    case DType::kF8E4M3:
      return is_float(to);
    case DType::kBF16:
    case DType::kF16:
      return to == DType::kF32 || to == DType::kF64;
    case DType::kF32:
      return to == DType::kF64;
    default:
      return false;
  }
}

// A cast that loses nothing can be left out before another. Integers wrap into an integer, floats
// saturate: from an integer by way of a float only where neither happens.
Var cast_rule(Peephole& p, const Node& n) {
  const Var x = p.in(n, 0);
  const DType to = n.attrs.dtype("dtype");
  if (x.dtype() == to) return x;
  const Node* m = p.made_by(x, cast_op);
  if (!m) return {};
  const Var original = p.operand(*m, 0);
  const DType from = original.dtype(), by = x.dtype();
  if (is_int(from) && is_float(by) && is_int(to) && !holds(to, from)) return {};
  return holds(by, from) ? cast(original, to) : Var();
}

// The dims that a reduction and a broadcast before it undo: reduced, and the same element repeated.
bool only_repeats(const Shape& from, const Shape& x, const Attrs& a, int64_t& count) {
  const int lead = x.rank() - from.rank();
  count = 1;
  for (int64_t d : a.ints("dims")) {
    const auto k = static_cast<int>(d);
    if (k >= lead && !(from[k - lead] == Dim(1))) return false;
    if (!x[k].is_const() || x[k].bound() < 1) return false;
    count *= x[k].bound();
  }
  for (int k = 0; k < x.rank(); ++k) {  // whatever else was repeated stays so: not simpler
    bool reduced = false;
    for (int64_t d : a.ints("dims")) reduced |= d == k;
    if (!reduced && (k < lead || !(from[k - lead] == x[k]))) return false;
  }
  return true;
}

// The max of one element repeated is that element; so is the sum of one integer alone. Integer sums
// of n equal terms are products. A float sum starts from 0, so a lone -0 would become 0: left
// alone.
Var reduce_rule(Peephole& p, const Node& n) {
  const Var x = p.in(n, 0);
  const bool is_sum = n.op == &reduce_sum_op;
  if (is_sum && is_float(x.dtype())) return {};
  const Node* m = p.made_by(x, broadcast_op);
  const Var from = m ? p.operand(*m, 0) : x;
  int64_t count = 0;
  if (!only_repeats(from.shape(), x.shape(), n.attrs, count)) return {};
  const Var y = reshape(from, p.result_type(n).shape);
  if (!is_sum || count == 1 || x.dtype() == DType::kBool) return y;
  const int64_t times = wrapped_int(x.dtype(), count);
  return std::abs(times) <= int64_t{1} << 53 ? mul(y, static_cast<double>(times)) : Var();
}

// op(broadcast x, broadcast y, constant) = broadcast op(x, y, constant): the same operations, fewer
// of them.
Var of_broadcasts(Peephole& p, const Node& n) {
  if (!n.op->is_elementwise || n.inputs.empty()) return {};
  std::optional<Shape> from;
  for (size_t k = 0; k < n.inputs.size(); ++k) {
    const Var x = p.in(n, k);
    if (p.uniform(x)) continue;
    const Node* m = p.made_by(x, broadcast_op);
    if (!m) return {};
    const Shape s = p.operand(*m, 0).shape();
    if (from && !(*from == s)) return {};
    from = s;
  }
  if (!from) return {};
  std::vector<Var> in;
  for (size_t k = 0; k < n.inputs.size(); ++k) {
    const Var x = p.in(n, k);
    if (const auto c = p.uniform(x)) {
      in.push_back(fill(p.builder(), *c, {x.dtype(), *from}));
    } else {
      in.push_back(p.operand(*p.made_by(x, broadcast_op), 0));
    }
  }
  const Var y = p.builder().emit_n(*n.op, n.attrs, in, {}, n.origin.loc)[0];
  return broadcast(y, p.result_type(n).shape);
}

Result<bool> run(Module& m, Function& f, const PassOptions&) {
  static constexpr Peephole::Rule kRules[] = {{&add_op, add_rule},
                                              {&sub_op, sub_rule},
                                              {&mul_op, mul_rule},
                                              {&div_op, div_rule},
                                              {&neg_op, neg_rule},
                                              {&max_op, idempotent_rule},
                                              {&min_op, idempotent_rule},
                                              {&logical_and_op, logical_rule},
                                              {&logical_or_op, logical_rule},
                                              {&logical_not_op, not_rule},
                                              {&select_op, select_rule},
                                              {&cast_op, cast_rule},
                                              {&reduce_max_op, reduce_rule},
                                              {&reduce_min_op, reduce_rule},
                                              {&reduce_sum_op, reduce_rule},
                                              {nullptr, of_broadcasts}};
  return Peephole::rewrite(m, f, kRules);
}

}  // namespace

extern const PassDef algebra_pass = {
    .name = "algebra",
    .doc = "applies identities that keep every bit",
    .phase = PassPhase::kAny,
    .run = run,
};

}  // namespace tegula
