// The host side of f32 attention on CUDA: variants fit and compile without loss, and what cannot be
// served is refused. What the kernels compute is checked on a GPU by bench/cuda/attention_grid.py
// and bench/cuda/attention_bwd.py (variants of type 2), and by the ops' samples.
#include <gtest/gtest.h>

#include "tegula/kernels/cuda/attention_bwd.h"
#include "tegula/kernels/cuda/attention_f32.h"
#include "tests/kernels/cuda/no_loss.h"

namespace tegula::cuda {
namespace {

AttentionShape shape(int64_t head_dim, bool is_causal = true, int64_t seqlen = 4096) {
  return {.batch = 1,
          .seqlen_q = seqlen,
          .seqlen_k = seqlen,
          .n_heads_q = 4,
          .n_heads_kv = 2,
          .head_dim = head_dim,
          .is_causal = is_causal,
          .is_f32 = true};
}

using testing::expect_no_loss;
void expect_no_loss(const AttentionShape& s) {
  expect_no_loss(choose_attention_f32(s), "attention_f32_sm90.cu");
  for (const bool is_ordered : {false, true})
    expect_no_loss(choose_attention_bwd(s, is_ordered), "attention_f32_bwd_sm90.cu");
}

TEST(CudaAttentionF32, VariantsCompileWithoutLoss) {
  for (const int64_t d : {64, 128}) expect_no_loss(shape(d, d == 64));
  expect_no_loss(choose_attention_f32(shape(256)), "attention_f32_sm90.cu");
  AttentionShape most = shape(64);
  AttentionFeatures& f = most.features;
  f.has_window = f.is_packed = f.has_alibi = f.has_dropout = f.has_sinks = true;
  f.bias = BiasType::kF32, f.mask_fn = "(i/16)>=(j/16)";
  expect_no_loss(most);
}

TEST(CudaAttentionF32, HeadDimsAreRoundedUp) {
  for (int64_t d = 1; d <= 256; ++d) {
    const int padded = d <= 64 ? 64 : d <= 128 ? 128 : 256;
    EXPECT_EQ(choose_attention_f32(shape(d))->head_dim, padded);
    if (d <= 128) EXPECT_EQ(choose_attention_bwd(shape(d))->head_dim, padded);
  }
  const auto why = [](const auto& v) { return v.ok() ? std::string() : v.error().message; };
  EXPECT_NE(why(choose_attention_f32(shape(257))).find("is not in [1, 256]"), std::string::npos);
  EXPECT_NE(why(choose_attention_bwd(shape(129))).find("the nearest is 128"), std::string::npos);
}

TEST(CudaAttentionF32, RefusesSlopesUnderABias) {
  AttentionShape s = shape(64);
  s.features.bias = BiasType::kElement;
  const auto v = choose_attention_bwd(s);
  ASSERT_TRUE(v.ok());
  EXPECT_EQ(v->features.bias, BiasType::kF32);  // the tensors' own type
  s.features.has_softcap = true;
  EXPECT_TRUE(choose_attention_f32(s).ok());
  EXPECT_EQ(choose_attention_bwd(s).error().code, Code::kUnsupported);
}

TEST(CudaAttentionF32, WorkspaceIsSixBytesAnElementOfTheParts) {
  const auto forward = [](int64_t d, int64_t n) {
    const AttentionShape s = shape(d, true, n);
    return attention_f32_workspace_bytes(*choose_attention_f32(s), s);
  };
  EXPECT_EQ(forward(64, 4096), 256 + 6 * 64 * 4096 * (4 + 2 + 2));
  EXPECT_EQ(forward(40, 4096), forward(64, 4096));
  const AttentionShape s = shape(64);
  EXPECT_EQ(attention_bwd_workspace_bytes(*choose_attention_bwd(s), s),
            6 * 64 * 4096 * (4 + 4 + 2 + 2) + 4 * (64 + 4096 * 4 * (64 + 2) + 4 * 64));
}

}  // namespace
}  // namespace tegula::cuda
