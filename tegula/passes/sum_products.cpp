// In Mode::kExact products over the same shards that are added (the gradients of what q, k and v,
// or gate and up, were made of) become one product. Its shard i holds shard i of each, one after
// another in the order in which they were added:
//
//   Σ_j a_j·b_j = A·B,   A = [a_0's shard 0, a_1's shard 0, …, a_0's shard 1, …],  B alike
//
// So ranks that hold shards of all of them have one sum that pends, and need one all_reduce. An
// operand that is a concatenation along what is summed (a fused projection's gradient) is several
// addends; where its one other reader is a product that keeps that dim (the gradient of the
// projection's weight), that one reads A, too, and its columns are put back, where they are fewer
// than what is put side by side. Changes bits: each output is one chain a shard, rounded once. Runs
// on a whole step alone.

#include <map>

#include "tegula/base/algorithm.h"
#include "tegula/ir/builder.h"
#include "tegula/ir/sum_shards.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/edit.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/plain_dot.h"

namespace tegula {

namespace {

// One product: a · b, or what a slice of each gives.
struct Addend {
  ValueId a = kNone, b = kNone;
  int64_t b_start = 0, size = 0;  // of b's dim that is summed
};

class SumProducts {
 public:
  SumProducts(Module& module, Function& f)
      : f_(f), rw_(module, f), uses_(f.use_counts()), sums_(f.nodes.size()) {
    for (NodeId n = 0; n < f.nodes.size(); ++n) find(n);
    for (const Node& n : f.nodes)
      if (n.op == &add_op && !sums_[index(n)].empty())
        for (ValueId v : n.inputs) absorbed_.push_back(f.values[v].node);
    for (NodeId n : absorbed_) sums_[n].clear();
    for (auto& sum : sums_)
      if (!is_worth_it(sum)) sum.clear();
    for (NodeId n = 0; n < f.nodes.size(); ++n) find_columns(n);
  }

  bool has_work() const {
    return std::any_of(sums_.begin(), sums_.end(), [](const auto& s) { return !s.empty(); });
  }

  Result<Function> run() {
    for (NodeId n = 0; n < f_.nodes.size(); ++n) {
      if (!sums_[n].empty()) {
        emit(n);
      } else if (const auto it = columns_.find(n); it != columns_.end()) {
        emit_columns(n, it->second);
      } else if (f_.nodes[n].op == &dot_op || f_.nodes[n].op == &add_op) {
        rw_.clone(f_.nodes[n]);  // a sum may still read it
      } else {
        rw_.take(f_.nodes[n]);
      }
    }
    Function out = TEGULA_TRY(rw_.finish());
    remove_dead_nodes(out);
    return out;
  }

 private:
  NodeId index(const Node& n) const { return static_cast<NodeId>(&n - f_.nodes.data()); }

  // The dims of a and b that are summed, if it is one factor.
  struct Summed {
    int a = -1, b = -1;
  };
  static Summed summed(const Node& dot) {
    const DotDims dims = dims_of(dot);
    Summed s;
    for (int d = 0; d < dims.a.size(); ++d) {
      if (dims.out.has(dims.a[d])) continue;
      if (s.a >= 0) return {};
      s.a = d;
      for (int e = 0; e < dims.b.size(); ++e)
        if (dims.b[e] == dims.a[d]) s.b = e;
    }
    return s;
  }

  // Finds what node n adds up: the addends of a product, or of both operands of an add.
  void find(NodeId id) {
    const Node& n = f_.nodes[id];
    if (n.phase == Phase::kUpdate) return;
    if (n.op == &add_op) {
      const ValueId x = n.inputs[0], y = n.inputs[1];
      const NodeId l = f_.values[x].node, r = f_.values[y].node;
      if (x == y || l == kNone || r == kNone || uses_[x] != 1 || uses_[y] != 1) return;
      if (sums_[l].empty() || sums_[r].empty() || !is_alike(l, r)) return;
      sums_[id] = sums_[l];
      sums_[id].insert(sums_[id].end(), sums_[r].begin(), sums_[r].end());
    } else if (n.op == &dot_op && is_plain_dot(n) && !n.attrs.has("out")) {
      const Summed s = summed(n);
      if (s.a < 0) return;
      const Dim size = f_.type(n.inputs[0]).shape[s.a];
      const bool has_room = f_.type(n.inputs[0]).shape.rank() < kMaxRank &&
                            f_.type(n.inputs[1]).shape.rank() < kMaxRank;
      if (size.is_const() && has_room) sums_[id] = addends(n, s, size.bound());
    }
  }

  std::vector<Addend> addends(const Node& n, Summed s, int64_t size) const {
    const Node* from = f_.producer(n.inputs[0]);
    if (!from || from->op != &concat_op || from->attrs.i("dim") != s.a)
      return {{n.inputs[0], n.inputs[1], 0, size}};
    std::vector<Addend> all;
    int64_t start = 0;
    for (ValueId v : from->inputs) {
      const Dim part = f_.type(v).shape[s.a];
      if (!part.is_const()) return {};
      all.push_back({v, n.inputs[1], start, part.bound()});
      start += part.bound();
    }
    return all;
  }

  // The product that a sum has its form from.
  const Node& first_dot(NodeId id) const {
    while (f_.nodes[id].op == &add_op) id = f_.values[f_.nodes[id].inputs[0]].node;
    return f_.nodes[id];
  }
  bool is_alike(NodeId l, NodeId r) const {
    const Node &x = first_dot(l), &y = first_dot(r);
    return x.attrs.str("dims") == y.attrs.str("dims") && x.phase == y.phase &&
           f_.type(x.output()) == f_.type(y.output()) &&
           f_.type(x.inputs[0]).dtype == f_.type(y.inputs[0]).dtype;
  }

  static bool is_worth_it(const std::vector<Addend>& sum) {
    int64_t all = 0;
    for (const Addend& a : sum) {
      if (a.size % kMostShards != 0) return false;
      all += a.size;
    }
    return sum.size() > 1 && all >= kLeastSummed;
  }

  // Is n a product, smaller than its second operand, a concatenation that a sum reads apart, and
  // nobody else?
  void find_columns(NodeId id) {
    const Node& n = f_.nodes[id];
    if (n.op != &dot_op || !sums_[id].empty() || !is_plain_dot(n) || n.attrs.has("out") ||
        f_.type(n.output()).shape.rank() == kMaxRank)
      return;
    const ValueId joined = n.inputs[1];
    const Node* from = f_.producer(joined);
    if (!from || from->op != &concat_op || uses_[joined] != 2) return;
    if (f_.type(n.output()).bytes() >= f_.type(joined).bytes()) return;
    for (NodeId sum = 0; sum < id; ++sum) {
      const Node& other = f_.nodes[sum];
      if (sums_[sum].empty() || other.op != &dot_op || other.inputs[0] != joined) continue;
      const DotDims dims = dims_of(n);
      for (int d = 0; d < dims.out.size(); ++d)
        if (dims.out[d] == dims.b[summed(other).a]) columns_[id] = {sum, d};
    }
  }

  // Shard by shard, the values' shards side by side along `dim`.
  static Var by_shards(std::span<const Var> xs, int dim) {
    std::vector<Var> apart;
    Shape whole = xs[0].shape();
    int64_t extent = 0;
    for (const Var& x : xs) {
      Shape s;
      for (int d = 0; d < x.rank(); ++d) {
        if (d == dim) s.push_back(kMostShards);
        s.push_back(d == dim ? Dim(x.dim(d).bound() / kMostShards) : x.dim(d));
      }
      apart.push_back(reshape(x, s));
      extent += x.dim(dim).bound();
    }
    whole[dim] = extent;
    return reshape(concat(apart, dim + 1), whole);
  }

  void emit(NodeId id) {
    const Node& n = f_.nodes[id];
    const Node& form = first_dot(id);
    const Summed s = summed(form);
    Builder& b = rw_.builder();
    b.set_origin(n.origin);
    b.set_phase(n.phase);
    std::vector<Var> left, right;
    for (const Addend& x : sums_[id]) {
      left.push_back(rw_.at(x.a));
      const Var w = rw_.at(x.b);
      right.push_back(w.dim(s.b) == Dim(x.size) ? w : slice(w, s.b, x.b_start, x.size));
    }
    Attrs attrs{{"dims", form.attrs.str("dims")}};
    attrs.set("k_shards", kMostShards);
    lefts_[id] = by_shards(left, s.a);
    rw_.bind(n.output(), b.emit(dot_op, attrs, {lefts_[id], by_shards(right, s.b)}));
  }

  struct Columns {
    NodeId sum = kNone;
    int dim = 0;  // of the product
  };
  // The product with A, and of each addend its columns again.
  void emit_columns(NodeId id, const Columns& c) {
    const Node& n = f_.nodes[id];
    Builder& b = rw_.builder();
    b.set_origin(n.origin);
    b.set_phase(n.phase);
    const Var all = b.emit(dot_op, n.attrs, {rw_.at(n.inputs[0]), lefts_.at(c.sum)});
    Shape shards = all.shape(), own = all.shape();
    shards[c.dim] = all.dim(c.dim).bound() / kMostShards;
    shards.insert(c.dim, kMostShards);
    std::vector<Var> parts;
    int64_t at = 0;
    for (const Addend& x : sums_[c.sum]) {
      const int64_t size = x.size / kMostShards;
      own[c.dim] = x.size;
      parts.push_back(reshape(slice(reshape(all, shards), c.dim + 1, at, size), own));
      at += size;
    }
    rw_.bind(n.output(), concat(parts, c.dim));
  }

  Function& f_;
  Rewriter rw_;
  std::vector<uint32_t> uses_;
  std::vector<std::vector<Addend>> sums_;  // per node; empty: it is none, or part of another
  std::vector<NodeId> absorbed_;
  std::map<NodeId, Columns> columns_;  // by the product that is read again
  std::map<NodeId, Var> lefts_;        // A, by sum
};

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  if (options.mode != Mode::kExact || !options.is_step || options.is_region) return false;
  SumProducts pass(module, f);
  return rewrite_if_any(pass, f);
}

}  // namespace

extern const PassDef sum_products_pass = {
    .name = "sum_products",
    .doc = "in mode exact, products over the same shards that are added are one product",
    .sums = "in mode exact products that are added are one chain a shard, rounded once",
    .phase = PassPhase::kOrder,
    .needs = kIsLowered,
    .run = run,
};

}  // namespace tegula
