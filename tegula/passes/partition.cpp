#include "tegula/passes/partition.h"

#include <cmath>
#include <map>

#include "tegula/base/range.h"
#include "tegula/cost/price.h"
#include "tegula/ir/builder.h"
#include "tegula/ops/collective.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/exact_cuts.h"
#include "tegula/passes/ring.h"
#include "tegula/passes/rows_in_use.h"
#include "tegula/passes/sum_buckets.h"

namespace tegula {

namespace {

class Partitioner {
 public:
  Partitioner(Module& m, FuncId step, const ShardedStep& s, int64_t rank)
      : m_(m),
        f_(m[step]),
        s_(s),
        at_(s.mesh.at(rank)),
        b_(m, m[step].name),
        rows_in_use_(rows_in_use(f_)) {}

  Result<FuncId> run() {
    map_.resize(f_.values.size());
    for (const Param& p : f_.params) {
      const Type& t = f_.type(p.value);
      const Shape local = TEGULA_TRY(local_shape(s_.mesh, t.shape, s_.values[p.value]));
      map_[p.value] = b_.param(p.name, {t.dtype, local}, p.role);
    }
    find_fetches();
    find_late();
    join_kept();
    for (NodeId n = 0; n < f_.nodes.size(); ++n) TEGULA_TRY(emit(n));
    b_.set_phase(Phase::kForward);
    for (size_t r = 0; r < f_.results.size(); ++r) add_result(r);
    for (const Param& p : f_.params)
      if (p.donated_to >= 0) b_.donate(p.name, f_.results[static_cast<size_t>(p.donated_to)].name);
    return b_.finish_into_module();
  }

 private:
  void add_result(size_t r) {
    Sharding want = replicated(s_.mesh);
    for (const Param& p : f_.params)
      if (p.donated_to == static_cast<int>(r)) want = s_.values[p.value];
    const ValueId v = f_.results[r].value;
    if (const Node* n = f_.producer(v)) b_.set_origin(n->origin), b_.set_phase(n->phase);
    b_.result(f_.results[r].name, converted(v, want));
  }

  // Stored weights that a node wants otherwise than they lie, in the order of the nodes.
  struct Fetch {
    NodeId reader = 0;
    ValueId value = kNone;
    Sharding want;
  };
  void find_fetches() {
    if (s_.stored.empty()) return;
    for (NodeId id = 0; id < f_.nodes.size(); ++id) {
      const Node& n = f_.nodes[id];
      if (n.phase == Phase::kUpdate) continue;
      for (size_t k = 0; k < n.inputs.size(); ++k)
        if (s_.stored[n.inputs[k]] && !(s_.values[n.inputs[k]] == s_.wants[id][k]))
          fetches_.push_back({id, n.inputs[k], s_.wants[id][k]});
    }
  }

  // Sums that pend in state, as those over micro-batches until the update: begun before all else.
  void join_kept() {
    for (NodeId id = 0; id < f_.nodes.size(); ++id) {
      const Node& n = f_.nodes[id];
      for (size_t k = 0; k < n.inputs.size(); ++k) {
        const ValueId v = n.inputs[k];
        if (f_.producer(v) || s_.values[v] == s_.wants[id][k] || !late_[v].empty()) continue;
        const bool pends =
            any_of(s_.values[v], [](const AxisSharding& a) { return a.is_pending(); });
        if (!pends) continue;
        b_.set_origin(n.origin), b_.set_phase(n.phase);
        late_[v] = s_.wants[id][k];
        join_late(v);
      }
    }
  }

  // Sums of the backward part that pend until the update: what the first reader there wants.
  void find_late() {
    late_.resize(f_.values.size());
    std::vector<uint8_t> is_early(f_.values.size());
    for (NodeId id = 0; id < f_.nodes.size(); ++id) {
      const Node& n = f_.nodes[id];
      for (size_t k = 0; k < n.inputs.size(); ++k) {
        const ValueId v = n.inputs[k];
        const Node* maker = f_.producer(v);
        if (!maker || maker->phase != Phase::kBackward || s_.values[v] == s_.wants[id][k]) continue;
        if (n.phase != Phase::kUpdate) is_early[v] = 1;
        if (!is_early[v] && late_[v].empty()) late_[v] = s_.wants[id][k];
      }
    }
  }

  // A sum that is not needed soon is joined, or shared out, beside what comes next.
  void join_late(ValueId v) {
    const Sharding &from = s_.values[v], &to = late_[v];
    std::vector<size_t> sums;
    size_t n_changes = 0;
    for (size_t a = 0; a < to.size(); ++a) {
      if (from[a] == to[a] || s_.mesh.axes[a].size == 1) continue;
      n_changes += 1;
      if (from[a].is_pending() && from[a].combine == Combine::kSum) sums.push_back(a);
    }
    if (sums.empty() || sums.size() != n_changes) return;
    const bool is_shared_out = any_of(sums, [&](size_t a) { return to[a].is_split(); });
    if (!is_shared_out) return buckets_.add(v, map_[v], sums);
    is_late_ = n_changes == 1;
    if (is_late_) converted(v, to);
    is_late_ = false;
  }

  // The next weight that is not there yet, fetched beside the node that reads the one before.
  void fetch_next(NodeId id) {
    while (n_fetched_ < fetches_.size() && fetches_[n_fetched_].reader <= id) ++n_fetched_;
    if (n_fetched_ == fetches_.size() || n_fetched_ == 0) return;
    const Fetch& next = fetches_[n_fetched_];
    if (fetches_[n_fetched_ - 1].reader != id || !map_[next.value].valid()) return;
    b_.set_origin(f_.nodes[next.reader].origin), b_.set_phase(f_.nodes[next.reader].phase);
    converted(next.value, next.want);
    b_.set_origin(f_.nodes[id].origin), b_.set_phase(f_.nodes[id].phase);
  }

  Status emit(NodeId id) {
    const Node& n = f_.nodes[id];
    const auto& want = s_.wants[id];
    b_.set_origin(n.origin);
    b_.set_phase(n.phase);
    std::vector<Var> in;
    for (size_t k = 0; k < n.inputs.size(); ++k) in.push_back(converted(n.inputs[k], want[k]));
    fetch_next(id);
    LocalCall call(m_, f_, n);
    bool pends = false;
    int ring = -1;
    std::vector<Exchanged> exchanged(n.n_outputs);
    for (size_t a = 0; a < at_.size(); ++a) {
      if (s_.nodes[id][a].kind == AxisCut::kRing && s_.mesh.axes[a].size > 1) {
        ring = static_cast<int>(a);
        continue;
      }
      if (s_.mode == Mode::kExact && call.attrs.has(kSumShards) && s_.mesh.axes[a].size > 1) {
        const DimMap map = TEGULA_TRY(dim_map(call.call()));
        for (uint32_t r = 0; r < n.n_outputs; ++r)
          if (is_exchanged(call, map, s_.nodes[id][a], r, s_.made[n.output(r)][a]))
            exchanged[r].push_back(group(a));
      }
      if (s_.nodes[id][a].kind == AxisCut::kRows)
        TEGULA_TRY(count_from_first_row(call, s_.nodes[id][a], a, in));
      TEGULA_TRY(call.cut(s_.nodes[id][a], s_.mesh.axes[a].size, at_[a]));
      for (uint32_t r = 0; r < n.n_outputs; ++r)
        pends |= s_.nodes[id][a].factor >= 0 && s_.made[n.output(r)][a].is_pending();
    }
    if (n.op == &cast_op && pends_at_all(n.output())) {
      map_[n.output()] = in[0];  // it is wide already
      finish_value(n.output());
      return {};
    }
    bool exchanges = false;
    for (const Exchanged& groups : exchanged) exchanges |= !groups.empty();
    const auto axis = static_cast<size_t>(ring);
    const auto out = TEGULA_TRY(ring >= 0   ? emit_ring(b_, call, in, s_.mesh.axes[axis].name,
                                                        s_.mesh.axes[axis].size, at_[axis])
                                : exchanges ? emit_exchanged(b_, call, in, exchanged, n.origin.loc)
                                : pends     ? emit_pending_of(id, call, in)
                                            : emit_whole(n, call, in));
    for (uint32_t r = 0; r < n.n_outputs; ++r) {
      const ValueId v = n.output(r);
      map_[v] = exchanges && !pends_at_all(v) ? cast(out[r], f_.type(v).dtype) : out[r];
    }
    for (uint32_t r = 0; r < n.n_outputs; ++r) finish_value(n.output(r));
    return b_.failed() ? Status(b_.error()) : Status();
  }

  // Brings a value that was just made to where it is said to lie, and begins to join a sum that
  // waits until the update.
  void finish_value(ValueId v) {
    if (!(s_.made[v] == s_.values[v])) map_[v] = convert(v, s_.made[v], s_.values[v]);
    if (!late_[v].empty()) join_late(v);
  }

  // Each rank has some rows of a table that is cut by rows: ids count from its first one, and those
  // outside select nothing.
  Status count_from_first_row(const LocalCall& call, const AxisCut& cut, size_t a,
                              std::vector<Var>& in) {
    const DimMap map = TEGULA_TRY(dim_map(call.call()));
    const Factor& rows = map.factors[static_cast<size_t>(cut.factor)];
    const int64_t first = at_[a] * (rows.size.bound() / s_.mesh.axes[a].size);
    Var& ids = in[static_cast<size_t>(rows.index_operand)];
    ids = ids - static_cast<double>(first);
    return {};
  }

  Result<std::vector<Var>> emit_whole(const Node& n, const LocalCall& call,
                                      std::span<const Var> in) {
    return b_.emit_n(*n.op, call.attrs, in, n.regions, n.origin.loc);
  }

  Result<std::vector<Var>> emit_pending_of(NodeId id, const LocalCall& call,
                                           std::span<const Var> in) {
    const Node& n = f_.nodes[id];
    std::vector<uint8_t> pends;
    for (uint32_t r = 0; r < n.n_outputs; ++r) pends.push_back(pends_at_all(n.output(r)));
    return emit_pending(b_, call, in, pends, n.origin.loc);
  }

  bool pends_at_all(ValueId v) const {
    return any_of(s_.made[v], [](const AxisSharding& a) { return a.is_pending(); });
  }

  Group group(size_t axis, bool in_background = false) const {
    return {s_.mesh.axes[axis].name, s_.mesh.axes[axis].size, in_background};
  }

  // Is it a stored weight that forward and backward fetch each for itself?
  bool is_fetched(ValueId v) const {
    return !s_.stored.empty() && s_.stored[v] != 0 && b_.phase() != Phase::kUpdate;
  }

  // The value as `to` says it lies. What changes on one axis is made whole there first, and so is
  // what a later axis split of the same dim, innermost first; then what is wanted is cut.
  Var converted(ValueId v, const Sharding& to) {
    return s_.values[v] == to ? map_[v] : convert(v, s_.values[v], to);
  }
  Var convert(ValueId v, Sharding from, const Sharding& to) {
    Var x = map_[v];
    const bool stays = any_of(to, [](const auto& s) { return s.is_pending(); });
    if (buckets_.has(v) && !stays) {
      x = buckets_.take(v);
      for (AxisSharding& s : from)
        if (s.is_pending()) s = {};
    }
    if (auto fresh = made_anew(v, to); fresh.valid()) return fresh;
    std::vector<uint8_t> changes(to.size());
    for (size_t a = 0; a < to.size(); ++a) {
      changes[a] = !(from[a] == to[a]) && s_.mesh.axes[a].size > 1;
      for (size_t outer = 0; outer < a; ++outer) {
        const auto meets = [&](const AxisSharding& x, const AxisSharding& y) {
          return x.is_split() && y.is_split() && x.dim == y.dim;
        };
        changes[a] |=
            changes[outer] && s_.mesh.axes[a].size > 1 &&
            (meets(from[outer], from[a]) || meets(to[outer], from[a]) || meets(from[outer], to[a]));
      }
    }
    Sharding now = from;
    const auto n_changes = std::count(changes.begin(), changes.end(), uint8_t{1});
    for (size_t a = to.size(); a-- > 0;) {
      if (!changes[a] || now[a].is_replicated()) continue;
      AxisSharding next;
      // Where nothing else changes no rank needs the whole: a sum is shared out as it is made, and
      // what is split along another dim is exchanged.
      const bool sums = now[a].is_pending() && now[a].combine == Combine::kSum;
      const bool turns = now[a].is_split() && now[a].dim != to[a].dim && now[a].parts == 1;
      if (n_changes == 1 && to[a].is_split() && (sums || (turns && to[a].parts == 1)) &&
          divides(x.shape(), to[a], s_.mesh.axes[a].size))
        next = to[a];
      now[a] = next;
      x = joined(v, x, a, now, next, from[a]);
    }
    for (size_t a = 0; a < to.size(); ++a) {
      if (!to[a].is_split() || now[a] == to[a]) continue;
      now[a] = to[a];
      if (s_.mesh.axes[a].size > 1) x = share(v, x, a, now);
    }
    // A whole addend of a sum that pends is the first rank's part.
    for (size_t a = 0; a < to.size(); ++a) {
      if (!to[a].is_pending() || !now[a].is_replicated()) continue;
      now[a] = to[a];
      if (to[a].combine != Combine::kSum) continue;
      x = once(v, now, [&] { return x * constant(b_, at_[a] == 0 ? 1 : 0, x.dtype()); });
    }
    return narrowed(v, x, now);
  }

  // One step of a conversion, done once for all who want it.
  template <class F>
  Var once(ValueId v, const Sharding& now, F&& make) {
    std::string key = cat(v, " ", to_text(s_.mesh, now));
    if (is_fetched(v)) append(key, cat(" in phase ", static_cast<int>(b_.phase())));
    const auto it = made_.find(key);
    if (it != made_.end()) return it->second;
    return made_[std::move(key)] = make();
  }

  Var joined(ValueId v, Var x, size_t a, const Sharding& now, const AxisSharding& next,
             const AxisSharding& from) {
    return once(v, now, [&] {
      if (from.is_split() && next.is_split()) return turned(v, x, group(a), next.dim, from.dim);
      if (from.is_split()) return all_gather(x, group(a, is_fetched(v)), from.dim, from.parts);
      if (next.is_split()) return reduce_scatter(x, group(a, is_late_), next.dim, next.parts);
      if (from.combine != Combine::kLogSumExp) return all_reduce(x, group(a), from.combine);
      const Var most = all_reduce(x, group(a), Combine::kMax);
      const Var top = select(eq(most, -HUGE_VAL), zeros_like(most), most);
      return top + log(all_reduce(exp(x - top), group(a)));
    });
  }

  // From split along one dim to split along another. Rows that are not filled need not travel,
  // where that is less than their lengths are: these go first. (Zeros of such a row lose their
  // sign.)
  Var turned(ValueId v, Var x, const Group& g, int split, int gather) {
    const int last = x.rank() - 1;
    const double bytes =
        bytes_sent(Collective::kAllToAll, static_cast<double>(x.type().bytes()), g.n_ranks);
    const auto of_lengths = bytes * 4 / static_cast<double>(x.dim(last).bound()) /
                            static_cast<double>(size_bytes(x.dtype()));
    const bool is_ragged = s_.mode == Mode::kFast && is_float(x.dtype()) && split < last &&
                           gather < last &&
                           price_of_exchange(s_.target, 2, rows_in_use_[v] * bytes + of_lengths) <
                               price_of_exchange(s_.target, 1, bytes);
    if (!is_ragged) return all_to_all(x, g, split, gather);
    const Var is_filled = ne(reduce_max(abs(x), {last}), 0.0);
    const Var sent = cast(is_filled, DType::kI32) * static_cast<double>(x.dim(last).bound());
    return all_to_all_ragged(x, sent, all_to_all(sent, g, split, gather), g, split, gather);
  }

  // This rank's share of each part of a dim.
  Var share(ValueId v, Var x, size_t a, const Sharding& now) {
    return once(v, now, [&] {
      const AxisSharding& s = now[a];
      const int64_t extent = x.dim(s.dim).bound(), part = extent / s.parts;
      const int64_t size = part / s_.mesh.axes[a].size;
      if (s.parts == 1) return slice(x, s.dim, at_[a] * size, size);
      Shape apart, again = x.shape();
      for (int d = 0; d < x.rank(); ++d) {
        if (d == s.dim) apart.push_back(s.parts);
        apart.push_back(d == s.dim ? Dim(part) : x.dim(d));
      }
      again[s.dim] = s.parts * size;
      return reshape(slice(reshape(x, apart), s.dim + 1, at_[a] * size, size), again);
    });
  }

  // Once no sum pends any more it is rounded to its own dtype.
  Var narrowed(ValueId v, Var x, const Sharding& now) {
    const DType dtype = f_.type(v).dtype;
    for (const AxisSharding& s : now)
      if (s.is_pending()) return x;
    if (x.dtype() == dtype) return x;
    Var& narrow = made_[cat(v, " narrow ", to_text(s_.mesh, now))];
    if (!narrow.valid()) narrow = cast(x, dtype);
    return narrow;
  }

  // Random numbers, constants and the like: a share of them is made, not cut out.
  Var made_anew(ValueId v, const Sharding& to) {
    const Node* n = f_.producer(v);
    if (!n || n->n_outputs != 1 || n->op->has_effect || !n->regions.empty()) return {};
    for (const AxisSharding& s : s_.made[v])
      if (!s.is_replicated()) return {};
    for (const AxisSharding& s : to)
      if (s.is_pending()) return {};
    const bool is_small =
        all_of(n->inputs, [&](ValueId i) { return f_.type(i).shape.rank() == 0; });
    if (!is_small) return {};
    std::string key = cat(v, " anew ", to_text(s_.mesh, to));
    if (const auto it = made_.find(key); it != made_.end()) return it->second;
    LocalCall call(m_, f_, *n);
    for (size_t a = 0; a < to.size(); ++a) {
      if (!to[a].is_split()) continue;
      const auto map = dim_map(call.call());
      if (!map.ok() || to[a].parts != 1) return {};
      AxisCut cut{AxisCut::kAlong, -1, 1};
      const auto& e = map->results[0][static_cast<size_t>(to[a].dim)];
      if (e.terms.size() != 1 || e.offset != 0) return {};
      cut.factor = e.terms[0].factor;
      std::vector<AxisSharding> in, out;
      if (!states_of_cut(call, *map, cut, s_.mesh.axes[a].size, in, out) || !(out[0] == to[a]))
        return {};
      if (!call.cut(cut, s_.mesh.axes[a].size, at_[a], &*map).ok()) return {};
    }
    std::vector<Var> in;
    for (ValueId i : n->inputs) in.push_back(converted(i, replicated(s_.mesh)));
    return made_[key] = b_.emit_n(*n->op, call.attrs, in, {}, n->origin.loc)[0];
  }

  Module& m_;
  const Function f_;  // a copy: the module grows
  const ShardedStep& s_;
  const std::vector<int64_t> at_;
  Builder b_;
  const std::vector<double> rows_in_use_;  // per value
  std::vector<Var> map_;
  std::map<std::string, Var> made_;
  std::vector<Sharding> late_;  // of each value; empty: it is none
  SumBuckets buckets_{b_, s_.mesh, s_.target};
  bool is_late_ = false;
  std::vector<Fetch> fetches_;
  size_t n_fetched_ = 0;
};

}  // namespace

Result<FuncId> partition(Module& module, FuncId step, const ShardedStep& sharded, int64_t rank) {
  return Partitioner(module, step, sharded, rank).run();
}

}  // namespace tegula
