// Shared by the ops on weights in blocks: the attribute `format`, a row's blocks, samples.
#pragma once

#include "tegula/base/block_format.h"
#include "tegula/ops/blocks.h"
#include "tegula/ops/common/elementwise.h"

namespace tegula {

inline constexpr AttrDef kFormatAttr = {"format", AttrKind::kString, true,
                                        "of blocks: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, "
                                        "IQ4_NL, IQ4_XS"};

// Error: there is no format of that name.
Result<BlockFormat> format_of(const OpCall& c);

// Operand `at` as rows of blocks. `blocks` is their number in a row.
struct BlockRows {
  BlockFormat format;
  const BlockLayout* layout;
  int64_t blocks;

  // Errors: no such format, no dims, a row that is no whole number of blocks.
  static Result<BlockRows> of(const OpCall& c, size_t at);
  int64_t k() const { return blocks * layout->n_values; }
  int64_t groups() const { return k() / layout->n_group; }
};

// The values of block b of the row at `index`, whose last entry is not looked at.
template <class S>
BlockValues load_block(const RefArgs<S>& a, size_t at, const BlockRows& rows, Index index,
                       int64_t b) {
  uint8_t bytes[256];
  const int64_t n = rows.layout->n_bytes;
  const auto last = static_cast<size_t>(a.in[at].rank - 1);
  for (int64_t j = 0; j < n; ++j) {
    index[last] = b * n + j;
    bytes[j] = static_cast<uint8_t>(a.load_i_at(at, index));
  }
  BlockValues v;
  unpack_block(rows.format, bytes, v);
  return v;
}

// Blocks with every kind of bits, but for scales that are no numbers.
SampleInput sample_blocks(BlockFormat format, const Shape& lead, int64_t blocks);

}  // namespace tegula
