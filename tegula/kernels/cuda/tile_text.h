// A tile program as CUDA C++: one kernel, `tile_program`, whose instructions are calls of
// tile_math.cuh. Its f32 values have the bits of the CPU's interpreter: the same polynomials, order
// "lane16", every instruction rounded to its dtype, multiply-add only where the program says fma.
//
// An elementwise kernel's threads take `vector` elements at once, in grid strides. A kernel of rows
// has 16 threads a row; see tile_layout.h. The kernel is passed one struct of 8-byte words:
// pointers, extents and strides, so one text serves all sizes of a layout, but for rows that are
// kept in registers, whose length in steps of 16 is part of it.
#pragma once

#include <string>
#include <vector>

#include "tegula/kernels/cuda/tile_layout.h"

namespace tegula::cuda {

//
// Calls of one text that need not wait for each other may be one launch, of kJoinedEntry: their
// structs one after another (joined.cuh). A program with column outputs has none.
inline constexpr const char* kTileEntry = "tile_program";
inline constexpr const char* kJoinedEntry = "tile_programs";
// Compile its text with these: denormals are flushed as the CPU flushes them, and a lambda runs
// where its function does.
inline constexpr std::string_view kTileFlags[] = {"--ftz=true",
                                                  "--device-as-default-execution-space"};

std::string tile_text(const tile::Program& p, const TileCall& call);

}  // namespace tegula::cuda
