#include <cmath>

#include "tegula/ops/autodiff.h"
#include "tegula/ops/math.h"
#include "tests/ops/checks.h"

namespace tegula::testing {

namespace {

// A function under construction that applies the case's op to its first parameters.
struct Probe {
  const Case& c;
  Module module;
  Builder b;
  std::vector<Var> x, y;
  std::vector<size_t> active;  // operands to differentiate by
  std::vector<size_t> float_results;
  std::vector<HostTensor> extra;  // values of the parameters after x

  explicit Probe(const Case& from) : c(from), module(from.module), b(module, "probe") {
    for (size_t k = 0; k < c.in.size(); ++k) {
      x.push_back(b.param(cat("x", k), c.in[k]));
      if (is_float(c.in[k].dtype) && c.sample.in[k].is_differentiable) active.push_back(k);
    }
    y = b.emit_n(*c.op, c.sample.attrs, x, c.regions);
    for (size_t r = 0; r < c.out.size(); ++r)
      if (is_float(c.out[r].dtype)) float_results.push_back(r);
  }
  std::vector<Var> active_x() const {
    std::vector<Var> v;
    for (size_t k : active) v.push_back(x[k]);
    return v;
  }
  // Cotangents; zero where a result is infinite (the log-sum-exp of nothing), which is constant.
  std::vector<Var> random_cts() {
    const auto cts = random_params("ct", c.out, float_results, 100);
    auto y = evaluate(c.call(), c.refs(), Arithmetic::kOracle);
    for (size_t i = 0; y.ok() && i < float_results.size(); ++i)
      for (int64_t e = 0; e < extra[i].numel(); ++e)
        if (!std::isfinite((*y)[float_results[i]].at(e))) extra[i].put(e, 0);
    return cts;
  }
  // A parameter for each operand or result of `which`, with random values; the others are absent.
  std::vector<Var> random_params(const char* name, std::span<const Type> types,
                                 const std::vector<size_t>& which, uint64_t stream) {
    std::vector<Var> v(types.size());
    for (size_t k : which) {
      v[k] = b.param(cat(name, k), types[k]);
      extra.push_back(random_f64(types[k].shape, c.seed, stream + k));
    }
    return v;
  }
  void add_results(const std::vector<Var>& vars, std::span<const Var> shaped_like) {
    for (size_t i = 0; i < vars.size(); ++i)
      b.result("", vars[i].valid() ? vars[i] : zeros_like(shaped_like[i]));
  }
  // Evaluates the finished function at x + t·v along the active operands.
  Result<std::vector<HostTensor>> run(const Function& f, double t = 0,
                                      std::span<const HostTensor> v = {}) const {
    std::vector<HostTensor> in = c.values;
    for (size_t i = 0; t != 0 && i < active.size(); ++i) {
      HostTensor& xk = in[active[i]];
      xk = xk.as(DType::kF64);
      for (int64_t e = 0; e < xk.numel(); ++e) xk.put(e, xk.at(e) + t * v[i].at(e));
    }
    in.insert(in.end(), extra.begin(), extra.end());
    return interpret(module, f, in);
  }
};

std::string inapplicable(const Probe& p, const OpDef& op) {
  if (!op.vjp && !op.decompose) return "no derivative";
  if (p.active.empty() || p.float_results.empty()) return "nothing to differentiate";
  return "";
}

// d/dt of scalar(t) at 0 by central differences with steps h and h/2. `error`: what the two steps
// say of the truncation, plus the rounding of scalar itself (magnitude × kF64Slack) over h.
struct Slope {
  double value = 0, error = 0, magnitude = 0;
};
inline constexpr double kStep = 0x1p-13;  // truncation h^2 and rounding kF64Slack/h are alike

template <class F>
Result<Slope> slope_of(F&& scalar) {
  double at[4], magnitude = 0;
  const double steps[] = {kStep, -kStep, kStep / 2, -kStep / 2};
  for (int i = 0; i < 4; ++i) {
    const std::pair<double, double> r = TEGULA_TRY(scalar(steps[i]));
    at[i] = r.first, magnitude = std::max(magnitude, r.second);
  }
  const double wide = (at[0] - at[1]) / (2 * kStep), narrow = (at[2] - at[3]) / kStep;
  return Slope{(4 * narrow - wide) / 3, std::fabs(wide - narrow) + kF64Slack * magnitude / kStep,
               magnitude};
}

Verdict compare(const char* what, double rule, const Slope& s) {
  // Differences must resolve the slope, or the comparison means nothing.
  if (!(s.error <= 0x1p-10 * std::max(s.magnitude, std::fabs(s.value))))
    return fail(cat(what, ": differences are uncertain by ", s.error, " at slope ", s.value,
                    ": the sample is not smooth here"));
  if (std::fabs(rule - s.value) <= s.error) return pass();
  return fail(
      cat(what, ": the rule gives ", rule, ", differences give ", s.value, " +- ", s.error));
}

using Values = std::vector<HostTensor>;

// Σ <weights, results> and Σ |weights·results| over results [begin, begin + weights).
std::pair<double, double> weigh(std::span<const HostTensor> weights, const Values& results,
                                size_t begin) {
  double sum = 0, magnitude = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    sum += dot_of(weights[i], results[begin + i]);
    magnitude += abs_dot_of(weights[i], results[begin + i]);
  }
  return {sum, magnitude};
}

Values directions(const Probe& p, uint64_t stream) {
  Values v;
  for (size_t k : p.active) v.push_back(random_f64(p.c.in[k].shape, p.c.seed, stream + k));
  return v;
}

}  // namespace

Verdict check_gradient(const Case& c) {
  Probe p(c);
  if (const auto why = inapplicable(p, *c.op); !why.empty()) return skip(why);
  if (!c.sample.smooth) return skip("not smooth");
  const auto cts = p.random_cts();
  const auto xs = p.active_x();
  p.add_results(pullback(p.b, p.y, cts, xs), xs);
  for (size_t r : p.float_results) p.b.result("", p.y[r]);
  auto f = p.b.finish();
  if (!f.ok()) return fail(f.error().message);
  auto results = p.run(*f);
  if (!results.ok()) return fail(results.error().message);
  for (uint64_t stream : {200, 300}) {
    const Values v = directions(p, stream);
    const double rule = weigh(v, *results, 0).first;
    auto slope = slope_of([&](double t) -> Result<std::pair<double, double>> {
      return weigh(p.extra, TEGULA_TRY(p.run(*f, t, v)), xs.size());
    });
    if (!slope.ok()) return fail(slope.error().message);
    if (auto verdict = compare("gradient", rule, *slope); verdict.kind != Verdict::kPass)
      return verdict;
  }
  return pass();
}

Verdict check_adjoint(const Case& c) {
  Probe p(c);
  if (const auto why = inapplicable(p, *c.op); !why.empty()) return skip(why);
  const auto cts = p.random_cts();
  const size_t n_cts = p.extra.size();
  const auto tangents = p.random_params("t", c.in, p.active, 200);
  const auto forward = pushforward(p.b, p.y, p.x, tangents);
  const auto xs = p.active_x();
  const auto back = pullback(p.b, p.y, cts, xs);
  std::vector<Var> kept, like;
  for (size_t r : p.float_results) kept.push_back(forward[r]), like.push_back(p.y[r]);
  p.add_results(kept, like);
  p.add_results(back, xs);
  auto f = p.b.finish();
  if (!f.ok()) return fail(f.error().message);
  auto results = p.run(*f);
  if (!results.ok()) return fail(results.error().message);
  const std::span<const HostTensor> v(p.extra.data(), n_cts);
  const std::span<const HostTensor> u(p.extra.data() + n_cts, p.extra.size() - n_cts);
  const auto left = weigh(v, *results, 0), right = weigh(u, *results, n_cts);
  const double allowed = kF64Slack * (left.second + right.second);
  if (std::fabs(left.first - right.first) <= allowed) return pass();
  return fail(cat("<v, J u> = ", left.first, ", <J^T v, u> = ", right.first, ", allowed ", allowed,
                  " apart"));
}

Verdict check_second_order(const Case& c) {
  Probe p(c);
  if (const auto why = inapplicable(p, *c.op); !why.empty()) return skip(why);
  if (!c.sample.smooth) return skip("not smooth");
  const auto cts = p.random_cts();
  const auto xs = p.active_x();
  const auto gradient = pullback(p.b, p.y, cts, xs);
  // H u and H w for two directions, by forward mode over the gradient's own nodes.
  std::vector<Var> g;
  for (size_t i = 0; i < gradient.size(); ++i)
    g.push_back(gradient[i].valid() ? gradient[i] : zeros_like(xs[i]));
  Values direction[2];
  std::vector<Var> products[2];
  for (int d = 0; d < 2; ++d) {
    const uint64_t stream = 200 + 100 * static_cast<uint64_t>(d);
    direction[d] = directions(p, stream);
    const auto tangents = p.random_params(d ? "w" : "u", c.in, p.active, stream);
    std::vector<Var> t;
    for (size_t k : p.active) t.push_back(tangents[k]);
    products[d] = pushforward(p.b, g, xs, t);
  }
  p.add_results(g, xs);
  for (const auto& h : products) p.add_results(h, xs);
  auto f = p.b.finish();
  if (!f.ok()) return fail(f.error().message);
  auto results = p.run(*f);
  if (!results.ok()) return fail(results.error().message);
  const size_t n = xs.size();
  const auto w_h_u = weigh(direction[1], *results, n), u_h_w = weigh(direction[0], *results, 2 * n);
  if (!(std::fabs(w_h_u.first - u_h_w.first) <= kF64Slack * (w_h_u.second + u_h_w.second)))
    return fail(
        cat("the Hessian is not symmetric: w H u = ", w_h_u.first, ", u H w = ", u_h_w.first));
  auto slope = slope_of([&](double t) -> Result<std::pair<double, double>> {
    return weigh(direction[1], TEGULA_TRY(p.run(*f, t, direction[0])), 0);
  });
  if (!slope.ok()) return fail(slope.error().message);
  return compare("second order", w_h_u.first, *slope);
}

Verdict check_decompose(const Case& c) {
  if (!c.op->decompose) return skip("no decomposition");
  Module module = c.module;
  Builder b(module, "decomposed");
  std::vector<Var> x;
  for (size_t k = 0; k < c.in.size(); ++k) x.push_back(b.param(cat("x", k), c.in[k]));
  OpCall call = c.call();
  call.module = &module;
  const auto y = c.op->decompose(b, call, x);
  if (!b.failed() && y.size() != c.out.size())
    return fail(cat("decompose gives ", y.size(), " results, the op ", c.out.size()));
  for (const Var& v : y) b.result("", v);
  auto f = b.finish();
  if (!f.ok()) return fail(f.error().message);
  for (size_t r = 0; r < y.size(); ++r)
    if (!(f->type(f->results[r].value) == c.out[r]))
      return fail(cat("decompose gives result ", r, " as ", f->type(f->results[r].value),
                      ", the op ", c.out[r]));
  auto got = interpret(module, *f, c.values);
  auto want = evaluate(c.call(), c.refs(), Arithmetic::kOracle);
  if (!got.ok()) return fail(got.error().message);
  if (!want.ok()) return fail(want.error().message);
  for (size_t r = 0; r < want->size(); ++r)
    if (const auto d = difference((*got)[r], (*want)[r], kF64Slack); !d.empty())
      return fail(cat("result ", r, " of the decomposition: ", d));
  return pass();
}

}  // namespace tegula::testing
