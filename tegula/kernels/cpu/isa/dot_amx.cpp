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
    // What is stored next comes meanwhile: stores wait for their lines in turn.
    float* dst = p.dst < 0 ? u.sums : u.slot[p.dst];
    const char* line = reinterpret_cast<const char*>(dst);
    constexpr int64_t kLines = kM * kTile * kStrip * 4 / 64;
    const int64_t lines = ceil_div(kLines, std::max<int64_t>(1, p.tiles));
    add_products<kM, kN, true>(t, x, p.tiles, [&] {
      for (int i = 0; i < u.next_lines; ++i, next += 64) __builtin_prefetch(next, 0, 2);
      for (int64_t i = 0; i < lines; ++i, line += 64) __builtin_prefetch(line, 1);
    });
    x.a += p.tiles * x.a_k, x.b += p.tiles * x.b_k;
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
    int64_t k_stride = 0;
    direct_a_ = c.m.is_linear(kA, &a_row_) && c.k.is_linear(kA, &k_stride) && k_stride == 1 &&
                c.shard_k() % kTilePairs == 0;
    local_b_ = amx_packs_b_locally(c);
    if (!c.m.is_linear(kOut, &out_row_) || !c.n.is_linear(kOut, &k_stride) || k_stride != 1)
      out_row_ = 0;
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
  bool is_direct(int64_t rows) const { return direct_a_ && rows % kTile == 0; }

  // A task packs strips of one operand for some tiles of k, so that all threads take part.
  static constexpr int64_t kPackTiles = 16;

  void pack(const AmxHeld& h) {
    // Only the last strip of a direct operand may need packing.
    const bool a_is_direct = is_direct(h.m);
    const int64_t all_a = ceil_div(h.m, kStrip), first_a = direct_a_ ? all_a - 1 : 0;
    const int64_t a_strips = h.n0 > 0 || a_is_direct ? 0 : all_a - first_a;
    const int64_t b_strips = local_b_ ? 0 : ceil_div(h.n, kStrip);
    const int64_t k_units = ceil_div(kb_.tiles(), kPackTiles);
    const int64_t units = (a_strips + b_strips) * k_units;
    if (units == 0) return;
    call_.pool->parallel_for(h.batch * units, [&](int64_t i, int) {
      const int64_t batch = i / units, unit = i % units;
      const int64_t tile = unit % k_units * kPackTiles, strip = unit / k_units;
      const int64_t tiles = std::min(kPackTiles, kb_.tiles() - tile);
      if (strip < a_strips) {
        char* dst = a_panel(h, batch, first_a + strip) + tile * kAmxStripBytes;
        pack_strip(a_ + c_.batch.offset(h.batch0 + batch, kA), c_.m, kA, TileForm::kA,
                   h.m0 + (first_a + strip) * kStrip, h.m0 + h.m, tile, tiles, dst);
      } else {
        char* dst = b_panel(h, batch, strip - a_strips) + tile * kAmxStripBytes;
        pack_b(h, batch, (strip - a_strips) * kStrip, tile, tiles, dst);
      }
    });
  }
  void pack_b(const AmxHeld& h, int64_t batch, int64_t n, int64_t tile, int64_t tiles, char* dst) {
    pack_strip(b_ + c_.batch.offset(h.batch0 + batch, kB), c_.n, kB, TileForm::kB, h.n0 + n,
               h.n0 + h.n, tile, tiles, dst);
  }

  // Tiles [tile, tile + tiles) of the strip of lanes from `lane` (before `end`); a shard at a time.
  void pack_strip(const bf16* src, const Loops& lanes, Operand operand, TileForm form, int64_t lane,
                  int64_t end, int64_t tile, int64_t tiles, char* dst) const {
    const int n = static_cast<int>(std::min<int64_t>(kStrip, end - lane));
    while (tiles > 0) {
      const int64_t shard = tile / kb_.shard_tiles, at = tile % kb_.shard_tiles;
      const int64_t run = std::min(tiles, kb_.shard_tiles - at);
      const int64_t k = at * kTilePairs;
      pack_tiles(src, lanes, c_.k, operand, lane, n, shard * c_.shard_k() + k,
                 std::min(run * kTilePairs, c_.shard_k() - k), form, dst);
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
    auto* waiting =
        reinterpret_cast<float*>(scratch + std::min(kb_.tiles(), kAmxBlockTiles) * kAmxStripBytes);
    alignas(64) float local[(kSlots + 1) * kSums];
    const int n_local = kb_.local_levels();
    int64_t executed = 0;
    for (int64_t k = 0; k < kb_.count(); ++k) {
      const AmxBlock block = plan_block(kb_, k);
      float* wait = waiting;
      for (int64_t n = 0; n < t.n; n += kStrip) {
        AmxMicroArgs u;
        u.block = &block;
        u.sums = local + kSlots * kSums;
        u.x.b = b_panel(h, t.batch, (t.n0 + n) / kStrip) + block.tile0 * kAmxStripBytes;
        if (local_b_) {
          pack_b(h, t.batch, t.n0 + n, block.tile0, block.tiles, scratch);
          u.x.b = scratch;
        } else if (n + kStrip < t.n) {
          u.next = u.x.b + strip_bytes_;
          u.next_lines = static_cast<int>(ceil_div(kAmxStripBytes / 64, ceil_div(t.m, kStrip)));
        }
        const int64_t cols = std::min<int64_t>(kStrip, t.n - n);
        for (int64_t m = 0; m < t.m; m += kStrip, wait += kb_.slots() * kSums) {
          const int64_t rows = std::min<int64_t>(kStrip, t.m - m);
          point_at_a(h, t, m, rows, block, u.x);
          for (int l = 0; l < kSlots; ++l)
            u.slot[l] = l < n_local ? local + l * kSums : wait + (l - n_local) * kSums;
          if (kb_.n_pieces > 1) u.slot[kSlots - 1] = wait + (kb_.slots() - 1) * kSums;
          if (block.is_last) fetch_out(h, t, m, rows, n);
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

  // A result's lines come while its products are formed: the epilogue's stores wait for them.
  void fetch_out(const AmxHeld& h, const AmxTask& t, int64_t m, int64_t rows, int64_t n) const {
    if (out_row_ == 0) return;
    const Out* out = out_ + c_.batch.offset(h.batch0 + t.batch, kOut) +
                     (h.m0 + t.m0 + m) * out_row_ + h.n0 + t.n0 + n;
    for (int64_t i = 0; i < rows; ++i)
      for (size_t line = 0; line < sizeof(Out) * kStrip; line += 64)
        __builtin_prefetch(reinterpret_cast<const char*>(out + i * out_row_) + line, 1);
  }

  void point_at_a(const AmxHeld& h, const AmxTask& t, int64_t m, int64_t rows,
                  const AmxBlock& block, TileOperands& x) const {
    if (is_direct(rows)) {
      x.a = reinterpret_cast<const char*>(a_ + c_.batch.offset(h.batch0 + t.batch, kA) +
                                          (h.m0 + t.m0 + m) * a_row_) +
            block.tile0 * 64;
      x.a_stride = a_row_ * 2, x.a_next = a_row_ * 2 * kTile, x.a_k = 64;
    } else {
      x.a = a_panel(h, t.batch, (t.m0 + m) / kStrip) + block.tile0 * kAmxStripBytes;
      x.a_stride = 64, x.a_next = kTileBytes, x.a_k = 2 * kTileBytes;
    }
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
  int64_t a_row_ = 0;
  int64_t out_row_ = 0;  // between rows of a result with adjacent columns; 0: it is not so
  bool direct_a_ = false, local_b_ = false;
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
