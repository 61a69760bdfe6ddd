// Integer products against their definition written down once more: equal bits on every instruction
// set, by vectors and by tiles, for any number of threads.
#include <bit>
#include <cmath>

#include "tegula/kernels/cpu/isa/table.h"
#include "tegula/kernels/registry.h"
#include "tests/kernels/strided.h"

namespace tegula {
namespace {

using testing::pick;
using testing::Rng;
using testing::Tensor;

struct Case {
  int64_t m = 1, n = 1, groups = 1, e = 1;
  bool four = false, extreme = false;
  int64_t k() const { return groups * e; }
};

int weight(const Case& c, const Tensor& q, int64_t k, int64_t n) {
  const auto at = [&](int64_t row) { return static_cast<int>(q.at(row * c.n + n)); };
  return c.four ? (at(k / 2) >> (k % 2 * 4) & 15) - 8 : at(k);
}

void check_case(const Case& c, Rng& rng) {
  Tensor x(DType::kI8, {c.m, c.k()}), sx(DType::kF32, {c.m}),
      q(c.four ? DType::kU8 : DType::kI8, {c.four ? c.k() / 2 : c.k(), c.n}),
      scale(DType::kF32, {c.groups, c.n}), out(DType::kF32, {c.m, c.n});
  const auto fill = [&](Tensor& t, int low, int high) {
    for (int64_t i = 0; i < t.numel(); ++i) t.put(i, c.extreme ? low : pick(rng, low, high));
  };
  fill(x, -128, 127), fill(q, c.four ? 0 : -128, c.four ? 255 : 127);
  for (int64_t i = 0; i < c.m; ++i) sx.put(i, 0.001 * static_cast<double>(i + 1));
  for (int64_t i = 0; i < scale.numel(); ++i) scale.put(i, 0.01 * pick(rng, -90, 100));

  std::vector<float> want;
  double error = 0, largest = 0;
  for (int64_t m = 0; m < c.m; ++m)
    for (int64_t n = 0; n < c.n; ++n) {
      float y = 0;
      double exact = 0;
      for (int64_t g = 0; g < c.groups; ++g) {
        int64_t sum = 0;
        for (int64_t k = g * c.e; k < (g + 1) * c.e; ++k)
          sum += static_cast<int64_t>(x.at(m * c.k() + k)) * weight(c, q, k, n);
        const auto s = static_cast<float>(scale.at(g * c.n + n));
        y = std::fma(static_cast<float>(sum), s, y);
        exact += static_cast<double>(sum) * static_cast<double>(s);
      }
      y *= static_cast<float>(sx.at(m));
      exact *= static_cast<double>(static_cast<float>(sx.at(m)));
      want.push_back(y);
      error = std::max(error, std::fabs(static_cast<double>(y) - exact));
      largest = std::max(largest, std::fabs(exact));
    }
  // A rounding of the sum, of each group's chain, and of the last product.
  EXPECT_LE(error, static_cast<double>(c.groups + 2) * 0x1p-23 * std::max(largest, 1e-30) *
                       static_cast<double>(c.groups));

  Attrs attrs;
  if (c.four) attrs.set("bits", int64_t{4});
  const TensorRef in[] = {x.ref(), sx.ref(), q.ref(), scale.ref()};
  const auto check = [&](const char* name, void (*entry)(const KernelCall&), Isa isa) {
    for (int threads : {1, 3}) {
      out.fill(777);
      const auto counted = testing::run_kernel(*find_kernel(name), attrs, in,
                                               std::span(&out.ref(), 1), threads, entry);
      for (size_t i = 0; i < want.size(); ++i) {
        const auto got = static_cast<float>(out.at(static_cast<int64_t>(i)));
        ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want[i]))
            << name << " " << isa_name(isa) << " x" << threads << " m " << c.m << " n " << c.n
            << " groups " << c.groups << " of " << c.e << " four " << c.four << " at " << i << ": "
            << got << ", not " << want[i];
      }
      EXPECT_EQ(counted.math_flops, c.m * c.n * (2 * c.k() + 2 * c.groups + 1));
    }
  };
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    const kernel::IsaTable* table = kernel::isa_table_of(isa);
    if (table == nullptr) continue;
    check("dot_i8_rows", table->dot_i8, isa);
    if (c.m > 16) check("dot_i8_amx", table->dot_i8_amx, isa);
  }
}

TEST(DotI8, EqualsItsDefinitionOnRandomCases) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    Case c;
    c.m = pick(rng, 0, 1) ? pick(rng, 1, 16) : pick(rng, 17, 70);
    c.n = pick(rng, 1, 150), c.groups = pick(rng, 1, 3), c.e = pick(rng, 0, 90);
    c.four = pick(rng, 0, 1) == 1;
    if (c.four) c.e += c.e % 2;
    check_case(c, rng);
    if (HasFatalFailure()) return;
  }
}

// Past a task's columns, a block of rows, a run of k; no k at all.
TEST(DotI8, EqualsItsDefinitionAcrossEveryBlockEdge) {
  Rng rng(1);
  for (const Case& c :
       {Case{1, 2100, 1, 130}, Case{5, 1090, 2, 128, true}, Case{16, 65, 1, 1030},
        Case{17, 64, 1, 64}, Case{50, 130, 2, 256, true}, Case{130, 70, 1, 300}, Case{3, 40, 1, 0},
        Case{18, 40, 2, 0, true}, Case{113, 1130, 2, 66, true}, Case{61, 70, 1, 4099}}) {
    check_case(c, rng);
    if (HasFatalFailure()) return;
  }
}

// The widest sum there is: 131071 products of 128 · 128, and of bytes whose offset is left out. Of
// many rows, more panels of weights than are held at once.
TEST(DotI8, HoldsTheWidestSums) {
  Rng rng(2);
  check_case({1, 3, 1, 131071, false, true}, rng);
  check_case({17, 70, 1, 131071, false, true}, rng);
}

TEST(DotI8, NoGroupsGiveZero) {
  Tensor x(DType::kI8, {2, 0}), sx(DType::kF32, {2}), q(DType::kI8, {0, 3}),
      scale(DType::kF32, {0, 3}), out(DType::kF32, {2, 3});
  sx.fill(1), out.fill(5);
  const TensorRef in[] = {x.ref(), sx.ref(), q.ref(), scale.ref()};
  testing::run_kernel(*find_kernel("dot_i8_rows"), {}, in, std::span(&out.ref(), 1), 1);
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(out.at(i), 0);
}

}  // namespace
}  // namespace tegula
