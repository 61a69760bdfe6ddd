// Tests what tegula.h composes of other ops, with its gradients, compiled and run on two threads,
// against the references in f64: at most twice the error of the references in f32, plus a rounding.
#include <gtest/gtest.h>

#include <cmath>

#include "tegula/tegula.h"

namespace tegula {
namespace {

constexpr DType F = DType::kF32, I = DType::kI32;

Var total(Var x) {
  std::vector<int64_t> dims;
  for (int d = 0; d < x.rank(); ++d) dims.push_back(d);
  return reduce_sum(x, dims);
}
// y, and the gradients of Σ y².
std::vector<Var> with_gradients(Var y, std::vector<Var> xs) {
  auto all = grad(total(y * y), xs);
  all.insert(all.begin(), y);
  return all;
}

double worst_error(const HostTensor& got, const HostTensor& want) {
  double worst = 0;
  for (int64_t i = 0; i < want.numel(); ++i) {
    const double g = got.at(i), w = want.at(i);
    if (g == w || (g != g && w != w)) continue;
    worst = std::fabs(g - w) >= worst ? std::fabs(g - w) : g == g ? worst : HUGE_VAL;
  }
  return worst;
}
double largest(const HostTensor& t) {
  double m = 0;
  for (int64_t i = 0; i < t.numel(); ++i) m = std::max(m, std::fabs(t.at(i)));
  return m;
}

template <class Fn>
void check(const char* name, const std::vector<Type>& in, Fn fn) {
  auto m = std::make_shared<Module>();
  Builder b(*m, "f");
  std::vector<Var> x;
  std::vector<HostTensor> values;
  for (size_t k = 0; k < in.size(); ++k) {
    x.push_back(b.param(cat("x", k), in[k]));
    values.emplace_back(in[k]);
    for (int64_t i = 0; i < values[k].numel(); ++i) {
      const double u = philox_uniform(3, k, static_cast<uint64_t>(i));
      values[k].put(i, is_float(in[k].dtype) ? u * 1.6 - 0.8 : std::floor(u * 5));
    }
  }
  size_t n = 0;
  for (const Var& y : fn(x)) b.result(cat("y", n++), y);
  const auto f = b.finish_into_module();
  ASSERT_TRUE(f.ok()) << name << ": " << f.error().to_string();
  const auto exact = interpret(*m, (*m)[*f], values);
  const auto naive = interpret(*m, (*m)[*f], values, Arithmetic::kNaive);
  ASSERT_TRUE(exact.ok() && naive.ok()) << name;
  Rank rank(2);
  CompileOptions options;
  options.plan.target.n_threads = rank.pool.n_threads();
  const auto compiled = compile(m, *f, options);
  ASSERT_TRUE(compiled.ok()) << name << ": " << compiled.error().to_string();
  const auto session = Session::create(compiled->plan, rank);
  ASSERT_TRUE(session.ok()) << name << ": " << session.error().to_string();
  for (size_t k = 0; k < in.size(); ++k)
    ASSERT_TRUE((*session)->bind(cat("x", k), values[k].ref().data).ok());
  ASSERT_TRUE((*session)->run().ok()) << name;
  for (size_t r = 0; r < n; ++r) {
    const HostTensor got = copy_of((*session)->result(cat("y", r)));
    const HostTensor &want = (*exact)[r], &plain = (*naive)[r];
    const double rounding = is_float(got.type.dtype) ? epsilon(got.type.dtype) * largest(want) : 0;
    EXPECT_LE(worst_error(got, want), 2 * worst_error(plain, want) + rounding)
        << name << ", result " << r;
  }
}

using Args = const std::vector<Var>&;

TEST(Vocabulary, Elementwise) {
  check("functions", {{F, {70, 33}}}, [](Args x) {
    const Var v = x[0];
    const Var y = log1p(v) + expm1(v) * erfc(v) + tan(v) * atan(v) + asinh(v) * acosh(v + 2.0) +
                  atanh(v * 0.9) + sinh(v) + cosh(v) + exp2(v) + log2(v + 1.0) + log10(v + 1.0) +
                  asin(v) * acos(v) + gelu_erf(v);
    return with_gradients(y, {v});
  });
  check("of two", {{F, {70, 33}}, {F, {70, 33}}}, [](Args x) {
    const Var two = x[1] + 2.0;
    const Var y = atan2(x[0], x[1]) + hypot(x[0], two) + copysign(x[0], x[1]) +
                  remainder(x[0], two) + fmod(x[0], two) + floor_divide(x[0], two);
    return with_gradients(y, {x[0], x[1]});
  });
  check("integers", {{I, {50}}, {I, {50}}}, [](Args x) {
    return std::vector{bitwise_xor(x[0], x[1]),     shift_left(x[0], x[1]),   pow(x[0], x[1]),
                       remainder(x[0], x[1]),       floor_divide(x[0], x[1]), bitwise_not(x[0]),
                       reduce_prod(x[0] + 1.0, {0})};
  });
}

TEST(Vocabulary, Indexing) {
  for (const ScatterMode mode : {ScatterMode::kSet, ScatterMode::kAdd, ScatterMode::kMax,
                                 ScatterMode::kMin, ScatterMode::kMul})
    check("scatter", {{F, {6, 5}}, {I, {9}}, {F, {9, 5}}}, [mode](Args x) {
      return with_gradients(scatter(x[0], x[1], x[2], 0, mode), {x[0], x[2]});
    });
  check("put_along", {{F, {6, 5}}, {I, {6, 3}}, {F, {6, 3}}}, [](Args x) {
    return with_gradients(put_along(x[0], x[1], x[2], 1, ScatterMode::kAdd), {x[0], x[2]});
  });
  check("gather_nd", {{F, {6, 5, 3}}, {I, {7, 2}}},
        [](Args x) { return with_gradients(gather_nd(x[0], x[1]), {x[0]}); });
  check("searchsorted", {{F, {3, 40}}, {F, {3, 7}}}, [](Args x) {
    const Var sorted = sort(x[0]).values;
    return std::vector{searchsorted(sorted, x[1]), searchsorted(sorted, x[1], true)};
  });
  check("argmin", {{F, {4, 9, 3}}}, [](Args x) {
    return std::vector{argmax(x[0], 1), argmin(x[0], 0), argmin(x[0])};
  });
}

TEST(Vocabulary, AlongADim) {
  check("cumulative", {{F, {4, 9, 3}}}, [](Args x) {
    const Var y =
        cumprod(x[0], 1) + cummax(x[0], 1).values + cumsum(x[0], 2) + cummin(x[0], 0, true).values;
    return with_gradients(y, {x[0]});
  });
  check("products", {{F, {4, 9, 3}}}, [](Args x) {
    return with_gradients(reduce_prod(x[0], {0, 2}), {x[0]});
  });
  check("variance", {{F, {4, 9, 3}}}, [](Args x) {
    return with_gradients(reduce_var(x[0], {1}) + reduce_std(x[0], {1}, 0), {x[0]});
  });
}

TEST(Vocabulary, Arrangements) {
  check("moves", {{F, {4, 6}}}, [](Args x) {
    const Var y =
        roll(x[0], 2, 1) + flip(x[0], {0, 1}) + tril(x[0]) + repeat(slice(x[0], 1, 0, 3), {1, 2});
    return with_gradients(y, {x[0]});
  });
  check("pads", {{F, {4, 6}}}, [](Args x) {
    const Var reflected = pad(x[0], 1, 2, 1, PadMode::kReflect);
    const Var edged = pad(reflected, 0, 3, 2, PadMode::kEdge);
    return with_gradients(pad(edged, 1, 7, 5, PadMode::kWrap), {x[0]});
  });
}

TEST(Vocabulary, Layers) {
  const WindowOptions windows = {.stride = {2, 2}, .lo = {1, 0}};
  const std::vector<Type> image = {{F, {2, 3, 7, 5}}};
  check("avg_pool", image, [&](Args x) {
    return with_gradients(avg_pool(x[0], {3, 2}, windows, {true, false}), {x[0]});
  });
  check("max_pool", image, [&](Args x) {
    return with_gradients(max_pool(x[0], {3, 2}, windows, {true}), {x[0]});
  });
  check("adaptive", image, [](Args x) {
    return with_gradients(adaptive_avg_pool(x[0], {3, 2}) + adaptive_max_pool(x[0], {3, 2}),
                          {x[0]});
  });
  check("conv_transpose", {{F, {2, 4, 5, 4}}, {F, {4, 3, 3, 2}}}, [](Args x) {
    ConvTransposeOptions o;
    o.stride = {2, 1};
    return with_gradients(conv_transpose(x[0], x[1], o), {x[0], x[1]});
  });
  check("norms", {{F, {2, 4, 5}}, {F, {4}}, {F, {4}}}, [](Args x) {
    const Var y = group_norm(x[0], 2, x[1], x[2]) + instance_norm(x[0]);
    return with_gradients(y, {x[0], x[1], x[2]});
  });
  check("logits", {{F, {6, 5}}, {I, {6}}}, [](Args x) {
    const LogitsOptions o = {.ignore_index = 3, .label_smoothing = 0.1};
    return with_gradients(logits_cross_entropy_loss(x[0], x[1], o), {x[0]});
  });
  check("padding row", {{F, {6, 5}}, {I, {6}}},
        [](Args x) { return with_gradients(embedding(x[0], x[1], int64_t{2}), {x[0]}); });
  for (const int64_t sk : {3, 5, 8})
    check("top left", {{F, {1, 5, 2, 8}}, {F, {1, sk, 2, 8}}, {F, {1, sk, 2, 8}}}, [](Args x) {
      const Var o = attention(x[0], x[1], x[2], {.is_causal_top_left = true}).o;
      return with_gradients(o, {x[0], x[1], x[2]});
    });
  check("scalars", {{F, {}}}, [](Args x) {
    return std::vector{softmax(x[0]), logsumexp(x[0]), sort(x[0]).values, cumprod(x[0], 0)};
  });
}

}  // namespace
}  // namespace tegula
