#include "tegula/ops/layers.h"

namespace tegula {

namespace {
// [c] -> [c, 1, …] so that it broadcasts against dims 1… of x.
Var per_channel(Var v, Var x) {
  Shape s = v.shape();
  for (int d = 2; d < x.rank(); ++d) s.push_back(1);
  return reshape(v, s);
}

std::vector<int64_t> all_but_channels(Var x) {
  std::vector<int64_t> dims = {0};
  for (int d = 2; d < x.rank(); ++d) dims.push_back(d);
  return dims;
}

bool reject(Var x, int rank, std::string_view what, Loc loc) {
  Builder& b = x.builder();
  if (x.rank() >= rank) return false;
  if (!b.failed())
    b.fail(invalid_argument(cat(what, ": x is ", x.type(), ", must have at least ", rank, " dims"),
                            loc));
  return true;
}
}  // namespace

BatchNorm batch_norm_training(Var x, Var weight, Var bias, Var running_mean, Var running_var,
                              double momentum, double eps, Loc loc) {
  if (reject(x, 2, "batch_norm", loc)) return {x, running_mean, running_var};
  const auto dims = all_but_channels(x);
  const Var mean = reduce_mean(x, dims, false, loc);
  const Var centered = x - per_channel(mean, x);
  const Var var = reduce_mean(centered * centered, dims, false, loc);
  const Var scale = rsqrt(var + eps, loc) * weight;
  const Var y = centered * per_channel(scale, x) + per_channel(bias, x);
  Var n = constant(x.builder(), 1, x.dtype(), loc);
  for (int64_t d : dims) n = n * extent(x, static_cast<int>(d), x.dtype(), loc);
  const Var unbiased = var * (n / max(n - 1.0, 1.0, loc));
  auto move = [&](Var running, Var now) { return running * (1 - momentum) + now * momentum; };
  return {y, move(running_mean, mean), move(running_var, unbiased)};
}

Var batch_norm_inference(Var x, Var weight, Var bias, Var running_mean, Var running_var, double eps,
                         Loc loc) {
  if (reject(x, 2, "batch_norm", loc)) return x;
  const Var scale = rsqrt(running_var + eps, loc) * weight;
  return (x - per_channel(running_mean, x)) * per_channel(scale, x) + per_channel(bias, x);
}

// [n, c, …] -> [n, groups, c / groups, …] is a view; a group's statistics are over all its last
// dims.
Var group_norm(Var x, int64_t groups, Var weight, Var bias, double eps, Loc loc) {
  if (reject(x, 2, "group_norm", loc)) return x;
  Builder& b = x.builder();
  const Dim c = x.dim(1);
  if (groups < 1 || !c.is_const() || c.bound() % groups != 0 || x.rank() == kMaxRank)
    return b.fail(invalid_argument(
        cat("group_norm: ", groups, " groups of the ", c, " channels of ", x.type()), loc));
  const Shape shape = x.shape();
  const DType dtype = x.dtype();
  Shape grouped = shape;
  grouped[1] = c.bound() / groups;
  grouped.insert(1, groups);
  std::vector<int64_t> dims;
  for (int d = 2; d < grouped.rank(); ++d) dims.push_back(d);
  const Var g = reshape(cast(x, accumulator(dtype), loc), grouped, loc);
  const Var centered = g - reduce_mean(g, dims, true, loc);
  const Var var = reduce_mean(centered * centered, dims, true, loc);
  Var y = reshape(centered * rsqrt(var + eps, loc), shape, loc);
  if (weight.valid()) y = y * per_channel(cast(weight, y.dtype(), loc), x);
  if (bias.valid()) y = y + per_channel(cast(bias, y.dtype(), loc), x);
  return cast(y, dtype, loc);
}

Var instance_norm(Var x, Var weight, Var bias, double eps, Loc loc) {
  if (reject(x, 3, "instance_norm", loc)) return x;
  return group_norm(x, x.dim(1).bound(), weight, bias, eps, loc);
}

Var dropout(Var x, Var seed, int64_t stream, double p, Loc loc) {
  if (!(p >= 0 && p < 1))
    return x.builder().fail(invalid_argument(cat("dropout: p is ", p, ", must be in [0, 1)"), loc));
  if (p == 0) return x;
  const Var u = random_uniform(seed, x.shape(), stream, DType::kF32, loc);
  return select(ge(u, p, loc), x * (1 / (1 - p)), zeros_like(x, loc), loc);
}

Recurrent lstm(Var x, const LstmWeights& w, Var h0, Var c0, Loc loc) {
  if (reject(x, 3, "lstm", loc)) return {x, x, x};
  const Dim h = w.w_h.dim(0);
  const Type state = {x.dtype(), {x.dim(0), h}};
  if (!h0.valid()) h0 = fill(x.builder(), 0, state, loc);
  if (!c0.valid()) c0 = fill(x.builder(), 0, state, loc);
  const Var gates_x = transpose(matmul(x, w.w_x, loc) + w.bias, 0, 1, loc);
  const auto out = scan(
      x.builder(), {h0, c0}, {gates_x}, {w.w_h},
      [&](Builder&, Vars carry, Vars xs, Vars in) -> StepResult {
        const Var gates = xs[0] + matmul(carry[0], in[0]);
        auto gate = [&](int64_t k) { return slice(gates, 1, k * h.bound(), h); };
        const Var c = sigmoid(gate(1)) * carry[1] + sigmoid(gate(0)) * tanh(gate(2));
        const Var next = sigmoid(gate(3)) * tanh(c);
        return {{next, c}, {next}};
      },
      {}, loc);
  return {transpose(out.ys[0], 0, 1, loc), out.carry[0], out.carry[1]};
}

Recurrent gru(Var x, const GruWeights& w, Var h0, Loc loc) {
  if (reject(x, 3, "gru", loc)) return {x, x, {}};
  const Dim h = w.w_h.dim(0);
  if (!h0.valid()) h0 = fill(x.builder(), 0, {x.dtype(), {x.dim(0), h}}, loc);
  const Var gates_x = transpose(matmul(x, w.w_x, loc) + w.b_x, 0, 1, loc);
  const auto out = scan(
      x.builder(), {h0}, {gates_x}, {w.w_h, w.b_h},
      [&](Builder&, Vars carry, Vars xs, Vars in) -> StepResult {
        const Var gates_h = matmul(carry[0], in[0]) + in[1];
        auto gate = [&](Var gates, int64_t k) { return slice(gates, 1, k * h.bound(), h); };
        const Var r = sigmoid(gate(xs[0], 0) + gate(gates_h, 0));
        const Var z = sigmoid(gate(xs[0], 1) + gate(gates_h, 1));
        const Var n = tanh(gate(xs[0], 2) + r * gate(gates_h, 2));
        const Var next = (1.0 - z) * n + z * carry[0];
        return {{next}, {next}};
      },
      {}, loc);
  return {transpose(out.ys[0], 0, 1, loc), out.carry[0], {}};
}

}  // namespace tegula
