// Rows of f32 to bytes with a scale for 32 of them, on every instruction set.
#include <cmath>
#include <limits>

#include "tegula/kernels/cpu/isa/table.h"
#include "tegula/kernels/registry.h"
#include "tests/kernels/strided.h"

namespace tegula {
namespace {

using testing::pick;
using testing::Rng;
using testing::Tensor;

constexpr int64_t kRows = 3, kBlocks = 2, kRun = 32;

struct Quantised {
  Tensor q{DType::kI8, {kRows, kBlocks*kRun}}, d{DType::kF32, {kRows, kBlocks}};
};

void quantise(const Tensor& x, const kernel::IsaTable& table, Quantised& to) {
  const TensorRef in[] = {x.ref()};
  TensorRef out[] = {to.q.ref(), to.d.ref()};
  testing::run_kernel(*find_kernel("quantise_blocks_rows"), {}, in, out, 1, table.quantise_blocks);
}

// A block with a number that is none has no scale, and no other block knows of it.
TEST(QuantiseBlocks, ABlockThatIsNotFiniteHasNoScale) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    const kernel::IsaTable* table = kernel::isa_table_of(isa);
    if (table == nullptr) continue;
    for (const float bad : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()})
      for (const int64_t place : {0, 13, 31}) {
        Rng rng(7);
        Tensor x(DType::kF32, {kRows, kBlocks * kRun});
        for (int64_t i = 0; i < x.numel(); ++i) x.put(i, 0.01 * pick(rng, -90, 90));
        Quantised good, got;
        quantise(x, *table, good);
        x.put(kBlocks * kRun + kRun + place, bad);
        quantise(x, *table, got);
        for (int64_t b = 0; b < kRows * kBlocks; ++b) {
          const bool is_bad = b == kBlocks + 1;
          const double scale = got.d.at(b);
          ASSERT_TRUE(is_bad ? std::isnan(scale) : scale == good.d.at(b))
              << isa_name(isa) << " " << bad << " at " << place << ", block " << b << ": " << scale;
          for (int64_t i = b * kRun; i < (b + 1) * kRun; ++i)
            ASSERT_EQ(got.q.at(i), is_bad ? 0 : good.q.at(i)) << isa_name(isa) << " at " << i;
        }
      }
  }
}

}  // namespace
}  // namespace tegula
