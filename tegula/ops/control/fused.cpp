// Elementwise ops and row reductions as one node, written by the fusion pass: regions[0] is the
// body. On the CPU the tile interpreter runs it, on the GPU generated code; both from the body.
#include "tegula/ops/common/fused.h"

#include "tegula/base/algorithm.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/common/elementwise.h"
#include "tegula/ops/common/regions.h"
#include "tegula/ops/math.h"

namespace tegula {

Shape squeezed(const Shape& s) {
  Shape out;
  for (const Dim& d : s)
    if (!(d == Dim(1))) out.push_back(d);
  return out;
}

bool only_ones_differ(const Shape& a, const Shape& b) {
  int i = 0, j = 0;
  for (;;) {
    while (i < a.rank() && a[i] == Dim(1)) ++i;
    while (j < b.rank() && b[j] == Dim(1)) ++j;
    if (i == a.rank() || j == b.rank()) return i == a.rank() && j == b.rank();
    if (!(a[i++] == b[j++])) return false;
  }
}

namespace {

using ValueDims = std::array<int8_t, kMaxRank>;

struct Placer {
  const Function& body;
  FusedSpace& space;

  Error misfit(std::string_view what, const Shape& s) const {
    return invalid_argument(cat("fused: ", what, " ", s, " does not lie in the space ", space.shape,
                                " with ", space.n_inner, " inner dims"));
  }

  // The dims of a value of which the others than 1 are the first `rank` of the space.
  Result<ValueDims> leading(const Shape& s, std::string_view what) const {
    ValueDims dims;
    dims.fill(FusedSpace::kOne);
    int8_t at = 0;
    for (int d = 0; d < s.rank(); ++d) {
      if (s[d] == Dim(1)) continue;
      if (at >= space.rank() || !(s[d] == space.shape[at])) return misfit(what, s);
      dims[d] = at++;
    }
    if (at != 0 && at != space.rank() && at != space.rank() - space.n_inner) return misfit(what, s);
    return dims;
  }

  Status place(ValueId v, const ValueDims& dims, std::string_view by) {
    ValueDims& have = space.dims[v];
    const auto rank = static_cast<size_t>(body.type(v).shape.rank());
    if (have[0] != FusedSpace::kUnset) {
      for (size_t d = 0; d < rank; ++d)
        if (have[d] != dims[d]) return misfit(cat("an operand of ", by), body.type(v).shape);
      return {};
    }
    have = dims;
    return {};
  }

  // Rows are reduced over the inner dims, columns over the outer ones.
  Status reduction(const Node& n, bool of_columns) {
    const Shape& x = body.type(n.inputs[0]).shape;
    const ValueDims dims = TEGULA_TRY(leading(x, n.op->name));
    if (squeezed(x).rank() != space.rank()) return misfit(n.op->name, x);
    std::vector<bool> reduced(static_cast<size_t>(x.rank()), false);
    for (int64_t d : n.attrs.ints("dims")) reduced[d] = true;
    for (int d = 0; d < x.rank(); ++d) {
      const auto k = static_cast<size_t>(d);
      const bool is_inner = dims[k] >= space.rank() - space.n_inner;
      if (dims[k] != FusedSpace::kOne && reduced[k] != (is_inner != of_columns))
        return misfit(n.op->name, x);
    }
    (of_columns ? space.has_columns : space.has_reduction) = true;
    return place(n.inputs[0], dims, n.op->name);
  }

  // A result that a reduction of columns gives: its dims are the inner ones.
  bool is_column(ValueId v) const {
    const Node* n = body.producer(v);
    return n && n->op == &reduce_sum_op && space.n_inner > 0 && space.n_inner < space.rank() &&
           squeezed(body.type(v).shape).rank() == space.n_inner && !reduces_inner(*n);
  }
  // Is the last dim of the operand reduced?
  bool reduces_inner(const Node& n) const {
    const Shape& x = body.type(n.inputs[0]).shape;
    const auto& dims = n.attrs.ints("dims");
    int last = x.rank() - 1;
    while (last > 0 && x[last] == Dim(1)) --last;
    return std::find(dims.begin(), dims.end(), last) != dims.end();
  }
  Status place_column(ValueId v) {
    const Shape& s = body.type(v).shape;
    ValueDims dims;
    dims.fill(FusedSpace::kOne);
    auto at = static_cast<int8_t>(space.rank() - space.n_inner);
    for (int d = 0; d < s.rank(); ++d)
      if (!(s[d] == Dim(1))) dims[d] = at++;
    return place(v, dims, "the results");
  }

  Status view(const Node& n, const ValueDims& out) {
    const Shape &x = body.type(n.inputs[0]).shape, &y = body.type(n.output()).shape;
    ValueDims dims;
    dims.fill(FusedSpace::kOne);
    if (n.op == &broadcast_op) {
      for (int d = 0; d < x.rank(); ++d)
        if (!(x[d] == Dim(1))) dims[d] = out[d + y.rank() - x.rank()];
    } else {
      if (n.op != &reshape_op || !only_ones_differ(x, y)) return misfit(n.op->name, y);
      int e = 0;
      for (int d = 0; d < x.rank(); ++d) {
        if (x[d] == Dim(1)) continue;
        while (y[e] == Dim(1)) ++e;
        dims[d] = out[e++];
      }
    }
    return place(n.inputs[0], dims, n.op->name);
  }

  Status run() {
    ValueDims unset;
    unset.fill(FusedSpace::kUnset);
    space.dims.assign(body.values.size(), unset);
    for (const Output& r : body.results) {
      if (is_column(r.value)) {
        TEGULA_TRY(place_column(r.value));
        continue;
      }
      const Shape& s = body.type(r.value).shape;
      TEGULA_TRY(place(r.value, TEGULA_TRY(leading(s, "a result")), "the results"));
    }
    for (size_t i = body.nodes.size(); i-- > 0;) {
      const Node& n = body.nodes[i];
      if (n.n_outputs != 1) return invalid_argument(cat("fused: ", n.op->name, " in a body"));
      const ValueDims out = space.dims[n.output()];
      if (out[0] == FusedSpace::kUnset)
        return invalid_argument(cat("fused: nothing reads the body's ", n.op->name));
      if (n.op->is_reduction) {
        TEGULA_TRY(reduction(n, is_column(n.output())));
      } else if (n.op->is_view) {
        TEGULA_TRY(view(n, out));
      } else if (n.op->is_elementwise) {
        for (ValueId v : n.inputs) TEGULA_TRY(place(v, out, n.op->name));
      } else if (n.op == &random_uniform_op) {
        TEGULA_TRY(place(n.inputs[0], TEGULA_TRY(leading({}, n.op->name)), n.op->name));
      } else if (n.op != &constant_op && n.op != &iota_op) {
        return invalid_argument(cat("fused: ", n.op->name, " has no place in a body"));
      }
    }
    return {};
  }
};

std::vector<DimExpr> exprs(const FusedSpace& s, const Function& body, ValueId v) {
  std::vector<DimExpr> out;
  for (int d = 0; d < body.type(v).shape.rank(); ++d) {
    const int8_t at = s.dims[v][d];
    out.push_back(at < 0 ? DimExpr{} : DimExpr{0, {{static_cast<uint8_t>(at), 1}}});
  }
  return out;
}

Status check_region(const OpCall& c) {
  if (c.regions.size() != 1 || !c.module) return invalid_argument("fused: takes one region");
  const Function& body = c.region(0);
  if (body.params.size() != c.in.size())
    return invalid_argument(
        cat("fused: got ", c.in.size(), " operands, the body takes ", body.params.size()));
  for (size_t k = 0; k < c.in.size(); ++k)
    if (!(body.type(body.params[k].value) == c.in[k]))
      return invalid_argument(cat("fused: operand ", k, " is ", c.in[k], ", the body takes ",
                                  body.type(body.params[k].value)));
  return {};
}

Result<DimMap> dims(const OpCall& c) {
  TEGULA_TRY(check_region(c));
  const Function& body = c.region(0);
  const FusedSpace space = TEGULA_TRY(fused_space(body, *c.attrs));
  DimMap m;
  for (int d = 0; d < space.rank(); ++d) {
    m.add_factor(cat("d", d), space.shape[d]);
    const bool is_inner = d >= space.rank() - space.n_inner;
    m.factors.back().whole = is_inner ? space.has_reduction : space.has_columns;
  }
  for (const Param& p : body.params) m.operands.push_back(exprs(space, body, p.value));
  for (const Output& r : body.results) {
    m.results.push_back(exprs(space, body, r.value));
    m.result_shapes.push_back(body.type(r.value).shape);
  }
  m.finish();
  return m;
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    a.run_region(a, 0, a.in, a.out);
  }
};

}  // namespace

Result<FusedSpace> fused_space(const Function& body, const Attrs& attrs) {
  FusedSpace space;
  space.shape = Shape(std::span<const Dim>(attrs.dims("shape")));
  space.n_inner = static_cast<int>(attrs.i("inner"));
  for (const Dim& d : space.shape)
    if (d == Dim(1)) return invalid_argument("fused: a dim of the space is 1: leave it out");
  if (space.n_inner < 0 || space.n_inner > space.rank())
    return invalid_argument(cat("fused: ", space.n_inner, " inner dims of ", space.shape));
  TEGULA_TRY(Placer{body, space}.run());
  return space;
}

static constexpr RegionDef kRegions = {.parts = {{"the body", RegionRole::kProgram}}};

constinit const OpDef fused_op = {
    .name = "fused",
    .formula = "y = body(x)",
    .group = "control",
    .dims_fn = dims,
    .types_fn = [](const OpCall& c) -> Result<std::vector<DType>> {
      TEGULA_TRY(check_region(c));
      std::vector<DType> types;
      for (const Output& r : c.region(0).results) types.push_back(c.region(0).type(r.value).dtype);
      return types;
    },
    .attrs = {{"shape", AttrKind::kDims, true, "iteration space, without dims of extent 1"},
              {"inner", AttrKind::kInt, true, "how many of its last dims form a row"}},
    .regions = &kRegions,
    .flops = region_flops,
    .decompose = [](Builder& b, const OpCall& c, std::span<const Var> in) -> std::vector<Var> {
      return inline_call(b, c.region(0), in);
    },
    .reference = reference_of<Ref>,
};

}  // namespace tegula
