// Instructions of a whole warp on matrices: mma.sync, ldmatrix, stmatrix, movmatrix. Fragments as
// the PTX ISA has them: an 8 × 8 matrix of 16-bit elements is a register of each lane l, row l / 4,
// columns 2 (l % 4) and the next.
#pragma once

namespace tegula::emulated::ptx {

// d[16][8] += a[16][16] b[16][8]: a in four 8 × 8 matrices (rows 0 and 8, then columns 8), b in two
// by columns, d in two of f32 pairs.
struct Mma {
  float d[4];
  u32 a[4], b[2];
};
template <float (*kFrom)(u32)>
void join_mma(void* const (&slots)[kWarpSize], unsigned lanes) {
  need_whole_warp(lanes, "mma.sync needs all 32 lanes of its warp");
  float a[16][16], b[16][8], d[16][8];
  for (unsigned l = 0; l < kWarpSize; ++l) {
    const Mma& m = *static_cast<const Mma*>(slots[l]);
    const unsigned row = l / 4, k = l % 4 * 2;
    for (unsigned i = 0; i < 4; ++i)
      for (unsigned half = 0; half < 2; ++half)
        a[row + i % 2 * 8][k + i / 2 * 8 + half] = kFrom(m.a[i] >> 16 * half & 0xffff);
    for (unsigned i = 0; i < 2; ++i)
      for (unsigned half = 0; half < 2; ++half) {
        b[k + 8 * i + half][row] = kFrom(m.b[i] >> 16 * half & 0xffff);
        d[row + 8 * i][k + half] = m.d[2 * i + half];
      }
  }
  for (unsigned i = 0; i < 16; ++i)
    for (unsigned k = 0; k < 16; ++k)
      for (unsigned j = 0; j < 8; ++j) d[i][j] += a[i][k] * b[k][j];
  for (unsigned l = 0; l < kWarpSize; ++l)
    for (unsigned i = 0; i < 4; ++i)
      static_cast<Mma*>(slots[l])->d[i] = d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
}
template <float (*kFrom)(u32)>
void mma(auto& d0, auto& d1, auto& d2, auto& d3, const Mma& given) {
  Mma m = given;
  current_machine->meet(kAllLanes, "mma.sync", join_mma<kFrom>, &m);
  d0 = m.d[0], d1 = m.d[1], d2 = m.d[2], d3 = m.d[3];
}
inline void mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(float& d0, float& d1, float& d2,
                                                                float& d3, u32 a0, u32 a1, u32 a2,
                                                                u32 a3, u32 b0, u32 b1, float c0,
                                                                float c1, float c2, float c3) {
  mma<from_bf16>(d0, d1, d2, d3, {{c0, c1, c2, c3}, {a0, a1, a2, a3}, {b0, b1}});
}
inline void mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(float& d0, float& d1, float& d2,
                                                              float& d3, u32 a0, u32 a1, u32 a2,
                                                              u32 a3, u32 b0, u32 b1, float c0,
                                                              float c1, float c2, float c3) {
  mma<from_f16>(d0, d1, d2, d3, {{c0, c1, c2, c3}, {a0, a1, a2, a3}, {b0, b1}});
}

// Four matrices: lanes 8 i to 8 i + 7 give the addresses of the rows of matrix i.
struct Rows {
  u32 address;
  u32 r[4];
};
inline u16* row_at(void* const (&slots)[kWarpSize], unsigned row) {
  return reinterpret_cast<u16*>(
      current_machine->shared_data(static_cast<const Rows*>(slots[row])->address, 16, 16));
}
template <bool kTransposes>
void join_ldmatrix(void* const (&slots)[kWarpSize], unsigned lanes) {
  need_whole_warp(lanes, "ldmatrix needs all 32 lanes of its warp");
  const u16* rows[kWarpSize];
  for (unsigned i = 0; i < kWarpSize; ++i) rows[i] = row_at(slots, i);
  for (unsigned l = 0; l < kWarpSize; ++l)
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = l / 4, column = l % 4 * 2;
      const u16 low = kTransposes ? rows[8 * i + column][row] : rows[8 * i + row][column];
      const u16 high = kTransposes ? rows[8 * i + column + 1][row] : rows[8 * i + row][column + 1];
      static_cast<Rows*>(slots[l])->r[i] = u32(high) << 16 | low;
    }
}
template <bool kTransposes>
void ldmatrix(auto& r0, auto& r1, auto& r2, auto& r3, u32 address) {
  Rows rows{address, {}};
  current_machine->meet(kAllLanes, "ldmatrix", join_ldmatrix<kTransposes>, &rows);
  r0 = rows.r[0], r1 = rows.r[1], r2 = rows.r[2], r3 = rows.r[3];
}
inline void ldmatrix_sync_aligned_m8n8_x4_shared_b16(auto& r0, auto& r1, auto& r2, auto& r3,
                                                     u32 address) {
  ldmatrix<false>(r0, r1, r2, r3, address);
}
inline void ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(auto& r0, auto& r1, auto& r2, auto& r3,
                                                           u32 address) {
  ldmatrix<true>(r0, r1, r2, r3, address);
}

inline void join_stmatrix(void* const (&slots)[kWarpSize], unsigned lanes) {
  need_whole_warp(lanes, "stmatrix needs all 32 lanes of its warp");
  for (unsigned l = 0; l < kWarpSize; ++l)
    for (unsigned i = 0; i < 4; ++i) {
      u16* row = row_at(slots, 8 * i + l / 4);
      const u32 both = static_cast<const Rows*>(slots[l])->r[i];
      row[l % 4 * 2] = static_cast<u16>(both), row[l % 4 * 2 + 1] = static_cast<u16>(both >> 16);
    }
}
inline void stmatrix_sync_aligned_m8n8_x4_shared_b16(u32 address, u32 r0, u32 r1, u32 r2, u32 r3) {
  Rows rows{address, {r0, r1, r2, r3}};
  current_machine->meet(kAllLanes, "stmatrix", join_stmatrix, &rows);
}

struct Move {
  u32 from, to;
};
inline void join_movmatrix(void* const (&slots)[kWarpSize], unsigned lanes) {
  need_whole_warp(lanes, "movmatrix needs all 32 lanes of its warp");
  u16 x[8][8];
  for (unsigned l = 0; l < kWarpSize; ++l)
    for (unsigned half = 0; half < 2; ++half)
      x[l / 4][l % 4 * 2 + half] =
          static_cast<u16>(static_cast<const Move*>(slots[l])->from >> 16 * half);
  for (unsigned l = 0; l < kWarpSize; ++l)
    static_cast<Move*>(slots[l])->to = u32(x[l % 4 * 2 + 1][l / 4]) << 16 | x[l % 4 * 2][l / 4];
}
inline void movmatrix_sync_aligned_m8n8_trans_b16(auto& to, u32 from) {
  Move move{from, 0};
  current_machine->meet(kAllLanes, "movmatrix", join_movmatrix, &move);
  to = move.to;
}

}  // namespace tegula::emulated::ptx
