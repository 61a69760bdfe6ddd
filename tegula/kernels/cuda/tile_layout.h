// How the operands of a tile program lie in one call, as far as the text of its kernel depends on
// it, and the numbers that the kernel is passed.
//
// Dims of the iteration space that every operand walks as if they were one are merged; what is left
// is the kernel's. An elementwise program has `n_inner` such dims, and a thread takes `vector`
// elements along the last; a program of rows has outer and inner dims. Sums run in order "lane16"
// (tile/program.h), whose 16 chains a row are all the parallelism that it has:
//   along   16 neighbours take a row, each every sixteenth element, for rows that lie along memory
//   across  the same, but neighbours have the same lane of neighbouring rows that lie across it
//   block   all threads of a block make a row's elements, and 16 of them add up what the others
//           leave in shared memory: for long rows, and where there are few
// What crosses a reduction stays in registers, or is made again.
//
// A program with column outputs has fewer blocks than rows, and each goes on from row to row: block
// b adds up part b of the columns, in registers (rows in steps of all blocks' rows), and what the
// rows of a block have is added in their order. Without reductions it is laid out
//   columns 32 neighbours take `vector` columns each, and 8 such groups every eighth row
// How many parts there are depends on the number of rows alone.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tegula/base/algorithm.h"
#include "tegula/base/tensor.h"
#include "tegula/kernels/cuda/tile_phases.h"
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
  kGiven,    // what an epilogue is handed: the product (dot_fused_text.h)
};

enum class TileKeep : uint8_t { kNothing, kRegisters, kStreamed };

struct TileLayout {
  bool is_rows = false;
  bool is_wide = false;          // positions need 64 bits
  int n_outer = 0, n_inner = 0;  // merged dims
  int vector = 1;                // elements that a thread takes at once
  bool is_across = false;
  int n_columns = 0;        // outputs that are sums of columns
  bool is_columns = false;  // see above
  int threads_per_row = 16;
  int rows_per_block = 1;
  int n_threads = 256;
  TileKeep keep = TileKeep::kNothing;
  // kRegisters: steps of threads_per_row elements, enough for a row; whether they are just a row.
  int row_steps = 0;
  bool is_whole = false;
  bool is_early = false;           // all is loaded before the first reduction
  bool is_ahead = false;           // of column sums: the next row is, too
  std::vector<TileAccess> access;  // inputs, then outputs
  // In an elementwise program of several dims: the first operand with the same strides, whose
  // offsets are this one's, too.
  std::vector<uint8_t> like;
  // A row's summed values: one is written while the other is read, if there are two.
  int chunks_at_once() const { return row_steps > 0 && row_steps <= vector ? 1 : 2; }
  bool is_block() const { return threads_per_row > 16; }
  size_t strides_of(size_t operand) const { return like.empty() ? operand : like[operand]; }
  friend bool operator==(const TileLayout&, const TileLayout&) = default;
  // All of it in a line: with the program's text, the signature of a kernel.
  std::string key() const;
};

// A parameter of the kernel: a word of 8 bytes, `type name` in the text.
struct TileParam {
  std::string type, name;
  uint64_t value = 0;
  bool is_constant = false;  // of the text, and none of the words that are passed
};

struct TileCall {
  TileLayout layout;
  std::vector<TileParam> params;
  int64_t n_blocks = 0;  // 0: there is nothing to do
  // Each column output has so many rows of f32, in memory that the caller gives by setting
  // params[inputs + output].
  int64_t n_parts = 0;
};

// The parts of one column output, at most.
inline constexpr int64_t kMostColumnParts = 512;

// The bytes of one's parts: memory apart from another's.
inline int64_t column_parts_bytes(const tile::Space& s) {
  return std::min(kMostColumnParts, s.n_rows) * s.row_len * 4;
}

// Shared memory for what a block's threads leave for its sums: two chunks of a phase's.
int64_t tile_room_bytes(const tile::Program& p, const TilePhases& phases, const TileLayout& l);

// The name of a dtype in tile_types.cuh.
std::string_view tile_dtype(DType t);

// The call of a sealed program. block: threads of a block that makes all rows itself, one after
// another (tile_prologue_text.h); 0: blocks share them. Errors: those of space_of; unsupported
// where a grid has too few blocks, or that one has no room.
Result<TileCall> tile_call(const tile::Program& p, std::span<const TensorRef> in,
                           std::span<const TensorRef> out, const Target& target, int block = 0);

}  // namespace tegula::cuda
