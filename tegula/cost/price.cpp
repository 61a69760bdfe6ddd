#include "tegula/cost/price.h"

#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/ir/collective.h"

namespace tegula {

namespace {

// The divisor of the peak of multiply-adds: `tegula bench ops --shape 64,1024 --threads 1` does
// silu at 15 and gelu at 24 GFLOP/s, in caches, where multiply-adds reach 118.
constexpr double kPeakOfElementwise = 8;
// An order of magnitude, assumed for ranks with a core each. Four ranks on two busy cores take 20
// to 65 us (400 meetings in `tests_runtime --gtest_filter=RankGroup.NobodyWaits*`: 8 to 26 ms).
constexpr double kMeetingSeconds = 1e-5;
constexpr double kUnknownFlops = 1e11, kUnknownBytes = 1e10;

double real(int64_t n) { return static_cast<double>(n); }

// The row of the same chip; null: of none.
const Accelerator* row_of(const Target& t) {
  const Accelerator* best = nullptr;
  if (t.device != DeviceKind::kCuda) return best;
  const auto far = [&](const Accelerator& a) {
    return std::fabs(a.memory_bytes_per_s - t.bytes_per_s);
  };
  for (const Accelerator& a : accelerator_presets())
    if (a.capability == t.capability && a.multiprocessors == t.multiprocessors)
      if (!best || far(a) < far(*best)) best = &a;
  return best;
}

double peak_of(const Target& t, DType dtype) {
  const bool is_narrow = size_bytes(dtype) <= 2 && is_float(dtype);
  const double rate = is_narrow ? t.bf16_flops_per_s : t.f32_flops_per_s;
  return dtype == DType::kF64 ? rate / 2 : rate;
}

Sustained shares_of(const Target& t, const Accelerator* row) {
  Sustained s = row ? row->sustained : Sustained();
  if (!row || t.flops_efficiency != 1)
    s.product = t.flops_efficiency, s.k_half = 0, s.clock = 1, s.is_known = true;
  if (!row || t.bytes_efficiency != 1) s.memory = t.bytes_efficiency;
  return s;
}

// Products of the extents of a product's factors, by who has them. False: it has no such shape.
bool find_shape(const OpCall& call, Work& w) {
  const auto map = dim_map(call);
  if (!map.ok() || map->operands.size() < 2) return false;
  const auto has = [](const std::vector<DimExpr>& tensor, size_t factor) {
    return std::any_of(tensor.begin(), tensor.end(), [&](const DimExpr& e) {
      return std::any_of(e.terms.begin(), e.terms.end(),
                         [&](const DimTerm& t) { return t.factor == factor; });
    });
  };
  w.m = w.n = w.k = w.count = 1;
  for (size_t f = 0; f < map->factors.size(); ++f) {
    const bool left = has(map->operands[0], f), right = has(map->operands[1], f);
    const bool stays = !map->results.empty() && has(map->results[0], f);
    double& extent = !right ? w.m : !left ? w.n : stays ? w.count : w.k;
    if (left || right) extent *= real(map->factors[f].size.bound());
  }
  if (w.k == 1) std::swap(w.k, w.count);  // as in a loss whose first result is a gradient
  return true;
}

}  // namespace

Accelerator device_of(const Target& t) {
  const Accelerator* row = row_of(t);
  Accelerator a = row ? *row : Accelerator();
  a.name = t.name;
  for (const auto& [number, dtype] : {std::pair{Number::kBf16, DType::kBF16},
                                      {Number::kF32, DType::kF32},
                                      {Number::kF64, DType::kF64}}) {
    double& peak = a.flops_per_s[static_cast<int>(number)];
    if (const double own = peak_of(t, dtype); own > 0 && (!row || number != Number::kF64))
      peak = own;
    if (peak == 0) peak = kUnknownFlops;
  }
  a.memory_bytes_per_s = t.bytes_per_s > 0 ? t.bytes_per_s : kUnknownBytes;
  a.sustained = shares_of(t, row);
  return a;
}

Work work_of(const OpCall& call) {
  const Bytes moved = bytes_of(call);
  return work_of(call, real(flops_of(call)), real(moved.read) + real(moved.written));
}

Work work_of(const OpCall& call, double flops, double bytes) {
  Work w;
  w.name = call.op->name, w.flops = flops, w.bytes = bytes;
  if (call.op->precision != Precision::kLow) return w;
  w.unit = Unit::kMatmul;
  if (!call.op->name.starts_with("attention")) {
    if (!find_shape(call, w)) w.unit = Unit::kRows;
    return w;
  }
  w.unit = call.op->name.ends_with("_bwd") ? Unit::kAttentionBackward : Unit::kAttention;
  const Shape& k = call.shape(1);
  w.seqlen = real(k[1].bound()), w.head_dim = w.k = real(k[3].bound());
  return w;
}

double flops_per_s(const Target& t, DType dtype) {
  Accelerator device;  // by its shares alone
  device.sustained = shares_of(t, row_of(t));
  const double peak = peak_of(t, dtype);
  return peak > 0 ? peak * large_product_share(device) : kUnknownFlops;
}

double bytes_per_s(const Target& t) {
  return t.bytes_per_s > 0 ? t.bytes_per_s * shares_of(t, row_of(t)).memory : kUnknownBytes;
}

double elementwise_flops_per_s(const Target& t) {
  return flops_per_s(t, DType::kF32) / kPeakOfElementwise;
}

int64_t cached_bytes(const Target& t) {
  if (t.device == DeviceKind::kCuda) return t.l2_bytes;
  return t.caches.bytes[CacheSizes::kLevels - 1] * t.n_threads;
}

double price(const Target& target, DType dtype, double flops, double bytes) {
  return std::max(flops / flops_per_s(target, dtype), bytes / bytes_per_s(target));
}

double price(const Accelerator& device, const Work& work, Number number) {
  return price({&work, 1}, device, kExpected, number).total();
}

double price(const Target& target, const Work& work, DType dtype) {
  Work w = work;
  if (target.device == DeviceKind::kCpu) w.seqlen = 0;  // its attention is products
  const bool is_narrow = size_bytes(dtype) <= 2 && is_float(dtype);
  const Number number = dtype == DType::kF64 ? Number::kF64
                        : is_narrow          ? Number::kBf16
                                             : Number::kF32;
  return price(device_of(target), w, number);
}

double price(const Target& target, const OpCall& call) {
  if (!call.op->collective)
    return price(target, work_of(call), call.in.empty() ? DType::kF32 : call.in[0].dtype);
  const int64_t n = call.attrs->i("ranks");
  if (n == 1) return 0;
  int64_t most = 0;
  for (int64_t r = 0; r < n; ++r) most = std::max(most, call.op->collective->sent_bytes(call, r));
  return price_of_exchange(target, call.op->collective->n_meetings, real(most));
}

Link link_of(const Target& t) {
  Link link = {bytes_per_s(t), kMeetingSeconds};
  if (const Accelerator* row = row_of(t))
    link = {row->inside.bytes_per_s * row->sustained.inside[0].share, row->inside.seconds};
  if (t.link_s > 0) link.seconds = t.link_s;
  if (t.link_bytes_per_s > 0) link.bytes_per_s = t.link_bytes_per_s;
  return link;
}

double price_of_exchange(const Target& target, int n_meetings, double sent_bytes) {
  return seconds_of(link_of(target), n_meetings, sent_bytes);
}

double dollars(const Accelerator& device, double n_devices, double seconds) {
  return device.dollars_per_hour * n_devices * seconds / 3600;
}

}  // namespace tegula
