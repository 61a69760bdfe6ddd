// One instruction of a tile program over one tile, and the copies between tensors and registers.
//
// Registers hold f32, f64 or i64 (the class of the dtype), `rows` of them `pitch` apart, in whole
// blocks of 16 elements: what lies past the end of a row is computed too, and never read.
#pragma once

#include <cstdint>

#include "tegula/tile/schedule.h"

namespace tegula::kernel {

inline constexpr int64_t kLanesBytes = 256;

struct TileOp {
  void* dst = nullptr;
  // Element i of row r of source k is src[k][r·row_step[k] + i], or, where bit k of `scalars` is
  // set, src[k][r·row_step[k]] for all i. Any mask counts; bits past the last source say nothing.
  const void* src[tile::kMaxSources] = {};
  int64_t row_step[tile::kMaxSources] = {};
  unsigned scalars = 0;
  int64_t rows = 1;
  int64_t n = 0;      // of a row; a multiple of 16 but for reductions
  int64_t pitch = 0;  // between rows of dst
  // The next tile's memory: a line is fetched with every block, so that it is there in time.
  const char* ahead = nullptr;

  tile::Op op = tile::Op::kCopy;
  DType dtype = DType::kF32;      // of the result
  DType src_dtype = DType::kF32;  // of the first source
  // Reductions: dst holds one value per row. A row in several chunks keeps its partial results in
  // `lanes` (kLanesBytes) between the first and the last; then rows = 1.
  bool is_first = true, is_last = true;
  void* lanes = nullptr;
  // Generators: of element (r, i) the row-major index in the iteration space is
  // linear + r·linear_step + i. iota: (index / iota_weight) % iota_extent.
  int64_t linear = 0, linear_step = 0;
  int64_t iota_weight = 1, iota_extent = 1;
  int64_t imm = 0;
  double value = 0;
};
using TileFn = void (*)(const TileOp&);

// Finds the loop of an instruction; `fn` receives it.
struct TileLookup {
  const tile::MicroOp* micro = nullptr;
  unsigned scalars = 0;
  TileFn* fn = nullptr;
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
