// The host side of the CUDA attention kernels: every chosen variant compiles without loss, and
// calls that cannot be served are refused. What the kernels compute is checked on a GPU by
// bench/cuda/attention.py.
#include <gtest/gtest.h>

#include "tegula/kernels/cuda/attention_bwd.h"

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

TEST(CudaAttention, ChosenVariantsFitTheMultiprocessor) {
  for (const int64_t d : {64, 128})
    for (const bool is_causal : {false, true})
      for (const int64_t n : {1, 1024, 16384}) {
        const Result<AttentionVariant> v = choose_attention(shape(d, is_causal, n));
        ASSERT_TRUE(v.ok());
        EXPECT_LE(v->smem_bytes(), 227 * 1024) << v->name();
        EXPECT_LE(v->threads(), 512) << v->name();
      }
}

TEST(CudaAttention, ChosenVariantsCompileWithoutLoss) {
  const Result<Compiled> probe = compile_kernel("attention_naive.cu", {});
  if (!probe.ok() && probe.error().code == Code::kUnsupported)
    GTEST_SKIP() << probe.error().message;
  ASSERT_TRUE(probe.ok()) << probe.error().message;
  for (const int64_t d : {64, 128})
    for (const bool is_causal : {false, true}) {
      const Result<AttentionVariant> v = choose_attention(shape(d, is_causal, 4096));
      ASSERT_TRUE(v.ok());
      const Result<Compiled> c = compile_kernel("attention_sm90.cu", v->defines());
      ASSERT_TRUE(c.ok()) << c.error().message;
      EXPECT_EQ(c->spill_bytes, 0) << v->name();
      EXPECT_FALSE(c->is_serialized) << v->name();
      EXPECT_GT(c->registers, 0) << v->name();
      EXPECT_FALSE(c->cubin.empty());
    }
}

TEST(CudaAttention, BackwardCompilesWithoutLoss) {
  for (const int head_dim : {64, 128})
    for (const bool is_causal : {false, true}) {
      const Result<Compiled> c =
          compile_kernel("attention_bwd_sm90.cu", attention_bwd_defines(head_dim, is_causal));
      if (!c.ok() && c.error().code == Code::kUnsupported) GTEST_SKIP() << c.error().message;
      ASSERT_TRUE(c.ok()) << c.error().message;
      EXPECT_EQ(c->spill_bytes, 0) << head_dim;
      EXPECT_FALSE(c->is_serialized) << c->log;
    }
}

TEST(CudaAttention, BackwardWorkspaceIsLinearInTheSequence) {
  const int64_t once = attention_bwd_workspace_bytes(shape(128, true, 4096));
  EXPECT_EQ(once, 4096 * 4 * (128 + 2) * 4);
  EXPECT_EQ(attention_bwd_workspace_bytes(shape(128, true, 8192)), 2 * once);
  EXPECT_EQ(attention_bwd_workspace_bytes(shape(128, true, 4095)), once);  // padded to whole tiles
}

TEST(CudaAttention, RefusesShapes) {
  AttentionShape s = shape(128, true, 128);
  EXPECT_TRUE(check_attention(s, 0.1F).ok());
  EXPECT_FALSE(check_attention(s, 0.F).ok());
  s.n_heads_kv = 3;
  const Status heads = check_attention(s, 0.1F);
  ASSERT_FALSE(heads.ok());
  EXPECT_EQ(heads.error().code, Code::kInvalidArgument);
  s = shape(128, true, 0);
  EXPECT_FALSE(check_attention(s, 0.1F).ok());
}

TEST(CudaAttention, RefusesWhatItCannotDo) {
  const Result<AttentionVariant> odd = choose_attention(shape(80, false, 128));
  ASSERT_FALSE(odd.ok());
  EXPECT_NE(odd.error().message.find("not 80"), std::string::npos) << odd.error().message;
  const Result<Compiled> unknown = compile_kernel("no_such.cu", {});
  ASSERT_FALSE(unknown.ok());
  if (unknown.error().code != Code::kUnsupported)
    EXPECT_NE(unknown.error().message.find("no_such.cu"), std::string::npos);
}

TEST(CudaAttention, CompilerErrorsNameTheSource) {
  const Result<Compiled> c = compile_kernel("attention_tiled.cu", {});  // head_dim is not defined
  ASSERT_FALSE(c.ok());
  if (c.error().code == Code::kUnsupported) GTEST_SKIP() << c.error().message;
  EXPECT_NE(c.error().message.find("TEGULA_HEAD_DIM"), std::string::npos) << c.error().message;
}

}  // namespace
}  // namespace tegula::cuda
