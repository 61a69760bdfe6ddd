// d = max |x| / 127 of every 32 values, q = floor(x (127 / max) + 1/2).
#include "tegula/kernels/cpu/common/rows.h"
#include "tegula/kernels/cpu/isa/table.h"
#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
constexpr int64_t kBlock = 32;
constexpr int kVectors = kBlock / kLanes;

void quantise(const float* x, int8_t* q, float& d) {
  Vf v[kVectors], most = zero(), wrong = zero();
  for (int i = 0; i < kVectors; ++i) {
    v[i] = load(x + i * kLanes);
    most = max(abs(v[i]), most);
    wrong = wrong + (v[i] - v[i]);  // a NaN, if one of them is none or infinite
  }
  const float largest = max_lanes(most), check = sum_lanes(wrong);
  const bool is_finite = check == 0.0F;
  d = is_finite ? largest * static_cast<float>(1.0 / 127) : __builtin_nanf("");
  if (!is_finite || largest == 0.0F) {
    std::memset(q, 0, kBlock);
    return;
  }
  const Vf by = set1(127.0F / largest);
  int32_t whole[kBlock];
  // A denormal maximum may make 127 / max infinite: floor and the bounds still give a byte.
  for (int i = 0; i < kVectors; ++i)
    storei(whole + i * kLanes,
           to_int(min(set1(127.0F), max(set1(-127.0F), floor(v[i] * by + set1(0.5F))))));
  for (int64_t i = 0; i < kBlock; ++i) q[i] = static_cast<int8_t>(whole[i]);
}
}  // namespace

void quantise_blocks(const KernelCall& call) {
  const TensorRef &x = call.in[0], &q = call.out[0], &d = call.out[1];
  const int64_t k = row_length(x), blocks = k / kBlock;
  const int64_t rows = row_count(x), flops = rows * (7 * k + 2 * blocks);
  call.counters->add(flops, flops);
  Loops at;
  for (int i = 0; i + 1 < x.rank; ++i) {
    Factor f;
    f.extent = x.shape[i], f.stride[kA] = x.stride[i];
    f.stride[kB] = d.stride[i], f.stride[kOut] = q.stride[i];
    at.add(f);
  }
  const int64_t grain = call.pool->grain(8);
  call.pool->parallel_for(ceil_div(rows, grain), [&](int64_t task, int) {
    for (int64_t m = task * grain; m < std::min((task + 1) * grain, rows); ++m) {
      const float* from = x.as<const float>() + at.offset(m, kA);
      int8_t* to = q.as<int8_t>() + at.offset(m, kOut);
      float* scale = d.as<float>() + at.offset(m, kB);
      for (int64_t b = 0; b < blocks; ++b) quantise(from + b * kBlock, to + b * kBlock, scale[b]);
    }
  });
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
