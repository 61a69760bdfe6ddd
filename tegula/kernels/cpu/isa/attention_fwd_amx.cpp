// Attention's forward in AMX's tiles. [FlashAttention-2, section 3.1; order "amx_kb512" of
// common/attention_amx.h]
#include <utility>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/attention_pages.h"
#include "tegula/kernels/cpu/common/pair_panels.h"
#include "tegula/kernels/cpu/common/workspace.h"
#include "tegula/kernels/cpu/isa/attention_amx_rows.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
constexpr int kStrips = kAmxRowBlock / kStrip;
constexpr int kChunkTiles = kAmxKeyChunk / kStrip;
constexpr int64_t kPackedTiles = 4;  // at a time
constexpr int64_t kTasks = 16;       // a thread, where rows suffice: cores may differ in speed
constexpr int kQuad = 4;             // tiles weighed between steps of the tile unit
constexpr float kMostSum = 4096;     // of a lane's weights in a chunk

class AmxForward {
 public:
  AmxForward(const KernelCall& call, const AttentionCall& c)
      : call_(call), c_(c), space_(c, false), o_(call.out[0]), lse_(call.out[1]) {
    q_rows_ = row_loops(c, *c.q, false), q_d_ = loop_over(c.d, c.q->stride[3]);
    k_keys_ = loop_over(c.n_k, c.k->stride[1]), k_d_ = loop_over(c.d, c.k->stride[3]);
    v_keys_ = loop_over(c.n_k, c.v->stride[1]), v_d_ = loop_over(c.dv, c.v->stride[3]);
    n_rows_ = c.n_q * c.group;
    d_tiles_ = amx_tiles(c.d), v_strips_ = amx_tiles(c.dv), key_tiles_ = amx_tiles(c.n_k);
    log2_scale_ = c.scale * kLog2E;
  }

  void run() {
    const int n_threads = call_.pool->n_threads();
    const int64_t pairs = c_.batch * c_.n_kv_heads;
    int64_t rows = kAmxRowBlock;
    while (rows > kStrip && pairs * ceil_div(n_rows_, rows) < kTasks * n_threads) rows /= 2;
    const int64_t blocks = ceil_div(n_rows_, rows);
    const int64_t pair_bytes = key_tiles_ * amx_key_bytes(c_), slots = space_.slots(n_threads);
    // All pairs in one round, unless memory holds the panels of fewer than threads come to.
    const bool is_enough = slots >= std::min(pairs, PairPanels::most_slots(n_threads));
    const int64_t at_once = key_tiles_ == 0 || is_enough ? pairs : slots;
    char* panels = static_cast<char*>(call_.workspace);
    char* scratch = panels + space_.panel_bytes(n_threads);
    auto* states = reinterpret_cast<int32_t*>(scratch + space_.thread_bytes * n_threads);
    for (int64_t first = 0; first < pairs; first += at_once) {
      const int64_t n = std::min(at_once, pairs - first);
      const PairPanels packed(states, key_tiles_ == 0 ? 0 : n, ceil_div(key_tiles_, kPackedTiles),
                              slots, n_threads);
      call_.pool->parallel_for(n * blocks, [&](int64_t i, int thread) {
        const int64_t pair = first + i / blocks;
        const auto pack = [&](int64_t block, int64_t slot) {
          const int64_t tile = block * kPackedTiles;
          for (int64_t t = tile; t < std::min(key_tiles_, tile + kPackedTiles); ++t)
            pack_keys(pair, t, panels + slot * pair_bytes + t * amx_key_bytes(c_));
        };
        const int64_t slot = key_tiles_ == 0 ? 0 : packed.enter(i / blocks, thread, pack);
        // Causal: the last rows have most to do and go first.
        run_block(pair, (blocks - 1 - i % blocks) * rows, rows, panels + slot * pair_bytes,
                  scratch + thread * space_.thread_bytes);
        if (key_tiles_ > 0) packed.leave(i / blocks, blocks);
      });
    }
  }

 private:
  // 32 keys: as tiles of b with k = d, then the values with k = the keys.
  void pack_keys(int64_t pair, int64_t tile, char* dst) const {
    const int64_t b = pair / c_.n_kv_heads, h = pair % c_.n_kv_heads, k0 = tile * kStrip;
    const int64_t n = std::min<int64_t>(kStrip, c_.n_k - k0);
    pack_block(c_.k->as<const bf16>() + c_.key_offset(*c_.k, b, k0, h), k_keys_, k_d_, 0, n, 0,
               c_.d, TileForm::kB, dst);
    const bf16* v = c_.v->as<const bf16>() + c_.key_offset(*c_.v, b, k0, h);
    uint32_t not_finite = 0;
    for (int64_t e = 0; e < v_strips_; ++e) {
      char* block = dst + (d_tiles_ + e) * kBf16Block;
      pack_block(v, v_d_, v_keys_, e * kStrip, std::min<int64_t>(kStrip, c_.dv - e * kStrip), 0, n,
                 TileForm::kB, block);
      not_finite |= clear_non_finite(block);
    }
    std::memcpy(dst + amx_key_bytes(c_) - 64, &not_finite, sizeof not_finite);
  }

  // 32 queries: r is a row of the (query, head of the group) pairs.
  struct Strip {
    int rows = 0;
    const char* q = nullptr;
    float* o = nullptr;     // [strip of values][32][32]
    bool has_sums = false;  // in o
    bool is_ready = false;  // all rows have an m
    KeyRange some, all;     // keys that a row sees, and that all of 32 rows see
    QueryRow row[kStrip];
    alignas(64) float m[kStrip], l[kStrip], n[kStrip];  // n: as l, of the weights rounded to bf16
  };
  using Sums = float[kStrip][2][16];  // of rows' weights in a chunk, and of those rounded
  // Weights of one strip and chunk, while the tile unit takes those of the one before: [key / 32]
  // [two tiles of 16 rows × 32 keys]; scores, [key / 32][32 rows][32 keys], while those of the next
  // are formed.
  struct Buffer {
    float* s;
    char* p;
  };

  // A strip against a chunk: key tiles [first, last) of it, of which all rows see those in
  // [whole_first, whole_last).
  struct Item {
    int strip = -1;
    int64_t c0 = 0, first = 0, last = 0, whole_first = 0, whole_last = 0;
    bool has_not_finite = false;  // among its values

    static int64_t quads(int64_t tiles) { return ceil_div(tiles, kQuad); }
    int64_t quads() const {
      return quads(whole_first - first) + quads(whole_last - whole_first) +
             quads(last - whole_last);
    }
  };
  bool next_item(const Strip* strips, int n_strips, int64_t hi, const char* panels, Item& x) const {
    for (;;) {
      if (++x.strip == n_strips) x.strip = 0, x.c0 += kAmxKeyChunk;
      if (x.c0 >= hi) return false;
      const KeyRange &some = strips[x.strip].some, &all = strips[x.strip].all;
      const int64_t lo = std::max(some.lo, x.c0), end = std::min(some.hi, x.c0 + kAmxKeyChunk);
      if (lo >= end) continue;
      x.first = (lo - x.c0) / kStrip, x.last = ceil_div(end - x.c0, kStrip);
      x.has_not_finite = false;
      for (int64_t j = x.first; j < x.last; ++j)
        x.has_not_finite = x.has_not_finite || not_finite(panels, x, j) != 0;
      x.whole_first = x.whole_last = x.last;
      if (x.has_not_finite || all.count() == 0) return true;
      x.whole_first =
          std::clamp(ceil_div(std::max<int64_t>(0, all.lo - x.c0), kStrip), x.first, x.last);
      x.whole_last = std::clamp((all.hi - x.c0) / kStrip, x.whole_first, x.last);
      return true;
    }
  }
  // Bits of the keys of an item's tile whose values are not finite.
  uint32_t not_finite(const char* panels, const Item& item, int64_t tile) const {
    uint32_t keys;
    std::memcpy(&keys, panels + (item.c0 / kStrip + tile + 1) * amx_key_bytes(c_) - 64,
                sizeof keys);
    return keys;
  }

  // Products to be done a step at a time: n sums of 32 × 32, each over n_k tiles.
  struct TileJob {
    TileOperands x;
    int64_t b_next_sum = 0;
    float* sums = nullptr;
    int64_t n = 0, n_k = 0;
    bool goes_on = false;  // from what is in sums
    int64_t k = 0;

    int64_t steps() const { return n * n_k - k; }
    TEGULA_TILE void step(Tiles& t) {
      if (n == 0) return;
      if (k == 0) goes_on ? load_sums<2, 2>(t, sums, kStrip) : clear_sums<2, 2>(t);
      TileOperands u = x;
      u.a += k * x.a_k, u.b += k * x.b_k;
      add_products<2, 2>(t, u, 1);
      if (++k < n_k) return;
      store_sums<2, 2>(t, sums, kStrip);
      k = 0, --n, x.b += b_next_sum, sums += kF32Block;
    }
    void finish(Tiles& t) {
      while (n > 0) step(t);
    }
  };
  TileJob score_job(const Strip& x, const Item& item, const char* panels, const Buffer& w) const {
    TileJob j;
    j.x.a = x.q;
    j.x.b = panels + (item.c0 / kStrip + item.first) * amx_key_bytes(c_);
    j.b_next_sum = amx_key_bytes(c_);
    j.sums = w.s + item.first * kF32Block;
    j.n = item.last - item.first, j.n_k = d_tiles_;
    return j;
  }
  TileJob value_job(const Strip& x, const Item& item, const char* panels, const Buffer& w) const {
    TileJob j;
    j.x.a = w.p + item.first * kBf16Block;
    j.x.b = panels + (item.c0 / kStrip + item.first) * amx_key_bytes(c_) + d_tiles_ * kBf16Block;
    j.x.b_k = amx_key_bytes(c_);
    j.b_next_sum = kBf16Block;
    j.sums = x.o;
    j.n = v_strips_, j.n_k = item.last - item.first;
    j.goes_on = x.has_sums;
    return j;
  }
  // The work of the tile unit while an item is weighed: the values of the one before, then the
  // scores of the next, spread over the item's quads of tiles.
  struct Beside {
    Tiles& t;
    TileJob &values, &scores;
    int64_t steps, quads, due = 0;

    Beside(Tiles& tiles, TileJob& v, TileJob& s, const Item& item)
        : t(tiles),
          values(v),
          scores(s),
          steps(v.steps() + s.steps()),
          quads(kStrip * item.quads()) {}
    TEGULA_TILE void after_quad() {
      for (due += steps; due >= quads; due -= quads) values.n > 0 ? values.step(t) : scores.step(t);
    }
  };

  void run_block(int64_t pair, int64_t r0, int64_t n, const char* panels, char* scratch) const {
    Tiles tiles;
    ByteScratch space(scratch);
    Strip strips[kStrips];
    Buffer w[2];
    for (Buffer& b : w) b.s = space.f32_blocks(kChunkTiles), b.p = space.bf16_blocks(kChunkTiles);
    auto& sums = *reinterpret_cast<Sums*>(space.f32_blocks(1));
    char* q = space.bf16_blocks(kStrips * d_tiles_);
    float* o = space.f32_blocks(kStrips * v_strips_);
    int64_t lo = c_.n_k, hi = 0, live = 0;
    const int n_strips = static_cast<int>(ceil_div(std::min(n, n_rows_ - r0), kStrip));
    for (int i = 0; i < n_strips; ++i) {
      Strip& x = strips[i];
      load_strip(pair, r0 + i * kStrip, q + i * d_tiles_ * kBf16Block, x, live);
      x.o = o + i * v_strips_ * kF32Block;
      if (c_.o_before != nullptr) go_on(x);
      lo = std::min(lo, x.some.lo), hi = std::max(hi, x.some.hi);
    }
    const Count done = run_items(tiles, strips, n_strips, lo, hi, panels, w, sums);
    for (int i = 0; i < n_strips; ++i) finish(strips[i]);
    const int64_t score = c_.score_flops() + 4;
    const int64_t other = done.pairs * score + live * flops_of_row(c_);
    call_.counters->add(other + done.pairs * 2 * (c_.d + c_.dv), other + done.executed);
  }

  // While scores become weights, the tile unit forms the next scores and sums the values of the
  // item before. Returns what the tiles executed, and the pairs of a row and a key that it sees.
  struct Count {
    int64_t executed = 0, pairs = 0;
  };
  Count run_items(Tiles& t, Strip* strips, int n_strips, int64_t lo, int64_t hi, const char* panels,
                  const Buffer (&w)[2], Sums& sums) const {
    Count done;
    Item item;
    item.c0 = lo / kAmxKeyChunk * kAmxKeyChunk;
    if (!next_item(strips, n_strips, hi, panels, item)) return done;
    score_job(strips[item.strip], item, panels, w[0]).finish(t);
    TileJob values;
    for (int at = 0;; at ^= 1) {
      Strip& x = strips[item.strip];
      Item next = item;
      const bool more = next_item(strips, n_strips, hi, panels, next);
      TileJob scores;
      if (more) scores = score_job(strips[next.strip], next, panels, w[at ^ 1]);
      Beside beside(t, values, scores, item);
      weigh(x, item, panels, w[at], sums, beside);
      add_sums(x, item, panels, w[at], sums);
      values = value_job(x, item, panels, w[at]);
      x.has_sums = true;
      done.executed +=
          2 * kStrip * kStrip * kStrip * (item.last - item.first) * (d_tiles_ + v_strips_);
      for (int r = 0; r < x.rows; ++r) done.pairs += seen_of(x, r, item).count();
      if (!more) break;
      item = next;
    }
    values.finish(t);
    return done;
  }

  void load_strip(int64_t pair, int64_t r0, char* q, Strip& x, int64_t& live) const {
    const int64_t batch = pair / c_.n_kv_heads, head0 = pair % c_.n_kv_heads * c_.group;
    x.rows = static_cast<int>(std::min<int64_t>(kStrip, n_rows_ - r0));
    x.q = q;
    x.some.lo = c_.n_k, x.all.hi = x.rows == kStrip ? c_.n_k : 0;
    for (int i = 0; i < kStrip; ++i) {
      x.m[i] = -kInf, x.l[i] = x.n[i] = 0;
      if (i >= x.rows) continue;
      QueryRow& row = x.row[i];
      row.batch = batch, row.query = (r0 + i) / c_.group;
      row.head = head0 + (r0 + i) % c_.group;
      row.keys = visible_keys(c_, row.query);
      x.all.lo = std::max(x.all.lo, row.keys.lo), x.all.hi = std::min(x.all.hi, row.keys.hi);
      if (row.keys.count() == 0) continue;
      x.some.lo = std::min(x.some.lo, row.keys.lo), x.some.hi = std::max(x.some.hi, row.keys.hi);
      ++live;
    }
    pack_block(c_.q->as<const bf16>() + offset4(*c_.q, batch, 0, head0), q_rows_, q_d_, r0, x.rows,
               0, c_.d, TileForm::kA, q);
  }

  // From what the parts of the keys before gave.
  void go_on(Strip& x) const {
    std::fill_n(x.o, v_strips_ * kF32Block, 0.0f);
    x.has_sums = true;
    for (int r = 0; r < x.rows; ++r) {
      const QueryRow& row = x.row[r];
      const float lse = lse_before(c_, row.batch, row.head, row.query);
      if (lse == -kInf) continue;
      x.m[r] = lse * kLog2E, x.l[r] = x.n[r] = 1;
      for (int64_t e = 0; e < c_.dv; e += kStrip)
        copy_o_before(c_, row.batch, row.query, row.head, e, std::min<int64_t>(kStrip, c_.dv - e),
                      x.o + e / kStrip * kF32Block + r * kStrip);
    }
  }

  TEGULA_VEC Row16 masked(const Row16& y, int64_t key, int64_t from, int64_t to, float hidden) {
    return map16([&](int i) {
      const Vi at = iota() + set1i(static_cast<int32_t>(key) + i * (16 / Row16::kRegs));
      const Vm seen =
          gti(at, set1i(static_cast<int32_t>(from) - 1)) & gti(set1i(static_cast<int32_t>(to)), at);
      return select(seen, y.v[i], set1(hidden));
    });
  }

  // Keys of the item that row r sees.
  static KeyRange seen_of(const Strip& x, int r, const Item& item) {
    KeyRange k;
    if (r >= x.rows) return k;
    k.lo = std::max<int64_t>(x.row[r].keys.lo - item.c0, 0);
    k.hi = std::min<int64_t>(x.row[r].keys.hi - item.c0, kAmxKeyChunk);
    return k;
  }

  // The scores of the chunk's first 32 keys; 32 more lie a block on.
  static const float* scores_of(const Buffer& w, int r) { return w.s + r * kStrip; }
  static char* weights_of(const Buffer& w, int r) {
    return w.p + r / kTile * kTileBytes + r % kTile * 64;
  }

  // m, as far as the scores of keys [from, to) of row r say it.
  float top_of(const Buffer& w, int r, int64_t from, int64_t to) const {
    Row16 top = row16(-kInf);
    for (int64_t key = from / 16 * 16; key < to; key += 16) {
      const Row16 y = load16(scores_of(w, r) + key / kStrip * kF32Block + key % kStrip);
      top = max(top, masked(y, key, from, to, -kInf));
    }
    return reduce_max(top) * log2_scale_;
  }

  // 32 weights, rounded, and their sums.
  TEGULA_VEC void keep(char* p, const Row16& lo, const Row16& hi, Row16& sum, Row16& rounded) {
    sum = sum + lo;
    sum = sum + hi;
    store_bf16(p, lo, hi);
    rounded = add_bf16(rounded, p);
  }

  // An item's weights. Rows' sums add up from part to part, of which each begins only once.
  void weigh(Strip& x, const Item& item, const char* panels, const Buffer& w, Sums& sums,
             Beside& beside) const {
    const auto edge = [&](int64_t first, int64_t last) {
      for (int r = 0; first < last && r < kStrip; ++r) {
        weigh_edge(x, r, item, first, last, panels, w, sums[r]);
        for (int64_t j = first; j < last; j += kQuad) beside.after_quad();
      }
    };
    edge(item.first, item.whole_first);
    if (!x.is_ready && item.whole_first < item.whole_last) {
      x.is_ready = true;
      for (int r = 0; r < kStrip; ++r) {
        const int64_t key = item.whole_first * kStrip;
        if (x.m[r] == -kInf) x.m[r] = top_of(w, r, key, key + kStrip);
        x.is_ready = x.is_ready && x.m[r] != -kInf;
      }
    }
    x.is_ready ? weigh_whole(x, item, w, sums, beside) : edge(item.whole_first, item.whole_last);
    edge(item.whole_last, item.last);
  }

  // A row of n tiles, whose chains of operations go side by side.
  template <int n>
  TEGULA_VEC void weigh_tiles(const float* s, char* p, const Row16& scale, const Row16& minus_m,
                              Row16& sum, Row16& rounded) {
    Row16 y[2 * n];
#pragma GCC unroll unrolled(4)
    for (int i = 0; i < 2 * n; ++i)
      y[i] = fma(load16(s + i / 2 * kF32Block + i % 2 * 16), scale, minus_m);
    exp2_weights(y);
#pragma GCC unroll unrolled(2)
    for (int i = 0; i < n; ++i) keep(p + i * kBf16Block, y[2 * i], y[2 * i + 1], sum, rounded);
  }

  // The tiles that all rows see.
  void weigh_whole(const Strip& x, const Item& item, const Buffer& w, Sums& sums,
                   Beside& beside) const {
    const Row16 scale = row16(log2_scale_);
    const bool is_first = item.first == item.whole_first;
    for (int r = 0; r < kStrip && item.whole_first < item.whole_last; ++r) {
      const Row16 minus_m = row16(-x.m[r]);
      Row16 sum = is_first ? row16(0) : load16(sums[r][0]);
      Row16 rounded = is_first ? row16(0) : load16(sums[r][1]);
      const float* s = scores_of(w, r) + item.whole_first * kF32Block;
      char* p = weights_of(w, r) + item.whole_first * kBf16Block;
      int64_t n = item.whole_last - item.whole_first;
      for (; n >= kQuad; n -= kQuad, s += kQuad * kF32Block, p += kQuad * kBf16Block) {
        weigh_tiles<2>(s, p, scale, minus_m, sum, rounded);
        weigh_tiles<2>(s + 2 * kF32Block, p + 2 * kBf16Block, scale, minus_m, sum, rounded);
        beside.after_quad();
      }
      if (n > 0) beside.after_quad();
      for (; n > 0; --n, s += kF32Block, p += kBf16Block)
        weigh_tiles<1>(s, p, scale, minus_m, sum, rounded);
      store16_n(sums[r][0], sum, 16), store16_n(sums[r][1], rounded, 16);
    }
  }

  // One row of tiles that it may see in part, or with values that are not finite.
  __attribute__((noinline)) void weigh_edge(Strip& x, int r, const Item& item, int64_t first,
                                            int64_t last, const char* panels, const Buffer& w,
                                            float (&sums)[2][16]) const {
    const float* s = scores_of(w, r);
    char* p = weights_of(w, r);
    const KeyRange seen = seen_of(x, r, item);
    const Row16 scale = row16(log2_scale_);
    Row16 sum = first == item.first ? row16(0) : load16(sums[0]);
    Row16 rounded = first == item.first ? row16(0) : load16(sums[1]);
    for (int64_t j = first; j < last; ++j) {
      const int64_t key = kStrip * j, from = std::max(seen.lo, key);
      const int64_t to = std::min(seen.hi, key + kStrip);
      char* at = p + j * kBf16Block;
      if (from >= to) {
        store_bf16(at, row16(0), row16(0));
        continue;
      }
      if (x.m[r] == -kInf) x.m[r] = top_of(w, r, from, to);
      const Row16 minus_m = row16(x.m[r] == -kInf ? 0.0f : -x.m[r]);
      Row16 lo = fma(load16(s + j * kF32Block), scale, minus_m);
      Row16 hi = fma(load16(s + j * kF32Block + 16), scale, minus_m);
      lo = masked(lo, key, from, to, -kInf);
      hi = masked(hi, key + 16, from, to, -kInf);
      lo = masked(exp2_weight(lo), key, from, to, 0);
      hi = masked(exp2_weight(hi), key + 16, from, to, 0);
      keep(at, lo, hi, sum, rounded);
      if (!item.has_not_finite) continue;
      uint32_t keys = not_finite(panels, item, j);
      for (int64_t k = key; keys != 0; ++k, keys >>= 1)
        if ((keys & 1) != 0 && k >= from && k < to) std::memcpy(at + k % kStrip * 2, &kNaN16, 2);
    }
    store16_n(sums[0], sum, 16), store16_n(sums[1], rounded, 16);
  }

  // l and n take an item's sums. Where a row's scores went far beyond m, which its first keys said,
  // m moves first, l, n and o with it, and the weights are formed again.
  void add_sums(Strip& x, const Item& item, const char* panels, const Buffer& w, Sums& sums) const {
    Vm far = gt(load(sums[0][0]), set1(kMostSum));
    for (int r = 0; r < kStrip; ++r)
      for (int v = 0; v < 16; v += kLanes) far = far | gt(load(sums[r][0] + v), set1(kMostSum));
    if (any(far)) [[unlikely]]
      for (int r = 0; r < kStrip; ++r) {
        if (!exceeds(load16(sums[r][0]), kMostSum)) continue;
        raise(x, r, seen_of(x, r, item), w);
        weigh_edge(x, r, item, item.first, item.last, panels, w, sums[r]);
      }
    add_rows(sums, 0, x.l), add_rows(sums, 1, x.n);
  }
  void raise(Strip& x, int r, const KeyRange& seen, const Buffer& w) const {
    const float m = top_of(w, r, seen.lo, seen.hi), old = std::exchange(x.m[r], m);
    alignas(64) float lanes[kLanes];
    const Vf alpha = exp2_weight(set1(old - m));
    store(lanes, alpha);
    x.l[r] = x.l[r] * lanes[0], x.n[r] = x.n[r] * lanes[0];
    for (int64_t e = 0; x.has_sums && e < v_strips_; ++e) {
      float* o = x.o + e * kF32Block + r * kStrip;
      for (int v = 0; v < kStrip; v += kLanes) store(o + v, load(o + v) * alpha);
    }
  }
  // to[r] += the lane16 sum of rows[r][which].
  static void add_rows(const Sums& rows, int which, float* to) {
    for (int r = 0; r < kStrip; r += kLanes) {
      Vf v[kLanes];
#pragma GCC unroll unrolled(16)
      for (int i = 0; i < kLanes; ++i) {
        const Row16 x = load16(rows[r + i][which]);
        v[i] = Row16::kRegs == 1 ? x.v[0] : x.v[0] + x.v[Row16::kRegs - 1];
      }
      transpose(v);
#pragma GCC unroll unrolled(4)
      for (int half = kLanes / 2; half > 0; half /= 2)
#pragma GCC unroll unrolled(8)
        for (int i = 0; i < half; ++i) v[i] = v[i] + v[i + half];
      store(to + r, load(to + r) + v[0]);
    }
  }

  void finish(Strip& x) const {
    alignas(64) float lse[kStrip];
    for (int r = 0; r < kStrip; r += kLanes)
      store(lse + r, fma(load(x.m + r), set1(kLn2), log(load(x.l + r))));
    if (!x.has_sums) std::fill_n(x.o, v_strips_ * kF32Block, 0.0f);
    for (int r = 0; r < x.rows; ++r) {
      const QueryRow& row = x.row[r];
      const bool live = x.l[r] != 0;  // NaN is alive
      lse_.as<float>()[row.batch * lse_.stride[0] + row.head * lse_.stride[1] +
                       row.query * lse_.stride[2]] =
          !live                   ? -kInf
          : row.keys.count() == 0 ? lse_before(c_, row.batch, row.head, row.query)
                                  : lse[r];
      const int64_t out = offset4(o_, row.batch, row.query, row.head);
      for (int64_t e = 0; e < v_strips_; ++e)
        store_result(x.o + e * kF32Block + r * kStrip,
                     std::min<int64_t>(kStrip, c_.dv - e * kStrip), live ? 1 / x.n[r] : 0.0f, o_,
                     out + e * kStrip * o_.stride[3]);
    }
  }

  const KernelCall& call_;
  const AttentionCall& c_;
  const AmxAttentionWorkspace space_;
  const TensorRef& o_;
  const TensorRef& lse_;
  Loops q_rows_, q_d_, k_keys_, k_d_, v_keys_, v_d_;
  int64_t n_rows_ = 0, d_tiles_ = 0, v_strips_ = 0, key_tiles_ = 0;
  float log2_scale_ = 0;
};
}  // namespace

void attention_fwd_amx(const KernelCall& call) {
  const auto c = parse_attention(*call.attrs, call.in, false, kTakesParts);
  TEGULA_CHECK(c.ok(), c.ok() ? "" : c.error().message);
  claim_workspace(call, AmxAttentionWorkspace(*c, false).bytes(call.pool->n_threads()));
  for_each_sequence(call, *c, [](const KernelCall& of_call, const AttentionCall& of) {
    AmxForward(of_call, of).run();
  });
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
