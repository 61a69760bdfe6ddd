// The counterpart of qkv_concat on the way back. Products that are added (the gradient of what q, k
// and v were made of) become one, with factors side by side along what is summed; and the products
// of those factors with one value (the gradients of the weights) become one, and slices of it:
//
//   Σ_j a_j·w_j = A·W,   x·a_j = slice_j of x·A,   A = [a_0, a_1, …],  W alike
//
// On a GPU, whose small products leave it idle and whose kernels write the a_j side by side. It
// pays where what is no longer written and read, a sum's addends, is more than the a_j and, unless
// they are there side by side, the w_j. In Mode::kFast alone (sum_products does it by shards).
// Changes bits: an output is one chain, rounded once.
#include <map>

#include "tegula/base/algorithm.h"
#include "tegula/ir/builder.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/edit.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/plain_dot.h"

namespace tegula {

namespace {

struct Sum {
  std::vector<NodeId> dots, others;  // others: adds, and casts of the products
  bool is_cast = false;
  int a_dim = 0, b_dim = 0;  // that is summed
  ValueId weights = kNone;   // that are side by side already
  // For each dot's a, its product with what all of them are multiplied with; or none.
  std::vector<NodeId> gradients;
  int out_dim = 0;  // of those, where a's dim stands
};

class Merger {
 public:
  Merger(Module& module, Function& f)
      : f_(f), rw_(module, f), uses_(f.use_counts()), done_(f.nodes.size(), 0) {
    find_users();
    find_sums();
  }

  bool has_work() const { return !sums_.empty(); }

  Result<Function> run() {
    for (const auto& [id, s] : sums_)
      for (const auto* nodes : {&s.dots, &s.others, &s.gradients})
        for (const NodeId n : *nodes) done_[n] = 1;
    for (NodeId n = 0; n < f_.nodes.size(); ++n) {
      if (const auto it = sums_.find(n); it != sums_.end()) {
        merge(n, it->second);
      } else if (!done_[n]) {
        rw_.take(f_.nodes[n]);
      }
    }
    Function out = TEGULA_TRY(rw_.finish());
    remove_dead_nodes(out);
    return out;
  }

 private:
  static bool is_product(const Node& n) { return is_plain_dot(n) && !n.attrs.has("k_shards"); }

  void find_users() {
    users_.resize(f_.values.size());
    for (NodeId n = 0; n < f_.nodes.size(); ++n)
      for (const ValueId v : f_.nodes[n].inputs) users_[v].push_back(n);
  }

  // The products that v adds up, each read here alone.
  bool gather(ValueId v, bool is_root, Sum& s) const {
    const Node* n = f_.producer(v);
    if (n == nullptr || (!is_root && uses_[v] != 1)) return false;
    const NodeId id = f_.values[v].node;
    if (n->op == &add_op) {
      s.others.push_back(id);
      return gather(n->inputs[0], false, s) && gather(n->inputs[1], false, s);
    }
    const bool is_cast = n->op == &cast_op;
    const ValueId product = is_cast ? n->inputs[0] : v;
    const Node* dot = f_.producer(product);
    if (dot == nullptr || !is_product(*dot) || uses_[product] != 1) return false;
    if (s.dots.empty()) s.is_cast = is_cast;
    if (s.is_cast != is_cast) return false;
    if (is_cast) s.others.push_back(id);
    s.dots.push_back(f_.values[product].node);
    return true;
  }

  const Node& dot(const Sum& s, size_t i) const { return f_.nodes[s.dots[i]]; }

  // All products are alike, of different factors, and one factor is summed.
  bool is_one_product(Sum& s) const {
    const Node& first = dot(s, 0);
    const DotDims dims = dims_of(first);
    int n_summed = 0;
    for (int d = 0; d < dims.a.size(); ++d) {
      if (dims.out.has(dims.a[d])) continue;
      ++n_summed, s.a_dim = d;
      for (int e = 0; e < dims.b.size(); ++e)
        if (dims.b[e] == dims.a[d]) s.b_dim = e;
    }
    if (s.dots.size() < 2 || n_summed != 1) return false;
    for (size_t i = 0; i < s.dots.size(); ++i) {
      const Node& n = dot(s, i);
      if (!(n.attrs == first.attrs) || n.phase != first.phase ||
          !(f_.type(n.output()) == f_.type(first.output())) ||
          f_.type(n.inputs[0]).dtype != f_.type(first.inputs[0]).dtype ||
          !f_.type(n.inputs[0]).shape[s.a_dim].is_const())
        return false;
      for (size_t j = 0; j < i; ++j)
        if (dot(s, j).inputs[0] == n.inputs[0]) return false;
    }
    return true;
  }

  bool pays(const Sum& s) const {
    int64_t moved = 0;
    for (size_t i = 0; i < s.dots.size(); ++i) {
      moved += f_.type(dot(s, i).inputs[0]).bytes();
      if (s.weights == kNone) moved += f_.type(dot(s, i).inputs[1]).bytes();
    }
    return moved <= static_cast<int64_t>(s.dots.size() - 1) * f_.type(dot(s, 0).output()).bytes();
  }

  // A product whose second factor is dot i's first, and that keeps what the sum adds up.
  NodeId gradient(const Sum& s, size_t i, NodeId root, int& out_dim) const {
    const ValueId a = dot(s, i).inputs[0];
    for (const NodeId id : users_[a]) {
      const Node& n = f_.nodes[id];
      if (!is_product(n) || n.inputs[1] != a || n.inputs[0] == a || claimed_[id]) continue;
      const DotDims dims = dims_of(n);
      if (dims.a.has(dims.b[s.a_dim])) continue;
      const std::vector<NodeId>& users = users_[n.output()];
      // Values that the sum comes before.
      if (id >= root || std::any_of(users.begin(), users.end(), [&](NodeId u) { return u < root; }))
        continue;
      for (int d = 0; d < dims.out.size(); ++d)
        if (dims.out[d] == dims.b[s.a_dim]) out_dim = d;
      return id;
    }
    return kNone;
  }

  void find_gradients(Sum& s, NodeId root) const {
    for (size_t i = 0; i < s.dots.size(); ++i) {
      const NodeId id = gradient(s, i, root, s.out_dim);
      if (id == kNone) return s.gradients.clear();
      const Node& n = f_.nodes[id];
      if (i > 0) {
        const Node& first = f_.nodes[s.gradients[0]];
        if (n.inputs[0] != first.inputs[0] || !(n.attrs == first.attrs) || n.phase != first.phase)
          return s.gradients.clear();
      }
      s.gradients.push_back(id);
    }
  }

  void find_sums() {
    for (NodeId id = 0; id < f_.nodes.size(); ++id) {
      const Node& n = f_.nodes[id];
      Sum s;
      if (n.op != &add_op || n.phase != Phase::kBackward || !gather(n.output(), true, s) ||
          !is_one_product(s))
        continue;
      // As qkv_concat has the weights, so that they are side by side once.
      std::sort(s.dots.begin(), s.dots.end(),
                [&](NodeId x, NodeId y) { return f_.nodes[x].inputs[1] < f_.nodes[y].inputs[1]; });
      s.weights = found_concat(operands(s, 1), s.b_dim, id);
      if (!pays(s)) continue;
      for (const NodeId part : s.others) sums_.erase(part);
      sums_.emplace(id, std::move(s));
    }
    claimed_.resize(f_.nodes.size());
    for (const auto& [id, s] : sums_)
      for (const NodeId n : s.dots) claimed_[n] = 1;
    for (auto& [id, s] : sums_) {
      find_gradients(s, id);
      for (const NodeId n : s.gradients) claimed_[n] = 1;
    }
  }

  // The values side by side, as a node before `root` has them.
  ValueId found_concat(const std::vector<ValueId>& values, int dim, NodeId root) const {
    for (const NodeId id : users_[values[0]]) {
      const Node& n = f_.nodes[id];
      if (id < root && n.op == &concat_op && n.attrs.i("dim") == dim &&
          std::equal(n.inputs.begin(), n.inputs.end(), values.begin(), values.end()))
        return n.output();
    }
    return kNone;
  }

  std::vector<ValueId> operands(const Sum& s, size_t operand) const {
    std::vector<ValueId> all;
    for (size_t i = 0; i < s.dots.size(); ++i) all.push_back(dot(s, i).inputs[operand]);
    return all;
  }
  Var side_by_side(const std::vector<ValueId>& values, int dim) {
    std::vector<Var> all;
    for (const ValueId v : values) all.push_back(rw_.at(v));
    return concat(all, dim);
  }

  void merge(NodeId root, const Sum& s) {
    const Node &n = f_.nodes[root], &first = dot(s, 0);
    Builder& b = rw_.builder();
    b.set_origin(n.origin);
    b.set_phase(n.phase);
    const std::vector<ValueId> factors = operands(s, 0);
    const Var a = side_by_side(factors, s.a_dim);
    const Var w = s.weights == kNone ? side_by_side(operands(s, 1), s.b_dim) : rw_.at(s.weights);
    const Var y = b.emit(dot_op, first.attrs, {a, w});
    rw_.bind(n.output(), s.is_cast ? cast(y, f_.type(n.output()).dtype) : y);
    if (s.gradients.empty()) return;
    const Node& of_first = f_.nodes[s.gradients[0]];
    b.set_origin(of_first.origin);
    b.set_phase(of_first.phase);
    const Var all = b.emit(dot_op, of_first.attrs, {rw_.at(of_first.inputs[0]), a});
    int64_t at = 0;
    for (size_t i = 0; i < s.gradients.size(); ++i) {
      const Dim size = f_.type(factors[i]).shape[s.a_dim];
      b.set_origin(f_.nodes[s.gradients[i]].origin);
      rw_.bind(f_.nodes[s.gradients[i]].output(), slice(all, s.out_dim, at, size));
      at += size.bound();
    }
  }

  Function& f_;
  Rewriter rw_;
  const std::vector<uint32_t> uses_;
  std::vector<std::vector<NodeId>> users_;  // per value
  std::vector<uint8_t> done_, claimed_;     // claimed: part of one sum's products or gradients
  std::map<NodeId, Sum> sums_;              // by the add that ends them
};

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  if (options.mode != Mode::kFast || options.target->device != DeviceKind::kCuda) return false;
  Merger m(module, f);
  return rewrite_if_any(m, f);
}

}  // namespace

extern const PassDef qkv_grads_pass = {
    .name = "qkv_grads",
    .doc =
        "in mode fast on a GPU, products that are added are one, and so are their weights' "
        "gradients",
    .sums = "in mode fast products that are added are one chain, rounded once",
    .phase = PassPhase::kCombine,
    .needs = kIsUnfused,
    .run = run,
};

}  // namespace tegula
