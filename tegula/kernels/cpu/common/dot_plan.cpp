#include "tegula/kernels/cpu/common/dot_plan.h"

#include <unistd.h>

#include "tegula/base/algorithm.h"

namespace tegula::kernel {

namespace {
// Below this a task costs less than handing it out is worth.
constexpr int64_t kMinTaskFlops = 1 << 20;
constexpr int64_t kTasksPerThread = 4;

int64_t a_panel_floats(int64_t m, int64_t k, int tile_m) {
  return m * k + ceil_div(m, tile_m) * kChunkSlack;
}
}  // namespace

int64_t even_parts(int64_t strips, int64_t least, int64_t others, int n_threads) {
  for (int64_t parts = least; parts <= strips; ++parts)
    if (parts * others % n_threads == 0) return parts;
  return least;
}

bool has_small_l2() {
  static const int64_t bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 && bytes < int64_t{1} << 20;
}

DotTiles::DotTiles(const Tuning& t, const Contraction& c, bool is_small_l2) {
  const auto set = [&](DotKnob knob, auto* size) {
    if (t.knob[knob] > 0) *size = t.knob[knob];
  };
  set(kDotTaskM, &local_m), set(kDotTaskN, &local_n), set(kDotBlockK, &local_k);
  const auto& shared = is_small_l2 ? kSharedSmall : kShared;
  if (!is_local(c)) task_m = shared[0], task_n = shared[1], block_k = shared[2];
  set(kDotTaskM, &task_m), set(kDotTaskN, &task_n), set(kDotBlockK, &block_k);
  set(kDotTileM, &tile_m), set(kDotPanels, &panel_floats);
  a_inside = t.knob[kDotOrder] != 2, deals_rows = t.knob[kDotDeal] != 2;
  reads_a = t.knob[kDotPackA];
  is_fixed = t.knob[kDotTaskM] > 0 || t.knob[kDotTaskN] > 0 || tile_m > 0;
}

bool DotTiles::packs_a(const Contraction& c, RegisterTile tile) const {
  // The 14 rows of AVX-512's tile as they lie take more addresses than there are registers, and a
  // power of two apart more ways than a set of the first cache has.
  constexpr int64_t kCopyColumns = 256;  // of products are worth a copy
  int64_t row;
  if (!can_read_a(c, &row) || reads_a == 2) return true;
  return reads_a == 0 && tile.n == kMaxTileN && c.n.count >= kCopyColumns;
}

bool DotTiles::is_valid(const Tuning& t) {
  constexpr int kMost[kDotKnobs] = {1 << 16, 1 << 16, 1 << 16, kMaxTileM, 2, 2, 2, 1 << 28};
  for (int i = 0; i < kDotKnobs; ++i)
    if (t.knob[i] < 0 || t.knob[i] > kMost[i]) return false;
  return t.knob[kDotTileM] == 0 || t.knob[kDotTileM] >= kMinTileM;
}

DotWorkspace::DotWorkspace(const Contraction& c, const DotTiles& tiles) {
  const int64_t k = std::max<int64_t>(1, c.k.count), m = c.m.count, n = c.n.count,
                batch = c.batch.count;
  const int64_t n_cols = round_up(n, kMaxTileN);
  const auto rows = [&](int64_t task) { return std::min(m + kMaxTileM - 1, tiles.most_m(task)); };
  const auto cols = [&](int64_t task) { return std::min(n_cols, tiles.most_n(task)); };
  const int64_t task_m = rows(tiles.task_m), task_n = cols(tiles.task_n);
  // Smallest register tile: hence the most panels and the most slack.
  const int64_t few = std::min(m, std::max<int64_t>(tiles.local_m, kThinRows));
  const int64_t a_least = a_panel_floats(few, k, kMinTileM);
  a_floats = std::min(batch * a_least, std::max(a_least, tiles.panel_floats));
  if (!tiles.is_local(c)) {
    block_floats = a_panel_floats(task_m, std::min(k, tiles.block_k), kMinTileM);
    b_floats = std::min(batch * n_cols * k, std::max(task_n * k, tiles.panel_floats));
    all_b_floats = n_cols * std::min(k, kOwnK);
    own_block_floats = a_panel_floats(task_m, std::min(k, kOwnBlocks * tiles.block_k), kMinTileM) +
                       (kOwnBlocks - 1) * ceil_div(task_m, kMinTileM) * kChunkSlack;
    own_block_floats = round_up(own_block_floats, 16);
  }
  strip_floats =
      std::min(n_cols, kLocalStrips * kMaxTileN) * round_up(std::min(k, tiles.local_k), 16);
  waiting_floats =
      std::max(tiles.cut(c).slots() * task_m * task_n,
               tiles.cut_locally(c).slots() * rows(tiles.local_m) * cols(tiles.local_n));
  a_floats = round_up(a_floats, 16), b_floats = round_up(b_floats, 16);
  block_floats = round_up(block_floats, 16);
  waiting_floats = round_up(waiting_floats, 16);
}

bool can_read_a(const Contraction& c, int64_t* row) {
  int64_t k_stride;
  return c.in_dtype == DType::kF32 && c.m.is_linear(kA, row) && c.k.is_linear(kA, &k_stride) &&
         (k_stride == 1 || c.k.count == 1);
}

bool is_thin(const Contraction& c, const DotTiles& tiles) {
  int64_t n, k;
  return c.n.count >= kThinColumns && c.n.is_linear(kB, &n) && c.k.is_linear(kB, &k) &&
         (n == 1 || k == 1) && c.m.count <= kThinRows &&
         c.batch.count * c.m.count * c.k.count <= DotWorkspace(c, tiles).a_floats;
}

DotBlocks::DotBlocks(const Contraction& c, const DotTiles& tiles, RegisterTile tile,
                     int n_threads) {
  const DotWorkspace w(c, tiles);
  const int64_t k = std::max<int64_t>(1, c.k.count);
  const bool is_local = tiles.is_local(c);
  const bool has_a = is_local && tiles.packs_a(c, tile);
  const int64_t a_need = has_a ? a_panel_floats(c.m.count, k, tile.m) : 0;
  const int64_t b_need = is_local ? 0 : round_up(c.n.count, tile.n) * k;
  batch = c.batch.count;
  m = c.m.count, n = c.n.count, strip_m = tile.m, strip_n = tile.n;
  if (!is_local && tile.n == kMaxTileN) set_groups(c, tiles, n_threads);
  if (groups > 0) return;
  if (a_need > 0) batch = std::min(batch, w.a_floats / a_need);
  if (b_need > 0) batch = std::min(batch, w.b_floats / b_need);
  if (batch == 0) batch = 1, n = even_part(n, w.b_floats / (tile.n * k) * tile.n, tile.n);
  if (tiles.is_fixed) {
    task_m = round_up(std::min(m, tiles.task_m), tile.m);
    task_n = round_up(std::min(n, tiles.task_n), tile.n);
    return;
  }
  task_m = even_part(m, tiles.task_m, tile.m);
  task_n = even_part(n, tiles.task_n, tile.n);
  const auto tasks = [&] { return batch * ceil_div(m, task_m) * ceil_div(n, task_n); };
  while (tasks() < kTasksPerThread * n_threads && task_m * task_n * k > kMinTaskFlops) {
    if (task_n >= task_m && task_n > tile.n) {
      task_n = round_up(task_n / 2, tile.n);
    } else if (!is_local && task_m > tile.m) {
      task_m = round_up(task_m / 2, tile.m);
    } else if (task_n > tile.n) {
      task_n = round_up(task_n / 2, tile.n);
    } else {
      break;
    }
  }
  const int64_t m_strips = ceil_div(m, tile.m), n_strips = ceil_div(n, tile.n);
  parts_m = ceil_div(m, task_m), parts_n = ceil_div(n, task_n);
  if (is_local) {
    parts_n = even_parts(n_strips, parts_n, batch * parts_m, n_threads);
    task_n = ceil_div(n_strips, parts_n) * tile.n;
  } else {
    parts_m = even_parts(m_strips, parts_m, batch * parts_n, n_threads);
    task_m = ceil_div(m_strips, parts_m) * tile.m;
    parts_n = 1;  // the last columns held may be fewer
  }
}

// As many groups as leave a thread about as many columns as rows, in powers of two; or as many as
// its panels hold.
void DotBlocks::set_groups(const Contraction& c, const DotTiles& tiles, int n_threads) {
  constexpr int64_t kLeastUses = 64;  // of an element that is packed
  // These rows of a task, those after them, and two strips of b stay in L2.
  constexpr int64_t kFewRows = 70;
  const int64_t k = std::max<int64_t>(1, c.k.count), strips = ceil_div(n, strip_n);
  if (tiles.is_fixed || tiles.panel_floats != kPanelFloats || k > kOwnK) return;
  if (!have_own_panels(n_threads, strips * strip_n * k)) return;
  const bool is_few = n_threads < kManyThreads;
  const bool has_blocks = tiles.cut(c).count() > 1;
  int64_t most = std::min(kOwnStrips, own_floats(n_threads) / (strip_n * k));
  if (has_blocks) most = std::min(most, tiles.task_n / strip_n);  // sums wait
  const int64_t least = ceil_div(strips, most);
  int64_t g = 1;
  const auto rows = [&] { return std::min(m, ceil_div(batch * m * g, n_threads)); };
  while (2 * g <= std::min<int64_t>(strips, n_threads) && (g < least || n / g > rows())) g *= 2;
  g = std::max(g, least);
  if (rows() * (n / g) < kLeastUses * (rows() + n / g)) return;
  groups = g;
  task_m = even_part(m, is_few ? std::min(kFewRows, tiles.task_m) : tiles.task_m, strip_m);
  parts_m = even_parts(ceil_div(m, strip_m), ceil_div(m, task_m), batch * g, n_threads);
  task_m = ceil_div(ceil_div(m, strip_m), parts_m) * strip_m;
  const int64_t group = ceil_div(strips, g);
  const bool is_whole = is_few ? has_blocks : tiles.cut(c).count() > kOwnBlocks;
  group_parts = is_whole ? 1 : ceil_div(group, kLocalStrips);
  parts_n = g * group_parts, task_n = ceil_div(strips, parts_n) * strip_n;
}

}  // namespace tegula::kernel
