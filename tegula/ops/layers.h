// Layers of convolutional and recurrent nets, composed of other ops: batch, group and instance
// norm, dropout, LSTM, GRU.
#pragma once

#include "tegula/ops/control.h"
#include "tegula/ops/math.h"

namespace tegula {

// Batch normalisation over all dims of x but dim 1 (channels):
//   y = (x − mean) / sqrt(var + eps) · weight + bias
// x: [n, c, …]; weight, bias, running statistics: [c]. Training uses the batch's mean and (biased)
// variance, and moves the running ones towards mean and unbiased variance by `momentum`: donate
// them, they are state. Inference uses the running ones. Numerics: f32 statistics for f32 x.
// Source: Ioffe and Szegedy 2015, Alg. 1 and 2.
struct BatchNorm {
  Var y, running_mean, running_var;
};
BatchNorm batch_norm_training(Var x, Var weight, Var bias, Var running_mean, Var running_var,
                              double momentum = 0.1, double eps = 1e-5, Loc loc = Loc::current());
Var batch_norm_inference(Var x, Var weight, Var bias, Var running_mean, Var running_var,
                         double eps = 1e-5, Loc loc = Loc::current());

// The same over `groups` groups of channels and all dims that follow, for each element of the
// batch: statistics are of the sample, so training and inference are one. instance_norm: a group
// per channel. weight, bias: [c], or invalid: 1 and 0. Statistics are f32 (f64 for f64). Source: Wu
// and He 2018, section 3; Ulyanov et al. 2016.
Var group_norm(Var x, int64_t groups, Var weight = {}, Var bias = {}, double eps = 1e-5,
               Loc loc = Loc::current());
Var instance_norm(Var x, Var weight = {}, Var bias = {}, double eps = 1e-5,
                  Loc loc = Loc::current());

// x / (1 − p) where random_uniform(seed, stream) ≥ p, else 0: depends on seed, stream and position
// alone. seed: an i64 scalar; p in [0, 1). p = 0: x itself. Source: Srivastava et al. 2014.
Var dropout(Var x, Var seed, int64_t stream, double p, Loc loc = Loc::current());

// One layer over time. x: [batch, time, d]; y: [batch, time, h]; states: [batch, h].
struct Recurrent {
  Var y, h, c;  // c: LSTM only
};

// [i f g o] = x w_x + h w_h + bias;  c = σ(f) c + σ(i) tanh(g);  h = σ(o) tanh(c).
// w_x: [d, 4h], w_h: [h, 4h], bias: [4h]. Initial states may be invalid: zeros. The products with x
// are one contraction before the loop. Source: Hochreiter and Schmidhuber 1997; Gers et al. 2000.
struct LstmWeights {
  Var w_x, w_h, bias;
};
Recurrent lstm(Var x, const LstmWeights& w, Var h0 = {}, Var c0 = {}, Loc loc = Loc::current());

// [r z n] by gates: r = σ(x_r + h_r), z = σ(x_z + h_z), n = tanh(x_n + r · h_n),
// h = (1 − z) n + z h, with x_· = x w_x + b_x and h_· = h w_h + b_h. w_x: [d, 3h], w_h: [h, 3h],
// b_x, b_h: [3h]. Source: Cho et al. 2014, with the reset gate after the product.
struct GruWeights {
  Var w_x, w_h, b_x, b_h;
};
Recurrent gru(Var x, const GruWeights& w, Var h0 = {}, Loc loc = Loc::current());

}  // namespace tegula
