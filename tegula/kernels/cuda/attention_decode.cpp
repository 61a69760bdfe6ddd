#include "tegula/kernels/cuda/attention_decode.h"

#include <bit>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cuda/attention_params.h"

namespace tegula::cuda {

namespace {

constexpr int kStepKeys = 16;  // as in attention_decode.cu
constexpr int64_t kMostRows = 128;
// K and V of such sizes stay in L2 from launch to launch only if told to, which costs 1 to 5 %
// where they were not there. Smaller ones stay anyway, larger ones cannot (24 and 48 MiB measured).
constexpr int64_t kLeastKept_bytes = 28 << 20, kMostKept_bytes = 40 << 20;
// Reading as much takes so short that it counts to set up blocks before the kernel before has ended
// and to have more under way from the start. (Longer, dense reads by blocks of one head are 0.5 %
// faster with less.)
constexpr int64_t kShort_bytes = 64 << 20;

int64_t splits_of(const DecodeShape& s, int64_t keys_per_split) {
  return std::max<int64_t>(1, ceil_div(s.seqlen_k, keys_per_split));
}

// KV heads of a block: one a warp, of which a tile of 256 may have 4.
int most_heads(const DecodeShape& s) { return s.head_dim <= 128 ? 8 : 4; }
int64_t rows_of(const DecodeShape& s) { return s.seqlen_q * s.n_heads_q / s.n_heads_kv; }
int tile_head_dim(const DecodeShape& s) {
  return s.head_dim <= 64 ? 64 : s.head_dim <= 128 ? 128 : 256;
}
// Registers hold the output of 16 rows of 128, or of 8 of 256.
int tile_rows(const DecodeShape& s) { return rows_of(s) <= 8 || s.head_dim > 128 ? 8 : 16; }

Status check_operand(const AttentionOperand& t, const char* name) {
  if (reinterpret_cast<uintptr_t>(t.data) % 16 != 0 || t.batch % 8 != 0 || t.row % 8 != 0 ||
      t.head % 8 != 0)
    return invalid_argument(cat("attention_decode: ", name, " has strides ", t.batch, ", ", t.row,
                                ", ", t.head,
                                " elements; they must be multiples of 8 and the data aligned to 16 "
                                "bytes: copy it to a contiguous tensor"));
  return {};
}

}  // namespace

// The steps under way of all warps, or their parts in the same place; their maxima; and a flag.
int DecodeVariant::smem_bytes() const {
  const int ring = n_slots * 2 * kStepKeys * head_dim * 2;
  const int part = static_cast<int>(round_up(rows * (head_dim + 2) * 4, 1024));
  return n_warps * (std::max(ring, part) + rows * 4) + 16;
}

std::string DecodeVariant::name() const {
  return cat("decode_d", head_dim, "_r", rows, heads > 1 ? cat("_h", heads) : "",
             is_paged ? "_paged" : "", is_f16 ? "_f16" : "");
}

std::vector<std::string> DecodeVariant::defines() const {
  return {cat("TEGULA_HEAD_DIM=", head_dim),   cat("TEGULA_ROWS=", rows),
          cat("TEGULA_WARPS=", n_warps),       cat("TEGULA_BLOCKS=", n_blocks),
          cat("TEGULA_HEADS=", heads),         cat("TEGULA_SLOTS=", n_slots),
          cat("TEGULA_PAGED=", int{is_paged}), cat("TEGULA_F16=", int{is_f16})};
}

Result<DecodeVariant> choose_decode(const DecodeShape& s, int capability) {
  if (std::min({s.batch, s.seqlen_q, s.n_heads_q, s.n_heads_kv}) < 1 || s.seqlen_k < 0 ||
      s.page_size < 0)
    return invalid_argument(cat("attention_decode: batch ", s.batch, ", seqlen_q ", s.seqlen_q,
                                ", heads ", s.n_heads_q, " and ", s.n_heads_kv,
                                " must be positive, seqlen_k ", s.seqlen_k, " and page size ",
                                s.page_size, " not negative"));
  if (s.n_heads_q % s.n_heads_kv != 0)
    return invalid_argument(cat("attention_decode: ", s.n_heads_kv, " KV heads do not divide ",
                                s.n_heads_q, " query heads"));
  if (s.head_dim < 1 || s.head_dim > 256 || s.head_dim % 8 != 0)
    return unsupported(cat("attention_decode takes multiples of 8 up to 256 for head_dim, not ",
                           s.head_dim, s.head_dim <= 256 ? ": pad it" : ": use a CPU kernel"));
  if (s.batch > 65535 || s.n_heads_kv > 65535 / kMostRows)
    return unsupported(cat("attention_decode takes ", 65535, " sequences and ", 65535 / kMostRows,
                           " KV heads at most: cut the batch"));
  if (rows_of(s) > kMostRows)
    return unsupported(cat("attention_decode takes ", kMostRows,
                           " rows (queries times heads of a KV head), not ", rows_of(s),
                           ": use attention_sm90"));
  if (s.heads < 1 || s.heads > most_heads(s) ||
      !std::has_single_bit(static_cast<unsigned>(s.heads)) || s.n_heads_kv % s.heads != 0 ||
      (s.heads > 1 && rows_of(s) > 8))
    return invalid_argument(cat("attention_decode: ", s.heads, " KV heads of a block; of ",
                                s.n_heads_kv, " with ", rows_of(s), " rows each take 1"));
  DecodeVariant v;
  v.heads = s.heads;
  v.head_dim = tile_head_dim(s);
  v.rows = tile_rows(s);
  v.is_paged = s.page_size > 0;
  v.is_f16 = s.is_f16;
  // Keys in pages are cut where no batch is looked at, so a block may be long: it has all of 512
  // keys of 64 under way at once.
  if (v.is_paged && v.head_dim == 64) v.n_warps = 16;
  if (v.smem_bytes() > max_smem_bytes(capability)) v.n_slots = 1;
  if (v.smem_bytes() > max_smem_bytes(capability)) v.n_warps = 4;
  return v;
}

int decode_heads(const DecodeShape& s, int n_multiprocessors) {
  if (rows_of(s) > 8) return 1;
  for (int heads = most_heads(s); heads > 1; heads /= 2) {
    const int64_t blocks = s.batch * s.n_heads_kv / heads;
    const int64_t places = round_up(blocks, n_multiprocessors);
    if (s.n_heads_kv % heads == 0 && 10 * blocks >= 9 * places) return heads;
  }
  return 1;
}

int64_t decode_split(const DecodeShape& s, int n_multiprocessors) {
  const int64_t step = kStepKeys * DecodeVariant().n_warps / s.heads;
  const int64_t splits = std::clamp<int64_t>(n_multiprocessors / decode_blocks(s), 1,
                                             std::max<int64_t>(1, s.seqlen_k / step));
  return std::max(step, ceil_div(ceil_div(s.seqlen_k, splits), step) * step);
}

int64_t decode_workspace_bytes(const DecodeShape& s, int64_t keys_per_split) {
  return splits_of(s, keys_per_split) * decode_blocks(s) * s.heads * tile_rows(s) *
         (tile_head_dim(s) + 2) * 4;
}

int64_t decode_blocks(const DecodeShape& s) {
  return s.batch * s.n_heads_kv / s.heads * ceil_div(rows_of(s), tile_rows(s));
}

Result<DecodeKernel> DecodeKernel::load(const DecodeVariant& variant, const std::string& cubin) {
  Module module = TEGULA_TRY(Module::load(cubin));
  const FunctionHandle function =
      TEGULA_TRY(module.function("attention_decode", variant.smem_bytes()));
  return DecodeKernel(variant, std::move(module), function);
}

Status DecodeKernel::launch(const DecodeCall& call) const {
  const DecodeShape& s = call.shape;
  const DecodeVariant v = TEGULA_TRY(choose_decode(s));
  if (v.head_dim != variant_.head_dim || v.rows != variant_.rows ||
      v.is_paged != variant_.is_paged || v.is_f16 != variant_.is_f16 || v.heads != variant_.heads)
    return internal_error(cat(variant_.name(), " got a shape for ", v.name()));
  TEGULA_TRY(check_operand(call.q, "q"));
  TEGULA_TRY(check_operand(call.k, "k"));
  TEGULA_TRY(check_operand(call.v, "v"));
  TEGULA_TRY(check_operand(call.o, "o"));
  if (call.keys_per_split < 1 || call.keys_per_split % kStepKeys != 0)
    return invalid_argument(cat("attention_decode: ", call.keys_per_split,
                                " keys per split are not a positive multiple of ", kStepKeys));
  if (v.is_paged && call.pages_per_sequence * s.page_size < s.seqlen_k)
    return invalid_argument(cat("attention_decode: ", call.pages_per_sequence, " pages of ",
                                s.page_size, " hold fewer than ", s.seqlen_k, " keys"));

  AttentionDecodeParams p{};
  p.q = tensor_of(call.q), p.k = tensor_of(call.k);
  p.v = tensor_of(call.v), p.o = tensor_of(call.o);
  p.lse = call.lse;
  p.partial = call.workspace;
  p.counters = call.counters;
  p.seqlens_k = call.seqlens_k, p.pages = call.pages;
  p.seqlen_q = static_cast<int>(s.seqlen_q), p.seqlen_k = static_cast<int>(s.seqlen_k);
  p.n_heads_q = static_cast<int>(s.n_heads_q), p.n_heads_kv = static_cast<int>(s.n_heads_kv);
  p.group = p.n_heads_q / p.n_heads_kv, p.head_dim = static_cast<int>(s.head_dim);
  p.n_tiles = static_cast<int>(ceil_div(rows_of(s), tile_rows(s)));
  p.group_inverse = 65536U / static_cast<unsigned>(p.group) + 1;
  p.keys_per_split = static_cast<int>(call.keys_per_split);
  p.n_splits = static_cast<int>(splits_of(s, call.keys_per_split));
  p.pages_per_sequence = static_cast<int>(call.pages_per_sequence);
  p.page_size = static_cast<int>(s.page_size), p.last_page = static_cast<int>(call.n_pages) - 1;
  const auto page = static_cast<uint64_t>(s.page_size);
  p.page_log2 = std::has_single_bit(page) ? std::countr_zero(page) : -1;
  p.window_left = static_cast<int>(s.window_left), p.is_causal = int{s.is_causal};
  const int64_t kv_bytes = 2 * 2 * s.batch * s.seqlen_k * s.n_heads_kv * s.head_dim;
  const bool is_short = kv_bytes <= kShort_bytes;
  p.n_slots = is_short || v.is_paged || v.heads > 1 ? variant_.n_slots : 1;
  p.keeps_kv = int{kv_bytes >= kLeastKept_bytes && kv_bytes <= kMostKept_bytes};
  p.is_settled = int{call.is_settled || (call.seqlens_k == nullptr && !v.is_paged)};
  p.scale_log2 = call.scale * 1.44269504F;
  const Driver* d = TEGULA_TRY(Driver::get());
  const int threads = 32 * variant_.n_warps, smem = variant_.smem_bytes();
  const int64_t heads = s.n_heads_kv / s.heads * p.n_tiles;
  return d->start(function_, {{p.n_splits, heads, s.batch}, {threads, 1, 1}, smem, is_short},
                  call.stream, "launching attention_decode", p);
}

}  // namespace tegula::cuda
