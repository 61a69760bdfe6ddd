// Evaluates what is known before the run: elementwise ops, reductions and joins of constants, seen
// through views. The result is one constant and a stride-0 view.
//
// Exact: only ops that every kernel rounds correctly are evaluated (not exp and its like, whose
// vector forms differ from the C library's in the last bit), in the values' own dtype, by the op's
// reference. Integers up to 2^53; no denormals, which kernels flush.
#include <cmath>

#include "tegula/base/element.h"
#include "tegula/base/integer.h"
#include "tegula/ir/interpret.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/peephole.h"

namespace tegula {

namespace {

constexpr const OpDef* kExact[] = {
    &abs_op,  &add_op, &cast_op,   &div_op,         &eq_op,          &floor_op,      &fma_op,
    &ge_op,   &gt_op,  &le_op,     &logical_and_op, &logical_not_op, &logical_or_op, &lt_op,
    &max_op,  &min_op, &mul_op,    &ne_op,          &neg_op,         &reciprocal_op, &relu_op,
    &sign_op, &sub_op, &select_op, &sqrt_op};

bool is_plain_number(DType t, double v) {
  if (!is_float(t)) return std::abs(v) <= 0x1p53;
  return v == 0 || std::abs(v) >= (t == DType::kF64 ? 0x1p-1022 : 0x1p-126) || v != v;
}

Var elementwise(Peephole& p, const Node& n) {
  if (!n.op->is_elementwise || n.inputs.empty()) return {};
  bool is_exact = false;
  for (const OpDef* op : kExact) is_exact |= op == n.op;
  if (!is_exact) return {};
  for (size_t k = 0; k < n.inputs.size(); ++k)
    if (!p.uniform(p.in(n, k))) return {};
  std::vector<HostTensor> values;
  std::vector<TensorRef> in;
  std::vector<Type> types;
  values.reserve(n.inputs.size());
  for (size_t k = 0; k < n.inputs.size(); ++k) {
    const Var x = p.in(n, k);
    const auto v = p.uniform(x);
    if (!v || !is_plain_number(x.dtype(), *v)) return {};
    types.push_back({x.dtype(), {}});
    values.emplace_back(types.back(), std::span(&*v, 1));
    in.push_back(values.back().ref());
  }
  const Type type = p.result_type(n);
  const Type scalar = {type.dtype, {}};
  HostTensor out(scalar);
  const TensorRef refs[] = {out.ref()};
  const OpCall call{n.op, &n.attrs, types, std::span(&scalar, 1), nullptr, {}};
  if (!interpret_call(call, in, refs, Arithmetic::kNaive).ok()) return {};
  const double y = out.at(0);
  return is_plain_number(type.dtype, y) ? fill(p.builder(), y, type) : Var();
}

// The number of elements that go into each result; 0 if it is not the same in every run.
int64_t reduced_count(const Shape& x, const Attrs& a) {
  int64_t n = 1;
  for (int64_t d : a.ints("dims")) {
    const Dim& size = x[static_cast<int>(d)];
    if (!size.is_const()) return 0;
    n *= size.bound();
  }
  return n;
}

// The largest of equals is any of them.
Var extremum(Peephole& p, const Node& n) {
  const Var x = p.in(n, 0);
  const auto v = p.uniform(x);
  if (!v || reduced_count(x.shape(), n.attrs) < 1) return {};
  return fill(p.builder(), *v, p.result_type(n));
}

// n·c, if every partial sum in any order is exact: c = m·2^e with n·|m| ≤ 2^24 (2^53 for f64 and
// integers). Sums of bf16 and f16 are f32, rounded once at the end.
Var sum(Peephole& p, const Node& n) {
  const Var x = p.in(n, 0);
  const auto v = p.uniform(x);
  const int64_t count = reduced_count(x.shape(), n.attrs);
  if (!v || count < 1 || !std::isfinite(*v) || (*v == 0 && std::signbit(*v))) return {};
  const DType t = x.dtype();
  int e = 0;
  double m = std::frexp(*v, &e);
  while (m != std::floor(m)) m *= 2;
  const double limit = t == DType::kF64 || !is_float(t) ? 0x1p53 : 0x1p24;
  if (std::abs(m) * static_cast<double>(count) > limit) return {};
  const double total = *v * static_cast<double>(count);
  const double stored = rounded_to(t, total);
  if ((!is_float(t) && stored != total) || !is_plain_number(t, stored) || std::isinf(stored))
    return {};
  return fill(p.builder(), total, p.result_type(n));
}

Var joined(Peephole& p, const Node& n) {
  const auto first = p.uniform(p.in(n, 0));
  if (!first) return {};
  for (size_t k = 1; k < n.inputs.size(); ++k) {
    const auto v = p.uniform(p.in(n, k));
    if (!v || *v != *first || std::signbit(*v) != std::signbit(*first)) return {};
  }
  return fill(p.builder(), *first, p.result_type(n));
}

Var padded(Peephole& p, const Node& n) {
  const auto v = p.uniform(p.in(n, 0));
  const Type type = p.result_type(n);
  const double value = rounded_to(type.dtype, n.attrs.f("value"));
  if (!v || *v != value || std::signbit(*v) != std::signbit(value)) return {};
  return fill(p.builder(), value, type);
}

Var known_extent(Peephole& p, const Node& n) {
  const Dim& size = n.attrs.dims("size")[0];
  if (!size.is_const()) return {};
  const DType dtype = n.attrs.dtype("dtype");
  const int64_t value = is_float(dtype) ? size.bound() : wrapped_int(dtype, size.bound());
  return constant(p.builder(), static_cast<double>(value), dtype);
}

Var only_index(Peephole& p, const Node& n) {
  const auto& shape = n.attrs.dims("shape");
  if (!(shape[static_cast<size_t>(n.attrs.i("dim"))] == Dim(1))) return {};
  const Type type = p.result_type(n);
  const auto start = n.attrs.get_or<int64_t>("start", 0);
  const int64_t value = is_float(type.dtype) ? start : wrapped_int(type.dtype, start);
  if (std::abs(static_cast<double>(value)) > 0x1p53) return {};
  return fill(p.builder(), static_cast<double>(value), type);
}

Result<bool> run(Module& m, Function& f, const PassOptions&) {
  static constexpr Peephole::Rule kRules[] = {
      {nullptr, elementwise},     {&reduce_max_op, extremum}, {&reduce_min_op, extremum},
      {&reduce_sum_op, sum},      {&concat_op, joined},       {&pad_op, padded},
      {&extent_op, known_extent}, {&iota_op, only_index}};
  return Peephole::rewrite(m, f, kRules);
}

}  // namespace

extern const PassDef fold_pass = {
    .name = "fold",
    .doc = "evaluates what is known before the run",
    .phase = PassPhase::kAny,
    .run = run,
};

}  // namespace tegula
