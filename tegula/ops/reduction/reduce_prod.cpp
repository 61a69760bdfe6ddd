// y = the product of x over `dims`; 1 of none. The gradient multiplies the products before and
// after each element, so that zeros are nothing special.
#include "tegula/ops/common/lines.h"
#include "tegula/ops/common/reduce.h"

namespace tegula {

namespace {
// To each element the product of all others that `dims` reduces with it, one dim after another.
Var others(Var x, std::vector<int64_t> dims) {
  if (dims.empty()) return fill(x.builder(), 1, x.type());
  const int64_t dim = dims.back();
  dims.pop_back();
  const auto d = static_cast<int>(dim);
  const Attrs up = {{"dim", dim}, {"reverse", false}}, down = {{"dim", dim}, {"reverse", true}};
  const Var along = shifted(cumprod(x, d), up, 1) * shifted(cumprod(x, d, true), down, 1);
  return dims.empty() ? along : along * others(reduce_prod(x, {dim}, true), std::move(dims));
}

Status check(const OpCall& c) {
  const DType t = c.in[0].dtype;
  if (is_float(t) || size_bits(t) >= 32) return {};
  return invalid_argument(
      cat("reduce_prod: x is ", t, ", whose products would wrap at once: cast it to i64"));
}
}  // namespace

constinit const OpDef reduce_prod_op = reduction({
    .name = "reduce_prod",
    .formula = "y = the product of x over dims; integers wrap",
    .dims_fn = reduce_dims<Combine::kNever>,
    .check = check,
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {others(c.in[0], c.attrs().ints("dims")) *
              reshape(c.grad[0], kept_shape(c.in[0], c.attrs()))};
    },
    .jvp = [](Builder&, const JvpCall& c) -> Grads {
      const auto& dims = c.attrs().ints("dims");
      return {reduce_sum(others(c.in[0], dims) * c.tangent[0], dims, c.attrs().flag("keep"))};
    },
    .tile = tile_reduce<tile::Op::kReduceProd>,
    .reference = reference_with_ints<
        ReduceRef<[]<class S>(DType) { return S(1.0); }, [](auto acc, auto x) { return acc * x; }>>,
    .samples =
        [] {
          std::vector<Sample> s = reduce_samples();
          const Attrs last = {{"dims", std::vector<int64_t>{1}}};
          s.push_back({"zeros",
                       {{{DType::kF32, {4, 3}}, 0, 0, {0, 2, 3, 0, 0, 5, 1, -2, 3, 2, 0.5, 0}}},
                       last});
          s.push_back({"integers", {{{DType::kI64, {3, 9}}, -9, 9}}, last});
          s.push_back({"narrow", {{{DType::kI8, {2, 2}}, -9, 9}}, last, "cast it to i64"});
          return s;
        },
});

}  // namespace tegula
