#include "tegula/kernels/cpu/common/collective.h"

#include <atomic>
#include <cstring>

#include "tegula/base/algorithm.h"
#include "tegula/base/element.h"
#include "tegula/kernels/cpu/common/strided.h"
#include "tegula/kernels/cpu/common/workspace.h"

namespace tegula::kernel {

namespace {

constexpr int64_t kBlock = 256;  // elements of all ranks that are summed at once

// NaN wins, as everywhere.
template <class T>
T larger(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
T smaller(T a, T b) {
  return a < b || a != a ? a : b;
}

// A length that the compiler knows becomes vectors.
template <class T, class F>
void join_block(T* __restrict a, const T* __restrict b, F join) {
  for (int64_t i = 0; i < kBlock; ++i) a[i] = join(a[i], b[i]);
}

template <class T, class F>
void join_neighbours(T (*x)[kBlock], size_t n_ranks, int64_t n, F join) {
  for (size_t w = 1; w < n_ranks; w *= 2)
    for (size_t r = 0; r + w < n_ranks; r += 2 * w) {
      if (n == kBlock)
        join_block(x[r], x[r + w], join);
      else
        for (int64_t i = 0; i < n; ++i) x[r][i] = join(x[r][i], x[r + w][i]);
    }
}

template <class T, class F>
void join_ranks(T (*x)[kBlock], std::string_view combine, size_t n_ranks, int64_t n, F sum) {
  if (combine == "max")
    return join_neighbours(x, n_ranks, n, [](T a, T b) { return larger(a, b); });
  if (combine == "min")
    return join_neighbours(x, n_ranks, n, [](T a, T b) { return smaller(a, b); });
  join_neighbours(x, n_ranks, n, sum);
}

}  // namespace

bool supports_group(const Attrs& attrs) {
  return attrs.i("ranks") <= static_cast<int64_t>(kMostRanks);
}

bool supports_collective(const KernelQuery& q) {
  return q.in.size() == 1 && q.out.size() == 1 && q.in[0].is_contiguous() &&
         q.out[0].is_contiguous() && supports_group(*q.attrs);
}

bool keeps_alone(const KernelCall& c) {
  if (c.attrs->i("ranks") > 1) return false;
  if (c.in[0].data != c.out[0].data) move_strided(c.in[0], c.out[0], *c.pool);
  return true;
}

Runs::Runs(const TensorRef& whole, int64_t dim, int64_t parts_of_dim, int64_t n_ranks)
    : parts(parts_of_dim) {
  for (int d = 0; d < dim; ++d) outer *= whole.shape[d];
  run = whole.shape[dim] / (parts * n_ranks);
  for (int d = static_cast<int>(dim) + 1; d < whole.rank; ++d) run *= whole.shape[d];
}

uint8_t* at(const TensorRef& t, int64_t element) {
  return t.as<uint8_t>() + element * size_bytes(t.dtype);
}

void copy_from(const Shown& giver, const uint8_t* from, int64_t n_bytes, uint8_t* to) {
  std::memcpy(to, from, static_cast<size_t>(n_bytes));
  giver.sent_bytes->add(n_bytes);
}

void reduce_terms(DType dtype, std::string_view combine, std::span<const uint8_t* const> terms,
                  int64_t n, uint8_t* to) {
  const int64_t size = size_bytes(dtype);
  TensorRef result;
  result.data = to, result.dtype = dtype;
  const auto term = [&](size_t r) {
    TensorRef t = result;
    t.data = const_cast<uint8_t*>(terms[r]);
    return t;
  };
  for (int64_t done = 0; done < n; done += kBlock) {
    const int64_t here = std::min(kBlock, n - done);
    if (dtype == DType::kF32) {
      float x[kMostRanks][kBlock];
      for (size_t r = 0; r < terms.size(); ++r)
        std::memcpy(x[r], terms[r] + done * size, static_cast<size_t>(here * size));
      join_ranks(x, combine, terms.size(), here, [](float a, float b) { return a + b; });
      std::memcpy(to + done * size, x[0], static_cast<size_t>(here * size));
    } else if (is_float(dtype)) {
      double x[kMostRanks][kBlock];
      for (size_t r = 0; r < terms.size(); ++r)
        for (int64_t i = 0; i < here; ++i) x[r][i] = load_element(term(r), done + i);
      join_ranks(x, combine, terms.size(), here,
                 [dtype](double a, double b) { return rounded_to(dtype, a + b); });
      for (int64_t i = 0; i < here; ++i) store_element(result, done + i, x[0][i]);
    } else {
      int64_t x[kMostRanks][kBlock];
      for (size_t r = 0; r < terms.size(); ++r)
        for (int64_t i = 0; i < here; ++i) x[r][i] = load_int(term(r), done + i);
      join_ranks(x, combine, terms.size(), here, [](int64_t a, int64_t b) {
        return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      });
      for (int64_t i = 0; i < here; ++i) store_int(result, done + i, x[0][i]);
    }
  }
}

void reduce_run(const Peers::Met& met, std::string_view combine, int64_t from, int64_t n,
                uint8_t* to) {
  const auto& [all, index] = met;
  const DType dtype = all[0].in.dtype;
  const uint8_t* terms[kMostRanks];
  for (size_t r = 0; r < all.size(); ++r) terms[r] = at(all[r].in, from);
  reduce_terms(dtype, combine, {terms, all.size()}, n, to);
  for (size_t r = 0; r < all.size(); ++r)
    if (r != index) all[r].sent_bytes->add(n * size_bytes(dtype));
}

int64_t terms_bytes(const KernelQuery& q, int64_t bytes) {
  const bool is_brought = q.target->brings || q.attrs->flag("background");
  return is_brought ? (q.attrs->i("ranks") - 1) * bytes : 0;
}

BroughtTerms::BroughtTerms(const KernelCall& c, int64_t all_bytes, int64_t at)
    : workspace(static_cast<uint8_t*>(c.workspace)),
      bytes(all_bytes),
      index(at),
      n(c.attrs->i("ranks")) {
  claim_workspace(c, (n - 1) * bytes);
}

void BroughtTerms::reduce(DType dtype, std::string_view combine, const uint8_t* own, int64_t from,
                          int64_t count, uint8_t* to) const {
  const uint8_t* terms[kMostRanks];
  for (int64_t r = 0; r < n; ++r) terms[r] = r == index ? own : of(r) + from;
  reduce_terms(dtype, combine, {terms, static_cast<size_t>(n)}, count, to);
}

Move move_of(int64_t giver, int64_t from, int64_t bytes, uint8_t* to) {
  return {.giver = giver, .from = from, .bytes = bytes, .to = to};
}

void list_strided(int64_t giver, const uint8_t* operand, const TensorRef& from, const TensorRef& to,
                  std::vector<Move>& moves) {
  const int64_t size = size_bytes(from.dtype);
  // The inner dims that are dense in both are one run, the dim before them counts runs.
  int d = from.rank;
  int64_t run = 1;
  while (d > 0 && from.stride[d - 1] == run && to.stride[d - 1] == run) run *= from.shape[--d];
  Move m = move_of(giver, 0, run * size, nullptr);
  if (d > 0) {
    --d;
    m.count = from.shape[d], m.stride = from.stride[d] * size, m.to_stride = to.stride[d] * size;
  }
  int64_t n_outer = 1;
  for (int k = 0; k < d; ++k) n_outer *= from.shape[k];
  if (m.bytes == 0 || m.count == 0) return;
  for (int64_t i = 0; i < n_outer; ++i) {
    int64_t in_from = 0, in_to = 0, rest = i;
    for (int k = d; k-- > 0; rest /= from.shape[k]) {
      in_from += rest % from.shape[k] * from.stride[k];
      in_to += rest % from.shape[k] * to.stride[k];
    }
    m.from = from.as<uint8_t>() - operand + in_from * size, m.to = to.as<uint8_t>() + in_to * size;
    moves.push_back(m);
  }
}

}  // namespace tegula::kernel
