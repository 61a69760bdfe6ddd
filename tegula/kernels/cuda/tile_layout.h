// How the operands of a tile program lie in one call, as far as the text of its kernel depends on
// it, and the numbers that the kernel is passed.
//
// Dims of the iteration space that every operand walks as if they were one are merged; what is left
// is the kernel's. An elementwise program has `n_inner` such dims, and a thread takes `vector`
// elements along the last; a program of rows has outer and inner dims, and 16 threads take a row,
// each every sixteenth element, in order "lane16" (tile/program.h).
//   along   the 16 are neighbours, for rows that lie along memory
//   across  neighbours have the same lane of neighbouring rows, for rows that lie across it
// What crosses a reduction stays in registers, in shared memory, or is made again.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tegula/base/tensor.h"
#include "tegula/kernels/target.h"
#include "tegula/tile/space.h"

namespace tegula::cuda {

// How an operand is walked along the innermost dim.
enum class TileAccess : uint8_t {
  kOne,      // one element, whatever the position: uniform operands
  kRow,      // one per row
  kSame,     // stride 0 over the elements a thread takes at once
  kVector,   // stride 1; elementwise: aligned for whole vectors
  kStrided,  // any stride
};

enum class TileKeep : uint8_t { kNothing, kRegisters, kShared, kStreamed };

struct TileLayout {
  bool is_rows = false;
  bool is_wide = false;          // positions need 64 bits
  int n_outer = 0, n_inner = 0;  // merged dims
  int vector = 1;                // elements that a thread takes at once
  bool is_across = false;
  int rows_per_block = 1;
  int n_threads = 256;
  TileKeep keep = TileKeep::kNothing;
  // kRegisters: steps of 16 elements in a row, and whether the last is whole.
  int row_steps = 0;
  bool is_whole = false;
  std::vector<TileAccess> access;  // inputs, then outputs
  friend bool operator==(const TileLayout&, const TileLayout&) = default;
  // All of it in a line: with the program's text, the signature of a kernel.
  std::string key() const;
};

// A parameter of the kernel: a word of 8 bytes, `type name` in the text.
struct TileParam {
  std::string type, name;
  uint64_t value = 0;
};

struct TileCall {
  TileLayout layout;
  std::vector<TileParam> params;
  int64_t n_blocks = 0;  // 0: there is nothing to do
  int smem_bytes = 0;
  int most_smem_bytes = 0;  // of any call of this layout
};

// The name of a dtype in tile_types.cuh.
std::string_view tile_dtype(DType t);

// Of a sealed program. Errors: those of space_of; unsupported where a grid has too few blocks.
Result<TileCall> tile_call(const tile::Program& p, std::span<const TensorRef> in,
                           std::span<const TensorRef> out, const Target& target);

}  // namespace tegula::cuda
