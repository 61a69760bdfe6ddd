// A convolution over ranks by batch, channels and space, with the halos that neighbours exchange.
//
//   y[n, co, h, w] = Σ_{ci, kh, kw} x[n, ci, s·h + kh − pad, s·w + kw − pad]·k[co, ci, kh, kw]
// N·C_o·H·W outputs are dealt over batch·out·height·width ranks, the sum over C_i over `in` ranks
// more. A rank owns the rows of x that its share of H says (H_x/height of them) and lacks up to
// K − s rows of its neighbours', in all kh − s where it has both.
//   forward   halo of x; sum of y over `in`
//   backward  halo of dy's part of dx (the same rows, sent home); sum of dx over `out`; sum of the
//             filter's gradient over batch·height·width
// Seconds: halos as one message to each neighbour, sums as all-reduces at α + nβ + nγ over the
// cluster, ranks numbered with width innermost, then height, in, out, batch. [Dryden et al. 2019]
#pragma once

#include <vector>

#include "tegula/planner/collective.h"

namespace tegula::planner {

struct ConvShape {
  int64_t batch = 1, in = 1, out = 1, height = 1, width = 1;  // height, width: of x
  int64_t kernel = 1, stride = 1, pad = 0;
  double element_bytes = 4;
  int64_t out_height() const { return (height + 2 * pad - kernel) / stride + 1; }
  int64_t out_width() const { return (width + 2 * pad - kernel) / stride + 1; }
};

struct ConvSplit {
  int64_t batch = 1, out = 1, in = 1, height = 1, width = 1;
  int64_t ranks() const { return batch * out * in * height * width; }
};

struct ConvCost {
  double flops = 0;             // forward, of a rank
  double activation_bytes = 0;  // of its share of y: B·C·H·W·element over the ranks that split it
  double halo_bytes = 0;        // of x that an inner rank receives forward; as much backward
  double forward_s = 0, backward_s = 0;            // computing
  double forward_comm_s = 0, backward_comm_s = 0;  // exchanging
  double seconds() const { return forward_s + backward_s + forward_comm_s + backward_comm_s; }
};

// Errors: a split that does not divide its dim, a share of rows that is smaller than the halo, a
// number of ranks that is not the cluster's.
Result<ConvCost> price_conv(const ConvShape& conv, const ConvSplit& split,
                            const ClusterSpec& cluster);
// All splits of n ranks, the fastest first.
struct PricedConv {
  ConvSplit split;
  ConvCost cost;
};
std::vector<PricedConv> conv_splits(const ConvShape& conv, const ClusterSpec& cluster);

}  // namespace tegula::planner
