// The contraction of bf16 operands in AMX's tiles; common/dot_amx_plan.h has the blocks.

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/dot_amx_plan.h"
#include "tegula/kernels/cpu/common/workspace.h"
#include "tegula/kernels/cpu/isa/amx_pack.h"
#include "tegula/kernels/cpu/isa/dot_epilogue.h"
#include "tegula/kernels/cpu/isa/dot_loops.h"
#include "tegula/kernels/cpu/isa/dot_thin_tasks.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
constexpr int kSums = kStrip * kStrip;

// The rest of the work with sums once their products are formed, beside the next piece's products,
// which leave vector units idle: sums = merge_i + sums, and the epilogue of final ones.
struct Rest {
  float* sums = nullptr;  // [32][32]
  const float* with[3] = {};
  int n_with = 0;
  int rows = 0, vectors = 0;
  int row = 0;  // the next; none are left at `rows`
  // Finishes final sums, rows [begin, end).
  void (*finish)(const Rest&, int begin, int end) = nullptr;
  EpilogueArgs last{};
  const void* bias = nullptr;
  void* out = nullptr;  // all of the result or, where its lines are streamed, this tile's part
  int64_t out_row = 0;

  TEGULA_TILE void step(int n) {
    if (row >= rows) return;
    const int begin = row;
    row = std::min(row + n, rows);
    if (n_with > 0)
      for (int i = begin; i < row; ++i)
#pragma GCC unroll unrolled(2)
        for (int j = i * kStrip; j < i * kStrip + vectors * kLanes; j += kLanes) {
          Vf y = load(with[0] + j) + load(sums + j);
          if (n_with > 1) y = load(with[1] + j) + y;
          if (n_with > 2) y = load(with[2] + j) + y;
          store(sums + j, y);
        }
    if (finish != nullptr && begin < std::min(row, last.rows))
      finish(*this, begin, std::min(row, last.rows));
  }
};

template <class Out>
void finish_rows(const Rest& r, int begin, int end) {
  EpilogueArgs e = r.last;
  e.acc += begin * e.acc_stride, e.m0 += begin, e.rows = end - begin;
  epilogue<Out>(e, static_cast<const Out*>(r.bias), static_cast<Out*>(r.out));
}

// Whole lines past the caches: a store to a line that has to be fetched first takes as long as
// several products here, and one line of each of 32 rows is stored at a time.
TEGULA_VEC void stream_row(bf16* dst, const float* sums) {
#if defined(__AVX512BF16__)
  const auto y = _mm512_cvtne2ps_pbh(load(sums + kTile).v, load(sums).v);
  _mm512_stream_si512(reinterpret_cast<__m512i*>(dst), reinterpret_cast<__m512i>(y));
#else
  for (int j = 0; j < kStrip; j += kLanes) store(dst + j, load(sums + j));
#endif
}
TEGULA_VEC void stream_row(float* dst, const float* sums) {
  for (int j = 0; j < kStrip; j += kLanes)
#if defined(__AVX512F__)
    _mm512_stream_ps(dst + j, load(sums + j).v);
#else
    store(dst + j, load(sums + j));
#endif
}
template <class Out>
void stream_rows(const Rest& r, int begin, int end) {
  Out* at = static_cast<Out*>(r.out) + begin * r.out_row;
  for (int i = begin; i < end; ++i, at += r.out_row) stream_row(at, r.sums + i * kStrip);
}
// Before others read what was streamed.
TEGULA_VEC void end_streams() {
#if defined(__AVX512F__)
  _mm_sfence();
#endif
}

// The work that is done beside products for those that follow: lines of the next strip of b are
// fetched into L2, or its next block is packed.
struct Beside {
  enum Kind : uint8_t {
    kFetch,    // steps are lines
    kRows,     // columns lie side by side: steps are pairs of rows of k
    kColumns,  // k lies side by side; a tile of 16 columns at once
  };
  Kind kind = kFetch;
  int at = 0;        // kRows: steps of this tile of k, kColumns: tiles of it, done
  int credit = 0;    // kColumns: steps that are not done yet
  int64_t left = 0;  // steps
  const bf16* src = nullptr;
  int64_t stride = 0;  // between rows of k, or columns
  char* dst = nullptr;

  TEGULA_TILE void step(int n) {
    if (left <= 0) return;
    if (kind == kColumns) {
      for (credit += n; credit >= kTile / 2 && left > 0; credit -= kTile / 2) columns();
      return;
    }
    for (n = static_cast<int>(std::min<int64_t>(n, left)), left -= n; n > 0; --n) {
      if (kind == kRows) {
        rows();
      } else {
        __builtin_prefetch(src, 0, 2), src += 64 / sizeof(bf16);
      }
    }
  }
  void finish() {
    if (left > 0) step(static_cast<int>(left) + kTile / 2);
  }

 private:
  // Rows may lie a page apart: few of them fit the first cache, so they are fetched twice.
  TEGULA_TILE void rows() {
    const bf16* odd = src + stride;
    __builtin_prefetch(src + 32 * stride, 0, 2), __builtin_prefetch(odd + 32 * stride, 0, 2);
    __builtin_prefetch(src + 8 * stride), __builtin_prefetch(odd + 8 * stride);
    auto* to = reinterpret_cast<int32_t*>(dst);
    interleave(src, odd, to), interleave(src + kTile, odd + kTile, to + kTileBytes / 4);
    src += 2 * stride, dst += 64;
    if (++at == kTile) at = 0, dst += kTileBytes;
  }
  TEGULA_TILE void columns() {
    const void* row[kTile];
    for (int l = 0; l < kTile; ++l) {
      row[l] = src + l * stride;
      __builtin_prefetch(src + l * stride + 2 * kTilePairs);
    }
    transpose_dwords(row, *reinterpret_cast<Dwords*>(dst));
    dst += kTileBytes, left -= kTile / 2, at ^= 1;
    src += at != 0 ? kTile * stride : kTilePairs - kTile * stride;
  }
};

// Slots are tiles [32][32].
struct AmxMicroArgs {
  TileOperands x;
  const KBlock* block;
  float* slot[kMaxSlots];
  const float* first = nullptr;  // the sums to go on from, at the block's beginning
  Rest final;                    // of the final piece
  Beside* beside = nullptr;
  int beside_steps = 0;  // per tile of k
};

// Sums that are still in tiles, and those that were stored last. Storing four tiles takes as long
// as four products, unless each is stored just before the next piece begins in it.
struct AmxSums {
  Rest due, rest;  // due.sums: null where none are
  int due_m = 0, due_n = 0;

  template <int kM, int kN>
  TEGULA_TILE bool are_due() const {
    return due.sums != nullptr && due_m == kM && due_n == kN;
  }
  // Everything that was due has been stored.
  TEGULA_TILE void stored() {
    rest.step(kStrip);
    rest = due, due.sums = nullptr;
  }
  // Stores them all, unless there are none.
  void put(Tiles& t) {
    if (due.sums == nullptr) return;
    if (due_m == 1) {
      due_n == 1 ? store_sums<1, 1>(t, due.sums, kStrip) : store_sums<1, 2>(t, due.sums, kStrip);
    } else {
      due_n == 1 ? store_sums<2, 1>(t, due.sums, kStrip) : store_sums<2, 2>(t, due.sums, kStrip);
    }
    stored();
  }
  void finish(Tiles& t) {
    put(t);
    rest.step(kStrip);
  }
};

template <int kT>
TEGULA_TILE void begin_tile(Tiles& t, float* due, const float* start) {
  constexpr int kAt = kT / 2 * kTile * kStrip + kT % 2 * kTile;
  if (due != nullptr) t.store<kT>(due + kAt, 4 * kStrip);
  if (start == nullptr) {
    t.clear<kT>();
  } else {
    t.load<kT>(start + kAt, 4 * kStrip);
  }
}

template <int kM, int kN>
TEGULA_TILE void load_operands(Tiles& t, const TileOperands& x) {
  t.load<6>(x.b, 64);
  t.load_stream<4>(x.a, x.a_stride);
  if constexpr (kN > 1) t.load<7>(x.b + x.b_next, 64);
  if constexpr (kM > 1) t.load_stream<5>(x.a + x.a_next, x.a_stride);
}

// Products of the operands in tiles; those of the next k, if there are any, are loaded where the
// last product that needs the tile is issued: a core shared by two threads overlaps little else.
// kBegins: each tile of sums is begun (from `start` or 0) just before.
template <int kM, int kN, bool kBegins, bool kLoads>
TEGULA_TILE void products(Tiles& t, TileOperands& x, float* due, const float* start) {
  if constexpr (kLoads) x.a += x.a_k, x.b += x.b_k;
  if constexpr (kBegins) begin_tile<0>(t, due, start);
  t.dot<0, 4, 6>();
  if constexpr (kBegins && kN > 1) begin_tile<1>(t, due, start);
  if constexpr (kN > 1) t.dot<1, 4, 7>();
  if constexpr (kLoads) t.load_stream<4>(x.a, x.a_stride);
  if constexpr (kBegins && kM > 1) begin_tile<2>(t, due, start);
  if constexpr (kM > 1) t.dot<2, 5, 6>();
  if constexpr (kLoads) t.load<6>(x.b, 64);
  if constexpr (kBegins && kM > 1 && kN > 1) begin_tile<3>(t, due, start);
  if constexpr (kM > 1 && kN > 1) t.dot<3, 5, 7>();
  if constexpr (kLoads && kN > 1) t.load<7>(x.b + x.b_next, 64);
  if constexpr (kLoads && kM > 1) t.load_stream<5>(x.a + x.a_next, x.a_stride);
}

// For each piece: sums = start or 0; sums += products; sums = merge_i + sums. The last piece's sums
// are left in `s`.
template <int kM, int kN>
void micro(Tiles& t, const AmxMicroArgs& u, AmxSums& s) {
  TileOperands x = u.x;
  if (!s.are_due<kM, kN>()) s.put(t);
  for (int i = 0; i < u.block->n_pieces; ++i) {
    const Piece& p = u.block->pieces[i];
    const float* start = p.start >= 0 ? u.slot[p.start] : i == 0 ? u.first : nullptr;
    const auto beside = [&]() __attribute__((always_inline)) { u.beside->step(u.beside_steps); };
    if (p.k > 0) {
      load_operands<kM, kN>(t, x);
      float* due = s.due.sums;
      if (p.k > 1) {
        products<kM, kN, true, true>(t, x, due, start);
      } else {
        products<kM, kN, true, false>(t, x, due, start);
      }
      if (due != nullptr) s.stored();
      beside();
      const int rows = static_cast<int>(ceil_div(kStrip, std::max<int64_t>(1, p.k - 1)));
      for (int64_t k = 2; k < p.k; ++k) {
        products<kM, kN, false, true>(t, x, nullptr, nullptr);
        beside();
        s.rest.step(rows);
      }
      if (p.k > 1) {
        products<kM, kN, false, false>(t, x, nullptr, nullptr);
        beside();
        s.rest.step(rows);
      }
      x.a += x.a_k, x.b += x.b_k;
    } else {
      s.put(t);
      if (start != nullptr) {
        load_sums<kM, kN>(t, start, kStrip);
      } else {
        clear_sums<kM, kN>(t);
      }
    }
    s.rest.step(kStrip);
    s.due = p.dst < 0 ? u.final : Rest{.sums = u.slot[p.dst]};
    s.due.rows = kM * kTile, s.due.vectors = kN * kTile / kLanes;
    s.due.n_with = p.n_merge;
    for (int l = 0; l < p.n_merge; ++l) s.due.with[l] = u.slot[p.merge[l]];
    s.due_m = kM, s.due_n = kN;
  }
}
using AmxMicro = void (*)(Tiles&, const AmxMicroArgs&, AmxSums&);
constexpr AmxMicro kMicro[2][2] = {{micro<1, 1>, micro<1, 2>}, {micro<2, 1>, micro<2, 2>}};

template <class Out>
class AmxDot {
 public:
  AmxDot(const KernelCall& call, const Contraction& c, const TensorRef& a, const TensorRef& b)
      : call_(call),
        c_(c),
        is_own_(packs_own(call, c)),
        kb_(is_own_ ? amx_own_cut(c) : amx_cut(c)),
        workspace_(c),
        blocks_(c, workspace_, is_own_, call.pool->n_threads()),
        strip_bytes_(kb_.total() * kAmxStripBytes),
        a_(a.as<const bf16>()),
        b_(b.as<const bf16>()),
        start_(c.accumulates ? call.in[2].as<const float>() : nullptr),
        bias_(c.has_bias ? call.in[2].as<const Out>() : nullptr),
        out_(call.out[0].as<Out>()),
        a_panels_(static_cast<char*>(call.workspace)),
        b_panels_(a_panels_ + workspace_.a_bytes),
        scratch_(b_panels_ + workspace_.b_bytes),
        own_(b_panels_) {
    int64_t k_stride = 0;
    direct_a_ = lies_along_k(c, c.m, kA, &a_row_) && !amx_copies_a(c, call.pool->n_threads());
    lies_along_k(c, c.n, kB, &b_column_);
    local_b_ = !is_own_ && amx_packs_b_locally(c);
    a_k_row_ = rows_of_k(c, c.m, kA), b_row_ = rows_of_k(c, c.n, kB);
    if (!c.m.is_linear(kOut, &out_row_) || !c.n.is_linear(kOut, &k_stride) || k_stride != 1)
      out_row_ = 0;
    constexpr int64_t kLine = 64 / sizeof(Out);
    streams_ = (is_own_ || call.pool->n_threads() <= kAmxStreamThreads) && out_row_ > 0 &&
               out_row_ % kLine == 0 && !c.has_epilogue() &&
               c.batch.count * c.m.count * c.n.count * int64_t{sizeof(Out)} >= kAmxStreamBytes;
  }

  void run() {
    for_each_held(c_, blocks_, [&](const Held& h) {
      pack(h);
      if (is_own_) return run_own(h);
      for_each_task(*call_.pool, h, blocks_, true, [&](const Task& t, int thread) {
        run_task(h, t, scratch_ + thread * workspace_.thread_bytes);
      });
    });
  }

 private:
  // Between rows of k where whole tiles of them have adjacent lanes; else 0.
  static int64_t rows_of_k(const Contraction& c, const Loops& lanes, Operand operand) {
    int64_t lane_stride = 0, row = 0;
    const bool has = lanes.is_linear(operand, &lane_stride) && lane_stride == 1 &&
                     c.k.is_linear(operand, &row) && c.shard_k() % kTilePairs == 0;
    return has ? row : 0;
  }

  // Whether rows of an operand can be read as tiles; `row`: between them.
  static bool lies_along_k(const Contraction& c, const Loops& lanes, Operand operand,
                           int64_t* row) {
    int64_t k_stride = 0;
    const bool does = lanes.is_linear(operand, row) && c.k.is_linear(operand, &k_stride) &&
                      k_stride == 1 && c.shard_k() % kTilePairs == 0;
    if (!does) *row = 0;
    return does;
  }
  static bool packs_own(const KernelCall& call, const Contraction& c) {
    int64_t row = 0;
    return amx_is_own(c, !lies_along_k(c, c.m, kA, &row), call.pool->n_threads()) &&
           (rows_of_k(c, c.n, kB) > 0 || lies_along_k(c, c.n, kB, &row));
  }

  char* a_panel(const Held& h, int64_t batch, int64_t strip) const {
    return a_panels_ + (batch * ceil_div(h.m, kStrip) + strip) * strip_bytes_;
  }
  char* b_panel(const Held& h, int64_t batch, int64_t strip) const {
    return b_panels_ + (batch * ceil_div(h.n, kStrip) + strip) * strip_bytes_;
  }
  bool is_direct(int64_t rows) const { return direct_a_ && rows % kTile == 0; }

  // A task packs some strips of one operand for some tiles of k, so that all threads take part and
  // rows of k, where lanes are adjacent, are read in runs.
  static constexpr int64_t kPackTiles = 4, kPackStrips = 4;

  void pack(const Held& h) {
    // Only the last strip of a direct operand may need packing.
    const int64_t all_a = ceil_div(h.m, kStrip), first_a = direct_a_ ? all_a - 1 : 0;
    const int64_t a_strips = h.n0 > 0 || is_direct(h.m) ? 0 : all_a - first_a;
    const int64_t b_strips = local_b_ || is_own_ ? 0 : ceil_div(h.n, kStrip);
    const int64_t k_units = ceil_div(kb_.total(), kPackTiles);
    const int64_t a_units = ceil_div(a_strips, kPackStrips) * k_units;
    const int64_t units = a_units + ceil_div(b_strips, kPackStrips) * k_units;
    if (units == 0) return;
    call_.pool->parallel_for(h.batch * units, [&](int64_t i, int) {
      const int64_t batch = i / units, unit = i % units;
      const int64_t tile = unit % k_units * kPackTiles;
      const int64_t tiles = std::min(kPackTiles, kb_.total() - tile);
      if (unit < a_units) {
        const int64_t strip = first_a + unit / k_units * kPackStrips;
        pack_a(h, batch, strip, std::min(strip + kPackStrips, all_a), tile, tiles);
      } else {
        const int64_t strip = (unit - a_units) / k_units * kPackStrips;
        pack_b(h, batch, strip, std::min(strip + kPackStrips, b_strips), tile, tiles,
               b_panel(h, batch, strip) + tile * kAmxStripBytes, strip_bytes_);
      }
    });
  }
  // Strips [strip, end).
  void pack_a(const Held& h, int64_t batch, int64_t strip, int64_t end, int64_t tile,
              int64_t tiles) const {
    const bf16* a = a_ + c_.batch.offset(h.batch0 + batch, kA);
    char* dst = a_panel(h, batch, strip) + tile * kAmxStripBytes;
    if (a_k_row_ > 0 && end - strip == kPackStrips && end * kStrip <= h.m) {
      const bf16* src = a + h.m0 + strip * kStrip + tile * kTilePairs * a_k_row_;
      return pack_runs_across<kPackStrips>(src, a_k_row_, tiles, dst, strip_bytes_);
    }
    for (; strip < end; ++strip, dst += strip_bytes_)
      pack_strip(a, c_.m, kA, TileForm::kA, h.m0 + strip * kStrip, h.m0 + h.m, tile, tiles, dst);
  }
  void pack_b(const Held& h, int64_t batch, int64_t strip, int64_t end, int64_t tile, int64_t tiles,
              char* dst, int64_t next_strip) const {
    const bf16* b = b_ + c_.batch.offset(h.batch0 + batch, kB);
    if (b_row_ > 0 && end - strip == kPackStrips && end * kStrip <= h.n) {
      const bf16* src = b + h.n0 + strip * kStrip + tile * kTilePairs * b_row_;
      return pack_runs<kPackStrips>(src, b_row_, tiles, dst, next_strip);
    }
    for (; strip < end; ++strip, dst += next_strip)
      pack_strip(b, c_.n, kB, TileForm::kB, h.n0 + strip * kStrip, h.n0 + h.n, tile, tiles, dst);
  }

  // Tiles [tile, tile + tiles) of the strip of lanes from `lane` (before `end`); a shard at a time.
  void pack_strip(const bf16* src, const Loops& lanes, Operand operand, TileForm form, int64_t lane,
                  int64_t end, int64_t tile, int64_t tiles, char* dst) const {
    const int n = static_cast<int>(std::min<int64_t>(kStrip, end - lane));
    while (tiles > 0) {
      const int64_t shard = tile / kb_.shard_k, at = tile % kb_.shard_k;
      const int64_t run = std::min(tiles, kb_.shard_k - at);
      const int64_t k = at * kTilePairs;
      pack_tiles(src, lanes, c_.k, operand, lane, n, shard * c_.shard_k() + k,
                 std::min(run * kTilePairs, c_.shard_k() - k), form, dst);
      tile += run, tiles -= run, dst += run * kAmxStripBytes;
    }
  }

  // A task's state: what it keeps on the stack, and what is done with sums.
  struct State {
    Tiles tiles;
    AmxSums sums;
    alignas(64) float local[(kMaxSlots + 1) * kSums];
    alignas(64) float start[kSums];
    int64_t executed = 0;
  };
  void finish(const Task& t, State& s) const {
    s.sums.finish(s.tiles);
    if (streams_) end_streams();
    const int64_t more = t.m * t.n * c_.epilogue_flops();
    call_.counters->add(2 * t.m * t.n * c_.k.count + more, s.executed + more);
  }

  void run_task(const Held& h, const Task& t, char* scratch) {
    State s;
    auto* waiting =
        reinterpret_cast<float*>(scratch + std::min(kb_.total(), kAmxBlockTiles) * kAmxStripBytes);
    const int64_t pass = amx_pass_blocks(kb_);
    const int64_t wait_strip =
        kb_.count() <= pass ? 0 : ceil_div(t.m, kStrip) * kb_.slots() * kSums;
    for (int64_t k0 = 0; k0 < kb_.count(); k0 += pass) {
      const int64_t end = std::min(k0 + pass, kb_.count());
      for (int64_t n = 0; n < t.n; n += kStrip)
        for (int64_t k = k0; k < end; ++k) {
          const bool ends = k + 1 == end;  // the strip, in this pass
          const bool has_next = !ends || n + kStrip < t.n;
          run_block(h, t, n, kb_.at(k), has_next ? kb_.at(ends ? k0 : k + 1) : KBlock{}, ends,
                    scratch, waiting + n / kStrip * wait_strip, s);
        }
    }
    finish(t, s);
  }

  // One of b; of the next one, of the next strip perhaps, lines are fetched.
  void run_block(const Held& h, const Task& t, int64_t n, const KBlock& block, const KBlock& next,
                 bool is_next_strip, char* scratch, float* wait, State& s) const {
    const int64_t strip = (t.n0 + n) / kStrip;
    const char* b = b_panel(h, t.batch, strip) + block.k0 * kAmxStripBytes;
    Beside beside;
    if (local_b_) {
      pack_b(h, t.batch, strip, strip + 1, block.k0, block.n_k, scratch, 0);
      b = scratch;
    } else {
      beside.src = reinterpret_cast<const bf16*>(
          b_panel(h, t.batch, strip + (is_next_strip ? 1 : 0)) + next.k0 * kAmxStripBytes);
      beside.left = next.n_k * kAmxStripBytes / 64;
    }
    run_column(h, t, n, block, b, beside, wait, s);
  }

  // A strip of b in a block of k, all rows of the task.
  void run_column(const Held& h, const Task& t, int64_t n, const KBlock& block, const char* b,
                  Beside& beside, float* wait, State& s) const {
    const int n_local = kb_.local_levels();
    const int64_t cols = std::min<int64_t>(kStrip, t.n - n);
    AmxMicroArgs u;
    u.block = &block, u.beside = &beside;
    u.beside_steps = static_cast<int>(
        ceil_div(beside.left, ceil_div(t.m, kStrip) * std::max<int64_t>(1, block.n_k)));
    for (int64_t m = 0; m < t.m; m += kStrip, wait += kb_.slots() * kSums) {
      const int64_t rows = std::min<int64_t>(kStrip, t.m - m);
      u.x.b = b;
      point_at_a(h, t, m, rows, block, u.x);
      for (int l = 0; l < kMaxSlots; ++l)
        u.slot[l] = l < n_local ? s.local + l * kSums : wait + (l - n_local) * kSums;
      if (kb_.n_pieces > 1) u.slot[kMaxSlots - 1] = wait + (kb_.slots() - 1) * kSums;
      if (block.is_last) {
        u.final.sums = s.local + kMaxSlots * kSums;
        u.final.last = {&c_,
                        u.final.sums,
                        kStrip,
                        h.batch0 + t.batch,
                        h.m0 + t.m0 + m,
                        h.n0 + t.n0 + n,
                        static_cast<int>(rows),
                        static_cast<int>(cols)};
        set_finish(u.final);
      }
      u.first = nullptr;
      if (start_ != nullptr && block.k0 == 0) {
        load_start(h.batch0 + t.batch, h.m0 + t.m0 + m, static_cast<int>(rows), h.n0 + t.n0 + n,
                   static_cast<int>(cols), s.start);
        u.first = s.start;
      }
      kMicro[rows > kTile][cols > kTile](s.tiles, u, s.sums);
      s.executed += 2 * round_up(rows, kTile) * round_up(cols, kTile) * block.n_k * kTilePairs;
    }
    beside.finish();
  }

  // The task whose first block of b a thread has packed beside its last products, and where.
  struct Ahead {
    int64_t task = -1;
    int buffer = 0;
  };
  static_assert(sizeof(Ahead) <= 64);

  void run_own(const Held& h) {
    const auto own = [&](int thread) { return own_ + thread * workspace_.own_bytes; };
    for (int i = 0; i < call_.pool->n_threads(); ++i) *reinterpret_cast<Ahead*>(own(i)) = {};
    const int64_t tasks = h.batch * blocks_.m_tasks(h.m) * blocks_.n_tasks(h.n);
    call_.pool->parallel_for(tasks, [&](int64_t i, int thread) {
      run_own_task(h, i, i + 1 < tasks ? i + 1 : -1, own(thread));
    });
  }
  // `next`: the task that the thread is likely to have then, or -1.
  void run_own_task(const Held& h, int64_t index, int64_t next, char* own) const {
    const Task t = task_at(h, blocks_, true, index);
    auto& ahead = *reinterpret_cast<Ahead*>(own);
    char* const buffers = own + 64;
    constexpr int64_t kBuffer = kAmxOwnTiles * kAmxStripBytes;
    auto* const waiting = reinterpret_cast<float*>(buffers + 2 * kBuffer);
    bool is_packed = ahead.task == index;
    int buffer = is_packed ? ahead.buffer : 0;
    ahead.task = -1;
    State s;
    for (int64_t n = 0; n < t.n; n += kStrip)
      for (int64_t k = 0; k < kb_.count(); ++k) {
        const KBlock block = kb_.at(k);
        char* const b = buffers + buffer * kBuffer;
        if (!is_packed) own_strip(h, t, n, block, b).finish();
        buffer ^= 1;
        char* const to = buffers + buffer * kBuffer;
        Beside beside;
        is_packed = true;
        if (k + 1 < kb_.count()) {
          beside = own_strip(h, t, n, kb_.at(k + 1), to);
        } else if (n + kStrip < t.n) {
          beside = own_strip(h, t, n + kStrip, kb_.at(0), to);
        } else if (next >= 0) {
          beside = own_strip(h, task_at(h, blocks_, true, next), 0, kb_.at(0), to);
          ahead = {next, buffer};
        }
        run_column(h, t, n, block, b, beside, waiting, s);
      }
    finish(t, s);
  }
  // A block of the strip from column n of the task on, to dst: what is left to do.
  Beside own_strip(const Held& h, const Task& t, int64_t n, const KBlock& block, char* dst) const {
    const int64_t n0 = t.n0 + n, strip = n0 / kStrip, k = block.k0 * kTilePairs;
    Beside s;
    if (n0 + kStrip > h.n) {
      pack_b(h, t.batch, strip, strip + 1, block.k0, block.n_k, dst, 0);
      return s;
    }
    const bf16* b = b_ + c_.batch.offset(h.batch0 + t.batch, kB);
    s.kind = b_row_ > 0 ? Beside::kRows : Beside::kColumns;
    s.stride = b_row_ > 0 ? b_row_ : b_column_;
    s.src = b + (b_row_ > 0 ? h.n0 + n0 + k * b_row_ : (h.n0 + n0) * b_column_ + k);
    s.dst = dst, s.left = block.n_k * kTile;
    return s;
  }

  // The sums to go on from, zeros to 32 × 32.
  void load_start(int64_t batch, int64_t m0, int rows, int64_t n0, int cols, float* dst) const {
    int64_t m[kStrip], n[kStrip];
    c_.m.offsets(m0, rows, kBias, m), c_.n.offsets(n0, cols, kBias, n);
    const float* at = start_ + c_.batch.offset(batch, kBias);
    std::fill_n(dst, kSums, 0.0F);
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j) dst[i * kStrip + j] = at[m[i] + n[j]];
  }

  // How the final sums of r.last leave.
  void set_finish(Rest& r) const {
    r.bias = bias_, r.out = out_, r.out_row = out_row_, r.finish = finish_rows<Out>;
    if (out_row_ == 0) return;
    Out* at = out_ + c_.batch.offset(r.last.batch, kOut) + r.last.m0 * out_row_ + r.last.n0;
    if (streams_ && r.last.cols == kStrip && reinterpret_cast<uintptr_t>(at) % 64 == 0) {
      r.out = at, r.finish = stream_rows<Out>;
      return;
    }
    // Its lines come while the products are formed: the epilogue's stores wait for them.
    for (int64_t i = 0; i < r.last.rows; ++i)
      for (size_t line = 0; line < sizeof(Out) * kStrip; line += 64)
        __builtin_prefetch(reinterpret_cast<const char*>(at + i * out_row_) + line, 1);
  }

  void point_at_a(const Held& h, const Task& t, int64_t m, int64_t rows, const KBlock& block,
                  TileOperands& x) const {
    if (is_direct(rows)) {
      x.a = reinterpret_cast<const char*>(a_ + c_.batch.offset(h.batch0 + t.batch, kA) +
                                          (h.m0 + t.m0 + m) * a_row_) +
            block.k0 * 64;
      x.a_stride = a_row_ * 2, x.a_next = a_row_ * 2 * kTile, x.a_k = 64;
    } else {
      x.a = a_panel(h, t.batch, (t.m0 + m) / kStrip) + block.k0 * kAmxStripBytes;
      x.a_stride = 64, x.a_next = kTileBytes, x.a_k = 2 * kTileBytes;
    }
  }

  const KernelCall& call_;
  const Contraction& c_;
  const bool is_own_;
  const KBlocks kb_;
  const AmxDotWorkspace workspace_;
  const AmxDotBlocks blocks_;
  const int64_t strip_bytes_;
  const bf16* a_;
  const bf16* b_;
  const float* start_;
  const Out* bias_;
  Out* out_;
  char* a_panels_;
  char* b_panels_;
  char* scratch_;
  char* own_;  // per thread, instead of both
  int64_t a_row_ = 0;
  int64_t out_row_ = 0;  // between rows of a result with adjacent columns; 0: it is not so
  int64_t a_k_row_ = 0, b_row_ = 0;  // rows_of_k
  int64_t b_column_ = 0;             // between columns of b that lie along k, else 0
  bool direct_a_ = false, local_b_ = false, streams_ = false;
};
}  // namespace

void dot_amx(const KernelCall& call) {
  const auto parsed = parse_contraction(*call.attrs, call.in, call.out);
  TEGULA_CHECK(parsed.ok(), parsed.ok() ? "" : parsed.error().message);
  if (parsed->batch.count * parsed->m.count * parsed->n.count == 0) return;
  const bool swap = parsed->last_is_m;
  const Contraction c = swap ? parsed->swapped() : *parsed;
  const TensorRef &a = call.in[swap ? 1 : 0], &b = call.in[swap ? 0 : 1];
  claim_workspace(call, amx_dot_bytes(c, call.pool->n_threads()));
  // Few rows do not fill a tile: the same order, of vectors.
  int64_t along_n = 0;
  const bool is_few = c.m.count <= kThinDotRows || (c.n.is_linear(kB, &along_n) && along_n == 1);
  if (is_few && is_thin(c, DotTiles(call.tuning, c)))
    return thin::run<bf16, ThinOrder::kPairs>(call, c, a, b);
  if (c.out_dtype == DType::kF32) return AmxDot<float>(call, c, a, b).run();
  AmxDot<bf16>(call, c, a, b).run();
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
