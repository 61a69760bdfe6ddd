// What gather, scatter and embedding share, and their vocabulary for model code.
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

#include "tegula/base/integer_math.h"
#include "tegula/ops/rows.h"

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

// The gather of a call: which dims of x, ids and y belong together.
struct Gathering {
  int dim = 0, batch = 0;
  int n_ids = 1;  // dims of ids
  explicit Gathering(const Attrs& a, int ids_rank)
      : dim(static_cast<int>(a.get_or<int64_t>("dim", 0))),
        batch(static_cast<int>(a.get_or<int64_t>("batch", 0))),
        n_ids(ids_rank) {}
  // Where the i.. begin and end in y.
  int begin() const { return dim; }
  int end() const { return dim + n_ids - batch; }
  Index ids_index(const Index& y) const {
    Index i{};
    for (int d = 0; d < n_ids; ++d)
      i[static_cast<size_t>(d)] = y[static_cast<size_t>(d < batch ? d : dim + d - batch)];
    return i;
  }
  Index x_index(const Index& y, int64_t id, int x_rank) const {
    Index i{};
    for (int d = 0; d < x_rank; ++d)
      i[static_cast<size_t>(d)] = d == dim  ? id
                                  : d < dim ? y[static_cast<size_t>(d)]
                                            : y[static_cast<size_t>(d - 1 + n_ids - batch)];
    return i;
  }
};

// dim and batch fit an x of that rank; operand 1 is ids.
Status check_gathering(const OpCall& c, int x_rank);
// The factors of x (its dim `dim` is "n"), of ids and of y; `x` says the shape of x.
Result<DimMap> gather_dims(const OpCall& c, const Shape& x, const Shape& ids, bool is_adjoint);

struct GatherRef {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const Gathering g(a.attrs(), a.in[1].rank);
    const int64_t n = a.in[0].shape[g.dim];
    for_each_index(shape_of(a.out[0]), [&](const Index& y) {
      const int64_t id = a.load_i_at(1, g.ids_index(y));
      const bool inside = id >= 0 && id < n;
      const Index from = g.x_index(y, inside ? id : 0, a.in[0].rank);
      a.store_at(0, inside ? a.load_at(0, from) : S(0.0), y);
    });
  }
};

// Only what is asked for is read: the least over all ids, when they are distinct and in range.
Bytes gather_bytes(const OpCall& c);

inline constexpr std::string_view kIdsDecide = "repeated ids or ids out of range do less";

}  // namespace tegula
