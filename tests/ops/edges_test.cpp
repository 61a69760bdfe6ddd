// Floats at the edges: signed zeros, infinities, NaN and the largest numbers mean the same in
// kernels and references.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tegula/ops/autodiff.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tests/common/run_both.h"
#include "tests/ops/case.h"

namespace tegula::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<double> edges(DType t) {
  const double large = t == DType::kF64 ? 1e300 : t == DType::kF16 ? 65504 : 3e38;
  const double small = t == DType::kF64 ? 1e-300 : t == DType::kF16 ? 1e-4 : 1e-37;
  return {0.0,    -0.0,  1,      -1,   0.5,   -2.5,         3, -7, large,
          -large, small, -small, kInf, -kInf, std::nan(""), 20};
}

// Equal where that is a question of meaning: NaN, infinities, and the signs of zeros. Else up to a
// few roundings of 1, since references may cancel; what a kernel flushes is 0. (How exact kernels
// are is check_kernels' question.)
bool agree(double got, double want, DType t) {
  if (want != want || got != got) return want != want && got != got;
  if (want == 0 && std::signbit(got) != std::signbit(want)) return false;
  if (std::isinf(want) || std::isinf(got)) return got == want;
  return std::abs(got - want) <= 64 * epsilon(t) * std::max(1.0, std::abs(want));
}

TEST(Edges, ElementwiseKernelsAreTheReference) {
  int n_tried = 0;
  for (const OpDef* op : all_ops()) {
    if (!op->is_elementwise || op->attrs.size() > 0 || op->types.empty()) continue;
    const size_t n_in =
        1 + static_cast<size_t>(std::count(op->types.begin(), op->types.end(), ','));
    if (op->types[0] == 'b' || n_in > 2) continue;
    for (const DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
      const auto e = edges(t);
      std::vector<double> a, b;
      for (double x : e)
        for (double y : n_in == 2 ? e : std::vector<double>{0}) a.push_back(x), b.push_back(y);
      const Type type = {t, {static_cast<int64_t>(a.size())}};
      std::vector<HostTensor> in = {HostTensor(type, a)};
      if (n_in == 2) in.emplace_back(type, b);
      std::vector<Type> types(n_in, type);
      const Attrs none;
      if (!infer({op, &none, types, {}, nullptr, {}}).ok()) continue;
      const RanBoth ran =
          run_both(in, [&](Builder& f, std::span<const Var> x) { return f.emit_n(*op, {}, x); });
      ASSERT_TRUE(ran.ok()) << op->name << ": " << ran.error.to_string();
      for (int64_t i = 0; i < in[0].numel(); ++i)
        EXPECT_TRUE(agree(ran.compiled[0].at(i), ran.reference[0].at(i), t))
            << cat(op->name, " of ", t, " ", in[0].at(i), " ", b[static_cast<size_t>(i)], " is ",
                   ran.compiled[0].at(i), ", by its reference ", ran.reference[0].at(i));
      ++n_tried;
    }
  }
  EXPECT_GT(n_tried, 100);
}

TEST(Edges, CastsAreTheReference) {
  for (const DType from : kAllDTypes)
    for (const DType to : kAllDTypes) {
      if (from == to) continue;
      std::vector<double> v = edges(is_float(from) ? from : DType::kF16);
      v.insert(v.end(),
               {1e30, -1e30, 127.5, 128, 255.5, 256, -128.9, -129, 0x1p31, 0x1p63, -0x1p63});
      const HostTensor x({from, {static_cast<int64_t>(v.size())}}, v);
      const RanBoth ran = run_both({x}, [&](Builder&, std::span<const Var> in) {
        return std::vector<Var>{cast(in[0], to)};
      });
      ASSERT_TRUE(ran.ok()) << ran.error.to_string();
      for (int64_t i = 0; i < x.numel(); ++i)
        EXPECT_TRUE(agree(ran.compiled[0].at(i), ran.reference[0].at(i), to))
            << cat(x.at(i), ", ", from, " to ", to, ", is ", ran.compiled[0].at(i),
                   ", by its reference ", ran.reference[0].at(i));
    }
}

// Tests what the ops' declarations say of single points.
TEST(Edges, AreWhatTheDeclarationsSay) {
  const HostTensor x({DType::kF32, {3}}, std::vector<double>{-kInf, -0.0, std::nan("")});
  const auto of = [&](auto f) {
    const RanBoth ran = run_both(
        {x}, [&](Builder&, std::span<const Var> in) { return std::vector<Var>{f(in[0])}; });
    EXPECT_TRUE(ran.ok()) << ran.error.to_string();
    return std::pair(ran.compiled[0].values(), ran.reference[0].values());
  };
  for (const auto& v :
       {of([](Var a) { return silu(a); }).first, of([](Var a) { return silu(a); }).second,
        of([](Var a) { return gelu(a); }).first, of([](Var a) { return gelu(a); }).second}) {
    EXPECT_TRUE(v[0] == 0 && std::signbit(v[0]));
    EXPECT_TRUE(v[1] == 0 && std::signbit(v[1]));
    EXPECT_TRUE(std::isnan(v[2]));
  }
  for (const auto& v :
       {of([](Var a) { return relu(a); }).first, of([](Var a) { return relu(a); }).second}) {
    EXPECT_TRUE(v[0] == 0 && !std::signbit(v[0]));
    EXPECT_TRUE(v[1] == 0 && std::signbit(v[1]));
    EXPECT_TRUE(std::isnan(v[2]));
  }
}

TEST(Edges, PowHasASlopeAtBase0) {
  const HostTensor a({DType::kF64, {5}}, std::vector<double>{0, 0, 0, 2, -2});
  const HostTensor b({DType::kF64, {5}}, std::vector<double>{2, 1, 0, 0, 3});
  const RanBoth ran = run_both({a, b}, [](Builder&, std::span<const Var> x) {
    return grad(reduce_sum(pow(x[0], x[1]), {0}), x);
  });
  ASSERT_TRUE(ran.ok()) << ran.error.to_string();
  for (const auto* results : {&ran.compiled, &ran.reference}) {
    const auto da = (*results)[0].values(), db = (*results)[1].values();
    EXPECT_EQ(da, (std::vector<double>{0, 1, 0, 0, 12}));
    EXPECT_EQ(std::vector<double>(db.begin(), db.begin() + 3), (std::vector<double>{0, 0, 0}));
    EXPECT_DOUBLE_EQ(db[3], std::log(2));
    EXPECT_TRUE(std::isnan(db[4]));
  }
}

}  // namespace
}  // namespace tegula::testing
