// The contraction of bf16 operands in AMX's tiles; common/dot_amx_plan.h has the blocks.
#include <algorithm>

#include "tegula/kernels/cpu/common/dot_amx_plan.h"
#include "tegula/kernels/cpu/common/workspace.h"
#include "tegula/kernels/cpu/isa/amx_pack.h"
#include "tegula/kernels/cpu/isa/dot_epilogue.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
constexpr int kSums = kStrip * kStrip;

// What happens to the sums of one piece of k; slots are tiles [32][32] of partial sums.
struct AmxPiece {
  int64_t tiles = 0;
  int start = -1;  // the slot that holds the chain so far; -1: it starts from 0
  int n_merge = 0;
  int merge[3] = {};  // slots added to the finished chain, in this order
  int dst = -1;       // the slot it goes to; -1: it is final
};
constexpr int kSlots = 4;  // three levels of a tree of 8, one chain cut in pieces

// One k block. Slot l is level l of the shard tree; the last slot holds a chain that goes on in the
// next block.
struct AmxBlock {
  int64_t tile0, tiles;
  bool is_last;
  int n_pieces;
  AmxPiece pieces[8];
};

AmxBlock plan_block(const AmxKBlocks& kb, int64_t block) {
  AmxBlock b{};
  b.tile0 = kb.start(block), b.tiles = kb.start(block + 1) - b.tile0;
  b.is_last = block + 1 == kb.count();
  const int64_t part = block % kb.n_pieces;
  for (int64_t i = 0; i < kb.group; ++i) {
    AmxPiece& p = b.pieces[b.n_pieces++];
    p.tiles = b.tiles / kb.group;
    if (part > 0) p.start = kSlots - 1;
    if (part + 1 < kb.n_pieces) {
      p.dst = kSlots - 1;
      continue;
    }
    const int64_t shard = block / kb.n_pieces * kb.group + i;
    int level = 0;
    for (; (shard >> level & 1) != 0; ++level) p.merge[p.n_merge++] = level;
    p.dst = shard + 1 == kb.n_shards ? -1 : level;
  }
  return b;
}

struct AmxMicroArgs {
  TileOperands x;
  const AmxBlock* block;
  float* slot[kSlots];
  float* sums;  // of the final piece
  // Of the next strip of b, the part to be fetched into L2 meanwhile, so many lines per tile of k.
  const char* next = nullptr;
  int next_lines = 0;
};

// For each piece: sums = start or 0; sums += products; sums = merge_i + sums.
template <int kM, int kN>
void micro(Tiles& t, const AmxMicroArgs& u) {
  TileOperands x = u.x;
  const char* next = u.next;
  for (int i = 0; i < u.block->n_pieces; ++i) {
    const AmxPiece& p = u.block->pieces[i];
    if (p.start < 0) {
      clear_sums<kM, kN>(t);
    } else {
      load_sums<kM, kN>(t, u.slot[p.start], kStrip);
    }
    add_products<kM, kN>(t, x, p.tiles, [&] {
      for (int line = 0; line < u.next_lines; ++line) __builtin_prefetch(next + 64 * line, 0, 2);
      next += 64 * u.next_lines;
    });
    x.a += p.tiles * x.a_k, x.b += p.tiles * x.b_k;
    float* dst = p.dst < 0 ? u.sums : u.slot[p.dst];
    store_sums<kM, kN>(t, dst, kStrip);
    if (p.n_merge == 0) continue;
    const float* m0 = u.slot[p.merge[0]];
    const float* m1 = u.slot[p.merge[1]];
    const float* m2 = u.slot[p.merge[2]];
    for (int row = 0; row < kM * kTile; ++row)
#pragma GCC unroll 4
      for (int j = row * kStrip; j < row * kStrip + kN * kTile; j += kLanes) {
        Vf y = load(m0 + j) + load(dst + j);
        if (p.n_merge > 1) y = load(m1 + j) + y;
        if (p.n_merge > 2) y = load(m2 + j) + y;
        store(dst + j, y);
      }
  }
}
using AmxMicro = void (*)(Tiles&, const AmxMicroArgs&);
constexpr AmxMicro kMicro[2][2] = {{micro<1, 1>, micro<1, 2>}, {micro<2, 1>, micro<2, 2>}};

// The panels at hand: batches [batch0, batch0 + batch), rows [m0, m0 + m), columns [n0, n0 + n).
struct AmxHeld {
  int64_t batch0, batch, m0, m, n0, n;
};
struct AmxTask {
  int64_t batch, m0, m, n0, n;  // relative to AmxHeld
};

template <class Out>
class AmxDot {
 public:
  AmxDot(const KernelCall& call, const Contraction& c, const TensorRef& a, const TensorRef& b)
      : call_(call),
        c_(c),
        kb_(c),
        workspace_(c),
        blocks_(c, workspace_, call.pool->n_threads()),
        strip_bytes_(kb_.tiles() * kAmxStripBytes),
        a_(a.as<const bf16>()),
        b_(b.as<const bf16>()),
        bias_(c.has_bias ? call.in[2].as<const Out>() : nullptr),
        out_(call.out[0].as<Out>()),
        a_panels_(static_cast<char*>(call.workspace)),
        b_panels_(a_panels_ + workspace_.a_bytes),
        scratch_(b_panels_ + workspace_.b_bytes) {
    local_b_ = amx_packs_b_locally(c);
    // Packing a once more for each task beside it costs less than a second trip through memory.
    local_a_ = !local_b_ && ceil_div(blocks_.n, blocks_.task_n) <= 2;
  }

  void run() {
    AmxHeld h{};
    for (h.batch0 = 0; h.batch0 < c_.batch.count; h.batch0 += blocks_.batch) {
      h.batch = std::min(blocks_.batch, c_.batch.count - h.batch0);
      for (h.m0 = 0; h.m0 < c_.m.count; h.m0 += blocks_.m) {
        h.m = std::min(blocks_.m, c_.m.count - h.m0);
        for (h.n0 = 0; h.n0 < c_.n.count; h.n0 += blocks_.n) {
          h.n = std::min(blocks_.n, c_.n.count - h.n0);
          pack(h);
          compute(h);
        }
      }
    }
  }

 private:
  char* a_panel(const AmxHeld& h, int64_t batch, int64_t strip) const {
    return a_panels_ + (batch * ceil_div(h.m, kStrip) + strip) * strip_bytes_;
  }
  char* b_panel(const AmxHeld& h, int64_t batch, int64_t strip) const {
    return b_panels_ + (batch * ceil_div(h.n, kStrip) + strip) * strip_bytes_;
  }

  // A task packs some strips of one operand side by side (rows of k are then read in runs) for some
  // tiles of k, so that all threads take part.
  static constexpr int64_t kPackTiles = 16, kPackStrips = kAmxLocalStrips;

  void pack(const AmxHeld& h) {
    const bool packs_a = !local_a_ && h.n0 == 0;
    const int64_t a_units = packs_a ? ceil_div(h.m, kPackStrips * kStrip) : 0;
    const int64_t b_units = local_b_ ? 0 : ceil_div(h.n, kPackStrips * kStrip);
    const int64_t k_units = ceil_div(kb_.tiles(), kPackTiles);
    const int64_t units = (a_units + b_units) * k_units;
    if (units == 0) return;
    call_.pool->parallel_for(h.batch * units, [&](int64_t i, int) {
      const int64_t batch = i / units, unit = i % units;
      const int64_t tile = unit % k_units * kPackTiles, group = unit / k_units;
      const int64_t tiles = std::min(kPackTiles, kb_.tiles() - tile);
      const int64_t strip = (group < a_units ? group : group - a_units) * kPackStrips;
      char* panel = group < a_units ? a_panel(h, batch, strip) : b_panel(h, batch, strip);
      panel += tile * kAmxStripBytes;
      if (group < a_units) {
        pack_a(h, batch, strip * kStrip, kPackStrips, tile, tiles, panel, strip_bytes_);
      } else {
        pack_b(h, batch, strip * kStrip, kPackStrips, tile, tiles, panel, strip_bytes_);
      }
    });
  }
  // Up to `strips` strips from row m or column n, each `pitch` bytes after the one before.
  void pack_a(const AmxHeld& h, int64_t batch, int64_t m, int64_t strips, int64_t tile,
              int64_t tiles, char* dst, int64_t pitch) const {
    pack_strips(a_ + c_.batch.offset(h.batch0 + batch, kA), c_.m, kA, TileForm::kA, h.m0 + m,
                std::min(h.m, m + strips * kStrip) - m, tile, tiles, dst, pitch);
  }
  void pack_b(const AmxHeld& h, int64_t batch, int64_t n, int64_t strips, int64_t tile,
              int64_t tiles, char* dst, int64_t pitch) const {
    pack_strips(b_ + c_.batch.offset(h.batch0 + batch, kB), c_.n, kB, TileForm::kB, h.n0 + n,
                std::min(h.n, n + strips * kStrip) - n, tile, tiles, dst, pitch);
  }

  // Tiles [tile, tile + tiles) of lanes [lane, lane + n); within a shard, some at a time.
  void pack_strips(const bf16* src, const Loops& lanes, Operand operand, TileForm form,
                   int64_t lane, int64_t n, int64_t tile, int64_t tiles, char* dst,
                   int64_t pitch) const {
    constexpr int64_t kRun = 4;  // tiles: rows of lanes are read in runs, too
    while (tiles > 0) {
      const int64_t shard = tile / kb_.shard_tiles, at = tile % kb_.shard_tiles;
      const int64_t run = std::min({kRun, tiles, kb_.shard_tiles - at}), k = at * kTilePairs;
      for (int64_t l = 0; l < n; l += kStrip)
        pack_tiles(src, lanes, c_.k, operand, lane + l,
                   static_cast<int>(std::min<int64_t>(kStrip, n - l)), shard * c_.shard_k() + k,
                   std::min(run * kTilePairs, c_.shard_k() - k), form, dst + l / kStrip * pitch);
      tile += run, tiles -= run, dst += run * kAmxStripBytes;
    }
  }

  void compute(const AmxHeld& h) {
    const int64_t m_tasks = ceil_div(h.m, blocks_.task_m), n_tasks = ceil_div(h.n, blocks_.task_n);
    call_.pool->parallel_for(h.batch * m_tasks * n_tasks, [&](int64_t i, int thread) {
      AmxTask t;
      t.batch = i / (m_tasks * n_tasks);
      t.m0 = i / n_tasks % m_tasks * blocks_.task_m;
      t.n0 = i % n_tasks * blocks_.task_n;
      t.m = std::min(blocks_.task_m, h.m - t.m0);
      t.n = std::min(blocks_.task_n, h.n - t.n0);
      run_task(h, t, scratch_ + thread * workspace_.thread_bytes);
    });
  }

  void run_task(const AmxHeld& h, const AmxTask& t, char* scratch) {
    Tiles tiles;
    auto* waiting = reinterpret_cast<float*>(scratch + workspace_.local_bytes);
    alignas(64) float local[(kSlots + 1) * kSums];
    int64_t executed = 0;
    for (int64_t k = 0; k < kb_.count(); ++k) {
      const AmxBlock block = plan_block(kb_, k);
      const int64_t pitch = block.tiles * kAmxStripBytes;  // of local strips
      if (local_a_)
        pack_a(h, t.batch, t.m0, ceil_div(t.m, kStrip), block.tile0, block.tiles, scratch, pitch);
      float* wait = waiting;
      for (int64_t n = 0; n < t.n; n += kStrip) {
        const int64_t cols = std::min<int64_t>(kStrip, t.n - n);
        AmxMicroArgs u;
        u.block = &block;
        u.sums = local + kSlots * kSums;
        if (local_b_) {
          const int64_t at = n / kStrip % kPackStrips;
          if (at == 0)
            pack_b(h, t.batch, t.n0 + n, std::min(kPackStrips, ceil_div(t.n - n, kStrip)),
                   block.tile0, block.tiles, scratch, pitch);
          u.x.b = scratch + at * pitch;
        } else {
          u.x.b = b_panel(h, t.batch, (t.n0 + n) / kStrip) + block.tile0 * kAmxStripBytes;
          const bool more = n + kStrip < t.n;
          const int64_t lines = kAmxStripBytes / 64, m_strips = ceil_div(t.m, kStrip);
          u.next_lines = more ? static_cast<int>(ceil_div(lines, m_strips)) : 0;
          u.next = u.x.b + strip_bytes_;
        }
        for (int64_t m = 0; m < t.m; m += kStrip, wait += kb_.slots() * kSums) {
          const int64_t rows = std::min<int64_t>(kStrip, t.m - m);
          u.x.a = local_a_
                      ? scratch + m / kStrip * pitch
                      : a_panel(h, t.batch, (t.m0 + m) / kStrip) + block.tile0 * kAmxStripBytes;
          point_at_slots(u, local, wait);
          kMicro[rows > kTile][cols > kTile](tiles, u);
          u.next += u.next_lines * 64 * block.tiles;
          executed += 2 * round_up(rows, kTile) * round_up(cols, kTile) * block.tiles * kTilePairs;
          if (block.is_last)
            epilogue<Out>({&c_, u.sums, kStrip, h.batch0 + t.batch, h.m0 + t.m0 + m,
                           h.n0 + t.n0 + n, static_cast<int>(rows), static_cast<int>(cols)},
                          bias_, out_);
        }
      }
    }
    const int64_t more = t.m * t.n * c_.epilogue_flops();
    call_.counters->add(2 * t.m * t.n * c_.k.count + more, executed + more);
  }

  void point_at_slots(AmxMicroArgs& u, float* local, float* wait) const {
    const int n_local = kb_.local_levels();
    for (int l = 0; l < kSlots; ++l)
      u.slot[l] = l < n_local ? local + l * kSums : wait + (l - n_local) * kSums;
    if (kb_.n_pieces > 1) u.slot[kSlots - 1] = wait + (kb_.slots() - 1) * kSums;
  }

  const KernelCall& call_;
  const Contraction& c_;
  const AmxKBlocks kb_;
  const AmxDotWorkspace workspace_;
  const AmxDotBlocks blocks_;
  const int64_t strip_bytes_;
  const bf16* a_;
  const bf16* b_;
  const Out* bias_;
  Out* out_;
  char* a_panels_;
  char* b_panels_;
  char* scratch_;
  bool local_a_ = false, local_b_ = false;
};
}  // namespace

void dot_amx(const KernelCall& call) {
  const auto parsed = parse_contraction(*call.attrs, call.in, call.out);
  TEGULA_CHECK(parsed.ok(), parsed.ok() ? "" : parsed.error().message);
  if (parsed->batch.count * parsed->m.count * parsed->n.count == 0) return;
  const bool swap = parsed->last_is_m;
  const Contraction c = swap ? parsed->swapped() : *parsed;
  const TensorRef &a = call.in[swap ? 1 : 0], &b = call.in[swap ? 0 : 1];
  claim_workspace(call, AmxDotWorkspace(c).bytes(call.pool->n_threads()));
  if (c.out_dtype == DType::kF32) return AmxDot<float>(call, c, a, b).run();
  AmxDot<bf16>(call, c, a, b).run();
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
