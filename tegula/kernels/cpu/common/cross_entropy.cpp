#include "tegula/kernels/cpu/common/cross_entropy.h"

#include <algorithm>

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

}  // namespace tegula::kernel
