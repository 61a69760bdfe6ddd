// Tensors put together anew, for model code: made of views, slices, one concatenation, one select.
#pragma once

#include "tegula/ops/math.h"

namespace tegula {

// x moved by `shift` places along `dim`, what leaves at one end coming in at the other
// (numpy.roll).
Var roll(Var x, int64_t shift, int dim, Loc loc = Loc::current());
// In reverse order along each of `dims`: a view.
Var flip(Var x, const std::vector<int64_t>& dims, Loc loc = Loc::current());
// The last two dims' elements (i, j) with j - i <= diagonal (triu: >=); zeros elsewhere.
Var tril(Var x, int64_t diagonal = 0, Loc loc = Loc::current());
Var triu(Var x, int64_t diagonal = 0, Loc loc = Loc::current());
// x laid `counts[d]` times along each dim; more counts than dims make new ones in front
// (numpy.tile; torch's repeat).
Var repeat(Var x, const std::vector<int64_t>& counts, Loc loc = Loc::current());
// Values of one shape along a new dim.
Var stack(std::span<const Var> xs, int dim, Loc loc = Loc::current());
// Parts of these sizes along `dim`, which must add up to it; or `n` equal parts: views.
std::vector<Var> split(Var x, const std::vector<int64_t>& sizes, int dim, Loc loc = Loc::current());
std::vector<Var> split(Var x, int64_t n, int dim, Loc loc = Loc::current());

// `lo` elements before and `hi` after x along `dim`, of x itself. reflect: mirrored without the
// edge, c b | a b c (at most n - 1 of them); edge: a a | a b c; wrap: b c | a b c.
enum class PadMode : uint8_t { kReflect, kEdge, kWrap };
Var pad(Var x, int dim, int64_t lo, int64_t hi, PadMode mode, Loc loc = Loc::current());

}  // namespace tegula
