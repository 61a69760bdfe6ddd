#include "tegula/kernels/cuda/attention.h"

#include <algorithm>
#include <climits>

#include "tegula/kernels/cuda/attention_params.h"

namespace tegula::cuda {

namespace {

constexpr int kSmemLimit_bytes = 227 * 1024;
constexpr int kBarrier_bytes = 512, kAlign_bytes = 1024;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

Result<HostTensorMap> map_of(const AttentionOperand& t, const AttentionShape& s, int64_t rows,
                             int64_t heads, int box_rows) {
  return tensor_map_bf16(t.data, {s.head_dim, rows, heads, s.batch}, {t.row, t.head, t.batch},
                         box_rows);
}

}  // namespace

int AttentionVariant::smem_bytes() const {
  const int q = tile_m() * head_dim * 2, kv = 2 * n_stages * tile_n * head_dim * 2;
  const int with_o = 2 * q + kv + kBarrier_bytes + kAlign_bytes;
  return with_o <= kSmemLimit_bytes ? with_o : with_o - q;
}

std::string AttentionVariant::name() const {
  return cat("d", head_dim, is_causal ? "_causal" : "_full", "_m", tile_m(), "n", tile_n, "s",
             n_stages, ping_pong ? "_pp" : "", q_registers ? "_qr" : "", "_lz", lazy_log2, "_sec",
             section_mb);
}

std::vector<std::string> AttentionVariant::defines() const {
  return {cat("TEGULA_HEAD_DIM=", head_dim),
          cat("TEGULA_CAUSAL=", int{is_causal}),
          cat("TEGULA_TILE_N=", tile_n),
          cat("TEGULA_CONSUMERS=", n_consumers),
          cat("TEGULA_STAGES=", n_stages),
          cat("TEGULA_PING_PONG=", int{ping_pong}),
          cat("TEGULA_Q_REGISTERS=", int{q_registers}),
          cat("TEGULA_LAZY_LOG2=", lazy_log2)};
}

Status check_attention(const AttentionShape& s, float scale) {
  if (std::min({s.batch, s.seqlen_q, s.seqlen_k, s.n_heads_q, s.n_heads_kv}) < 1)
    return unsupported(cat("attention of an empty tensor: batch ", s.batch, ", seqlen_q ",
                           s.seqlen_q, ", seqlen_k ", s.seqlen_k));
  if (s.n_heads_q % s.n_heads_kv != 0)
    return invalid_argument(
        cat("attention: ", s.n_heads_kv, " KV heads do not divide ", s.n_heads_q, " query heads"));
  if (!(scale > 0)) return unsupported(cat("attention: scale ", double(scale), " is not positive"));
  if (std::max({s.seqlen_q, s.seqlen_k, ceil_div(s.seqlen_q, 64) * s.batch * s.n_heads_q}) >
      INT_MAX / 2)
    return unsupported("attention: sequences or tiles past 2^30");
  return {};
}

Result<AttentionVariant> choose_attention(const AttentionShape& shape) {
  AttentionVariant v;
  v.is_causal = shape.is_causal;
  if (shape.head_dim != 64 && shape.head_dim != 128)
    return unsupported(cat("attention_sm90 has head_dim 64 and 128, not ", shape.head_dim,
                           ": use attention_tiled, or pad to 128"));
  v.head_dim = static_cast<int>(shape.head_dim);
  const bool is_short = shape.seqlen_k <= 2048;
  if (v.head_dim == 128 && !v.is_causal) {
    v.n_consumers = 3, v.tile_n = 80;
  } else if (v.head_dim == 128) {
    v.q_registers = true;
  } else if (v.is_causal && is_short) {
    v.n_stages = 3, v.q_registers = true, v.section_mb = 12;
  } else {
    v.n_consumers = 3;
  }
  return v;
}

Result<AttentionKernel> AttentionKernel::load(const AttentionVariant& variant,
                                              const std::string& cubin) {
  const int n_multiprocessors = TEGULA_TRY(hopper_multiprocessors());
  Module module = TEGULA_TRY(Module::load(cubin));
  FunctionHandle f = TEGULA_TRY(module.function("attention_sm90", variant.smem_bytes()));
  return AttentionKernel(variant, std::move(module), f, n_multiprocessors);
}

Status AttentionKernel::launch(const AttentionCall& call) const {
  const AttentionVariant& v = variant_;
  const AttentionShape& s = call.shape;
  if (s.head_dim != v.head_dim || s.is_causal != v.is_causal)
    return internal_error(cat("variant ", v.name(), " got a call of head_dim ", s.head_dim));
  TEGULA_TRY(check_attention(s, call.scale));
  HostTensorMap q = TEGULA_TRY(map_of(call.q, s, s.seqlen_q, s.n_heads_q, v.tile_m()));
  HostTensorMap k = TEGULA_TRY(map_of(call.k, s, s.seqlen_k, s.n_heads_kv, v.tile_n));
  HostTensorMap w = TEGULA_TRY(map_of(call.v, s, s.seqlen_k, s.n_heads_kv, v.tile_n));
  HostTensorMap o = TEGULA_TRY(map_of(call.o, s, s.seqlen_q, s.n_heads_q, 64));

  AttentionParams p{};
  p.lse = call.lse;
  p.counter = call.counter;
  p.seqlen_q = static_cast<int>(s.seqlen_q);
  p.seqlen_k = static_cast<int>(s.seqlen_k);
  p.n_heads_q = static_cast<int>(s.n_heads_q);
  p.group = static_cast<int>(s.n_heads_q / s.n_heads_kv);
  p.n_tiles_m = static_cast<int>(ceil_div(s.seqlen_q, v.tile_m()));
  p.n_heads_total = static_cast<int>(s.batch * s.n_heads_q);
  p.n_tiles = p.n_tiles_m * p.n_heads_total;
  // Without a mask all tiles cost the same, and one head after the other reads K and V once.
  const int64_t head_bytes = std::max<int64_t>(1, 4 * s.seqlen_k * s.head_dim / p.group);
  p.heads_per_section = v.is_causal
                            ? static_cast<int>(std::clamp<int64_t>(
                                  (int64_t{v.section_mb} << 20) / head_bytes, 1, p.n_heads_total))
                            : 1;
  p.scale = call.scale;
  p.scale_log2 = call.scale * 1.44269504F;

  const int n_blocks = std::min(p.n_tiles, n_multiprocessors_);
  void* arguments[] = {&q, &k, &w, &o, &p};
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->check(d->launch(function_, static_cast<unsigned>(n_blocks), 1, 1,
                            static_cast<unsigned>(v.threads()), 1, 1,
                            static_cast<unsigned>(v.smem_bytes()), call.stream, arguments, nullptr),
                  "launching attention_sm90");
}

}  // namespace tegula::cuda
