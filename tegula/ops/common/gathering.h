// Shared by gather, scatter and embedding: which dims belong together, and the reference.
#pragma once

#include "tegula/base/integer_math.h"
#include "tegula/ops/common/rows.h"
#include "tegula/ops/indexing.h"

namespace tegula {

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
