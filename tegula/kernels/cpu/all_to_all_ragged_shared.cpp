// all_to_all_ragged: each rank copies what is filled of its piece of every rank's operand.
#include <atomic>

#include "tegula/base/element.h"
#include "tegula/kernels/cpu/common/collective.h"
#include "tegula/kernels/cpu/common/strided.h"

namespace tegula::kernel {

namespace {

bool supports(const KernelQuery& q) {
  return q.in.size() == 3 && q.out.size() == 1 && q.in[0].is_contiguous() &&
         q.in[1].is_contiguous() && q.in[2].is_contiguous() && q.out[0].is_contiguous() &&
         supports_group(*q.attrs);
}

// Rows of x [outer.., split or gather.., inner.., m], counted along the dims before the last.
struct Rows {
  int64_t shape[kMaxRank] = {}, rank = 0, m = 0;
  explicit Rows(const TensorRef& t) : rank(t.rank - 1), m(t.shape[t.rank - 1]) {
    std::copy_n(t.shape, rank, shape);
  }
  int64_t count() const {
    int64_t n = 1;
    for (int64_t d = 0; d < rank; ++d) n *= shape[d];
    return n;
  }
  void index_of(int64_t row, int64_t* index) const {
    for (int64_t d = rank; d-- > 0; row /= shape[d]) index[d] = row % shape[d];
  }
  int64_t row_of(const int64_t* index) const {
    int64_t row = 0;
    for (int64_t d = 0; d < rank; ++d) row = row * shape[d] + index[d];
    return row;
  }
};

void launch(const KernelCall& c) {
  const TensorRef &x = c.in[0], &received = c.in[2], &y = c.out[0];
  const Rows from(x), to(y);
  const int64_t size = size_bytes(y.dtype), row_bytes = to.m * size;
  // The first `length` elements of a row, and zeros.
  const auto fill = [&](const uint8_t* row, int64_t at, int64_t length) {
    uint8_t* out = y.as<uint8_t>() + at * row_bytes;
    std::memcpy(out, row, static_cast<size_t>(length * size));
    std::memset(out + length * size, 0, static_cast<size_t>(row_bytes - length * size));
  };
  const auto length_of = [&](int64_t row) {
    return std::clamp<int64_t>(load_int(received, row), 0, to.m);
  };
  const auto each_row = [&](const auto& f) {
    constexpr int64_t kRows = 64;
    c.pool->parallel_for((to.count() + kRows - 1) / kRows, [&](int64_t block, int) {
      const int64_t end = std::min((block + 1) * kRows, to.count());
      for (int64_t row = block * kRows; row < end; ++row) f(row);
    });
  };
  if (c.attrs->i("ranks") == 1)
    return each_row(
        [&](int64_t row) { fill(x.as<uint8_t>() + row * row_bytes, row, length_of(row)); });
  with_group(c, [&](const Peers::Met& met, Peers&) {
    const int64_t split = c.attrs->i("split"), gather = c.attrs->i("gather");
    const int64_t share = to.shape[split], piece = from.shape[gather];
    each_row([&](int64_t row) {
      int64_t index[kMaxRank];
      to.index_of(row, index);
      const auto giver = static_cast<size_t>(index[gather] / piece);
      index[gather] %= piece;
      index[split] += static_cast<int64_t>(met.index) * share;
      const int64_t length = length_of(row);
      fill(at(met.all[giver].in, from.row_of(index) * to.m), row, length);
      if (giver != met.index) met.all[giver].sent_bytes->add(length * size);
    });
    return true;
  });
}

// A move a row; what is not filled is zeros.
void list(const KernelCall& c, int64_t index, int, std::vector<Move>& moves) {
  const TensorRef &x = c.in[0], &received = c.in[2], &y = c.out[0];
  const Rows from(x), to(y);
  const int64_t size = size_bytes(y.dtype), row_bytes = to.m * size;
  const int64_t split = c.attrs->i("split"), gather = c.attrs->i("gather");
  const int64_t share = to.shape[split], piece = from.shape[gather];
  for (int64_t row = 0; row < to.count(); ++row) {
    const int64_t length = std::clamp<int64_t>(load_int(received, row), 0, to.m);
    if (length == 0) continue;
    int64_t at[kMaxRank];
    to.index_of(row, at);
    const int64_t giver = at[gather] / piece;
    at[gather] %= piece;
    at[split] += index * share;
    moves.push_back(move_of(giver, from.row_of(at) * row_bytes, length * size,
                            y.as<uint8_t>() + row * row_bytes));
  }
}
void finish(const KernelCall& c, int64_t, int) {
  const TensorRef &received = c.in[2], &y = c.out[0];
  const Rows to(y);
  const int64_t size = size_bytes(y.dtype), row_bytes = to.m * size;
  for (int64_t row = 0; row < to.count(); ++row) {
    const int64_t filled = size * std::clamp<int64_t>(load_int(received, row), 0, to.m);
    std::memset(y.as<uint8_t>() + row * row_bytes + filled, 0,
                static_cast<size_t>(row_bytes - filled));
  }
}
constexpr CollectiveMoves kMoves = {.list = list, .finish = finish};

}  // namespace

extern constinit const KernelDef all_to_all_ragged_shared = {
    .name = "all_to_all_ragged_shared",
    .op = "all_to_all_ragged",
    .order = "exact",
    .doc = "each rank copies what is filled of its pieces of all operands in shared memory",
    .supports = supports,
    .launch = launch,
    .moves = &kMoves,
};

}  // namespace tegula::kernel
