// dot(x, dequantise(q, scale)) becomes one dot_quantised: the weights are never written out, and a
// byte of each is read instead of four.
//
// Fires for up to kMostRows rows of x (with more, widening once for all of them costs less), where
// the weights stand as [k, n] with a scale for each column. Bits stay.
#include "tegula/ops/dot_quantised.h"
#include "tegula/ops/table.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/peephole.h"
#include "tegula/passes/plain_dot.h"

namespace tegula {

namespace {
constexpr int64_t kMostRows = 64;

// Is it "… k, k n -> … n"?
bool is_layer(const DotDims& d) {
  if (d.b.size() != 2 || d.a.size() < 2 || d.out.size() != d.a.size()) return false;
  for (int i = 0; i + 1 < d.a.size(); ++i)
    if (d.a[i] != d.out[i]) return false;
  return d.a.back() == d.b[0] && d.out.back() == d.b[1];
}

Var dot_rule(Peephole& p, const Node& n) {
  if (!is_plain_dot(n) || !is_layer(dims_of(n))) return {};
  const Node* made = p.made_by(p.in(n, 1), dequantise_op);
  Var x = p.in(n, 0);
  const Type out = p.result_type(n);
  if (!made || made->attrs.i("axis") != 1 || x.dtype() != DType::kF32 || out.dtype != DType::kF32)
    return {};
  const Var q = p.operand(*made, 0), scale = p.operand(*made, 1);
  int64_t rows = 1;
  bool is_const = true;
  for (int d = 0; d + 1 < x.rank(); ++d)
    rows *= x.dim(d).bound(), is_const = is_const && x.dim(d).is_const();
  if (rows > kMostRows || (x.rank() > 2 && !is_const)) return {};
  if (x.rank() > 2) x = reshape(x, {Dim(rows), x.dim(x.rank() - 1)});
  Attrs attrs;
  if (n.attrs.has("k_shards")) attrs.set("k_shards", n.attrs.i("k_shards"));
  const Var y = p.builder().emit(dot_quantised_op, std::move(attrs),
                                 {x, q, reshape(scale, {Dim(1), scale.dim(0)})}, n.origin.loc);
  return out.shape.rank() > 2 ? reshape(y, out.shape) : y;
}

Result<bool> run(Module& m, Function& f, const PassOptions&) {
  static constexpr Peephole::Rule kRules[] = {{&dot_op, dot_rule}};
  return Peephole::rewrite(m, f, kRules);
}

}  // namespace

extern const PassDef quantised_dot_pass = {
    .name = "quantised_dot",
    .doc = "products with dequantised weights widen them in registers",
    .phase = PassPhase::kCanonicalise,
    .needs = kHasComposites,
    .run = run,
};

}  // namespace tegula
