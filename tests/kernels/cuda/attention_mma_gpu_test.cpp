// The host side of attention by mma.sync: variants fit an sm_80 multiprocessor and compile without
// loss, and what cannot be served is refused. What the kernel computes is checked on a GPU by
// bench/cuda/attention_grid.py (variants of feature "mma") and by the ops' samples.
#include <gtest/gtest.h>

#include "tegula/kernels/cuda/attention_mma.h"
#include "tests/kernels/cuda/no_loss.h"

namespace tegula::cuda {
namespace {

void expect_no_loss(const AttentionShape& s) {
  testing::expect_no_loss(choose_attention_mma(s), "attention_mma.cu", "sm_80");
}

TEST(CudaAttentionMma, ChosenVariantsCompileWithoutLoss) {
  for (const int64_t d : {64, 96, 128, 192, 256})
    for (const bool is_causal : {false, true})
      expect_no_loss({.head_dim = d, .is_causal = is_causal});
}

TEST(CudaAttentionMma, FeaturesCompileWithoutLoss) {
  AttentionFeatures window, packed, documents, most;
  window.has_window = true, packed.is_packed = true, documents.has_documents = true;
  most = packed;
  most.has_window = most.has_softcap = most.has_alibi = most.has_dropout = most.has_sinks = true;
  most.bias = BiasType::kF32;
  for (const int64_t d : {64, 96, 128, 192, 256})
    for (const AttentionFeatures& f : {window, packed, documents, most})
      expect_no_loss({.head_dim = d, .is_causal = true, .features = f});
}

TEST(CudaAttentionMma, TilesFitASmallerDevice) {
  for (const int64_t d : {64, 96, 128, 192, 256}) {
    const auto v = choose_attention_mma({.head_dim = d}, 99 * 1024);
    ASSERT_TRUE(v.ok());
    EXPECT_LE(v->smem_bytes(), 99 * 1024) << v->name();
    if (d > 128) testing::expect_no_loss(v, "attention_mma.cu", "sm_80");
  }
}

TEST(CudaAttentionMma, RefusesAndNamesWhatWorks) {
  EXPECT_NE(choose_attention_mma({.is_f32 = true}).error().message.find("f32; use bf16 or f16"),
            std::string::npos);
  EXPECT_NE(choose_attention_mma({.is_f8 = true}).error().message.find("e4m3; use bf16 or f16"),
            std::string::npos);
  EXPECT_NE(choose_attention_mma({.head_dim = 257}).error().message.find("the nearest is 256"),
            std::string::npos);
}

}  // namespace
}  // namespace tegula::cuda
