// A contraction with few rows reads b once and does little else: no packing, b straight from where
// it lies, at the speed of memory. In one of two orders (Order): a chain of multiply-adds over k,
// or, of bf16, that of AMX's tiles, which such rows would not fill ("amx_pairs", isa/amx.h): 32 of
// k at a time, even and odd ones a chain each.
#pragma once

#include <cstring>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/dot_thin_plan.h"
#include "tegula/kernels/cpu/isa/dot_epilogue.h"
#include "tegula/kernels/cpu/isa/pack.h"

namespace tegula::kernel::TEGULA_ISA_NS {

enum class ThinOrder { kChain, kPairs };

namespace thin {
namespace {
inline constexpr int kPairsK = 32;  // of k whose even and odd products are a chain each

inline constexpr int kColumns = 512;  // of a task, at most
inline constexpr int kManyColumns =
    256;  // with many rows: sums and the rows of b at hand stay in L1
inline constexpr int kManyRows = 8;
inline constexpr int kTileColumns = kMaxTileN;
inline constexpr int64_t kShardSums = 8192;  // of a task over a shard of k: they stay in L1
inline constexpr int kRun = 8;               // rows of b at a time, where n is contiguous
inline constexpr int kGroup = 6;             // rows of a at a time

struct Strides {
  int64_t n = 0, k = 0;
};

// The two bf16 of each lane.
TEGULA_VEC Vf low_bf16(Vf pair) { return as_float(shl<16>(bits(pair))); }
TEGULA_VEC Vf high_bf16(Vf pair) { return as_float(bits(pair) & set1i(-65536)); }

// The columns [n0, n0 + cols) of one batch.
struct Task {
  const Contraction& c;
  Strides s;
  const float* a;  // rows of k.count
  int64_t batch, n0;
  int cols;
  int ld;       // between rows of sums, a multiple of 2 kLanes
  float* sums;  // [m][ld]
  int rows() const { return static_cast<int>(c.m.count); }
};

// 2 kLanes columns of kN rows of b, times kG rows of a, of which x holds the kN columns at hand.
template <class In, int kG, int kN, bool kWhole>
TEGULA_VEC void add_block(const In* p, int64_t b_row, const float* x, int n, float* sums, int ld) {
  Vf acc[kG][2];
#pragma GCC unroll unrolled(6)
  for (int i = 0; i < kG; ++i)
    acc[i][0] = load(sums + i * ld), acc[i][1] = load(sums + i * ld + kLanes);
#pragma GCC unroll unrolled(8)
  for (int r = 0; r < kN; ++r, p += b_row) {
    __builtin_prefetch(p + 512 / sizeof(In));
    Vf y[2];
    if constexpr (kWhole) {
      y[0] = load(p), y[1] = load(p + kLanes);
    } else {
      y[0] = load_n(p, std::min(n, kLanes));
      y[1] = n > kLanes ? load_n(p + kLanes, n - kLanes) : zero();
    }
#pragma GCC unroll unrolled(6)
    for (int i = 0; i < kG; ++i) {
      const Vf a = set1(x[r * kG + i]);
      acc[i][0] = fma(a, y[0], acc[i][0]), acc[i][1] = fma(a, y[1], acc[i][1]);
    }
  }
#pragma GCC unroll unrolled(6)
  for (int i = 0; i < kG; ++i)
    store(sums + i * ld, acc[i][0]), store(sums + i * ld + kLanes, acc[i][1]);
}

// The same of n_k rows of b, at most kPairsK, in the order of pairs: two chains from 0, whose sum
// is added to what was there.
template <int kG, bool kWhole>
TEGULA_VEC void add_pairs(const bf16* p, int64_t b_row, int n_k, const float* x, int n, float* sums,
                          int ld) {
  Vf part[2][kG][2];
  for (auto& chain : part)
#pragma GCC unroll unrolled(6)
    for (int i = 0; i < kG; ++i) chain[i][0] = chain[i][1] = zero();
  const auto add = [&](Vf(&chain)[kG][2], int r) __attribute__((always_inline)) {
    const bf16* at = p + r * b_row;
    __builtin_prefetch(at + 512 / sizeof(bf16));
    Vf y[2];
    if constexpr (kWhole) {
      y[0] = load(at), y[1] = load(at + kLanes);
    } else {
      y[0] = load_n(at, std::min(n, kLanes));
      y[1] = n > kLanes ? load_n(at + kLanes, n - kLanes) : zero();
    }
#pragma GCC unroll unrolled(6)
    for (int i = 0; i < kG; ++i) {
      const Vf a = set1(x[r * kG + i]);
      chain[i][0] = fma(a, y[0], chain[i][0]), chain[i][1] = fma(a, y[1], chain[i][1]);
    }
  };
  int r = 0;
  for (; r + 2 <= n_k; r += 2) add(part[0], r), add(part[1], r + 1);
  if (r < n_k) add(part[0], r);
#pragma GCC unroll unrolled(6)
  for (int i = 0; i < kG; ++i)
    for (int v = 0; v < 2; ++v) {
      float* to = sums + i * ld + v * kLanes;
      store(to, load(to) + (part[0][i][v] + part[1][i][v]));
    }
}

// n is contiguous: a few rows of b over all columns, so that memory is read in long runs, and a sum
// is loaded and stored once per kN products. Rows of a beyond a group find b in L1.
template <class In, ThinOrder kOrder, int kG, int kN>
void add_run(const Task& t, const float* a, const In* b, int n_k, float* sums) {
  float x[kN * kG];
  for (int i = 0; i < kG; ++i)
    for (int r = 0; r < n_k; ++r) x[r * kG + i] = a[i * t.c.k.count + r];
  const int64_t b_row = t.s.k;
  const int cols = t.cols, ld = t.ld;
  const float* at = x;
  int j = 0;
  for (; j + 2 * kLanes <= cols; j += 2 * kLanes) {
    // Else all of x is broadcast before the loop, into more registers than there are.
    asm("" : "+r"(at));
    if constexpr (kOrder == ThinOrder::kPairs)
      add_pairs<kG, true>(b + j, b_row, n_k, at, 2 * kLanes, sums + j, ld);
    else
      add_block<In, kG, kN, true>(b + j, b_row, at, 2 * kLanes, sums + j, ld);
  }
  if (j >= cols) return;
  if constexpr (kOrder == ThinOrder::kPairs)
    add_pairs<kG, false>(b + j, b_row, n_k, at, cols - j, sums + j, ld);
  else
    for (int r = 0; r < kN; ++r)  // of the last columns a row at a time: less code
      add_block<In, kG, 1, false>(b + j + r * b_row, b_row, at + r * kG, cols - j, sums + j, ld);
}

// n_k rows of b: kN or, in the order of pairs, fewer.
template <class In, ThinOrder kOrder, int kN>
void add_rows(const Task& t, const float* a, const In* b, int n_k = kN) {
  const int groups = static_cast<int>(ceil_div(t.rows(), kGroup));
  for (int g = 0, i = 0; g < groups; ++g) {
    const int n = (t.rows() - i + groups - g - 1) / (groups - g);
    const float* a_at = a + i * t.c.k.count;
    float* sums = t.sums + i * t.ld;
    if (n == 1) add_run<In, kOrder, 1, kN>(t, a_at, b, n_k, sums);
    if (n == 2) add_run<In, kOrder, 2, kN>(t, a_at, b, n_k, sums);
    if (n == 3) add_run<In, kOrder, 3, kN>(t, a_at, b, n_k, sums);
    if (n == 4) add_run<In, kOrder, 4, kN>(t, a_at, b, n_k, sums);
    if (n == 5) add_run<In, kOrder, 5, kN>(t, a_at, b, n_k, sums);
    if (n == 6) add_run<In, kOrder, 6, kN>(t, a_at, b, n_k, sums);
    i += n;
  }
}

// The sums of one shard, from where they stand.
template <class In, ThinOrder kOrder>
void add_shard(const Task& t, const In* b, int64_t shard) {
  const int64_t shard_k = t.c.shard_k();
  const float* a = t.a + shard * shard_k;
  const In* b_at = b + t.n0 + shard * shard_k * t.s.k;
  int64_t k = 0;
  if constexpr (kOrder == ThinOrder::kPairs) {
    for (; k < shard_k; k += kPairsK)
      add_rows<In, kOrder, kPairsK>(t, a + k, b_at + k * t.s.k,
                                    static_cast<int>(std::min<int64_t>(kPairsK, shard_k - k)));
    return;
  }
  for (; k + kRun <= shard_k; k += kRun) add_rows<In, kOrder, kRun>(t, a + k, b_at + k * t.s.k);
  for (; k < shard_k; ++k) add_rows<In, kOrder, 1>(t, a + k, b_at + k * t.s.k);
}

template <class In, ThinOrder kOrder>
void thin_rows(const Task& t, const In* b) {
  const int64_t floats = t.rows() * t.ld;
  float* waiting = t.sums + floats;  // a level of the shard tree after another
  for (int64_t shard = 0; shard < t.c.k_shards; ++shard) {
    if (!t.c.accumulates) std::fill_n(t.sums, floats, 0.0F);
    add_shard<In, kOrder>(t, b, shard);
    int level = 0;
    for (; (shard >> level & 1) != 0; ++level)
      for (int64_t i = 0; i < floats; i += kLanes)
        store(t.sums + i, load(waiting + level * floats + i) + load(t.sums + i));
    if (shard + 1 < t.c.k_shards) std::copy(t.sums, t.sums + floats, waiting + level * floats);
  }
}

// As many chains as hide the latency of a multiply-add, as few streams as memory likes.
constexpr int groups_of_columns(int rows) { return rows <= 2 ? 2 : 1; }

// k is contiguous: kLanes columns by kLanes of k are transposed in registers; a few columns over
// all of k, shards within, so that memory is read along k. kM rows of some; the first come first.
template <class In, ThinOrder kOrder, int kM, int kGroups = groups_of_columns(kM)>
struct ThinColumns {
  static constexpr bool kHasPairsOrder = kOrder == ThinOrder::kPairs;
  // Two of k at a time in each lane, taken apart after the transposition.
  static constexpr bool kIsPaired = std::is_same_v<In, bf16>;
  static constexpr int kWide = kIsPaired ? 2 * kLanes : kLanes;
  static constexpr int kStep = kGroups * kLanes;
  static constexpr int64_t kLine = 64 / sizeof(In);
  const Task& t;
  const In* b;
  int first_row = 0;
  const float* a = t.a + first_row * t.c.k.count;
  float* sums = t.sums + first_row * t.ld;

  void run() const {
    for (int j = 0; j < t.cols; j += kStep) run_step(j);
  }
  // Columns [j, j + kStep).
  void run_step(int j) const {
    const int64_t shard_k = t.c.shard_k();
    Vf waiting[3][kGroups][kM], acc[kGroups][kM] = {}, part[kGroups][2][kM];
    for (int64_t shard = 0; shard < t.c.k_shards; ++shard) {
      for (int g = 0; g < kGroups; ++g)
        for (int i = 0; i < kM; ++i)
          acc[g][i] = t.c.accumulates ? load(sums + i * t.ld + j + g * kLanes) : zero();
      int64_t k = shard * shard_k;
      const int64_t begin = k, end = k + shard_k;
      clear(part);
      if (j + kStep <= t.cols)
        for (; k + kWide <= end; k += kWide) {
          for (int g = 0; g < kGroups; ++g) step(j, g, k, acc[g], part[g]);
          if ((k + kWide - begin) % kPairsK == 0) add_pairs_of(part, acc);
        }
      for (; k < end; k += kLanes) {
        const int n = static_cast<int>(std::min<int64_t>(kLanes, end - k));
        for (int g = 0; g < kGroups; ++g) edge(j + g * kLanes, k, n, acc[g], part[g]);
        if ((k + kLanes - begin) % kPairsK == 0 || k + kLanes >= end) add_pairs_of(part, acc);
      }
      if ((k - begin) % kPairsK != 0) add_pairs_of(part, acc);
      int level = 0;
      for (; (shard >> level & 1) != 0; ++level)
        for (int g = 0; g < kGroups; ++g)
          for (int i = 0; i < kM; ++i) acc[g][i] = waiting[level][g][i] + acc[g][i];
      if (shard + 1 < t.c.k_shards)
        for (int g = 0; g < kGroups; ++g)
          for (int i = 0; i < kM; ++i) waiting[level][g][i] = acc[g][i];
    }
    for (int g = 0; g < kGroups; ++g)
      for (int i = 0; i < kM; ++i) store(sums + i * t.ld + j + g * kLanes, acc[g][i]);
  }

  using Parts = Vf[kGroups][2][kM];
  static void clear(Parts& part) {
    if constexpr (kHasPairsOrder)
      for (auto& group : part)
        for (auto& chain : group)
          for (Vf& v : chain) v = zero();
  }
  // Even and odd chains become part of the sums, and begin anew.
  static void add_pairs_of(Parts& part, Vf (&acc)[kGroups][kM]) {
    if constexpr (kHasPairsOrder) {
      for (int g = 0; g < kGroups; ++g)
        for (int i = 0; i < kM; ++i) acc[g][i] = acc[g][i] + (part[g][0][i] + part[g][1][i]);
      clear(part);
    }
  }

  // The g-th kLanes columns from j on, kWide of k. Meanwhile the next kStep columns come into L2, a
  // line after another in the order of memory, so that the processor goes on fetching by itself.
  void step(int j, int g, int64_t k, Vf (&acc)[kM], Vf (&part)[2][kM]) const {
    const int64_t row = t.s.n, n_k = t.c.k.count;
    const In* p = b + (t.n0 + j + g * kLanes) * row + k;
    if (k % kLine < kWide && first_row == 0) {  // once a line
      const In* next = b + (t.n0 + j + kStep) * row + (k / kLine * kGroups + g) * kLanes * kLine;
#pragma GCC unroll unrolled(16)
      for (int l = 0; l < kLanes; ++l) __builtin_prefetch(next + l * kLine, 0, 2);
    }
    Vf r[kLanes];
#pragma GCC unroll unrolled(16)
    for (int l = 0; l < kLanes; ++l) {
      if constexpr (kIsPaired) {
        std::memcpy(&r[l], p + l * row, sizeof(Vf));
      } else {
        r[l] = load(p + l * row);
      }
    }
    transpose(r);
    const float* a_k = a + k;
#pragma GCC unroll unrolled(16)
    for (int l = 0; l < kLanes; ++l) {
      if constexpr (kIsPaired) {
        const Vf even = low_bf16(r[l]), odd = high_bf16(r[l]);
#pragma GCC unroll unrolled(4)
        for (int i = 0; i < kM; ++i) {
          const Vf first = set1(a_k[i * n_k + 2 * l]), second = set1(a_k[i * n_k + 2 * l + 1]);
          if constexpr (kHasPairsOrder) {
            part[0][i] = fma(first, even, part[0][i]), part[1][i] = fma(second, odd, part[1][i]);
          } else {
            acc[i] = fma(second, odd, fma(first, even, acc[i]));
          }
        }
      } else {
#pragma GCC unroll unrolled(4)
        for (int i = 0; i < kM; ++i) acc[i] = fma(set1(a_k[i * n_k + l]), r[l], acc[i]);
      }
    }
  }

  // The same at the edges: n of k, columns that may end.
  void edge(int j, int64_t k, int n, Vf (&acc)[kM], Vf (&part)[2][kM]) const {
    Vf r[kLanes];
    for (int l = 0; l < kLanes; ++l)
      r[l] = load_n(b + (t.n0 + std::min(j + l, t.cols - 1)) * t.s.n + k, n);
    transpose(r);
    for (int l = 0; l < n; ++l)
      for (int i = 0; i < kM; ++i) {
        Vf& sum = kHasPairsOrder ? part[l % 2][i] : acc[i];
        sum = fma(set1(a[i * t.c.k.count + k + l]), r[l], sum);
      }
  }
};

// More than 4 rows, a few at a time: those after the first find b's columns in a cache.
template <class In, ThinOrder kOrder>
void many_thin_columns(const Task& t, const In* b) {
  const int groups = static_cast<int>(ceil_div(t.rows(), 4));
  for (int j = 0; j < t.cols; j += kLanes) {
    ThinColumns<In, kOrder, 4, 1>{t, b}.run_step(j);
    for (int g = 1, i = 4; g < groups; ++g, i += 4) switch (t.rows() - i) {
        case 1:
          ThinColumns<In, kOrder, 1, 1>{t, b, i}.run_step(j);
          break;
        case 2:
          ThinColumns<In, kOrder, 2, 1>{t, b, i}.run_step(j);
          break;
        case 3:
          ThinColumns<In, kOrder, 3, 1>{t, b, i}.run_step(j);
          break;
        default:
          ThinColumns<In, kOrder, 4, 1>{t, b, i}.run_step(j);
          break;
      }
  }
}

template <class In, ThinOrder kOrder>
void thin_columns(const Task& t, const In* b) {
  switch (t.rows()) {
    case 1:
      return ThinColumns<In, kOrder, 1>{t, b}.run();
    case 2:
      return ThinColumns<In, kOrder, 2>{t, b}.run();
    case 3:
      return ThinColumns<In, kOrder, 3>{t, b}.run();
    case 4:
      return ThinColumns<In, kOrder, 4>{t, b}.run();
    default:
      return many_thin_columns<In, kOrder>(t, b);
  }
}

// The sums to go on from.
inline void load_start(const Task& t, const float* start) {
  start += t.c.batch.offset(t.batch, kBias);
  int64_t m[kThinRows], n[kColumns];
  t.c.m.offsets(0, t.rows(), kBias, m);
  t.c.n.offsets(t.n0, t.cols, kBias, n);
  for (int i = 0; i < t.rows(); ++i) {
    float* sums = t.sums + i * t.ld;
    for (int j = 0; j < t.cols; ++j) sums[j] = start[m[i] + n[j]];
    std::fill(sums + t.cols, sums + t.ld, 0.0F);
  }
}

template <class Out>
void finish(const Task& t, const TensorRef* bias, const TensorRef& out) {
  for (int i = 0; i < t.rows(); i += kMaxTileM)
    for (int j = 0; j < t.cols; j += kTileColumns)
      epilogue<Out>({&t.c, t.sums + i * t.ld + j, t.ld, t.batch, i, t.n0 + j,
                     std::min(t.rows() - i, kMaxTileM), std::min(t.cols - j, kTileColumns)},
                    bias == nullptr ? nullptr : bias->as<const Out>(), out.as<Out>());
}

inline void finish_as(const Task& t, const TensorRef* bias, const TensorRef& out) {
  if (t.c.out_dtype == DType::kF32) finish<float>(t, bias, out);
  if (t.c.out_dtype == DType::kBF16) finish<bf16>(t, bias, out);
  if (t.c.out_dtype == DType::kF16) finish<f16>(t, bias, out);
}

template <class In, ThinOrder kOrder>
void thin_tasks(const KernelCall& call, const Contraction& c, const Strides& s, const float* a,
                const TensorRef& b) {
  const int told = call.tuning.knob[kDotTaskN];
  const int64_t per_task = told > 0 ? told : ceil_div(c.n.count, 4 * call.pool->n_threads());
  const int64_t most = c.m.count > kManyRows ? kManyColumns : kColumns;
  const int64_t columns = std::clamp<int64_t>(round_up(per_task, kThinColumns), kThinColumns, most);
  const int64_t blocks = ceil_div(c.n.count, columns);
  call.pool->parallel_for(c.batch.count * blocks, [&](int64_t i, int) {
    // Sums, and levels of the shard tree.
    alignas(64) float sums[4 * kManyRows * kColumns];
    static_assert(kThinRows * kManyColumns <= kManyRows * kColumns);
    const int64_t batch = i / blocks, n0 = i % blocks * columns;
    const int cols = static_cast<int>(std::min(columns, c.n.count - n0));
    const Task t{c,
                 s,
                 a + batch * c.m.count * c.k.count,
                 batch,
                 n0,
                 cols,
                 static_cast<int>(round_up(cols, 2 * kLanes)),
                 sums};
    if (c.accumulates) load_start(t, call.in[2].as<const float>());
    const In* b_at = b.as<const In>() + c.batch.offset(batch, kB);
    s.n == 1 ? thin_rows<In, kOrder>(t, b_at) : thin_columns<In, kOrder>(t, b_at);
    const TensorRef* bias = c.has_bias ? &call.in[2] : nullptr;
    finish_as(t, bias, call.out[0]);
    const int64_t flops = c.m.count * cols * (2 * c.k.count + c.epilogue_flops());
    call.counters->add(flops, flops);
  });
}

// A task is a shard of k over all columns, or some thousands of them: one run of memory, which the
// processor fetches ahead by itself. `sums`: [shard][row][n].
template <class In, ThinOrder kOrder>
void shard_tasks(const KernelCall& call, const Contraction& c, const Strides& s, const float* a,
                 const TensorRef& b, float* sums) {
  const int64_t ld = thin_shard_row(c.n.count), rows = c.m.count, shard_floats = rows * ld;
  const int64_t parts = std::max(ceil_div(call.pool->n_threads(), c.k_shards),
                                 ceil_div(rows * c.n.count, kShardSums));
  const int64_t columns = round_up(ceil_div(c.n.count, parts), kMaxTileN);
  const int64_t blocks = ceil_div(c.n.count, columns);
  const auto task = [&](int64_t n0, int64_t n, float* at) {
    return Task{c, s, a, 0, n0, static_cast<int>(n), static_cast<int>(ld), at + n0};
  };
  call.pool->parallel_for(c.k_shards * blocks, [&](int64_t i, int) {
    const int64_t shard = i / blocks, n0 = i % blocks * columns;
    const Task t = task(n0, std::min(columns, c.n.count - n0), sums + shard * shard_floats);
    for (int64_t r = 0; r < rows; ++r)
      std::fill_n(t.sums + r * ld, std::min(columns, ld - n0), 0.0F);
    add_shard<In, kOrder>(t, b.as<const In>(), shard);
  });
  const TensorRef* bias = c.has_bias ? &call.in[2] : nullptr;
  call.pool->parallel_for(ceil_div(c.n.count, kColumns), [&](int64_t i, int) {
    const int64_t n0 = i * kColumns, n = std::min<int64_t>(kColumns, c.n.count - n0);
    // The tree of shards: neighbours first.
    for (int64_t step = 1; step < c.k_shards; step *= 2)
      for (int64_t shard = 0; shard + step < c.k_shards; shard += 2 * step)
        for (int64_t r = 0; r < rows; ++r) {
          float* to = sums + shard * shard_floats + r * ld + n0;
          const float* from = to + step * shard_floats;
          for (int64_t j = 0; j < n; j += kLanes) store(to + j, load(to + j) + load(from + j));
        }
    const Task t = task(n0, n, sums);
    finish_as(t, bias, call.out[0]);
    const int64_t flops = rows * n * (2 * c.k.count + c.epilogue_flops());
    call.counters->add(flops, flops);
  });
}

// The call of a contraction that is_thin (common/dot_plan.h), in packed_bytes of workspace.
template <class In, ThinOrder kOrder>
void run(const KernelCall& call, const Contraction& c, const TensorRef& a, const TensorRef& b) {
  auto* a_rows = static_cast<float*>(call.workspace);
  float* sums = a_rows + DotWorkspace(c, DotTiles(call.tuning, c)).a_floats;
  for (int64_t i = 0; i < c.batch.count * c.m.count; ++i) {
    const In* src = a.as<const In>() + c.batch.offset(i / c.m.count, kA);
    pack_panel(src, c.m, c.k, kA, i % c.m.count, 1, 0, c.k.count, a_rows + i * c.k.count, 1);
  }
  Strides s;
  c.n.is_linear(kB, &s.n), c.k.is_linear(kB, &s.k);
  if (s.n == 1 && c.k_shards > 1 && c.batch.count == 1)
    return shard_tasks<In, kOrder>(call, c, s, a_rows, b, sums);
  thin_tasks<In, kOrder>(call, c, s, a_rows, b);
}
}  // namespace
}  // namespace thin

}  // namespace tegula::kernel::TEGULA_ISA_NS
