// Products with weights in blocks against their definition written down once more: equal bits on
// every instruction set, for any number of rows, threads and chunks.
#include <bit>
#include <cmath>

#include "tegula/base/block_format.h"
#include "tegula/kernels/cpu/common/block_dot.h"
#include "tegula/kernels/cpu/isa/table.h"
#include "tegula/kernels/registry.h"
#include "tests/kernels/strided.h"

namespace tegula {
namespace {

using testing::pick;
using testing::Rng;
using testing::Tensor;

struct Case {
  BlockFormat format = BlockFormat::kQ4_0;
  int64_t m = 1, n = 1, blocks = 1;
  bool extreme = false;
  const BlockLayout& layout() const { return layout_of(format); }
  int64_t k() const { return blocks * layout().n_values; }
};

// Any bytes, but for halves that are no numbers; extreme: all ones, or all zeros, with such halves.
void fill_blocks(const Case& c, Tensor& w, Rng& rng) {
  for (int64_t i = 0; i < w.numel(); ++i)
    w.put(i, c.extreme ? (i / w.ref().shape[1] % 2 == 0 ? 255 : 0) : pick(rng, 0, 255));
  const int64_t bytes = c.layout().n_bytes, row = w.ref().shape[1];
  for (int64_t n = 0; n < c.n; ++n)
    for (int64_t b = 0; b < c.blocks; ++b)
      for (const int half : c.layout().halves) {
        if (half < 0) continue;
        const int64_t at = n * row + b * bytes + half;
        w.put(at, pick(rng, 0, 255));
        w.put(at + 1, pick(rng, 0x20, 0x2c) + (pick(rng, 0, 3) == 0 ? 0x80 : 0));
      }
}

std::vector<BlockValues> values_of(const Case& c, const Tensor& w) {
  std::vector<BlockValues> all(static_cast<size_t>(c.n * c.blocks));
  const auto* bytes = static_cast<const uint8_t*>(w.ref().data);
  for (size_t i = 0; i < all.size(); ++i)
    unpack_block(c.format, bytes + static_cast<int64_t>(i) * c.layout().n_bytes, all[i]);
  return all;
}

float defined(const Case& c, const Tensor& x, const Tensor& d, const BlockValues* row, int64_t m) {
  const BlockLayout& layout = c.layout();
  float y = 0;
  for (int64_t b = 0; b < c.blocks; ++b)
    for (int g = 0; g < layout.n_values / layout.n_group; ++g) {
      int32_t sum = 0, all = 0;
      const int64_t k0 = b * layout.n_values + g * layout.n_group;
      for (int i = 0; i < layout.n_group; ++i) {
        const auto q = static_cast<int32_t>(x.at(m * c.k() + k0 + i));
        sum += q * row[b].q[g * layout.n_group + i], all += q;
      }
      const auto s = static_cast<float>(d.at(m * (c.k() / 32) + k0 / 32));
      y = std::fma(static_cast<float>(sum), s * row[b].scale[g], y);
      if (layout.has_min) y = std::fma(s * static_cast<float>(all), row[b].min[g], y);
    }
  return y;
}

void check_case(const Case& c, Rng& rng) {
  Tensor x(DType::kI8, {c.m, c.k()}), d(DType::kF32, {c.m, c.k() / 32}),
      w(DType::kU8, {c.n, c.blocks * c.layout().n_bytes}), out(DType::kF32, {c.m, c.n});
  // Extreme rows: of one sign, of the other, of both.
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t row = i / c.k() % 3, is_plus = row == 0 || (row == 2 && i % 3 == 0);
    x.put(i, c.extreme ? (is_plus ? 127 : -127) : pick(rng, -127, 127));
  }
  for (int64_t i = 0; i < d.numel(); ++i) d.put(i, 0.001 * pick(rng, 0, 90));
  fill_blocks(c, w, rng);
  const auto values = values_of(c, w);
  Attrs attrs{{"format", std::string(c.layout().name)}};
  const TensorRef in[] = {x.ref(), w.ref(), d.ref()};
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    const kernel::IsaTable* table = kernel::isa_table_of(isa);
    if (table == nullptr) continue;
    for (int threads : {1, 3}) {
      out.fill(777);
      testing::run_kernel(*find_kernel("dot_blocks_i8"), attrs, in, std::span(&out.ref(), 1),
                          threads, table->dot_blocks);
      for (int64_t m = 0; m < c.m; ++m)
        for (int64_t n = 0; n < c.n; ++n) {
          const float want = defined(c, x, d, &values[static_cast<size_t>(n * c.blocks)], m);
          const auto got = static_cast<float>(out.at(m * c.n + n));
          ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want))
              << c.layout().name << " " << isa_name(isa) << " x" << threads << " m " << c.m << " n "
              << c.n << " blocks " << c.blocks << " at " << m << ", " << n << ": " << got
              << ", not " << want;
        }
    }
  }
}

TEST(DotBlocks, EqualsItsDefinitionOnRandomCases) {
  for (unsigned seed = 0; seed < 240; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    Case c{static_cast<BlockFormat>(seed % kBlockFormats)};
    c.m = pick(rng, 0, 1) ? pick(rng, 1, 5) : pick(rng, 6, 40);
    c.n = pick(rng, 1, 80);
    c.blocks = c.layout().n_values == 32 ? pick(rng, 1, 12) : pick(rng, 1, 3);
    check_case(c, rng);
    if (HasFatalFailure()) return;
  }
}

// Each expert's rows by its own weights: the bits of a call for each, also where a row is zeros.
TEST(DotBlocks, ExpertsAreCallsOfTheirOwn) {
  constexpr int64_t kExperts = 3;
  for (unsigned seed = 0; seed < 48; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    Case c{static_cast<BlockFormat>(seed % kBlockFormats)};
    c.m = pick(rng, 1, 9), c.n = pick(rng, 1, 50), c.blocks = pick(rng, 1, 3);
    const int64_t row = c.blocks * c.layout().n_bytes;
    Tensor x(DType::kI8, {kExperts, 2, c.m, c.k()}), d(DType::kF32, {kExperts, 2, c.m, c.k() / 32}),
        wide(DType::kF32, {kExperts, 2, c.m, c.k()}), w(DType::kU8, {kExperts, c.n, row}),
        out(DType::kF32, {kExperts, 2, c.m, c.n});
    for (int64_t i = 0; i < d.numel(); ++i) d.put(i, 0.001 * pick(rng, 1, 90));
    for (int64_t i = 0; i < x.numel(); ++i)
      x.put(i, pick(rng, -127, 127)), wide.put(i, 0.01 * pick(rng, -90, 90));
    for (int64_t r = 0; r < kExperts * 2 * c.m; ++r) {
      if (pick(rng, 0, 2) > 0) continue;  // a row without a token
      for (int64_t i = 0; i < c.k(); ++i) x.put(r * c.k() + i, 0);
      for (int64_t i = 0; i < c.k() / 32; ++i) d.put(r * (c.k() / 32) + i, 0);
    }
    std::vector<Tensor> each;
    for (int64_t e = 0; e < kExperts; ++e) {
      each.emplace_back(DType::kU8, std::vector<int64_t>{c.n, row});
      fill_blocks(c, each.back(), rng);
      for (int64_t i = 0; i < c.n * row; ++i) w.put(e * c.n * row + i, each.back().at(i));
    }
    const Attrs attrs{{"format", std::string(c.layout().name)}};
    for (const bool quantised : {true, false}) {
      const KernelDef& kernel = *find_kernel(quantised ? "dot_blocks_i8" : "dot_blocks_panels");
      std::vector<TensorRef> in = {quantised ? x.ref() : wide.ref(), w.ref()};
      if (quantised) in.push_back(d.ref());
      for (const int threads : {1, 3}) {
        out.fill(777);
        testing::run_kernel(kernel, attrs, in, std::span(&out.ref(), 1), threads);
        for (int64_t e = 0; e < kExperts; ++e) {
          Tensor one(DType::kF32, {2, c.m, c.n});
          std::vector<TensorRef> its = {kernel::expert_of(in[0], e),
                                        each[static_cast<size_t>(e)].ref()};
          if (quantised) its.push_back(kernel::expert_of(d.ref(), e));
          testing::run_kernel(kernel, attrs, its, std::span(&one.ref(), 1), 1);
          for (int64_t i = 0; i < one.numel(); ++i)
            ASSERT_EQ(std::bit_cast<uint32_t>(static_cast<float>(out.at(e * one.numel() + i))),
                      std::bit_cast<uint32_t>(static_cast<float>(one.at(i))))
                << c.layout().name << " expert " << e << " at " << i;
        }
      }
    }
  }
}

// The largest sums of bytes that there are, in every format: none leaves its 16 or 32 bits.
TEST(DotBlocks, HoldsTheWidestSums) {
  for (int f = 0; f < kBlockFormats; ++f)
    for (int64_t m : {1, 2, 7}) {
      Rng rng(static_cast<unsigned>(f));
      check_case({static_cast<BlockFormat>(f), m, 19, 2, true}, rng);
      if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace tegula
