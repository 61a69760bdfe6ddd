#include "tegula/passes/shard_check.h"

#include "tegula/base/algorithm.h"
#include "tegula/passes/exact_cuts.h"

namespace tegula {

namespace {

class Checker {
 public:
  Checker(const Module& m, const Function& f, const ShardedStep& s) : m_(m), f_(f), s_(s) {}

  Status run() {
    if (s_.values.size() != f_.values.size() || s_.made.size() != f_.values.size() ||
        s_.nodes.size() != f_.nodes.size() || s_.wants.size() != f_.nodes.size())
      return internal_error(cat("shard: function ", f_.name, " has ", f_.values.size(),
                                " values and ", f_.nodes.size(), " nodes; it is said of ",
                                s_.values.size(), " values and ", s_.nodes.size(),
                                " nodes how they are cut: shard it again"));
    for (ValueId v = 0; v < f_.values.size(); ++v) TEGULA_TRY(value(v));
    for (NodeId id = 0; id < f_.nodes.size(); ++id) TEGULA_TRY(node(id));
    return {};
  }

 private:
  template <class... Args>
  Error wrong(ValueId v, const Args&... what) const {
    const NodeId id = f_.values[v].node;
    std::string at = cat("shard: function ", f_.name);
    if (id != kNone) {
      const Node& n = f_.nodes[id];
      at += cat(", node ", id, " (", n.op->name, ")");
      if (n.origin.scope != 0) at += cat(" in ", m_.scopes[n.origin.scope]);
    }
    return internal_error(
        cat(at, ", value ", v, ", ", f_.type(v), " ", text(s_.made[v]), ": ", what...),
        id == kNone ? std::source_location::current() : f_.nodes[id].origin.loc);
  }
  std::string text(const Sharding& s) const {
    const std::string t = to_text(s_.mesh, s);
    return t.empty() ? "[]" : t;
  }
  std::string text(size_t axis, const AxisSharding& state) const {
    Sharding s = replicated(s_.mesh);
    s[axis] = state;
    return text(s);
  }

  Status value(ValueId v) const {
    for (const Sharding* s : {&s_.values[v], &s_.made[v]})
      if (auto st = check_sharding(s_.mesh, f_.type(v).shape, *s); !st.ok())
        return wrong(v, st.error().message);
    for (size_t a = 0; a < s_.mesh.axes.size(); ++a) {
      const AxisSharding &found = s_.values[v][a], &made = s_.made[v][a];
      if (found.is_pending() && !(found == made))
        return wrong(v, "readers find it pending over ", s_.mesh.axes[a].name,
                     ", and its node does not leave it so: nothing makes parts of a sum again");
      if (made.is_pending() && f_.values[v].node == kNone && !is_kept(v))
        return wrong(v, "a parameter pends over ", s_.mesh.axes[a].name,
                     ", which nobody would join: it may be split, or be state that goes on");
    }
    return {};
  }

  // A sum that goes on from call to call lies in a state, where the result that it becomes lies,
  // too.
  bool is_kept(ValueId v) const {
    return std::any_of(f_.params.begin(), f_.params.end(), [&](const Param& p) {
      return p.value == v && p.role == Role::kState && p.donated_to >= 0;
    });
  }

  // One axis after another: the next sees the node as the last left it.
  Status node(NodeId id) const {
    const Node& n = f_.nodes[id];
    LocalCall call(m_, f_, n);
    const auto& cuts = s_.nodes[id];
    if (cuts.size() != s_.mesh.axes.size() || s_.wants[id].size() != n.inputs.size())
      return internal_error(cat("shard: function ", f_.name, ", node ", id, " (", n.op->name,
                                ") has ", cuts.size(), " cuts for ", s_.mesh.axes.size(),
                                " axes, which want ", s_.wants[id].size(), " operands of ",
                                n.inputs.size(), ": give one for each"));
    for (size_t a = 0; a < cuts.size(); ++a) {
      const MeshAxis& axis = s_.mesh.axes[a];
      DimMap map;
      const bool is_along = cuts[a].factor >= 0 || cuts[a].kind == AxisCut::kRing;
      if (is_along) map = TEGULA_TRY(dim_map(call.call()));
      std::vector<AxisSharding> want, give;
      const bool is_there = cuts[a].factor < static_cast<int>(map.factors.size()) &&
                            states_of_cut(call, map, cuts[a], axis.size, want, give);
      const auto how = [&] {
        return cat("over the ", axis.size, " ranks of ", axis.name, " its cut ",
                   name_of(cuts[a], map));
      };
      if (!is_there) {
        if (n.n_outputs == 0) return internal_error(cat("shard: node ", id, ": ", how()));
        return wrong(n.output(), how(), " is none that the op has: leave it whole there");
      }
      for (uint32_t r = 0; r < n.n_outputs; ++r) {
        const AxisSharding& made = s_.made[n.output(r)][a];
        const bool is_joined_within =
            s_.mode == Mode::kExact && is_along && is_exchanged(call, map, cuts[a], r, made);
        if (!is_joined_within && !(made == give[r]))
          return wrong(n.output(r), how(), " gives ", text(a, give[r]), ", not ", text(a, made),
                       ": annotate it, so that it is brought there, or say what is given");
      }
      for (size_t k = 0; k < n.inputs.size(); ++k)
        TEGULA_TRY(operand(id, k, a, want[k], how, call));
      TEGULA_TRY(call.cut(cuts[a], axis.size, 0, &map));
    }
    return {};
  }

  // All but a part of a sum can be made of what is there.
  template <class How>
  Status operand(NodeId id, size_t k, size_t a, const AxisSharding& want, const How& how,
                 const LocalCall& call) const {
    const Node& n = f_.nodes[id];
    const AxisSharding& have = s_.values[n.inputs[k]][a];
    if (const AxisSharding& said = s_.wants[id][k][a]; !(said == want))
      return wrong(n.inputs[k], "operand ", k, " of a ", n.op->name, ": ", how(), " wants ",
                   text(a, want), " of it, not ", text(a, said), ": shard the function again");
    if (!divides(call.in[k].shape, want, s_.mesh.axes[a].size))
      return wrong(n.inputs[k], "operand ", k, " of a ", n.op->name, ": ", how(), " wants ",
                   text(a, want), " of it, which is no multiple of its ranks");
    const bool is_one = have.is_replicated() && call.in[k].shape.rank() == 0;
    if (!want.is_pending() || have == want || is_one) return {};
    return wrong(n.inputs[k], "operand ", k, " of a ", n.op->name, ": ", how(), " wants ",
                 text(a, want),
                 " of it: join the node's other operands first, so that it is cut otherwise");
  }

  static std::string name_of(const AxisCut& cut, const DimMap& map) {
    switch (cut.kind) {
      case AxisCut::kWhole:
        return "(none)";
      case AxisCut::kLinear:
        return "of a sum's parts";
      case AxisCut::kPieces:
        return cat("between ", cut.parts, " pieces");
      case AxisCut::kRing:
        return "in a ring";
      default:
        break;
    }
    if (cut.factor < 0 || static_cast<size_t>(cut.factor) >= map.factors.size())
      return cat("along factor ", cut.factor, " of ", map.factors.size());
    const Factor& f = map.factors[static_cast<size_t>(cut.factor)];
    return cat("along ", f.name, " (", f.size, ", ", cut.parts,
               cut.parts == 1 ? " part)" : " parts)");
  }

  const Module& m_;
  const Function& f_;
  const ShardedStep& s_;
};

}  // namespace

Status check_shardings(const Module& module, const Function& f, const ShardedStep& sharded) {
  return Checker(module, f, sharded).run();
}

}  // namespace tegula
