// y = x (q scale) with weights of 8 or 4 bits. Lanes are columns; a few rows of q at a time over
// all columns of a task, so that memory is read in runs and a sum is loaded and stored once per
// run.
#include <algorithm>

#include "tegula/kernels/cpu/common/dot_plan.h"
#include "tegula/kernels/cpu/common/quantised.h"
#include "tegula/kernels/cpu/common/workspace.h"
#include "tegula/kernels/cpu/isa/table.h"
#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
constexpr int64_t kSums = 8192;  // of a task, at most: they stay in L1
constexpr int kRows = kQuantisedRows;
constexpr int kRun = 8;  // rows of q at a time

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

  // The weights of kN neighbouring k, all of one group, times x.
  template <int kN>
  void add(int64_t k) const {
    float a[kM * kN];
    for (int i = 0; i < kM; ++i)
      for (int r = 0; r < kN; ++r) a[i * kN + r] = x[i * x_row + k + r];
    constexpr int kBytes = kPacked ? kN / 2 : kN;
    const uint8_t* p = q + (kPacked ? k / 2 : k) * q_row;
    const float* at = a;
    int64_t j = 0;
    for (; j + kLanes <= cols; j += kLanes) {
      if (j % 64 == 0)
        for (int r = 0; r < kBytes; ++r) __builtin_prefetch(p + r * q_row + j + 512);
      asm("" : "+r"(at));  // else all of a is broadcast before the loop, into the stack
      add_lanes<kN>(p + j, q_row, at, load(scale + j), sums + j, sum_row);
    }
    if (j == cols) return;
    uint8_t rest[kBytes * kLanes] = {};
    for (int r = 0; r < kBytes; ++r)
      std::memcpy(rest + r * kLanes, p + r * q_row + j, static_cast<size_t>(cols - j));
    const int n = static_cast<int>(cols - j);
    float edge[kM * kLanes];
    for (int i = 0; i < kM; ++i) store(edge + i * kLanes, load_n(sums + i * sum_row + j, n));
    add_lanes<kN>(rest, kLanes, a, load_n(scale + j, n), edge, kLanes);
    for (int i = 0; i < kM; ++i) store_n(sums + i * sum_row + j, load(edge + i * kLanes), n);
  }

  template <int kN>
  static __attribute__((always_inline)) void add_lanes(const uint8_t* p, int64_t row,
                                                       const float* a, Vf scale, float* sum,
                                                       int64_t sum_row) {
    Vf acc[kM];
#pragma GCC unroll 4
    for (int i = 0; i < kM; ++i) acc[i] = load(sum + i * sum_row);
    const auto take = [&](Vi q, int r) __attribute__((always_inline)) {
      const Vf w = to_float(q) * scale;
#pragma GCC unroll 4
      for (int i = 0; i < kM; ++i) acc[i] = fma(set1(a[i * kN + r]), w, acc[i]);
    };
#pragma GCC unroll 8
    for (int r = 0; r < kN; r += kPacked ? 2 : 1, p += row) {
      if constexpr (kPacked) {
        const Vi two = load_u8(p);
        take((two & set1i(15)) - set1i(8), r);
        take(shr<4>(two) - set1i(8), r + 1);
      } else {
        take(load_i8(p), r);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kM; ++i) store(sum + i * sum_row, acc[i]);
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
      call_.pool->parallel_for(ceil_div(n_, kSums), [&](int64_t i, int) {
        for (int64_t j = i * kSums; j < std::min((i + 1) * kSums, n_); j += kLanes)
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
      for (; k + kRun <= last; k += kRun) t.template add<kRun>(k);
      for (; k < last; k += kStep) t.template add<kStep>(k);
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
