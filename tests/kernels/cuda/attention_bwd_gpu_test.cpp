// The host side of the CUDA attention backward: variants fit and compile without loss, and what
// cannot be served is refused. What the kernels compute is checked on a GPU by
// bench/cuda/attention_bwd.py.
#include <gtest/gtest.h>

#include "tegula/kernels/cuda/attention_bwd.h"
#include "tests/kernels/cuda/no_loss.h"

namespace tegula::cuda {
namespace {

AttentionShape shape(int64_t head_dim, bool is_causal, int64_t seqlen) {
  return {.batch = 1,
          .seqlen_q = seqlen,
          .seqlen_k = seqlen,
          .n_heads_q = 4,
          .n_heads_kv = 2,
          .head_dim = head_dim,
          .is_causal = is_causal};
}

AttentionBwdVariant variant(int64_t head_dim, bool is_causal, bool is_ordered) {
  return *choose_attention_bwd(shape(head_dim, is_causal, 4096), is_ordered);
}

TEST(CudaAttentionBwd, VariantsFitTheMultiprocessor) {
  for (const int head_dim : {64, 96, 128, 192, 256})
    for (const bool is_ordered : {false, true})
      EXPECT_LE(variant(head_dim, false, is_ordered).smem_bytes(), 227 * 1024) << head_dim;
}

TEST(CudaAttentionBwd, VariantsCompileWithoutLoss) {
  AttentionBwdVariant most = variant(192, true, false);
  most.is_f16 = true;
  most.features.has_window = most.features.has_documents = most.features.has_softcap = true;
  most.features.has_alibi = most.features.has_dropout = most.features.has_sinks = true;
  most.features.bias = BiasType::kF32;
  AttentionBwdVariant user = variant(64, false, false);
  user.features.score_fn = "score+0.5f*tanh(score)", user.features.mask_fn = "(i+j)%2==0";
  AttentionBwdVariant packed = variant(64, true, true);
  packed.features.is_packed = true;
  AttentionBwdVariant biased = variant(256, true, false), f16 = variant(256, false, false);
  biased.features.bias = BiasType::kF32, f16.is_f16 = true;
  for (const AttentionBwdVariant& v :
       {variant(64, true, false), variant(96, true, true), variant(128, false, false),
        variant(128, false, true), packed, variant(192, false, false), variant(256, true, false),
        most, user, biased, f16})
    testing::expect_no_loss(Result<AttentionBwdVariant>(v), v.source());
}

TEST(CudaAttentionBwd, WorkspaceIsLinearInTheSequence) {
  auto bytes = [](int head_dim, int64_t n, bool is_ordered) {
    return attention_bwd_workspace_bytes(variant(head_dim, false, is_ordered),
                                         shape(head_dim, false, n));
  };
  EXPECT_EQ(bytes(128, 4096, false), (4096 * 4 * (128 + 2) + 4 * 64 + 64) * 4);
  EXPECT_EQ(bytes(128, 4095, false), bytes(128, 4096, false));  // padded to whole tiles
  EXPECT_EQ(bytes(128, 8192, true) - 256, 2 * (bytes(128, 4096, true) - 256));
  EXPECT_EQ(bytes(128, 4096, true), bytes(128, 4096, false) + 4 * 64 * 4);  // a counter a tile
  EXPECT_EQ(bytes(256, 4096, false), bytes(256, 4096, true));               // ordered anyway
  EXPECT_EQ(bytes(256, 4096, false), (4096 * 4 * 2 + 4 * 64 + 64) * 4);
}

TEST(CudaAttentionBwd, HeadDimsAreRoundedUp) {
  EXPECT_EQ(variant(40, true, false).head_dim, 64);
  EXPECT_EQ(variant(80, true, false).head_dim, 96);
  EXPECT_EQ(variant(111, true, false).name(), "bwd_d128_causal");
  EXPECT_EQ(variant(111, true, true).name(), "bwd_d128_causal_ordered");
  EXPECT_EQ(variant(192, true, false).head_dim, 192);
  EXPECT_EQ(variant(200, false, true).name(), "bwd_d256_full");
  const auto large = choose_attention_bwd(shape(257, false, 64));
  ASSERT_FALSE(large.ok());
  EXPECT_NE(large.error().message.find("257"), std::string::npos) << large.error().message;
}

TEST(CudaAttentionBwd, ManyShortSequencesSumInOrder) {
  AttentionShape s = shape(64, true, 1024);
  EXPECT_EQ(choose_attention_bwd(s)->name(), "bwd_d64_causal");
  s.batch = 64;
  EXPECT_EQ(choose_attention_bwd(s)->name(), "bwd_d64_causal_ordered");
  s.features.is_packed = true;
  EXPECT_EQ(choose_attention_bwd(s)->name(), "bwd_d64_causal_packed");
  EXPECT_EQ(variant(64, true, false).name(), "bwd_d64_causal");
}

TEST(CudaAttentionBwd, HeavyScoresTakeTheKernelsWithRoomForThem) {
  AttentionShape s = shape(64, true, 128);
  s.features.bias = BiasType::kF32;
  const AttentionBwdVariant v = *choose_attention_bwd(s);
  EXPECT_TRUE(v.is_wide());
  EXPECT_STREQ(v.source(), "attention_bwd_wide_sm90.cu");
  EXPECT_EQ(v.name(), "bwd_d64_causal_bias32");
}

}  // namespace
}  // namespace tegula::cuda
