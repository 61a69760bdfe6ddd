// Shared by attention's forward and backward in tiles.
#pragma once

#include "tegula/kernels/cpu/common/attention_amx.h"
#include "tegula/kernels/cpu/isa/amx_blocks.h"
#include "tegula/kernels/cpu/isa/attention_rows.h"

namespace tegula::kernel::TEGULA_ISA_NS {

inline constexpr float kLn2 = 0x1.62e43p-1f;

// The rows that go together: (query, head of the group) of one batch and key head, in either order.
static inline Loops row_loops(const AttentionCall& c, const TensorRef& t, bool heads_first) {
  Factor query{.extent = c.n_q}, head{.extent = c.group};
  query.stride[kA] = t.stride[1], head.stride[kA] = t.stride[2];
  Loops l;
  heads_first ? (l.add(head), l.add(query)) : (l.add(query), l.add(head));
  return l;
}

// A weight of 0 times NaN is NaN, so what nobody sees must not be there: sets what is not finite in
// a packed block to 0. Returns in which k it was (bit k), if the block is a b.
static inline uint32_t clear_non_finite(char* block) {
  const Vi exponents = set1i(0x7f807f80), even = set1i(0x7f80), odd = set1i(0x7f800000);
  const auto* whole = reinterpret_cast<const int32_t*>(block);
  Vm is_any = eqi(set1i(0), exponents);
  for (int j = 0; j < 2 * kTile * kTile; j += kLanes) {
    const Vi e = loadi(whole + j) & exponents;
    is_any = is_any | eqi(e & even, even) | eqi(e & odd, odd);
  }
  if (!any(is_any)) return 0;
  uint32_t found = 0;
  auto* row = reinterpret_cast<int32_t*>(block);
  for (int p = 0; p < 2 * kTile; ++p, row += kTile)
    for (int j = 0; j < kTile; j += kLanes) {
      const Vi x = loadi(row + j), e = x & exponents;
      const Vm in_even = eqi(e & even, even), in_odd = eqi(e & odd, odd);
      if (!any(in_even | in_odd)) continue;
      const Vi y = select(in_even, x & set1i(INT32_MIN >> 15), x);
      storei(row + j, select(in_odd, y & set1i(0xffff), y));
      found |= (any(in_even) ? 1u : 0u) << (2 * (p % kTile));
      found |= (any(in_odd) ? 2u : 0u) << (2 * (p % kTile));
    }
  return found;
}
inline constexpr uint16_t kNaN16 = 0x7fc0;

// acc[0 .. n) times `scale` to a row of a result.
template <class T>
static inline void store_result(const float* acc, int64_t n, float scale, T* out, int64_t stride) {
  for (int64_t e = 0; e < n; e += kLanes) {
    // + 0: a zero has one sign, whichever masked products were formed.
    const Vf y = fma(load(acc + e), set1(scale), zero());
    const int m = n - e < kLanes ? static_cast<int>(n - e) : kLanes;
    if (stride == 1) {
      m == kLanes ? store(out + e, y) : store_n(out + e, y, m);
    } else {
      T t[kLanes];
      store(t, y);
      for (int l = 0; l < m; ++l) out[(e + l) * stride] = t[l];
    }
  }
}

// The same to `out` at an offset, which is f32 or bf16.
static inline void store_result(const float* acc, int64_t n, float scale, const TensorRef& out,
                                int64_t at) {
  if (out.dtype == DType::kF32)
    store_result(acc, n, scale, out.as<float>() + at, out.stride[3]);
  else
    store_result(acc, n, scale, out.as<bf16>() + at, out.stride[3]);
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
