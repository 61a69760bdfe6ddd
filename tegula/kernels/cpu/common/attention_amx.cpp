#include "tegula/kernels/cpu/common/attention_amx.h"

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/grid_tasks.h"

namespace tegula::kernel {

bool amx_attends(const AttentionCall& c) {
  return c.q->dtype == DType::kBF16 && !c.has_extras() && c.dropout == 0 && c.scale > 0;
}

AmxAttentionWorkspace::AmxAttentionWorkspace(const AttentionCall& c, bool is_backward) {
  const int64_t d = amx_tiles(c.d), dv = amx_tiles(c.dv), keys = amx_tiles(c.n_k);
  constexpr int64_t kRows = kAmxRowBlock / 32, kKeys = kAmxKeyBlock / 32;
  constexpr int64_t kBf16 = 2048, kF32 = 4096;  // a block of 32 × 32
  if (!is_backward) {
    pairs_ = (c.page > 0 ? 1 : c.batch) * c.n_kv_heads;
    pair_panels_ = keys * amx_key_bytes(c);
    thread_bytes = kRows * (d * kBf16 + dv * kF32) + 2 * kAmxKeyChunk / 32 * (kF32 + kBf16) + kF32;
  } else {
    keys_bytes_ = keys * (2 * d + dv) * kBf16 + keys * (d + dv) * kF32;  // k, kᵀ, v; dk, dv
    dq_bytes_ = kRows * d * kF32;
    row_blocks_ = std::max<int64_t>(1, (c.n_q * c.group + kAmxRowBlock - 1) / kAmxRowBlock);
    thread_bytes = kRows * (2 * d + 3 * dv) * kBf16;       // q, do, o
    thread_bytes += kRows * kKeys * 3 * kBf16 + 2 * kF32;  // p, ds; scores
    grid_ints_ = GridTasks::state_ints(c.batch * c.n_kv_heads);
  }
}

}  // namespace tegula::kernel
