// The packed contraction: panels of a and b in f32, register tiles, k in cache-sized blocks; the
// sizes are common/dot_plan.h's.

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/dot_thin_plan.h"
#include "tegula/kernels/cpu/common/workspace.h"
#include "tegula/kernels/cpu/isa/dot_call.h"
#include "tegula/kernels/cpu/isa/dot_epilogue.h"
#include "tegula/kernels/cpu/isa/dot_loops.h"
#include "tegula/kernels/cpu/isa/dot_micro.h"
#include "tegula/kernels/cpu/isa/dot_panels.h"
#include "tegula/kernels/cpu/isa/dot_thin.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
constexpr int kTileFloats = kTileM * kTileN;
constexpr int64_t kColumnTiles = 6;  // whole ones that one call computes, at most
#if defined(TEGULA_ISA_AVX512)
constexpr RegisterTile kTile = register_tile(Isa::kAvx512);
#elif defined(TEGULA_ISA_AVX2) || defined(TEGULA_ISA_COUNTED)
constexpr RegisterTile kTile = register_tile(Isa::kAvx2);
#else
constexpr RegisterTile kTile = register_tile(Isa::kPortable);
#endif
static_assert(kTile.m == kTileM && kTile.n == kTileN);

int tile_rows(const DotTiles& tiles) {
  return tiles.tile_m > 0 ? std::min(tiles.tile_m, kTileM) : kTileM;
}

// kPairs: k counts pairs (halve_k), bf16's two neighbours in a float's place.
template <class In, class Out, bool kPairs = false>
class PackedDot {
  static_assert(!kPairs || std::is_same_v<In, bf16>);
  static constexpr int64_t kPerStep = kPairs ? 2 : 1;  // k

 public:
  PackedDot(const KernelCall& call, const Contraction& c, const TensorRef& a, const TensorRef& b)
      : call_(call),
        c_(c),
        tiles_(call.tuning, c),
        tile_m_(tile_rows(tiles_)),
        kb_(tiles_.cut(c)),
        n_local_(kb_.local_levels()),
        n_slots_(kb_.slots()),
        workspace_(c, tiles_),
        blocks_(c, tiles_, {tile_m_, kTileN}, call.pool->n_threads()),
        a_(a.as<const In>()),
        b_(b.as<const In>()),
        bias_(c.has_bias ? call.in[2].as<const Out>() : nullptr),
        start_(c.accumulates ? call.in[2].as<const float>() : nullptr),
        out_(call.out[0].as<Out>()),
        is_chunked_(copies_chunks()),
        packer_(c, a_, b_, tile_m_, is_chunked_),
        a_panels_(static_cast<float*>(call.workspace)),
        waiting_(a_panels_ + workspace_.a_floats),
        blocks_of_a_(waiting_ + workspace_.waiting_floats * call.pool->n_threads()) {
    const bool packs = tiles_.packs_a(c, {tile_m_, kTileN});
    direct_a_ = can_read_a(c, &a_row_) && !is_chunked_ && (!packs || tiles_.reads_a == 0);
    if (kPairs && is_chunked_ && !c.m.is_linear(kA, &a_row_)) a_row_ = 0;
    local_b_ = tiles_.is_local(c);
    set_packing(packs);
    b_panels_ = blocks_of_a_ + (local_b_ ? 0 : workspace_.block_floats * call.pool->n_threads());
    int64_t n_stride, bias_n, bias_m;
    plain_out_ = std::is_same_v<Out, float> && c.activation == Activation::kNone &&
                 c.m.is_linear(kOut, &out_row_) && c.n.is_linear(kOut, &n_stride) &&
                 n_stride == 1 &&
                 (!c.has_bias || (call.in[2].data != out_ && c.n.is_linear(kBias, &bias_n) &&
                                  bias_n == 1 && c.m.is_linear(kBias, &bias_m) && bias_m == 0));
  }

  // Whether strips of a are copied in chunks of k.
  bool copies_chunks() const {
    int64_t k_stride;
    return kCopiesRows && tiles_.packs_a(c_, {tile_m_, kTileN}) && c_.k.is_linear(kA, &k_stride) &&
           k_stride == kPerStep;
  }
  // Which operands tiles may pack beside their products.
  void set_packing(bool packs_a) {
    int64_t n_stride, m_stride;
    if (!std::is_same_v<In, float> || !kCopiesRows || blocks_.groups == 0 || direct_a_) return;
    fuses_b_ = tiles_.a_inside && c_.n.is_linear(kB, &n_stride) && n_stride == 1 &&
               c_.k.is_linear(kB, &b_k_);
    fuses_a_ = packs_a && tile_m_ == kTileM && c_.m.is_linear(kA, &m_stride) &&
               c_.k.is_linear(kA, &a_k_) && (is_chunked_ || m_stride == 1);
  }

  void run() {
    if (blocks_.groups > 0) return run_groups();
    for_each_held(c_, blocks_, [&](const Held& h) {
      pack(h);
      for_each_task(*call_.pool, h, blocks_, tiles_.deals_rows, [&](const Task& t, int thread) {
        run_task(h, t, waiting_ + thread * workspace_.waiting_floats,
                 local_b_ ? b_panels_ + thread * workspace_.strip_floats
                          : blocks_of_a_ + thread * workspace_.block_floats);
      });
    });
  }

 private:
  // Says which panels a thread has packed for itself: its next tasks use them again.
  struct Kept {
    int64_t batch, m0;       // the rows of a whose block is packed
    int64_t blocks;          // bit i: their block i along k is there
    int64_t b_batch, group;  // the columns of b whose strips are packed
    int64_t parts;           // bit i: part i of the group is there, all of its strips
    int64_t begun;           // the part of which only the first strip is there; -1: none
  };
  static_assert(sizeof(Kept) <= kMarkFloats * sizeof(float));
  // In the thread's share of the workspace, before its block of a and its strips of b.
  Kept* kept(int thread) const {
    return reinterpret_cast<Kept*>(blocks_of_a_ +
                                   thread * workspace_.own_thread_floats(call_.pool->n_threads()));
  }

  // Groups of columns, within them rows, and for these the parts of the group: a thread's tasks
  // share what it packs, and the last ones are small.
  void run_groups() {
    const Held h{0, c_.batch.count, 0, c_.m.count, 0, c_.n.count};
    const int64_t parts = blocks_.group_parts, tasks = blocks_.parts_m * blocks_.parts_n;
    for (int i = 0; i < call_.pool->n_threads(); ++i) *kept(i) = {-1, -1, 0, -1, -1, 0, -1};
    call_.pool->parallel_for(h.batch * tasks, [&](int64_t i, int thread) {
      Task t;
      t.batch = i / tasks, t.part = i % parts, t.n_parts = parts;
      const int64_t group = i % tasks / (blocks_.parts_m * parts);
      cut_evenly(h.m, tile_m_, i / parts % blocks_.parts_m, blocks_.parts_m, &t.m0, &t.m);
      cut_evenly(h.n, kTileN, group * parts + t.part, blocks_.parts_n, &t.n0, &t.n);
      Kept* mine = kept(thread);
      if (mine->b_batch != t.batch || mine->group != group)
        mine->b_batch = t.batch, mine->group = group, mine->parts = 0, mine->begun = -1;
      float* block = reinterpret_cast<float*>(mine) + kMarkFloats;
      run_task(h, t, waiting_ + thread * workspace_.waiting_floats, block, mine);
    });
  }
  // The thread's strips of b: those of its group of columns.
  float* own_panels(Kept* mine) const {
    return reinterpret_cast<float*>(mine) + kMarkFloats + workspace_.own_block_floats;
  }
  // The task's strips of b, packed unless they are there; where tiles pack them only the first and
  // a last one that is not whole.
  float* own_strips(const Held& h, const Task& t, Kept* mine) {
    int64_t first, n;
    cut_evenly(h.n, kTileN, mine->group, blocks_.groups, &first, &n);
    const int64_t begin = t.n0 / kTileN, end = ceil_div(t.n0 + t.n, kTileN), k = c_.k.count;
    float* b = own_panels(mine) + (t.n0 - first) * k;
    const auto pack = [&](int64_t from, int64_t to) {
      for (; from < to; from += kPackStrips)
        packer_.pack_b(h, t.batch, from, std::min(from + kPackStrips, to), 0, k,
                       b + (from - begin) * kTileN * k, k);
    };
    if (has_part(mine, t.part)) return b;
    if (!fuses_b_) {
      pack(begin, end);
      return b;
    }
    if (mine->begun != t.part) pack(begin, begin + 1);
    pack(std::max(begin + 1, (t.n0 + t.n) / kTileN), end);
    return b;
  }
  static bool has_block(const Kept* mine, int64_t at) { return (mine->blocks >> at & 1) != 0; }
  static bool has_part(const Kept* mine, int64_t part) { return (mine->parts >> part & 1) != 0; }

  float* a_panel(const Held& h, int64_t batch, int64_t strip) const {
    const int64_t per_batch = h.m * c_.k.count + ceil_div(h.m, tile_m_) * kChunkSlack;
    return a_panels_ + batch * per_batch + strip * packer_.a_floats(c_.k.count);
  }
  float* b_panel(const Held& h, int64_t batch, int64_t strip) const {
    return b_panels_ + (batch * ceil_div(h.n, kTileN) + strip) * kTileN * c_.k.count;
  }

  void pack(const Held& h) {
    // One operand: tasks pack their part of the other, so that it goes from memory into a first
    // cache and is read there.
    const int64_t a_strips = direct_a_ || !local_b_ ? 0 : ceil_div(h.m, tile_m_);
    const int64_t b_strips = local_b_ ? 0 : ceil_div(h.n, kTileN);
    // Tasks fine enough that all threads take part. Rows of a go into panels that spill over their
    // end, so that a strip of a is one task's; b is cut along k as well.
    const int64_t least = 4 * call_.pool->n_threads();
    const int64_t a_group = std::clamp<int64_t>(a_strips * h.batch / least, 1, kPackStrips);
    const int64_t a_units = ceil_div(a_strips, a_group);
    const int64_t k_units = ceil_div(c_.k.count, kPackK);
    const int64_t units = a_units + ceil_div(b_strips, kPackStrips) * k_units;
    if (units == 0) return;
    call_.pool->parallel_for(h.batch * units, [&](int64_t i, int) {
      const int64_t batch = i / units, unit = i % units;
      if (unit < a_units) {
        const int64_t m0 = unit * a_group * tile_m_;
        packer_.pack_a(h, batch, m0, std::min(a_group * tile_m_, h.m - m0), 0, c_.k.count,
                       a_panel(h, batch, unit * a_group));
        return;
      }
      const int64_t strip = (unit - a_units) / k_units * kPackStrips;
      const int64_t k = (unit - a_units) % k_units * kPackK;
      packer_.pack_b(h, batch, strip, std::min(strip + kPackStrips, b_strips), k,
                     std::min(kPackK, c_.k.count - k), b_panel(h, batch, strip) + k * kTileN,
                     c_.k.count);
    });
  }

  // `packed`: room for strips of b, or for a block of a; `mine`: what the thread has there.
  void run_task(const Held& h, const Task& t, float* waiting, float* packed, Kept* mine = nullptr) {
    float local[(kMaxSlots + kColumnTiles) * kTileFloats] __attribute__((aligned(64)));
    const int64_t tile_floats = int64_t{n_slots_} * tile_m_ * kTileN;
    const int64_t m_strips = ceil_div(t.m, tile_m_), n_strips = ceil_div(t.n, kTileN);
    float* const out = plain_out_ ? plain_out(h, t) : nullptr;
    float* const panel = local_b_ ? nullptr
                         : mine   ? own_strips(h, t, mine)
                                  : b_panel(h, t.batch, t.n0 / kTileN);
    int64_t executed = 0;
    for (int64_t block = 0; block < kb_.count(); ++block) {
      const KBlock plan = kb_.at(block, start_ != nullptr);
      const ABlock a = a_block(h, t, plan, block, packed, mine);
      const MicroArgs shared = block_args(plan, local);
      int64_t fetched = 0;  // steps
      // The tiles of strip i of a and those after it.
      const auto tiles = [&](int64_t i, int64_t n_tiles, int64_t j, const float* b,
                             const NextStrip& next) {
        Tile x{};
        x.batch = t.batch, x.m0 = t.m0 + i * tile_m_, x.n0 = t.n0 + j * kTileN;
        x.rows = static_cast<int>(std::min<int64_t>(tile_m_, t.m - i * tile_m_));
        x.cols = static_cast<int>(std::min<int64_t>(kTileN, t.n - j * kTileN));
        MicroArgs u = shared;
        u.n_tiles = x.n_tiles = n_tiles;
        u.a_phase = is_chunked_ ? static_cast<int>(a.k0 % kChunk) : 0;
        u.a = a.at + i * a.next + (a.k0 - u.a_phase) * x.rows + u.a_phase, u.a_tile = a.next;
        u.b = b;
        u.next_strip = next.copy;
        u.next_b = reinterpret_cast<const char*>(next.at ? next.at : b);
        if (next.at != nullptr)
          u.next_b += i * (plan.n_k / next.steps) * next.bytes, u.next_b_step = next.bytes;
        u.far_a = a.far;
        if (const int64_t at = j * m_strips + i; direct_a_ || at < a.far_tiles) {
          u.far_a += direct_a_ ? fetched * a.far_step : at * a.far_tile;
          u.far_a_step = a.far_step, u.far_a_tile = a.far_tile;
        }
        fetched += n_tiles * plan.n_k;
        if (a.src != nullptr && j == 0 && x.rows == kTileM) {
          u.src_a = a.src + i * a.src_tile, u.src_a_tile = a.src_tile;
          u.src_a_stride = is_chunked_ ? a_row_ : a_k_, u.src_k = plan.n_k;
        }
        if (plain_out_ && plan.is_last)
          u.dst = out + i * tile_m_ * out_row_ + j * kTileN, u.dst_stride = out_row_;
        run_tile(h, x, plan, u, waiting + (j * m_strips + i) * tile_floats, local);
        executed += n_tiles * x.rows * x.vectors() * kLanes * plan.n_k * kPerStep;
      };
      const auto column = [&](int64_t j, const float* b, const NextStrip& next) {
        const int64_t most = start_ == nullptr ? kColumnTiles : 1;
        for (int64_t i = 0, n; i < m_strips; i += n) {
          n = std::clamp<int64_t>(t.m / tile_m_ - i, 1, most);  // a last one may have fewer rows
          tiles(i, n, j, b, next);
        }
      };
      if (local_b_) {
        for (int64_t j = 0; j < n_strips; ++j) {
          const int64_t at = j % kLocalStrips, first = t.n0 / kTileN;
          if (at == 0)
            packer_.pack_b(h, t.batch, first + j, first + std::min(j + kLocalStrips, n_strips),
                           plan.k0, plan.n_k, packed, plan.n_k);
          column(j, packed + at * plan.n_k * kTileN, {});
        }
        continue;
      }
      const int64_t b_strip = kTileN * c_.k.count;
      const float* b = panel + plan.k0 * kTileN;
      if (tiles_.a_inside) {
        for (int64_t j = 0; j < n_strips; ++j) {
          StripCopy copy;
          column(j, b + j * b_strip, next_strip(h, t, plan, panel, j, mine, &copy));
          if (const int64_t k = plan.k0 + plan.n_k - copy.left; copy.left > 0)
            packer_.pack_b(h, t.batch, t.n0 / kTileN + j + 1, t.n0 / kTileN + j + 2, k, copy.left,
                           copy.to, c_.k.count);
        }
      } else {
        for (int64_t i = 0; i < m_strips; ++i)
          for (int64_t j = 0; j < n_strips; ++j) tiles(i, 1, j, b + j * b_strip, {});
      }
    }
    if (mine != nullptr) {
      if (begins_next(h, t, mine)) mine->begun = t.part + 1;
      mine->parts |= int64_t{1} << t.part;
    }
    const int64_t more = t.m * t.n * c_.epilogue_flops();
    call_.counters->add(2 * t.m * t.n * c_.k.count * kPerStep + more, 2 * executed + more);
  }

  // The strip of b that comes next, whose lines tiles fetch, or which they pack.
  struct NextStrip {
    const float* at = nullptr;
    int64_t bytes = 0, steps = 1;  // so many for so many steps of k
    StripCopy* copy = nullptr;
  };
  // Whether the tiles of the task's last strip pack the next task's first one.
  bool begins_next(const Held& h, const Task& t, const Kept* mine) const {
    return fuses_b_ && t.part + 1 < t.n_parts && !has_part(mine, t.part + 1) &&
           mine->begun != t.part + 1 && t.n0 + round_up(t.n, kTileN) + kTileN <= h.n;
  }
  // After strip j of a block of k.
  NextStrip next_strip(const Held& h, const Task& t, const KBlock& plan, float* panel, int64_t j,
                       Kept* mine, StripCopy* copy) const {
    const int64_t b_strip = kTileN * c_.k.count, k_end = plan.k0 + plan.n_k,
                  m_strips = ceil_div(t.m, tile_m_), n0 = t.n0 + (j + 1) * kTileN;
    const bool is_last = (j + 1) * kTileN >= t.n, is_whole = n0 + kTileN <= t.n0 + t.n;
    if (mine != nullptr &&
        (is_last ? begins_next(h, t, mine) : fuses_b_ && is_whole && !has_part(mine, t.part))) {
      const float* b = reinterpret_cast<const float*>(b_) +
                       c_.batch.offset(h.batch0 + t.batch, kB) + h.n0 + n0 + plan.k0 * b_k_;
      const int64_t chunks = std::max<int64_t>(1, m_strips * (plan.n_k / kChunk));
      *copy = {b, b_k_, panel + (j + 1) * b_strip + plan.k0 * kTileN, ceil_div(plan.n_k, chunks),
               plan.n_k};
      return {.copy = copy};
    }
    NextStrip next;
    if (!is_last) {
      next.at = panel + (j + 1) * b_strip + plan.k0 * kTileN;
    } else if (k_end < c_.k.count) {
      next.at = panel + k_end * kTileN;
    } else if (mine != nullptr) {
      const int64_t part = (t.part + 1) % t.n_parts;
      if (part == t.part || has_part(mine, part) || mine->begun == part)
        next.at = part > 0 ? panel + (j + 1) * b_strip : own_panels(mine);
    }
    const bool by_chunks = kCopiesRows && !direct_a_;
    next.steps = by_chunks ? kChunk : 1;
    next.bytes = by_chunks ? kFetchedRows * kTileN * 4 : ceil_div(kTileN * 4, m_strips);
    return next;
  }

  struct Tile {
    int64_t batch, m0, n0;  // relative to Held
    int rows, cols;
    int64_t n_tiles;  // one above the other
    int vectors() const { return (cols + kLanes - 1) / kLanes; }
  };

  // The place of the first output of a task.
  float* plain_out(const Held& h, const Task& t) const {
    return reinterpret_cast<float*>(out_) + c_.batch.offset(h.batch0 + t.batch, kOut) +
           (h.m0 + t.m0) * out_row_ + h.n0 + t.n0;
  }

  // The arguments that the tiles of a block of k share.
  MicroArgs block_args(const KBlock& plan, float* local) const {
    MicroArgs u;
    u.a_stride = a_row_;
    u.pieces = plan.pieces, u.n_pieces = plan.n_pieces;
    for (int l = 0; l < n_local_; ++l) u.slot[l] = local + l * kTileFloats;
    if (kb_.n_pieces == 1 && start_ != nullptr) u.slot[kMaxSlots - 1] = local;
    return u;
  }

  // A task's strips of a in a block of k: the first, the floats to the next, steps of k before.
  struct ABlock {
    const float* at;
    int64_t next, k0;
    // Where they are packed beside the products of the first strip of b: from here, the floats to
    // the next strip.
    const float* src = nullptr;
    int64_t src_tile = 0;
    // Those that come next, fetched meanwhile: direct_a_, so many bytes a tile and step of k; else
    // a row for each of the first tiles.
    const char* far = nullptr;
    int64_t far_step = 0, far_tile = 0, far_tiles = 0;
  };
  ABlock a_block(const Held& h, const Task& t, const KBlock& plan, int64_t at, float* packed,
                 Kept* mine) {
    const bool keeps = mine != nullptr && kb_.count() <= kOwnBlocks;
    if (keeps) {
      packed += ceil_div(t.m, tile_m_) * (tile_m_ * plan.k0 + at * kChunkSlack);
      if (mine->batch != t.batch || mine->m0 != t.m0)
        mine->batch = t.batch, mine->m0 = t.m0, mine->blocks = 0;
    }
    ABlock block{packed, packer_.a_floats(plan.n_k), 0};
    const In* a = a_ + c_.batch.offset(h.batch0 + t.batch, kA) + (h.m0 + t.m0) * a_row_;
    if (local_b_ && !direct_a_) {
      block = {a_panel(h, t.batch, t.m0 / tile_m_), packer_.a_floats(c_.k.count), plan.k0};
    } else if (!direct_a_) {
      if (!keeps || !has_block(mine, at)) copy_a(h, t, plan, packed, &block);
      if (keeps) mine->blocks |= int64_t{1} << at;
    } else if constexpr (std::is_same_v<In, float>) {
      block = {a + plan.k0, tile_m_ * a_row_, 0};
    }
    block.far = reinterpret_cast<const char*>(block.at);
    if (kFetchesRows && !local_b_ && a_row_ != 0) {
      if (direct_a_) set_far_rows(h, t, plan, a + t.m * a_row_, &block);
      const bool goes_on = at + 1 < kb_.count(), is_there = keeps && has_block(mine, at + 1);
      if (is_chunked_ && !(goes_on && is_there)) set_far_chunks(h, t, plan, a, goes_on, &block);
    }
    return block;
  }

  int64_t rows_after(const Held& h, const Task& t) const { return std::min(t.m, h.m - t.m0 - t.m); }
  // The part's share of the rows that follow, where they are one piece of memory.
  void set_far_rows(const Held& h, const Task& t, const KBlock& plan, const In* a,
                    ABlock* block) const {
    if (a_row_ != c_.k.count || kb_.count() > 1 || rows_after(h, t) == 0) return;
    const int64_t tiles = ceil_div(t.m, tile_m_) * ceil_div(t.n, kTileN),
                  bytes = sizeof(In) * rows_after(h, t) * a_row_;
    block->far_step = ceil_div(bytes, tiles * plan.n_k * t.n_parts);
    block->far = reinterpret_cast<const char*>(a) + bytes * t.part / t.n_parts;
  }
  // The next block of these rows `a`, or the first block of those that follow: a row for a tile.
  void set_far_chunks(const Held& h, const Task& t, const KBlock& plan, const In* a, bool goes_on,
                      ABlock* block) const {
    // Parts in turn fetch as many rows as they have tiles.
    const int64_t tiles = ceil_div(t.m, tile_m_) * ceil_div(t.n, kTileN),
                  first = goes_on ? 0 : t.part * tiles;
    block->far_tiles = (goes_on ? t.m : rows_after(h, t)) - first;
    if (block->far_tiles <= 0) return;
    block->far_tile = sizeof(In) * a_row_, block->far_step = sizeof(In) * kPerStep * kChunk;
    a += goes_on ? (plan.k0 + plan.n_k) * kPerStep : (t.m + first) * a_row_;
    block->far = reinterpret_cast<const char*>(a);
  }

  // A task's rows of a block of k, or where tiles find them.
  void copy_a(const Held& h, const Task& t, const KBlock& plan, float* packed, ABlock* block) {
    if constexpr (std::is_same_v<In, float>) {
      if (fuses_a_ && t.n >= kTileN) {
        const float* a = a_ + c_.batch.offset(h.batch0 + t.batch, kA);
        const int64_t row = is_chunked_ ? a_row_ : 1, strip = tile_m_ * row;
        *block = {packed, block->next, 0, a + (h.m0 + t.m0) * row + plan.k0 * a_k_, strip};
        // The rest that tiles leave: a last chunk that is not whole, a last strip that is not.
        for (int64_t i = 0; i < t.m; i += tile_m_) {
          const int64_t rows = std::min<int64_t>(tile_m_, t.m - i);
          const int64_t done = rows < tile_m_ ? 0
                               : is_chunked_  ? plan.n_k / kChunk * kChunk
                                              : plan.n_k;
          packer_.pack_a(h, t.batch, t.m0 + i, rows, plan.k0 + done, plan.n_k - done,
                         packed + i / tile_m_ * block->next + done * rows);
        }
        return;
      }
    }
    packer_.pack_a(h, t.batch, t.m0, t.m, plan.k0, plan.n_k, packed);
  }

  // One k block of one register tile.
  void run_tile(const Held& h, const Tile& x, const KBlock& plan, MicroArgs& u, float* waiting,
                float* local) {
    const Lies lies = direct_a_ ? Lies::kRows : is_chunked_ ? Lies::kChunks : Lies::kFarPanel;
    const MicroFn fn = u.src_a != nullptr ? packing_micro_fn(lies)
                       : kPairs           ? pair_micro_fn(x.rows, x.vectors(), lies)
                                          : micro_fn(x.rows, x.vectors(), lies);
    if (!direct_a_) {
      u.a_stride = x.rows;
      u.next_a = u.a + packer_.a_floats(local_b_ ? c_.k.count : plan.n_k);
    }
    const auto set_slot = [&](int at, int l) {
      u.slot[at] = waiting + l * tile_m_ * kTileN;
      u.slot_tile[at] = n_slots_ * tile_m_ * kTileN;
    };
    for (int l = 0; l < n_slots_; ++l) set_slot(n_local_ + l, l);
    if (kb_.n_pieces > 1) set_slot(kMaxSlots - 1, n_slots_ - 1);
    if (start_ != nullptr && plan.k0 == 0) load_start(h, x, u.slot[kMaxSlots - 1]);
    if (plan.is_last) {
      finish_tile(h, x, fn, u, local + kMaxSlots * kTileFloats);
    } else {
      fn(u);
    }
  }

  // The sums that this tile's chains go on from.
  void load_start(const Held& h, const Tile& x, float* tile) const {
    const float* start = start_ + c_.batch.offset(h.batch0 + x.batch, kBias);
    int64_t m[kTileM], n[kTileN], n_stride;
    const bool is_dense = c_.n.is_linear(kBias, &n_stride) && n_stride == 1;
    c_.m.offsets(h.m0 + x.m0, x.rows, kBias, m);
    const int64_t below = x.rows > 1 ? (m[1] - m[0]) * x.rows : 0;  // the next tile's rows
    c_.n.offsets(h.n0 + x.n0, x.cols, kBias, n);
    for (int i = 0; i < x.rows; ++i) {
      if (is_dense && x.cols == kTileN) {
        const float* row = start + m[i] + n[0];
        for (int j = 0; j < kTileN; j += kLanes) store(tile + i * kTileN + j, load(row + j));
        for (int j = 0; j < kTileN; j += 16) __builtin_prefetch(row + below + j, 1);
        continue;
      }
      if (is_dense) {
        std::copy_n(start + m[i] + n[0], x.cols, tile + i * kTileN);
      } else {
        for (int j = 0; j < x.cols; ++j) tile[i * kTileN + j] = start[m[i] + n[j]];
      }
      std::fill(tile + i * kTileN + x.cols, tile + (i + 1) * kTileN, 0.0F);
    }
  }

  // Scale and bias of rows that stand in the result.
  void finish_rows(const Tile& x, float* y, const float* bias) const {
    const Vf scale = set1(static_cast<float>(c_.scale));
    for (int64_t i = 0; i < x.n_tiles * x.rows; ++i, y += out_row_)
      for (int j = 0; j < x.cols; j += kLanes) {
        Vf v = load(y + j);
        if (c_.has_scale) v = v * scale;
        store(y + j, bias == nullptr ? v : v + load(bias + j));
      }
  }

  // The last k block, and what follows the sum.
  void finish_tile(const Held& h, const Tile& x, MicroFn fn, MicroArgs& u, float* sums) {
    const int64_t batch = h.batch0 + x.batch, m0 = h.m0 + x.m0, n0 = h.n0 + x.n0;
    if constexpr (std::is_same_v<Out, float>) {
      if (plain_out_ && x.cols % kLanes == 0) {
        // Lines of the result come meanwhile: else stores wait for them.
        u.fetches_dst = true, u.dst_tile = tile_m_ * out_row_;
        fn(u);
        if (c_.has_epilogue())
          finish_rows(x, u.dst, bias_ ? bias_ + c_.batch.offset(batch, kBias) + n0 : nullptr);
        return;
      }
    }
    u.dst = sums, u.dst_stride = kTileN, u.dst_tile = tile_m_ * kTileN;
    fn(u);
    for (int64_t i = 0; i < x.n_tiles; ++i)
      epilogue<Out>(
          {&c_, sums + i * u.dst_tile, kTileN, batch, m0 + i * tile_m_, n0, x.rows, x.cols}, bias_,
          out_);
  }

  const KernelCall& call_;
  const Contraction& c_;
  const DotTiles tiles_;
  const int tile_m_;
  const KBlocks kb_;
  const int n_local_, n_slots_;  // levels of the shard tree within a block, sums between blocks
  const DotWorkspace workspace_;
  const DotBlocks blocks_;
  const In* a_;
  const In* b_;
  const Out* bias_;
  const float* start_;
  Out* out_;
  const bool is_chunked_;
  const PanelPacker<In, kPairs> packer_;
  float* a_panels_;     // where tasks pack b
  float* waiting_;      // per thread
  float* blocks_of_a_;  // per thread, where tasks pack a
  float* b_panels_;     // or, local, some strips per thread
  int64_t a_row_ = 0, out_row_ = 0;
  int64_t a_k_ = 0, b_k_ = 0;  // between rows of k, where tiles pack
  bool fuses_a_ = false, fuses_b_ = false;
  bool direct_a_ = false, local_b_ = false, plain_out_ = false;
};

// Whether pairs can be made of an operand: k side by side, lanes whole pairs apart, or lanes side
// by side.
bool has_pairs(const Contraction& c, const Loops& lanes, Operand operand) {
  int64_t k, lane;
  return c.k.is_linear(operand, &k) && lanes.is_linear(operand, &lane) &&
         (k == 1 ? lane % 2 == 0 : lane == 1 || lanes.count == 1);
}
bool is_of_pairs(const Contraction& c) {
  return kHasPairs && c.in_dtype == DType::kBF16 && c.k.count > 2 && machine_sums_pairs() &&
         c.shard_k() % 2 == 0 && has_pairs(c, c.m, kA) && has_pairs(c, c.n, kB);
}
// k in pairs.
Contraction halve_k(Contraction c) {
  Factor pairs{.extent = c.k.count / 2};
  for (const Operand operand : {kA, kB}) {
    c.k.is_linear(operand, &pairs.stride[operand]);
    pairs.stride[operand] *= 2;
  }
  c.k = {};
  c.k.add(pairs);
  return c;
}
template <class Out>
void run_pairs(const KernelCall& call, const Contraction& c, const TensorRef& a,
               const TensorRef& b) {
  if constexpr (kHasPairs) PackedDot<bf16, Out, true>(call, c, a, b).run();
}

template <class In>
void run_in(const KernelCall& call, const Contraction& c, const TensorRef& a, const TensorRef& b) {
  switch (c.out_dtype) {
    case DType::kF32:
      return PackedDot<In, float>(call, c, a, b).run();
    case DType::kBF16:
      return PackedDot<In, bf16>(call, c, a, b).run();
    case DType::kF16:
      return PackedDot<In, f16>(call, c, a, b).run();
    default:
      return;
  }
}
}  // namespace

void dot_packed_call(const KernelCall& call, const Contraction& c, const TensorRef& a,
                     const TensorRef& b) {
  if (c.batch.count * c.m.count * c.n.count == 0) return;
  const DotTiles tiles(call.tuning, c);
  claim_workspace(call, packed_bytes(c, call.tuning, call.pool->n_threads()));
  if (is_thin(c, tiles)) return dot_thin(call, c, a, b);
  if (is_of_pairs(c)) {
    const Contraction pairs = halve_k(c);
    if (c.out_dtype == DType::kF32) return run_pairs<float>(call, pairs, a, b);
    if (c.out_dtype == DType::kBF16) return run_pairs<bf16>(call, pairs, a, b);
  }
  switch (c.in_dtype) {
    case DType::kF32:
      return run_in<float>(call, c, a, b);
    case DType::kBF16:
      return run_in<bf16>(call, c, a, b);
    case DType::kF16:
      return run_in<f16>(call, c, a, b);
    default:
      return;
  }
}

void dot_packed(const KernelCall& call) {
  const auto c = parse_contraction(*call.attrs, call.in, call.out);
  TEGULA_CHECK(c.ok(), c.ok() ? "" : c.error().message);
  const bool swap = c->last_is_m;
  dot_packed_call(call, swap ? c->swapped() : *c, call.in[swap ? 1 : 0], call.in[swap ? 0 : 1]);
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
