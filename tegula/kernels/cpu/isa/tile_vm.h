// One instruction of a tile program over one tile, and the copies between tensors and registers.
//
// Registers hold f32, f64 or i64 (the class of the dtype), `rows` of them `pitch` apart, in whole
// blocks of 16 elements: what lies past the end of a row is computed too, and never read.
#pragma once

#include <cstdint>

#include "tegula/tile/program.h"

namespace tegula::kernel {

// A source: `vector` reads one element per element, else one value is broadcast; each next row
// reads `row_step` elements further (0: all rows read the same).
struct TileSource {
  const void* data = nullptr;
  int64_t row_step = 0;
  bool is_vector = true;
};

struct TileOp {
  tile::Op op = tile::Op::kCopy;
  DType dtype = DType::kF32;      // of the result
  DType src_dtype = DType::kF32;  // of the first source; of the values for select
  void* dst = nullptr;
  TileSource src[3];
  int64_t rows = 1;
  int64_t n = 0;      // of a row; a multiple of 16 but for reductions
  int64_t pitch = 0;  // between rows of dst
  // Reductions: dst holds one value per row. A row in several chunks keeps its partial results in
  // `lanes` (16 elements) between the first and the last; then rows = 1.
  void* lanes = nullptr;
  bool is_first = true, is_last = true;
  // Generators: of element (r, i) the row-major index in the iteration space is
  // linear + r·linear_step + i. iota: (index / iota_weight) % iota_extent.
  int64_t linear = 0, linear_step = 0;
  int64_t iota_weight = 1, iota_extent = 1;
  int64_t imm = 0;
  double value = 0;
};

// rows × cols elements between a tensor (strides in elements, any) and a register.
struct TileCopy {
  void* tensor = nullptr;
  DType dtype = DType::kF32;
  int64_t row_stride = 0, col_stride = 1;
  void* reg = nullptr;
  int64_t pitch = 0;
  int64_t rows = 1, cols = 0;
};

}  // namespace tegula::kernel
