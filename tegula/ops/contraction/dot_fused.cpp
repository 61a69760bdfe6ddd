// A dot of which every finished element goes through a body of elementwise ops, written by the pass
// `epilogues` where a kernel does that while the next tile is being multiplied. regions[0] is the
// body: its parameter 0 is the product, rounded to its type, the others are operands 2, 3, ….
#include "tegula/ops/autodiff.h"
#include "tegula/ops/common/fused.h"
#include "tegula/ops/common/regions.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"

namespace tegula {

namespace {

Status check_region(const OpCall& c) {
  if (c.regions.size() != 1 || !c.module) return invalid_argument("dot_fused: takes one region");
  const Function& body = c.region(0);
  if (c.in.size() < 2 || body.params.size() + 1 != c.in.size())
    return invalid_argument(cat("dot_fused: got ", c.in.size(), " operands, the body takes ",
                                body.params.size(), ": the product and those behind the factors"));
  for (size_t k = 2; k < c.in.size(); ++k)
    if (!(body.type(body.params[k - 1].value) == c.in[k]))
      return invalid_argument(cat("dot_fused: operand ", k, " is ", c.in[k], ", the body takes ",
                                  body.type(body.params[k - 1].value)));
  return {};
}

Result<DimMap> dims(const OpCall& c) {
  TEGULA_TRY(check_region(c));
  const Function& body = c.region(0);
  DimMap m = TEGULA_TRY(solve_dims("dot_fused", c.attrs->str("dims"), c.in.first(2)));
  const Shape product = m.result_shapes[0];
  if (!(body.type(body.params[0].value).shape == product))
    return invalid_argument(cat("dot_fused: the product is ", product, ", the body takes ",
                                body.type(body.params[0].value)));
  const FusedSpace space = TEGULA_TRY(fused_space(body, *c.attrs));
  if (space.n_inner != 0) return invalid_argument("dot_fused: a body of rows");
  // The space's dims are the product's, but for those of extent 1.
  std::vector<DimExpr> of_space;
  for (int d = 0; d < product.rank(); ++d)
    if (!(product[d] == Dim(1))) of_space.push_back(m.results[0][static_cast<size_t>(d)]);
  const auto exprs = [&](ValueId v) {
    std::vector<DimExpr> out;
    for (int d = 0; d < body.type(v).shape.rank(); ++d) {
      const int8_t at = space.dims[v][static_cast<size_t>(d)];
      out.push_back(at < 0 ? DimExpr{} : of_space[static_cast<size_t>(at)]);
    }
    return out;
  };
  for (Factor& f : m.factors) f.whole = true;  // the body is one of these shapes
  for (size_t k = 1; k < body.params.size(); ++k) m.operands.push_back(exprs(body.params[k].value));
  m.results.clear(), m.result_shapes.clear(), m.combine.clear();
  for (const Output& r : body.results) {
    m.results.push_back(exprs(r.value));
    m.result_shapes.push_back(body.type(r.value).shape);
  }
  m.finish();
  return m;
}

// As dot's and the body's.
int64_t flops(const OpCall& c) {
  const Function& body = c.region(0);
  const auto extents = extents_from(c, body, c.in.size());
  Type product = body.type(body.params[0].value);
  product.shape = product.shape.at(extents);
  const Attrs plain{{"dims", c.attrs->str("dims")}};
  return flops_of({&dot_op, &plain, c.in.first(2), {&product, 1}, c.module, {}}) +
         flops_of(*c.module, body, extents);
}

std::vector<Var> decompose(Builder& b, const OpCall& c, std::span<const Var> in) {
  const Function& body = c.region(0);
  Attrs plain{{"dims", c.attrs->str("dims")}};
  const DType out = body.type(body.params[0].value).dtype;
  if (out != in[0].dtype()) plain.set("out", out);
  std::vector<Var> operands = {b.emit(dot_op, std::move(plain), {in[0], in[1]})};
  operands.insert(operands.end(), in.begin() + 2, in.end());
  return inline_call(b, body, operands);
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const Function& body = a.call.region(0);
    Type type = body.type(body.params[0].value);
    type.shape = type.shape.at(extents_from(a.call, body, a.call.in.size()));
    if (a.in[0].dtype == DType::kF64) type.dtype = DType::kF64;
    const HostTensor product(type);
    const Attrs plain{{"dims", a.attrs().str("dims")}};
    const TensorRef out[] = {product.ref()};
    RefArgs<S> dot = a;
    dot.call = {&dot_op, &plain, a.call.in.first(2), {&type, 1}, a.call.module, {}};
    dot.in = a.in.first(2), dot.out = out, dot.touched_in = dot.touched_out = nullptr;
    touch_all(a);
    if constexpr (std::is_same_v<S, float>) dot_op.reference.f32(dot);
    if constexpr (std::is_same_v<S, Counted>) dot_op.reference.f64(dot);
    std::vector<TensorRef> in = {out[0]};
    in.insert(in.end(), a.in.begin() + 2, a.in.end());
    a.run_region(a, 0, in, a.out);
  }
};

// gelu(p + bias) and p + bias itself; and p as a gradient through gelu.
std::vector<FuncId> bias_and_gelu(Module& m) {
  Builder b(m, "bias_and_gelu");
  const Type t = {DType::kF32, {2, 3, 5}};
  const Var p = b.param("p", t), bias = b.param("bias", {DType::kF32, {5}});
  const Var h = p + broadcast(bias, t.shape);
  b.result("h", h), b.result("y", gelu(h));
  return {*b.finish_into_module()};
}
std::vector<FuncId> gated(Module& m) {
  Builder b(m, "gated");
  const Type t = {DType::kF32, {4, 5}};
  const Var p = b.param("p", t), gate = b.param("gate", t);
  b.result("y", p * silu(gate));
  return {*b.finish_into_module()};
}

std::vector<Sample> samples() {
  auto f32 = [](Shape s) { return SampleInput{{DType::kF32, s}}; };
  auto attrs = [](const char* dims, std::vector<Dim> shape) {
    return Attrs{{"dims", std::string(dims)}, {"shape", std::move(shape)}, {"inner", int64_t{0}}};
  };
  Sample activated{"bias and gelu",
                   {f32({2, 3, 4}), f32({4, 5}), f32({5})},
                   attrs("b s k, k n -> b s n", {2, 3, 5})};
  activated.regions = bias_and_gelu;
  Sample times{"gate", {f32({4, 6}), f32({5, 6}), f32({4, 5})}, attrs("m k, n k -> m n", {4, 5})};
  times.regions = gated;
  Sample other = times;
  other.name = "other product", other.in[1] = f32({7, 6});
  other.expect_error = "the product is [4,7]";
  return {activated, times, other};
}

constexpr RegionDef kRegions = {
    .parts = {{"the body", RegionRole::kProgram}}, .n_factors = 2, .n_made = 1};

}  // namespace

constinit const OpDef dot_fused_op = {
    .name = "dot_fused",
    .formula = "y = body(sum over k of a b, x)",
    .group = "contraction",
    .dims_fn = dims,
    .types_fn = [](const OpCall& c) -> Result<std::vector<DType>> {
      TEGULA_TRY(check_region(c));
      if (c.in.size() < 2)
        return invalid_argument(cat("dot_fused: got ", c.in.size(), " operands"));
      if (c.in[0].dtype != c.in[1].dtype)
        return invalid_argument(
            cat("dot_fused: operand 1 is ", c.in[1].dtype, ", operand 0 is ", c.in[0].dtype));
      std::vector<DType> types;
      for (const Output& r : c.region(0).results) types.push_back(c.region(0).type(r.value).dtype);
      return types;
    },
    .attrs = {{"dims", AttrKind::kString, true, "factors of a, b and the product"},
              {"shape", AttrKind::kDims, true, "the product's, without dims of extent 1"},
              {"inner", AttrKind::kInt, true, "0: the body has no rows"}},
    .regions = &kRegions,
    .flops = flops,
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = samples,
    .precision = Precision::kLow,
};

}  // namespace tegula
