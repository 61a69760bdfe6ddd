#include "tegula/planner/shard_plan.h"

#include <set>

#include "tegula/base/algorithm.h"
#include "tegula/ir/regions.h"

namespace tegula::planner {

namespace {

// A wish that no way leads to.
constexpr double kNoWay = 1e30;

// Reshards by type and states, since layers are alike.
class Ways {
 public:
  explicit Ways(const MeshLinks& links) : links_(links) {}

  const ReshardPlan* find(const Type& type, const Sharding& from, const Sharding& to) {
    const Mesh& mesh = links_.mesh();
    std::string key = cat(type, to_text(mesh, from), " to ", to_text(mesh, to));
    const auto known = ways_.find(key);
    if (known != ways_.end()) return known->second ? &*known->second : nullptr;
    auto plan = plan_reshard(links_, type, from, to);
    auto& kept = ways_[std::move(key)];
    if (plan.ok()) kept = std::move(*plan);
    return kept ? &*kept : nullptr;
  }
  double seconds(const Type& type, const Sharding& from, const Sharding& to) {
    if (from == to) return 0;
    const ReshardPlan* way = find(type, from, to);
    return way ? way->seconds : kNoWay;
  }

 private:
  const MeshLinks& links_;
  std::map<std::string, std::optional<ReshardPlan>> ways_;
};

std::string_view name_of(Collective what) {
  switch (what) {
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllToAll:
      return "all_to_all";
  }
  return "";
}

double local_bytes(const Mesh& mesh, const Type& type, const Sharding& s) {
  const auto shape = local_shape(mesh, type.shape, s);
  return real((shape.ok() ? *shape : type.shape).numel()) * real(size_bytes(type.dtype));
}

// Sums up a plan whose nodes and parameters are decided. A value goes the same way once, however
// many nodes want it so.
class Sum {
 public:
  Sum(const Module& m, const Function& f, const MeshLinks& links, Ways& ways, ShardPlan& plan)
      : m_(m), f_(f), mesh_(links.mesh()), ways_(ways), plan_(plan), lies_(f.values.size()) {}

  Status run() {
    for (size_t p = 0; p < f_.params.size(); ++p) {
      lies_[f_.params[p].value] = plan_.params[p];
      plan_.param_bytes += local_bytes(mesh_, f_.type(f_.params[p].value), plan_.params[p]);
    }
    for (NodeId id = 0; id < f_.nodes.size(); ++id) {
      const Node& n = f_.nodes[id];
      const Strategy& s = plan_.nodes[id];
      for (size_t k = 0; k < n.inputs.size(); ++k) TEGULA_TRY(move(n.inputs[k], s.in[k]));
      for (uint32_t r = 0; r < n.n_outputs; ++r) lies_[n.output(r)] = s.out[r];
      plan_.compute_s += s.seconds, plan_.flops += s.flops;
      note_uncut(n, s);
    }
    for (size_t r = 0; r < f_.results.size(); ++r) {
      Sharding want = replicated(mesh_);
      for (size_t p = 0; p < f_.params.size(); ++p)
        if (f_.params[p].donated_to == static_cast<int>(r)) want = plan_.params[p];
      TEGULA_TRY(move(f_.results[r].value, want));
    }
    return {};
  }

 private:
  Status move(ValueId v, const Sharding& to) {
    const Sharding& from = lies_[v];
    if (from == to || !moved_.insert(cat(v, to_text(mesh_, to))).second) return {};
    const ReshardPlan* way = ways_.find(f_.type(v), from, to);
    if (!way)
      return unsupported(cat("value %", v, " of ", f_.type(v), " has no way from ",
                             to_text(mesh_, from), " to ", to_text(mesh_, to)));
    for (const ReshardStep& step : way->steps) {
      if (step.is_cut) continue;
      Exchange& e = plan_.exchanges[cat(name_of(step.what), " over ", mesh_.axes[step.axis].name)];
      ++e.count, e.seconds += step.seconds;
      e.sent_bytes += bytes_sent(step.what, step.bytes, mesh_.axes[step.axis].size);
      plan_.comm_s += step.seconds;
    }
    return {};
  }

  void note_uncut(const Node& n, const Strategy& s) {
    if (n.op->precision != Precision::kLow && !has_bodies(*n.op)) return;
    for (size_t a = 0; a < s.cuts.size(); ++a)
      if (s.cuts[a].kind == AxisCut::kWhole && mesh_.axes[a].size > 1)
        plan_.uncut[cat(n.op->name, " of ", m_.scopes[n.origin.scope], " over ",
                        mesh_.axes[a].name)] += s.flops;
  }

  const Module& m_;
  const Function& f_;
  const Mesh& mesh_;
  Ways& ways_;
  ShardPlan& plan_;
  std::vector<Sharding> lies_;
  std::set<std::string> moved_;
};

// State lies where its weight does: "adam.m.NAME" and "grad.NAME" where NAME does.
int weight_of(const Function& f, size_t p) {
  const std::string& name = f.params[p].name;
  for (size_t w = 0; w < f.params.size(); ++w) {
    const std::string& weight = f.params[w].name;
    if (w != p && f.params[w].role == Role::kWeight && name.size() > weight.size() &&
        name.ends_with(weight) && name[name.size() - weight.size() - 1] == '.' &&
        f.type(f.params[w].value).shape == f.type(f.params[p].value).shape)
      return static_cast<int>(w);
  }
  return -1;
}

bool is_said(const std::vector<std::optional<AxisSharding>>& axes) {
  return std::any_of(axes.begin(), axes.end(), [](const auto& a) { return a.has_value(); });
}

Sharding said_of(const Mesh& mesh, const std::vector<std::optional<AxisSharding>>& axes) {
  Sharding s = replicated(mesh);
  for (size_t a = 0; a < axes.size(); ++a)
    if (axes[a]) s[a] = *axes[a];
  return s;
}

}  // namespace

Result<ShardPlan> plan_by_propagation(
    const Module& module, const Function& step, const MeshLinks& links,
    const std::vector<std::vector<std::optional<AxisSharding>>>& params) {
  Annotations said(step.values.size());
  for (size_t p = 0; p < step.params.size(); ++p) {
    size_t from = p;
    if (const int w = weight_of(step, p); !is_said(params[p]) && w >= 0)
      from = static_cast<size_t>(w);
    said[step.params[p].value] = params[from];
  }
  const ShardedGraph g = TEGULA_TRY(propagate(module, step, links.mesh(), said));
  ShardPlan plan;
  for (const Param& p : step.params) plan.params.push_back(g.values[p.value]);
  for (NodeId n = 0; n < step.nodes.size(); ++n)
    plan.nodes.push_back(TEGULA_TRY(strategy_of(module, step, step.nodes[n], links, g.nodes[n])));
  Ways ways(links);
  TEGULA_TRY(Sum(module, step, links, ways, plan).run());
  return plan;
}

namespace {

// The choice problem of a step: its nodes, then its parameters.
class Search {
 public:
  Search(const Module& m, const Function& f, const MeshLinks& links)
      : m_(m), f_(f), links_(links), mesh_(links.mesh()), ways_(links) {}

  Result<ShardPlan> run(const std::vector<std::vector<std::optional<AxisSharding>>>& params,
                        double limit, int64_t most) {
    for (const Node& n : f_.nodes) nodes_.push_back(strategies_of(m_, f_, n, links_));
    for (const auto& list : nodes_) {
      problem_.cost.emplace_back(), problem_.bytes.emplace_back(list.size(), 0);
      for (const Strategy& s : list) problem_.cost.back().push_back(s.seconds);
    }
    for (size_t p = 0; p < f_.params.size(); ++p) add_param(p, params[p]);
    for (NodeId n = 0; n < f_.nodes.size(); ++n)
      for (size_t k = 0; k < f_.nodes[n].inputs.size(); ++k) add_operand(n, k);
    add_results();
    if (limit < HUGE_VAL)
      problem_.limit = limit;
    else
      problem_.bytes.clear();
    const ChoiceResult r = TEGULA_TRY(choose(problem_, most));
    ShardPlan plan;
    for (size_t n = 0; n < nodes_.size(); ++n)
      plan.nodes.push_back(nodes_[n][static_cast<size_t>(r.choice[n])]);
    for (size_t p = 0; p < f_.params.size(); ++p)
      plan.params.push_back(
          states_[p][static_cast<size_t>(r.choice[static_cast<size_t>(variable_[p])])]);
    plan.is_exact = r.is_exact, plan.bound_s = r.bound;
    TEGULA_TRY(Sum(m_, f_, links_, ways_, plan).run());
    return plan;
  }

 private:
  // Whole, or any dim over any axis, of which no two split one tensor's dim.
  std::vector<Sharding> states_of(const Shape& shape) const {
    std::vector<Sharding> all = {{}};
    for (size_t a = 0; a < mesh_.axes.size(); ++a) {
      std::vector<Sharding> more;
      for (const Sharding& s : all)
        for (int d = -1; d < shape.rank(); ++d) {
          Sharding next = s;
          next.push_back(d < 0 ? AxisSharding{} : AxisSharding::split(d));
          Sharding whole = next;
          whole.resize(mesh_.axes.size());
          if ((d < 0 || mesh_.axes[a].size > 1) && local_shape(mesh_, shape, whole).ok())
            more.push_back(next);
        }
      all = std::move(more);
    }
    return all;
  }

  void add_param(size_t p, const std::vector<std::optional<AxisSharding>>& said) {
    const Type& type = f_.type(f_.params[p].value);
    const int w = weight_of(f_, p);
    const bool follows = !is_said(said) && w >= 0 && static_cast<size_t>(w) < p;
    if (follows) {
      states_.push_back(states_[static_cast<size_t>(w)]);
      variable_.push_back(variable_[static_cast<size_t>(w)]);
    } else {
      states_.push_back(is_said(said) || f_.params[p].role == Role::kInput
                            ? std::vector<Sharding>{said_of(mesh_, said)}
                            : states_of(type.shape));
      variable_.push_back(static_cast<int>(problem_.cost.size()));
      problem_.cost.emplace_back(states_[p].size(), 0);
      problem_.bytes.emplace_back(states_[p].size(), 0);
    }
    auto& bytes = problem_.bytes[static_cast<size_t>(variable_[p])];
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] += local_bytes(mesh_, type, states_[p][i]);
  }

  struct Source {
    int variable = 0;
    std::vector<const Sharding*> states;
  };
  Source source_of(ValueId v) const {
    Source s;
    for (size_t p = 0; p < f_.params.size(); ++p)
      if (f_.params[p].value == v) {
        s.variable = variable_[p];
        for (const Sharding& state : states_[p]) s.states.push_back(&state);
        return s;
      }
    const Node* n = f_.producer(v);
    const auto id = static_cast<size_t>(n - f_.nodes.data());
    s.variable = static_cast<int>(id);
    for (const Strategy& each : nodes_[id])
      s.states.push_back(&each.out[static_cast<size_t>(v - n->output(0))]);
    return s;
  }

  void add_edge(const Source& from, int to, const std::vector<const Sharding*>& wants,
                const Type& type) {
    ChoiceProblem::Edge e{from.variable, to, {}};
    for (const Sharding* state : from.states)
      for (const Sharding* want : wants)
        e.cost.push_back(want ? ways_.seconds(type, *state, *want) : 0);
    if (from.variable != to) {
      problem_.edges.push_back(std::move(e));
      return;
    }
    for (size_t i = 0; i < wants.size(); ++i)
      problem_.cost[static_cast<size_t>(to)][i] += e.cost[i * wants.size() + i];
  }

  void add_operand(NodeId n, size_t k) {
    const ValueId v = f_.nodes[n].inputs[k];
    std::vector<const Sharding*> wants;
    for (const Strategy& s : nodes_[n]) wants.push_back(&s.in[k]);
    add_edge(source_of(v), static_cast<int>(n), wants, f_.type(v));
  }

  // A result is whole, or lies as the parameter that it is donated to.
  void add_results() {
    const Sharding whole = replicated(mesh_);
    for (size_t r = 0; r < f_.results.size(); ++r) {
      const ValueId v = f_.results[r].value;
      const Source from = source_of(v);
      int p = -1;
      for (size_t i = 0; i < f_.params.size(); ++i)
        if (f_.params[i].donated_to == static_cast<int>(r)) p = static_cast<int>(i);
      if (p < 0) {
        auto& cost = problem_.cost[static_cast<size_t>(from.variable)];
        for (size_t i = 0; i < cost.size(); ++i)
          cost[i] += ways_.seconds(f_.type(v), *from.states[i], whole);
        continue;
      }
      std::vector<const Sharding*> wants;
      for (const Sharding& s : states_[static_cast<size_t>(p)]) wants.push_back(&s);
      add_edge(from, variable_[static_cast<size_t>(p)], wants, f_.type(v));
    }
  }

  const Module& m_;
  const Function& f_;
  const MeshLinks& links_;
  const Mesh& mesh_;
  Ways ways_;
  std::vector<std::vector<Strategy>> nodes_;
  std::vector<std::vector<Sharding>> states_;  // of each parameter
  std::vector<int> variable_;                  // of each parameter
  ChoiceProblem problem_;
};

}  // namespace

Result<ShardPlan> plan_by_search(
    const Module& module, const Function& step, const MeshLinks& links,
    const std::vector<std::vector<std::optional<AxisSharding>>>& params, double limit,
    int64_t most_branches) {
  return Search(module, step, links).run(params, limit, most_branches);
}

}  // namespace tegula::planner
