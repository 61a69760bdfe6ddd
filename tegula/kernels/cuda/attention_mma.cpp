#include "tegula/kernels/cuda/attention_mma.h"

#include "tegula/base/algorithm.h"

namespace tegula::cuda {

namespace {

constexpr int kTileM = 128, kSection_mb = 16;

}  // namespace

int AttentionMmaVariant::smem_bytes() const {
  return ceil_div(head_dim, 64) * 128 * (kTileM + 2 * tile_n);
}

std::string AttentionMmaVariant::name() const {
  return cat("mma_d", head_dim, is_causal ? "_causal" : "_full", "_n", tile_n, "g", n_groups,
             is_f16 ? "_f16" : "", features.name());
}

std::vector<std::string> AttentionMmaVariant::defines() const {
  std::vector<std::string> d = {cat("TEGULA_HEAD_DIM=", head_dim),
                                cat("TEGULA_CAUSAL=", int{is_causal}),
                                cat("TEGULA_TILE_N=", tile_n),
                                cat("TEGULA_GROUPS=", n_groups),
                                "TEGULA_CONSUMERS=2",
                                "TEGULA_LAZY_LOG2=8"};
  if (is_f16) d.emplace_back("TEGULA_F16=1");
  for (std::string& f : features.defines()) d.push_back(std::move(f));
  return d;
}

Status check_attention_mma(const AttentionShape& s, float scale) {
  if (s.is_f8 || s.is_f32)
    return unsupported(cat("attention_mma: ", s.is_f8 ? "e4m3" : "f32", "; use bf16 or f16"));
  return check_attention(s, scale);
}

Status check_copyable(const char* what, const AttentionOperand& t) {
  if (reinterpret_cast<uintptr_t>(t.data) % 16 != 0)
    return invalid_argument(cat("attention_mma: ", what, " is not aligned to 16 bytes: copy it"));
  for (const int64_t stride : {t.batch, t.row, t.head})
    if (stride % 8 != 0)
      return invalid_argument(cat("attention_mma: ", what, " has strides of ", t.batch,
                                  " (batch), ", t.row, " (row), ", t.head,
                                  " (head); each must be a multiple of 8 elements"));
  return {};
}

Result<AttentionMmaVariant> choose_attention_mma(const AttentionShape& s, int most_smem_bytes) {
  TEGULA_TRY(check_attention_mma(s, 1));
  AttentionMmaVariant v;
  v.head_dim = padded_head_dim(s.head_dim);
  v.is_causal = s.is_causal, v.is_f16 = s.is_f16;
  v.features = s.features;
  // Registers for more than the products: for every score's work, or for each row's keys.
  const AttentionFeatures& f = v.features;
  const bool has_ranges = f.has_window || f.is_packed || f.is_paged || f.has_documents;
  if (v.head_dim > 128 || (v.head_dim == 128 && has_ranges) || f.is_heavy()) v.n_groups = 1;
  if ((v.head_dim == 64 || v.head_dim > 128) && !has_ranges && !f.is_heavy()) v.tile_n = 96;
  while (v.smem_bytes() > most_smem_bytes && v.tile_n > 32) v.tile_n -= 32;
  return v;
}

Result<AttentionMmaKernel> AttentionMmaKernel::load(const AttentionMmaVariant& variant,
                                                    const std::string& cubin) {
  Module module = TEGULA_TRY(Module::load(cubin));
  FunctionHandle f = TEGULA_TRY(module.function("attention_mma", variant.smem_bytes()));
  return AttentionMmaKernel(variant, std::move(module), f);
}

Status AttentionMmaKernel::launch(const AttentionCall& call) const {
  const AttentionMmaVariant& v = variant_;
  const AttentionShape& s = call.shape;
  if (padded_head_dim(s.head_dim) != v.head_dim || s.is_causal != v.is_causal ||
      s.is_f16 != v.is_f16 || s.features.name() != v.features.name())
    return internal_error(cat("variant ", v.name(), " got a call of head_dim ", s.head_dim,
                              s.is_causal ? " causal" : "", s.features.name()));
  TEGULA_TRY(check_attention_mma(s, call.scale));
  TEGULA_TRY(check_features(s.features, call.given, s.batch));
  if (s.batch == 0 || s.seqlen_q == 0) return {};
  TEGULA_TRY(check_copyable("q", call.q));
  TEGULA_TRY(check_copyable("k", call.k));
  TEGULA_TRY(check_copyable("v", call.v));
  TEGULA_TRY(check_copyable("o", call.o));
  TEGULA_TRY(check_o_apart(call));
  AttentionParams p = attention_params(call, kTileM, kSection_mb, 4 * s.seqlen_k * s.head_dim);
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->start(function_, {{p.n_tiles, 1, 1}, {v.threads(), 1, 1}, v.smem_bytes()}, call.stream,
                  "launching attention_mma", p);
}

}  // namespace tegula::cuda
