#include "tegula/kernels/cpu/common/dot_amx_plan.h"

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/dot_thin_plan.h"

namespace tegula::kernel {

namespace {
// Below this a task costs less than handing it out is worth.
constexpr int64_t kMinTaskFlops = 1 << 23;
constexpr int64_t kTasksPerThread = 4;
constexpr int64_t kOwnTasksPerThread = 16;
constexpr int64_t kOwnLeastM = 256;  // rows over which a block of b is packed while they last
}  // namespace

AmxDotWorkspace::AmxDotWorkspace(const Contraction& c) {
  const KBlocks blocks = amx_cut(c);
  const int64_t strip = std::max<int64_t>(1, blocks.total()) * kAmxStripBytes;
  const auto panels = [&](int64_t extent, int64_t block) {
    const int64_t least = ceil_div(std::min(extent, block), kAmxStrip) * strip;
    const int64_t all = c.batch.count * ceil_div(extent, kAmxStrip) * strip;
    return std::min(all, std::max(least, kAmxPanelBytes));
  };
  a_bytes = panels(c.m.count, kAmxBlockM);
  if (!amx_packs_b_locally(c)) b_bytes = panels(c.n.count, kAmxBlockN);
  thread_bytes = std::min(blocks.total(), kAmxBlockTiles) * kAmxStripBytes;
  const auto waiting = [&](const KBlocks& cut, int64_t most_m) {  // sums of a strip of b
    return cut.slots() * 4 * kAmxStrip * round_up(std::min(c.m.count, most_m), kAmxStrip);
  };
  const int64_t strips = blocks.count() <= amx_pass_blocks(blocks)
                             ? 1
                             : ceil_div(std::min(c.n.count, kAmxBlockN), kAmxStrip);
  thread_bytes += waiting(blocks, kAmxBlockM) * strips;
  own_bytes = 64 + 2 * kAmxOwnTiles * kAmxStripBytes + waiting(amx_own_cut(c), kAmxOwnM);
}

int64_t amx_dot_bytes(const Contraction& c, int n_threads) {
  Contraction few = c;
  few.m.count = std::min<int64_t>(c.m.count, kThinRows);
  return std::max(AmxDotWorkspace(c).bytes(n_threads), thin_bytes(few, {}));
}

AmxDotBlocks::AmxDotBlocks(const Contraction& c, const AmxDotWorkspace& w, bool is_own,
                           int n_threads) {
  const int64_t tiles = std::max<int64_t>(1, amx_cut(c).total());
  const int64_t strip = tiles * kAmxStripBytes;
  const bool local_b = is_own || amx_packs_b_locally(c);
  const int64_t a_need = ceil_div(c.m.count, kAmxStrip) * strip;
  const int64_t b_need = ceil_div(c.n.count, kAmxStrip) * strip;
  batch = std::min(c.batch.count, w.a_bytes / a_need);
  if (!local_b) batch = std::min(batch, w.b_bytes / b_need);
  m = c.m.count, n = c.n.count;
  if (batch == 0) {
    batch = 1;
    m = std::min(m, w.a_bytes / strip * kAmxStrip);
    if (!local_b) n = std::min(n, w.b_bytes / strip * kAmxStrip);
  }
  const int64_t most_m = kAmxOwnBytes / strip * kAmxStrip;
  task_m =
      even_part(m, is_own ? std::clamp(most_m, kOwnLeastM / 2, kAmxOwnM) : kAmxBlockM, kAmxStrip);
  task_n = even_part(n, kAmxBlockN, kAmxStrip);
  const auto tasks = [&] { return batch * ceil_div(m, task_m) * ceil_div(n, task_n); };
  const int64_t least = (is_own ? kOwnTasksPerThread : kTasksPerThread) * n_threads;
  const auto narrows = [&] {
    if (is_own) return task_n >= task_m || task_m <= kOwnLeastM;
    return local_b || task_n >= task_m;
  };
  while (tasks() < least && 64 * task_m * task_n * tiles > kMinTaskFlops) {
    if (task_n > kAmxStrip && narrows()) {
      task_n = round_up(task_n / 2, kAmxStrip);
    } else if ((is_own || !local_b) && task_m > kAmxStrip) {
      task_m = round_up(task_m / 2, kAmxStrip);
    } else {
      break;
    }
  }
}

}  // namespace tegula::kernel
