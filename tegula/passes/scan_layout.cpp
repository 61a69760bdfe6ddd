// A matrix by which every step of a loop multiplies a few rows is laid out once, before the loop,
// as products of few rows like to read it: contiguous along n. Else each step packs it anew, which
// costs more than the product. The same chains of multiply-adds: bits stay.

#include "tegula/base/algorithm.h"
#include "tegula/ops/common/regions.h"
#include "tegula/ops/math.h"
#include "tegula/passes/loops.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/plain_dot.h"

namespace tegula {

namespace {

constexpr int64_t kFewRows = 64;
constexpr int64_t kManySteps = 8;

// The invariants of a scan that one of its products takes as [n, k].
class Loop {
 public:
  Loop(Module& module, const Function&, const Node& scan)
      : module_(module), scan_(scan), body_(module[scan.regions[0]]) {
    const Dim length = scan.attrs.dims("length")[0];
    if (length.bound() < kManySteps) return;
    for (const Node& n : body_.nodes)
      if (takes_transposed(n)) dots_.push_back(&n);
  }

  bool has_work() const { return !dots_.empty(); }

  void write(Rewriter& rw) {
    rw.builder().set_origin(scan_.origin);
    rw.builder().set_phase(scan_.phase);
    std::vector<Var> in;
    for (ValueId v : scan_.inputs) in.push_back(rw.at(v));
    Rewriter inner(module_, body_);
    std::vector<std::pair<ValueId, Var>> done;  // a parameter, and its transposed one inside
    const auto transposed = [&](ValueId v) {
      for (const auto& [param, by] : done)
        if (param == v) return by;
      const Type& t = body_.type(v);
      const Var by = inner.builder().param(cat(body_.params[body_.values[v].index].name, "_t"),
                                           {t.dtype, {t.shape[1], t.shape[0]}});
      in.push_back(rw.builder().emit(
          copy_op, {}, {permute(rw.at(scan_.inputs[body_.values[v].index]), {1, 0})}));
      return done.emplace_back(v, by).second;
    };
    for (const Node* n : dots_) transposed(n->inputs[1]);
    for (const Node& n : body_.nodes) {
      if (std::find(dots_.begin(), dots_.end(), &n) == dots_.end()) {
        inner.clone(n);
        continue;
      }
      DotDims dims = dims_of(n);
      std::swap(dims.b[0], dims.b[1]);
      Node dot = n;
      dot.attrs.set("dims", dims.text());
      std::vector<ValueId> operands;
      for (ValueId v : n.inputs) operands.push_back(inner.id(v));
      operands[1] = transposed(n.inputs[1]).id();
      const Type types[] = {body_.type(n.output())};
      inner.bind(n.output(),
                 Var(&inner.builder(), inner.builder().append(dot, std::move(operands), types)));
    }
    auto made = inner.finish();
    if (!made.ok()) return static_cast<void>(rw.builder().fail(made.error()));
    made->name = fresh_name(rw.builder(), "scan_layout");
    const auto out = rw.builder().emit_n(scan_op, scan_.attrs, in, {module_.add(std::move(*made))});
    for (uint32_t i = 0; i < out.size(); ++i) rw.bind(scan_.output(i), out[i]);
  }

 private:
  bool takes_transposed(const Node& n) const {
    if (n.op != &dot_op) return false;
    const Value& b = body_.values[n.inputs[1]];
    const auto first = static_cast<size_t>(scan_.attrs.i("n_carry") + scan_.attrs.i("n_xs"));
    if (b.node != kNone || b.index < first || b.type.shape.rank() != 2) return false;
    const DotDims dims = dims_of(n);
    if (dims.out.has(dims.b[1]) || !dims.out.has(dims.b[0])) return false;
    if (dims.a.has(dims.b[0])) return false;
    int64_t rows = 1;
    for (int d = 0; d < dims.a.size(); ++d)
      if (dims.out.has(dims.a[d])) rows *= body_.type(n.inputs[0]).shape[d].bound();
    return rows <= kFewRows;
  }

  Module& module_;
  const Node& scan_;
  const Function body_;  // a copy: the module grows
  std::vector<const Node*> dots_;
};

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  if (options.remat == Remat::kBudget) return false;
  return rewrite_loops<Loop>(module, f);
}

}  // namespace

extern const PassDef scan_layout_pass = {
    .name = "scan_layout",
    .doc = "matrices of a loop's products are laid out once, before it",
    .phase = PassPhase::kLoops,
    .run = run,
};

}  // namespace tegula
