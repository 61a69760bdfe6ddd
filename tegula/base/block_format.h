// Block formats: rows of weights in blocks of a few bits a value, as GGUF files keep them.
//
// A row of n values is n / n_values blocks, one behind the other; each block is cut into groups of
// `n_group` values with one scale and one min:
//   w = scale · q + min        q a whole number of 8 bits
// scale and min are f32: the product of what the block holds (a half, and of K formats a whole
// number of 4 to 8 bits), rounded once. w is the product rounded, then the sum rounded; formats
// without a min add nothing. Bits of a block, all little endian (h: IEEE half):
//   Q8_0    h d; i8 q[32]                                            scale d
//   Q4_0    h d; 32 × 4 bits                                         scale d, q - 8
//   Q4_1    h d, m; 32 × 4 bits                                      scale d, min m
//   Q5_0    h d; u32 high bits; 32 × 4 bits                          scale d, q - 16
//   Q5_1    h d, m; u32 high bits; 32 × 4 bits                       scale d, min m
//   Q2_K    16 × (4 bits s, 4 bits m); 256 × 2 bits; h d, dmin       scale d·s, min -(dmin·m)
//   Q3_K    256 high bits; 256 × 2 bits; 16 × 6 bits s; h d          scale d·(s - 32), q - 4
//   Q4_K    h d, dmin; 8 × (6 bits s, 6 bits m); 256 × 4 bits        scale d·s, min -(dmin·m)
//   Q5_K    h d, dmin; 8 × (6 bits s, 6 bits m); 256 high bits; 256 × 4 bits   likewise
//   Q6_K    256 × 4 bits; 256 × 2 bits; 16 × i8 s; h d               scale d·s, q - 32
//   IQ4_NL  h d; 32 × 4 bits                                         scale d, q of a table of 16
//   IQ4_XS  h d; 8 × 6 bits s; 256 × 4 bits                          scale d·(s - 32), likewise
// Source: the GGUF project's description of its tensor types.
#pragma once

#include <cstdint>
#include <string_view>

namespace tegula {

// Spelt as the files' own documents do: the underscore tells Q4_1 from a Q41.
// NOLINTBEGIN(readability-identifier-naming)
enum class BlockFormat : uint8_t {
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
};
// NOLINTEND(readability-identifier-naming)
inline constexpr int kBlockFormats = 12;
inline constexpr int kMostBlockValues = 256, kMostBlockGroups = 16;

struct BlockLayout {
  std::string_view name;  // "Q4_K"
  int n_values;           // of a block: 32 or 256
  int n_bytes;            // of a block
  int n_group;            // values of a group: 16 or 32
  bool has_min;
  int halves[2];  // where d and dmin (or m) lie; -1: there is no second one
};
const BlockLayout& layout_of(BlockFormat format);
// By its name; false: there is none of that name.
bool find_block_format(std::string_view name, BlockFormat& found);

struct BlockValues {
  int8_t q[kMostBlockValues];
  float scale[kMostBlockGroups], min[kMostBlockGroups];
};
// min is 0 where the format has none.
void unpack_block(BlockFormat format, const uint8_t* block, BlockValues& to);
// n values of a row, a multiple of the block's.
void dequantise_blocks(BlockFormat format, const uint8_t* row, int64_t n, float* to);

}  // namespace tegula
