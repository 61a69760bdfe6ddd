#include "tegula/runtime/regions.h"

#include <cstring>

#include "tegula/base/algorithm.h"
#include "tegula/ir/regions.h"

namespace tegula {

namespace {

// One element of zeros shown everywhere: how sums begin.
bool is_zero_everywhere(const TensorRef& t) {
  for (int d = 0; d < t.rank; ++d)
    if (t.stride[d] != 0 && t.shape[d] != 1) return false;
  const auto* bytes = t.as<const uint8_t>();
  return std::all_of(bytes, bytes + size_bytes(t.dtype), [](uint8_t b) { return b == 0; });
}

// Bytes from one view into another of the same shape and dtype, by the longest common rows.
void copy_view(const TensorRef& from, const TensorRef& to) {
  const int64_t size = size_bytes(to.dtype);
  if (to.numel() > 0 && to.is_contiguous() && is_zero_everywhere(from)) {
    std::memset(to.data, 0, static_cast<size_t>(to.numel() * size));
    return;
  }
  int64_t row = 1;
  int outer = to.rank;
  while (outer > 0) {
    const int d = outer - 1;
    if (to.shape[d] != 1 && (from.stride[d] != row || to.stride[d] != row)) break;
    row *= to.shape[d];
    --outer;
  }
  if (to.numel() == 0) return;
  int64_t index[kMaxRank] = {};
  const auto* source = from.as<const uint8_t>();
  auto* target = to.as<uint8_t>();
  for (;;) {
    std::memcpy(target, source, static_cast<size_t>(row * size));
    int d = outer;
    while (d-- > 0) {
      source += from.stride[d] * size, target += to.stride[d] * size;
      if (++index[d] < to.shape[d]) break;
      source -= to.shape[d] * from.stride[d] * size, target -= to.shape[d] * to.stride[d] * size;
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

uint8_t* row_of(const TensorRef& t, int64_t i) {
  return t.as<uint8_t>() + i * t.stride[0] * size_bytes(t.dtype);
}

TensorRef row_view(const TensorRef& t, int64_t i) {
  TensorRef r = t;
  r.data = row_of(t, i), --r.rank;
  for (int d = 0; d < r.rank; ++d) r.shape[d] = t.shape[d + 1], r.stride[d] = t.stride[d + 1];
  return r;
}

class OnCpu final : public RegionRunner {
 public:
  Status run(Session& region, std::span<const int64_t> extents) override {
    return region.run(extents);
  }
  Status copy(const TensorRef& from, const TensorRef& to) override {
    copy_view(from, to);
    return {};
  }
  Result<bool> read(const void* flag) override { return *static_cast<const bool*>(flag); }
};

// Binds parameters `first`, `first + 1`, … of a region to tensors.
void bind(Session& region, size_t first, std::span<const TensorRef> tensors) {
  for (const TensorRef& t : tensors) region.bind(static_cast<int>(first++), t.data);
}

// A carry lives in its result's memory from the start.
Status start_carries(const RegionStep& s, size_t n_carry, RegionRunner& runner) {
  for (size_t i = 0; i < n_carry; ++i)
    if (s.in[i].data != s.out[i].data) TEGULA_TRY(runner.copy(s.in[i], s.out[i]));
  return {};
}

// Binds a region's own operands: carries, which the body overwrites, and what no round changes.
void bind_operands(Session& region, const RegionStep& s, const RegionLayout& l) {
  bind(region, 0, s.out.first(l.n_carry));
  bind(region, l.n_carry + l.n_xs, s.in.subspan(l.first_invariant()));
}

// Binds what round t sees and gives: slices of the xs and ys.
Status bind_slices(Session& body, const RegionStep& s, const RegionLayout& l, int64_t t,
                   RegionRunner& runner) {
  const size_t n_results = s.out.size() - l.saves.size();
  for (size_t i = l.first + l.n_carry; i < l.first_invariant(); ++i)
    body.bind(static_cast<int>(i - l.first), row_of(s.in[i], t));
  for (size_t i = l.n_carry; i < n_results; ++i)
    body.bind(static_cast<int>(s.in.size() - l.first + i - l.n_carry), row_of(s.out[i], t));
  for (size_t i = n_results; i < s.out.size(); ++i)
    TEGULA_TRY(runner.copy(s.out[l.saves[i - n_results]], row_view(s.out[i], t)));
  return {};
}

}  // namespace

bool is_decided_by_data(const OpDef& op) {
  return has_bodies(op) && (op.regions->is_choice() || op.regions->body() > 0);
}

Status run_region_step(const RegionStep& s, RegionRunner* given) {
  OnCpu on_cpu;
  RegionRunner& runner = given ? *given : on_cpu;
  const RegionDef& def = *s.step->op->regions;
  const Attrs& attrs = s.step->attrs;
  const RegionLayout l(def, attrs, s.in.size());
  const bool is_second = def.is_choice() && !TEGULA_TRY(runner.read(s.in[0].data));
  const size_t chosen = is_second ? 1 : def.body();
  Session& body = *s.regions[chosen];
  TEGULA_TRY(start_carries(s, l.n_carry, runner));
  bind_operands(body, s, l);
  Session* condition = nullptr;
  if (def.body() > 0) {
    condition = s.regions[0].get();
    bind_operands(*condition, s, l);
    condition->bind(static_cast<int>(s.in.size()), s.workspace);
  }
  const bool has_slices = !def.length.empty();
  if (!has_slices) bind(body, s.in.size() - l.first, s.out.subspan(l.n_carry));
  const bool is_reverse = !def.reverse.empty() && attrs.flag(def.reverse);
  const int64_t n = region_rounds(def, attrs, s.extents);
  for (int64_t round = 0; round < n; ++round) {
    if (condition) {
      TEGULA_TRY(runner.run(*condition, s.extents));
      if (!TEGULA_TRY(runner.read(s.workspace))) return {};
    }
    if (has_slices) TEGULA_TRY(bind_slices(body, s, l, is_reverse ? n - 1 - round : round, runner));
    TEGULA_TRY(runner.run(body, s.extents));
  }
  return {};
}

}  // namespace tegula
