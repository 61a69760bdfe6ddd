#include "tegula/kernels/cuda/attention_bwd.h"

#include <algorithm>

#include "tegula/kernels/cuda/attention_params.h"

namespace tegula::cuda {

namespace {

constexpr int kTileM = 64, kTileN = 128;
// K and V, stages of Q and dO with lse and delta, two of dS; barriers, alignment.
int smem_bytes(int head_dim) {
  const int stages = head_dim == 64 ? 4 : 2;
  return 4 * kTileN * head_dim + 4 * kTileN * kTileM +
         stages * (4 * kTileM * head_dim + 8 * kTileM) + 256 + 1024;
}
// Q, dO and the sum of dQ of the heads worked on at once should stay in the L2 cache.
constexpr int64_t kSection_bytes = 16 << 20;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t padded_rows(const AttentionShape& s) {
  return s.batch * s.n_heads_q * ceil_div(s.seqlen_q, kTileM) * kTileM;
}

Result<HostTensorMap> map_of(const AttentionOperand& t, const AttentionShape& s, bool is_query,
                             int box_rows) {
  return tensor_map_bf16(t.data,
                         {s.head_dim, is_query ? s.seqlen_q : s.seqlen_k,
                          is_query ? s.n_heads_q : s.n_heads_kv, s.batch},
                         {t.row, t.head, t.batch}, box_rows);
}

AttentionTensor tensor_of(const AttentionOperand& t) {
  return {static_cast<unsigned short*>(t.data), t.batch, t.row, t.head};
}

// A grid of one or two dims; the arguments are passed by address.
template <class... Args>
Status launch_grid(FunctionHandle f, int64_t x, int64_t y, unsigned threads, int smem_bytes,
                   StreamHandle stream, Args&... args) {
  void* arguments[] = {&args...};
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->check(d->launch(f, static_cast<unsigned>(x), static_cast<unsigned>(y), 1, threads, 1, 1,
                            static_cast<unsigned>(smem_bytes), stream, arguments, nullptr),
                  "launching attention_bwd_sm90");
}

}  // namespace

int64_t attention_bwd_workspace_bytes(const AttentionShape& s) {
  return padded_rows(s) * (s.head_dim + 2) * 4;
}

std::vector<std::string> attention_bwd_defines(int head_dim, bool is_causal) {
  return {cat("TEGULA_HEAD_DIM=", head_dim), cat("TEGULA_CAUSAL=", int{is_causal})};
}

Result<AttentionBwdKernel> AttentionBwdKernel::load(int head_dim, bool is_causal,
                                                    const std::string& cubin) {
  TEGULA_TRY(hopper_multiprocessors());
  if (head_dim != 64 && head_dim != 128)
    return unsupported(cat("attention_bwd_sm90 has head_dim 64 and 128, not ", head_dim,
                           ": pad to ", head_dim < 64 ? 64 : 128));
  AttentionBwdKernel k(head_dim, is_causal, TEGULA_TRY(Module::load(cubin)));
  k.before_ = TEGULA_TRY(k.module_.function("attention_bwd_before", 0));
  k.main_ = TEGULA_TRY(k.module_.function("attention_bwd_sm90", smem_bytes(head_dim)));
  k.after_ = TEGULA_TRY(k.module_.function("attention_bwd_after", 0));
  return k;
}

Status AttentionBwdKernel::launch(const AttentionBwdCall& call) const {
  const AttentionShape& s = call.shape;
  if (s.head_dim != head_dim_ || s.is_causal != is_causal_)
    return internal_error(cat("attention_bwd of head_dim ", head_dim_, " got ", s.head_dim));
  TEGULA_TRY(check_attention(s, call.scale));
  HostTensorMap q = TEGULA_TRY(map_of(call.q, s, true, kTileM));
  HostTensorMap d_o = TEGULA_TRY(map_of(call.d_o, s, true, kTileM));
  HostTensorMap k = TEGULA_TRY(map_of(call.k, s, false, kTileN));
  HostTensorMap v = TEGULA_TRY(map_of(call.v, s, false, kTileN));
  HostTensorMap dk = TEGULA_TRY(map_of(call.dk, s, false, 64));
  HostTensorMap dv = TEGULA_TRY(map_of(call.dv, s, false, 64));

  const int64_t n_tiles_m = ceil_div(s.seqlen_q, kTileM), heads = s.batch * s.n_heads_q;
  auto* workspace = static_cast<float*>(call.workspace);
  const int64_t rows = padded_rows(s);
  AttentionBwdEdgeParams edge{};
  edge.o = tensor_of(call.o), edge.d_o = tensor_of(call.d_o), edge.dq = tensor_of(call.dq);
  edge.lse = call.lse;
  edge.dq_sum = workspace;
  edge.lse2 = workspace + rows * s.head_dim;
  edge.delta = edge.lse2 + rows;
  edge.seqlen_q = static_cast<int>(s.seqlen_q);
  edge.n_heads_q = static_cast<int>(s.n_heads_q);
  edge.scale = call.scale;

  AttentionBwdParams p{};
  p.dq_sum = edge.dq_sum, p.lse2 = edge.lse2, p.delta = edge.delta;
  p.seqlen_q = edge.seqlen_q, p.seqlen_k = static_cast<int>(s.seqlen_k);
  p.n_heads_q = edge.n_heads_q, p.n_heads_kv = static_cast<int>(s.n_heads_kv);
  p.group = p.n_heads_q / p.n_heads_kv;
  p.n_tiles_m = static_cast<int>(n_tiles_m);
  p.n_tiles_n = static_cast<int>(ceil_div(s.seqlen_k, kTileN));
  p.heads_total = static_cast<int>(s.batch * s.n_heads_kv);
  const int64_t head_bytes = std::max<int64_t>(1, 8 * s.seqlen_q * s.head_dim * p.group);
  p.heads_per_section = static_cast<int>(
      std::clamp<int64_t>(kSection_bytes / head_bytes, 1, s.is_causal ? p.heads_total : 1));
  p.scale = call.scale, p.scale_log2 = call.scale * 1.44269504F;

  TEGULA_TRY(launch_grid(before_, n_tiles_m, heads, 256, 0, call.stream, edge));
  TEGULA_TRY(launch_grid(main_, int64_t{p.n_tiles_n} * p.heads_total, 1, 384, smem_bytes(head_dim_),
                         call.stream, q, k, v, d_o, dk, dv, p));
  return launch_grid(after_, n_tiles_m, heads, 256, 0, call.stream, edge);
}

}  // namespace tegula::cuda
