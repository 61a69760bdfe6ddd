// y = x (q scale) with weights of 8 or 4 bits. Lanes are columns; a few rows of q at a time over
// all columns of a task, so that memory is read in runs and a sum is loaded and stored once per
// run.

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/dot_plan.h"
#include "tegula/kernels/cpu/common/quantised.h"
#include "tegula/kernels/cpu/common/workspace.h"
#include "tegula/kernels/cpu/isa/table.h"
#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
// The two weights in the low bytes of lanes.
#if defined(TEGULA_ISA_AVX512)
TEGULA_VEC Vf lookup_i4(Vi i) {
  const __m512 t = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  return {_mm512_permutexvar_ps(i.v, t)};
}
TEGULA_VEC Vf low_i4(Vi two) { return lookup_i4(two); }
TEGULA_VEC Vf high_i4(Vi two) { return lookup_i4(shr<4>(two)); }
#else
TEGULA_VEC Vf low_i4(Vi two) { return to_float((two & set1i(15)) - set1i(8)); }
TEGULA_VEC Vf high_i4(Vi two) { return to_float(shr<4>(two) - set1i(8)); }
#endif

constexpr int64_t kSums = 8192;    // of a task, at most: they stay in L1
constexpr int64_t kFolded = 1024;  // columns of a task that adds shards
constexpr int kRows = kQuantisedRows;
constexpr int kRun = 8;             // rows of q at a time
constexpr int64_t kFetched = 4096;  // bytes ahead of their use, of all of them

// Sums of kM rows of x and `cols` columns from q on, rows sum_row apart.
template <bool kPacked, int kM>
struct QuantisedRun {
  const float* x;
  int64_t x_row;
  const uint8_t* q;
  int64_t q_row;  // between its rows: a k, or two of them
  const float* scale;
  int64_t cols;
  float* sums;
  int64_t sum_row;

  // Columns at a time: chains enough to hide the latency of a multiply-add, and for one row of x on
  // AVX-512 a cache line of q.
  static constexpr int kVectors = kM == 1 ? 4 : kM == 2 ? 2 : 1;
  static constexpr int kColumns = kVectors * kLanes;

  // The weights of kN neighbouring k, all of one group, times x. `more`: the next k follow.
  template <int kN>
  void add(int64_t k, bool more) const {
    float a[kM * kN];
    for (int i = 0; i < kM; ++i)
      for (int r = 0; r < kN; ++r) a[i * kN + r] = x[i * x_row + k + r];
    constexpr int kBytes = kPacked ? kN / 2 : kN;
    constexpr int64_t kAhead = kFetched / kBytes;
    const uint8_t* p = q + (kPacked ? k / 2 : k) * q_row;
    const float* at = a;
    int64_t j = 0;
    for (; j + kColumns <= cols; j += kColumns) {
      // Rows of the next k are other pages, which the processor does not foresee.
      if (j % 64 == 0) {
        const int64_t over = j + kAhead - cols;
        const uint8_t* line = over < 0 || !more ? p + j + kAhead : p + kBytes * q_row + over;
#pragma GCC unroll 8
        for (int r = 0; r < kBytes; ++r) __builtin_prefetch(line + r * q_row);
      }
      asm("" : "+r"(at));  // else all of a is broadcast before the loop, into the stack
      Vf w[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) w[v] = load(scale + j + v * kLanes);
      add_lanes<kN, kVectors>(p + j, q_row, at, w, sums + j, sum_row);
    }
    for (; j < cols; j += kLanes) {
      const int n = static_cast<int>(std::min<int64_t>(cols - j, kLanes));
      uint8_t rest[kBytes * kLanes] = {};
      for (int r = 0; r < kBytes; ++r)
        std::memcpy(rest + r * kLanes, p + r * q_row + j, static_cast<size_t>(n));
      float edge[kM * kLanes];
      for (int i = 0; i < kM; ++i) store(edge + i * kLanes, load_n(sums + i * sum_row + j, n));
      const Vf w[1] = {load_n(scale + j, n)};
      add_lanes<kN, 1>(rest, kLanes, a, w, edge, kLanes);
      for (int i = 0; i < kM; ++i) store_n(sums + i * sum_row + j, load(edge + i * kLanes), n);
    }
  }

  template <int kN, int kV>
  static __attribute__((always_inline)) void add_lanes(const uint8_t* p, int64_t row,
                                                       const float* a, const Vf (&scale)[kV],
                                                       float* sum, int64_t sum_row) {
    Vf acc[kM][kV];
#pragma GCC unroll 4
    for (int i = 0; i < kM; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kV; ++v) acc[i][v] = load(sum + i * sum_row + v * kLanes);
    const auto take = [&](Vf q, int r, int v) __attribute__((always_inline)) {
      const Vf w = q * scale[v];
#pragma GCC unroll 4
      for (int i = 0; i < kM; ++i) acc[i][v] = fma(set1(a[i * kN + r]), w, acc[i][v]);
    };
#pragma GCC unroll 8
    for (int r = 0; r < kN; r += kPacked ? 2 : 1, p += row) {
      if constexpr (kPacked) {
        Vf high[kV];
#pragma GCC unroll 4
        for (int v = 0; v < kV; ++v) {
          const Vi two = load_u8(p + v * kLanes);
          take(low_i4(two), r, v);
          high[v] = high_i4(two);
        }
#pragma GCC unroll 4
        for (int v = 0; v < kV; ++v) take(high[v], r + 1, v);
      } else {
#pragma GCC unroll 4
        for (int v = 0; v < kV; ++v) take(to_float(load_i8(p + v * kLanes)), r, v);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kM; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < kV; ++v) store(sum + i * sum_row + v * kLanes, acc[i][v]);
  }
};

template <bool kPacked>
class Quantised {
 public:
  explicit Quantised(const KernelCall& call)
      : call_(call),
        m_(call.in[0].shape[0]),
        n_(call.in[1].shape[1]),
        k_(call.in[0].shape[1]),
        shards_(call.attrs->get_or<int64_t>("k_shards", 1)),
        group_(k_ / std::max<int64_t>(1, call.in[2].shape[0])) {}

  void run() const {
    for (int64_t m = 0; m < m_; m += kRows) switch (std::min<int64_t>(kRows, m_ - m)) {
        case 1:
          rows<1>(m);
          break;
        case 2:
          rows<2>(m);
          break;
        case 3:
          rows<3>(m);
          break;
        default:
          rows<4>(m);
          break;
      }
  }

 private:
  // A task is a shard of k over all columns, or some thousands of them: long runs of memory, which
  // the processor fetches ahead by itself. The first shard's sums are made in y.
  template <int kM>
  void rows(int64_t m) const {
    const TensorRef& y = call_.out[0];
    auto* out = y.as<float>() + m * y.stride[0];
    auto* more = static_cast<float*>(call_.workspace);  // [shard - 1][kM][n]
    const int64_t threads = call_.pool->n_threads();
    const int64_t parts = std::max(ceil_div(threads, shards_), ceil_div(kM * n_, kSums));
    const int64_t columns = round_up(ceil_div(n_, parts), 64), blocks = ceil_div(n_, columns);
    call_.pool->parallel_for(shards_ * blocks, [&](int64_t i, int) {
      const int64_t shard = i / blocks, n0 = i % blocks * columns;
      float* sums = shard == 0 ? out + n0 : more + (shard - 1) * kM * n_ + n0;
      sum_shard<kM>(m, shard, n0, std::min(columns, n_ - n0), sums, shard == 0 ? y.stride[0] : n_);
    });
    if (shards_ > 1)
      call_.pool->parallel_for(ceil_div(n_, kFolded), [&](int64_t i, int) {
        for (int64_t j = i * kFolded; j < std::min((i + 1) * kFolded, n_); j += kLanes)
          for (int r = 0; r < kM; ++r)
            fold(more + r * n_ + j, kM * n_, cut(n_ - j), out + r * y.stride[0] + j);
      });
    const int64_t flops = (m == 0 ? n_ * k_ : 0) + kM * n_ * (2 * k_ + shards_ - 1);
    call_.counters->add(flops, flops);
  }
  static int cut(int64_t n) { return static_cast<int>(std::min<int64_t>(n, kLanes)); }

  template <int kM>
  void sum_shard(int64_t m, int64_t shard, int64_t n0, int64_t cols, float* sums,
                 int64_t sum_row) const {
    const TensorRef &x = call_.in[0], &q = call_.in[1], &scale = call_.in[2];
    const int64_t shard_k = k_ / shards_, end = (shard + 1) * shard_k;
    constexpr int kStep = kPacked ? 2 : 1;
    for (int i = 0; i < kM; ++i) std::fill_n(sums + i * sum_row, cols, 0.0f);
    for (int64_t k = shard * shard_k; k < end;) {
      const QuantisedRun<kPacked, kM> t{x.as<const float>() + m * x.stride[0],
                                        x.stride[0],
                                        static_cast<const uint8_t*>(q.data) + n0,
                                        q.stride[0],
                                        scale.as<const float>() + k / group_ * scale.stride[0] + n0,
                                        cols,
                                        sums,
                                        sum_row};
      const int64_t last = std::min(end, (k / group_ + 1) * group_);
      for (; k + kRun <= last; k += kRun)
        t.template add<kRun>(k, k + 2 * kRun <= last || last < end);
      for (; k < last; k += kStep) t.template add<kStep>(k, false);
    }
  }

  // The tree of shards, neighbours first; the first one's sums lie in y.
  void fold(const float* more, int64_t shard, int n, float* y) const {
    Vf sum[8];
    sum[0] = load_n(y, n);
    for (int64_t i = 1; i < shards_; ++i) sum[i] = load_n(more + (i - 1) * shard, n);
    for (int64_t step = 1; step < shards_; step *= 2)
      for (int64_t i = 0; i < shards_; i += 2 * step) sum[i] = sum[i] + sum[i + step];
    store_n(y, sum[0], n);
  }

  const KernelCall& call_;
  const int64_t m_, n_, k_, shards_, group_;
};
}  // namespace

void dot_quantised(const KernelCall& call) {
  if (call.in[0].shape[1] == 0 || call.in[2].shape[0] == 0) {
    const TensorRef& y = call.out[0];
    for (int64_t i = 0; i < y.shape[0]; ++i)
      std::fill_n(y.as<float>() + i * y.stride[0], y.shape[1], 0.0f);
    return;
  }
  claim_workspace(call, quantised_bytes(*call.attrs, call.in));
  call.in[1].dtype == DType::kU8 ? Quantised<true>(call).run() : Quantised<false>(call).run();
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
