// The cut of a contraction's k into blocks that stay in cache, and the way of their partial sums
// through the tree of shards: sizes only, never bits.
#pragma once

#include <cstdint>

namespace tegula::kernel {

// The work on the chains of one piece of k. Slots are tiles of partial sums.
struct Piece {
  int64_t k = 0;
  int start = -1;  // the slot that holds the chain so far; -1: it starts from 0
  int n_merge = 0;
  int merge[3] = {};  // slots added to the finished chain, in this order
  int dst = -1;       // the slot it goes to; -1: it is final
};
inline constexpr int kMaxSlots = 4;  // three levels of a tree of 8, one chain cut in pieces

// One block: [k0, k0 + n_k). Slot l is level l of the shard tree; the last slot holds a chain that
// goes on in the next block.
struct KBlock {
  int64_t k0 = 0, n_k = 0;
  bool is_last = false;
  int n_pieces = 0;
  Piece pieces[8];
};

// In any unit of k (dot_packed: elements, dot_amx: tiles of 32). Blocks are pieces of one shard, or
// groups of whole shards.
struct KBlocks {
  int64_t n_shards = 1;
  int64_t shard_k = 0;
  int64_t n_pieces = 1;  // per shard
  int64_t piece_k = 0;   // the last piece of a shard may be shorter
  int64_t group = 1;     // shards per block, a power of two; 1 where n_pieces > 1

  KBlocks(int64_t n_shards, int64_t shard_k, int64_t most_k);
  int64_t total() const { return n_shards * shard_k; }
  int64_t count() const { return n_shards * n_pieces / group; }
  // `goes_on`: every chain starts from the sums in the last slot.
  KBlock at(int64_t block, bool goes_on = false) const;
  // Partial sums that wait in the shard tree: the lowest levels within a block, the others between
  // blocks (with one more for a chain cut into pieces), as so many tiles.
  int local_levels() const { return log2(group); }
  int slots() const {
    return count() == 1 ? 0 : log2(n_shards) - log2(group) + (n_pieces > 1 ? 1 : 0);
  }

 private:
  static int log2(int64_t n) { return n <= 1 ? 0 : 1 + log2(n / 2); }
  int64_t start(int64_t block) const;
};

}  // namespace tegula::kernel
