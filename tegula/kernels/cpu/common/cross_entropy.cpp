#include "tegula/kernels/cpu/common/cross_entropy.h"

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/dot_thin_plan.h"

namespace tegula::kernel {

namespace {
Loops one_dim(int64_t extent, int64_t stride) {
  Factor f;
  f.extent = extent, f.stride[kA] = f.stride[kB] = stride;
  Loops l;
  l.add(f);
  return l;
}

int64_t chunk_for(int64_t width) {
  return std::max<int64_t>(kPanelFloats / std::max<int64_t>(width, 1) / kVocabBlock, 1) *
         kVocabBlock;
}
}  // namespace

Result<CrossEntropyCall> parse_cross_entropy(std::span<const TensorRef> in, const Attrs& attrs,
                                             bool is_backward) {
  if (in.size() != (is_backward ? 6u : 3u) || in[0].rank < 1 || in[1].rank != 2)
    return invalid_argument("linear_cross_entropy: operands misfit");
  CrossEntropyCall c;
  c.x = &in[0], c.w = &in[1], c.targets = &in[2];
  c.is_transposed = attrs.flag("transposed");
  c.ignore_index = attrs.get_or<int64_t>("ignore_index", -100);
  const DType t = c.x->dtype;
  if ((t != DType::kF32 && t != DType::kBF16 && t != DType::kF16) || c.w->dtype != t ||
      (c.targets->dtype != DType::kI32 && c.targets->dtype != DType::kI64))
    return unsupported("linear_cross_entropy: x and w must be f32, bf16 or f16");
  for (size_t i = 3; i < in.size(); ++i)
    if (in[i].dtype != DType::kF32) return unsupported("linear_cross_entropy: lse must be f32");
  const int lead = c.x->rank - 1;
  for (int i = 0; i < lead; ++i) {
    Factor f;
    f.extent = c.x->shape[i];
    f.stride[kA] = c.x->stride[i], f.stride[kB] = c.targets->stride[i];
    c.tokens.add(f);
  }
  c.n_tokens = c.tokens.count, c.d = c.x->shape[lead], c.v = c.w->shape[c.is_transposed];
  if (c.v == 0) return unsupported("linear_cross_entropy: no columns");
  c.x_d = one_dim(c.d, c.x->stride[lead]);
  c.w_v = one_dim(c.v, c.w->stride[c.is_transposed]);
  c.w_d = one_dim(c.d, c.w->stride[!c.is_transposed]);
  c.chunk = std::min(round_up(c.v, kVocabBlock), chunk_for(c.d));
  if (is_backward) c.chunk = std::min(c.chunk, chunk_for(c.n_tokens));
  return c;
}

CrossEntropyWorkspace::CrossEntropyWorkspace(const CrossEntropyCall& c, bool is_backward) {
  const int64_t d = round_up(c.d, kMaxTileN), v = round_up(c.v, kVocabBlock), n = c.n_tokens;
  const auto at_most = [&](int64_t width) {
    return std::min(v * width, std::max(kPanelFloats, kVocabBlock * width));
  };
  const int64_t strips = kTokenBlock / 4;
  w_t = at_most(c.d);
  thread = kTokenBlock * c.d + strips * kPanelSlack + kMaxTileM * kVocabBlock;
  if (!is_backward) {
    state = 2 * n;
  } else {
    w = at_most(d), x = n * d, dx = n * d, g = at_most(n);
    thread = std::max(thread, kMaxTileM * n + kPanelSlack + kMaxTileM * kMaxTileN);
  }
  for (int64_t* part : {&w_t, &state, &w, &x, &dx, &g, &thread}) *part = round_up(*part + 16, 16);
}

namespace {
constexpr int64_t kKeptFloats = int64_t{1} << 25;      // of logits: 128 MiB
constexpr int64_t kKeptBf16Floats = int64_t{1} << 26;  // the same where no more tokens follow
constexpr int64_t kLeastTokens = 48;                   // fewer make the products' sums too short
constexpr int64_t kPassColumns = 4096;                 // what three products and two passes go over
constexpr int64_t kGradsPanel = 1024;                  // longer sums wait between blocks of k

Factor factor(int64_t extent, int64_t a, int64_t b, int64_t out) {
  Factor f;
  f.extent = extent, f.stride[kA] = a, f.stride[kB] = b, f.stride[kOut] = f.stride[kBias] = out;
  return f;
}
Contraction product(const Factor& m, const Factor& n, const Factor& k, bool is_more, DType in,
                    DType out) {
  Contraction c;
  c.m.add(m), c.n.add(n), c.k.add(k);
  c.accumulates = is_more, c.in_dtype = in, c.out_dtype = out;
  return c;
}
// Rows (all dims but the last) one stride apart, their elements side by side.
bool has_plain_rows(const TensorRef& t, int64_t* row) {
  Loops rows;
  for (int i = 0; i + 1 < t.rank; ++i) rows.add(factor(t.shape[i], t.stride[i], 0, 0));
  return t.rank >= 1 && (t.stride[t.rank - 1] == 1 || t.shape[t.rank - 1] == 1) &&
         rows.is_linear(kA, row);
}
}  // namespace

Result<CrossEntropyGradsCall> parse_cross_entropy_grads(std::span<const TensorRef> in,
                                                        std::span<const TensorRef> out,
                                                        const Attrs& attrs) {
  if (in.size() != 5 || out.size() != 4)
    return invalid_argument("linear_cross_entropy_grads: operands misfit");
  CrossEntropyGradsCall g;
  g.c = TEGULA_TRY(parse_cross_entropy(in.first(3), attrs, false));
  g.is_bf16 = in[0].dtype == DType::kBF16;
  for (const TensorRef* t : {&in[0], &out[2], &out[3]})
    if (t->dtype != (g.is_bf16 ? DType::kBF16 : DType::kF32))
      return unsupported("linear_cross_entropy_grads: x, dx and dw must be f32 or bf16");
  for (const TensorRef* t : {&in[3], &in[4], &out[0], &out[1]})
    if (t->dtype != DType::kF32) return unsupported("linear_cross_entropy_grads: lse must be f32");
  if (g.c.is_transposed || !has_plain_rows(in[0], &g.x_row) || !has_plain_rows(in[1], &g.w_row) ||
      !has_plain_rows(out[2], &g.dx_row) || !has_plain_rows(out[3], &g.dw_row))
    return unsupported("linear_cross_entropy_grads: x, w, dx and dw need plain rows, w as [v, d]");
  const int64_t most = g.is_bf16 ? g.c.n_tokens + kLeastTokens : kKeptFloats / g.c.v / 16 * 16 - 16;
  if (most < kLeastTokens)
    return unsupported(cat("linear_cross_entropy_grads: ", g.c.v, " columns are too many"));
  g.tokens = std::min(most, round_up(g.c.n_tokens, 16));
  g.row = g.tokens + 16;  // rows a power of two apart would share sets of a cache
  g.panel = std::min(g.c.chunk, kGradsPanel);
  g.columns = std::max<int64_t>(kPassColumns / g.panel, 1) * g.panel;
  return g;
}

Contraction CrossEntropyGradsCall::logits(int64_t n, int64_t v) const {
  return product(factor(v, w_row, 0, row), factor(n, 0, x_row, 1), factor(c.d, 1, 1, 0), false,
                 c.x->dtype, DType::kF32);
}
Contraction CrossEntropyGradsCall::dw(int64_t n, int64_t v, bool is_more) const {
  return product(factor(v, row, 0, dw_row), factor(c.d, 0, 1, 1), factor(n, 1, x_row, 0), is_more,
                 c.x->dtype, c.x->dtype);
}
Contraction CrossEntropyGradsCall::dx(int64_t n, int64_t v, bool is_more) const {
  return product(factor(n, 1, 0, is_bf16 ? c.d : dx_row), factor(c.d, 0, 1, 1),
                 factor(v, row, w_row, 0), is_more, c.x->dtype, DType::kF32);
}

int64_t CrossEntropyGradsCall::kept_floats() const {
  return is_bf16 ? std::min(c.v * row, kKeptBf16Floats) : c.v * row;
}
int64_t CrossEntropyGradsCall::pass_floats() const {
  return is_kept(c.v) ? 0 : round_up(std::min(columns, c.v) * row, 16);
}
int64_t CrossEntropyGradsCall::bytes(int n_threads) const {
  const int64_t n = std::min(tokens, c.n_tokens), v = std::min(columns, c.v);
  int64_t dots = 0;
  for (const Contraction& p : {logits(n, v), dw(n, v, !is_bf16), dx(n, std::min(panel, v), true)})
    dots = std::max(dots, packed_bytes(p, {}, n_threads));
  return 4 * (round_up(kept_floats(), 16) + state_floats() + pass_floats() + g_floats() +
              dx_floats()) +
         dots;
}

namespace {
constexpr int64_t kMostColumns = 1024, kGradElements = int64_t{1} << 21;
constexpr int64_t kStrip = 32;
}  // namespace

int64_t amx_vocab_chunk(int64_t n_tokens) {
  const int64_t rows = std::max(round_up(n_tokens, kStrip), kStrip);
  return std::clamp<int64_t>(kGradElements / rows / kVocabBlock * kVocabBlock, kVocabBlock,
                             kMostColumns);
}

AmxCrossEntropyWorkspace::AmxCrossEntropyWorkspace(const CrossEntropyCall& c, bool is_backward)
    : is_backward(is_backward) {
  const int64_t rows = round_up(c.n_tokens, kStrip), d = round_up(c.d, kStrip);
  const int64_t columns = std::min(round_up(c.v, kVocabBlock), kMostColumns);
  x_a = 2 * rows * d, w_b = 2 * columns * d;
  if (!is_backward) {
    state = round_up(8 * c.n_tokens, 64);
  } else {
    // At most as many elements as any run of fewer tokens may need.
    g = 2 * std::min(rows * columns, std::max(kGradElements, kVocabBlock * rows));
    dx = 4 * rows * d;
  }
}

namespace {
int64_t strip_bytes(const CrossEntropyCall& c) { return 4 * kStrip * round_up(c.v, kVocabBlock); }
}  // namespace

int64_t amx_kept_bytes(const CrossEntropyCall& c) {
  return std::min(ceil_div(c.n_tokens, kStrip) * strip_bytes(c), kAmxKeptBytes);
}
int64_t amx_kept_strips(const CrossEntropyCall& c) {
  return amx_kept_bytes(c) / std::max<int64_t>(strip_bytes(c), 1);
}
int64_t amx_cross_entropy_grads_bytes(const CrossEntropyCall& c) {
  return amx_kept_bytes(c) + std::max(AmxCrossEntropyWorkspace(c, false).bytes(),
                                      AmxCrossEntropyWorkspace(c, true).bytes());
}

}  // namespace tegula::kernel
