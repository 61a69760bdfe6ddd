#include "tests/ops/join_parts.h"

#include <cmath>
#include <cstring>

#include "tests/ops/parts.h"

namespace tegula::testing {

namespace {

float log_add(float a, float b) {
  const float m = std::max(a, b);
  return m == -HUGE_VALF ? m : m + std::log(std::exp(a - m) + std::exp(b - m));
}

double joined(Combine how, DType dtype, double a, double b) {
  switch (how) {
    case Combine::kSum:
      return dtype == DType::kF32 ? static_cast<float>(a) + static_cast<float>(b) : a + b;
    case Combine::kMax:
      return scalar::max(a, b);
    case Combine::kMin:
      return scalar::min(a, b);
    case Combine::kLogSumExp:
      return log_add(static_cast<float>(a), static_cast<float>(b));
    default:
      return b;
  }
}

// The join of two parts' weighted results, by the log-sum-exp of their rows.
float weighted(float a, float lse_a, float b, float lse_b) {
  const float all = log_add(lse_a, lse_b);
  const auto weight = [&](float lse) { return lse == -HUGE_VALF ? 0.0F : std::exp(lse - all); };
  return a * weight(lse_a) + b * weight(lse_b);
}

class Joining {
 public:
  Joining(const DimMap& m, size_t factor, const Known& like) : m_(m), combine_(m.combine[factor]) {
    for (const HostTensor& t : like.results) types_.push_back(t.type);
    for (size_t r = 0; r < combine_.size(); ++r)
      if (combine_[r] == Combine::kLogSumExp) lse_ = r;
  }

  // b into a.
  Status join(Known& a, const Known& b) const {
    for (size_t r = 0; r < combine_.size(); ++r)
      if (r != lse_) TEGULA_TRY(join_result(a, b, r));
    return lse_ < combine_.size() ? join_result(a, b, lse_) : Status();  // weights read it
  }

 private:
  Status join_result(Known& a, const Known& b, size_t r) const {
    HostTensor& y = a.results[r];
    for (int64_t i = 0; i < y.numel(); ++i) {
      const auto at = static_cast<size_t>(i);
      if (!b.has[r][at]) continue;
      if (!a.has[r][at]) {
        copy_element(y, i, b.results[r], i);
        a.has[r][at] = 1;
        continue;
      }
      const double p = y.at(i), q = b.results[r].at(i);
      if (combine_[r] == Combine::kFree)
        return internal_error(cat("element ", i, " of result ", r, " lies in two parts"));
      if (combine_[r] == Combine::kEqual && std::memcmp(&p, &q, sizeof p) != 0)
        return internal_error(cat("element ", i, " of result ", r, " is ", p, " and ", q));
      if (combine_[r] == Combine::kLseWeighted) {
        const int64_t row = aligned(m_, types_, r, i, lse_);
        const auto of = [&](const Known& k) { return static_cast<float>(k.results[lse_].at(row)); };
        y.put(i, weighted(static_cast<float>(p), of(a), static_cast<float>(q), of(b)));
      } else {
        y.put(i, joined(combine_[r], y.type.dtype, p, q));
      }
    }
    return {};
  }

  const DimMap& m_;
  const std::vector<Combine>& combine_;
  std::vector<Type> types_;
  size_t lse_ = SIZE_MAX;
};

}  // namespace

DType wide(DType t) { return is_float(t) ? accumulator(t) : t; }

Status join_in_tree(const DimMap& m, size_t factor, std::span<Known> parts) {
  const Joining joining(m, factor, parts[0]);
  for (size_t distance = 1; distance < parts.size(); distance *= 2)
    for (size_t i = 0; i + distance < parts.size(); i += 2 * distance)
      TEGULA_TRY(joining.join(parts[i], parts[i + distance]));
  return {};
}

}  // namespace tegula::testing
