// The host side of the attention backward by mma.sync: variants fit an sm_80 multiprocessor and
// compile without loss, and what cannot be served is refused. What the kernels compute is checked
// on a GPU by bench/cuda/attention_bwd.py (variants of feature "mma") and by the op's samples.
#include <gtest/gtest.h>

#include "tegula/kernels/cuda/attention_bwd.h"
#include "tests/kernels/cuda/no_loss.h"

namespace tegula::cuda {
namespace {

constexpr int kSmall_bytes = 99 * 1024;  // of a block, on 8.6, 8.9 and 12.x

void expect_no_loss(const AttentionShape& s, bool is_ordered = false) {
  testing::expect_no_loss(choose_attention_bwd_mma(s, is_ordered), "attention_bwd_mma.cu", "sm_80");
}

TEST(CudaAttentionBwdMma, ChosenVariantsCompileWithoutLoss) {
  for (const int64_t d : {64, 96, 128, 192, 256})
    for (const bool is_causal : {false, true})
      for (const bool is_ordered : {false, true})
        expect_no_loss({.head_dim = d, .is_causal = is_causal}, is_ordered);
}

// Weights go from warp to warp in f32, half of them by way of a place that is lent.
TEST(CudaAttentionBwdMma, F16CompilesWithoutLoss) {
  for (const int64_t d : {64, 96, 128, 192, 256})
    for (const bool is_ordered : {false, true})
      expect_no_loss({.head_dim = d, .is_causal = true, .is_f16 = true}, is_ordered);
  expect_no_loss({.head_dim = 64, .is_f16 = true});
}

std::vector<AttentionFeatures> features() {
  AttentionFeatures window, packed, documents, most, user;
  window.has_window = true, packed.is_packed = true, documents.has_documents = true;
  most = packed;
  most.has_window = most.has_softcap = most.has_alibi = most.has_dropout = most.has_sinks = true;
  most.bias = BiasType::kF32;
  user.score_fn = "score+0.5f*tanh(score)", user.mask_fn = "(i+j)%2==0";
  return {window, packed, documents, most, user};
}

TEST(CudaAttentionBwdMma, FeaturesCompileWithoutLoss) {
  for (const int64_t d : {64, 96, 128, 192, 256})
    for (const AttentionFeatures& f : features())
      expect_no_loss({.head_dim = d, .is_causal = true, .features = f});
}

TEST(CudaAttentionBwdMma, TilesFitASmallerDevice) {
  for (const int64_t d : {64, 96, 128, 192, 256})
    for (const bool is_ordered : {false, true})
      for (const AttentionFeatures& f : features()) {
        AttentionShape plain{.head_dim = d}, s{.head_dim = d, .features = f}, f16 = s;
        f16.is_f16 = true;
        for (const AttentionShape& of : {plain, s, f16}) {
          const auto v = choose_attention_bwd_mma(of, is_ordered, kSmall_bytes);
          ASSERT_TRUE(v.ok());
          EXPECT_LE(v->smem_bytes(), kSmall_bytes) << v->name();
        }
      }
  for (const int64_t d : {64, 128, 192, 256})
    testing::expect_no_loss(
        choose_attention_bwd_mma({.head_dim = d, .is_causal = true}, d == 192, kSmall_bytes),
        "attention_bwd_mma.cu", "sm_80");
}

TEST(CudaAttentionBwdMma, DqIsSummedInMemoryButWithWorkOnEveryScore) {
  const AttentionShape s{.seqlen_q = 4096, .seqlen_k = 4096, .n_heads_q = 4, .n_heads_kv = 2};
  AttentionShape wide = s, heavy = s;
  wide.head_dim = 192, heavy.features.has_softcap = true;
  const auto bytes = [](const AttentionShape& of, bool is_ordered) {
    return attention_bwd_workspace_bytes(*choose_attention_bwd_mma(of, is_ordered), of);
  };
  const int64_t tiles = 4 * 64, of_rows = (4096 * 4 * 2 + tiles + 64) * 4;  // lse and delta
  EXPECT_EQ(bytes(s, false), of_rows + 4096 * 4 * 128 * 4);
  EXPECT_EQ(bytes(wide, false), of_rows + 4096 * 4 * 192 * 4);
  EXPECT_EQ(bytes(s, true), bytes(s, false) + 4 * tiles * 4);        // a counter for 16 rows
  EXPECT_EQ(bytes(wide, true), bytes(wide, false) + 8 * tiles * 4);  // of 32, for each warp
  EXPECT_EQ(bytes(heavy, false), of_rows);
  EXPECT_EQ(bytes(heavy, true), of_rows);
}

TEST(CudaAttentionBwdMma, RefusesAndNamesWhatWorks) {
  const auto says = [](const AttentionShape& s, const char* what) {
    const auto v = choose_attention_bwd_mma(s);
    return !v.ok() && v.error().message.find(what) != std::string::npos;
  };
  EXPECT_TRUE(says({.is_f32 = true}, "f32; use bf16 or f16"));
  EXPECT_TRUE(says({.is_f8 = true}, "e4m3; use bf16 or f16"));
  EXPECT_TRUE(says({.head_dim = 257}, "257"));
  EXPECT_TRUE(says({.n_heads_q = 3, .n_heads_kv = 2}, "do not divide"));
}

}  // namespace
}  // namespace tegula::cuda
