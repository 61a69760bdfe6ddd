#include "tegula/kernels/cpu/isa/dot_thin.h"

#include <algorithm>

#include "tegula/kernels/cpu/isa/dot_epilogue.h"
#include "tegula/kernels/cpu/isa/pack.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
constexpr int kColumns = 512;  // of a task, at most; its sums stay in L1
constexpr int kTileColumns = kMaxTileN;

struct Strides {
  int64_t n = 0, k = 0;
};

// sums[m][kColumns] of columns [0, cols) over k in [0, n_k); a rows are a_stride apart.
template <class In, int kM>
struct Thin {
  const float* a;
  int64_t a_stride;
  const In* b;
  Strides s;
  int64_t n_k;
  int cols;
  float* sums;

  // n is contiguous: some rows of b at a time over all columns, so that memory is read in long runs
  // and a sum is loaded and stored once per kRun products.
  static constexpr int kRun = kM == 1 ? 8 : kM == 2 ? 4 : 2;

  template <int kN>
  void rows_step(int64_t k) const {
    float x[kM][kN];
    for (int i = 0; i < kM; ++i)
      for (int r = 0; r < kN; ++r) x[i][r] = a[i * a_stride + k + r];
    const In* row = b + k * s.k;
    for (int j = 0; j < cols; j += kLanes) {
      const int n = std::min(cols - j, kLanes);
      Vf acc[kM];
      for (int i = 0; i < kM; ++i) acc[i] = load(sums + i * kColumns + j);
#pragma GCC unroll 8
      for (int r = 0; r < kN; ++r) {
        const In* p = row + r * s.k + j;
        __builtin_prefetch(p + kRun * s.k);
        const Vf y = n == kLanes ? load(p) : load_n(p, n);
#pragma GCC unroll 4
        for (int i = 0; i < kM; ++i) acc[i] = fma(set1(x[i][r]), y, acc[i]);
      }
      for (int i = 0; i < kM; ++i) store(sums + i * kColumns + j, acc[i]);
    }
  }
  void rows() const {
    for (int i = 0; i < kM; ++i) std::fill_n(sums + i * kColumns, round_up(cols, kLanes), 0.0f);
    int64_t k = 0;
    for (; k + kRun <= n_k; k += kRun) rows_step<kRun>(k);
    for (; k < n_k; ++k) rows_step<1>(k);
  }

  // k is contiguous: kLanes columns by kLanes of k are transposed in registers.
  static constexpr int kGroups = kM == 1 ? 4 : 2;

  void columns() const {
    for (int j = 0; j < cols; j += kGroups * kLanes) {
      Vf acc[kGroups][kM];
      for (auto& g : acc)
        for (Vf& v : g) v = zero();
      int64_t k = 0;
      for (; k + kLanes <= n_k; k += kLanes)
#pragma GCC unroll 4
        for (int g = 0; g < kGroups; ++g) step(j + g * kLanes, k, kLanes, acc[g]);
      if (k < n_k)
        for (int g = 0; g < kGroups; ++g)
          step(j + g * kLanes, k, static_cast<int>(n_k - k), acc[g]);
      for (int g = 0; g < kGroups; ++g)
        for (int i = 0; i < kM; ++i) store(sums + i * kColumns + j + g * kLanes, acc[g][i]);
    }
  }
  void step(int j, int64_t k, int n, Vf (&acc)[kM]) const {
    Vf r[kLanes];
    const In* p = b + std::min(j, cols - 1) * s.n + k;
    const int64_t stride = j + kLanes <= cols ? s.n : 0;
    if (n == kLanes && j + kLanes <= cols) {
#pragma GCC unroll 16
      for (int l = 0; l < kLanes; ++l) {
        r[l] = load(p + l * stride);
        __builtin_prefetch(p + l * stride + 512 / sizeof(In));
      }
    } else {
      for (int l = 0; l < kLanes; ++l) r[l] = load_n(b + std::min(j + l, cols - 1) * s.n + k, n);
    }
    transpose(r);
    for (int l = 0; l < n; ++l)
      for (int i = 0; i < kM; ++i) acc[i] = fma(set1(a[i * a_stride + k + l]), r[l], acc[i]);
  }
};

template <class In, class Out, int kM>
void thin_task(const Contraction& c, const Strides& s, const float* a, const In* b, const Out* bias,
               Out* out, int64_t batch, int64_t n0, int cols) {
  constexpr int kFloats = kM * kColumns;
  float waiting[4][kFloats] __attribute__((aligned(64)));  // levels of the shard tree; the chain
  float* sums = waiting[3];
  for (int64_t shard = 0; shard < c.k_shards; ++shard) {
    const int64_t k0 = shard * c.shard_k();
    const Thin<In, kM> t{a + k0, c.k.count, b + n0 * s.n + k0 * s.k, s, c.shard_k(), cols, sums};
    s.n == 1 ? t.rows() : t.columns();
    int level = 0;
    for (; (shard >> level & 1) != 0; ++level)
      for (int i = 0; i < kM; ++i)
        for (int j = 0; j < cols; j += kLanes)
          store(sums + i * kColumns + j,
                load(waiting[level] + i * kColumns + j) + load(sums + i * kColumns + j));
    if (shard + 1 < c.k_shards) std::copy(sums, sums + kFloats, waiting[level]);
  }
  for (int j = 0; j < cols; j += kTileColumns)
    epilogue<Out>({&c, sums + j, kColumns, batch, 0, n0 + j, kM, std::min(cols - j, kTileColumns)},
                  bias, out);
}

template <class In, class Out>
void thin_rows(const KernelCall& call, const Contraction& c, const Strides& s, const float* a,
               const TensorRef& b) {
  const Out* bias = c.has_bias ? call.in[2].as<const Out>() : nullptr;
  Out* out = call.out[0].as<Out>();
  const int told = call.tuning.knob[kDotTaskN];
  const int64_t per_task = told > 0 ? told : ceil_div(c.n.count, 4 * call.pool->n_threads());
  const int64_t columns =
      std::clamp<int64_t>(round_up(per_task, kThinColumns), kThinColumns, kColumns);
  const int64_t blocks = ceil_div(c.n.count, columns);
  call.pool->parallel_for(c.batch.count * blocks, [&](int64_t i, int) {
    const int64_t batch = i / blocks, n0 = i % blocks * columns;
    const int cols = static_cast<int>(std::min(columns, c.n.count - n0));
    const In* b_at = b.as<const In>() + c.batch.offset(batch, kB);
    const float* a_at = a + batch * c.m.count * c.k.count;
    switch (c.m.count) {
      case 1:
        thin_task<In, Out, 1>(c, s, a_at, b_at, bias, out, batch, n0, cols);
        break;
      case 2:
        thin_task<In, Out, 2>(c, s, a_at, b_at, bias, out, batch, n0, cols);
        break;
      case 3:
        thin_task<In, Out, 3>(c, s, a_at, b_at, bias, out, batch, n0, cols);
        break;
      default:
        thin_task<In, Out, 4>(c, s, a_at, b_at, bias, out, batch, n0, cols);
        break;
    }
    const int64_t outputs = c.m.count * cols;
    const int64_t flops = outputs * (2 * c.k.count + c.epilogue_flops());
    call.counters->add(flops, flops);
  });
}

template <class In>
void thin_in(const KernelCall& call, const Contraction& c, const TensorRef& a, const TensorRef& b,
             float* a_rows) {
  for (int64_t i = 0; i < c.batch.count * c.m.count; ++i) {
    const In* src = a.as<const In>() + c.batch.offset(i / c.m.count, kA);
    pack_panel(src, c.m, c.k, kA, i % c.m.count, 1, 0, c.k.count, a_rows + i * c.k.count, 1);
  }
  Strides s;
  c.n.is_linear(kB, &s.n), c.k.is_linear(kB, &s.k);
  switch (c.out_dtype) {
    case DType::kF32:
      return thin_rows<In, float>(call, c, s, a_rows, b);
    case DType::kBF16:
      return thin_rows<In, bf16>(call, c, s, a_rows, b);
    case DType::kF16:
      return thin_rows<In, f16>(call, c, s, a_rows, b);
    default:
      return;
  }
}
}  // namespace

void dot_thin(const KernelCall& call, const Contraction& c, const TensorRef& a, const TensorRef& b,
              float* a_rows) {
  switch (c.in_dtype) {
    case DType::kF32:
      return thin_in<float>(call, c, a, b, a_rows);
    case DType::kBF16:
      return thin_in<bf16>(call, c, a, b, a_rows);
    case DType::kF16:
      return thin_in<f16>(call, c, a, b, a_rows);
    default:
      return;
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
