// y = x (q scale) with weights of 8 or 4 bits. Lanes are columns; a few rows of q at a time over
// all columns of a task, so that memory is read in runs and a sum is loaded and stored once per
// run.
#include <algorithm>

#include "tegula/kernels/cpu/common/dot_plan.h"
#include "tegula/kernels/cpu/isa/table.h"
#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
constexpr int kColumns = 512;  // of a task, at most: its sums stay in L1
constexpr int kRows = 4;       // of x at a time
constexpr int kRun = 8;        // rows of q at a time

// Sums of kM rows of x and `cols` columns from q on, in [kM][kColumns].
template <bool kPacked, int kM>
struct QuantisedRun {
  const float* x;
  int64_t x_row;
  const uint8_t* q;
  int64_t q_row;  // between its rows: a k, or two of them
  const float* scale;
  int cols;
  float* sums;

  // The weights of kN neighbouring k, all of one group, times x.
  template <int kN>
  void add(int64_t k) const {
    float a[kM * kN];
    for (int i = 0; i < kM; ++i)
      for (int r = 0; r < kN; ++r) a[i * kN + r] = x[i * x_row + k + r];
    constexpr int kBytes = kPacked ? kN / 2 : kN;
    const uint8_t* p = q + (kPacked ? k / 2 : k) * q_row;
    const float* at = a;
    int j = 0;
    for (; j + kLanes <= cols; j += kLanes) {
      if (j % 64 == 0)
        for (int r = 0; r < kBytes; ++r) __builtin_prefetch(p + (kBytes + r) * q_row + j);
      asm("" : "+r"(at));  // else all of a is broadcast before the loop, into the stack
      add_lanes<kN>(p + j, q_row, at, load(scale + j), sums + j);
    }
    if (j == cols) return;
    uint8_t rest[kBytes * kLanes] = {};
    for (int r = 0; r < kBytes; ++r)
      std::memcpy(rest + r * kLanes, p + r * q_row + j, static_cast<size_t>(cols - j));
    add_lanes<kN>(rest, kLanes, a, load_n(scale + j, cols - j), sums + j);
  }

  template <int kN>
  static __attribute__((always_inline)) void add_lanes(const uint8_t* p, int64_t row,
                                                       const float* a, Vf scale, float* sum) {
    Vf acc[kM];
#pragma GCC unroll 4
    for (int i = 0; i < kM; ++i) acc[i] = load(sum + i * kColumns);
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
    for (int i = 0; i < kM; ++i) store(sum + i * kColumns, acc[i]);
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
    const int64_t each = ceil_div(n_, int64_t{4} * call_.pool->n_threads());
    const int64_t columns = std::clamp<int64_t>(round_up(each, 64), 64, kColumns);
    call_.pool->parallel_for(ceil_div(n_, columns), [&](int64_t i, int) {
      const int64_t n0 = i * columns;
      const int cols = static_cast<int>(std::min(columns, n_ - n0));
      for (int64_t m = 0; m < m_; m += kRows) switch (std::min<int64_t>(kRows, m_ - m)) {
          case 1:
            rows<1>(m, n0, cols);
            break;
          case 2:
            rows<2>(m, n0, cols);
            break;
          case 3:
            rows<3>(m, n0, cols);
            break;
          default:
            rows<4>(m, n0, cols);
            break;
        }
      const int64_t flops = cols * k_ + m_ * cols * (2 * k_ + shards_ - 1);
      call_.counters->add(flops, flops);
    });
  }

 private:
  template <int kM>
  void rows(int64_t m, int64_t n0, int cols) const {
    constexpr int kFloats = kM * kColumns;
    float waiting[4][kFloats] __attribute__((aligned(64)));  // levels of the shard tree; the chain
    float* sums = waiting[3];
    const TensorRef &x = call_.in[0], &q = call_.in[1], &scale = call_.in[2];
    const int64_t shard_k = k_ / shards_;
    constexpr int kStep = kPacked ? 2 : 1;
    for (int64_t shard = 0; shard < shards_; ++shard) {
      std::fill_n(sums, kFloats, 0.0f);
      const int64_t end = (shard + 1) * shard_k;
      for (int64_t k = shard * shard_k; k < end;) {
        const QuantisedRun<kPacked, kM> t{
            x.as<const float>() + m * x.stride[0],
            x.stride[0],
            static_cast<const uint8_t*>(q.data) + n0,
            q.stride[0],
            scale.as<const float>() + k / group_ * scale.stride[0] + n0,
            cols,
            sums};
        const int64_t last = std::min(end, (k / group_ + 1) * group_);
        for (; k + kRun <= last; k += kRun) t.template add<kRun>(k);
        for (; k < last; k += kStep) t.template add<kStep>(k);
      }
      int level = 0;
      for (; (shard >> level & 1) != 0; ++level)
        for (int i = 0; i < kFloats; i += kLanes)
          store(sums + i, load(waiting[level] + i) + load(sums + i));
      if (shard + 1 < shards_) std::copy(sums, sums + kFloats, waiting[level]);
    }
    const TensorRef& y = call_.out[0];
    for (int i = 0; i < kM; ++i)
      std::copy_n(sums + i * kColumns, cols, y.as<float>() + (m + i) * y.stride[0] + n0);
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
  call.in[1].dtype == DType::kU8 ? Quantised<true>(call).run() : Quantised<false>(call).run();
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
