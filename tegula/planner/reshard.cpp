#include "tegula/planner/reshard.h"

#include <map>
#include <queue>

#include "tegula/base/algorithm.h"

namespace tegula::planner {

namespace {

// A message costs something even where links are free, so that no way is longer than it must be.
constexpr double kEdge = 1e-12;

struct Way {
  double seconds = 0;
  Sharding before;
  ReshardStep step;
};

struct Later {
  template <class T>
  bool operator()(const T& a, const T& b) const {
    return a.first > b.first;
  }
};

// Bytes of a rank's share; < 0: the state does not divide the shape.
double local_bytes(const Mesh& mesh, const Type& type, const Sharding& s) {
  const auto shape = local_shape(mesh, type.shape, s);
  return shape.ok() ? real(shape->numel()) * real(size_bytes(type.dtype)) : -1;
}

// Is the axis the innermost of those that split the dim?
bool is_innermost(const Sharding& s, size_t axis, int dim) {
  for (size_t a = axis + 1; a < s.size(); ++a)
    if (s[a].is_split() && s[a].dim == dim) return false;
  return true;
}

class Planner {
 public:
  Planner(const MeshLinks& links, const Type& type, const Sharding& to)
      : links_(links), mesh_(links.mesh()), type_(type), to_(to) {}

  Result<ReshardPlan> run(const Sharding& from) {
    using Item = std::pair<double, Sharding>;
    std::priority_queue<Item, std::vector<Item>, Later> open;
    ways_[key(from)] = {};
    open.emplace(0, from);
    while (!open.empty()) {
      const auto [seconds, state] = open.top();
      open.pop();
      if (state == to_) return trace(state);
      if (seconds > ways_[key(state)].seconds) continue;
      for (size_t a = 0; a < state.size(); ++a)
        for (const AxisSharding& next : targets(state, a)) {
          const ReshardStep step = step_of(state, a, next);
          Sharding after = state;
          after[a] = next;
          if (local_bytes(mesh_, type_, after) < 0) continue;
          const double sum = seconds + step.seconds + kEdge;
          const auto found = ways_.find(key(after));
          if (found != ways_.end() && found->second.seconds <= sum) continue;
          ways_[key(after)] = {sum, state, step};
          open.emplace(sum, after);
        }
    }
    return unsupported(
        cat("no way from ", to_text(mesh_, from), " to ", to_text(mesh_, to_), " for ", type_));
  }

 private:
  std::string key(const Sharding& s) const { return to_text(mesh_, s); }

  // States of one axis that a single step leads to: whole, what is wanted there, and splits of
  // dims that are wanted of any axis.
  std::vector<AxisSharding> targets(const Sharding& s, size_t a) const {
    std::vector<AxisSharding> all;
    const AxisSharding& now = s[a];
    if (now.is_split() && !is_innermost(s, a, now.dim)) return all;
    if (!now.is_replicated()) all.emplace_back();
    const auto add = [&](const AxisSharding& next) {
      if (next == now || !next.is_split() || !is_innermost(s, a, next.dim)) return;
      // An exchange cuts in one part alone; other parts go through the whole.
      if (now.is_split() && (now.dim == next.dim || now.parts != 1 || next.parts != 1)) return;
      if (now.is_pending() && now.combine != Combine::kSum) return;
      all.push_back(next);
    };
    for (size_t b = 0; b < to_.size(); ++b) add(b == a ? to_[a] : AxisSharding::split(to_[b].dim));
    return all;
  }

  ReshardStep step_of(const Sharding& s, size_t a, const AxisSharding& next) const {
    ReshardStep step;
    step.axis = a, step.from = s[a], step.to = next;
    const double local = local_bytes(mesh_, type_, s), n = real(mesh_.axes[a].size);
    if (s[a].is_replicated()) {
      step.is_cut = true;
      return step;
    }
    if (s[a].is_pending())
      step.what = next.is_split() ? Collective::kReduceScatter : Collective::kAllReduce;
    else
      step.what = next.is_split() ? Collective::kAllToAll : Collective::kAllGather;
    step.bytes = step.what == Collective::kAllGather ? local * n : local;
    step.seconds = links_.seconds(step.what, step.bytes, a);
    return step;
  }

  ReshardPlan trace(Sharding state) {
    ReshardPlan plan;
    for (const Way* way = &ways_[key(state)]; !way->before.empty() || way->seconds > 0;
         way = &ways_[key(way->before)]) {
      plan.steps.push_back(way->step);
      plan.seconds += way->step.seconds;
      if (!way->step.is_cut)
        plan.sent_bytes +=
            bytes_sent(way->step.what, way->step.bytes, mesh_.axes[way->step.axis].size);
    }
    std::reverse(plan.steps.begin(), plan.steps.end());
    return plan;
  }

  const MeshLinks& links_;
  const Mesh& mesh_;
  const Type& type_;
  const Sharding& to_;
  std::map<std::string, Way> ways_;
};

}  // namespace

MeshLinks::MeshLinks(Mesh mesh, ClusterSpec cluster)
    : mesh_(std::move(mesh)), cluster_(std::move(cluster)) {}

double MeshLinks::seconds(Collective what, double bytes, size_t axis) const {
  int64_t stride = 1;
  for (size_t a = axis + 1; a < mesh_.axes.size(); ++a) stride *= mesh_.axes[a].size;
  const RankSpan group{mesh_.axes[axis].size, stride};
  return seconds_on(cluster_, what, bytes, group);
}

Result<ReshardPlan> plan_reshard(const MeshLinks& links, const Type& type, const Sharding& from,
                                 const Sharding& to) {
  const Mesh& mesh = links.mesh();
  for (const Sharding* s : {&from, &to}) TEGULA_TRY(local_shape(mesh, type.shape, *s));
  for (size_t a = 0; a < to.size(); ++a)
    if (to[a].is_pending() && !(to[a] == from[a]))
      return invalid_argument(cat("a value ", to_text(mesh, from), " cannot be made ",
                                  to_text(mesh, to), ": nothing makes parts of a sum again"));
  // An axis of one rank has but one state.
  Sharding start = from, end = to;
  for (size_t a = 0; a < to.size(); ++a)
    if (mesh.axes[a].size == 1) start[a] = end[a] = {};
  return Planner(links, type, end).run(start);
}

}  // namespace tegula::planner
