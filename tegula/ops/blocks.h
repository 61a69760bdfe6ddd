// Weights in blocks of a few bits a value, computed on as they lie (base/block_format.h):
//   dequantise_blocks: w = scale · q + min
//   quantise_blocks:   d[b] = max |x[32b …]| / 127,  q = floor(x · (127 / max) + 1/2)
//   dot_blocks:        y[m, n] = Σ_k x[m, k] · w[n, k]
//
// w u8 [.., row_bytes], a whole number of blocks of `format` in a row. quantise_blocks: x f32
// [.., k], k in blocks of 32 -> q i8 [.., k] in [-127, 127], d f32 [.., k / 32]; a block of zeros
// has d 0; one with a NaN or an infinity has d NaN and q 0, so that nothing hides it.
//
// dot_blocks of experts: w [e, n, row_bytes] and x [e, .., k] -> y [e, .., n], each by its own w.
//
// dot_blocks of x f32 [.., k]: each weight rounded to f32, then chained as `dot` does (k_shards
// too): the bits are those of dot("… k, n k -> … n", x, dequantise_blocks(w)). Of x quantised: over
// the groups g of a row in ascending order one chain from 0,
//   y = fma(f32(Σ_{k in g} q[m, k] · u[n, k]), d[m] · scale[n, g], y), then, where the format has
//   mins, y = fma(d[m] · f32(Σ_{k in g} q[m, k]), min[n, g], y);
// sums of integers are exact, every product is rounded. Bits depend on nothing but this. Scales of
// w are numbers: so a row of x whose scales are all 0 gives 0, and of no such rows no w is read.
// Cost: the bytes of w once. Errors: another number of dims, a row that is no whole number of
// blocks, k that differ. Derivatives: in x, through dot and dequantise_blocks; none in w, nor
// through quantise_blocks. Source: Jacob et al. 2018, section 2.2; the GGUF project's formats.
#pragma once

#include "tegula/base/block_format.h"
#include "tegula/ops/math.h"

namespace tegula {

inline constexpr int64_t kQuantisedRun = 32;  // values of x with one scale

struct QuantisedRows {
  Var q, d;
};
Var dequantise_blocks(Var w, BlockFormat format, Loc loc = Loc::current());
QuantisedRows quantise_blocks(Var x, Loc loc = Loc::current());
Var dot_blocks(Var x, Var w, BlockFormat format, Loc loc = Loc::current());
Var dot_blocks(const QuantisedRows& x, Var w, BlockFormat format, Loc loc = Loc::current());

}  // namespace tegula
