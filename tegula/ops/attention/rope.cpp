// Pairs of each head turned by their position's angle; its own inverse (and gradient) with the
// angle's sign turned.
#include "tegula/ops/rope.h"

#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/ops/common/rules.h"

namespace tegula {

namespace {
constexpr double kTheta = 10000;

constexpr double kUnit = 0x1p-40;  // of divisors: attributes have lists of integers alone

Result<DimMap> dims(const OpCall& c) {
  if (c.in.size() == 1) return solve_dims("rope", "x: b s h d -> b s h d", c.in);
  const bool per_batch = c.shape(1).rank() == 2;
  return solve_dims(
      "rope",
      per_batch ? "x: b s h d, positions: b s -> b s h d" : "x: b s h d, positions: s -> b s h d",
      c.in);
}

// Where pair i of a head lies, and the angle per position.
struct Pairs {
  int64_t d;
  bool is_interleaved;
  double theta, sign;
  std::vector<int64_t> divisors;
  Pairs(const Attrs& a, int64_t head_dim)
      : d(head_dim),
        is_interleaved(a.flag("interleaved")),
        theta(a.get_or<double>("theta", kTheta)),
        sign(a.flag("inverse") ? -1 : 1),
        divisors(a.get_or<std::vector<int64_t>>("divisors", {})) {}
  int64_t first(int64_t i) const { return is_interleaved ? 2 * i : i; }
  int64_t second(int64_t i) const { return is_interleaved ? 2 * i + 1 : i + d / 2; }
  double rate(int64_t i) const {
    const double rate = std::pow(theta, -2 * static_cast<double>(i) / static_cast<double>(d));
    if (divisors.empty()) return rate;
    return rate / (static_cast<double>(divisors[static_cast<size_t>(i)]) * kUnit);
  }
};

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const Pairs pairs(a.attrs(), a.dim(0, 3));
    const int64_t start = a.attrs().template get_or<int64_t>("start", 0);
    auto position = [&](int64_t b, int64_t s) {
      if (a.in.size() == 1) return start + s;
      return a.in[1].rank == 2 ? a.load_i(1, b, s) : a.load_i(1, s);
    };
    for (int64_t b = 0; b < a.dim(0, 0); ++b)
      for (int64_t s = 0; s < a.dim(0, 1); ++s) {
        const auto at = static_cast<double>(position(b, s));
        for (int64_t h = 0; h < a.dim(0, 2); ++h)
          for (int64_t i = 0; i < pairs.d / 2; ++i) {
            const double angle = at * pairs.rate(i);
            const S cos = S(std::cos(angle)), sin = S(pairs.sign * std::sin(angle));
            const int64_t p = pairs.first(i), q = pairs.second(i);
            const S x1 = a.load(0, b, s, h, p), x2 = a.load(0, b, s, h, q);
            a.store(0, x1 * cos - x2 * sin, b, s, h, p);
            a.store(0, x1 * sin + x2 * cos, b, s, h, q);
          }
      }
  }
};

// cos and sin, [1 or b, s, 1, d/2].
std::pair<Var, Var> turns(Builder& b, const Attrs& a, std::span<const Var> in) {
  const DType f64 = DType::kF64;
  const Dim s = in[0].dim(1);
  const int64_t d = in[0].dim(3).bound();
  const Pairs pairs(a, d);
  const Var at = in.size() > 1
                     ? cast(in[1], f64)
                     : iota(b, {s}, 0, f64) + static_cast<double>(a.get_or<int64_t>("start", 0));
  Var rate = exp(iota(b, {d / 2}, 0, f64) * (-2 * std::log(pairs.theta) / static_cast<double>(d)));
  if (!pairs.divisors.empty())
    rate = rate / (cast(constant_ints(b, pairs.divisors, DType::kI64), f64) * kUnit);
  const Dim batch = at.rank() == 2 ? at.dim(0) : Dim(1);
  const Var angle = reshape(at, {batch, s, 1, 1}) * rate;
  const DType sums = accumulator(in[0].dtype());
  return {cast(cos(angle), sums), cast(sin(angle) * pairs.sign, sums)};
}

std::vector<Var> decompose(Builder& b, const OpCall& c, std::span<const Var> in) {
  const DType type = in[0].dtype();
  const bool interleaved = c.attrs->flag("interleaved");
  const int64_t half = in[0].dim(3).bound() / 2;
  const DType sums = accumulator(type);
  const int64_t step = interleaved ? 2 : 1;
  const Var x1 = cast(slice(in[0], 3, 0, half, step), sums);
  const Var x2 = cast(slice(in[0], 3, interleaved ? (half > 0 ? 1 : 0) : half, half, step), sums);
  const auto [cos, sin] = turns(b, *c.attrs, in);
  Var y[] = {cast(x1 * cos - x2 * sin, type), cast(x1 * sin + x2 * cos, type)};
  if (!interleaved) return {concat(y, 3)};
  for (Var& v : y) v = unsqueeze(v, -1);
  return {reshape(concat(y, 4), in[0].shape())};
}

std::vector<int64_t> units(std::span<const double> divisors) {
  std::vector<int64_t> all;
  for (const double x : divisors) all.push_back(std::llround(x / kUnit));
  return all;
}
std::vector<int64_t> units(std::initializer_list<double> divisors) {
  return units(std::span(divisors.begin(), divisors.size()));
}

std::vector<Sample> samples() {
  const SampleInput x = {{DType::kF32, {2, 3, 2, 4}}};
  const SampleInput per_row = {{DType::kI32, {3}}, 0, 50};
  const SampleInput per_batch = {{DType::kI64, {2, 3}}, -5, 5};
  return {
      {"from 0", {x}, {}},
      {"positions", {x, per_row}, {{"theta", 500.0}}},
      {"positions per batch entry", {x, per_batch}, {{"interleaved", true}}},
      {"inverse, later", {x}, {{"inverse", true}, {"start", int64_t{7}}, {"theta", 100.0}}},
      {"interleaved inverse", {x, per_row}, {{"inverse", true}, {"interleaved", true}}},
      {"divided", {x, per_row}, {{"divisors", units({4, 0.75})}, {"theta", 100.0}}},
      {"divided, inverse, from 9",
       {{{DType::kF32, {2, 3, 2, 6}}}},
       {{"divisors", units({1, 1.5, 8})}, {"inverse", true}, {"start", int64_t{9}}}},
      {"too few divisors", {x}, {{"divisors", units({2})}}, "1 divisors, and the head has 2 pairs"},
      {"a divisor of 0", {x}, {{"divisors", units({1, 0})}}, "must be positive"},
      {"one pair", {{{DType::kF32, {1, 2, 1, 2}}}}, {{"interleaved", true}}},
      {"no rows", {{{DType::kF32, {1, 0, 2, 4}}}}, {}},
      {"bf16", {{{DType::kBF16, {1, 3, 2, 4}}}, per_row}, {}},
      {"odd", {{{DType::kF32, {1, 3, 2, 5}}}}, {}, "head dim 5 must be even"},
      {"positions misfit", {x, {{DType::kI32, {4}}}}, {}, "positions has s=4, x has s=3"}};
}
}  // namespace

Var rope(Var x, Var positions, double theta, bool is_interleaved, std::span<const double> divisors,
         Loc loc) {
  Attrs a{{"theta", theta}};
  if (!divisors.empty()) a.set("divisors", units(divisors));
  if (is_interleaved) a.set("interleaved", true);
  std::vector<Var> in = {x};
  if (positions.valid()) in.push_back(positions);
  return x.builder().emit_n(rope_op, std::move(a), in, {}, loc)[0];
}

constinit const OpDef rope_op = {
    .name = "rope",
    .formula = "(y1, y2) = (x1 cos a - x2 sin a, x1 sin a + x2 cos a), a = position theta^(-2 i/d)",
    .source = "Su et al. 2021, section 3.2.2",
    .group = "attention",
    .dims_fn = dims,
    .types = "F, i? -> F",
    .attrs = {{"theta", AttrKind::kFloat, false, "base of the angles; 10000 if absent"},
              {"divisors", AttrKind::kInts, false, "of each pair's angle, in 2^-40; absent: 1"},
              {"interleaved", AttrKind::kBool, false, "pairs are neighbours, not halves"},
              {"inverse", AttrKind::kBool, false, "turns back"},
              {"start", AttrKind::kInt, false, "position of row 0, if there is no operand"}},
    .split = {{"d", Combine::kNever}},
    .check = [](const OpCall& c) -> Status {
      const Dim d = c.shape(0)[3];
      if (!d.is_const() || d.bound() % 2 != 0)
        return invalid_argument(cat("rope: head dim ", d, " must be even"));
      const auto divisors = c.attrs->get_or<std::vector<int64_t>>("divisors", {});
      if (!divisors.empty() && static_cast<int64_t>(divisors.size()) != d.bound() / 2)
        return invalid_argument(cat("rope: ", divisors.size(), " divisors, and the head has ",
                                    d.bound() / 2, " pairs"));
      if (std::any_of(divisors.begin(), divisors.end(), [](int64_t x) { return x <= 0; }))
        return invalid_argument("rope: divisors must be positive");
      return {};
    },
    .flops = [](const OpCall& c) { return 3 * c.in[0].shape.numel(); },
    .vjp = [](Builder& b, const VjpCall& c) -> Grads {
      Attrs a = c.attrs();
      a.set("inverse", !a.flag("inverse"));  // by the opposite angles
      std::vector<Var> in(c.in.begin(), c.in.end());
      in[0] = c.grad[0];
      return b.emit_n(rope_op, std::move(a), in);
    },
    .jvp = jvp_of_first,
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = samples,
    .localize =
        [](const OpCall& c, const DimMap& m, int factor, int64_t lo, int64_t) {
          Attrs a = *c.attrs;
          if (factor == m.find("s") && c.in.size() == 1)
            a.set("start", a.get_or<int64_t>("start", 0) + lo);
          return a;
        },
};

}  // namespace tegula
