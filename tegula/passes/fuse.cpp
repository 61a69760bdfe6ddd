// Fuses elementwise ops and row reductions, so that a value between two of them never leaves the
// cache: writes each group that fuse_groups found as one `fused` node.
#include "tegula/passes/fuse.h"

#include <bit>
#include <unordered_map>

#include "tegula/base/range.h"
#include "tegula/ir/builder.h"
#include "tegula/ir/hash.h"
#include "tegula/ops/table.h"
#include "tegula/passes/edit.h"
#include "tegula/passes/fuse_groups.h"

namespace tegula {

namespace {

// Ids number parameters and nodes' values in the order in which they were met: which of them are
// parameters is as much part of a body as its nodes are.
uint64_t hash_of_body(const Function& f) {
  uint64_t h = f.params.size();
  for (const Param& p : f.params) h = mix(mix(h, p.value), hash_of(f.type(p.value)));
  for (const Node& n : f.nodes) {
    h = mix(h, std::bit_cast<uintptr_t>(n.op));
    h = mix(h, hash_of(n.attrs));
    for (ValueId v : n.inputs) h = mix(h, v);
  }
  for (const Output& r : f.results) h = mix(h, r.value);
  return h;
}

bool same_body(const Function& a, const Function& b) {
  if (a.params.size() != b.params.size() || a.nodes.size() != b.nodes.size() ||
      a.results.size() != b.results.size() || a.values.size() != b.values.size())
    return false;
  for (size_t v = 0; v < a.values.size(); ++v)
    if (a.values[v].node != b.values[v].node || a.values[v].index != b.values[v].index ||
        !(a.values[v].type == b.values[v].type))
      return false;
  for (size_t n = 0; n < a.nodes.size(); ++n)
    if (a.nodes[n].op != b.nodes[n].op || a.nodes[n].inputs != b.nodes[n].inputs ||
        !same_attrs(a.nodes[n].attrs, b.nodes[n].attrs))
      return false;
  for (size_t r = 0; r < a.results.size(); ++r)
    if (a.results[r].value != b.results[r].value) return false;
  return true;
}

// One body being written. The same value may stand in it more than once, if it lies in the space in
// different ways (as a row and as a column, say).
struct Body {
  Function fn;
  std::vector<ValueId> operands;  // values of the outer function, one per parameter
  struct Known {
    ValueId outer, inner;
    DimsIn dims;
  };
  std::vector<Known> known;

  ValueId find(ValueId v, const DimsIn& dims) const {
    for (const Known& k : known)
      if (k.outer == v && k.dims == dims) return k.inner;
    return kNone;
  }
  ValueId add_param(ValueId v, const Type& type, const DimsIn& dims) {
    const auto id = static_cast<ValueId>(fn.values.size());
    fn.values.push_back({type, kNone, static_cast<uint32_t>(fn.params.size())});
    fn.params.push_back({"", id, Role::kInput, -1});  // named when the body turns out to be new
    operands.push_back(v);
    known.push_back({v, id, dims});
    return id;
  }
  // A node whose inputs are the body's.
  ValueId add_node(Node node, const Type& type) {
    const auto id = static_cast<ValueId>(fn.values.size());
    fn.values.push_back({type, static_cast<NodeId>(fn.nodes.size()), 0});
    node.first_output = id;
    fn.nodes.push_back(std::move(node));
    return id;
  }
};

class Fuser {
 public:
  Fuser(Module& module, Function& f, bool merge, bool sums_columns)
      : module_(module),
        f_(f),
        groups_(f, merge, sums_columns),
        rw_(module, f),
        done_(f.nodes.size(), 0) {}

  // Is there anything left that belongs into a body?
  bool has_work() const {
    for (NodeId n = 0; n < f_.nodes.size(); ++n)
      if (groups_.is_member(n) || (groups_.is_free(n) && groups_.role(n) != TileRole::kView))
        return true;
    return false;
  }

  Result<Function> run() {
    for (NodeId n = 0; n < f_.nodes.size(); ++n) {
      if (groups_.is_free(n) || (f_.nodes[n].op->is_view && f_.nodes[n].inputs.size() == 1))
        continue;
      if (groups_.is_member(n) && groups_.group(groups_.group_of(n)).last != n) continue;
      emit(n);
    }
    for (const Output& r : f_.results) need(r.value);
    return rw_.finish();
  }

 private:
  // Makes sure that a value is there in the new function.
  void need(ValueId v) {
    if (rw_.has(v)) return;
    const NodeId n = f_.values[v].node;
    if (groups_.is_free(n) && groups_.role(n) != TileRole::kView) {
      make_free(n);
    } else {
      emit(n);
    }
  }

  void emit(NodeId n) {
    if (done_[n]) return;
    if (groups_.is_member(n)) {
      emit_group(groups_.group(groups_.group_of(n)));
      return;
    }
    done_[n] = 1;
    for (ValueId v : f_.nodes[n].inputs) need(v);
    if (f_.nodes[n].op->is_view) {
      rw_.clone(f_.nodes[n]);  // a body may want it too
    } else {
      rw_.take(f_.nodes[n]);
    }
  }

  // The value as the body sees it: a member's, a view's or free one's copy, or a parameter.
  ValueId read(Body& body, ValueId v, const DimsIn& dims, bool may_be_free) {
    if (const ValueId id = body.find(v, dims); id != kNone) return id;
    const Type& type = f_.type(v);
    const NodeId n = f_.values[v].node;
    const bool is_view = n != kNone && groups_.role(n) == TileRole::kView;
    const bool is_free = n != kNone && groups_.is_free(n);
    if ((is_view && (!is_free || may_be_free)) || (is_free && may_be_free)) {
      Node copy = f_.nodes[n];
      for (ValueId& x : copy.inputs)
        x = read(body, x, is_view ? through_view(f_, f_.nodes[n], dims) : dims, true);
      const ValueId id = body.add_node(std::move(copy), type);
      body.known.push_back({v, id, dims});
      return id;
    }
    return body.add_param(v, type, dims);
  }

  // The operand of a reduction. Along the row it may only repeat what other groups made: then it is
  // a parameter as it is, a view, because a kernel takes its space from a full operand.
  ValueId read_row(Body& body, ValueId v, uint32_t group, int rank) {
    const DimsIn natural = natural_dims(f_.type(v).shape);
    DimsIn dims = natural;
    NodeId n = f_.values[v].node;
    for (ValueId x = v; n != kNone && groups_.role(n) == TileRole::kView; n = f_.values[x].node) {
      dims = through_view(f_, f_.nodes[n], dims);
      x = f_.nodes[n].inputs[0];
    }
    const bool is_inside = n != kNone && groups_.is_member(n) && groups_.group_of(n) == group;
    const bool is_along_rows = any_of(dims, [&](int8_t d) { return d >= rank; });
    if (is_inside || is_along_rows) return read(body, v, natural, false);
    const ValueId known = body.find(v, natural);
    return known != kNone ? known : body.add_param(v, f_.type(v), natural);
  }

  void emit_group(const FusedGroup& g) {
    Body body;
    Node fused;
    for (NodeId n : g.members) {
      done_[n] = 1;
      Node& node = f_.nodes[n];
      const bool reduces = groups_.role(n) == TileRole::kReduction;
      for (ValueId& v : node.inputs)
        v = reduces ? read_row(body, v, groups_.group_of(n), g.space.rank() - g.inner)
                    : read(body, v, natural_dims(f_.type(v).shape), true);
      const ValueId output = node.output();
      const Type& type = f_.type(output);
      fused.phase = std::max(fused.phase, node.phase);
      fused.origin = node.origin;
      const ValueId value = body.add_node(std::move(node), type);
      body.known.push_back({output, value, natural_dims(type.shape)});
    }
    std::vector<ValueId> outputs;
    for (NodeId n : g.members)
      if (groups_.is_output(n)) outputs.push_back(f_.nodes[n].output());
    add_full_operand(body, g, outputs);
    finish(body, fused, g, outputs);
  }

  // A kernel takes its space from an operand: a group whose only full values stay inside shows one.
  void add_full_operand(const Body& body, const FusedGroup& g, std::vector<ValueId>& outputs) {
    const int first_inner = g.inner ? g.space.rank() - g.inner : 0;
    for (const Body::Known& k : body.known)
      if (body.fn.values[k.inner].node == kNone)
        for (int8_t d : k.dims)
          if (d >= first_inner) return;
    auto is_full = [&](ValueId v) { return squeezed(f_.type(v).shape).rank() == g.space.rank(); };
    for (ValueId v : outputs)
      if (is_full(v)) return;
    for (NodeId n : g.members)
      if (is_full(f_.nodes[n].output())) {
        outputs.push_back(f_.nodes[n].output());
        return;
      }
  }

  void make_free(NodeId n) {
    Body body;
    FusedGroup g;
    const ValueId v = f_.nodes[n].output();
    g.space = squeezed(f_.type(v).shape);
    read(body, v, natural_dims(f_.type(v).shape), true);
    Node fused;
    fused.phase = f_.nodes[n].phase, fused.origin = f_.nodes[n].origin;
    finish(body, fused, g, {v});
  }

  void finish(Body& body, Node& fused, const FusedGroup& g, const std::vector<ValueId>& outputs) {
    std::vector<Type> types;
    for (ValueId v : outputs) {
      const ValueId inner = body.find(v, natural_dims(f_.type(v).shape));
      body.fn.results.push_back({"", inner});
      types.push_back(f_.type(v));
    }
    std::vector<ValueId> in;
    for (ValueId v : body.operands) {
      need(v);
      in.push_back(rw_.id(v));
    }
    fused.op = &fused_op;
    fused.attrs.set("shape", std::vector<Dim>(g.space.begin(), g.space.end()));
    fused.attrs.set("inner", static_cast<int64_t>(g.inner));
    fused.regions = {share(std::move(body.fn), g.inner)};
    const ValueId first = rw_.builder().append(std::move(fused), std::move(in), types);
    for (size_t i = 0; i < outputs.size(); ++i)
      rw_.bind(outputs[i], Var(&rw_.builder(), first + static_cast<ValueId>(i)));
  }

  // The module's function for a body: one for all that are alike.
  FuncId share(Function body, int inner) {
    const uint64_t h = mix(hash_of_body(body), static_cast<uint64_t>(inner));
    const auto [begin, end] = bodies_.equal_range(h);
    for (auto it = begin; it != end; ++it)
      if (it->second.inner == inner && same_body(module_[it->second.body], body))
        return it->second.body;
    body.name = cat(f_.name, ".fused", bodies_.size());
    for (size_t i = 0; i < body.params.size(); ++i) body.params[i].name = cat("x", i);
    for (size_t i = 0; i < body.results.size(); ++i) body.results[i].name = cat("y", i);
    const FuncId id = module_.add(std::move(body));
    bodies_.emplace(h, Shared{id, inner});
    return id;
  }

  struct Shared {
    FuncId body;
    int inner;
  };
  Module& module_;
  Function& f_;
  Groups groups_;
  Rewriter rw_;
  std::vector<uint8_t> done_;
  std::unordered_multimap<uint64_t, Shared> bodies_;
};

}  // namespace

Result<bool> fuse_function(Module& module, Function& f, bool merge, bool sums_columns) {
  remove_dead_nodes(f);  // a body has no room for them
  Fuser fuser(module, f, merge, sums_columns);
  return rewrite_if_any(fuser, f);
}

static Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  return fuse_function(module, f, true, sums_columns(options));
}

extern const PassDef fuse_pass = {
    .name = "fuse",
    .doc = "makes groups of elementwise ops and row reductions one node each",
    .phase = PassPhase::kFuse,
    .needs = kIsLowered | kIsUnfused,
    .gives = kIsGrouped,
    .takes = kIsUnfused,
    .run = run,
};

}  // namespace tegula
