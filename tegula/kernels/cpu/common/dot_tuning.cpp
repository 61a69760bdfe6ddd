#include "tegula/kernels/cpu/common/dot_tuning.h"

#include <array>
#include <set>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/dot_plan.h"

namespace tegula::kernel {

namespace {

// A query as the kernel sees it: lanes over n.
Contraction contraction_of(const KernelQuery& q) {
  const auto c = parse_contraction(*q.attrs, q.in, q.out);
  TEGULA_CHECK(c.ok(), c.ok() ? "" : c.error().message);
  return c->last_is_m ? c->swapped() : *c;
}

// The sizes that a tuning comes to for one call.
struct Cut {
  DotTiles tiles;
  RegisterTile tile;
  KBlocks k;
  DotBlocks blocks;
  bool is_local, packs_a;
  int64_t m_tasks, n_tasks, m_strips, n_strips;

  Cut(const Contraction& c, const Tuning& t, const Target& target)
      : tiles(t, c),
        tile(tile_of(tiles, target.isa)),
        k(tiles.cut(c)),
        blocks(c, tiles, tile, target.n_threads),
        is_local(tiles.is_local(c)),
        packs_a(tiles.packs_a(c, tile)),
        m_tasks(blocks.m_tasks(blocks.m)),
        n_tasks(blocks.n_tasks(blocks.n)),
        m_strips(ceil_div(blocks.task_m, tile.m)),
        n_strips(ceil_div(blocks.task_n, tile.n)) {}

  static RegisterTile tile_of(const DotTiles& tiles, Isa isa) {
    RegisterTile tile = register_tile(isa);
    if (tiles.tile_m > 0) tile.m = std::min(tiles.tile_m, tile.m);
    return tile;
  }

  // Equal for tunings that run the same way.
  std::array<int64_t, 13> signature() const {
    const bool has_order = !is_local && m_strips > 1 && n_strips > 1;
    const bool has_deal = m_tasks > 1 && n_tasks > 1;
    return {blocks.batch,
            blocks.m,
            blocks.n,
            blocks.task_m,
            blocks.task_n,
            k.n_pieces,
            k.group,
            tile.m,
            packs_a,
            !has_order || tiles.a_inside,
            !has_deal || tiles.deals_rows,
            is_local,
            blocks.groups};
  }
};

std::vector<Tuning> thin_points() {
  std::vector<Tuning> points(1);
  for (const int columns : {64, 128, 256, 512}) {
    Tuning t;
    t.knob[kDotTaskN] = columns;
    points.push_back(t);
  }
  return points;
}

std::vector<Tuning> points(const KernelQuery& q) {
  const Contraction c = contraction_of(q);
  if (c.m.count * c.n.count * c.batch.count * c.k.count == 0) return {Tuning{}};
  if (is_thin(c, DotTiles({}, c))) return thin_points();
  // Register tiles: all registers; as many rows as leave no ragged last tile; fewer.
  const RegisterTile full = register_tile(q.target->isa);
  const auto even = static_cast<int>(ceil_div(c.m.count, ceil_div(c.m.count, full.m)));
  int64_t row;
  std::vector<Tuning> all(1);
  std::set<std::array<int64_t, 13>> seen{Cut(c, {}, *q.target).signature()};
  Tuning t;
  const auto add = [&] {
    const Cut cut(c, t, *q.target);
    // A large product that leaves threads without work is not worth a trial.
    if (cut.m_tasks * cut.n_tasks * cut.blocks.batch < q.target->n_threads &&
        c.m.count * c.n.count > 4096)
      return;
    if (seen.insert(cut.signature()).second) all.push_back(t);
  };
  // Inner lists nest by recursion: each knob takes each of its values.
  const struct {
    DotKnob knob;
    std::vector<int> values;
  } lists[] = {
      {kDotTileM, {full.m, std::max(even, kMinTileM), std::max(full.m * 2 / 3, kMinTileM)}},
      {kDotTaskM, {36, 72, 168, 336}},
      {kDotTaskN, {96, 192, 384, 768}},
      {kDotBlockK, {384, 768, 1024, 2048}},
      {kDotOrder, {1, 2}},
      {kDotDeal, {1, 2}},
      {kDotPackA, can_read_a(c, &row) ? std::vector{1, 2} : std::vector{0}},
      {kDotPanels, {1 << 20, 1 << 22}}};
  const auto each = [&](const auto& self, size_t i) -> void {
    if (i == std::size(lists)) return add();
    for (const int v : lists[i].values) t.knob[lists[i].knob] = v, self(self, i + 1);
  };
  each(each, 0);
  return all;
}

// The nearest cache that holds so much; past the last, memory.
int level_of(double bytes, const CacheSizes& caches) {
  int level = 0;
  while (level < CacheSizes::kLevels && bytes > static_cast<double>(caches.bytes[level])) ++level;
  return level;
}

TuningCost thin_cost(const Contraction& c, const KernelQuery& q) {
  TuningCost cost;
  const double n = static_cast<double>(c.n.count), k = static_cast<double>(c.k.count),
               share = static_cast<double>(c.batch.count) / q.target->n_threads;
  const double columns = q.tuning.knob[kDotTaskN] > 0 ? q.tuning.knob[kDotTaskN] : 512;
  const double busiest = std::max(1.0, columns * q.target->n_threads / n);
  cost.flops = 2 * static_cast<double>(c.m.count) * n * k * share * busiest;
  cost.bytes[CacheSizes::kLevels] = n * k * static_cast<double>(size_bytes(c.in_dtype)) * share;
  return cost;
}

TuningCost cost(const KernelQuery& q, const CacheSizes& caches) {
  const Contraction c = contraction_of(q);
  if (is_thin(c, DotTiles(q.tuning, c))) return thin_cost(c, q);
  const Cut x(c, q.tuning, *q.target);
  const auto d = [](int64_t v) { return static_cast<double>(v); };
  const double m = d(c.m.count), n = d(c.n.count), k = d(c.k.count), batch = d(c.batch.count);
  const double helds = d(ceil_div(c.batch.count, x.blocks.batch)) *
                       d(ceil_div(c.m.count, x.blocks.m)) * d(ceil_div(c.n.count, x.blocks.n));
  const double tasks =
      helds * d(ceil_div(x.blocks.batch * x.m_tasks * x.n_tasks, q.target->n_threads));
  const double task_m = std::min(d(x.blocks.task_m), m), block_k = std::min(d(x.k.at(0).n_k), k);
  const double columns = d(x.n_strips * x.tile.n), strips = d(x.m_strips * x.n_strips);
  const double vectors = x.tile.n > 8 ? 2 : 1, vector_bytes = 4 * x.tile.n / vectors;

  TuningCost cost;
  cost.flops = tasks * 2 * task_m * columns * k;
  // A load takes its slot whatever its width: one a row, one a vector of b, each step of k.
  cost.bytes[0] = tasks * k * (task_m * d(x.n_strips) + strips * vectors) * vector_bytes;
  // The inner operand streams by the strip that stays.
  const bool a_inside = x.is_local || x.tiles.a_inside;
  const double inner = a_inside ? task_m : columns, turns = d(a_inside ? x.n_strips : x.m_strips);
  const double strip = a_inside ? x.tile.n : x.tile.m;
  const int inner_level = level_of(4 * block_k * (inner + strip), caches);
  if (inner_level > 0) cost.bytes[inner_level] += tasks * 4 * k * inner * turns;
  // Both come once from where the panels lie.
  const int home = std::max(1, level_of(4 * k * (d(x.blocks.m) + d(x.blocks.n)), caches));
  cost.bytes[home] += tasks * 4 * k * (task_m + columns);
  // Partial sums go out and come back between blocks of k.
  const double waiting = 4 * task_m * columns;
  cost.bytes[std::max(1, level_of(waiting, caches))] += tasks * 2 * waiting * d(x.k.count() - 1);
  // Packing reads and writes.
  // Where b lies in panels, each task packs its rows.
  const double a_floats = x.packs_a ? batch * m * k * (x.is_local ? 1 : d(x.n_tasks)) : 0;
  const double b_floats = batch * n * k * d(ceil_div(c.m.count, x.blocks.m));
  cost.bytes[CacheSizes::kLevels] += 8 * (a_floats + b_floats) / q.target->n_threads;
  return cost;
}

}  // namespace

constinit const TuningSpace kDotTuning{
    .knobs = {"task_m", "task_n", "block_k", "tile_m", "order", "deal", "pack_a", "panels"},
    .points = points,
    .cost = cost,
};

}  // namespace tegula::kernel
