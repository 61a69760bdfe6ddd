// Work that a step does twice because that is cheaper moves no bit, and its plan needs less memory.
#include "tests/train/one_step.h"

namespace tegula::testing {
namespace {

// Slow memory, and caches that hold next to nothing.
Target slow_memory() {
  Target t = Target::this_cpu(2);
  t.caches.bytes[CacheSizes::kLevels - 1] = 1 << 10;
  t.f32_flops_per_s = 1e12, t.bf16_flops_per_s = 1e12, t.bytes_per_s = 1e9;
  return t;
}

TEST(Recompute, StepsKeepTheirBits) {
  for (const auto& [family, op] : {std::pair{"llama", "silu"}, {"moe", "silu"}, {"gemma2", "gelu"}})
    for (const char* dtype : {"f32", "bf16"})
      for (const int64_t accumulate : {1, 2}) {
        SCOPED_TRACE(cat(family, " ", dtype, " ", accumulate));
        const TrainConfig c = config_of(family, accumulate, dtype);
        Step kept(c), again(c);
        kept.run_whole();
        again.run_whole({}, slow_memory());
        EXPECT_TRUE(kept.recomputed.empty());
        ASSERT_EQ(again.recomputed.size(), 4u);
        for (size_t layer = 0; layer < 4; ++layer) {
          EXPECT_EQ(again.recomputed[layer].scope, cat("layers.", layer, ".mlp"));
          EXPECT_EQ(again.recomputed[layer].op, op);
        }
        EXPECT_LT(again.arena_bytes, kept.arena_bytes);
        expect_same(kept, again);
      }
}

}  // namespace
}  // namespace tegula::testing
