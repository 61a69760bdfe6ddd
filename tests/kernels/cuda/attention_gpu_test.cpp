// The host side of the CUDA attention kernels: every chosen variant compiles without loss, and
// calls that cannot be served are refused. What the kernels compute is checked on a GPU by
// bench/cuda/attention_grid.py (features, at random) and bench/cuda/attention.py.
#include <gtest/gtest.h>

#include "tegula/kernels/cuda/attention.h"
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

TEST(CudaAttention, ChosenVariantsFitTheMultiprocessor) {
  for (int64_t d = 1; d <= 256; ++d)
    for (const bool is_causal : {false, true})
      for (const int64_t n : {1, 1024, 16384}) {
        const Result<AttentionVariant> v = choose_attention(shape(d, is_causal, n));
        ASSERT_TRUE(v.ok());
        EXPECT_GE(v->head_dim, d);
        EXPECT_LE(v->smem_bytes(), 227 * 1024) << v->name();
        EXPECT_LE(v->threads(), 512) << v->name();
      }
}

void expect_no_loss(const AttentionShape& s) {
  testing::expect_no_loss(choose_attention(s), "attention_sm90.cu");
}

TEST(CudaAttention, ChosenVariantsCompileWithoutLoss) {
  for (const int64_t d : {64, 96, 128, 192, 256})
    for (const bool is_causal : {false, true}) expect_no_loss(shape(d, is_causal, 4096));
}

TEST(CudaAttention, FeaturesCompileWithoutLoss) {
  AttentionFeatures window, packed, documents, most;
  window.has_window = true, packed.is_packed = true, documents.has_documents = true;
  most = packed;
  most.has_window = most.has_softcap = most.has_alibi = most.has_dropout = most.has_sinks = true;
  most.bias = BiasType::kF32;
  most.score_fn = "score+0.5f*tanh(score)", most.mask_fn = "(i/16)>=(j/16)";
  const std::pair<AttentionFeatures, int64_t> cases[] = {
      {window, 64}, {packed, 192}, {documents, 256}, {most, 128}};
  for (const auto& [features, d] : cases) {
    AttentionShape s = shape(d, d == 128, 4096);
    s.features = features, s.is_f16 = d == 64;
    expect_no_loss(s);
  }
}

TEST(CudaAttention, VariantsOfE4m3CompileWithoutLoss) {
  for (const int64_t d : {64, 128})
    for (const bool is_causal : {false, true}) {
      AttentionShape s = shape(d, is_causal, 4096);
      s.is_f8 = true, s.is_f16 = is_causal;
      expect_no_loss(s);
      EXPECT_EQ(attention_workspace_bytes(s), 2 * d * 4096);  // Vᵀ of two KV heads
    }
  EXPECT_EQ(attention_workspace_bytes(shape(128, false, 4096)), 0);
}

TEST(CudaAttention, RefusesHeadSizesOfE4m3) {
  const auto why = [](int64_t d) {
    AttentionShape s = shape(d, false, 128);
    s.is_f8 = true;
    const Status status = check_attention(s, 1);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_EQ(why(256) + why(128) + why(64) + why(16), "");
  EXPECT_NE(why(72).find("pad it to 80"), std::string::npos) << why(72);
}

TEST(CudaAttention, RefusesScalesWhoseReciprocalIsInfinite) {
  AttentionShape s = shape(128, false, 128);
  EXPECT_TRUE(check_attention(s, 1e-30F).ok());
  const Status tiny = check_attention(s, 1e-39F);
  ASSERT_FALSE(tiny.ok());
  EXPECT_NE(tiny.error().message.find("is below"), std::string::npos) << tiny.error().message;
  s.is_f32 = true;  // guarded in the kernel
  EXPECT_TRUE(check_attention(s, 1e-39F).ok());
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
  EXPECT_TRUE(check_attention(s, 0.1F).ok());  // nothing to do
  s.batch = -1;
  EXPECT_EQ(check_attention(s, 0.1F).error().code, Code::kInvalidArgument);
  s = shape(257, true, 128);
  const Status wide = check_attention(s, 0.1F);
  EXPECT_EQ(wide.error().code, Code::kUnsupported);
  EXPECT_NE(wide.error().message.find("257 is not in [1, 256]: the nearest is 256"),
            std::string::npos)
      << wide.error().message;
}

TEST(CudaAttention, RefusesFeatures) {
  auto refused = [](const AttentionFeatures& f, const AttentionFeatureParams& p, int64_t batch,
                    std::string_view why) {
    const Status s = check_features(f, p, batch);
    ASSERT_FALSE(s.ok()) << why;
    EXPECT_NE(s.error().message.find(why), std::string::npos) << s.error().message;
  };
  int offsets[2] = {0, 1};
  AttentionFeatureParams p{};
  AttentionFeatures f;
  f.is_packed = true;
  refused(f, p, 1, "packing needs offsets");
  p.cu_seqlens_q = p.cu_seqlens_k = offsets, p.n_sequences = 1;
  EXPECT_TRUE(check_features(f, p, 1).ok());
  refused(f, p, 2, "put all into one batch entry");
  f.has_documents = true;
  refused(f, p, 1, "give cu_seqlens of the documents");
  f = {};
  f.has_alibi = true;
  refused(f, p, 1, "ALiBi needs slopes");
  f = {};
  f.has_dropout = true;
  refused(f, p, 1, "dropout needs a seed");
  f = {};
  f.score_fn = "score; asm(\"trap;\")";
  refused(f, p, 1, "has ';' at 5");
  f.score_fn = "(score";
  refused(f, p, 1, "unmatched brackets");
}

TEST(CudaAttention, RefusesResultsThatOverlap) {
  const AttentionShape s = shape(64, false, 8);  // 4 query heads, 2 KV heads
  std::vector<unsigned short> buffer(10000);
  auto at = [&](int64_t offset, int64_t row) {
    return AttentionOperand{buffer.data() + offset, 8 * row, row, 64};
  };
  auto apart = [&](const AttentionOperand& o, const AttentionOperand& k) {
    return check_apart(o, 8, 4, k, 8, 2, s, "o and k").ok();
  };
  EXPECT_TRUE(apart(at(0, 256), at(2048, 128)));   // one after the other
  EXPECT_FALSE(apart(at(0, 256), at(2040, 128)));  // the last row's end
  EXPECT_TRUE(apart(at(0, 384), at(256, 384)));    // heads side by side in a row
  EXPECT_FALSE(apart(at(0, 384), at(248, 384)));
  EXPECT_TRUE(apart(at(128, 384), at(0, 384)));  // the result's heads last
  AttentionShape two = s;
  two.batch = 2;
  AttentionOperand o = at(0, 256), k = at(2048, 128);
  o.batch = k.batch = 4000;  // batch entries side by side
  EXPECT_TRUE(check_apart(o, 8, 4, k, 8, 2, two, "o and k").ok());
  o.batch = k.batch = 3000;
  EXPECT_FALSE(check_apart(o, 8, 4, k, 8, 2, two, "o and k").ok());
}

TEST(CudaAttention, RefusesWhatItCannotDo) {
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
