// Convolution and pooling over 1 to 3 spatial dims, for model code.
//
//   conv:  y[n, co, o…] = Σ_{ci, k…} x[n, ci, stride·o + dilation·k − lo] w[co, ci, k…]
//   pool:  y[n, c, o…] = max or mean over k… of x[n, c, stride·o + k − lo]
//
// x: [n, ci, spatial…]; w: [co, ci / groups, kernel…]; outside x are zeros (in max_pool: nothing).
// Result size: (spatial + lo + hi − dilation (kernel − 1) − 1) / stride + 1, rounded down.
// Numerics: a chain of fma over (ci, k…), padding included, as in dot; its FLOPs are counted so
// too. Errors: ranks, channels that groups do not divide, a kernel larger than the padded input.
#pragma once

#include "tegula/ops/math.h"

namespace tegula {

// One entry per spatial dim; empty: 1 (stride, dilation) or 0 (padding).
struct WindowOptions {
  std::vector<int64_t> stride, lo, hi, dilation;
};
struct ConvOptions : WindowOptions {
  int64_t groups = 1;
};

Var conv(Var x, Var w, const ConvOptions& options = {}, Loc loc = Loc::current());
Var max_pool(Var x, std::vector<int64_t> kernel, const WindowOptions& options = {},
             Loc loc = Loc::current());
// Padding counts as zeros: every window divides by the kernel's size.
Var avg_pool(Var x, std::vector<int64_t> kernel, const WindowOptions& options = {},
             Loc loc = Loc::current());

// A view of the windows of one dim: y[.., o, k, ..] = x[.., stride·o + dilation·k, ..].
Var unfold(Var x, int dim, Dim size, int64_t kernel, int64_t stride = 1, int64_t dilation = 1,
           Loc loc = Loc::current());

}  // namespace tegula
