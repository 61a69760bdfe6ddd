#include "tegula/cost/price.h"

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
}  // namespace

double flops_per_s(const Target& t, DType dtype) {
  const bool is_narrow = size_bytes(dtype) <= 2 && is_float(dtype);
  double rate = is_narrow ? t.bf16_flops_per_s : t.f32_flops_per_s;
  if (dtype == DType::kF64) rate /= 2;
  return rate > 0 ? rate * t.flops_efficiency : 1e11;
}

double bytes_per_s(const Target& t) {
  return t.bytes_per_s > 0 ? t.bytes_per_s * t.bytes_efficiency : 1e10;
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

double price_of_exchange(const Target& target, int n_meetings, double sent_bytes) {
  const double meeting = target.link_s > 0 ? target.link_s : kMeetingSeconds;
  const double rate = target.link_bytes_per_s > 0 ? target.link_bytes_per_s : bytes_per_s(target);
  return n_meetings * meeting + sent_bytes / rate;
}

double price_of_collective(const Target& target, const OpCall& call) {
  const int64_t n = call.attrs->i("ranks");
  if (n == 1) return 0;
  int64_t most = 0;
  for (int64_t r = 0; r < n; ++r) most = std::max(most, call.op->collective->sent_bytes(call, r));
  return price_of_exchange(target, call.op->collective->n_meetings, static_cast<double>(most));
}

double price(const Target& target, const OpCall& call) {
  if (call.op->collective) return price_of_collective(target, call);
  const Bytes b = bytes_of(call);
  const DType dtype = call.in.empty() ? DType::kF32 : call.in[0].dtype;
  return price(target, dtype, static_cast<double>(flops_of(call)),
               static_cast<double>(b.read) + static_cast<double>(b.written));
}

}  // namespace tegula
