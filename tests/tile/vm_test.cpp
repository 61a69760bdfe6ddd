// The interpreter of tile programs: reductions of every length, in place, accuracy, Philox, errors.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>

#include "tegula/base/philox.h"
#include "tegula/tile/schedule.h"
#include "tests/tile/harness.h"

namespace {
std::atomic<int64_t> n_allocations{0};
}
// Counts, so that a test can show that a launch allocates nothing. Not inlined: GCC 12 would see
// free() called on what operator new gave, and warn.
[[gnu::noinline]] void* operator new(size_t n) {
  ++n_allocations;
  if (void* p = std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace tegula::tile {
namespace {

constexpr DType F = DType::kF32;

Program layer_norm(DType dtype, int64_t d) {
  Builder b(2, 1);
  const Reg x = b.cast(b.load(b.input(dtype)), F);
  const Reg w = b.load(b.input(F));
  const Reg centred = x - b.reduce(Op::kReduceSum, x) * (1.0 / static_cast<double>(d));
  const Reg rstd =
      rsqrt(b.reduce(Op::kReduceSum, centred * centred) * (1.0 / static_cast<double>(d)) + 1e-5);
  b.store(b.output(dtype), b.cast(centred * rstd * w, dtype));
  b.store(b.output(F, Extent::kRow), rstd);
  return b.finish().value();
}

Program softmax() {
  Builder b(2, 1);
  const Reg x = b.load(b.input(F));
  const Reg e = exp(x - b.reduce(Op::kReduceMax, x));
  b.store(b.output(F), e / b.reduce(Op::kReduceSum, e));
  return b.finish().value();
}

// Lengths on both sides of a block, of a tile, of the longest row in L1, of the longest in L2.
const int64_t kLengths[] = {0,    1,    2,    15,   16,   17,   63,    64,    65,    127,  768,
                            1000, 1024, 3000, 3072, 3088, 6000, 16384, 32768, 32769, 50000};

TEST(TileRows, LayerNormIsTheReferenceAtEveryLength) {
  Rng rng(1);
  for (const DType dtype : {F, DType::kBF16, DType::kF16}) {
    for (const int64_t d : kLengths) {
      const Program p = layer_norm(dtype, d);
      const int64_t rows = d > 4000 ? 3 : 67;
      Tensor x(dtype, {rows, d}), w(F, {rows, d}, Layout::kBroadcast);
      x.fill(rng, -2, 2), w.fill(rng, -2, 2);
      std::vector<Tensor> y, r;
      for (int k = 0; k < 3; ++k)
        y.emplace_back(dtype, std::vector{rows, d}),
            r.emplace_back(F, std::vector<int64_t>{rows, 1});
      ASSERT_TRUE(run_reference(p, {{x.ref(), w.ref()}}, {{y[0].ref(), r[0].ref()}}).ok());
      const Counts c = run_kernel(p, {x.ref(), w.ref()}, {y[1].ref(), r[1].ref()}, 1);
      run_kernel(p, {x.ref(), w.ref()}, {y[2].ref(), r[2].ref()}, 2);
      for (int k = 1; k < 3; ++k) {
        ASSERT_TRUE(same_bits(y[k], y[0])) << dtype_name(dtype) << " length " << d;
        ASSERT_TRUE(same_bits(r[k], r[0])) << dtype_name(dtype) << " length " << d;
      }
      EXPECT_EQ(c.math, rows * (d * 6 + 5));
      // Padded rows count as executed; rows computed again do, too.
      if (d % 16 != 0 || d > 32768) EXPECT_GT(c.executed, c.math) << d;
      if (d > 0 && d % 16 == 0 && d <= 32768) EXPECT_EQ(c.executed, c.math) << d;
    }
  }
}

TEST(TileRows, KeptAndRepeatedValuesAgree) {
  Rng rng(2);
  for (const int64_t d : {100, 1024, 5000}) {
    const Program kept = softmax();
    Program again = kept;
    again.resident = again.streamed;
    Tensor x(F, {5, d}), a(F, {5, d}), b(F, {5, d});
    x.fill(rng, -20, 20);
    run_kernel(kept, {x.ref()}, {a.ref()});
    run_kernel(again, {x.ref()}, {b.ref()});
    EXPECT_TRUE(same_bits(a, b)) << d;
  }
}

// The error is at most twice that of the same formulas with correctly rounded functions.
TEST(TileRows, SoftmaxIsAccurate) {
  Rng rng(3);
  const Program p = softmax();
  for (const int64_t d : {1, 17, 64, 1000, 5000}) {
    Tensor x(F, {9, d}), got(F, {9, d}), naive(F, {9, d}), truth(DType::kF64, {9, d});
    x.fill(rng, -10, 10);
    run_kernel(p, {x.ref()}, {got.ref()});
    ASSERT_TRUE(run_reference(p, {{x.ref()}}, {{naive.ref()}}).ok());
    ASSERT_TRUE(run_reference(p, {{x.ref()}}, {{truth.ref()}}, Precision::kDouble).ok());
    double worst = 0, naive_worst = 0;
    for (int64_t k = 0; k < x.numel(); ++k) {
      worst = std::max(worst, std::fabs(got.get(k) - truth.get(k)) / truth.get(k));
      naive_worst = std::max(naive_worst, std::fabs(naive.get(k) - truth.get(k)) / truth.get(k));
    }
    EXPECT_LE(worst, 2 * naive_worst + epsilon(F)) << d;
  }
}

struct Accuracy {
  Op op;
  double low, high, max_ulp;  // the bounds of tests/kernels/vecmath_test.cpp
};

TEST(TileAccuracy, FunctionsInEveryFloat) {
  const Accuracy cases[] = {
      {Op::kExp, -80, 80, 1},     {Op::kLog, 1e-6, 1e6, 1.5}, {Op::kTanh, -9, 9, 2},
      {Op::kSigmoid, -80, 80, 3}, {Op::kErf, -4, 4, 2},       {Op::kSin, -100, 100, 2},
      {Op::kCos, -100, 100, 2},   {Op::kGelu, -2, 50, 6},     {Op::kSilu, -80, 50, 3},
  };
  Rng rng(4);
  for (const Accuracy& c : cases) {
    for (const DType t : {F, DType::kBF16, DType::kF16}) {
      Builder b(1);
      b.store(b.output(t), b.unary(c.op, b.load(b.input(t))));
      const Program p = b.finish().value();
      Tensor x(t, {5003}), got(t, {5003}), truth(DType::kF64, {5003});
      x.fill(rng, c.low, c.high);
      run_kernel(p, {x.ref()}, {got.ref()});
      ASSERT_TRUE(run_reference(p, {{x.ref()}}, {{truth.ref()}}, Precision::kDouble).ok());
      for (int64_t k = 0; k < x.numel(); ++k) {
        const double want = truth.get(k);
        if (std::fabs(want) < (t == DType::kF16 ? 0x1p-14 : 0x1p-126)) continue;
        if (t == DType::kF16 && std::fabs(want) > 65504) continue;
        // epsilon is the spacing at 1, so an ulp is at most epsilon · |want|; 16-bit results add
        // half of theirs to the error of the f32 below them.
        const double bound =
            t == F ? c.max_ulp * epsilon(F) : 0.5 * epsilon(t) + c.max_ulp * epsilon(F);
        ASSERT_LE(std::fabs(got.get(k) - want), bound * std::fabs(want))
            << op_info(c.op).name << " " << dtype_name(t) << " of " << x.get(k);
      }
    }
  }
}

Program adamw() {
  Builder b(1);
  const Reg p = b.load(b.input(F)), g = b.load(b.input(F));
  Reg m = b.load(b.input(F)), v = b.load(b.input(F));
  m = m * 0.9 + g * 0.1;
  v = v * 0.99 + (g * g) * 0.01;
  const Reg step = (m * 1.1) / (sqrt(v * 1.2) + 1e-8);
  b.store(b.output(F), p * 0.9999 - step * 1e-3);
  b.store(b.output(F), m);
  b.store(b.output(F), v);
  return b.finish().value();
}

TEST(TileInPlace, AdamW) {
  Rng rng(5);
  const Program program = adamw();
  for (const int64_t n : {1, 16, 17, 1000, 4096, 70001}) {
    Tensor p(F, {n}), g(F, {n}), m(F, {n}), v(F, {n});
    p.fill(rng, -1, 1), g.fill(rng, -1, 1), m.fill(rng, -1, 1), v.fill(rng, 0, 1);
    Tensor p2(F, {n}), m2(F, {n}), v2(F, {n});
    run_kernel(program, {p.ref(), g.ref(), m.ref(), v.ref()}, {p2.ref(), m2.ref(), v2.ref()}, 2);
    run_kernel(program, {p.ref(), g.ref(), m.ref(), v.ref()}, {p.ref(), m.ref(), v.ref()}, 2);
    EXPECT_TRUE(same_bits(p, p2)) << n;
    EXPECT_TRUE(same_bits(m, m2)) << n;
    EXPECT_TRUE(same_bits(v, v2)) << n;
  }
}

// Outputs that lie on inputs which are needed after the output is known.
TEST(TileInPlace, SumDifferenceAndSwap) {
  Rng rng(6);
  for (const int64_t n : {16, 33, 4096}) {
    Builder b(1);
    const Reg x = b.load(b.input(F)), y = b.load(b.input(F));
    b.input(F);
    b.store(b.output(F), x + y);        // on x
    b.store(b.output(F), (x - y) * y);  // on y
    b.store(b.output(F), x);            // on the third, which is not read
    const Program p = b.finish().value();
    Tensor a(F, {n}), c(F, {n}), d(F, {n}), a2(F, {n}), c2(F, {n}), d2(F, {n});
    a.fill(rng, -1, 1), c.fill(rng, -1, 1), d.fill(rng, -1, 1);
    run_kernel(p, {a.ref(), c.ref(), d.ref()}, {a2.ref(), c2.ref(), d2.ref()});
    run_kernel(p, {a.ref(), c.ref(), d.ref()}, {a.ref(), c.ref(), d.ref()});
    EXPECT_TRUE(same_bits(a, a2)) << n;
    EXPECT_TRUE(same_bits(c, c2)) << n;
    EXPECT_TRUE(same_bits(d, d2)) << n;

    Builder s(1);
    const Reg u = s.load(s.input(F)), w = s.load(s.input(F));
    s.store(s.output(F), w);
    s.store(s.output(F), u);
    const Program swap = s.finish().value();
    Tensor old_a = a, old_c = c;
    run_kernel(swap, {a.ref(), c.ref()}, {a.ref(), c.ref()});
    for (int64_t k = 0; k < n; ++k) {
      ASSERT_EQ(a.get(k), c2.get(k));
      ASSERT_EQ(c.get(k), a2.get(k));
    }
  }
}

TEST(TileInPlace, RowsOnTheirInput) {
  Rng rng(7);
  for (const int64_t d : {64, 100, 5000, 40000}) {
    const Program p = softmax();
    Tensor x(F, {6, d}), y(F, {6, d});
    x.fill(rng, -5, 5);
    run_kernel(p, {x.ref()}, {y.ref()}, 2);
    run_kernel(p, {x.ref()}, {x.ref()}, 2);
    EXPECT_TRUE(same_bits(x, y)) << d;
  }
}

TEST(TileRandomNumbers, ArePhilox) {
  for (const auto& shape : {std::vector<int64_t>{5000}, {7, 9}, {3, 2048}, {2, 3, 5}}) {
    Builder b(static_cast<int>(shape.size()));
    const Reg seed = b.load(b.input(DType::kI64, Extent::kUniform));
    b.store(b.output(F), b.random_uniform(seed, 0x123456789a));
    const Program p = b.finish().value();
    Tensor s(DType::kI64, {1}), y(F, shape, Layout::kTransposed);
    const int64_t value = -8124987123987234;
    *s.ref().as<int64_t>() = value;
    run_kernel(p, {s.ref()}, {y.ref()}, 2);
    for (int64_t k = 0; k < y.numel(); ++k)
      ASSERT_EQ(y.get(k), philox_uniform(static_cast<uint64_t>(value), 0x123456789a,
                                         static_cast<uint64_t>(k)));
  }
}

TEST(TileNumerics, DenormalsAreFlushedOnEveryThread) {
  Builder b(1);
  b.store(b.output(F), b.load(b.input(F)) * 0.5);
  const Program p = b.finish().value();
  Tensor x(F, {100000}), y(F, {100000});
  for (int64_t k = 0; k < x.numel(); ++k) x.set(k, 0x1.8p-126);
  run_kernel(p, {x.ref()}, {y.ref()}, 3);
  for (int64_t k = 0; k < x.numel(); ++k) ASSERT_EQ(y.get(k), 0);
}

TEST(TileNumerics, CastsSaturateAndDivisionByZeroIsDefined) {
  Builder b(1);
  const Reg x = b.load(b.input(F));
  b.store(b.output(DType::kI8), b.cast(x, DType::kI8));
  b.store(b.output(DType::kI32), b.cast(x, DType::kI32));
  const Reg i = b.cast(x, DType::kI64);
  b.store(b.output(DType::kI64), b.binary(Op::kDiv, i, b.constant_int(0)));
  b.store(b.output(DType::kI64), b.binary(Op::kDiv, i, b.constant_int(-1)));
  const Program p = b.finish().value();
  const double values[] = {1e30, -1e30, std::nan(""), -7.9, 0, HUGE_VAL};
  Tensor x_t(F, {6}), i8(DType::kI8, {6}), i32(DType::kI32, {6}), q(DType::kI64, {6}),
      neg(DType::kI64, {6});
  for (int64_t k = 0; k < 6; ++k) x_t.set(k, values[k]);
  run_kernel(p, {x_t.ref()}, {i8.ref(), i32.ref(), q.ref(), neg.ref()});
  const double want8[] = {127, -128, 0, -7, 0, 127};
  const double want32[] = {INT32_MAX, INT32_MIN, 0, -7, 0, INT32_MAX};
  const int64_t want_q[] = {INT64_MAX, INT64_MIN, 0, INT64_MIN, 0, INT64_MAX};
  const int64_t want_n[] = {-INT64_MAX, INT64_MIN, 0, 7, 0, -INT64_MAX};  // wraps
  for (int64_t k = 0; k < 6; ++k) {
    EXPECT_EQ(i8.get(k), want8[k]);
    EXPECT_EQ(i32.get(k), want32[k]);
    EXPECT_EQ(q.ref().as<int64_t>()[k], want_q[k]);
    EXPECT_EQ(neg.ref().as<int64_t>()[k], want_n[k]);
  }
}

TEST(TileErrors, ShapesThatDoNotFit) {
  const Program p = layer_norm(F, 8);
  Tensor x(F, {4, 8}), w(F, {4, 7}), y(F, {4, 8}), r(F, {4, 1}), bad_r(F, {4, 8});
  const auto error = [&](std::vector<TensorRef> in, std::vector<TensorRef> out) {
    const auto s = space_of(p, in, out);
    return s.ok() ? "" : s.error().message;
  };
  EXPECT_EQ(error({x.ref(), x.ref()}, {y.ref(), r.ref()}), "");
  EXPECT_NE(error({x.ref(), w.ref()}, {y.ref(), r.ref()})
                .find("in1 has shape [4,7], the iteration space [4,8]"),
            std::string::npos);
  EXPECT_NE(error({x.ref(), x.ref()}, {y.ref(), bad_r.ref()}).find("out1 has shape [4,8]"),
            std::string::npos);
  EXPECT_NE(error({x.ref()}, {y.ref(), r.ref()}).find("has 2 inputs and 2 outputs, got 1 and 2"),
            std::string::npos);
}

const KernelDef* fused_kernel() {
  for (const KernelDef* k : all_kernels())
    if (k->name == "fused") return k;
  return nullptr;
}

TEST(TileLaunch, AllocatesNothing) {
  const Program p = softmax();
  Tensor x(F, {64, 1000}), y(F, {64, 1000});
  const KernelDef* kernel = fused_kernel();
  ASSERT_TRUE(kernel);
  const TensorRef in[] = {x.ref()}, out[] = {y.ref()};
  const Target target = Target::this_cpu(2);
  KernelQuery query;
  query.in = in, query.out = out, query.program = &p, query.target = &target;
  std::vector<char> raw(static_cast<size_t>(kernel->workspace_bytes(query)) + 64);
  ThreadPool pool(2);
  Counters counters;
  KernelCall call;
  call.in = in, call.out = out, call.program = &p, call.pool = &pool, call.counters = &counters;
  call.workspace = raw.data() + (64 - reinterpret_cast<uintptr_t>(raw.data()) % 64) % 64;
  const int64_t before = n_allocations;
  kernel->launch(call);
  EXPECT_EQ(n_allocations, before);
}

// Sums over rows are the GPU's; the same program with a full output is this kernel's.
TEST(TileLaunch, ColumnsAreRefused) {
  const KernelDef* kernel = fused_kernel();
  ASSERT_TRUE(kernel);
  const Target target = Target::this_cpu(1);
  for (const Extent extent : {Extent::kFull, Extent::kColumn}) {
    Builder b(2, 1);
    b.store(b.output(F, extent), exp(b.load(b.input(F))));
    const Program p = b.finish().value();
    const bool is_column = extent == Extent::kColumn;
    Tensor x(F, {64, 100}), y(F, {is_column ? 1 : 64, 100});
    const TensorRef in[] = {x.ref()}, out[] = {y.ref()};
    KernelQuery query;
    query.in = in, query.out = out, query.program = &p, query.target = &target;
    EXPECT_EQ(kernel->supports(query), !is_column);
  }
}

}  // namespace
}  // namespace tegula::tile
