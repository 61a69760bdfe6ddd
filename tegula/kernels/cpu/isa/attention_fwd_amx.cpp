// Attention's forward in AMX's tiles. [FlashAttention-2, section 3.1; order "amx_kb512" of
// common/attention_amx.h]
#include <algorithm>
#include <utility>

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
constexpr float kMostSum = 4096;     // of a lane's weights in a chunk

class AmxForward {
 public:
  AmxForward(const KernelCall& call, const AttentionCall& c)
      : call_(call), c_(c), space_(c, false), o_(call.out[0]), lse_(call.out[1]) {
    q_rows_ = row_loops(c, *c.q, false);
    n_rows_ = c.n_q * c.group;
    d_tiles_ = amx_tiles(c.d), v_strips_ = amx_tiles(c.dv), key_tiles_ = amx_tiles(c.n_k);
    log2_scale_ = c.scale * kLog2E;
  }

  void run() {
    const int n_threads = call_.pool->n_threads();
    claim_workspace(call_, space_.bytes(n_threads));
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
    pack_block(c_.k->as<const bf16>() + offset4(*c_.k, b, 0, h), loop_over(c_.n_k, c_.k->stride[1]),
               loop_over(c_.d, c_.k->stride[3]), k0, n, 0, c_.d, TileForm::kB, dst);
    const bf16* v = c_.v->as<const bf16>() + offset4(*c_.v, b, 0, h);
    uint32_t not_finite = 0;
    for (int64_t e = 0; e < v_strips_; ++e) {
      char* block = dst + (d_tiles_ + e) * kBf16Block;
      pack_block(v, loop_over(c_.dv, c_.v->stride[3]), loop_over(c_.n_k, c_.v->stride[1]),
                 e * kStrip, std::min<int64_t>(kStrip, c_.dv - e * kStrip), k0, n, TileForm::kB,
                 block);
      not_finite |= clear_non_finite(block);
    }
    std::memcpy(dst + amx_key_bytes(c_) - 64, &not_finite, sizeof not_finite);
  }

  // 32 queries: r is a row of the (query, head of the group) pairs.
  struct Strip {
    int rows = 0;
    const char* q = nullptr;
    float* o = nullptr;  // [strip of values][32][32]
    int64_t lo = 0, hi = 0;
    QueryRow row[kStrip];
    alignas(64) float m[kStrip], l[kStrip], n[kStrip];  // n: as l, of the weights rounded to bf16
  };
  // Scores of one strip and chunk while those of the one before are weights already.
  struct Buffer {
    float* s;  // [key / 32][32 rows][32 keys]
    char* p;   // [key / 32][two tiles of 16 rows × 32 keys]
  };

  // A strip against a chunk: key tiles [first, last) of it.
  struct Item {
    int strip = -1;
    int64_t c0 = 0, first = 0, last = 0;
  };
  static bool next_item(const Strip* strips, int n_strips, int64_t hi, Item& x) {
    for (;;) {
      if (++x.strip == n_strips) x.strip = 0, x.c0 += kAmxKeyChunk;
      if (x.c0 >= hi) return false;
      const Strip& strip = strips[x.strip];
      const int64_t lo = std::max(strip.lo, x.c0), end = std::min(strip.hi, x.c0 + kAmxKeyChunk);
      if (lo >= end) continue;
      x.first = (lo - x.c0) / kStrip, x.last = ceil_div(end - x.c0, kStrip);
      return true;
    }
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
  TileJob score_job(const Strip& x, const Item& i, const char* panels, const Buffer& w) const {
    TileJob j;
    j.x.a = x.q;
    j.x.b = panels + (i.c0 / kStrip + i.first) * amx_key_bytes(c_);
    j.b_next_sum = amx_key_bytes(c_);
    j.sums = w.s + i.first * kF32Block;
    j.n = i.last - i.first, j.n_k = d_tiles_;
    return j;
  }
  TileJob value_job(const Strip& x, const Item& i, const char* panels, const Buffer& w) const {
    TileJob j;
    j.x.a = w.p + i.first * kBf16Block;
    j.x.b = panels + (i.c0 / kStrip + i.first) * amx_key_bytes(c_) + d_tiles_ * kBf16Block;
    j.x.b_k = amx_key_bytes(c_);
    j.b_next_sum = kBf16Block;
    j.sums = x.o;
    j.n = v_strips_, j.n_k = i.last - i.first;
    j.goes_on = true;
    return j;
  }

  void run_block(int64_t pair, int64_t r0, int64_t n, const char* panels, char* scratch) const {
    Tiles tiles;
    ByteScratch space(scratch);
    Strip strips[kStrips];
    Buffer w[2];
    for (Buffer& b : w) b.s = space.f32_blocks(kChunkTiles), b.p = space.bf16_blocks(kChunkTiles);
    char* q = space.bf16_blocks(kStrips * d_tiles_);
    float* o = space.f32_blocks(kStrips * v_strips_);
    int64_t lo = c_.n_k, hi = 0, visible = 0, live = 0;
    const int n_strips = static_cast<int>(ceil_div(std::min(n, n_rows_ - r0), kStrip));
    for (int i = 0; i < n_strips; ++i) {
      Strip& x = strips[i];
      load_strip(pair, r0 + i * kStrip, q + i * d_tiles_ * kBf16Block, x, visible, live);
      x.o = o + i * v_strips_ * kF32Block;
      std::fill_n(x.o, v_strips_ * kF32Block, 0.0f);
      lo = std::min(lo, x.lo), hi = std::max(hi, x.hi);
    }
    const int64_t executed = run_items(tiles, strips, n_strips, lo, hi, panels, w);
    for (int i = 0; i < n_strips; ++i) finish(strips[i]);
    const int64_t score = c_.score_flops() + 4;
    const int64_t other = visible * score + live * (3 + c_.dv);
    call_.counters->add(other + visible * 2 * (c_.d + c_.dv), other + executed);
  }

  // While the scores of an item become weights, row by row, the tile unit sums the values of the
  // item before and forms the scores of the next. Returns what the tiles executed.
  int64_t run_items(Tiles& t, Strip* strips, int n_strips, int64_t lo, int64_t hi,
                    const char* panels, const Buffer (&w)[2]) const {
    int64_t executed = 0;
    Item item;
    item.c0 = lo / kAmxKeyChunk * kAmxKeyChunk;
    if (!next_item(strips, n_strips, hi, item)) return 0;
    score_job(strips[item.strip], item, panels, w[0]).finish(t);
    TileJob values;
    int last_strip = -1;
    for (int at = 0;; at ^= 1) {
      Strip& x = strips[item.strip];
      Item next = item;
      const bool more = next_item(strips, n_strips, hi, next);
      TileJob scores;
      if (more) scores = score_job(strips[next.strip], next, panels, w[at ^ 1]);
      const int64_t share = ceil_div(values.steps() + scores.steps(), kStrip);
      for (int r = 0; r < kStrip; ++r) {
        if (!weigh_row(x, r, item, panels, w[at])) [[unlikely]] {
          if (last_strip == item.strip) values.finish(t);
          raise(x, r, seen_of(x, r, item), w[at]);
          weigh_row(x, r, item, panels, w[at]);
        }
        for (int64_t i = 0; i < share; ++i) values.n > 0 ? values.step(t) : scores.step(t);
      }
      values.finish(t), scores.finish(t);
      values = value_job(x, item, panels, w[at]);
      last_strip = item.strip;
      executed += 2 * kStrip * kStrip * kStrip * (item.last - item.first) * (d_tiles_ + v_strips_);
      if (!more) break;
      item = next;
    }
    values.finish(t);
    return executed;
  }

  void load_strip(int64_t pair, int64_t r0, char* q, Strip& x, int64_t& visible,
                  int64_t& live) const {
    const int64_t batch = pair / c_.n_kv_heads, head0 = pair % c_.n_kv_heads * c_.group;
    x.rows = static_cast<int>(std::min<int64_t>(kStrip, n_rows_ - r0));
    x.q = q;
    x.lo = c_.n_k, x.hi = 0;
    for (int i = 0; i < kStrip; ++i) {
      x.m[i] = -kInf, x.l[i] = x.n[i] = 0;
      if (i >= x.rows) continue;
      QueryRow& row = x.row[i];
      row.batch = batch, row.query = (r0 + i) / c_.group;
      row.head = head0 + (r0 + i) % c_.group;
      row.keys = visible_keys(c_, row.query);
      if (row.keys.count() == 0) continue;
      x.lo = std::min(x.lo, row.keys.lo), x.hi = std::max(x.hi, row.keys.hi);
      visible += row.keys.count(), ++live;
    }
    pack_block(c_.q->as<const bf16>() + offset4(*c_.q, batch, 0, head0), q_rows_,
               loop_over(c_.d, c_.q->stride[3]), r0, x.rows, 0, c_.d, TileForm::kA, q);
  }

  TEGULA_VEC Row16 masked(const Row16& y, int64_t key, int64_t from, int64_t to, float hidden) {
    return map16([&](int i) {
      const Vi at = iota() + set1i(static_cast<int32_t>(key) + i * (16 / Row16::kRegs));
      const Vm seen =
          gti(at, set1i(static_cast<int32_t>(from) - 1)) & gti(set1i(static_cast<int32_t>(to)), at);
      return select(seen, y.v[i], set1(hidden));
    });
  }

  // Where a row's scores of 16 keys lie.
  static const float* scores_of(const Buffer& w, int r, int64_t g) {
    return w.s + g / 2 * kF32Block + r * kStrip + g % 2 * 16;
  }

  // Keys of the item that row r sees.
  static KeyRange seen_of(const Strip& x, int r, const Item& item) {
    KeyRange k;
    if (r >= x.rows) return k;
    k.lo = std::max<int64_t>(x.row[r].keys.lo - item.c0, 0);
    k.hi = std::min<int64_t>(x.row[r].keys.hi - item.c0, kAmxKeyChunk);
    return k;
  }

  // m, as far as the scores of keys [from, to) of row r say it.
  float top_of(const Buffer& w, int r, int64_t from, int64_t to) const {
    Row16 top = row16(-kInf);
    for (int64_t key = from / 16 * 16; key < to; key += 16)
      top = max(top, masked(load16(scores_of(w, r, key / 16)), key, from, to, -kInf));
    return reduce_max(top) * log2_scale_;
  }
  // A row's scores went far beyond m, which its first keys said: m moves, and l and o with it.
  __attribute__((noinline)) void raise(Strip& x, int r, const KeyRange& seen,
                                       const Buffer& w) const {
    const float m = top_of(w, r, seen.lo, seen.hi), old = std::exchange(x.m[r], m);
    if (old == -kInf) return;  // l and o are 0
    alignas(64) float lanes[kLanes];
    const Vf alpha = exp2_weight(set1(old - m));
    store(lanes, alpha);
    x.l[r] = x.l[r] * lanes[0], x.n[r] = x.n[r] * lanes[0];
    for (int64_t e = 0; e < v_strips_; ++e) {
      float* o = x.o + e * kF32Block + r * kStrip;
      for (int v = 0; v < kStrip; v += kLanes) store(o + v, load(o + v) * alpha);
    }
  }

  // Weights of row r; false where scores exceed m too far, and nothing but weights has changed.
  bool weigh_row(Strip& x, int r, const Item& item, const char* panels, const Buffer& w) const {
    char* p = w.p + r / kTile * kTileBytes + r % kTile * 64;
    const KeyRange seen = seen_of(x, r, item);
    const int64_t from = seen.lo, to = seen.hi;
    if (x.m[r] == -kInf && from < to) {
      x.m[r] = top_of(w, r, from, std::min(to, from / kStrip * kStrip + kStrip));
      if (x.m[r] == -kInf) x.m[r] = top_of(w, r, from, to);
    }
    const Row16 scale = row16(log2_scale_);
    const Row16 minus_m = row16(x.m[r] == -kInf ? 0.0f : -x.m[r]);
    Row16 sum = row16(0), rounded = row16(0);
    for (int64_t j = item.first; j < item.last; ++j) {
      if (kStrip * j >= to || kStrip * j + kStrip <= from) {
        store_bf16(p + j * kBf16Block, row16(0), row16(0));
        continue;
      }
      const float* at = scores_of(w, r, 2 * j);
      Row16 lo = fma(load16(at), scale, minus_m), hi = fma(load16(at + 16), scale, minus_m);
      if (kStrip * j < from || kStrip * j + kStrip > to) {
        lo = masked(lo, kStrip * j, from, to, -kInf);
        hi = masked(hi, kStrip * j + 16, from, to, -kInf);
        lo = masked(exp2_weight(lo), kStrip * j, from, to, 0);
        hi = masked(exp2_weight(hi), kStrip * j + 16, from, to, 0);
      } else {
        lo = exp2_weight(lo), hi = exp2_weight(hi);
      }
      sum = sum + lo;
      sum = sum + hi;
      store_bf16(p + j * kBf16Block, lo, hi);
      rounded = add_bf16(rounded, p + j * kBf16Block);
      uint32_t not_finite;
      std::memcpy(&not_finite, panels + (item.c0 / kStrip + j + 1) * amx_key_bytes(c_) - 64, 4);
      for (int64_t key = kStrip * j; not_finite != 0; ++key, not_finite >>= 1)
        if ((not_finite & 1) != 0 && key >= from && key < to)
          std::memcpy(p + j * kBf16Block + key % kStrip * 2, &kNaN16, 2);
    }
    if (from >= to) return true;
    if (exceeds(sum, kMostSum)) return false;
    x.l[r] = x.l[r] + reduce_add(sum), x.n[r] = x.n[r] + reduce_add(rounded);
    return true;
  }

  void finish(Strip& x) const {
    alignas(64) float lse[kStrip];
    for (int r = 0; r < kStrip; r += kLanes)
      store(lse + r, fma(load(x.m + r), set1(kLn2), log(load(x.l + r))));
    for (int r = 0; r < x.rows; ++r) {
      const QueryRow& row = x.row[r];
      const bool live = x.l[r] != 0;  // NaN is alive
      lse_.as<float>()[row.batch * lse_.stride[0] + row.head * lse_.stride[1] +
                       row.query * lse_.stride[2]] = live ? lse[r] : -kInf;
      bf16* out = o_.as<bf16>() + offset4(o_, row.batch, row.query, row.head);
      for (int64_t e = 0; e < v_strips_; ++e)
        store_result(x.o + e * kF32Block + r * kStrip,
                     std::min<int64_t>(kStrip, c_.dv - e * kStrip), live ? 1 / x.n[r] : 0.0f,
                     out + e * kStrip * o_.stride[3], o_.stride[3]);
    }
  }

  const KernelCall& call_;
  const AttentionCall& c_;
  const AmxAttentionWorkspace space_;
  const TensorRef& o_;
  const TensorRef& lse_;
  Loops q_rows_;
  int64_t n_rows_ = 0, d_tiles_ = 0, v_strips_ = 0, key_tiles_ = 0;
  float log2_scale_ = 0;
};
}  // namespace

void attention_fwd_amx(const KernelCall& call) {
  const auto c = parse_attention(*call.attrs, call.in, false);
  TEGULA_CHECK(c.ok(), c.ok() ? "" : c.error().message);
  AmxForward(call, *c).run();
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
