#include "tegula/kernels/cuda/attention_bwd.h"

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cuda/attention_f32.h"

namespace tegula::cuda {

namespace {

constexpr int kTile = 64;   // rows of a tile that passes by
constexpr int kKeys = 128;  // of a block of attention_bwd_sm90; attention_bwd_kv owns kTile
constexpr int kBarrier_bytes = 256, kAlign_bytes = 1024;
constexpr int kNarrow_barrier_bytes = 512;  // with what the ordered mode says of tiles
constexpr int kRepair_blocks = 264;
constexpr int64_t kHead_floats = 64;  // of the workspace: one counter, alone in its line
// The data that passes by, of the heads worked on at once, should stay in the L2 cache.
constexpr int64_t kSection_bytes = 16 << 20;
// Where units differ in length, so many are begun longest first at the end.
constexpr int64_t kEnd_units = 512, kOrdered_end_units = 256;
// Added to in order, units of a head wait for each other (without a mask, and at the end), and
// those of other heads do not.
constexpr int64_t kOrdered_rows = 32768, kOrdered_heads = 16;  // of a section: queries, at most
constexpr int64_t kOrdered_rows_128 = 65536;                   // with head_dim 128
// For short sequences zeroes for dq and a last pass over it cost more than its order does, where
// there are blocks enough that none waits.
constexpr int64_t kShort_keys = 1024, kShort_units = 1024;

// Bytes of 64 rows in shared memory, which holds whole boxes of 64 columns.
int tile_bytes(int head_dim) { return static_cast<int>(round_up(head_dim, 64)) * kTile * 2; }

// attention_bwd_sm90: K and V, stages of Q and dO with lse and delta, three of dS, a sum of dQ.
int narrow_smem_bytes(int head_dim, bool in_order) {
  const int stages = head_dim == 64 ? 4 : 2;
  return 4 * tile_bytes(head_dim) + 6 * kKeys * kTile + (in_order ? 4 * kTile * head_dim : 0) +
         stages * (2 * tile_bytes(head_dim) + 8 * kTile) + kNarrow_barrier_bytes;
}
// attention_bwd_kv: K and V, stages of Q and dO with lse and delta, the weights.
int kv_smem_bytes(int head_dim) {
  const int stages = head_dim == 256 ? 2 : 3;
  return 2 * tile_bytes(head_dim) + stages * (2 * tile_bytes(head_dim) + 8 * kTile) +
         4 * kTile * kTile + 512 + kBarrier_bytes + kAlign_bytes;
}
// attention_f32_bwd_sm90: parts of K and V, slots of Q or dO with lse or delta, parts of dS.
int f32_keys(int head_dim) { return head_dim == 64 ? kKeys : kTile; }
int f32_smem_bytes(int head_dim) {
  const int slots = head_dim == 64 ? 3 : 2;
  return 3 * (2 * f32_keys(head_dim) / kTile + slots) * tile_bytes(head_dim) + 4 * kTile * slots +
         3 * 2 * kTile * f32_keys(head_dim) + kBarrier_bytes + kAlign_bytes;
}
// attention_bwd_mma_kv: K and V, two of Q and dO with lse and delta, weights and dSᵀ in their place
// or, with two shares, beside them and beside weights for the other share; what dropout keeps.
int mma_keys(const AttentionBwdVariant& v) {
  return v.mma_pairs / v.mma_shares * 16 * v.mma_groups;
}
int mma_kv_smem_bytes(const AttentionBwdVariant& v) {
  const int row = tile_bytes(v.head_dim) / kTile, keys = mma_keys(v), queries = v.mma_queries;
  // f32 where a rounding is not lost in that of dS: half of it then in the place of a dSᵀ.
  const bool is_f32 = (v.is_f16 || !v.features.score_fn.empty()) && !v.mma_adds_dq;
  const int box = 128 * keys, of_weight = is_f32 ? 4 : 2, slots = v.mma_adds_dq ? 2 : 1;
  const int handed =
      v.mma_shares == 1 ? slots * ceil_div(of_weight * queries, 2 * kTile) * box
                        : (of_weight + 2) * keys * queries + slots * ceil_div(queries, kTile) * box;
  return 2 * row * (keys + 2 * queries) + handed + 16 * queries +
         (v.features.has_dropout ? 4 * 32 * v.mma_pairs * v.mma_groups : 0);
}
// attention_bwd_mma_q: Q and dO, two of K and V.
constexpr int kMma_q_warps = 4;
int mma_unit_queries(const AttentionBwdVariant& v) {
  // Its registers have no room for two groups of wide rows.
  return kMma_q_warps * 16 * (v.head_dim > 128 ? 1 : v.mma_groups);
}
int mma_q_smem_bytes(const AttentionBwdVariant& v) {
  return 2 * tile_bytes(v.head_dim) / kTile * (mma_unit_queries(v) + 2 * v.mma_keys);
}
int first_smem_bytes(const AttentionBwdVariant& v) {
  if (v.is_mma) return mma_kv_smem_bytes(v);
  if (v.is_f32) return f32_smem_bytes(v.head_dim);
  return v.is_wide() ? kv_smem_bytes(v.head_dim) : narrow_smem_bytes(v.head_dim, v.adds_in_order());
}

// The keys of a block that sums dK and dV.
int unit_keys(const AttentionBwdVariant& v) {
  if (v.is_mma) return mma_keys(v);
  return v.is_f32 ? f32_keys(v.head_dim) : v.is_wide() ? kTile : kKeys;
}

constexpr int kQ_consumers = 2;  // of attention_bwd_q: warpgroups of 64 queries
// Q and dO, stages of K and V.
int q_smem_bytes(const AttentionBwdVariant& v) {
  if (v.is_mma) return mma_q_smem_bytes(v);
  const int stages = v.head_dim == 256 ? 3 : v.head_dim == 192 ? 5 : 7;
  return (2 * kQ_consumers + stages) * tile_bytes(v.head_dim) + kBarrier_bytes + kAlign_bytes;
}

// The queries of a block that sums dQ.
int unit_queries(const AttentionBwdVariant& v) {
  return v.is_mma ? mma_unit_queries(v) : kTile * kQ_consumers;
}

// Counters of a tile of dQ that parts are added to in order: by mma.sync of each 16 rows, or of
// each 32 and each warp's columns; in f32 of each 16 rows, or of each 16 and half of the columns.
int orders_of_tile(const AttentionBwdVariant& v) {
  if (!v.adds_in_order()) return 0;
  if (v.is_f32) return v.head_dim == 64 ? 4 : 8;
  return !v.is_mma ? 1 : v.mma_shares == 1 ? 4 : 2 * v.mma_pairs;
}

// The units of rows in units of `rows`: attention_score.cuh, part_of_tile.
int64_t n_units(const AttentionShape& s, int64_t size, int64_t rows, int64_t n_sequences) {
  return s.features.is_packed ? size / rows + n_sequences + 2 : ceil_div(size, rows);
}
int64_t workspace_rows(const AttentionShape& s, int64_t n_sequences) {
  return s.batch * s.n_heads_q * n_units(s, s.seqlen_q, kTile, n_sequences) * kTile;
}

// Without rows a tensor is not read, but maps need some.
Result<HostTensorMap> map_of(const AttentionBwdCall& call, const AttentionOperand& t, bool is_query,
                             int box_rows) {
  const AttentionShape& s = call.shape;
  const int64_t rows = is_query ? s.seqlen_q : s.seqlen_k;
  if (rows == 0) return tensor_map_bf16(call.workspace, {8, 1, 1, 1}, {8, 8, 8}, box_rows);
  return tensor_map_bf16(t.data, {s.head_dim, rows, is_query ? s.n_heads_q : s.n_heads_kv, s.batch},
                         {t.row, t.head, t.batch}, box_rows);
}

// Sums of dq in order are faster.
bool gains_by_order(const AttentionBwdVariant& v, const AttentionShape& s) {
  const AttentionFeatures& f = s.features;
  return v.is_causal && !v.is_wide() && !f.has_window && !f.has_documents && !f.is_packed &&
         s.seqlen_q == s.seqlen_k && s.seqlen_k <= kShort_keys &&
         s.batch * s.n_heads_kv * ceil_div(s.seqlen_k, kKeys) >= kShort_units;
}

// A grid of one or two dims.
template <class... Args>
Status launch_grid(FunctionHandle f, int64_t x, int64_t y, int threads, int smem_bytes,
                   const Stream& stream, const Args&... args) {
  if (x == 0 || y == 0) return {};
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->start(f, {{x, y, 1}, {threads, 1, 1}, smem_bytes}, stream,
                  "launching the backward of attention", args...);
}

// The gradient of a bias has no gaps, and strides of 0 where the bias has.
void set_d_bias(const AttentionBwdCall& call, AttentionBwdParams& p) {
  if (call.shape.features.bias == BiasType::kNone || call.d_bias == nullptr) return;
  const AttentionShape& s = call.shape;
  const AttentionFeatureParams& f = call.given;
  int64_t size = s.seqlen_k;
  auto stride = [&](int64_t given, int64_t extent) -> int64_t {
    if (given == 0 || extent == 1) return 0;
    const int64_t here = size;
    size *= extent;
    return here;
  };
  p.d_bias = call.d_bias;
  p.d_bias_row = stride(f.bias_row, s.seqlen_q);
  p.d_bias_head = stride(f.bias_head, s.n_heads_q);
  p.d_bias_batch = stride(f.bias_batch, s.batch);
  p.d_bias_sums = static_cast<int>(size < s.batch * s.n_heads_q * s.seqlen_q * s.seqlen_k);
}

AttentionBwdParams params(const AttentionBwdCall& call, const AttentionBwdVariant& v) {
  const AttentionShape& s = call.shape;
  const int64_t n = call.given.n_sequences, rows = workspace_rows(s, n);
  auto* workspace = static_cast<float*>(call.workspace);
  AttentionBwdParams p{};
  const int64_t tiles = round_up(rows / kTile, kHead_floats);
  p.leaked = reinterpret_cast<unsigned*>(workspace), p.ticket = p.leaked + 1;
  p.lse2 = workspace + kHead_floats, p.delta = p.lse2 + rows, p.sink_parts = p.delta + rows;
  p.orders_of_tile = orders_of_tile(v);
  p.order = reinterpret_cast<unsigned*>(p.sink_parts + tiles);
  if (!v.has_dq_kernel()) p.dq_sum = p.sink_parts + (1 + p.orders_of_tile) * tiles;
  p.lse = call.lse, p.d_lse = call.d_lse, p.d_sinks = call.d_sinks;
  set_d_bias(call, p);
  p.seqlen_q = static_cast<int>(s.seqlen_q), p.seqlen_k = static_cast<int>(s.seqlen_k);
  p.n_heads_q = static_cast<int>(s.n_heads_q), p.n_heads_kv = static_cast<int>(s.n_heads_kv);
  p.group = p.n_heads_q / p.n_heads_kv;
  p.head_dim = static_cast<int>(s.head_dim), p.batch = static_cast<int>(s.batch);
  p.n_tiles_m = static_cast<int>(n_units(s, s.seqlen_q, kTile, n));
  p.n_units_k = static_cast<int>(n_units(s, s.seqlen_k, unit_keys(v), n));
  p.n_units_q = static_cast<int>(n_units(s, s.seqlen_q, unit_queries(v), n));
  p.scale = call.scale, p.scale_log2 = call.scale * 1.44269504F;
  p.f = call.given;
  p.q = tensor_of(call.q), p.k = tensor_of(call.k), p.v = tensor_of(call.v);
  p.o = tensor_of(call.o), p.d_o = tensor_of(call.d_o);
  p.dq = tensor_of(call.dq), p.dk = tensor_of(call.dk), p.dv = tensor_of(call.dv);
  return p;
}

// Without a mask all tiles cost the same, and one head after the other reads what passes by once.
void set_sections(AttentionBwdParams& p, const AttentionBwdVariant& v, const AttentionShape& s,
                  int64_t head_bytes) {
  const int64_t all = s.batch * s.n_heads_kv, most = v.may_leak() ? all : 1;
  int64_t heads = std::clamp<int64_t>(kSection_bytes / std::max<int64_t>(1, head_bytes), 1, most);
  int64_t at_end = heads;
  if (v.adds_in_order() ? v.has_ranges() : v.may_leak()) {
    const int64_t units = v.adds_in_order() ? kOrdered_end_units : kEnd_units;
    at_end = std::clamp<int64_t>(units / std::max(1, p.n_units_k), heads, all);
  } else if (v.adds_in_order()) {
    const int64_t rows = v.head_dim == 128 ? kOrdered_rows_128 : kOrdered_rows;
    const int64_t in_order = rows / std::max<int64_t>(1, s.seqlen_q);
    at_end = heads = std::max(heads, std::min({in_order, kOrdered_heads, all}));
  }
  p.heads_per_section = static_cast<int>(heads);
  p.heads_at_end = static_cast<int>(all - (all - at_end) / heads * heads);
}

}  // namespace

bool AttentionBwdVariant::has_ranges() const {
  return is_causal || features.has_window || features.has_documents || features.is_packed ||
         !features.mask_fn.empty() || features.bias != BiasType::kNone;
}

const char* AttentionBwdVariant::source() const {
  if (is_mma) return "attention_bwd_mma.cu";
  if (is_f32) return "attention_f32_bwd_sm90.cu";
  return is_wide() ? "attention_bwd_wide_sm90.cu" : "attention_bwd_sm90.cu";
}

std::string AttentionBwdVariant::name() const {
  return cat(is_mma ? "bwd_mma_d" : "bwd_d", head_dim, is_causal ? "_causal" : "_full",
             adds_in_order() ? "_ordered" : "",
             is_f32   ? "_f32"
             : is_f16 ? "_f16"
                      : "",
             is_mma ? cat("_g", mma_groups, "p", mma_pairs, "s", mma_shares, "m", mma_queries,
                          mma_adds_dq ? std::string("_adds") : cat("_n", mma_keys))
                    : std::string(),
             features.name());
}

std::vector<std::string> AttentionBwdVariant::defines() const {
  std::vector<std::string> d = {cat("TEGULA_HEAD_DIM=", head_dim),
                                cat("TEGULA_CAUSAL=", int{is_causal})};
  if (adds_in_order()) d.emplace_back("TEGULA_ORDERED=1");
  if (is_f16) d.emplace_back("TEGULA_F16=1");
  if (is_mma) {
    d.push_back(cat("TEGULA_GROUPS=", mma_groups));
    d.push_back(cat("TEGULA_PAIRS=", mma_pairs));
    d.push_back(cat("TEGULA_SHARES=", mma_shares));
    d.push_back(cat("TEGULA_QUERIES=", mma_queries));
    d.push_back(cat("TEGULA_ADDS_DQ=", int{mma_adds_dq}));
    if (!mma_adds_dq) d.push_back(cat("TEGULA_KEYS=", mma_keys));
  }
  for (std::string& f : features.defines()) d.push_back(std::move(f));
  return d;
}

int AttentionBwdVariant::smem_bytes() const {
  return std::max(first_smem_bytes(*this), has_dq_kernel() ? q_smem_bytes(*this) : 0);
}

Result<AttentionBwdVariant> choose_attention_bwd(const AttentionShape& s, bool is_ordered) {
  TEGULA_TRY(check_attention(s, 1));
  AttentionBwdVariant v;
  v.head_dim = padded_head_dim(s.head_dim);
  v.is_causal = s.is_causal, v.is_ordered = is_ordered, v.is_f16 = s.is_f16;
  v.features = s.features;
  if (!s.is_f32) {
    v.is_ordered |= gains_by_order(v, s);
    return v;
  }
  TEGULA_TRY(check_attention_f32(s, 1));
  if (s.head_dim > 128)
    return unsupported(cat("attention_f32_bwd_sm90: head_dim ", s.head_dim,
                           " in f32; the nearest is 128, or bf16, which goes up to 256"));
  if (v.features.bias != BiasType::kNone &&
      (v.features.has_softcap || !v.features.score_fn.empty()))
    return unsupported(
        "attention_f32_bwd_sm90: the gradient of a bias with a softcap or score function; without "
        "either, or in bf16");
  v.is_f32 = true, v.head_dim = s.head_dim <= 64 ? 64 : 128;
  if (v.features.bias == BiasType::kElement) v.features.bias = BiasType::kF32;
  return v;
}

Result<AttentionBwdVariant> choose_attention_bwd_mma(const AttentionShape& s, bool is_ordered,
                                                     int most_smem_bytes) {
  TEGULA_TRY(check_attention_mma(s, 1));
  AttentionBwdVariant v;
  v.is_mma = true, v.is_ordered = is_ordered;
  v.head_dim = padded_head_dim(s.head_dim);
  v.is_causal = s.is_causal, v.is_f16 = s.is_f16;
  v.features = s.features;
  const AttentionFeatures& f = v.features;
  const bool is_wide = v.head_dim > 128;
  constexpr int kUnit_bytes = 256;  // what a block knows of its unit
  v.mma_adds_dq = !f.is_heavy();
  if (is_wide)
    v.mma_shares = 2;
  else if (f.has_window || f.is_packed || f.has_documents || f.is_heavy())
    v.mma_groups = 1;  // registers for every score's work, or for each row's keys
  else if (v.head_dim == 64)
    v.mma_queries = 128;
  const auto fits = [&] { return v.smem_bytes() + kUnit_bytes <= most_smem_bytes; };
  if (!fits()) v.mma_queries /= 2;
  if (!fits()) v.mma_groups = 1;
  if (!fits()) v.mma_pairs = 2, v.mma_shares = 1, v.mma_queries = v.mma_keys = 16;
  v.mma_adds_dq &= v.mma_queries >= 32;
  return v;
}

int64_t attention_bwd_workspace_bytes(const AttentionBwdVariant& v, const AttentionShape& s,
                                      int64_t n_sequences) {
  const int64_t rows = workspace_rows(s, n_sequences);
  const int64_t parts = v.is_f32
                            ? 2 * split_bytes(s.batch * s.n_heads_q, s.seqlen_q, v.head_dim) +
                                  2 * split_bytes(s.batch * s.n_heads_kv, s.seqlen_k, v.head_dim)
                            : 0;
  return parts + 4 * (kHead_floats + rows * (2 + (v.has_dq_kernel() ? 0 : v.head_dim)) +
                      (1 + orders_of_tile(v)) * round_up(rows / kTile, kHead_floats));
}

Result<AttentionBwdKernel> AttentionBwdKernel::load(const AttentionBwdVariant& v,
                                                    const std::string& cubin) {
  if (!v.is_mma) TEGULA_TRY(hopper_multiprocessors());
  AttentionBwdKernel k(v, TEGULA_TRY(Module::load(cubin)));
  k.before_ = TEGULA_TRY(k.module_.function("attention_bwd_before", 0));
  k.first_ = TEGULA_TRY(k.module_.function(v.is_mma      ? "attention_bwd_mma_kv"
                                           : v.is_f32    ? "attention_f32_bwd_sm90"
                                           : v.is_wide() ? "attention_bwd_kv"
                                                         : "attention_bwd_sm90",
                                           first_smem_bytes(v)));
  if (v.is_mma || v.is_f32 || !v.adds_in_order())
    k.second_ = TEGULA_TRY(k.module_.function(
        v.is_mma      ? v.mma_adds_dq ? "attention_bwd_mma_after" : "attention_bwd_mma_q"
        : v.is_f32    ? "attention_f32_bwd_after"
        : v.is_wide() ? "attention_bwd_q"
                      : "attention_bwd_after",
        v.has_dq_kernel() ? q_smem_bytes(v) : 0));
  if (v.is_f32) k.split_ = TEGULA_TRY(k.module_.function("attention_split", 0));
  k.repair_ = TEGULA_TRY(k.module_.function("attention_bwd_repair", 0));
  if (v.features.has_sinks) k.sinks_ = TEGULA_TRY(k.module_.function("attention_bwd_sinks", 0));
  return k;
}

Status AttentionBwdKernel::check(const AttentionBwdCall& call) const {
  const AttentionShape& s = call.shape;
  const AttentionBwdVariant wanted =
      TEGULA_TRY(variant_.is_mma ? choose_attention_bwd_mma(s, variant_.is_ordered)
                                 : choose_attention_bwd(s, variant_.is_ordered));
  const std::string features = wanted.features.name();
  if (wanted.head_dim != variant_.head_dim || s.is_causal != variant_.is_causal ||
      s.is_f16 != variant_.is_f16 || s.is_f32 != variant_.is_f32 ||
      features != variant_.features.name())
    return internal_error(cat("variant ", variant_.name(), " got a call of head_dim ", s.head_dim,
                              s.is_causal ? " causal" : "", s.features.name()));
  TEGULA_TRY(check_attention(s, call.scale));
  TEGULA_TRY(check_features(s.features, call.given, s.batch));
  if (s.features.has_sinks && call.d_sinks == nullptr)
    return invalid_argument("attention backward: sinks need a place for their gradient");
  if (reinterpret_cast<uintptr_t>(call.workspace) % 64 != 0 || call.workspace == nullptr)
    return invalid_argument("attention backward: the workspace must be aligned to 64 bytes");
  struct Operand {
    const AttentionOperand* t;
    bool is_query;
    const char* name;
  };
  const Operand in[] = {{&call.q, true, "q"},
                        {&call.k, false, "k"},
                        {&call.v, false, "v"},
                        {&call.o, true, "o"},
                        {&call.d_o, true, "do"}};
  const Operand out[] = {{&call.dq, true, "dq"}, {&call.dk, false, "dk"}, {&call.dv, false, "dv"}};
  auto rows = [&](const Operand& o) { return o.is_query ? s.seqlen_q : s.seqlen_k; };
  auto heads = [&](const Operand& o) { return o.is_query ? s.n_heads_q : s.n_heads_kv; };
  for (const Operand& o : out)
    for (const Operand& i : in)
      TEGULA_TRY(check_apart(*o.t, rows(o), heads(o), *i.t, rows(i), heads(i), s,
                             cat(o.name, " and ", i.name).c_str()));
  if (variant_.is_mma) {
    for (const Operand& t : in) TEGULA_TRY(check_copyable(t.name, *t.t));
    for (const Operand& t : out) TEGULA_TRY(check_copyable(t.name, *t.t));
  }
  return {};
}

// The products of parts, from their making to dQ in its place.
Status AttentionBwdKernel::launch_f32(const AttentionBwdCall& call, AttentionBwdParams p) const {
  const AttentionShape& s = call.shape;
  const int d = variant_.head_dim, keys = unit_keys(variant_);
  SplitParams split{};
  char* at = static_cast<char*>(call.workspace) +
             attention_bwd_workspace_bytes(variant_, s, call.given.n_sequences) -
             2 * split_bytes(s.batch * s.n_heads_q, s.seqlen_q, d) -
             2 * split_bytes(s.batch * s.n_heads_kv, s.seqlen_k, d);
  add_split(split, 0, call.q, s.seqlen_q, s.n_heads_q, s.batch, d, at);
  add_split(split, 1, call.d_o, s.seqlen_q, s.n_heads_q, s.batch, d, at);
  add_split(split, 2, call.k, s.seqlen_k, s.n_heads_kv, s.batch, d, at);
  add_split(split, 3, call.v, s.seqlen_k, s.n_heads_kv, s.batch, d, at);
  TEGULA_TRY(launch_split(split_, split, 4, s, d, nullptr, call.stream));
  // Without rows a tensor is not read, but maps need some.
  const int of_q = s.seqlen_q > 0 ? 0 : 2, of_k = s.seqlen_k > 0 ? 2 : 0;
  if (s.seqlen_q > 0 || s.seqlen_k > 0) {
    HostTensorMap q = TEGULA_TRY(map_of_parts(split.t[of_q], s.batch, d, kTile));
    HostTensorMap d_o = TEGULA_TRY(map_of_parts(split.t[of_q + 1], s.batch, d, kTile));
    HostTensorMap k = TEGULA_TRY(map_of_parts(split.t[of_k], s.batch, d, keys));
    HostTensorMap v = TEGULA_TRY(map_of_parts(split.t[of_k + 1], s.batch, d, keys));
    set_sections(p, variant_, s, 2 * split_bytes(p.group, s.seqlen_q, d));
    TEGULA_TRY(launch_grid(first_, p.n_units_k * s.batch * s.n_heads_kv, 1, 384,
                           first_smem_bytes(variant_), call.stream, q, k, v, d_o, p));
  }
  return launch_grid(second_, p.n_tiles_m, s.batch * s.n_heads_q, 256, 0, call.stream, p);
}

// dK and dV, then dQ.
Status AttentionBwdKernel::launch_mma(const AttentionBwdCall& call, AttentionBwdParams p) const {
  const AttentionShape& s = call.shape;
  const AttentionBwdVariant& v = variant_;
  const int64_t q_heads = s.batch * s.n_heads_q, passing = v.mma_adds_dq ? 8 : 4;
  set_sections(p, v, s, passing * s.seqlen_q * s.head_dim * p.group);
  TEGULA_TRY(launch_grid(first_, p.n_units_k * s.batch * s.n_heads_kv, 1, 64 * v.mma_pairs,
                         first_smem_bytes(v), call.stream, p));
  if (v.mma_adds_dq) return launch_grid(second_, p.n_tiles_m, q_heads, 256, 0, call.stream, p);
  set_sections(p, v, s, 4 * s.seqlen_k * s.head_dim);
  return launch_grid(second_, p.n_units_q * q_heads, 1, 32 * kMma_q_warps, q_smem_bytes(v),
                     call.stream, p);
}

Status AttentionBwdKernel::launch(const AttentionBwdCall& call) const {
  TEGULA_TRY(check(call));
  const AttentionShape& s = call.shape;
  const AttentionBwdVariant& variant = variant_;
  if (s.batch == 0) return {};
  const int64_t q_heads = s.batch * s.n_heads_q, kv_heads = s.batch * s.n_heads_kv;
  AttentionBwdParams p = params(call, variant);
  TEGULA_TRY(launch_grid(before_, p.n_tiles_m, q_heads, 256, 0, call.stream, p));
  if (p.n_tiles_m == 0) {  // no block has zeroed the tickets
    const Driver* d = TEGULA_TRY(Driver::get());
    TEGULA_TRY(d->start_fill(p.leaked, 0, 4 * kHead_floats, call.stream));
  }
  if (variant.features.has_sinks)
    TEGULA_TRY(launch_grid(sinks_, s.n_heads_q, 1, 32, 0, call.stream, p));

  if (variant.is_f32) {
    TEGULA_TRY(launch_f32(call, p));
    return launch_grid(repair_, kRepair_blocks, 1, 256, 0, call.stream, p);
  }
  if (variant.is_mma) {
    TEGULA_TRY(launch_mma(call, p));
    return variant.may_leak() && s.seqlen_q > 0
               ? launch_grid(repair_, kRepair_blocks, 1, 256, 0, call.stream, p)
               : Status{};
  }
  const int key_rows = unit_keys(variant);
  HostTensorMap q = TEGULA_TRY(map_of(call, call.q, true, kTile));
  HostTensorMap d_o = TEGULA_TRY(map_of(call, call.d_o, true, kTile));
  HostTensorMap k = TEGULA_TRY(map_of(call, call.k, false, key_rows));
  HostTensorMap v = TEGULA_TRY(map_of(call, call.v, false, key_rows));
  HostTensorMap dk = TEGULA_TRY(map_of(call, call.dk, false, kTile));
  HostTensorMap dv = TEGULA_TRY(map_of(call, call.dv, false, kTile));
  if (variant.is_wide()) {
    HostTensorMap q_own = TEGULA_TRY(map_of(call, call.q, true, kQ_consumers * kTile));
    HostTensorMap do_own = TEGULA_TRY(map_of(call, call.d_o, true, kQ_consumers * kTile));
    HostTensorMap dq = TEGULA_TRY(map_of(call, call.dq, true, kTile));
    set_sections(p, variant, s, 4 * s.seqlen_k * s.head_dim);
    TEGULA_TRY(launch_grid(second_, p.n_units_q * q_heads, 1, 128 * (1 + kQ_consumers),
                           q_smem_bytes(variant), call.stream, q_own, k, v, do_own, dq, p));
    p.is_second = static_cast<int>(p.n_units_q > 0);
  }
  set_sections(p, variant, s, (variant.is_wide() ? 4 : 8) * s.seqlen_q * s.head_dim * p.group);
  const int64_t blocks = p.n_units_k * kv_heads;
  if (p.is_second != 0 && blocks > 0) {  // fills what the kernel before leaves idle
    const Driver* d = TEGULA_TRY(Driver::get());
    const Grid grid{{blocks, 1, 1}, {384, 1, 1}, first_smem_bytes(variant), true};
    TEGULA_TRY(d->start(first_, grid, call.stream, "launching the backward of attention", q, k, v,
                        d_o, dk, dv, p));
  } else {
    TEGULA_TRY(launch_grid(first_, blocks, 1, 384, first_smem_bytes(variant), call.stream, q, k, v,
                           d_o, dk, dv, p));
  }
  if (!variant.is_wide() && !variant.adds_in_order())
    TEGULA_TRY(launch_grid(second_, p.n_tiles_m, q_heads, 256, 0, call.stream, p));
  if (variant.may_leak() && s.seqlen_q > 0)
    TEGULA_TRY(launch_grid(repair_, kRepair_blocks, 1, 256, 0, call.stream, p));
  return {};
}

}  // namespace tegula::cuda
