#include "tegula/kernels/cuda/attention.h"

#include <climits>

#include "tegula/base/algorithm.h"

namespace tegula::cuda {

namespace {

constexpr int kHeadDims[] = {64, 96, 128, 192, 256};
constexpr int kBarrier_bytes = 512, kAlign_bytes = 1024;
constexpr float kLeastScale = 1e-30F;  // a reciprocal of the scale is formed

// A stride over one entry is never used, whatever it is.
Result<HostTensorMap> map_of(const char* what, const AttentionOperand& t, const AttentionShape& s,
                             int64_t rows, int64_t heads, int box_rows, int element_bytes = 2) {
  const int64_t step = 16 / element_bytes, any = ceil_div(s.head_dim, step) * step;
  const int64_t strides[] = {rows == 1 ? any : t.row, heads == 1 ? any : t.head,
                             s.batch == 1 ? any : t.batch};
  const auto past = reinterpret_cast<uintptr_t>(t.data) % 16;
  if (past != 0)
    return invalid_argument(cat("attention: ", what, " lies ", past,
                                " bytes past a multiple of 16, where the copy engine cannot read "
                                "or write: copy it"));
  for (const int64_t stride : strides)
    if (stride <= 0 || stride % step != 0)
      return invalid_argument(cat("attention: ", what, " has strides of ", strides[0], " (row), ",
                                  strides[1], " (head) and ", strides[2],
                                  " (batch) elements; the copy engine takes positive multiples of ",
                                  step, ": pad head_dim ", s.head_dim, " to ", any,
                                  ", or copy it"));
  return tensor_map(t.data, element_bytes, {s.head_dim, rows, heads, s.batch}, strides, box_rows);
}

// Bytes from the first to past the last element.
int64_t span_bytes(const AttentionOperand& t, int64_t rows, int64_t heads, const AttentionShape& s,
                   int element_bytes) {
  if (rows == 0) return 0;
  return element_bytes *
         ((s.batch - 1) * t.batch + (rows - 1) * t.row + (heads - 1) * t.head + s.head_dim);
}

}  // namespace

int AttentionVariant::smem_bytes() const {
  const auto row_bytes = [&](int element_bytes) {  // boxes are 128 bytes wide
    return (head_dim * element_bytes + 127) / 128 * 128;
  };
  const int in = row_bytes(is_f8 ? 1 : 2), v = is_f8 ? 128 * head_dim : tile_n * in;
  const int q = tile_m() * in, o = tile_m() * row_bytes(2);
  const int least = q + n_stages * (tile_n * in + v) + kBarrier_bytes + kAlign_bytes;
  const int most = max_smem_bytes(90);
  if (least + o > most) return least;
  return least + o + (!q_registers && least + o + q <= most ? q : 0);
}

std::string AttentionVariant::name() const {
  return cat("d", head_dim, is_causal ? "_causal" : "_full", "_m", tile_m(), "n", tile_n, "s",
             n_stages, ping_pong ? "_pp" : "", q_registers ? "_qr" : "", "_lz", lazy_log2, "_sec",
             section_mb, is_f8 ? "_f8" : "", is_f16 ? "_f16" : "", is_odd ? "_odd" : "",
             features.name());
}

std::vector<std::string> AttentionVariant::defines() const {
  std::vector<std::string> d = {cat("TEGULA_HEAD_DIM=", head_dim),
                                cat("TEGULA_CAUSAL=", int{is_causal}),
                                cat("TEGULA_TILE_N=", tile_n),
                                cat("TEGULA_CONSUMERS=", n_consumers),
                                cat("TEGULA_STAGES=", n_stages),
                                cat("TEGULA_PING_PONG=", int{ping_pong}),
                                cat("TEGULA_Q_REGISTERS=", int{q_registers}),
                                cat("TEGULA_LAZY_LOG2=", lazy_log2)};
  if (is_f8) d.emplace_back("TEGULA_F8=1");
  if (is_f16) d.emplace_back("TEGULA_F16=1");
  if (is_odd) d.emplace_back("TEGULA_ODD=1");
  for (std::string& f : features.defines()) d.push_back(std::move(f));
  return d;
}

int padded_head_dim(int64_t head_dim) {
  for (const int d : kHeadDims)
    if (head_dim >= 1 && head_dim <= d) return d;
  return 0;
}

Status check_attention(const AttentionShape& s, float scale) {
  if (std::min({s.batch, s.seqlen_q, s.seqlen_k}) < 0 || std::min(s.n_heads_q, s.n_heads_kv) < 1)
    return invalid_argument(cat("attention: batch ", s.batch, ", seqlen_q ", s.seqlen_q,
                                ", seqlen_k ", s.seqlen_k, ", ", s.n_heads_q, " query and ",
                                s.n_heads_kv, " KV heads: sizes are not negative, heads positive"));
  if (padded_head_dim(s.head_dim) == 0)
    return unsupported(cat("attention: head_dim ", s.head_dim, " is not in [1, 256]: ",
                           s.head_dim > 256
                               ? "the nearest is 256 (attention_naive takes bf16 forward)"
                               : "the nearest is 1"));
  if (s.is_f8 && s.head_dim % 16 != 0)
    return unsupported(cat("attention: head_dim ", s.head_dim,
                           " of e4m3 is no multiple of 16: pad it to ",
                           ceil_div(s.head_dim, 16) * 16));
  if (s.n_heads_q % s.n_heads_kv != 0)
    return invalid_argument(
        cat("attention: ", s.n_heads_kv, " KV heads do not divide ", s.n_heads_q, " query heads"));
  if (!(scale > 0))
    return unsupported(cat("attention: scale ", double(scale), " is not positive: negate q"));
  if (!s.is_f32 && scale < kLeastScale)
    return unsupported(cat("attention: scale ", double(scale), " is below ", double(kLeastScale),
                           ": use attention_naive, or multiply q"));
  if (std::max({s.seqlen_q, s.seqlen_k, ceil_div(s.seqlen_q, 64) * s.batch * s.n_heads_q}) >
      INT_MAX / 2)
    return unsupported(cat("attention: sequences of ", s.seqlen_q, " and ", s.seqlen_k, " in ",
                           s.batch, " x ", s.n_heads_q,
                           " heads: at most 2^30 rows, and 2^30 tiles of 64 rows"));
  return s.features.check();
}

Status check_apart(const AttentionOperand& out, int64_t out_rows, int64_t out_heads,
                   const AttentionOperand& in, int64_t in_rows, int64_t in_heads,
                   const AttentionShape& s, const char* what) {
  const int element = s.is_f32 ? 4 : 2;
  const int64_t out_bytes = span_bytes(out, out_rows, out_heads, s, element);
  const int64_t in_bytes = span_bytes(in, in_rows, in_heads, s, s.is_f8 ? 1 : element);
  const auto a = reinterpret_cast<intptr_t>(out.data), b = reinterpret_cast<intptr_t>(in.data);
  if (a + out_bytes <= b || b + in_bytes <= a) return {};
  // Side by side in the rows, or in the batch entries, of one buffer?
  auto interleave = [&](int64_t period, int64_t out_width, int64_t in_width) {
    const int64_t bytes = element * period, from = ((b - a) % bytes + bytes) % bytes;
    return from >= element * out_width && from + element * in_width <= bytes;
  };
  const int64_t out_row = (out_heads - 1) * out.head + s.head_dim;
  const int64_t in_row = (in_heads - 1) * in.head + s.head_dim;
  if (!s.is_f8 && out.row == in.row && out.row > 0 && out.batch % out.row == 0 &&
      in.batch % out.row == 0 && interleave(out.row, out_row, in_row))
    return {};
  if (!s.is_f8 && out.batch == in.batch && out.batch > 0 &&
      interleave(out.batch, (out_rows - 1) * out.row + out_row, (in_rows - 1) * in.row + in_row))
    return {};
  return invalid_argument(cat("attention: ", what, " overlap (", out_bytes, " bytes written, ",
                              in_bytes, " read, ", b - a,
                              " apart): give the result its own memory"));
}

Status check_o_apart(const AttentionCall& call) {
  AttentionShape s = call.shape;
  if (s.features.is_paged) {  // the last page, and all before it
    s.seqlen_k = call.given.page_size;
    const int64_t pages = call.given.last_page * call.k.batch;
    for (const AttentionOperand* t : {&call.k, &call.v}) {
      AttentionShape whole = s;
      whole.batch = 1;
      TEGULA_TRY(check_apart(call.o, s.seqlen_q + (s.batch - 1) * call.o.batch / call.o.row,
                             s.n_heads_q, *t, s.seqlen_k + pages / t->row, s.n_heads_kv, whole,
                             "o and the pages"));
    }
    return check_apart(call.o, s.seqlen_q, s.n_heads_q, call.q, s.seqlen_q, s.n_heads_q, s,
                       "o and q");
  }
  TEGULA_TRY(
      check_apart(call.o, s.seqlen_q, s.n_heads_q, call.q, s.seqlen_q, s.n_heads_q, s, "o and q"));
  TEGULA_TRY(
      check_apart(call.o, s.seqlen_q, s.n_heads_q, call.k, s.seqlen_k, s.n_heads_kv, s, "o and k"));
  return check_apart(call.o, s.seqlen_q, s.n_heads_q, call.v, s.seqlen_k, s.n_heads_kv, s,
                     "o and v");
}

AttentionParams attention_params(const AttentionCall& call, int tile_m, int section_mb,
                                 int64_t kv_bytes) {
  const AttentionShape& s = call.shape;
  AttentionParams p{};
  p.lse = call.lse, p.counter = call.counter;
  p.seqlen_q = static_cast<int>(s.seqlen_q), p.seqlen_k = static_cast<int>(s.seqlen_k);
  p.n_heads_q = static_cast<int>(s.n_heads_q);
  p.group = static_cast<int>(s.n_heads_q / s.n_heads_kv);
  // Packed: attention_score.cuh, part_of_tile.
  p.n_tiles_m =
      static_cast<int>(s.features.is_packed ? s.seqlen_q / tile_m + call.given.n_sequences + 2
                                            : ceil_div(s.seqlen_q, tile_m));
  p.n_heads_total = static_cast<int>(s.batch * s.n_heads_q);
  p.n_tiles = p.n_tiles_m * p.n_heads_total;
  // Without a mask all tiles cost the same, and one head after the other reads K and V once.
  const bool is_whole = !s.is_causal && s.features.name().empty();
  const int64_t heads = (int64_t{section_mb} << 20) / std::max<int64_t>(1, kv_bytes / p.group);
  p.heads_per_section =
      is_whole ? 1 : static_cast<int>(std::clamp<int64_t>(heads, 1, p.n_heads_total));
  p.scale = call.scale, p.scale_log2 = call.scale * 1.44269504F;
  p.head_dim = static_cast<int>(s.head_dim);
  p.f = call.given;
  p.q = tensor_of(call.q), p.k = tensor_of(call.k), p.v = tensor_of(call.v);
  p.o = tensor_of(call.o);
  return p;
}

// For e4m3: as many warpgroups as there are registers for, since they fill each other's waits.
static void choose_f8(AttentionVariant& v) {
  const AttentionFeatures& f = v.features;
  const bool has_ranges = f.is_packed || f.has_documents || f.has_window;
  const bool is_wide = v.head_dim > 128;
  if (v.head_dim == 96) v.head_dim = 128;
  v.lazy_log2 = 0, v.ping_pong = is_wide, v.n_stages = is_wide ? 2 : 4;
  if (is_wide || f.is_heavy()) {
    const bool is_crowded = is_wide && (f.is_heavy() || (f.is_packed && f.has_window));
    v.tile_n = !is_crowded ? 128 : v.head_dim == 256 ? 64 : 96;
  } else if (v.head_dim == 64 && !has_ranges) {
    v.n_consumers = 4, v.tile_n = 96;
  } else {
    v.n_consumers = 3, v.tile_n = v.head_dim == 128 && has_ranges ? 96 : 128;
  }
}

Result<AttentionVariant> choose_attention(const AttentionShape& shape) {
  TEGULA_TRY(check_attention(shape, 1));
  AttentionVariant v;
  v.is_causal = shape.is_causal;
  v.is_f16 = shape.is_f16;
  v.is_f8 = shape.is_f8;
  v.is_odd = shape.head_dim % 8 != 0;
  v.features = shape.features;
  v.head_dim = padded_head_dim(shape.head_dim);
  const bool is_short = shape.seqlen_k <= 2048;
  if (v.is_f8) {
    choose_f8(v);
    return v;
  }
  if (v.features.is_heavy()) {  // registers for more than the products
    v.tile_n = v.head_dim >= 192 ? 64 : 96;
    return v;
  }
  const AttentionFeatures& f = v.features;
  const bool has_ranges = f.is_packed || f.has_documents;  // registers for each row's keys
  const bool is_even = !v.is_causal && !f.has_window && !has_ranges;  // most tiles need no mask
  if (v.head_dim == 256) {
    v.tile_n = f.has_window ? 64 : 80, v.section_mb = is_short ? 32 : 64;
  } else if (v.head_dim == 192) {
    v.tile_n = 112, v.section_mb = is_short ? 32 : 64;
  } else if (v.head_dim == 128 && !has_ranges) {
    v.n_consumers = 3;
    v.tile_n = f.has_window || (v.is_causal && shape.seqlen_k <= 4096) ? 64 : 80;
  } else if (v.head_dim == 96 && v.is_causal && is_short && !has_ranges) {
    v.q_registers = true;
  } else if (v.head_dim == 96 && !has_ranges) {
    v.n_consumers = 3, v.tile_n = is_even ? 112 : 96, v.section_mb = is_short ? 16 : 64;
  } else if (v.head_dim == 64 && v.is_causal && shape.seqlen_k <= 256 && !has_ranges) {
    v.n_stages = 3, v.q_registers = true, v.section_mb = 12;
  } else if (v.head_dim == 64 && !has_ranges) {
    v.n_consumers = 3;
  }
  return v;
}

Result<AttentionKernel> AttentionKernel::load(const AttentionVariant& variant,
                                              const std::string& cubin) {
  const int n_multiprocessors = TEGULA_TRY(hopper_multiprocessors());
  Module module = TEGULA_TRY(Module::load(cubin));
  FunctionHandle f = TEGULA_TRY(module.function("attention_sm90", variant.smem_bytes()));
  FunctionHandle transpose = nullptr;
  if (variant.is_f8)
    transpose = TEGULA_TRY(module.function("attention_f8_transpose", 128 * variant.head_dim));
  return AttentionKernel(variant, std::move(module), f, transpose, n_multiprocessors);
}

// Where Vᵀ of e4m3 stands in the workspace: [b, hk, d, keys rounded up to 16].
static int64_t padded_keys(const AttentionShape& s) { return ceil_div(s.seqlen_k, 16) * 16; }

int64_t attention_workspace_bytes(const AttentionShape& s) {
  return s.is_f8 ? s.batch * s.n_heads_kv * s.head_dim * std::max<int64_t>(padded_keys(s), 16) : 0;
}

Status AttentionKernel::transpose_v(const AttentionCall& call) const {
  const AttentionShape& s = call.shape;
  AttentionTensor v = tensor_of(call.v);
  int keys = static_cast<int>(s.seqlen_k), d = static_cast<int>(s.head_dim);
  int heads = static_cast<int>(s.n_heads_kv);
  void* to = call.workspace;
  const Driver* driver = TEGULA_TRY(Driver::get());
  const Grid grid{{ceil_div(s.seqlen_k, 128), heads, s.batch}, {2 * d, 1, 1}, 128 * d};
  return driver->start(transpose_, grid, call.stream, "launching attention_f8_transpose", v, to,
                       keys, d, heads);
}

Status AttentionKernel::launch(const AttentionCall& call) const {
  const AttentionVariant& v = variant_;
  const AttentionShape& s = call.shape;
  if (s.head_dim > v.head_dim || (!v.is_f8 && padded_head_dim(s.head_dim) != v.head_dim) ||
      s.is_causal != v.is_causal || s.is_f16 != v.is_f16 || s.is_f8 != v.is_f8 ||
      (s.head_dim % 8 != 0) != v.is_odd || s.features.name() != v.features.name())
    return internal_error(cat("variant ", v.name(), " got a call of head_dim ", s.head_dim,
                              s.is_causal ? " causal" : "", s.features.name()));
  TEGULA_TRY(check_attention(s, call.scale));
  TEGULA_TRY(check_features(s.features, call.given, s.batch));
  if (s.batch == 0 || s.seqlen_q == 0) return {};
  TEGULA_TRY(check_o_apart(call));
  // Without keys K and V are not read, but maps need some tensor.
  const bool has_keys = s.seqlen_k > 0;
  const int64_t keys = has_keys ? s.seqlen_k : s.seqlen_q;
  const int bytes = v.is_f8 ? 1 : 2;
  HostTensorMap q = TEGULA_TRY(map_of("q", call.q, s, s.seqlen_q, s.n_heads_q, v.tile_m(), bytes));
  HostTensorMap k =
      TEGULA_TRY(map_of("k", has_keys ? call.k : call.q, s, keys, s.n_heads_kv, v.tile_n, bytes));
  HostTensorMap w =
      TEGULA_TRY(map_of("v", has_keys ? call.v : call.q, s, keys, s.n_heads_kv, v.tile_n, bytes));
  if (v.is_f8 && has_keys) {
    if (call.workspace == nullptr) return internal_error("attention of e4m3 without workspace");
    const int64_t n = padded_keys(s), head = n * s.head_dim;
    TEGULA_TRY(transpose_v(call));
    w = TEGULA_TRY(tensor_map(call.workspace, 1, {n, s.head_dim, s.n_heads_kv, s.batch},
                              {n, head, head * s.n_heads_kv}, v.head_dim));
  }
  HostTensorMap o = TEGULA_TRY(map_of("o", call.o, s, s.seqlen_q, s.n_heads_q, 64));

  AttentionParams p =
      attention_params(call, v.tile_m(), v.section_mb, 2 * bytes * s.seqlen_k * s.head_dim);
  p.q_descale = call.q_descale, p.k_descale = call.k_descale, p.v_descale = call.v_descale;

  // The tile that is not full is the causal mask's shortest, not its longest.
  if (s.is_causal && !s.features.is_packed && !v.q_registers)
    p.row_shift = static_cast<int>((p.n_tiles_m * v.tile_m() - s.seqlen_q) / 64 * 64);

  const int n_blocks = std::min(p.n_tiles, n_multiprocessors_);
  const Grid grid{{n_blocks, 1, 1}, {v.threads(), 1, 1}, v.smem_bytes(), true};
  return TEGULA_TRY(Driver::get())
      ->start(function_, grid, call.stream, "launching attention_sm90", q, k, w, o, p);
}

}  // namespace tegula::cuda
