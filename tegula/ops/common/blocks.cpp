#include "tegula/ops/common/blocks.h"

namespace tegula {

Result<BlockFormat> format_of(const OpCall& c) {
  BlockFormat found;
  const std::string& name = c.attrs->str("format");
  if (find_block_format(name, found)) return found;
  return invalid_argument(cat(c.op->name, ": there are no blocks of format '", name, "'"));
}

Result<BlockRows> BlockRows::of(const OpCall& c, size_t at) {
  const BlockFormat format = TEGULA_TRY(format_of(c));
  const BlockLayout& layout = layout_of(format);
  if (c.in.size() <= at || c.shape(at).rank() == 0)
    return invalid_argument(cat(c.op->name, ": operand ", at, " must be rows of blocks"));
  const Dim last = c.shape(at)[c.shape(at).rank() - 1];
  if (!last.is_const() || last.bound() % layout.n_bytes != 0)
    return invalid_argument(cat(c.op->name, ": rows of ", c.in[at], " are no whole number of ",
                                layout.name, " blocks of ", layout.n_bytes, " bytes"));
  return BlockRows{format, &layout, last.bound() / layout.n_bytes};
}

SampleInput sample_blocks(BlockFormat format, const Shape& lead, int64_t blocks) {
  const BlockLayout& layout = layout_of(format);
  int64_t rows = 1;
  for (int d = 0; d < lead.rank(); ++d) rows *= lead[d].bound();
  std::vector<double> bytes;
  uint64_t state = 17 + static_cast<uint64_t>(format);
  for (int64_t i = 0; i < rows * blocks; ++i) {
    std::vector<uint8_t> block(static_cast<size_t>(layout.n_bytes));
    for (uint8_t& b : block) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      b = static_cast<uint8_t>(state >> 56);
    }
    // Halves between 2^-8 and 2^-4, of either sign.
    for (const int at : layout.halves) {
      if (at < 0) continue;
      uint8_t& high = block[static_cast<size_t>(at) + 1];
      high = static_cast<uint8_t>((high & 0x8f) | 0x20);
    }
    bytes.insert(bytes.end(), block.begin(), block.end());
  }
  Shape shape = lead;
  shape.push_back(Dim(blocks * layout.n_bytes));
  return SampleInput({DType::kU8, shape}, 0, 255, std::move(bytes), false);
}

}  // namespace tegula
