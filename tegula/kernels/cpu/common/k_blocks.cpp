#include "tegula/kernels/cpu/common/k_blocks.h"

#include "tegula/base/algorithm.h"

namespace tegula::kernel {

KBlocks::KBlocks(int64_t n_shards, int64_t shard_k, int64_t most_k)
    : n_shards(n_shards), shard_k(shard_k) {
  n_pieces = std::max<int64_t>(1, (shard_k + most_k - 1) / most_k);
  piece_k = (shard_k + n_pieces - 1) / n_pieces;
  if (n_pieces == 1)
    while (group < n_shards && 2 * group * shard_k <= most_k) group *= 2;
}

int64_t KBlocks::start(int64_t block) const {
  if (n_pieces == 1) return block * group * shard_k;
  return block / n_pieces * shard_k + std::min(block % n_pieces * piece_k, shard_k);
}

KBlock KBlocks::at(int64_t block, bool goes_on) const {
  constexpr int kChainSlot = kMaxSlots - 1;
  KBlock b;
  b.k0 = start(block), b.n_k = start(block + 1) - b.k0;
  b.is_last = block + 1 == count();
  const int64_t part = block % n_pieces;
  for (int64_t i = 0; i < group; ++i) {
    Piece& p = b.pieces[b.n_pieces++];
    p.k = b.n_k / group;
    if (part > 0 || goes_on) p.start = kChainSlot;
    if (part + 1 < n_pieces) {
      p.dst = kChainSlot;
      continue;
    }
    const int64_t shard = block / n_pieces * group + i;
    int level = 0;
    for (; (shard >> level & 1) != 0; ++level) p.merge[p.n_merge++] = level;
    p.dst = shard + 1 == n_shards ? -1 : level;
  }
  return b;
}

}  // namespace tegula::kernel
