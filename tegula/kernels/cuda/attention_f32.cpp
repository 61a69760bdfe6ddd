#include "tegula/kernels/cuda/attention_f32.h"

#include "tegula/base/algorithm.h"

namespace tegula::cuda {

namespace {

constexpr int kParts = 3;
constexpr int kBarrier_bytes = 512, kAlign_bytes = 1024;
constexpr int64_t kHead_bytes = 256;  // of the workspace: one number, alone in its line
constexpr int kRepair_blocks = 264;

// Four columns of any row at once?
bool is_aligned(const SplitTensor& t) {
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.batch % 4 == 0 && t.row % 4 == 0 &&
         t.head % 4 == 0;
}

}  // namespace

int64_t split_bytes(int64_t heads, int64_t rows, int head_dim) {
  return 2 * kParts * heads * rows * head_dim;
}

void add_split(SplitParams& p, int index, const AttentionOperand& t, int64_t rows, int64_t heads,
               int64_t batch, int head_dim, char*& at) {
  p.t[index] = {static_cast<const float*>(t.data),
                t.batch,
                t.row,
                t.head,
                reinterpret_cast<unsigned short*>(at),
                static_cast<int>(rows),
                static_cast<int>(heads)};
  at += split_bytes(batch * heads, rows, head_dim);
}

Status launch_split(FunctionHandle split, SplitParams p, int n_tensors, const AttentionShape& s,
                    int head_dim, unsigned* leaked, const Stream& stream) {
  p.batch = static_cast<int>(s.batch), p.head_dim = static_cast<int>(s.head_dim);
  p.leaked = leaked;
  p.is_aligned = int{std::all_of(p.t, p.t + n_tensors, is_aligned)};
  const int64_t rows = std::max<int64_t>(1, std::max(s.seqlen_q, s.seqlen_k));
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->start(
      split, {{ceil_div(rows, 2048 / head_dim), s.batch * s.n_heads_q, n_tensors}, {256, 1, 1}},
      stream, "launching attention_split", p);
}

Result<HostTensorMap> map_of_parts(const SplitTensor& t, int64_t batch, int head_dim, int rows) {
  const int64_t heads = batch * t.heads;
  return tensor_map_bf16(t.parts, {head_dim, t.rows, heads, kParts},
                         {head_dim, int64_t{head_dim} * t.rows, int64_t{head_dim} * t.rows * heads},
                         rows);
}

int AttentionF32Variant::smem_bytes() const {
  return 2 * kParts * head_dim * (tile_m() + n_slots * tile_n) + kBarrier_bytes + kAlign_bytes;
}

std::string AttentionF32Variant::name() const {
  return cat("f32_d", head_dim, is_causal ? "_causal" : "_full", "_m", tile_m(), "n", tile_n, "s",
             n_slots, "_lz", lazy_log2, features.name());
}

std::vector<std::string> AttentionF32Variant::defines() const {
  std::vector<std::string> d = {
      cat("TEGULA_HEAD_DIM=", head_dim), cat("TEGULA_CAUSAL=", int{is_causal}),
      cat("TEGULA_TILE_N=", tile_n),     cat("TEGULA_CONSUMERS=", n_consumers),
      cat("TEGULA_SLOTS=", n_slots),     cat("TEGULA_LAZY_LOG2=", lazy_log2)};
  for (std::string& f : features.defines()) d.push_back(std::move(f));
  return d;
}

Status check_attention_f32(const AttentionShape& s, float scale) {
  TEGULA_TRY(check_attention(s, scale));
  if (s.batch * s.n_heads_q > 65535)
    return unsupported(cat("attention_f32_sm90: ", s.batch, " x ", s.n_heads_q,
                           " heads; at most 65,535: cut the batch"));
  return {};
}

Result<AttentionF32Variant> choose_attention_f32(const AttentionShape& s) {
  TEGULA_TRY(check_attention_f32(s, 1));
  AttentionF32Variant v;
  v.head_dim = s.head_dim <= 64 ? 64 : s.head_dim <= 128 ? 128 : 256;
  v.is_causal = s.is_causal;
  v.features = s.features;
  // The tensors' own type is f32.
  if (v.features.bias == BiasType::kElement) v.features.bias = BiasType::kF32;
  if (v.head_dim == 256)
    v.tile_n = 32, v.n_slots = 2, v.n_consumers = 1;
  else if (v.head_dim == 128)
    v.tile_n = 64, v.n_slots = 2;
  else if (v.features.is_heavy())  // registers for more than the products
    v.tile_n = 64, v.n_slots = 6;
  else if (v.features.has_window || v.features.is_packed || v.features.has_documents)
    v.tile_n = 96;
  return v;
}

int64_t attention_f32_workspace_bytes(const AttentionF32Variant& v, const AttentionShape& s) {
  return kHead_bytes + split_bytes(s.batch * s.n_heads_q, s.seqlen_q, v.head_dim) +
         2 * split_bytes(s.batch * s.n_heads_kv, s.seqlen_k, v.head_dim);
}

Result<AttentionF32Kernel> AttentionF32Kernel::load(const AttentionF32Variant& variant,
                                                    const std::string& cubin) {
  const int n_multiprocessors = TEGULA_TRY(hopper_multiprocessors());
  AttentionF32Kernel k(variant, TEGULA_TRY(Module::load(cubin)), n_multiprocessors);
  k.split_ = TEGULA_TRY(k.module_.function("attention_split", 0));
  k.attend_ = TEGULA_TRY(k.module_.function("attention_f32_sm90", variant.smem_bytes()));
  k.repair_ = TEGULA_TRY(k.module_.function("attention_f32_repair", 0));
  return k;
}

Status AttentionF32Kernel::launch(const AttentionCall& call) const {
  const AttentionF32Variant& v = variant_;
  const AttentionShape& s = call.shape;
  const AttentionF32Variant wanted = TEGULA_TRY(choose_attention_f32(s));
  if (wanted.head_dim != v.head_dim || s.is_causal != v.is_causal ||
      wanted.features.name() != v.features.name())
    return internal_error(cat("variant ", v.name(), " got a call of head_dim ", s.head_dim,
                              s.is_causal ? " causal" : "", s.features.name()));
  TEGULA_TRY(check_attention_f32(s, call.scale));
  TEGULA_TRY(check_features(s.features, call.given, s.batch));
  if (call.workspace == nullptr || reinterpret_cast<uintptr_t>(call.workspace) % 64 != 0)
    return invalid_argument("attention of f32: the workspace must be aligned to 64 bytes");
  if (s.batch == 0 || s.seqlen_q == 0) return {};
  TEGULA_TRY(check_o_apart(call));

  AttentionParams p =
      attention_params(call, v.tile_m(), v.section_mb, 2 * split_bytes(1, s.seqlen_k, v.head_dim));
  p.leaked = static_cast<unsigned*>(call.workspace);
  SplitParams split{};
  char* at = static_cast<char*>(call.workspace) + kHead_bytes;
  add_split(split, 0, call.q, s.seqlen_q, s.n_heads_q, s.batch, v.head_dim, at);
  add_split(split, 1, call.k, s.seqlen_k, s.n_heads_kv, s.batch, v.head_dim, at);
  add_split(split, 2, call.v, s.seqlen_k, s.n_heads_kv, s.batch, v.head_dim, at);
  TEGULA_TRY(launch_split(split_, split, 3, s, v.head_dim, p.leaked, call.stream));
  // Without keys their parts are not read, but maps need some tensor.
  const bool has_keys = s.seqlen_k > 0;
  HostTensorMap q = TEGULA_TRY(map_of_parts(split.t[0], s.batch, v.head_dim, v.tile_m()));
  HostTensorMap k =
      TEGULA_TRY(map_of_parts(split.t[has_keys ? 1 : 0], s.batch, v.head_dim, v.tile_n));
  HostTensorMap w =
      TEGULA_TRY(map_of_parts(split.t[has_keys ? 2 : 0], s.batch, v.head_dim, v.tile_n));

  const Driver* d = TEGULA_TRY(Driver::get());
  const int64_t blocks = std::min(p.n_tiles, n_multiprocessors_);
  TEGULA_TRY(d->start(attend_, {{blocks, 1, 1}, {v.threads(), 1, 1}, v.smem_bytes()}, call.stream,
                      "launching attention_f32_sm90", q, k, w, p));
  return d->start(repair_, {{kRepair_blocks, 1, 1}, {256, 1, 1}}, call.stream,
                  "launching attention_f32_repair", p);
}

}  // namespace tegula::cuda
