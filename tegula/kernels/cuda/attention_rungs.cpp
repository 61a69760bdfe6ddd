#include "tegula/kernels/cuda/attention_rungs.h"

#include <climits>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cuda/attention_params.h"

namespace tegula::cuda {

namespace {

constexpr int64_t kTile = 32;  // query rows and keys of a tile, as in attention_tiled.cu
constexpr int64_t kMaxGrid = 65535;

int tiled_smem_bytes(int head_dim) {
  return static_cast<int>(2 * kTile * (head_dim + 1) + kTile * (kTile + 1)) * 4;
}

}  // namespace

std::string_view AttentionRung::source(bool is_naive) {
  return is_naive ? "attention_naive.cu" : "attention_tiled.cu";
}

std::vector<std::string> AttentionRung::defines(int head_dim) {
  if (head_dim == 0) return {};
  return {cat("TEGULA_HEAD_DIM=", head_dim)};
}

Status check_attention_rung(const AttentionShape& s, bool is_naive) {
  if (std::min({s.batch, s.seqlen_q, s.n_heads_q, s.n_heads_kv, s.head_dim}) < 1 || s.seqlen_k < 0)
    return unsupported("attention of an empty tensor");
  if (s.n_heads_q % s.n_heads_kv != 0)
    return invalid_argument(
        cat("attention: ", s.n_heads_kv, " KV heads do not divide ", s.n_heads_q, " query heads"));
  if (is_naive ? s.head_dim > 1024 : s.head_dim != 64 && s.head_dim != 128)
    return unsupported(cat(is_naive ? "attention_naive takes head_dim up to 1024, not "
                                    : "attention_tiled has head_dim 64 and 128, not ",
                           s.head_dim, is_naive ? "" : ": use attention_naive"));
  if (s.batch * s.n_heads_q > kMaxGrid || ceil_div(s.seqlen_q, 16) > kMaxGrid ||
      s.seqlen_k > INT_MAX / 2)
    return unsupported("attention's lower rungs take 65,535 heads and a million queries at most");
  return {};
}

Result<AttentionRung> AttentionRung::load(int head_dim, const std::string& cubin) {
  AttentionRung r(head_dim, TEGULA_TRY(Module::load(cubin)));
  if (head_dim == 0) {
    r.functions_[0] = TEGULA_TRY(r.module_.function("attention_naive_scores", 0));
    r.functions_[1] = TEGULA_TRY(r.module_.function("attention_naive_softmax", 0));
    r.functions_[2] = TEGULA_TRY(r.module_.function("attention_naive_output", 0));
  } else {
    r.functions_[0] = TEGULA_TRY(r.module_.function("attention_tiled", tiled_smem_bytes(head_dim)));
  }
  return r;
}

Status AttentionRung::launch(const AttentionCall& call, float* scores) const {
  const AttentionShape& s = call.shape;
  TEGULA_TRY(check_attention_rung(s, head_dim_ == 0));
  AttentionRungParams p{};
  p.q = tensor_of(call.q), p.k = tensor_of(call.k);
  p.v = tensor_of(call.v), p.o = tensor_of(call.o);
  p.lse = call.lse, p.scores = scores;
  p.seqlen_q = static_cast<int>(s.seqlen_q), p.seqlen_k = static_cast<int>(s.seqlen_k);
  p.n_heads_q = static_cast<int>(s.n_heads_q);
  p.group = static_cast<int>(s.n_heads_q / s.n_heads_kv);
  p.head_dim = static_cast<int>(s.head_dim), p.is_causal = int{s.is_causal};
  p.scale = call.scale;
  const Driver* d = TEGULA_TRY(Driver::get());
  const auto heads = s.batch * s.n_heads_q;
  const auto blocks = [](int64_t n, int64_t tile) { return ceil_div(n, tile); };
  const auto launch = [&](int which, int64_t x, int64_t y, int64_t z, int threads_x, int threads_y,
                          int smem) {
    return d->start(functions_[which], {{x, y, z}, {threads_x, threads_y, 1}, smem}, call.stream,
                    "launching a rung of attention", p);
  };
  if (head_dim_ != 0)
    return launch(0, blocks(s.seqlen_q, kTile), heads, 1, 128, 1, tiled_smem_bytes(head_dim_));
  if (s.seqlen_k > 0)
    TEGULA_TRY(launch(0, blocks(s.seqlen_k, 16), blocks(s.seqlen_q, 16), heads, 16, 16, 0));
  TEGULA_TRY(launch(1, blocks(s.seqlen_q, 4), heads, 1, 32, 4, 0));
  return launch(2, s.seqlen_q, heads, 1, static_cast<int>(s.head_dim), 1, 0);
}

}  // namespace tegula::cuda
