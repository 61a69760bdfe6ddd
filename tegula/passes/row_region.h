// RowRegion: a feed-forward block found in a function, as sets of nodes that go over rows (tokens)
// independently of each other, or sum over them.
//
// Which dims of an operand are rows is read off the ops' DimMaps: there is no list of feed-forward
// forms here. Around a product that makes wide rows narrow, the region takes in what is *wide* (has
// the same rows, and more per row than the product's result): back through elementwise ops to the
// products that made it, and in the backward part everything that reads or makes something wide.
// Sums over rows (gradients of weights) belong to it. What is narrow and read by nobody else (the
// norm's result) goes in too, as do a bias and the residual stream behind the product.
#pragma once

#include <vector>

#include "tegula/passes/pass.h"

namespace tegula {

// A block of fewer rows is not worth its loop (blockwise.cpp).
inline constexpr int64_t kLeastBlockRows = 16;

// How a node goes over the rows of a region.
enum class RowUse : uint8_t {
  kNone,  // neither of these
  kEach,  // every result row from the same row of the operands
  kSum,   // its one result sums over the rows of the operands
};

struct RowRegion {
  Shape rows;                    // extents of the leading dims that are rows
  std::vector<NodeId> forward;   // ascending
  std::vector<NodeId> backward;  // ascending; empty in inference
  std::vector<uint8_t> in;       // per node of the function: kOutside, …
  static constexpr uint8_t kOutside = 0, kForward = 1, kBackward = 2;
  int64_t wide_bytes = 0;  // of one wide value, the largest
  int64_t n_rows() const { return rows.numel(); }
};

// How node n goes over rows of these extents, and which operands hold rows (the others are the same
// for all of them).
RowUse row_use(const Module& module, const Function& f, const Node& n, const Shape& rows,
               std::vector<uint8_t>* has_rows);

// The region around the product n (x wide -> narrow), if there is one: nothing wide is read outside
// it, and no path leaves it and comes back.
bool find_row_region(const Module& module, const Function& f, NodeId n, RowRegion* region);

}  // namespace tegula
