// wgmma: D[64][N] (+)= A[64][K] B[K][N] of a warpgroup. A warp's 16 rows need nothing of the
// others, so each warp does its own, at once.
#pragma once

namespace tegula::emulated::ptx {

inline void wgmma_fence_sync_aligned() {}
inline void wgmma_commit_group_sync_aligned() {}
inline void wgmma_wait_group_sync_aligned(u32) {}

// An operand in shared memory with the 128-byte swizzle: start, and two strides.
struct SharedOperand {
  u32 start, leading, stride;
  explicit SharedOperand(u64 bits)
      : start(u32(bits & 0x3fff) << 4),
        leading(u32(bits >> 16 & 0x3fff) << 4),
        stride(u32(bits >> 32 & 0x3fff) << 4) {
    if (bits >> 62 != 1) fail("wgmma by a descriptor without the 128-byte swizzle");
  }
  // The offset of the element at k and at `i` along the other dim.
  template <unsigned kBytes>
  u32 bits_at(unsigned i, unsigned k, bool is_mn_major) const {
    const u32 linear =
        is_mn_major ? start + i / 64 * leading + k / 8 * stride + k % 8 * 128 + i % 64 * kBytes
                    : start + i / 8 * stride + i % 8 * 128 + k * kBytes;
    const char* at =
        current_machine->shared_data(linear ^ ((linear >> 7 & 7) << 4), kBytes, kBytes);
    return kBytes == 2 ? u32(*reinterpret_cast<const u16*>(at))
                       : u32(*reinterpret_cast<const unsigned char*>(at));
  }
};

// A lane's data: its sums, and the operands after them as they stand in the instruction.
template <unsigned kN>
struct Wgmma {
  float* d[kN / 2];
  u64 rest[9];
  unsigned n_sums = 0, n_rest = 0;
  void take(float& x) { d[n_sums++] = &x; }
  void take(u64 x) { rest[n_rest++] = x; }
};
template <unsigned kN, unsigned kBytes, float (*kFrom)(u32)>
void join_wgmma(void* const (&slots)[kWarpSize], unsigned lanes) {
  need_whole_warp(lanes, "wgmma needs all 32 lanes of its warp");
  constexpr unsigned kK = 32 / kBytes, kPerWord = 4 / kBytes;
  const auto of = [&](unsigned l) -> Wgmma<kN>& { return *static_cast<Wgmma<kN>*>(slots[l]); };
  const Wgmma<kN>& first = of(0);
  const bool from_registers = first.n_rest >= 8;
  const unsigned after = from_registers ? 4 : 1;  // of A
  for (unsigned l = 1; l < kWarpSize; ++l)
    for (unsigned i = from_registers ? 4 : 0; i < first.n_rest; ++i)
      if (of(l).rest[i] != first.rest[i]) fail("wgmma with other operands in other lanes");
  const SharedOperand b_at(first.rest[after]);
  const bool adds = first.rest[after + 1] != 0;
  const bool a_mn = kBytes == 2 && !from_registers && first.rest[5] != 0;
  const bool b_mn = kBytes == 2 && first.rest[from_registers ? 8 : 6] != 0;
  const Thread& t = *current_thread;
  const unsigned warp = t.thread_index.x / kWarpSize % 4;

  float a[16][kK], b[kK][kN], d[16][kN];
  for (unsigned k = 0; k < kK; ++k)
    for (unsigned j = 0; j < kN; ++j) b[k][j] = kFrom(b_at.bits_at<kBytes>(j, k, b_mn));
  if (from_registers) {
    for (unsigned l = 0; l < kWarpSize; ++l)
      for (unsigned i = 0; i < 4; ++i)
        for (unsigned e = 0; e < kPerWord; ++e)
          a[l / 4 + i % 2 * 8][i / 2 * (kK / 2) + l % 4 * kPerWord + e] =
              kFrom(u32(of(l).rest[i]) >> 8 * kBytes * e & (kBytes == 2 ? 0xffff : 0xff));
  } else {
    const SharedOperand a_at(first.rest[0]);
    for (unsigned i = 0; i < 16; ++i)
      for (unsigned k = 0; k < kK; ++k)
        a[i][k] = kFrom(a_at.bits_at<kBytes>(16 * warp + i, k, a_mn));
  }
  const auto place = [&](unsigned l, unsigned i) -> float& {
    return d[l / 4 + i / 2 % 2 * 8][i / 4 * 8 + l % 4 * 2 + i % 2];
  };
  for (unsigned l = 0; l < kWarpSize; ++l)
    for (unsigned i = 0; i < kN / 2; ++i) place(l, i) = adds ? *of(l).d[i] : 0.f;
  for (unsigned i = 0; i < 16; ++i)
    for (unsigned k = 0; k < kK; ++k)
      for (unsigned j = 0; j < kN; ++j) d[i][j] += a[i][k] * b[k][j];
  for (unsigned l = 0; l < kWarpSize; ++l)
    for (unsigned i = 0; i < kN / 2; ++i) *of(l).d[i] = place(l, i);
}
template <unsigned kN, unsigned kBytes, float (*kFrom)(u32), class... T>
void wgmma(T&&... operands) {
  Wgmma<kN> slot;
  (slot.take(operands), ...);
  current_machine->meet(kAllLanes, "wgmma", join_wgmma<kN, kBytes, kFrom>, &slot);
}

#define EMULATED_WGMMA_OF(N, shape, types, bytes, from)                             \
  template <class... T>                                                             \
  inline void wgmma_mma_async_sync_aligned_m64n##N##shape##_f32_##types(T&&... x) { \
    wgmma<N, bytes, from>(x...);                                                    \
  }
#define EMULATED_WGMMA_WIDTH(N)                      \
  EMULATED_WGMMA_OF(N, k16, bf16_bf16, 2, from_bf16) \
  EMULATED_WGMMA_OF(N, k16, f16_f16, 2, from_f16)    \
  EMULATED_WGMMA_OF(N, k32, e4m3_e4m3, 1, from_e4m3)
EMULATED_WGMMA_WIDTH(32)
EMULATED_WGMMA_WIDTH(64)
EMULATED_WGMMA_WIDTH(80)
EMULATED_WGMMA_WIDTH(88)
EMULATED_WGMMA_WIDTH(96)
EMULATED_WGMMA_WIDTH(112)
EMULATED_WGMMA_WIDTH(128)
EMULATED_WGMMA_WIDTH(144)
EMULATED_WGMMA_WIDTH(160)
EMULATED_WGMMA_WIDTH(176)
EMULATED_WGMMA_WIDTH(192)
EMULATED_WGMMA_WIDTH(256)
#undef EMULATED_WGMMA_WIDTH
#undef EMULATED_WGMMA_OF

}  // namespace tegula::emulated::ptx
