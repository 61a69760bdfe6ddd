// Attention's backward in AMX's tiles: per (batch, key head), blocks of queries against blocks of
// keys. Scores are formed transposed, lanes over queries: weights and their gradients are then
// tiles of a for dv and dk as they are stored, and the log-sum-exp is a vector. [FlashAttention-2,
// section 3.1.2; order of common/attention_amx.h]
#include <cmath>
#include <utility>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/grid_tasks.h"
#include "tegula/kernels/cpu/common/workspace.h"
#include "tegula/kernels/cpu/isa/attention_amx_rows.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
constexpr int kStrips = kAmxRowBlock / kStrip;
constexpr int kKeyStrips = kAmxKeyBlock / kStrip;
constexpr int64_t kMostBlocks = 2;  // of keys, in a column of tasks

class AmxBackward {
 public:
  AmxBackward(const KernelCall& call, const AttentionCall& c)
      : call_(call), c_(c), space_(c, true), n_rows_(c.n_q * c.group) {
    // Rows are (head of the group, query): the order in which dk and dv are summed.
    q_rows_ = row_loops(c, *c.q, true), do_rows_ = row_loops(c, *c.d_o, true);
    o_rows_ = row_loops(c, *c.o, true);
    d_tiles_ = amx_tiles(c.d), v_tiles_ = amx_tiles(c.dv), key_tiles_ = amx_tiles(c.n_k);
    log2_scale_ = c.scale * kLog2E;
  }

  // A pair's blocks of rows and columns of keys form a grid: chains of dk and dv go down its
  // columns, those of dq along its rows.
  void run() {
    const int threads = call_.pool->n_threads();
    claim_workspace(call_, space_.bytes(threads));
    const int64_t pairs = c_.batch * c_.n_kv_heads;
    const int64_t rows = std::max<int64_t>(1, ceil_div(n_rows_, kAmxRowBlock));
    const GridColumns columns(pairs, ceil_div(c_.n_k, kAmxKeyBlock), threads, kMostBlocks);
    char* states = static_cast<char*>(call_.workspace) +
                   (space_.pair_bytes(threads) + space_.thread_bytes) * threads;
    GridTasks tasks(reinterpret_cast<int32_t*>(states), pairs, rows, columns.n);
    call_.pool->parallel_for(threads, [&](int64_t place, int thread) {
      Tiles tiles;
      Pair w{};
      Block x;
      tasks.work(place, [&](const GridTasks::Task& t) {
        if (x.at != std::pair(t.grid, t.row)) begin_rows(t, thread, w, x);
        run_task(tiles, t, columns.wide * kAmxKeyBlock, t.row == rows - 1, w, x);
      });
    });
  }

 private:
  // Blocks are 32 × 32; "a" and "b" say for which side of a product they are packed.
  struct Pair {
    int64_t batch, kv_head;
    char *k_a, *v_a;     // [32 keys][32 d]
    char* kt_a;          // [32 d][32 keys]
    float *dk, *dv;      // [32 keys][32 d]
    char *q_b, *do_b;    // [32 rows][32 d], k = d
    char* o_a;           // [32 rows][32 d]
    char *q_rb, *do_rb;  // [32 d][32 rows], k = rows
    float* dq;           // [32 d][32 rows], transposed, of this block of rows
    char *p_a, *ds_a;    // [32 keys][32 rows]
    char* ds_b;          // [32 rows][32 keys], k = keys
    float *s, *dp;       // [32 keys][32 rows]
    // Counted: pairs of a row and a key that it sees, rows that see one, operations.
    int64_t pairs = 0, live = 0, executed = 0;
  };
  // 32 rows.
  struct Strip {
    int64_t lo = 0, hi = 0;              // keys that any row sees
    int64_t whole_lo = 0, whole_hi = 0;  // keys that all 32 see
    alignas(64) int32_t first[kStrip], end[kStrip];
    alignas(64) float minus_lse[kStrip], delta[kStrip];  // the first in units of log2
    int64_t query[kStrip], head[kStrip];
    int rows = 0;
    uint32_t not_finite = 0;  // rows whose do is not
  };

  // A block of rows.
  struct Block {
    std::pair<int64_t, int64_t> at{-1, -1};  // pair of the batch and the key heads, block of rows
    bool is_loaded = false;
    int64_t r0, lo, hi;  // the first row; keys that any row sees
    int n_strips;
    Strip strip[kStrips];
  };

  // The memory of a task's pair, in its place, and of a thread.
  Pair pair_at(const GridTasks::Task& t, int thread) const {
    Pair w{};
    w.batch = t.grid / c_.n_kv_heads, w.kv_head = t.grid % c_.n_kv_heads;
    const int n_threads = call_.pool->n_threads();
    const int64_t pair_bytes = space_.pair_bytes(n_threads);
    auto* const at = static_cast<char*>(call_.workspace);
    ByteScratch pair(at + t.place * pair_bytes);
    w.k_a = pair.bf16_blocks(key_tiles_ * d_tiles_);
    w.v_a = pair.bf16_blocks(key_tiles_ * v_tiles_);
    w.kt_a = pair.bf16_blocks(key_tiles_ * d_tiles_);
    w.dk = pair.f32_blocks(key_tiles_ * d_tiles_), w.dv = pair.f32_blocks(key_tiles_ * v_tiles_);
    w.dq = pair.f32_blocks(0) + (n_threads > 1 ? t.row * dq_floats() : 0);
    ByteScratch space(at + n_threads * pair_bytes + thread * space_.thread_bytes);
    w.q_b = space.bf16_blocks(kStrips * d_tiles_), w.q_rb = space.bf16_blocks(kStrips * d_tiles_);
    w.do_b = space.bf16_blocks(kStrips * v_tiles_), w.do_rb = space.bf16_blocks(kStrips * v_tiles_);
    w.o_a = space.bf16_blocks(kStrips * v_tiles_);
    w.p_a = space.bf16_blocks(kStrips * kKeyStrips);
    w.ds_a = space.bf16_blocks(kStrips * kKeyStrips);
    w.ds_b = space.bf16_blocks(kStrips * kKeyStrips);
    w.s = space.f32_blocks(1), w.dp = space.f32_blocks(1);
    return w;
  }
  int64_t dq_floats() const { return kStrips * d_tiles_ * kF32Block; }

  void begin_rows(const GridTasks::Task& t, int thread, Pair& w, Block& x) const {
    w = pair_at(t, thread);
    x.at = {t.grid, t.row}, x.is_loaded = false;
    x.r0 = t.row * kAmxRowBlock, x.lo = c_.n_k, x.hi = 0;
    x.n_strips =
        static_cast<int>(ceil_div(std::min<int64_t>(kAmxRowBlock, n_rows_ - x.r0), kStrip));
    for (int i = 0; i < x.n_strips; ++i) {
      find_strip(w, x.r0 + i * kStrip, x.strip[i]);
      x.lo = std::min(x.lo, x.strip[i].lo), x.hi = std::max(x.hi, x.strip[i].hi);
    }
    if (t.column > 0) {
      w.live = 0;  // counted with the first keys
    } else if (x.lo < x.hi) {
      // Deltas: once, though each thread that has some of the block's keys forms them.
      w.executed = 2 * kTile * kStrip * kStrip * v_tiles_ * x.n_strips;
    }
  }
  void run_task(Tiles& tiles, const GridTasks::Task& t, int64_t wide, bool is_last, Pair& w,
                Block& x) const {
    const int64_t from = t.column * wide, to = std::min(from + wide, c_.n_k);
    if (t.row == 0) prepare_keys(w, from, to);
    if (t.column == 0) std::fill_n(w.dq, dq_floats(), 0.0f);
    const int64_t lo = std::max(from, x.lo / kAmxKeyBlock * kAmxKeyBlock), hi = std::min(to, x.hi);
    if (lo < hi && !x.is_loaded) load_rows(tiles, w, x);
    for (int64_t k0 = lo; k0 < hi; k0 += kAmxKeyBlock) run_keys(tiles, w, x, k0);
    if (to == c_.n_k)
      for (int i = 0; i < x.n_strips; ++i) store_dq(w, x.strip[i], i);
    for (int64_t j = from; is_last && j < to; ++j) {
      store_key(w.dk, d_tiles_, c_.d, c_.scale, call_.out[1], w, j);
      store_key(w.dv, v_tiles_, c_.dv, 1, call_.out[2], w, j);
    }
    count(w);
  }
  void count(Pair& w) const {
    const int64_t other = w.pairs * (c_.score_flops() + 5) + (c_.dlse != nullptr ? w.live : 0);
    const int64_t products = w.pairs * (6 * c_.d + 4 * c_.dv) + w.live * 2 * c_.dv;
    call_.counters->add(other + products, other + w.executed);
    w.pairs = w.live = w.executed = 0;
  }

  static void store_key(const float* acc, int64_t n_tiles, int64_t width, float scale,
                        const TensorRef& out, const Pair& w, int64_t key) {
    const int64_t to = offset4(out, w.batch, key, w.kv_head);
    for (int64_t e = 0; e < n_tiles; ++e)
      store_result(acc + (key / kStrip * n_tiles + e) * kF32Block + key % kStrip * kStrip,
                   std::min<int64_t>(kStrip, width - e * kStrip), scale, out,
                   to + e * kStrip * out.stride[3]);
  }

  // Panels of keys [from, to) of the pair, whole tiles of them, and their gradients at 0.
  void prepare_keys(const Pair& w, int64_t from, int64_t to) const {
    const bf16* k = c_.k->as<const bf16>() + offset4(*c_.k, w.batch, 0, w.kv_head);
    const bf16* v = c_.v->as<const bf16>() + offset4(*c_.v, w.batch, 0, w.kv_head);
    const Loops k_keys = loop_over(c_.n_k, c_.k->stride[1]), k_d = loop_over(c_.d, c_.k->stride[3]);
    const Loops v_keys = loop_over(c_.n_k, c_.v->stride[1]),
                v_d = loop_over(c_.dv, c_.v->stride[3]);
    const int64_t first = from / kStrip, last = ceil_div(to, kStrip);
    for (int64_t t = first; t < last; ++t) {
      const int64_t n = std::min<int64_t>(kStrip, c_.n_k - t * kStrip);
      pack_block(k, k_keys, k_d, t * kStrip, n, 0, c_.d, TileForm::kA,
                 w.k_a + t * d_tiles_ * kBf16Block);
      pack_block(v, v_keys, v_d, t * kStrip, n, 0, c_.dv, TileForm::kA,
                 w.v_a + t * v_tiles_ * kBf16Block);
    }
    pack_columns(k, k_d, k_keys, c_.d, from, to - from, TileForm::kA, w.kt_a + first * kBf16Block,
                 key_tiles_);
    for (int64_t e = 0; e < d_tiles_; ++e)
      for (int64_t t = first; t < last; ++t)
        clear_non_finite(w.kt_a + (e * key_tiles_ + t) * kBf16Block);
    std::fill_n(w.dk + first * d_tiles_ * kF32Block, (last - first) * d_tiles_ * kF32Block, 0.0f);
    std::fill_n(w.dv + first * v_tiles_ * kF32Block, (last - first) * v_tiles_ * kF32Block, 0.0f);
  }
  // Lanes over `width` columns, k over rows [r0, r0 + n): [32 columns][n_tiles of k].
  static void pack_columns(const bf16* src, const Loops& columns, const Loops& rows, int64_t width,
                           int64_t r0, int64_t n, TileForm form, char* dst, int64_t n_tiles) {
    for (int64_t e = 0; e < width; e += kStrip)
      pack_block(src, columns, rows, e, std::min<int64_t>(kStrip, width - e), r0, n, form,
                 dst + e / kStrip * n_tiles * kBf16Block);
  }

  void pack_rows(const Pair& w, int64_t r0, int64_t n) const {
    const int64_t h = w.kv_head * c_.group;
    const bf16* q = c_.q->as<const bf16>() + offset4(*c_.q, w.batch, 0, h);
    const bf16* d_o = c_.d_o->as<const bf16>() + offset4(*c_.d_o, w.batch, 0, h);
    const bf16* o = c_.o->as<const bf16>() + offset4(*c_.o, w.batch, 0, h);
    const Loops q_d = loop_over(c_.d, c_.q->stride[3]), o_d = loop_over(c_.dv, c_.o->stride[3]);
    const Loops do_d = loop_over(c_.dv, c_.d_o->stride[3]);
    for (int64_t r = 0; r < n; r += kStrip) {
      const int64_t lanes = std::min<int64_t>(kStrip, n - r), t = r / kStrip;
      pack_block(q, q_rows_, q_d, r0 + r, lanes, 0, c_.d, TileForm::kB,
                 w.q_b + t * d_tiles_ * kBf16Block);
      pack_block(d_o, do_rows_, do_d, r0 + r, lanes, 0, c_.dv, TileForm::kB,
                 w.do_b + t * v_tiles_ * kBf16Block);
      pack_block(o, o_rows_, o_d, r0 + r, lanes, 0, c_.dv, TileForm::kA,
                 w.o_a + t * v_tiles_ * kBf16Block);
    }
    pack_columns(q, q_d, q_rows_, c_.d, r0, n, TileForm::kB, w.q_rb, kStrips);
    pack_columns(d_o, do_d, do_rows_, c_.dv, r0, n, TileForm::kB, w.do_rb, kStrips);
  }

  // Clears q and do of one strip, as the gradients read them; gives rows whose do was not finite.
  uint32_t clear_rows(const Pair& w, int index) const {
    uint32_t found = 0;
    for (int64_t e = 0; e < d_tiles_; ++e)
      clear_non_finite(w.q_rb + (e * kStrips + index) * kBf16Block);
    for (int64_t e = 0; e < v_tiles_; ++e)
      found |= clear_non_finite(w.do_rb + (e * kStrips + index) * kBf16Block);
    return found;
  }

  // Operands of the rows, and their deltas.
  void load_rows(Tiles& tiles, Pair& w, Block& x) const {
    x.is_loaded = true;
    pack_rows(w, x.r0, std::min<int64_t>(kAmxRowBlock, n_rows_ - x.r0));
    for (int i = 0; i < x.n_strips; ++i) {
      deltas(tiles, w, i, x.strip[i]);
      x.strip[i].not_finite = clear_rows(w, i);
    }
  }

  // Which rows these are, and what they see.
  void find_strip(Pair& w, int64_t r0, Strip& x) const {
    x.rows = static_cast<int>(std::min<int64_t>(kStrip, n_rows_ - r0));
    x.lo = c_.n_k, x.hi = 0, x.whole_lo = 0, x.whole_hi = c_.n_k;
    for (int r = 0; r < kStrip; ++r) {
      x.first[r] = x.end[r] = 0, x.minus_lse[r] = 0;
      if (r >= x.rows) {
        x.whole_hi = 0;
        continue;
      }
      x.query[r] = (r0 + r) % c_.n_q, x.head[r] = w.kv_head * c_.group + (r0 + r) / c_.n_q;
      const auto at = [&](const TensorRef& t) {
        return w.batch * t.stride[0] + x.head[r] * t.stride[1] + x.query[r] * t.stride[2];
      };
      const KeyRange keys = visible_keys(c_, x.query[r]);
      if (keys.count() == 0) {
        x.whole_hi = 0;
        continue;
      }
      const float lse = c_.lse->as<float>()[at(*c_.lse)];
      if (!std::isinf(lse)) x.minus_lse[r] = -lse * kLog2E;
      x.first[r] = static_cast<int32_t>(keys.lo), x.end[r] = static_cast<int32_t>(keys.hi);
      x.lo = std::min(x.lo, keys.lo), x.hi = std::max(x.hi, keys.hi);
      x.whole_lo = std::max(x.whole_lo, keys.lo), x.whole_hi = std::min(x.whole_hi, keys.hi);
      ++w.live;
    }
  }

  // The diagonal of o·doᵀ: the order of do·v, so that a row with one key has a gradient of exactly
  // 0.
  void deltas(Tiles& t, Pair& w, int index, Strip& x) const {
    for (int half = 0; half < 2; ++half) {
      t.clear<0>();
      for (int64_t e = 0; e < v_tiles_; ++e) {
        const int64_t at = (index * v_tiles_ + e) * kBf16Block + half * kTileBytes;
        t.load<4>(w.o_a + at, 64);
        t.load<6>(w.do_b + at, 64);
        t.dot<0, 4, 6>();
      }
      t.store<0>(w.s, 64);
      for (int i = 0; i < kTile; ++i) x.delta[half * kTile + i] = w.s[i * kTile + i];
    }
    for (int r = 0; c_.dlse != nullptr && r < x.rows; ++r)
      x.delta[r] -=
          load_float(*c_.dlse, w.batch * c_.dlse->stride[0] + x.head[r] * c_.dlse->stride[1] +
                                   x.query[r] * c_.dlse->stride[2]);
  }

  void run_keys(Tiles& t, Pair& w, const Block& x, int64_t k0) const {
    const int n_keys = static_cast<int>(std::min<int64_t>(kKeyStrips, key_tiles_ - k0 / kStrip));
    bool seen[kStrips][kKeyStrips] = {};
    for (int j = 0; j < n_keys; ++j) {
      int first = x.n_strips, last = 0;
      for (int i = 0; i < x.n_strips; ++i) {
        const int64_t key = k0 + j * kStrip;
        seen[i][j] = x.strip[i].lo < key + kStrip && x.strip[i].hi > key;
        if (!seen[i][j]) continue;
        weigh(t, w, x.strip[i], i, key, j);
        first = std::min(first, i), last = i + 1;
      }
      if (first >= last) continue;
      for (int i = first; i < last; ++i) {
        if (seen[i][j]) continue;
        std::memset(block(w.p_a, j, i), 0, kBf16Block);
        std::memset(block(w.ds_a, j, i), 0, kBf16Block);
      }
      const int64_t key_tile = k0 / kStrip + j;
      sum_keys(t, w, block(w.p_a, j, first), w.do_rb + first * kBf16Block, last - first, v_tiles_,
               w.dv + key_tile * v_tiles_ * kF32Block);
      sum_keys(t, w, block(w.ds_a, j, first), w.q_rb + first * kBf16Block, last - first, d_tiles_,
               w.dk + key_tile * d_tiles_ * kF32Block);
    }
    for (int i = 0; i < x.n_strips; ++i) {
      int first = 0, last = n_keys;
      while (first < last && !seen[i][first]) ++first;
      while (last > first && !seen[i][last - 1]) --last;
      if (first < last) sum_queries(t, w, i, k0 / kStrip, first, last);
    }
  }
  static char* block(char* blocks, int key_strip, int strip) {
    return blocks + (key_strip * kStrips + strip) * kBf16Block;
  }
  static char* key_block(char* blocks, int strip, int key_strip) {
    return blocks + (strip * kKeyStrips + key_strip) * kBf16Block;
  }

  // Weights and their gradients of 32 keys and 32 rows.
  void weigh(Tiles& t, Pair& w, const Strip& x, int i, int64_t key, int j) const {
    TileOperands u;
    u.a = w.k_a + key / kStrip * d_tiles_ * kBf16Block, u.b = w.q_b + i * d_tiles_ * kBf16Block;
    clear_sums<2, 2>(t);
    add_products<2, 2>(t, u, d_tiles_);
    store_sums<2, 2>(t, w.s, kStrip);
    u.a = w.v_a + key / kStrip * v_tiles_ * kBf16Block, u.b = w.do_b + i * v_tiles_ * kBf16Block;
    clear_sums<2, 2>(t);
    add_products<2, 2>(t, u, v_tiles_);
    store_sums<2, 2>(t, w.dp, kStrip);
    w.executed += 2 * kStrip * kStrip * kStrip * (d_tiles_ + v_tiles_);
    char *p = block(w.p_a, j, i), *ds = block(w.ds_a, j, i), *ds_b = key_block(w.ds_b, i, j);
    if (x.whole_lo <= key && key + kStrip <= x.whole_hi) {
      weigh_block<false>(w, x, key, p, ds, ds_b);
      w.pairs += kStrip * kStrip;
    } else {
      weigh_block<true>(w, x, key, p, ds, ds_b);
      for (int r = 0; r < kStrip; ++r)
        w.pairs += std::max<int64_t>(
            0, std::min<int64_t>(x.end[r], key + kStrip) - std::max<int64_t>(x.first[r], key));
    }
    // dv of what such a row sees is NaN.
    for (int r = 0; x.not_finite != 0 && r < kStrip; ++r)
      for (int k = 0; (x.not_finite >> r & 1) != 0 && k < kStrip; ++k)
        if (x.first[r] <= key + k && key + k < x.end[r])
          std::memcpy(p + k * 64 + r * 2, &kNaN16, 2);
  }

  template <bool kMasked>
  void weigh_block(const Pair& w, const Strip& x, int64_t key, char* p, char* ds,
                   char* ds_b) const {
    const Row16 scale = row16(log2_scale_);
    const Row16 minus_lse[2] = {load16(x.minus_lse), load16(x.minus_lse + 16)};
    const Row16 delta[2] = {load16(x.delta), load16(x.delta + 16)};
    for (int j = 0; j < kStrip; ++j, p += 64, ds += 64) {
      Row16 weight[2], grad[2];
#pragma GCC unroll unrolled(2)
      for (int h = 0; h < 2; ++h) {
        const int at = j * kStrip + 16 * h;
        weight[h] = exp2_weight(fma(load16(w.s + at), scale, minus_lse[h]));
        grad[h] = weight[h] * (load16(w.dp + at) - delta[h]);
        if constexpr (kMasked) {
          const Vi k = set1i(static_cast<int32_t>(key) + j);
          for (int v = 0; v < Row16::kRegs; ++v) {
            const int lane = 16 * h + v * kLanes;
            const Vm seen = ~gti(loadi(x.first + lane), k) & gti(loadi(x.end + lane), k);
            weight[h].v[v] = select(seen, weight[h].v[v], zero());
            grad[h].v[v] = select(seen, grad[h].v[v], zero());
          }
        }
      }
      store_bf16(p, weight[0], weight[1]);
      store_bf16(ds, grad[0], grad[1]);
      if (j % 2 == 0) continue;
      // A pair of keys for each row.
      interleave(ds - 64, ds, reinterpret_cast<int32_t*>(ds_b + j / 2 * 64));
      interleave(ds - 32, ds + 32, reinterpret_cast<int32_t*>(ds_b + kTileBytes + j / 2 * 64));
    }
  }

  // acc [32 keys][32 · n_tiles] += a [32 keys][rows] · b [rows][32 · n_tiles]
  static void sum_keys(Tiles& t, Pair& w, const char* a, const char* b, int64_t n_k,
                       int64_t n_tiles, float* acc) {
    TileOperands u;
    u.a = a;
    for (int64_t e = 0; e < n_tiles; ++e, acc += kF32Block) {
      u.b = b + e * kStrips * kBf16Block;
      load_sums<2, 2>(t, acc, kStrip);
      add_products<2, 2>(t, u, n_k);
      store_sums<2, 2>(t, acc, kStrip);
    }
    w.executed += 2 * kStrip * kStrip * kStrip * n_k * n_tiles;
  }

  // dqᵀ += kᵀ·dsᵀ for one strip of rows and key strips [first, last) of a block.
  void sum_queries(Tiles& t, Pair& w, int i, int64_t key_tile, int first, int last) const {
    TileOperands u;
    u.b = key_block(w.ds_b, i, first);
    for (int64_t e = 0; e < d_tiles_; ++e) {
      float* acc = w.dq + (e * kStrips + i) * kF32Block;
      u.a = w.kt_a + (e * key_tiles_ + key_tile + first) * kBf16Block;
      load_sums<2, 2>(t, acc, kStrip);
      add_products<2, 2>(t, u, last - first);
      store_sums<2, 2>(t, acc, kStrip);
    }
    w.executed += 2 * kStrip * kStrip * kStrip * (last - first) * d_tiles_;
  }

  void store_dq(const Pair& w, const Strip& x, int i) const {
    alignas(64) float row[kLanes][kStrip];  // some rows, 32 d
    const TensorRef& out = call_.out[0];
    for (int64_t e = 0; e < d_tiles_; ++e)
      for (int r0 = 0; r0 < x.rows; r0 += kLanes) {
        const float* acc = w.dq + (e * kStrips + i) * kF32Block + r0;
        for (int d = 0; d < kStrip; d += kLanes) {
          Vf v[kLanes];
#pragma GCC unroll unrolled(16)
          for (int l = 0; l < kLanes; ++l) v[l] = load(acc + (d + l) * kStrip);
          transpose(v);
#pragma GCC unroll unrolled(16)
          for (int l = 0; l < kLanes; ++l) store(row[l] + d, v[l]);
        }
        for (int r = r0; r < std::min(x.rows, r0 + kLanes); ++r)
          store_result(row[r - r0], std::min<int64_t>(kStrip, c_.d - e * kStrip), c_.scale, out,
                       offset4(out, w.batch, x.query[r], x.head[r]) + e * kStrip * out.stride[3]);
      }
  }

  const KernelCall& call_;
  const AttentionCall& c_;
  const AmxAttentionWorkspace space_;
  const int64_t n_rows_;
  Loops q_rows_, do_rows_, o_rows_;
  int64_t d_tiles_ = 0, v_tiles_ = 0, key_tiles_ = 0;
  float log2_scale_ = 0;
};
}  // namespace

void attention_bwd_amx(const KernelCall& call) {
  const auto c = parse_attention(*call.attrs, call.in, true, kTakesParts);
  TEGULA_CHECK(c.ok(), c.ok() ? "" : c.error().message);
  AmxBackward(call, *c).run();
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
