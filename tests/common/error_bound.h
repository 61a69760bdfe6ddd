// How far what floats compute of a function may lie from what it means: each value beside the
// largest that it can be, both followed in f64 through the ops, on absolute values.
//
//   a sum of n terms     n u Σ |terms| for its additions and products, u of what it is kept in,
//                        and what its operands bring; then one rounding to its dtype
//   movement, maxima     the operands'
//   functions            Lipschitz constants of 1, and what the kernels' are held to
//                        (tests/kernels/vecmath_test.cpp)
//
// [Higham 2002, Accuracy and Stability of Numerical Algorithms, sections 3.1 and 4.2]
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "tegula/ir/interpret.h"
#include "tegula/ops/table.h"

namespace tegula::test {

struct Bound {
  std::vector<double> most, error;  // |value| and |computed − meant| at most; error may be infinite
};

inline double unit(DType t) {
  return std::ldexp(1, t == DType::kF32 ? -24 : t == DType::kF16 ? -11 : -8);
}
// Steps near 0: f16's denormals, for others what is flushed.
inline double tiny(DType t) { return std::ldexp(1, t == DType::kF16 ? -14 : -126); }
inline double largest(DType t) { return t == DType::kF16 ? 65504 : 3.3e38; }

class ErrorBounds {
 public:
  // The bounds of every result. Errors: an op that is not known here.
  static Result<std::vector<Bound>> of(const Module& m, const Function& f,
                                       std::span<const HostTensor> in) {
    std::vector<Bound> all(f.values.size());
    for (size_t p = 0; p < f.params.size(); ++p) {
      Bound& b = all[f.params[p].value];
      for (const double x : in[p].values()) b.most.push_back(std::fabs(x)), b.error.push_back(0);
    }
    for (const Node& n : f.nodes) TEGULA_TRY(node(m, f, n, all));
    std::vector<Bound> out;
    for (const Output& r : f.results) out.push_back(all[r.value]);
    return out;
  }

 private:
  using Values = std::vector<double>;
  static Type promoted(const Type& t) {
    return {is_float(t.dtype) ? DType::kF64 : t.dtype, t.shape};
  }
  static Result<Values> apply(const Module& m, const Function& f, const Node& n,
                              const std::vector<Values>& in) {
    std::vector<HostTensor> tensors;
    std::vector<TensorRef> refs;
    for (size_t i = 0; i < in.size(); ++i)
      tensors.emplace_back(promoted(f.type(n.inputs[i])), in[i]);
    std::vector<HostTensor> out;
    std::vector<TensorRef> to;
    for (const Type& t : f.output_types(n)) out.emplace_back(promoted(t));
    for (const HostTensor& t : tensors) refs.push_back(t.ref());
    for (const HostTensor& t : out) to.push_back(t.ref());
    const std::vector<Type> types = f.input_types(n), results = f.output_types(n);
    const OpCall call{n.op, &n.attrs, types, results, &m, n.regions};
    TEGULA_TRY(interpret_call(call, refs, to, Arithmetic::kOracle));
    return out[0].values();
  }

  static Status node(const Module& m, const Function& f, const Node& n, std::vector<Bound>& all) {
    std::vector<Values> most, error, sum, ones;
    for (const ValueId v : n.inputs) {
      most.push_back(all[v].most), error.push_back(all[v].error), sum.push_back(all[v].most);
      ones.emplace_back(all[v].most.size(), 1.0);
      for (size_t i = 0; i < sum.back().size(); ++i) sum.back()[i] += error.back()[i];
      if (!is_float(f.type(v).dtype))
        error.back() = sum.back() = ones.back() = most.back();  // places
    }
    const DType t = f.type(n.first_output).dtype;
    Bound& y = all[n.first_output];  // of places (max_pool's second result) nothing is said
    const std::string_view op = n.op->name;
    const auto is = [&](std::initializer_list<std::string_view> names) {
      return std::find(names.begin(), names.end(), op) != names.end();
    };
    double roundings = 0;  // of the result, in units of its dtype
    if (n.op->is_view || is({"concat", "pad", "max", "reduce_max", "max_pool", "relu",
                             "dynamic_slice", "dynamic_update_slice"})) {
      y.most = TEGULA_TRY(apply(m, f, n, most)), y.error = TEGULA_TRY(apply(m, f, n, error));
    } else if (op == "min") {
      for (size_t i = 0; i < most[0].size(); ++i)
        y.most.push_back(std::max(most[0][i], most[1][i])),
            y.error.push_back(std::max(error[0][i], error[1][i]));
    } else if (is({"add", "sub"})) {
      for (size_t i = 0; i < most[0].size(); ++i)
        y.most.push_back(most[0][i] + most[1][i]), y.error.push_back(error[0][i] + error[1][i]);
      roundings = 1;
    } else if (is({"mul", "dot", "conv", "reduce_sum"})) {
      y.most = TEGULA_TRY(apply(m, f, n, most)), y.error = TEGULA_TRY(apply(m, f, n, sum));
      const Values terms = TEGULA_TRY(apply(m, f, n, ones));
      for (size_t i = 0; i < terms.size(); ++i) {
        const double u = (terms[i] + 1) * unit(DType::kF32),
                     of_sum = terms[i] > 1 ? u / (1 - u) : 0;
        y.error[i] = y.error[i] * (1 + of_sum) - y.most[i] + terms[i] * tiny(DType::kF32);
      }
      roundings = 1;
    } else if (is({"neg", "abs", "cast"})) {
      y.most = most[0], y.error = error[0], roundings = op == "cast" ? 1 : 0;
    } else if (is({"tanh", "sigmoid"})) {
      y.most.assign(most[0].size(), 1), y.error = error[0], roundings = 2 * 2.5 + 1;
    } else if (op == "constant") {
      y.most = TEGULA_TRY(apply(m, f, n, {}));
      for (double& x : y.most) x = std::fabs(x);
      y.error.assign(y.most.size(), 0), roundings = 1;
    } else {
      return unsupported(cat("no bound is known of ", op));
    }
    for (size_t i = 0; i < y.most.size(); ++i) {
      const double scale = y.most[i] + y.error[i];
      y.error[i] = y.error[i] * (1 + 1e-12) + roundings * (unit(t) * scale + tiny(t));
      if (!(scale < largest(t))) y.error[i] = std::numeric_limits<double>::infinity();
    }
    return {};
  }
};

// "": every element of both lies within the sum of both bounds; `largest_share`: of the bound.
inline std::string outside(const std::vector<HostTensor>& a, const std::vector<Bound>& of_a,
                           const std::vector<HostTensor>& b, const std::vector<Bound>& of_b,
                           double& largest_share) {
  for (size_t r = 0; r < a.size(); ++r)
    for (int64_t i = 0; i < a[r].numel(); ++i) {
      const auto at = static_cast<size_t>(i);
      const double most = of_a[r].error[at] + of_b[r].error[at], x = a[r].at(i), y = b[r].at(i);
      if (!(most < std::numeric_limits<double>::infinity())) continue;
      if (!(std::fabs(x - y) <= most))
        return cat("result ", r, ", ", a[r].type, ", element ", i, " is ", y, ", not ", x,
                   ": further away than ", most);
      if (most > 0) largest_share = std::max(largest_share, std::fabs(x - y) / most);
    }
  return "";
}

}  // namespace tegula::test
