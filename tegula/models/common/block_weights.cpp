// Checks the scales of weights in blocks.
#include <atomic>

#include "tegula/models/checkpoint.h"

namespace tegula {

namespace {
// Is a half an infinity or a NaN?
bool is_wrong(const uint8_t* half) { return (half[1] & 0x7c) == 0x7c; }

// The first block of a row whose scale or min is no number, or -1.
int64_t wrong_block(const BlockLayout& layout, const uint8_t* row, int64_t n_bytes) {
  for (int64_t at = 0; at < n_bytes; at += layout.n_bytes)
    for (const int half : layout.halves)
      if (half >= 0 && is_wrong(row + at + half)) return at / layout.n_bytes;
  return -1;
}
}  // namespace

Status check_blocks(const StoredTensor& stored, ThreadPool& pool) {
  constexpr int64_t kRows = 64;
  const BlockLayout& layout = layout_of(*stored.format);
  const int64_t n = stored.n_rows(), bytes = stored.rows.shape[1];
  std::atomic<int64_t> first{n};
  pool.parallel_for((n + kRows - 1) / kRows, [&](int64_t task, int) {
    for (int64_t i = task * kRows; i < std::min((task + 1) * kRows, n); ++i) {
      if (wrong_block(layout, stored.row(i), bytes) < 0) continue;
      int64_t known = first.load();
      while (i < known && !first.compare_exchange_weak(known, i)) {
      }
      return;
    }
  });
  if (first == n) return {};
  return invalid_argument(cat(stored.path, ": tensor ", stored.name, " has a scale that is no ",
                              "number, in block ", wrong_block(layout, stored.row(first), bytes),
                              " of row ", first.load(), " of ", n,
                              ": the file is damaged; get it anew"));
}

}  // namespace tegula
