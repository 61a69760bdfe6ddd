// Random well-typed functions over the op table, for fuzzing passes, text and plans: elementwise
// ops, views, reductions, movement and dot, small sizes, values kept within the domain of every op.
//
// A wild one has constants, iotas, 0-d values and repeated ones in every place, sizes of 1 and
// symbols in any dim, moves along symbolic dims, and small expressions that stand in it several
// times with their operands in another order.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>

#include "tegula/ir/builder.h"
#include "tegula/ir/host_tensor.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tests/common/random_layers.h"

namespace tegula::testing {

struct RandomGraphOptions {
  int n_nodes = 20;
  bool is_symbolic = true;  // one leading dim may be a symbol, bound 6
  bool has_state = true;    // one parameter is state, overwritten by a result
  bool has_narrow = true;   // casts to bf16 and f16
  bool is_wild = false;
  bool has_layers = false;  // steps of random_layers.h, too
  bool is_exact = false;    // values are small integers, ops exact: any order gives equal bits
};

class RandomGraph {
 public:
  RandomGraph(Module& module, uint64_t seed, const RandomGraphOptions& options = {})
      : options_(options), rng_(seed), b_(module, "random") {
    if (options_.is_wild && options_.is_symbolic) {
      n_ = module.add_symbol("n", 1 + static_cast<int64_t>(pick(6)));
      if (chance(3)) m_ = module.add_symbol("m", 1 + static_cast<int64_t>(pick(6)));
    } else if (options_.is_symbolic && chance(3))
      n_ = module.symbols.empty() ? module.add_symbol("n", 6) : Dim::of(0, module.symbols[0].bound);
  }

  // The function, in the module. Its parameters are floats in [-1, 1] and an i64 seed.
  Result<FuncId> build() {
    const Dim sizes[] = {n_, 4, 3, 2, 1};
    const Shape shapes[] = {{sizes[0], 4}, {4}, {3, 4}, {sizes[0], 2, 4}, {}, {4, 3}, {sizes[0]}};
    seed_ = b_.param("seed", {DType::kI64, {}});
    for (int i = 0; i < 3; ++i)
      add(b_.param(cat("x", i),
                   {DType::kF32, options_.is_wild ? wild_shape() : shapes[pick(std::size(shapes))]},
                   i == 0 ? Role::kWeight : Role::kInput),
          options_.is_exact ? 4 : 1);
    Var state;
    if (options_.has_state) add(state = b_.param("state", {DType::kF32, {3, 4}}, Role::kState), 1);
    for (int i = 0; i < options_.n_nodes; ++i) step();
    results(state);
    return b_.finish_into_module();
  }

 private:
  struct Known {
    Var v;
    double bound;  // |values| ≤ bound
  };

  size_t pick(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng_); }
  bool chance(size_t one_in) { return pick(one_in) == 0; }
  void add(Var v, double bound) { floats_.push_back({v, bound}); }
  // Mostly recent values, so that chains grow; now and then an old one, so that values are shared.
  Known any() {
    const size_t n = floats_.size();
    return floats_[chance(3) ? pick(n) : n - 1 - pick(std::min<size_t>(n, 4))];
  }
  Known narrow_range() {
    Known x = any();
    if (x.bound > 4) x = {tanh(x.v), 1};
    return x;
  }
  Known positive() {
    const Known x = any();
    return {abs(x.v) + 0.5, x.bound + 0.5};
  }
  // y in the shape of x where a broadcast does it, else x itself.
  Known like(const Known& x) {
    for (int attempt = 0; attempt < 6; ++attempt) {
      Known y = any();
      if (y.v.dtype() != x.v.dtype()) continue;
      if (y.v.shape() == x.v.shape()) return y;
      if (broadcasts(y.v.shape(), x.v.shape())) return y;
    }
    return x;
  }
  static bool broadcasts(const Shape& from, const Shape& to) {
    const int lead = to.rank() - from.rank();
    bool fits = lead >= 0;
    for (int d = 0; fits && d < from.rank(); ++d)
      fits = from[d] == Dim(1) || from[d] == to[d + lead];
    return fits;
  }

  void step() {
    if (options_.has_layers && chance(4)) return layer();
    if (options_.is_wild && chance(2)) return wild_step();
    if (options_.is_exact) return exact_step();
    switch (pick(10)) {
      case 0:
      case 1:
        return unary();
      case 2:
      case 3:
        return binary();
      case 4:
        return bounded();
      case 5:
        return choose();
      case 6:
        return reduction();
      case 7:
        return view();
      case 8:
        return movement();
      default:
        return contraction();
    }
  }

  void layer() {
    const Known x = any();
    const bool fits = x.v.dtype() == DType::kF32 && x.v.rank() > 0 && x.v.shape().numel() <= 400;
    if (!fits || x.bound > 1e3) return;
    const RandomLayer y = random_layer(b_, x.v, x.bound, options_.is_exact, rng_);
    if (y.v.valid()) add(y.v, y.bound);
  }

  void unary() {
    const Known x = any();
    switch (pick(8)) {
      case 0:
        return add(neg(x.v), x.bound);
      case 1:
        return add(tanh(x.v), 1);
      case 2:
        return add(sin(x.v), 1);
      case 3:
        return add(sigmoid(x.v), 1);
      case 4:
        return add(relu(x.v), x.bound);
      case 5:
        return add(gelu(x.v), x.bound + 1);
      case 6:
        return add(silu(x.v), x.bound + 1);
      default:
        return add(chance(2) ? floor(x.v) : erf(x.v), x.bound + 1);
    }
  }
  void binary() {
    const Known x = any(), y = like(x);
    switch (pick(5)) {
      case 0:
        return add(x.v + y.v, x.bound + y.bound);
      case 1:
        return add(x.v - y.v, x.bound + y.bound);
      case 2:
        return add(max(x.v, y.v), std::max(x.bound, y.bound));
      case 3:
        return add(x.v * 0.5 + 1.0, x.bound / 2 + 1);
      default:
        if (x.bound * y.bound < 1e4) add(x.v * y.v, x.bound * y.bound);
    }
  }
  // Ops with a domain.
  void bounded() {
    switch (pick(5)) {
      case 0: {
        const Known x = narrow_range();
        return add(exp(x.v), std::exp(x.bound));
      }
      case 1: {
        const Known x = positive();
        return add(log(x.v), x.bound + 1);
      }
      case 2: {
        const Known x = positive();
        return add(chance(2) ? rsqrt(x.v) : sqrt(x.v), x.bound + 1);
      }
      case 3: {
        const Known x = any();
        const Known y = like(x);
        return add(x.v / (abs(y.v) + 1.0), x.bound);
      }
      default: {
        const Known x = positive();
        if (x.bound < 100) add(pow(x.v, chance(2) ? 2.0 : 0.5), x.bound * x.bound);
      }
    }
  }
  void choose() {
    const Known x = any(), y = like(x);
    Var where = chance(2) ? gt(x.v, y.v) : le(x.v, y.v);
    if (chance(3)) where = logical_and(where, logical_not(eq(x.v, y.v)));
    if (options_.has_narrow && chance(3) && x.bound < 1000) {
      const DType t = chance(2) ? DType::kBF16 : DType::kF16;
      return add(cast(tanh(cast(x.v, t)), x.v.dtype()), 1);
    }
    add(select(where, x.v, y.v), std::max(x.bound, y.bound));
  }
  void reduction() {
    const Known x = any();
    if (x.v.rank() == 0 || x.v.dtype() != DType::kF32) return;
    std::vector<int64_t> dims;
    double count = 1;
    for (int d = 0; d < x.v.rank(); ++d)
      if (d == x.v.rank() - 1 || chance(3))
        dims.push_back(d), count *= static_cast<double>(x.v.dim(d).bound());
    const bool keep = chance(2);
    if (chance(2)) return add(reduce_sum(x.v, dims, keep), x.bound * count);
    // The largest of nothing is -inf; a symbol may be 0.
    if (x.v.shape().is_const() && x.v.shape().numel() > 0)
      add(reduce_max(x.v, dims, keep), x.bound);
  }
  void view() {
    const Known x = any();
    const Shape s = x.v.shape();
    switch (pick(4)) {
      case 0: {
        std::vector<int64_t> order(static_cast<size_t>(s.rank()));
        for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int64_t>(d);
        std::shuffle(order.begin(), order.end(), rng_);
        return add(permute(x.v, order), x.bound);
      }
      case 1: {
        for (int d = s.rank(); d-- > 0;)
          if (s[d].is_const() && s[d].bound() >= 2) {
            const bool reverse = chance(3);
            return add(
                slice(x.v, d, reverse ? s[d].bound() - 1 : 1, s[d].bound() - 1, reverse ? -1 : 1),
                x.bound);
          }
        return;
      }
      case 2:
        if (s.rank() < 4)
          add(unsqueeze(x.v, static_cast<int>(pick(static_cast<size_t>(s.rank()) + 1))), x.bound);
        return;
      default:
        if (s.rank() < 3 && s.numel() < 100) {
          Shape wide = s;
          wide.insert(0, chance(2) ? n_ : Dim(3));
          return add(broadcast(x.v, wide), x.bound);
        }
        if (s.rank() >= 2 && s[s.rank() - 1].is_const() && s[s.rank() - 2].is_const()) {
          Shape flat = s;
          flat.erase(s.rank() - 1);
          flat[s.rank() - 2] = s[s.rank() - 1].bound() * s[s.rank() - 2].bound();
          add(reshape(x.v, flat), x.bound);
        }
    }
  }
  void movement() {
    const Known x = any();
    const int rank = x.v.rank();
    switch (pick(4)) {
      case 0:
        if (rank > 0 && x.v.dim(rank - 1).is_const())
          add(pad(x.v, rank - 1, 1, 0, chance(3) ? 1 : 0, 0.5), std::max(x.bound, 0.5));
        return;
      case 1: {
        if (rank == 0 || !x.v.dim(rank - 1).is_const() || x.v.shape().numel() > 200) return;
        const Var parts[] = {x.v, x.v * 2.0};
        return add(concat(parts, rank - 1), 2 * x.bound);
      }
      case 2:
        return add(random_uniform(seed_, x.v.shape(), static_cast<int64_t>(pick(3))), 1);
      default:
        if (rank > 0) add(iota(b_, x.v.shape(), rank - 1, DType::kF32), 64);
    }
  }
  void contraction() {
    const Known x = any();
    const int rank = x.v.rank();
    if (rank == 0 || rank > 3 || x.v.dtype() != DType::kF32) return;
    const Dim k = x.v.dim(rank - 1);
    if (!k.is_const() || k.bound() == 0 || x.bound > 1e3) return;
    for (const Known& w : floats_)
      if (w.v.rank() == 2 && w.v.dim(0) == k && w.v.dim(1).is_const() && w.bound < 1e3 &&
          w.v.dtype() == DType::kF32)
        return add(matmul(x.v, w.v), x.bound * w.bound * static_cast<double>(k.bound()));
  }

  Dim wild_dim() {
    const Dim dims[] = {n_, n_, m_, 1, 1, 2, 3, 4};
    return dims[pick(std::size(dims))];
  }
  Shape wild_shape() {
    Shape s;
    for (size_t rank = pick(4); rank > 0; --rank) s.push_back(wild_dim());
    return s;
  }
  double small_integer() { return static_cast<double>(pick(7)) - 3; }

  void wild_step() {
    switch (pick(6)) {
      case 0:
        return leaf();
      case 1:
        return repeated();
      case 2:
        return symbolic_move();
      case 3:
        return reshaped();
      default:
        return twins();
    }
  }
  // Constants, iotas, extents, 0-d values.
  void leaf() {
    const Shape like = any().v.shape();
    switch (pick(5)) {
      case 0:
        return add(constant(b_, small_integer(), DType::kF32), 3);
      case 1:
        return add(fill(b_, small_integer(), {DType::kF32, like}), 3);
      case 2:
        if (like.rank() > 0)
          add(iota(b_, like, static_cast<int>(pick(static_cast<size_t>(like.rank()))), DType::kF32),
              12);
        return;
      case 3: {
        const Known x = any();
        if (x.v.rank() > 0) add(extent(x.v, 0, DType::kF32), 12);
        return;
      }
      default: {
        const Known x = any();
        std::vector<int64_t> dims(static_cast<size_t>(x.v.rank()));
        for (size_t d = 0; d < dims.size(); ++d) dims[d] = static_cast<int64_t>(d);
        if (!dims.empty() && x.bound < 1e3 && x.v.dtype() == DType::kF32)
          add(reduce_sum(x.v, dims), x.bound * static_cast<double>(x.v.shape().numel()));
      }
    }
  }
  // One value many times: along a new or an extent-1 dim, in any place, and perhaps summed again.
  void repeated() {
    const Known x = any();
    Shape s = x.v.shape();
    if (s.rank() > 3 || s.numel() > 200) return;
    const size_t at = pick(static_cast<size_t>(s.rank()) + 1);
    s.insert(static_cast<int>(at), wild_dim());
    const Known y = {broadcast(unsqueeze(x.v, static_cast<int>(at)), s), x.bound};
    add(y.v, y.bound);
    if (chance(2) && y.bound < 1e3 && y.v.dtype() == DType::kF32)
      add(chance(3) ? reduce_max(y.v, {static_cast<int64_t>(at)}, chance(2))
                    : reduce_sum(y.v, {static_cast<int64_t>(at)}, chance(2)),
          y.bound * 6);
  }
  // Slices, pads and concats along any dim.
  void symbolic_move() {
    const Known x = any();
    if (x.v.rank() == 0 || x.v.shape().numel() > 400) return;
    const int d = static_cast<int>(pick(static_cast<size_t>(x.v.rank())));
    const Dim n = x.v.dim(d);
    switch (pick(4)) {
      case 0:
        if (n.bound() > 1) {
          Dim less = n;
          --less.offset;
          add(slice(x.v, d, static_cast<int64_t>(pick(2)), less), x.bound);
        }
        return;
      case 1:
        if (n.bound() > 0) add(slice(x.v, d, 0, 1), x.bound);
        return;
      case 2:
        return add(pad(x.v, d, 1, static_cast<int64_t>(pick(2)), chance(3) ? 1 : 0, 1.0),
                   std::max(x.bound, 1.0));
      default: {
        std::vector<Var> parts = {x.v, neg(x.v)};
        if (chance(2)) parts.push_back(slice(x.v, d, 0, n));
        add(concat(parts, d), x.bound);
      }
    }
  }
  // All elements under another shape: dims merged, dims exchanged.
  void reshaped() {
    const Known x = any();
    const Shape s = x.v.shape();
    if (s.rank() < 2) return;
    const int d = static_cast<int>(pick(static_cast<size_t>(s.rank() - 1)));
    Shape to = s;
    if (chance(2)) {
      std::swap(to[d], to[d + 1]);
    } else {
      const auto both = mul(s[d], s[d + 1]);
      if (!both.ok()) return;
      to[d] = *both;
      to.erase(d + 1);
    }
    add(reshape(x.v, to), x.bound);
  }
  // A small expression of three operands, twice: the second time in another order, and perhaps with
  // an operand that is made another way.
  void twins() {
    Known of[3] = {any(), any(), any()};
    for (Known& k : of)
      if (k.v.dtype() != DType::kF32 || k.bound > 1e3) return;
    for (size_t i = 1; i < 3; ++i) {
      if (chance(3)) of[i] = {constant(b_, small_integer(), DType::kF32), 3};
      if (chance(4) && of[0].v.rank() > 0)
        of[i] = {iota(b_, of[0].v.shape(), of[0].v.rank() - 1, DType::kF32), 12};
      if (!broadcasts(of[i].v.shape(), of[0].v.shape())) of[i] = of[0];
    }
    const size_t kind = pick(6);
    std::vector<Var> v = {of[0].v, broadcast(of[1].v, of[0].v.shape()),
                          broadcast(of[2].v, of[0].v.shape())};
    const double bound = of[0].bound + of[1].bound + of[2].bound;
    for (int i = 0; i < 2; ++i) {
      add(expression(kind, v), kind == 2 ? bound * bound : bound);
      std::shuffle(v.begin(), v.end(), rng_);
    }
  }
  Var expression(size_t kind, const std::vector<Var>& v) {
    switch (kind) {
      case 0:
        return v[0] - v[1];
      case 1:
        return max(v[0] - v[1], v[2]);
      case 2:
        return v[0] * v[1] - v[2];
      case 3:
        return select(lt(v[0], v[1]), v[0], v[2]);
      case 4:
        return select(ge(v[0], 0.0), v[1], v[2]);
      default:
        return min(v[0], v[1] - v[2]);
    }
  }
  void exact_step() {
    const Known x = any(), y = like(x);
    switch (pick(8)) {
      case 0:
        return add(chance(2) ? neg(x.v) : abs(x.v), x.bound);
      case 1:
        return add(chance(2) ? max(x.v, 0.0) : sign(x.v), std::max(x.bound, 1.0));
      case 2:
        if (x.bound + y.bound < 1e5) add(chance(2) ? x.v + y.v : x.v - y.v, x.bound + y.bound);
        return;
      case 3:
        if (x.bound * y.bound < 1e5) add(x.v * y.v, x.bound * y.bound);
        return;
      case 4:
        return add(chance(2) ? max(x.v, y.v) : min(x.v, y.v), std::max(x.bound, y.bound));
      case 5:
        return add(select(chance(2) ? gt(x.v, y.v) : eq(x.v, y.v), x.v, y.v),
                   std::max(x.bound, y.bound));
      case 6:
        if (x.bound * static_cast<double>(x.v.shape().numel()) < 1e5) reduction();
        return;
      default:
        return view();
    }
  }
  void results(Var state) {
    std::vector<bool> used(b_.function().values.size(), false);
    for (const Node& n : b_.function().nodes)
      for (ValueId v : n.inputs) used[v] = true;
    int n_results = 0;
    for (size_t i = floats_.size(); i-- > 0;)
      if (b_.function().values[floats_[i].v.id()].node != kNone &&
          (!used[floats_[i].v.id()] || n_results == 0 || chance(8)))
        b_.result(cat("y", n_results++), floats_[i].v);
    if (state.valid()) {
      b_.result("state", state + 1.0);
      b_.donate("state", "state");
    }
  }

  RandomGraphOptions options_;
  std::mt19937_64 rng_;
  Builder b_;
  Dim n_ = 5, m_ = 2;
  Var seed_;
  std::vector<Known> floats_;
};

// Inputs for a function at `extents`: floats in [-1, 1), integers 0 to 9.
inline std::vector<HostTensor> random_inputs(const Function& f, uint64_t seed,
                                             std::span<const int64_t> extents = {}) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<HostTensor> in;
  for (const Param& p : f.params) {
    Type t = f.type(p.value);
    for (int d = 0; d < t.shape.rank(); ++d)
      t.shape[d] = extents.empty() ? t.shape[d].bound() : t.shape[d].at(extents);
    HostTensor& x = in.emplace_back(t);
    for (int64_t i = 0; i < x.numel(); ++i)
      x.put(i, is_float(t.dtype) ? uniform(rng) : static_cast<double>(rng() % 10));
  }
  return in;
}

}  // namespace tegula::testing
