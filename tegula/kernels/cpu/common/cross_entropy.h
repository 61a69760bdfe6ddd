// A `linear_cross_entropy(_bwd)` call as plain numbers: tokens (x's leading dims) against v
// columns.
//
// Order "kb64": a logit is one fma chain over d; columns in blocks of 64, ascending; per block
// m' = max(m, logits), l = l·exp(m - m') + the lane16 sum of exp(logit - m'); lse = log(l) + m.
// Backward: g = dlse·exp(logit - lse), plus dpicked at the target, rounded to bf16 where x is; dx
// is one chain over v, dw one chain over tokens. A block whose logits are all -inf is shifted by 0,
// as the op's definition is.
#pragma once

#include "tegula/kernels/cpu/common/dot_plan.h"

namespace tegula::kernel {

inline constexpr int kVocabBlock = 64;
inline constexpr int kTokenBlock = 84;  // a multiple of every register tile's rows

struct CrossEntropyCall {
  const TensorRef *x, *w, *targets;
  Loops tokens;  // strides of x (kA) and of the targets (kB)
  Loops x_d, w_v, w_d;
  int64_t n_tokens = 0, v = 0, d = 0;
  int64_t chunk = 0;  // columns whose panels are held at once, a multiple of kVocabBlock
  int64_t ignore_index = -100;
  bool is_transposed = false;  // w and dw are [d, v]

  // -1: picks nothing.
  int64_t target(int64_t token) const {
    const int64_t at = tokens.offset(token, kB);
    const int64_t t =
        targets->dtype == DType::kI32 ? targets->as<int32_t>()[at] : targets->as<int64_t>()[at];
    return t >= 0 && t < v && t != ignore_index ? t : -1;
  }
};

Result<CrossEntropyCall> parse_cross_entropy(std::span<const TensorRef> in, const Attrs& attrs,
                                             bool is_backward);

// Floats of each part of the workspace; each grows with every extent.
struct CrossEntropyWorkspace {
  int64_t w_t = 0;        // the chunk of w, [d] in strips of columns
  int64_t state = 0;      // forward: m and l of every token
  int64_t w = 0;          // backward: the chunk's rows, in strips of d
  int64_t x = 0, dx = 0;  // backward: rows, in strips of d
  int64_t g = 0;          // backward: [token][chunk]
  int64_t thread = 0;
  CrossEntropyWorkspace(const CrossEntropyCall& c, bool is_backward);
  int64_t bytes(int n_threads) const {
    return 4 * (w_t + state + w + x + dx + g + thread * n_threads);
  }
};

// Both directions in one call: logits are formed, kept as f32, and turned into g where they lie.
// f32: those of some tokens at a time. bf16: all tokens', of as many columns as fit; the others'
// are formed again, and g is a copy. Operands as plain numbers; bits are those of order "kb64".
struct CrossEntropyGradsCall {
  CrossEntropyCall c;
  bool is_bf16 = false;
  int64_t x_row = 0, w_row = 0, dx_row = 0, dw_row = 0;  // elements between rows; columns adjoin
  int64_t tokens = 0;                                    // at once, at most
  int64_t row = 0;                                       // elements between rows of [v][token]
  int64_t columns = 0;  // of v in a pass over what is kept, a multiple of `panel`
  int64_t panel = 0;    // of v whose weights are packed at once, a multiple of kVocabBlock

  // The three products. n tokens, v columns; `is_more`: sums go on from what dx (bf16: its sums) or
  // dw holds.
  Contraction logits(int64_t n, int64_t v) const;            // w [v d], x [n d] -> [v n]
  Contraction dw(int64_t n, int64_t v, bool is_more) const;  // g [v n], x [n d] -> [v d]
  Contraction dx(int64_t n, int64_t v, bool is_more) const;  // g [v n], w [v d] -> [n d]
  // Floats of the parts of the workspace.
  int64_t kept_floats() const;
  int64_t state_floats() const { return 4 * row; }  // m, l; lse, dlse of each token kept
  // bf16 only: logits of a pass that are not kept, g of a pass, sums of dx.
  int64_t pass_floats() const;
  int64_t g_floats() const { return is_bf16 ? round_up(std::min(columns, c.v) * row, 32) / 2 : 0; }
  int64_t dx_floats() const { return is_bf16 ? round_up(c.n_tokens * c.d, 16) : 0; }
  bool is_kept(int64_t v_end) const { return v_end * row <= kept_floats(); }
  int64_t bytes(int n_threads) const;
};
// Errors: neither f32 nor bf16, w transposed, rows with gaps, so many columns that too few tokens'
// logits fit.
Result<CrossEntropyGradsCall> parse_cross_entropy_grads(std::span<const TensorRef> in,
                                                        std::span<const TensorRef> out,
                                                        const Attrs& attrs);

// The same of bf16 in AMX's tiles. Order "amx_kb64": that of "kb64" with logits, dx and dw as sums
// in the order "amx_pairs" (isa/amx.h) over d, v and tokens, and g rounded to bf16 for the last
// two. Columns of a chunk, a multiple of kVocabBlock (no matter of bits); n_tokens 0: forward.
int64_t amx_vocab_chunk(int64_t n_tokens);

// Bytes of each part.
struct AmxCrossEntropyWorkspace {
  int64_t x_a = 0;    // tokens as tiles of a; backward: and as b
  int64_t w_b = 0;    // a chunk of columns; backward: and of rows
  int64_t state = 0;  // forward: m and l of every token
  int64_t g = 0;      // backward: [token][chunk], and transposed
  int64_t dx = 0;     // backward: sums
  bool is_backward;
  AmxCrossEntropyWorkspace(const CrossEntropyCall& c, bool is_backward);
  int64_t bytes() const { return (x_a + w_b + g) * (is_backward ? 2 : 1) + state + dx; }
};

// Both directions in one call: logits of the first tokens are kept as f32, as many strips of 32
// tokens as fit, and those of the others are formed again.
inline constexpr int64_t kAmxKeptBytes = int64_t{256} << 20;
int64_t amx_kept_bytes(const CrossEntropyCall& c);
int64_t amx_kept_strips(const CrossEntropyCall& c);
int64_t amx_cross_entropy_grads_bytes(const CrossEntropyCall& c);

}  // namespace tegula::kernel
