#include "tegula/runtime/regions.h"

#include <algorithm>
#include <cstring>

#include "tegula/ops/table.h"

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

void run(Session& region, const RegionStep& s) {
  const auto status = region.run(s.extents);
  TEGULA_CHECK(status.ok(), s.step->op->name, ": ", status.error().message);
}

// Binds parameters `first`, `first + 1`, … of a region to tensors.
void bind(Session& region, size_t first, std::span<const TensorRef> tensors) {
  for (const TensorRef& t : tensors) region.bind(static_cast<int>(first++), t.data);
}

// A carry lives in its result's memory from the start.
void start_carries(const RegionStep& s, size_t n_carry) {
  for (size_t i = 0; i < n_carry; ++i)
    if (s.in[i].data != s.out[i].data) copy_view(s.in[i], s.out[i]);
}

void run_call(const RegionStep& s, size_t region, std::span<const TensorRef> args) {
  Session& f = *s.regions[region];
  bind(f, 0, args);
  bind(f, args.size(), s.out);
  run(f, s);
}

void run_while(const RegionStep& s) {
  const auto n_carry = static_cast<size_t>(s.step->attrs.i("n_carry"));
  Session &condition = *s.regions[0], &body = *s.regions[1];
  start_carries(s, n_carry);
  for (Session* r : {&condition, &body}) {
    bind(*r, 0, s.out);
    bind(*r, n_carry, s.in.subspan(n_carry));
  }
  condition.bind(static_cast<int>(s.in.size()), s.workspace);
  const auto* go = static_cast<const uint8_t*>(s.workspace);
  for (int64_t trip = s.step->attrs.i("max_trips"); trip > 0; --trip) {
    run(condition, s);
    if (!*go) return;
    run(body, s);
  }
}

void run_scan(const RegionStep& s) {
  const Attrs& attrs = s.step->attrs;
  const auto n_carry = static_cast<size_t>(attrs.i("n_carry"));
  const auto n_xs = static_cast<size_t>(attrs.i("n_xs"));
  Session& body = *s.regions[0];
  const size_t n_results = body.plan().results.size();
  const AttrValue* saves = attrs.find("saves");
  const int64_t n = attrs.dims("length")[0].at(s.extents);
  start_carries(s, n_carry);
  bind(body, 0, s.out.first(n_carry));
  bind(body, n_carry + n_xs, s.in.subspan(n_carry + n_xs));
  for (int64_t step = 0; step < n; ++step) {
    const int64_t t = attrs.flag("reverse") ? n - 1 - step : step;
    for (size_t i = n_carry; i < n_carry + n_xs; ++i)
      body.bind(static_cast<int>(i), row_of(s.in[i], t));
    for (size_t i = n_carry; i < n_results; ++i)
      body.bind(static_cast<int>(s.in.size() + i - n_carry), row_of(s.out[i], t));
    for (size_t i = n_results; i < s.out.size(); ++i) {
      const int64_t saved = std::get<std::vector<int64_t>>(*saves)[i - n_results];
      copy_view(s.out[static_cast<size_t>(saved)], row_view(s.out[i], t));
    }
    run(body, s);
  }
}

}  // namespace

void run_region_step(const RegionStep& s) {
  const OpDef* op = s.step->op;
  if (op == &scan_op) return run_scan(s);
  if (op == &while_loop_op) return run_while(s);
  if (op == &cond_op) return run_call(s, *s.in[0].as<uint8_t>() ? 0 : 1, s.in.subspan(1));
  if (op == &call_op) return run_call(s, 0, s.in);
  TEGULA_CHECK(false, op->name, " has no way to run its regions");
}

}  // namespace tegula
