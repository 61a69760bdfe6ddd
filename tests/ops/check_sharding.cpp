// Sharded = whole: for every factor of the op's dims that may be cut, simulated ranks get their
// parts of the operands, run the localized op, and the parts are recombined as the dims say.
#include <cmath>

#include "tests/ops/checks.h"
#include "tests/ops/parts.h"

namespace tegula::testing {

namespace {

// The results of every part, with where each element lies in the whole.
struct Pieces {
  std::vector<std::vector<HostTensor>> results;  // [part][result]
  std::vector<std::vector<Indices>> at;          // [part][result]
};

Result<Pieces> run_parts(const Case& c, const DimMap& m, std::span<const Part> parts) {
  Pieces pieces;
  for (const Part& p : parts) {
    std::vector<HostTensor> in;
    std::vector<Type> types;
    std::vector<TensorRef> refs;
    for (size_t k = 0; k < c.in.size(); ++k) {
      in.push_back(operand_of(m, k, c.values[k], {&p, 1}));
      types.push_back(in.back().type);
    }
    for (const HostTensor& t : in) refs.push_back(t.ref());
    const OpCall whole = c.call();
    const Attrs attrs =
        c.op->localize ? c.op->localize(whole, m, p.factor, p.lo, p.hi) : c.sample.attrs;
    OpCall local{c.op, &attrs, types, {}, &c.module, c.regions};
    const auto out = TEGULA_TRY(infer(local));
    local.out = out;
    auto& at = pieces.at.emplace_back();
    for (size_t r = 0; r < out.size(); ++r) {
      at.push_back(indices(m, m.results[r], c.out[r].shape, {&p, 1}));
      if (!(out[r].shape == shape_of_part(at[r])))
        return invalid_argument(cat("result ", r, " of the local op is ", out[r],
                                    ", by the dims it is ", shape_of_part(at[r])));
    }
    pieces.results.push_back(TEGULA_TRY(evaluate(local, refs, Arithmetic::kOracle)));
  }
  return pieces;
}

double start_of(Combine c) {
  if (c == Combine::kMax || c == Combine::kLogSumExp) return -HUGE_VAL;
  return c == Combine::kMin ? HUGE_VAL : 0;
}

double log_add(double a, double b) {
  const double m = std::max(a, b);
  return m == -HUGE_VAL ? m : m + std::log(std::exp(a - m) + std::exp(b - m));
}

// Result r from its pieces. `lse` gives, for kLseWeighted, exp(lse of the part - lse) of an
// element.
template <class Weight>
HostTensor combined(Combine how, const Type& type, const Pieces& pieces, size_t r,
                    std::vector<int>& covered, Weight&& weight) {
  HostTensor whole(Type{is_float(type.dtype) ? DType::kF64 : type.dtype, type.shape});
  covered.assign(static_cast<size_t>(whole.numel()), 0);
  for (int64_t i = 0; i < whole.numel(); ++i) whole.put(i, start_of(how));
  for (size_t p = 0; p < pieces.results.size(); ++p)
    for_each_element(pieces.at[p][r], type.shape, [&](int64_t i, int64_t to) {
      if (to < 0) return;
      ++covered[static_cast<size_t>(to)];
      const double old = whole.at(to), x = pieces.results[p][r].at(i);
      double y = x;
      if (how == Combine::kSum) y = old + x;
      if (how == Combine::kMax) y = scalar::max(old, x);
      if (how == Combine::kMin) y = scalar::min(old, x);
      if (how == Combine::kLogSumExp) y = log_add(old, x);
      if (how == Combine::kLseWeighted) y = old + x * weight(p, to);
      whole.put(to, y);
    });
  return whole;
}

std::string compare(const Case& c, const DimMap& m, const std::vector<Combine>& combine,
                    const Pieces& pieces, const std::vector<HostTensor>& whole) {
  size_t lse = combine.size();
  for (size_t r = 0; r < combine.size(); ++r)
    if (combine[r] == Combine::kLogSumExp) lse = r;
  for (size_t r = 0; r < combine.size(); ++r) {
    if (combine[r] == Combine::kEqual) {
      for (const auto& part : pieces.results)
        if (const auto d = difference(part[r], whole[r], kF64Slack); !d.empty()) return d;
      continue;
    }
    if (combine[r] == Combine::kLseWeighted && lse == combine.size())
      return cat("result ", r, " is weighted by a log-sum-exp that no result has");
    // Where the part's row lies in its own lse: the rows are not cut by a contracted factor.
    auto weight = [&](size_t p, int64_t i) {
      const int64_t row = aligned(m, c.out, r, i, lse);
      const double part = pieces.results[p][lse].at(row), all = whole[lse].at(row);
      return part == -HUGE_VAL ? 0.0 : std::exp(part - all);
    };
    std::vector<int> covered;
    const HostTensor y = combined(combine[r], c.out[r], pieces, r, covered, weight);
    for (size_t i = 0; i < covered.size(); ++i)
      if (covered[i] == 0 || (combine[r] == Combine::kFree && covered[i] != 1))
        return cat("element ", i, " of result ", r, " lies in ", covered[i], " parts");
    if (const auto d = difference(y, whole[r], kF64Slack); !d.empty())
      return cat("result ", r, ": ", d);
  }
  return "";
}

// Where to cut a factor: in two and in three, evenly and not; ragged ones at a sequence's end.
std::vector<std::vector<int64_t>> cuts_of(const Case& c, const Factor& f) {
  const int64_t n = f.size.bound();
  std::vector<std::vector<int64_t>> cuts = {{0, n / 2, n}};
  if (n >= 3) cuts.push_back({0, n / 3, 2 * n / 3, n});
  if (n >= 4) cuts.push_back({0, (2 * n + 2) / 3, n});
  if (f.ragged_by < 0) return cuts;
  const HostTensor& offsets = c.values[static_cast<size_t>(f.ragged_by)];
  cuts.clear();
  for (int64_t i = 1; i + 1 < offsets.numel(); ++i)
    cuts.push_back({0, static_cast<int64_t>(offsets.at(i)), n});
  return cuts;
}

}  // namespace

Verdict check_sharding(const Case& c) {
  auto map = dim_map(c.call());
  if (!map.ok()) return fail(map.error().message);
  auto whole = evaluate(c.call(), c.refs(), Arithmetic::kOracle);
  if (!whole.ok()) return fail(whole.error().message);
  int n_cut = 0;
  for (size_t f = 0; f < map->factors.size(); ++f) {
    const Factor& factor = map->factors[f];
    if (!is_cuttable(*map, f)) continue;
    for (const auto& cut : cuts_of(c, factor)) {
      std::vector<Part> parts;
      for (size_t i = 0; i + 1 < cut.size(); ++i)
        parts.push_back({static_cast<int>(f), cut[i], cut[i + 1]});
      auto pieces = run_parts(c, *map, parts);
      const std::string why =
          pieces.ok() ? compare(c, *map, map->combine[f], *pieces, *whole) : pieces.error().message;
      if (!why.empty()) return fail(cat("factor ", factor.name, " cut at ", cut, ": ", why));
      ++n_cut;
    }
  }
  return n_cut ? pass() : skip("no factor to cut");
}

}  // namespace tegula::testing
