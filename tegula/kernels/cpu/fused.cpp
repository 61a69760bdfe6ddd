// Runs a tile program: an interpreter over tiles that stay in L1, one vector loop per instruction
// (or pair of instructions, see tile/schedule.h).
//
// Registers of plain dtype (f32, f64, i64) may be the operands' own memory: a load that is
// contiguous over the tile costs nothing, and a result to be stored there is computed in place.
// While a tile runs, its loops fetch the next tile's memory.

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/tile_thread.h"
#include "tegula/kernels/cpu/common/workspace.h"

namespace tegula::kernel {

namespace {

// A task is worth waking a thread for.
constexpr int64_t kTaskElements = 4 << 10;

bool supports(const KernelQuery& q) {
  if (!q.program || !q.program->resident) return false;
  if (tile::has_columns(*q.program)) return false;  // sums over rows are the GPU's
  TileGeometry g;
  return tile_geometry(*q.program, q.in, q.out, g).ok();
}

// Smaller extents may take larger tiles. The workspace of a call whose space has symbols does for
// all of them; in the call of a run none is left.
int64_t workspace_bytes(const KernelQuery& q) {
  TileGeometry g;
  if (!tile_geometry(*q.program, q.in, q.out, g).ok()) return 0;
  const int64_t bytes = TileLayout(g).total(q.target->n_threads);
  const AttrValue* shape = q.attrs ? q.attrs->find("shape") : nullptr;
  const auto* dims = shape ? shape->get_if<std::vector<Dim>>() : nullptr;
  if (!dims || std::all_of(dims->begin(), dims->end(), [](const Dim& d) { return d.is_const(); }))
    return bytes;
  return std::max(bytes, most_bytes_below(*q.program, g, q.target->n_threads));
}

void launch(const KernelCall& call) {
  TEGULA_CHECK(call.program, "fused: no program");
  TileGeometry g;
  const Status status = tile_geometry(*call.program, call.in, call.out, g);
  TEGULA_CHECK(status.ok(), status.ok() ? "" : status.error().message);
  if (g.n_rows == 0) return;
  const TileLaunch l(*call.program, g, call.workspace);
  claim_workspace(call, l.layout.total(call.pool->n_threads()));
  TileThread::reset(l, call.pool->n_threads());
  // In the pool, because that is where denormals are flushed.
  if (!l.schedule.uniform.empty())
    call.pool->parallel_for(1, [&](int64_t, int thread) { TileThread(l, thread).uniform(); });
  call.counters->add(l.schedule.uniform_flops, l.schedule.uniform_flops);

  const int64_t n_tiles = g.n_tiles();
  const int64_t tile_elements = g.tile_rows * (g.is_elementwise ? g.tile_cols : g.row_len);
  const int64_t tiles_per_task =
      std::max<int64_t>(1, call.pool->grain(kTaskElements) / std::max<int64_t>(tile_elements, 1));
  call.pool->parallel_for((n_tiles + tiles_per_task - 1) / tiles_per_task,
                          [&](int64_t task, int thread) {
                            TileThread me(l, thread);
                            const int64_t end = std::min(n_tiles, (task + 1) * tiles_per_task);
                            for (int64_t k = task * tiles_per_task; k < end; ++k)
                              g.is_elementwise ? me.elementwise_tile(k) : me.row_tile(k);
                            call.counters->add(me.math_flops(), me.executed_flops());
                          });
}

}  // namespace

extern constinit const KernelDef fused{
    .name = "fused",
    .op = "fused",
    .order = "lane16",
    .doc =
        "Tile programs: fused elementwise ops and row reductions, interpreted over L1-sized tiles",
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .launch = launch,
};

}  // namespace tegula::kernel
