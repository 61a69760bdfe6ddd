// Gather, scatter and what is made of them, for model code.
//
//   gather:      y[b.., p.., i.., q..] = x[b.., p.., ids[b.., i..], q..]
//   scatter_add: its adjoint, x[b.., p.., n, q..] = the sum of y over all i with ids[b.., i..] = n
//   scatter:     the same into an x, by a mode
//
// `dim` is where n stands in x; the first `batch` dims b are common to x and ids. An index outside
// [0, n), also a negative one, reads zeros, and what is put there is thrown away: the cost of an op
// never depends on ids. Everything goes in ascending order of i, so that results have the same bits
// for any number of threads.
#pragma once

#include <array>
#include <string_view>

#include "tegula/ops/math.h"

namespace tegula {

Var gather(Var x, Var ids, int dim, int batch = 0, Loc loc = Loc::current());
Var scatter_add(Var y, Var ids, int dim, Dim size, int batch = 0, Loc loc = Loc::current());

// How y meets what is there. Gradients: set, the last y alone has one, and x where none came; max
// and min, equals share, as in reduce_max; mul, the product of the others, zeros included.
enum class ScatterMode : uint8_t { kSet, kAdd, kMax, kMin, kMul };
inline constexpr std::array<std::string_view, 5> kScatterModes = {"set", "add", "max", "min",
                                                                  "mul"};
Var scatter(Var x, Var ids, Var y, int dim, ScatterMode mode, int batch = 0,
            Loc loc = Loc::current());

// One index per element, along `dim` (NumPy's take_along_axis and put_along_axis; torch's gather
// and scatter_reduce): y[.., i, ..] = x[.., ids[.., i, ..], ..]. ids has x's shape but at `dim`.
Var take_along(Var x, Var ids, int dim, Loc loc = Loc::current());
Var put_along(Var x, Var ids, Var y, int dim, ScatterMode mode, Loc loc = Loc::current());

// One index of several dims (ONNX's GatherND and ScatterND; torch's index_put): the last dim of
// ids, of constant size k, says where in x's first k dims. y: [ids without its last dim.., rest of
// x..].
Var gather_nd(Var x, Var ids, Loc loc = Loc::current());
Var scatter_nd(Var x, Var ids, Var y, ScatterMode mode, Loc loc = Loc::current());

// How many elements of the last dim of `sorted`, which ascends, are less than each of `values`
// (with `right`: not greater), as i32: where it would be inserted. sorted: [n], or [.., n] with the
// leading dims of values [.., m]. NaN counts as greater than any number.
Var searchsorted(Var sorted, Var values, bool right = false, Loc loc = Loc::current());

// 1 where the last, new dim of size n equals the id, else 0: elementwise, nothing is looked up.
Var one_hot(Var ids, Dim n, DType dtype = DType::kF32, Loc loc = Loc::current());

}  // namespace tegula
