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

// The gradient of conv to its x as an op of its own: x[n, ci, i…] = Σ y[n, co, o…] w[co, ci, k…]
// over all stride·o + dilation·k − lo = i. `size`: the spatial dims of x, which y and the options
// leave open where a stride is not 1.
Var conv_bwd_data(Var y, Var w, const std::vector<Dim>& size, const ConvOptions& options = {},
                  Loc loc = Loc::current());
// The same as a layer (torch's conv_transpose): x [n, ci, spatial…], w [ci, co / groups, kernel…]
// -> [n, co, (spatial − 1)·stride − lo − hi + dilation (kernel − 1) + extra + 1]. `extra`, less
// than the stride, chooses among the sizes that conv would have made spatial of.
struct ConvTransposeOptions : ConvOptions {
  std::vector<int64_t> extra;
};
Var conv_transpose(Var x, Var w, const ConvTransposeOptions& options = {},
                   Loc loc = Loc::current());

struct PoolOptions {
  // The last window may reach over the (padded) end, if it begins before it; what is past the end
  // takes no part.
  bool ceil_mode = false;
  // avg_pool: a window divides by its elements within the padded x; else by those within x.
  bool count_include_pad = true;
};
Var max_pool(Var x, std::vector<int64_t> kernel, const WindowOptions& options = {},
             const PoolOptions& pool = {}, Loc loc = Loc::current());
// Padding counts as zeros.
Var avg_pool(Var x, std::vector<int64_t> kernel, const WindowOptions& options = {},
             const PoolOptions& pool = {}, Loc loc = Loc::current());
// Windows that cut each spatial dim into `out` parts: window i from ⌊i·n/out⌋ up to ⌈(i+1)·n/out⌉.
// Sizes are constant.
Var adaptive_max_pool(Var x, const std::vector<int64_t>& out, Loc loc = Loc::current());
Var adaptive_avg_pool(Var x, const std::vector<int64_t>& out, Loc loc = Loc::current());

// A view of the windows of one dim: y[.., o, k, ..] = x[.., stride·o + dilation·k, ..].
Var unfold(Var x, int dim, Dim size, int64_t kernel, int64_t stride = 1, int64_t dilation = 1,
           Loc loc = Loc::current());

}  // namespace tegula
