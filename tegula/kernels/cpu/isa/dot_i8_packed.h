// Integer products of many rows without VPDPBUSD: dot_packed's register tile over pairs of 16 bits,
// of weights in panels by rows of x as they are. Both keep their signs: there is no offset.
#pragma once

#include "tegula/kernels/cpu/isa/dot_i8_rows.h"
#include "tegula/kernels/cpu/isa/dot_micro.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// A step is a pair of neighbouring k in a lane.
struct I8MicroArgs {
  const char* x;  // rows of steps, x_row bytes apart
  int64_t x_row;
  const char* b;  // [step][kTileN]
  int64_t steps;
  const char* next_b;  // of the next strip, the part to be fetched into L2, so many bytes a step
  int64_t next_b_step;
  const float* scale;  // of kTileN columns
  float* y;            // [rows][kTileN]
};

// y = fma(sums, scale, y). Rows by threes from one register, as in dot_micro.cpp.
template <int kM>
static void i8_micro(const I8MicroArgs& u) {
  const char *b = u.b, *next_b = u.next_b, *x = u.x;
  const int64_t row = u.x_row;
  const char *x3 = x + 3 * row, *x6 = x + 6 * row, *x9 = x + 9 * row, *x12 = x + 12 * row;
  const auto base = [&](int i) __attribute__((always_inline)) {
    return i < 3 ? x : i < 6 ? x3 : i < 9 ? x6 : i < 12 ? x9 : x12;
  };
  Vi acc[kM][kTileNv];
#pragma GCC unroll 16
  for (int i = 0; i < kM; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kTileNv; ++v) acc[i][v] = set1i(0);
#pragma GCC unroll 4
  for (int64_t step = u.steps; step > 0; --step) {
    __builtin_prefetch(next_b, 0, 2), next_b += u.next_b_step;
    Vi w[kTileNv];
#pragma GCC unroll 4
    for (int v = 0; v < kTileNv; ++v)
      w[v] = loadi(reinterpret_cast<const int32_t*>(b) + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kM; ++i) {
      const Vi lane = set1i(*reinterpret_cast<const int32_t*>(base(i) + i % 3 * row));
#pragma GCC unroll 4
      for (int v = 0; v < kTileNv; ++v) acc[i][v] = acc[i][v] + madd16(w[v], lane);
    }
    x += 4, x3 += 4, b += 4 * kTileN;
    asm("" : "+r"(x3));
    if constexpr (kM > 6) {
      x6 += 4, x9 += 4, x12 += 4;
      asm("" : "+r"(x6), "+r"(x9), "+r"(x12));
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kM; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kTileNv; ++v) {
      float* y = u.y + i * kTileN + v * kLanes;
      store(y, fma(to_float(acc[i][v]), load(u.scale + v * kLanes), load(y)));
    }
}
using I8Micro = void (*)(const I8MicroArgs&);

template <int kM = kTileM>
static I8Micro i8_micro_of(int rows) {
  if constexpr (kM > 1)
    if (rows < kM) return i8_micro_of<kM - 1>(rows);
  return i8_micro<kM>;
}

class I8Packed {
 public:
  using Call = I8Call<false, false>;
  explicit I8Packed(const Call& c) : c_(c), p_(c.p), steps_(ceil_div(p_.e, 2)) {}

  void run() const {
    widen_x();
    const int64_t strips = ceil_div(p_.n, kTileN), bytes = strip_bytes();
    const int64_t most = std::max<int64_t>(1, c_.w.panel_bytes / std::max<int64_t>(64, bytes));
    for (int64_t first = 0; first < strips; first += most)
      multiply(first, std::min(most, strips - first));
  }

 private:
  static constexpr int64_t kRowsBytes = 192 << 10;  // of a task, so that they stay in L2
  static constexpr int64_t kWide = 1024;            // columns of a task
  static constexpr int64_t kStepBytes = 4 * kTileN;
  // Runs of rows over a few strips, so that memory is read in lines that follow one another.
  static constexpr int64_t kPackSteps = 32, kPackStrips = 128 / kTileN;

  int64_t strip_bytes() const { return p_.groups * steps_ * kStepBytes; }
  char* panel(int64_t strip) const { return c_.more + strip * strip_bytes(); }

  void widen_x() const {
    c_.call.pool->parallel_for(p_.m, [&](int64_t m, int) {
      const TensorRef& x = c_.call.in[0];
      const auto* src = static_cast<const int8_t*>(x.data) + m * x.stride[0];
      for (int64_t g = 0; g < p_.groups; ++g, src += p_.e) {
        auto* dst = reinterpret_cast<int16_t*>(c_.x_row(m, g));
        constexpr int64_t kRun = 32;  // of a known length, for the compiler's vectors
        int64_t k = 0;
        for (; k + kRun <= p_.e; k += kRun)
          for (int64_t i = 0; i < kRun; ++i) dst[k + i] = src[k + i];
        for (; k < 2 * steps_; ++k) dst[k] = k < p_.e ? src[k] : int8_t{0};
      }
    });
  }

  // The strips [first, first + strips) of columns.
  void multiply(int64_t first, int64_t strips) const {
    pack(first, strips);
    const int64_t row_bytes = std::max<int64_t>(1, p_.groups * steps_ * 4);
    int64_t rows = even_part(p_.m, std::max<int64_t>(4 * kTileM, kRowsBytes / row_bytes), kTileM);
    int64_t wide = even_part(strips, std::max<int64_t>(1, kWide / kTileN), 1);
    const auto tasks = [&] { return ceil_div(strips, wide) * ceil_div(p_.m, rows); };
    const int64_t least = 4 * c_.call.pool->n_threads();
    while (wide > 4 && tasks() < least) wide = ceil_div(wide, 2);
    while (rows > kTileM && tasks() < least) rows = round_up(ceil_div(rows, 2), kTileM);
    const int64_t across = ceil_div(strips, wide);
    c_.call.pool->parallel_for(tasks(), [&](int64_t i, int) {
      const int64_t m0 = i / across * rows, s = i % across * wide;
      task(first, s, std::min(wide, strips - s), m0, std::min(rows, p_.m - m0));
    });
  }

  void task(int64_t first, int64_t begin, int64_t strips, int64_t m0, int64_t rows) const {
    alignas(64) float y[kTileM * kTileN];
    alignas(64) float edge[kTileN] = {};
    const TensorRef &out = c_.call.out[0], &scale = c_.call.in[3], &sx = c_.call.in[1];
    const int64_t tiles = ceil_div(rows, kTileM), group_bytes = steps_ * kStepBytes;
    I8MicroArgs u{.x_row = c_.w.row_bytes, .steps = steps_, .y = y};
    for (int64_t s = begin; s < begin + strips; ++s) {
      const bool has_next = s + 1 < begin + strips;
      u.next_b_step = has_next ? ceil_div(kStepBytes, tiles) : 0;
      u.next_b = panel(has_next ? s + 1 : s);
      const int64_t n0 = (first + s) * kTileN;
      const int cols = static_cast<int>(std::min<int64_t>(kTileN, p_.n - n0));
      for (int64_t m = m0; m < m0 + rows; m += kTileM) {
        const int count = static_cast<int>(std::min<int64_t>(kTileM, m0 + rows - m));
        const I8Micro fn = i8_micro_of(count);
        float* to = out.as<float>() + m * out.stride[0] + n0;
        // Lines of the result come meanwhile: else stores wait for them.
        for (int i = 0; i < count; ++i)
          for (int j = 0; j < cols; j += 16) __builtin_prefetch(to + i * out.stride[0] + j, 1);
        for (int i = 0; i < count * kTileN; i += kLanes) store(y + i, zero());
        for (int64_t g = 0; g < p_.groups; ++g) {
          u.x = c_.x_row(m, g), u.b = panel(s) + g * group_bytes;
          u.scale = scale.as<const float>() + g * scale.stride[0] + n0;
          if (cols < kTileN)
            u.scale = static_cast<float*>(
                std::memcpy(edge, u.scale, static_cast<size_t>(cols) * sizeof(float)));
          fn(u);
          u.next_b += u.next_b_step * steps_;
        }
        for (int i = 0; i < count; ++i) {
          const Vf by = set1(sx.as<const float>()[(m + i) * sx.stride[0]]);
          for (int j = 0; j < cols; j += kLanes) {
            const Vf value = load(y + i * kTileN + j) * by;
            cols - j >= kLanes ? store(to + i * out.stride[0] + j, value)
                               : store_n(to + i * out.stride[0] + j, value, cols - j);
          }
        }
      }
    }
  }

  void pack(int64_t first, int64_t strips) const {
    const int64_t units = ceil_div(steps_, kPackSteps), wide = ceil_div(strips, kPackStrips);
    c_.call.pool->parallel_for(p_.groups * units * wide, [&](int64_t i, int) {
      const int64_t g = i / wide / units, begin = i / wide % units * kPackSteps;
      const int64_t s0 = i % wide * kPackStrips, end = std::min(s0 + kPackStrips, strips);
      for (int64_t step = begin; step < std::min(begin + kPackSteps, steps_); ++step) {
        const uint8_t* rows[2] = {};
        rows_of(g, step, rows);
        for (int64_t s = s0; s < end; ++s)
          pack_step(rows, (first + s) * kTileN, panel(s) + (g * steps_ + step) * kStepBytes);
      }
    });
  }

  // kTileN columns from n0 on.
  void pack_step(const uint8_t* const (&rows)[2], int64_t n0, char* dst) const {
    const int n = p_.is_four ? 1 : 2;
    uint8_t edge[2][kTileN];
    const uint8_t* at[2];
    for (int i = 0; i < n; ++i) at[i] = rows[i] + n0;
    if (p_.n - n0 < kTileN)
      for (int i = 0; i < n; ++i) {
        std::memset(edge[i], 0, kTileN);
        at[i] = static_cast<uint8_t*>(std::memcpy(edge[i], at[i], static_cast<size_t>(p_.n - n0)));
      }
    for (int j = 0; j < kTileN; j += kLanes)
      storei(reinterpret_cast<int32_t*>(dst) + j,
             p_.is_four ? pack_lanes<true>(at, j) : pack_lanes<false>(at, j));
  }

  // The rows of bytes of a step; past the group's end, where x is 0, its last.
  void rows_of(int64_t g, int64_t step, const uint8_t** rows) const {
    const TensorRef& q = c_.call.in[2];
    const int64_t n = p_.is_four ? 1 : 2, group = p_.e * n / 2;
    for (int64_t i = 0; i < n; ++i)
      rows[i] = static_cast<const uint8_t*>(q.data) +
                (g * group + std::min(step * n + i, group - 1)) * q.stride[0];
  }

  // kLanes columns from j on.
  template <bool kFour>
  TEGULA_VEC Vi pack_lanes(const uint8_t* const (&at)[2], int j) {
    const Vi half = set1i(0xffff), eight = set1i(8);
    if constexpr (kFour) {
      const Vi a = load_u8(at[0] + j);
      return (((a & set1i(15)) - eight) & half) | shl<16>(shr<4>(a) - eight);
    }
    return (load_i8(at[0] + j) & half) | shl<16>(load_i8(at[1] + j));
  }

  const Call& c_;
  const I8Problem& p_;
  const int64_t steps_;  // of a group
};

}  // namespace tegula::kernel::TEGULA_ISA_NS
