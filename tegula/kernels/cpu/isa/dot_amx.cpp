// The contraction of bf16 operands in AMX's tiles; common/dot_amx_plan.h has the blocks.
#include <algorithm>

#include "tegula/kernels/cpu/common/dot_amx_plan.h"
#include "tegula/kernels/cpu/common/workspace.h"
#include "tegula/kernels/cpu/isa/amx_pack.h"
#include "tegula/kernels/cpu/isa/dot_epilogue.h"
#include "tegula/kernels/cpu/isa/dot_loops.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
constexpr int kSums = kStrip * kStrip;

// Slots are tiles [32][32].
struct AmxMicroArgs {
  TileOperands x;
  const KBlock* block;
  float* slot[kMaxSlots];
  float* sums;                   // of the final piece
  const float* first = nullptr;  // the sums to go on from, at the block's beginning
  // Of the next strip of b, the part to be fetched into L2 meanwhile, so many lines per tile of k.
  const char* next = nullptr;
  int next_lines = 0;
};

// sums = merge_i + sums, a few rows at a time: beside the next piece's products, which leave vector
// units idle.
template <int kM, int kN>
struct Merge {
  float* sums = nullptr;
  const float* with[3] = {};
  int n = 0;
  int row = kM * kTile;  // the next; all are done

  TEGULA_TILE void step(int rows) {
    for (const int end = std::min(row + rows, kM * kTile); row < end; ++row)
#pragma GCC unroll 2
      for (int j = row * kStrip; j < row * kStrip + kN * kTile; j += kLanes) {
        Vf y = load(with[0] + j) + load(sums + j);
        if (n > 1) y = load(with[1] + j) + y;
        if (n > 2) y = load(with[2] + j) + y;
        store(sums + j, y);
      }
  }
};

// For each piece: sums = start or 0; sums += products; sums = merge_i + sums.
template <int kM, int kN>
void micro(Tiles& t, const AmxMicroArgs& u) {
  TileOperands x = u.x;
  const char* next = u.next;
  Merge<kM, kN> merge;
  for (int i = 0; i < u.block->n_pieces; ++i) {
    const Piece& p = u.block->pieces[i];
    if (p.start >= 0 || (i == 0 && u.first != nullptr)) {
      load_sums<kM, kN>(t, p.start >= 0 ? u.slot[p.start] : u.first, kStrip);
    } else {
      clear_sums<kM, kN>(t);
    }
    // What is stored next comes meanwhile: stores wait for their lines in turn.
    float* dst = p.dst < 0 ? u.sums : u.slot[p.dst];
    const char* line = reinterpret_cast<const char*>(dst);
    constexpr int64_t kLines = kM * kTile * kStrip * 4 / 64;
    const int64_t steps = std::max<int64_t>(1, p.k), lines = ceil_div(kLines, steps);
    const int rows = static_cast<int>(ceil_div(kM * kTile, steps));
    add_products<kM, kN, true>(t, x, p.k, [&] {
      for (int i = 0; i < u.next_lines; ++i, next += 64) __builtin_prefetch(next, 0, 2);
      for (int64_t i = 0; i < lines; ++i, line += 64) __builtin_prefetch(line, 1);
      merge.step(rows);
    });
    x.a += p.k * x.a_k, x.b += p.k * x.b_k;
    merge.step(kM * kTile);  // where there were no products
    store_sums<kM, kN>(t, dst, kStrip);
    if (p.n_merge > 0)
      merge = {dst, {u.slot[p.merge[0]], u.slot[p.merge[1]], u.slot[p.merge[2]]}, p.n_merge, 0};
  }
  merge.step(kM * kTile);
}
using AmxMicro = void (*)(Tiles&, const AmxMicroArgs&);
constexpr AmxMicro kMicro[2][2] = {{micro<1, 1>, micro<1, 2>}, {micro<2, 1>, micro<2, 2>}};

template <class Out>
class AmxDot {
 public:
  AmxDot(const KernelCall& call, const Contraction& c, const TensorRef& a, const TensorRef& b)
      : call_(call),
        c_(c),
        kb_(amx_cut(c)),
        workspace_(c),
        blocks_(c, workspace_, call.pool->n_threads()),
        strip_bytes_(kb_.total() * kAmxStripBytes),
        a_(a.as<const bf16>()),
        b_(b.as<const bf16>()),
        start_(c.accumulates ? call.in[2].as<const float>() : nullptr),
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
    for_each_held(c_, blocks_, [&](const Held& h) {
      pack(h);
      for_each_task(*call_.pool, h, blocks_, true, [&](const Task& t, int thread) {
        run_task(h, t, scratch_ + thread * workspace_.thread_bytes);
      });
    });
  }

 private:
  char* a_panel(const Held& h, int64_t batch, int64_t strip) const {
    return a_panels_ + (batch * ceil_div(h.m, kStrip) + strip) * strip_bytes_;
  }
  char* b_panel(const Held& h, int64_t batch, int64_t strip) const {
    return b_panels_ + (batch * ceil_div(h.n, kStrip) + strip) * strip_bytes_;
  }
  bool is_direct(int64_t rows) const { return direct_a_ && rows % kTile == 0; }

  // A task packs strips of one operand for some tiles of k, so that all threads take part.
  static constexpr int64_t kPackTiles = 16;

  void pack(const Held& h) {
    // Only the last strip of a direct operand may need packing.
    const bool a_is_direct = is_direct(h.m);
    const int64_t all_a = ceil_div(h.m, kStrip), first_a = direct_a_ ? all_a - 1 : 0;
    const int64_t a_strips = h.n0 > 0 || a_is_direct ? 0 : all_a - first_a;
    const int64_t b_strips = local_b_ ? 0 : ceil_div(h.n, kStrip);
    const int64_t k_units = ceil_div(kb_.total(), kPackTiles);
    const int64_t units = (a_strips + b_strips) * k_units;
    if (units == 0) return;
    call_.pool->parallel_for(h.batch * units, [&](int64_t i, int) {
      const int64_t batch = i / units, unit = i % units;
      const int64_t tile = unit % k_units * kPackTiles, strip = unit / k_units;
      const int64_t tiles = std::min(kPackTiles, kb_.total() - tile);
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
  void pack_b(const Held& h, int64_t batch, int64_t n, int64_t tile, int64_t tiles, char* dst) {
    pack_strip(b_ + c_.batch.offset(h.batch0 + batch, kB), c_.n, kB, TileForm::kB, h.n0 + n,
               h.n0 + h.n, tile, tiles, dst);
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

  void run_task(const Held& h, const Task& t, char* scratch) {
    Tiles tiles;
    auto* waiting =
        reinterpret_cast<float*>(scratch + std::min(kb_.total(), kAmxBlockTiles) * kAmxStripBytes);
    alignas(64) float local[(kMaxSlots + 1) * kSums];
    alignas(64) float start[kSums];
    const int n_local = kb_.local_levels();
    int64_t executed = 0;
    for (int64_t k = 0; k < kb_.count(); ++k) {
      const KBlock block = kb_.at(k);
      float* wait = waiting;
      for (int64_t n = 0; n < t.n; n += kStrip) {
        AmxMicroArgs u;
        u.block = &block;
        u.sums = local + kMaxSlots * kSums;
        u.x.b = b_panel(h, t.batch, (t.n0 + n) / kStrip) + block.k0 * kAmxStripBytes;
        if (local_b_) {
          pack_b(h, t.batch, t.n0 + n, block.k0, block.n_k, scratch);
          u.x.b = scratch;
        } else if (n + kStrip < t.n) {
          u.next = u.x.b + strip_bytes_;
          u.next_lines = static_cast<int>(ceil_div(kAmxStripBytes / 64, ceil_div(t.m, kStrip)));
        }
        const int64_t cols = std::min<int64_t>(kStrip, t.n - n);
        for (int64_t m = 0; m < t.m; m += kStrip, wait += kb_.slots() * kSums) {
          const int64_t rows = std::min<int64_t>(kStrip, t.m - m);
          point_at_a(h, t, m, rows, block, u.x);
          for (int l = 0; l < kMaxSlots; ++l)
            u.slot[l] = l < n_local ? local + l * kSums : wait + (l - n_local) * kSums;
          if (kb_.n_pieces > 1) u.slot[kMaxSlots - 1] = wait + (kb_.slots() - 1) * kSums;
          if (block.is_last) fetch_out(h, t, m, rows, n);
          u.first = nullptr;
          if (start_ != nullptr && k == 0)
            load_start(h.batch0 + t.batch, h.m0 + t.m0 + m, static_cast<int>(rows), h.n0 + t.n0 + n,
                       static_cast<int>(cols), start),
                u.first = start;
          kMicro[rows > kTile][cols > kTile](tiles, u);
          u.next += u.next_lines * 64 * block.n_k;
          executed += 2 * round_up(rows, kTile) * round_up(cols, kTile) * block.n_k * kTilePairs;
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

  // The sums to go on from, zeros to 32 × 32.
  void load_start(int64_t batch, int64_t m0, int rows, int64_t n0, int cols, float* dst) const {
    int64_t m[kStrip], n[kStrip];
    c_.m.offsets(m0, rows, kBias, m), c_.n.offsets(n0, cols, kBias, n);
    const float* at = start_ + c_.batch.offset(batch, kBias);
    std::fill_n(dst, kSums, 0.0F);
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j) dst[i * kStrip + j] = at[m[i] + n[j]];
  }

  // A result's lines come while its products are formed: the epilogue's stores wait for them.
  void fetch_out(const Held& h, const Task& t, int64_t m, int64_t rows, int64_t n) const {
    if (out_row_ == 0) return;
    const Out* out = out_ + c_.batch.offset(h.batch0 + t.batch, kOut) +
                     (h.m0 + t.m0 + m) * out_row_ + h.n0 + t.n0 + n;
    for (int64_t i = 0; i < rows; ++i)
      for (size_t line = 0; line < sizeof(Out) * kStrip; line += 64)
        __builtin_prefetch(reinterpret_cast<const char*>(out + i * out_row_) + line, 1);
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
