#include "tegula/kernels/cpu/common/dot_plan.h"

#include <algorithm>

namespace tegula::kernel {

namespace {
// Below this a task costs less than handing it out is worth.
constexpr int64_t kMinTaskFlops = 1 << 20;
constexpr int64_t kTasksPerThread = 4;

int64_t a_panel_floats(int64_t m, int64_t k, int tile_m) {
  return m * k + ceil_div(m, tile_m) * kPanelSlack;
}
}  // namespace

KBlocks::KBlocks(const Contraction& c) : shard_k(c.shard_k()), n_shards(c.k_shards) {
  n_pieces = std::max<int64_t>(1, ceil_div(shard_k, kBlockK));
  piece_k = ceil_div(shard_k, n_pieces);
  if (n_pieces == 1)
    while (group < n_shards && 2 * group * shard_k <= kBlockK) group *= 2;
}

DotWorkspace::DotWorkspace(const Contraction& c) {
  const int64_t k = std::max<int64_t>(1, c.k.count), m = c.m.count, n = c.n.count,
                batch = c.batch.count;
  const KBlocks blocks(c);
  // Smallest tile: 4 rows, hence the most panels and the most slack.
  const int64_t a_least = a_panel_floats(std::min(m, kBlockM), k, 4);
  a_floats = std::min(batch * a_panel_floats(m, k, 4), std::max(a_least, kPanelFloats));
  if (!packs_b_locally(c)) {
    const int64_t n_cols = round_up(n, kMaxTileN);
    b_floats = std::min(batch * n_cols * k, std::max(std::min(n_cols, kBlockN) * k, kPanelFloats));
  }
  thread_floats = local_b_floats(c, kMaxTileN) + blocks.slots() *
                                                     std::min(m + kMaxTileM - 1, kBlockM) *
                                                     std::min(round_up(n, kMaxTileN), kBlockN);
  a_floats = round_up(a_floats, 16), b_floats = round_up(b_floats, 16);
  thread_floats = round_up(thread_floats, 16);
}

DotBlocks::DotBlocks(const Contraction& c, const DotWorkspace& w, int tile_m, int tile_n,
                     int n_threads) {
  const int64_t k = std::max<int64_t>(1, c.k.count);
  const int64_t a_need = a_panel_floats(c.m.count, k, tile_m);
  const int64_t b_need = packs_b_locally(c) ? 0 : round_up(c.n.count, tile_n) * k;
  batch = std::min(c.batch.count, w.a_floats / a_need);
  if (b_need > 0) batch = std::min(batch, w.b_floats / b_need);
  m = c.m.count, n = c.n.count;
  if (batch == 0) {
    batch = 1;
    m = std::min(m, w.a_floats / (tile_m * k + kPanelSlack) * tile_m);
    if (b_need > 0) n = std::min(n, w.b_floats / (tile_n * k) * tile_n);
  }
  const auto even = [](int64_t extent, int64_t most, int64_t tile) {
    return round_up(ceil_div(extent, ceil_div(extent, most)), tile);
  };
  task_m = even(m, kBlockM, tile_m);
  task_n = even(n, kBlockN, tile_n);
  const auto tasks = [&] { return batch * ceil_div(m, task_m) * ceil_div(n, task_n); };
  while (tasks() < kTasksPerThread * n_threads && task_m * task_n * k > kMinTaskFlops) {
    if (task_n >= task_m && task_n > tile_n) {
      task_n = round_up(task_n / 2, tile_n);
    } else if (!packs_b_locally(c) && task_m > tile_m) {
      task_m = round_up(task_m / 2, tile_m);
    } else if (task_n > tile_n) {
      task_n = round_up(task_n / 2, tile_n);
    } else {
      break;
    }
  }
}

}  // namespace tegula::kernel
