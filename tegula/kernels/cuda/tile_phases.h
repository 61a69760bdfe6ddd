// A tile program in phases, as its kernel on the device runs it: phase l begins with the values of
// rows that need reductions of earlier phases only, then walks the row and makes what its own
// reductions and stores need. An elementwise program is one phase. All full stores are in one
// phase, the last that walks, after every load of an element: so an output may lie on an input.
#pragma once

#include <vector>

#include "tegula/tile/program.h"

namespace tegula::cuda {

struct TilePhase {
  // Numbers of instructions, in the program's order.
  std::vector<uint16_t> row;      // per row or launch
  std::vector<uint16_t> read;     // kept by an earlier phase
  std::vector<uint16_t> body;     // per element
  std::vector<uint16_t> reduced;  // reductions that the walk makes
  std::vector<uint16_t> stores;   // of full outputs
  std::vector<uint16_t> sums;     // of column outputs; where the stores are
  bool walks() const { return !reduced.empty() || !stores.empty() || !sums.empty(); }
};

struct TilePhases {
  std::vector<TilePhase> phases;
  std::vector<uint16_t> kept;        // values that a phase makes and a later one reads
  std::vector<uint16_t> row_stores;  // after the last phase
  int kept_words = 0;                // registers per element at most at once, of 4 bytes
  int live_words = 0;                // registers per element that a body needs at least
  int work = 0;                      // instructions of the machine per element, roughly
};

// The phases of a sealed program. keep: what crosses a reduction is kept, else made again. early:
// the first phase loads for all, so that none waits for memory again.
TilePhases tile_phases(const tile::Program& p, bool keep, bool early = false);

}  // namespace tegula::cuda
