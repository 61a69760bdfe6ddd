// Schedule: the order and the registers in which the CPU interpreter runs a program.
//
// A program with reductions runs in *phases*. Phase l starts with the row code of level l (it needs
// reductions of earlier phases only), then its body runs over the row in chunks and ends the
// reductions of level l. All full stores are in the last body, after every load of a tile. The last
// phase's body may be empty. An elementwise program is one phase without row code.
//
// A value of one body that a later one needs either stays in a row-sized buffer (home kLong) or is
// made again (streamed). Loads, iota and index are always made again: they cost as much as a copy.
#pragma once

#include <vector>

#include "tegula/tile/program.h"

namespace tegula::tile {

// Where a register lives, and so how long it is.
enum class Home : uint8_t {
  kUniform,  // one value per launch
  kRow,      // one value per row of the tile
  kTile,     // one per element of the chunk
  kLong,     // one per element of the row
};

struct Slot {
  Home home = Home::kTile;
  uint8_t size_bytes = 4;  // of an element
  // Bytes per element (kTile, kLong: add up over the home), or the slot's number (kUniform, kRow).
  int32_t offset = 0;
};

inline constexpr int kMaxSources = 4;

// One loop of the interpreter: an instruction, or a pair of which the first serves the second only
// (the loop spares a store and a load; each still rounds by itself):
//   x op y, then that with z (add, sub, mul, div; reversed: z with that), all in f32
//   x·y + z·w, x·y - z·w                    min(max(x, y), z), max(min(x, y), z)
//   select(x op y, z, w) with a compare     exp(x - y)     reduce_sum(x · y)     reduce_max(|x|)
//   reduce_sum(x as a 64-bit integer)
struct MicroOp {
  Op op = Op::kCopy;
  Op then = Op::kCopy;            // kCopy: there is no second
  bool then_reversed = false;     // the first's result is the second's second source
  bool is_two_products = false;   // then(x·y, z·w)
  DType dtype = DType::kF32;      // to round to
  DType src_dtype = DType::kF32;  // of the first source, or of the value stored
  Extent extent = Extent::kFull;  // what it runs over; for a reduction kFull
  uint16_t dst = kNoValue;        // slots
  uint16_t src[kMaxSources] = {kNoValue, kNoValue, kNoValue, kNoValue};
  Extent src_extent[kMaxSources] = {};
  int64_t imm = 0;
  double value = 0;
  int16_t reduction = -1;     // number of a reduction's accumulator
  int16_t early_output = -1;  // an output whose memory may serve as dst (same dtype, stored later)
  bool may_point = false;     // a load whose register may be the operand's own memory
};

struct Phase {
  std::vector<MicroOp> row, body;
  int64_t row_flops = 0, body_flops = 0;  // per row, per element
};

struct Schedule {
  std::vector<MicroOp> uniform;
  std::vector<Phase> phases;
  std::vector<Slot> slots;
  int n_uniform_slots = 0, n_row_slots = 0, n_reductions = 0;
  int tile_bytes = 0, long_bytes = 0;  // per element
  // Position in the last body of the last use of each input's value; -1: none.
  std::vector<int> last_use;
  // Counts of the program, each value counted once.
  int64_t uniform_flops = 0, row_flops = 0, full_flops = 0;
};

// The schedule of a verified program.
Schedule make_schedule(const Program& p, bool keep_across_phases);

}  // namespace tegula::tile
