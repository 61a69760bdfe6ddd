// Products of one value with several weights (q, k and v; gate and up) become one product with the
// weights side by side, and slices of it. [TASO, Jia et al. 2019, figure 1]
//
// It pays where reading and packing the shared operand again would move more bytes than putting the
// weights side by side does: (n - 1) · bytes(x) > 2 · Σ bytes(w). Every output is the same chain of
// multiply-adds as before: bits stay.
#include <map>

#include "tegula/ir/builder.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/edit.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/plain_dot.h"

namespace tegula {

namespace {

struct Group {
  std::vector<NodeId> dots;
  int w_dim = 0, out_dim = 0;  // where the weights' own factor stands
};

class Merger {
 public:
  Merger(Module& module, Function& f) : f_(f), rw_(module, f), done_(f.nodes.size(), 0) {
    find_groups();
  }

  bool has_work() const { return !groups_.empty(); }

  Result<Function> run() {
    for (NodeId n = 0; n < f_.nodes.size(); ++n) {
      if (const auto it = groups_.find(n); it != groups_.end()) {
        merge(it->second);
      } else if (!done_[n]) {
        rw_.take(f_.nodes[n]);
      }
    }
    Function out = TEGULA_TRY(rw_.finish());
    remove_dead_nodes(out);
    return out;
  }

 private:
  // A weight, possibly cast or seen through views: there whenever it is needed.
  bool is_weight(ValueId v) const {
    const Node* n = f_.producer(v);
    for (; n && n->inputs.size() == 1 && (n->op->is_view || n->op == &cast_op); n = f_.producer(v))
      v = n->inputs[0];
    return !n && f_.params[f_.values[v].index].role == Role::kWeight;
  }

  // The only factor that b has alone, as dims of b and of the result.
  bool find_dims(const Node& n, Group& g) const {
    const DotDims dims = dims_of(n);
    int found = 0;
    for (int d = 0; d < dims.b.size(); ++d)
      if (!dims.a.has(dims.b[d])) {
        ++found;
        g.w_dim = d;
        for (int o = 0; o < dims.out.size(); ++o)
          if (dims.out[o] == dims.b[d]) g.out_dim = o;
      }
    return found == 1 && f_.type(n.inputs[1]).shape[g.w_dim].is_const();
  }

  bool belongs(const Group& g, const Node& n) const {
    const Node& first = f_.nodes[g.dots[0]];
    if (first.inputs[0] != n.inputs[0] || !(first.attrs == n.attrs) || first.phase != n.phase)
      return false;
    for (NodeId m : g.dots)
      if (f_.nodes[m].inputs[1] == n.inputs[1]) return false;
    return true;
  }

  bool pays(const Group& g) const {
    int64_t weights = 0;
    for (NodeId n : g.dots) weights += f_.type(f_.nodes[n].inputs[1]).bytes();
    const auto n = static_cast<int64_t>(g.dots.size());
    return (n - 1) * f_.type(f_.nodes[g.dots[0]].inputs[0]).bytes() > 2 * weights;
  }

  void find_groups() {
    std::map<ValueId, std::vector<Group>> by_operand;
    for (NodeId id = 0; id < f_.nodes.size(); ++id) {
      const Node& n = f_.nodes[id];
      Group g;
      if (!is_plain_dot(n) || !is_weight(n.inputs[1]) || !find_dims(n, g)) continue;
      auto& groups = by_operand[n.inputs[0]];
      Group* mine = nullptr;
      for (Group& other : groups)
        if (belongs(other, n)) mine = &other;
      if (!mine) mine = &groups.emplace_back(std::move(g));
      mine->dots.push_back(id);
    }
    for (auto& [x, groups] : by_operand)
      for (Group& g : groups)
        if (g.dots.size() > 1 && pays(g)) groups_.emplace(g.dots[0], std::move(g));
  }

  // Makes sure that a weight's value is there in the new function.
  void need(ValueId v) {
    if (rw_.has(v)) return;
    const NodeId n = f_.values[v].node;
    for (ValueId x : f_.nodes[n].inputs) need(x);
    rw_.take(f_.nodes[n]);
    done_[n] = 1;
  }

  void merge(const Group& g) {
    const Node& first = f_.nodes[g.dots[0]];
    Builder& b = rw_.builder();
    b.set_origin(first.origin);
    b.set_phase(first.phase);
    std::vector<Var> weights;
    for (NodeId n : g.dots) {
      need(f_.nodes[n].inputs[1]);
      weights.push_back(rw_.at(f_.nodes[n].inputs[1]));
    }
    const Var all =
        b.emit(dot_op, first.attrs, {rw_.at(first.inputs[0]), concat(weights, g.w_dim)});
    int64_t at = 0;
    for (NodeId n : g.dots) {
      const Dim size = f_.type(f_.nodes[n].inputs[1]).shape[g.w_dim];
      b.set_origin(f_.nodes[n].origin);
      rw_.bind(f_.nodes[n].output(), slice(all, g.out_dim, at, size));
      at += size.bound();
      done_[n] = 1;
    }
  }

  Function& f_;
  Rewriter rw_;
  std::vector<uint8_t> done_;
  std::map<NodeId, Group> groups_;  // by their first dot
};

Result<bool> run(Module& module, Function& f, const PassOptions&) {
  Merger m(module, f);
  return rewrite_if_any(m, f);
}

}  // namespace

extern const PassDef qkv_concat_pass = {
    .name = "qkv_concat",
    .doc = "dots that share an operand become one with the weights side by side",
    .phase = PassPhase::kCombine,
    .needs = kIsUnfused,
    .run = run,
};

}  // namespace tegula
