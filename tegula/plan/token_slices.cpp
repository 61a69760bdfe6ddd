#include "tegula/plan/token_slices.h"

#include <cmath>

#include "tegula/base/algorithm.h"

namespace tegula {

SliceTimes slice_times(int n_units) {
  const auto n = static_cast<size_t>(n_units);
  return {n_units, std::vector<double>(n * (n + 1))};
}

namespace {

// The least Σ tᵢ of slices none of which takes longer than `most`.
class LeastSum {
 public:
  LeastSum(const SliceTimes& times, int n_slices)
      : times_(times),
        rows_(n_slices == 0 ? 1 : n_slices),
        is_exact_(n_slices > 0),
        n_(static_cast<size_t>(times.n_units) + 1),
        sum_(n_ * (static_cast<size_t>(rows_) + 1)),
        from_(sum_.size()) {}

  // HUGE_VAL: there are none.
  double solve(double most) {
    std::fill(sum_.begin(), sum_.end(), HUGE_VAL);
    sum(0, 0) = 0;
    if (!is_exact_) {
      // One row, in which each end follows from those before it.
      sum(1, 0) = 0;
      for (int end = 1; end <= times_.n_units; ++end) extend(1, 1, end, most);
      return sum(1, times_.n_units);
    }
    for (int row = 1; row <= rows_; ++row)
      for (int end = row; end <= times_.n_units; ++end) extend(row - 1, row, end, most);
    return sum(rows_, times_.n_units);
  }

  std::vector<int> lengths() const {
    std::vector<int> out;
    for (int end = times_.n_units, row = rows_; end > 0; row -= is_exact_) {
      const int begin = from_[at(row, end)];
      out.push_back(end - begin), end = begin;
    }
    std::reverse(out.begin(), out.end());
    return out;
  }

 private:
  size_t at(int row, int end) const {
    return static_cast<size_t>(row) * n_ + static_cast<size_t>(end);
  }
  double& sum(int row, int end) { return sum_[at(row, end)]; }
  void extend(int before, int row, int end, double most) {
    for (int begin = 0; begin < end; ++begin) {
      const double t = times_.at(begin, end), s = sum(before, begin) + t;
      if (t <= most && s < sum(row, end)) sum(row, end) = s, from_[at(row, end)] = begin;
    }
  }
  const SliceTimes& times_;
  int rows_;
  bool is_exact_;
  size_t n_;
  std::vector<double> sum_;  // [slices so far][tokens so far]
  std::vector<int> from_;    // where the last of them begins
};

}  // namespace

Result<TokenSlices> slice_tokens(const SliceTimes& times, int n_ranks, int n_micro_batches,
                                 int n_slices) {
  if (n_ranks < 1 || n_micro_batches < 1 || times.n_units < 1 || n_slices < 0 ||
      n_slices > times.n_units)
    return invalid_argument(cat(times.n_units, " units of tokens cannot be cut into ", n_slices,
                                " slices for ", n_micro_batches, " micro-batches on ", n_ranks,
                                " ranks: of each there must be one, and a unit for each slice"));
  std::vector<double> candidates;
  for (int begin = 0; begin < times.n_units; ++begin)
    for (int end = begin + 1; end <= times.n_units; ++end) {
      const double t = times.at(begin, end);
      if (!(t >= 0 && std::isfinite(t)))
        return invalid_argument(cat("tokens ", begin, " to ", end, " cannot take ", t, " seconds"));
      candidates.push_back(t);
    }
  std::sort(candidates.begin(), candidates.end());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  LeastSum least(times, n_slices);
  const double free_sum = n_micro_batches * least.solve(HUGE_VAL);
  TokenSlices best;
  best.seconds = HUGE_VAL;
  for (double most : candidates) {
    if (free_sum + (n_ranks - 1) * most >= best.seconds) break;
    const double seconds = n_micro_batches * least.solve(most) + (n_ranks - 1) * most;
    if (seconds < best.seconds) best = {least.lengths(), seconds};
  }
  return best;
}

}  // namespace tegula
