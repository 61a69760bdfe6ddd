#include "tegula/kernels/cpu/common/attention.h"

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/dot_plan.h"
#include "tegula/kernels/cpu/common/grid_tasks.h"

namespace tegula::kernel {

namespace {
bool is_f32_like(DType t) { return t == DType::kF32 || t == DType::kBF16 || t == DType::kF16; }

int64_t read_i32(const TensorRef& t, int64_t i) { return t.as<int32_t>()[i * t.stride[0]]; }
}  // namespace

Result<AttentionCall> parse_attention(const Attrs& a, std::span<const TensorRef> in,
                                      bool is_backward, const AttentionTakes& takes) {
  AttentionCall c{};
  size_t next = is_backward ? 6 : 3;
  const auto take = [&](bool present) {
    return !present ? nullptr : next < in.size() ? &in[next++] : (++next, nullptr);
  };
  c.bias = take(a.flag("bias")), c.alibi = take(a.flag("alibi"));
  const bool is_paged = a.flag("paged");
  c.cu_q = take(a.flag("varlen")), c.cu_k = take(a.flag("varlen") && !is_paged);
  c.seqlens_k = take(is_paged), c.table = take(is_paged);
  c.dropout = a.get_or<double>("dropout", 0);
  c.seed = take(c.dropout > 0), c.dlse = take(a.flag("dlse"));
  for (const TensorRef*& factor : c.descale) factor = take(a.flag("descale"));
  const auto part = a.get_or<std::string>("part", "");
  if (!part.empty() && !takes.parts)
    return unsupported("attention: a part of the keys: attend to it alone, then join");
  const bool goes_on = !is_backward && (part == "middle" || part == "last");
  c.o_before = take(goes_on), c.lse_before = take(goes_on);
  c.is_part = !part.empty() && part != "last";
  if (next != in.size())
    return invalid_argument(cat("attention: ", in.size(), " operands instead of ", next));
  c.q = &in[0], c.k = &in[1], c.v = &in[2];
  if (is_backward) c.o = &in[3], c.lse = &in[4], c.d_o = &in[5];
  const bool is_e4m3 = in[0].dtype == DType::kF8E4M3;
  if (is_e4m3 && !takes.e4m3)
    return unsupported(
        "attention: q is f8e4m3, which attention_sm90 takes (forward, head_dim a multiple of 16 up "
        "to 256): cast q, k and v to bf16");
  const DType of_q = in[0].dtype, of_k = in[1].dtype;
  const bool is_narrow = of_q == DType::kF32 && size_bits(of_k) == 16;
  if (is_narrow && !takes.narrow_keys)
    return unsupported(cat("attention: keys are ", of_k, " beside queries in ", of_q,
                           ", which attention_flash and attention_decode take, on a CPU: cast q"));
  for (size_t i = 0; i < (is_backward ? 6u : 3u); ++i)
    if (i != 4 &&
        (in[i].rank != 4 || in[i].dtype != (is_narrow && (i == 1 || i == 2) ? of_k : of_q) ||
         !(is_e4m3 || is_f32_like(of_q))))
      return unsupported("attention: q, k and v must be f32, bf16 or f16 of rank 4");
  if (is_backward && c.lse->dtype != DType::kF32) return unsupported("attention: lse must be f32");
  c.batch = c.q->shape[0], c.n_q = c.q->shape[1], c.n_heads = c.q->shape[2], c.d = c.q->shape[3];
  c.n_k = c.k->shape[1], c.n_kv_heads = c.k->shape[2], c.dv = c.v->shape[3];
  if (is_paged) {
    if (!takes.pages) return unsupported("attention: keys in pages: gather them first");
    if (goes_on) return unsupported("attention: a part of keys in pages: attend alone, then join");
    c.page = c.n_k, c.n_k = c.k->shape[0] == 0 ? 0 : c.page * c.table->shape[1];
    if (c.page % kKeyBlock != 0 && c.table->shape[1] > 1)
      return unsupported(cat("attention: pages of ", c.page, " keys: a multiple of ", kKeyBlock,
                             ", or one page a sequence, is read where it lies"));
  }
  if (c.n_kv_heads == 0 || c.n_heads % c.n_kv_heads != 0)
    return unsupported(cat("attention: ", c.n_heads, " heads over ", c.n_kv_heads));
  c.group = c.n_heads / c.n_kv_heads;
  c.scale = static_cast<float>(a.f("scale"));
  c.softcap = static_cast<float>(a.get_or<double>("softcap", 0));
  c.is_causal = a.flag("is_causal");
  c.left = a.get_or<int64_t>("window_left", -1), c.right = a.get_or<int64_t>("window_right", -1);
  if (a.has("q_runs")) c.q_runs = PositionRuns::of(a.ints("q_runs"));
  if (a.has("k_runs")) c.k_runs = PositionRuns::of(a.ints("k_runs"));
  if (!c.k_runs.ascends()) return unsupported("attention: keys out of order: sort them first");
  c.q_offset = a.has("q_runs") ? c.q_runs.start : c.n_k - c.n_q, c.k_offset = c.k_runs.start;
  if (c.alibi != nullptr && !c.k_runs.is_one())
    return unsupported("attention: ALiBi over keys in runs");
  c.stream = static_cast<uint64_t>(a.get_or<int64_t>("stream", 0));
  c.whole[0] = c.n_heads, c.whole[1] = c.n_q, c.whole[2] = c.n_k;
  if (a.has("within")) {
    std::copy_n(a.ints("within").begin(), 4, c.origin);
    std::copy_n(a.ints("within").begin() + 4, 3, c.whole);
  }
  return c;
}

KeyRange keys_in_runs(const AttentionCall& c, int64_t i) {
  const int64_t at = c.q_runs.is_one() ? c.q_offset + i : c.q_runs.at(i);
  KeyRange r{0, c.n_k, at - c.k_offset};
  const int64_t right = c.is_causal ? 0 : c.right;
  if (right >= 0) r.hi = c.k_runs.before(at + right + 1, c.n_k);
  if (c.left >= 0) r.lo = c.k_runs.before(at - c.left, c.n_k);
  return r;
}

KeyRange sequence_keys(const AttentionCall& c, int64_t i) {
  // The last sequence that begins at or before i: empty ones begin there too, but earlier.
  int64_t s = -1, end = c.cu_q->shape[0];
  while (end - s > 1) {
    const int64_t mid = s + (end - s) / 2;
    (read_i32(*c.cu_q, mid) <= i ? s : end) = mid;
  }
  if (s < 0 || s + 1 == c.cu_q->shape[0]) return {};
  const int64_t q0 = read_i32(*c.cu_q, s), n_q = read_i32(*c.cu_q, s + 1) - q0;
  const int64_t lo = read_i32(*c.cu_k, s), hi = read_i32(*c.cu_k, s + 1);
  return {lo, hi, i - q0 + hi - n_q};
}

AttentionWorkspace::AttentionWorkspace(const AttentionCall& c, bool is_backward) {
  const int64_t d = round_up(c.d, kMaxTileN), dv = round_up(c.dv, kMaxTileN);
  const int64_t blocks = ceil_div(c.n_k, kKeyBlock);
  const int64_t strips = kRowBlock / 4;  // of the narrowest register tile
  const int64_t batch = c.page > 0 ? 1 : c.batch;
  const int64_t q_floats = kRowBlock * c.d + strips * kPanelSlack;
  if (!is_backward) {
    pairs_ = batch * c.n_kv_heads;
    pair_panels_ = blocks * key_block_floats(c);
    const int64_t rows = c.n_q * c.group;
    row_blocks_ = batch * c.n_kv_heads * ceil_div(rows, kRowBlock);
    spans_ = ceil_div(c.n_k, kKeySpan);
    row_floats_ = round_up(std::min<int64_t>(rows, kRowBlock) * (dv + 2), 16);
    thread_floats = q_floats + 2 * kMaxTileM * kKeyBlock + kRowBlock * dv + key_block_floats(c) +
                    kRowBlock * (dv + 2);
  } else {
    const int64_t keys = blocks * kKeyBlock;
    const int64_t row_blocks = ceil_div(c.n_q * c.group, kRowBlock);
    pair_floats = keys * (c.d + c.dv) + keys * (2 * d + dv);              // k, v, k again, dk, dv
    pair_floats += row_blocks * kRowBlock * d;                            // dq
    thread_floats = kRowBlock * (c.d + c.dv) + 2 * strips * kPanelSlack;  // rows as strips
    thread_floats += 2 * c.dv * 16;                                       // rows of o and do
    thread_floats += kRowBlock * (d + dv) + 2 * kRowBlock * kKeyBlock;    // q, do; p, ds
    if (c.bias != nullptr) thread_floats += kRowBlock * kKeyBlock;        // db
    if (c.bias != nullptr && !c.owns_bias()) thread_floats += c.bias->shape[2] * kBiasKeys;
    pair_floats = round_up(pair_floats + 16 * 16, 16);
    grid_ints_ = GridTasks::state_ints(c.batch * c.n_kv_heads);
  }
  thread_floats = round_up(thread_floats + 16 * 16, 16);
}

}  // namespace tegula::kernel
