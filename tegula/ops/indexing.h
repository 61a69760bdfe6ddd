// What gather, scatter_add and embedding share, and their vocabulary for model code.
//
//   gather:      y[b.., p.., i.., q..] = x[b.., p.., ids[b.., i..], q..]
//   scatter_add: its adjoint, x[b.., p.., n, q..] = the sum of y over all i with ids[b.., i..] = n
//
// `dim` is where n stands in x; the first `batch` dims b are common to x and ids. An index outside
// [0, n) reads zeros, and what is added there is thrown away: the cost of an op never depends on
// ids. Sums go in ascending order of i.
#pragma once

#include "tegula/ops/rows.h"

namespace tegula {

Var gather(Var x, Var ids, int dim, int batch = 0, Loc loc = Loc::current());
Var scatter_add(Var y, Var ids, int dim, Dim size, int batch = 0, Loc loc = Loc::current());
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

// The factors of x (its dim `dim` is "n"), of ids and of y; `x` says the shape of x.
Result<DimMap> gather_dims(const OpCall& c, const Shape& x, const Shape& ids, bool is_adjoint);

struct GatherRef {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const Gathering g(a.attrs(), a.in[1].rank);
    const bool floats = is_float(a.in[0].dtype);
    const int64_t n = a.in[0].shape[g.dim];
    for_each_index(shape_of(a.out[0]), [&](const Index& y) {
      const int64_t id = a.load_i_at(1, g.ids_index(y));
      const bool inside = id >= 0 && id < n;
      const Index from = g.x_index(y, inside ? id : 0, a.in[0].rank);
      if (floats) {
        a.store_at(0, inside ? a.load_at(0, from) : S(0.0), y);
      } else {
        a.store_i_at(0, inside ? a.load_i_at(0, from) : 0, y);
      }
    });
  }
};

struct ScatterAddRef {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const Gathering g(a.attrs(), a.in[1].rank);
    const TensorRef& x = a.out[0];
    std::vector<S> sum(static_cast<size_t>(x.numel()) + 1, S(0.0));  // and what is thrown away
    for_each_index(shape_of(a.in[0]), [&](const Index& y) {
      const int64_t id = a.load_i_at(1, g.ids_index(y));
      const bool inside = id >= 0 && id < x.shape[g.dim];
      const auto to = inside ? static_cast<size_t>(a.row_major_at(x, g.x_index(y, id, x.rank)))
                             : sum.size() - 1;
      sum[to] += a.load_at(0, y);
    });
    size_t at = 0;
    for_each_index(shape_of(x), [&](const Index& i) { a.store_at(0, sum[at++], i); });
  }
};

// Only what is asked for is read: the least over all ids, when they are distinct and in range.
Bytes gather_bytes(const OpCall& c);

inline constexpr std::string_view kIdsDecide = "repeated ids or ids out of range do less";

}  // namespace tegula
