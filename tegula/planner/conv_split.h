// A convolution over the axes of a mesh, each of which cuts its batch, its channels or its space,
// with the halos that neighbours exchange and the sums that ranks share.
//
//   y[n, co, h, w] = Σ_{ci, kh, kw} x[n, ci, s·h + kh − pad, s·w + kw − pad]·k[co, ci, kh, kw]
// N·C_o·H·W outputs are dealt over batch·out·height·width ranks, the sum over C_i over `in` ranks
// more. A rank owns the rows of x that its share of H strides over, S = s·H/height of them, and
// lacks `pad` rows of the neighbour before it and K − s − pad of the one behind it.
//   forward   halo of x; sum of y over `in`
//   backward  halo of dx, the same rows sent home; sum of dx over `out`; sum of the filter's
//             gradient over batch, height and width
// A product Y [M, P] = X [M, N]·W [N, P] is the convolution of one element: batch M, in N, out P.
// Its splits are (i, j) by batch and out, (i, k) by batch and in. [Dryden et al. 2019] Seconds:
// halos as one message from each neighbour, sums as all-reduces at α + nβ + nγ along one axis after
// another; ranks lie on the cluster as the mesh says, its last axis on neighbours.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tegula/planner/reshard.h"

namespace tegula::planner {

enum class ConvDim : uint8_t { kBatch, kOut, kIn, kHeight, kWidth };
inline constexpr ConvDim kConvDims[] = {ConvDim::kBatch, ConvDim::kOut, ConvDim::kIn,
                                        ConvDim::kHeight, ConvDim::kWidth};
std::string_view conv_dim_name(ConvDim dim);  // "batch"

struct ConvShape {
  int64_t batch = 1, in = 1, out = 1, height = 1, width = 1;  // height, width: of x
  int64_t kernel = 1, stride = 1, pad = 0;
  double element_bytes = 4;
  int64_t out_height() const { return (height + 2 * pad - kernel) / stride + 1; }
  int64_t out_width() const { return (width + 2 * pad - kernel) / stride + 1; }
};
// "batch=32,in=64,out=128,height=56,width=56,kernel=3,stride=1,pad=1", what is left out being 1
// (pad 0). Errors: the key or the number; a kernel that is larger than what it slides over.
Result<ConvShape> parse_conv(std::string_view text);

// For each axis of a mesh the dim that it cuts.
using ConvSplit = std::vector<ConvDim>;
int64_t parts_of(const Mesh& mesh, const ConvSplit& split, ConvDim dim);
std::string to_text(const Mesh& mesh, const ConvSplit& split);  // "batch=rows height=cols"
// "batch=rows,height=cols": the axes that are settled. Errors: no such dim or axis.
Result<std::vector<std::optional<ConvDim>>> parse_conv_layout(const Mesh& mesh,
                                                              std::string_view text);

struct ConvCost {
  double flops = 0;                                   // forward, of a rank
  double x_bytes = 0, y_bytes = 0, filter_bytes = 0;  // of a rank's shares; y: B·C·H·W·element
  double halo_bytes = 0;        // of x that the rank with most neighbours receives forward; as much
                                // backward
  double y_sum_bytes = 0;       // all-reduced forward, of each rank: 0 without `in`
  double dx_sum_bytes = 0;      // backward: 0 without `out`
  double filter_sum_bytes = 0;  // backward: 0 without batch, height and width
  double forward_s = 0, backward_s = 0;            // computing
  double forward_comm_s = 0, backward_comm_s = 0;  // exchanging
  double seconds() const { return forward_s + backward_s + forward_comm_s + backward_comm_s; }
};

// Errors: a split that does not divide its dim; a share of rows that is smaller than the halo.
Result<ConvCost> price_conv(const ConvShape& conv, const ConvSplit& split, const MeshLinks& links);
// Every split of the axes that are not settled, the fastest first.
struct PricedConv {
  ConvSplit split;
  ConvCost cost;
};
std::vector<PricedConv> conv_splits(const ConvShape& conv, const MeshLinks& links,
                                    std::span<const std::optional<ConvDim>> settled);

}  // namespace tegula::planner
