#include "tegula/passes/shard.h"

#include "tegula/base/range.h"
#include "tegula/cost/price.h"
#include "tegula/ir/regions.h"
#include "tegula/ops/table.h"
#include "tegula/passes/exact_cuts.h"
#include "tegula/passes/ring.h"
#include "tegula/passes/state_of.h"

namespace tegula {

namespace {

constexpr double kImpossible = 1e30;  // seconds

bool adds(const OpDef* op) { return op == &add_op || op == &sub_op; }

// A value that pends is wide already.
bool widens(const Node& n, const LocalCall& c) {
  return n.op == &cast_op && is_float(c.in[0].dtype) &&
         c.out[0].dtype == accumulator(c.in[0].dtype);
}

class Sharder {
 public:
  Sharder(const Module& m, const Function& f, const ShardOptions& o) : m_(m), f_(f), options_(o) {
    out_.mesh = o.mesh, out_.mode = o.mode, out_.target = o.target;
    out_.values.assign(f.values.size(), replicated(o.mesh)), out_.made = out_.values;
    out_.nodes.resize(f.nodes.size()), out_.wants.resize(f.nodes.size());
    joined_.resize(f.values.size() * o.mesh.axes.size());
  }

  Result<ShardedStep> run() {
    TEGULA_TRY(check_annotations());
    for (size_t p = 0; p < f_.params.size(); ++p) {
      const Param& param = f_.params[p];
      const Sharding* said = f_.sharding(param.value);
      const Sharding& s = said ? *said : options_.params[p];
      const auto fits = check_sharding(options_.mesh, f_.type(param.value).shape, s);
      if (!fits.ok())
        return invalid_argument(cat("parameter ", param.name, ": ", fits.error().message));
      out_.values[param.value] = out_.made[param.value] = s;
    }
    find_weights();
    find_kept();
    for (NodeId n = 0; n < f_.nodes.size(); ++n) TEGULA_TRY(place(n));
    return std::move(out_);
  }

 private:
  Status check_annotations() const {
    const auto wrong = [&](ValueId v, const auto&... what) {
      const Node* n = f_.producer(v);
      return invalid_argument(
          cat("value ", v, n ? cat(" (", n->op->name, ")") : "", ", ", f_.type(v), " ",
              to_text(m_.mesh, *f_.sharding(v)), ": ", what...),
          n ? n->origin.loc : std::source_location::current());
    };
    for (ValueId v = 0; v < f_.shardings.size(); ++v) {
      const Sharding* said = f_.sharding(v);
      if (!said) continue;
      if (!(m_.mesh == options_.mesh))
        return wrong(v, "it is annotated for the mesh \"", to_text(m_.mesh),
                     "\", the step is cut for \"", to_text(options_.mesh), "\": name this one");
      if (auto fits = check_sharding(m_.mesh, f_.type(v).shape, *said); !fits.ok())
        return wrong(v, fits.error().message);
      for (size_t a = 0; a < said->size(); ++a)
        if ((*said)[a].is_pending())
          return wrong(v, "that it pends over ", options_.mesh.axes[a].name,
                       " follows from the op that makes it: say where it shall lie, or nothing");
    }
    return {};
  }
  const AxisSharding* said_of(ValueId v, size_t axis) const {
    const Sharding* s = f_.sharding(v);
    return s ? &(*s)[axis] : nullptr;
  }

  // Finds values of weights alone; it is stored in shares where an axis of the state splits one.
  void find_weights() {
    bool is_any = false;
    of_weights_.resize(f_.values.size());
    for (size_t p = 0; p < f_.params.size(); ++p) {
      if (f_.params[p].role != Role::kWeight) continue;
      of_weights_[f_.params[p].value] = 1;
      for (size_t a = 0; a < options_.mesh.axes.size(); ++a)
        is_any |= scatters(a) && out_.values[f_.params[p].value][a].is_split();
    }
    state_of_ = state_of_values(f_);
    for (const Node& n : f_.nodes) {
      const bool is_of_weights = !n.inputs.empty() && !n.op->has_effect &&
                                 n.phase != Phase::kUpdate &&
                                 all_of(n.inputs, [&](ValueId v) { return of_weights_[v] != 0; });
      for (uint32_t r = 0; r < n.n_outputs; ++r) of_weights_[n.output(r)] = is_of_weights;
    }
    if (is_any) out_.stored = of_weights_;
  }
  // A gradient times 1/n, before it is added to a sum that pends in state (train/ranks.cpp).
  void find_kept() {
    is_kept_.resize(f_.nodes.size());
    for (const Param& p : f_.params) {
      const Sharding& s = out_.values[p.value];
      const bool pends = any_of(s, [](const auto& a) { return a.is_pending(); });
      if (!pends || p.donated_to < 0) continue;
      const Node* sum = f_.producer(f_.results[static_cast<size_t>(p.donated_to)].value);
      if (sum == nullptr || sum->op != &add_op) continue;
      for (const ValueId v : sum->inputs)
        if (const Node* n = f_.producer(v); n != nullptr && n->op == &mul_op)
          is_kept_[f_.values[v].node] = 1;
    }
  }
  bool is_stored(ValueId v, size_t axis) const {
    return !out_.stored.empty() && out_.stored[v] != 0 && scatters(axis);
  }

  // One axis after another: the next sees the node as the last left it.
  Status place(NodeId id) {
    const Node& n = f_.nodes[id];
    LocalCall call(m_, f_, n);
    out_.wants[id].assign(n.inputs.size(), replicated(options_.mesh));
    for (size_t a = 0; a < options_.mesh.axes.size(); ++a) {
      const int64_t n_ranks = options_.mesh.axes[a].size;
      std::vector<AxisSharding> in, out;
      const AxisCut cut = n_ranks == 1 ? AxisCut{} : best(n, call, a, in, out);
      if (cut.kind == AxisCut::kWhole) {
        const bool is_heavy = n.op->precision == Precision::kLow || has_bodies(*n.op);
        const int64_t flops = is_heavy ? flops_at_bounds(call) : 0;
        if (flops > 0 && n_ranks > 1)
          out_.uncut.push_back(
              {n.op, m_.scopes[n.origin.scope], a, flops, indivisible(call, n_ranks)});
      }
      out_.nodes[id].push_back(cut);
      if (out.empty()) out.resize(n.n_outputs);
      for (uint32_t r = 0; r < n.n_outputs; ++r) out_.made[n.output(r)][a] = out[r];
      for (size_t k = 0; k < in.size(); ++k) {
        out_.wants[id][k][a] = in[k];
        if (in[k].is_replicated()) joined_[slot(n.inputs[k], a)] = 1;
      }
      TEGULA_TRY(call.cut(cut, n_ranks, 0));
    }
    for (uint32_t r = 0; r < n.n_outputs; ++r) {
      const Sharding* said = f_.sharding(n.output(r));
      out_.values[n.output(r)] = said ? *said : out_.made[n.output(r)];
    }
    return {};
  }

  static std::string indivisible(const LocalCall& c, int64_t n) {
    std::string text;
    const auto map = dim_map(c.call());
    if (!map.ok()) return text;
    for (const Factor& f : map->factors)
      if (!f.whole && f.index_operand < 0 && f.size.is_const() && f.size.bound() % n != 0)
        text += cat(text.empty() ? "" : ", ", f.name, " ", f.size);
    return text;
  }

  static int64_t flops_at_bounds(const LocalCall& c) {
    LocalCall at = c;
    for (Type& t : at.in)
      for (int d = 0; d < t.shape.rank(); ++d) t.shape[d] = t.shape[d].bound();
    for (Type& t : at.out)
      for (int d = 0; d < t.shape.rank(); ++d) t.shape[d] = t.shape[d].bound();
    return flops_of(at.call());
  }

  AxisCut best(const Node& n, const LocalCall& c, size_t axis, std::vector<AxisSharding>& in,
               std::vector<AxisSharding>& out) {
    std::vector<AxisCut> cuts = {AxisCut{}};
    if (passes_pending(n, c, axis)) cuts.push_back({AxisCut::kLinear});
    DimMap map;
    const int64_t n_ranks = options_.mesh.axes[axis].size;
    if (!has_bodies(*n.op) && !n.op->has_effect) {
      if (auto m = dim_map(c.call()); m.ok()) map = std::move(*m);
      const bool has_other = n.phase != Phase::kUpdate && any_of(n.inputs, [&](ValueId v) {
                               return !out_.values[v][axis].is_replicated() && !is_stored(v, axis);
                             });
      for (size_t k = 0; k < n.inputs.size(); ++k) {
        const AxisSharding& s = out_.values[n.inputs[k]][axis];
        if (has_other && is_stored(n.inputs[k], axis)) continue;
        if (s.is_split()) cuts.push_back(cut_of_operand(c, map, k, s, n_ranks));
        if (is_split_table(n.inputs[k], axis)) cuts.push_back(cut_of_rows(c, map, k, s, n_ranks));
        if (s.is_pending() && n.phase == Phase::kUpdate && scatters(axis))
          for (int d = 0; d < c.in[k].shape.rank(); ++d)
            if (const auto split = AxisSharding::split(d); divides(c.in[k].shape, split, n_ranks)) {
              cuts.push_back(cut_of_operand(c, map, k, split, n_ranks));
              break;
            }
      }
      for (uint32_t r = 0; r < n.n_outputs; ++r)
        if (const AxisSharding* said = said_of(n.output(r), axis); said && said->is_split())
          cuts.push_back(cut_of_result(c, map, r, *said, n_ranks));
      if (options_.mode == Mode::kFast && may_ring(n, c, map, axis))
        cuts.push_back({AxisCut::kRing});
      if (n.op->precision == Precision::kLow && !(has_other && reads_stored(n, axis)))
        for (size_t f = 0; f < map.factors.size(); ++f)
          cuts.push_back({AxisCut::kAlong, static_cast<int>(f), 1});
      if (n.phase == Phase::kUpdate && !scatters(axis) && is_of_whole_state(n, axis))
        std::erase_if(cuts, [](const AxisCut& cut) { return cut.kind == AxisCut::kAlong; });
      if (const AxisCut own = cut_of_weight(n, c, map, axis); own.kind != AxisCut::kWhole)
        cuts = {own};
    }
    const int64_t flops = flops_at_bounds(c);
    AxisCut chosen;
    double least = kImpossible;
    for (size_t i = 0; i < cuts.size(); ++i) {
      if (std::find(cuts.begin(), cuts.begin() + static_cast<std::ptrdiff_t>(i), cuts[i]) !=
          cuts.begin() + static_cast<std::ptrdiff_t>(i))
        continue;
      std::vector<AxisSharding> want, give;
      if (!states_of_cut(c, map, cuts[i], n_ranks, want, give)) continue;
      const SumCut how = sum_cut(c, map, cuts[i], n_ranks, give);
      if (how == SumCut::kRefused) continue;
      const double within = how == SumCut::kExchanged ? exchanged(c, n_ranks, give) : 0;
      const double price = within + price_of(n, c, axis, cuts[i], want, give, flops);
      if (price < least) least = price, chosen = cuts[i], in = want, out = give;
    }
    return chosen;
  }

  // A weight is cut by experts or by widths in order that no rank holds more: products go to such
  // weights, not these to them, however few their bytes. kWhole: none is read, or none may be cut.
  AxisCut cut_of_weight(const Node& n, const LocalCall& c, const DimMap& map, size_t axis) const {
    if (n.op->precision != Precision::kLow || n.phase == Phase::kUpdate || scatters(axis))
      return {};
    const int64_t n_ranks = options_.mesh.axes[axis].size;
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const AxisSharding& s = out_.values[n.inputs[k]][axis];
      if (of_weights_[n.inputs[k]] == 0 || !s.is_split()) continue;
      AxisCut cut = cut_of_operand(c, map, k, s, n_ranks);
      if (cut.kind == AxisCut::kWhole) cut = cut_of_rows(c, map, k, s, n_ranks);
      std::vector<AxisSharding> want, give;
      if (cut.kind != AxisCut::kWhole && cut.kind != AxisCut::kPieces &&
          states_of_cut(c, map, cut, n_ranks, want, give) &&
          sum_cut(c, map, cut, n_ranks, give) != SumCut::kRefused)
        return cut;
    }
    return {};
  }

  // State that every rank holds is updated whole: in shares, all of it would have to be joined.
  bool is_of_whole_state(const Node& n, size_t axis) const {
    const ValueId state = n.n_outputs == 1 ? state_of_[n.output()] : kNone;
    return state != kNone && out_.values[state][axis].is_replicated();
  }

  // Rows of weights, or of what a rank is given, that lie where they are: no activations.
  bool is_split_table(ValueId v, size_t axis) const {
    return out_.values[v][axis].is_split() && !is_stored(v, axis) &&
           (of_weights_[v] != 0 || f_.values[v].node == kNone);
  }

  bool reads_stored(const Node& n, size_t axis) const {
    return any_of(n.inputs,
                  [&](ValueId v) { return is_stored(v, axis) && out_.values[v][axis].is_split(); });
  }

  SumCut sum_cut(const LocalCall& c, const DimMap& map, const AxisCut& cut, int64_t n_ranks,
                 const std::vector<AxisSharding>& give) const {
    if (options_.mode == Mode::kFast) return SumCut::kPends;
    return cut_of_sum(c, map, cut, n_ranks, give);
  }

  // The exchange for sums that are joined within the node: what ranks send for all outer shards but
  // one. That is what they would send for a sum that pends, which has no price here either.
  double exchanged(const LocalCall& c, int64_t n_ranks, std::vector<AxisSharding>& give) const {
    Exchange all;
    const int64_t outer = SumShards::of(c.attrs).outer;
    for (size_t r = 0; r < give.size(); ++r) {
      if (!give[r].is_pending()) continue;
      const Exchange one = conversion(give[r], {}, c.out[r].bytes(), n_ranks);
      all.bytes += one.bytes * static_cast<double>(outer - 1), all.n_meetings += one.n_meetings;
      give[r] = {};
    }
    return price_of_exchange(options_.target, all.n_meetings, all.bytes);
  }

  size_t slot(ValueId v, size_t axis) const { return v * options_.mesh.axes.size() + axis; }
  // Does every rank have all of it, there or joined for an earlier reader? (Stored weights are
  // dropped after theirs.)
  bool is_there(ValueId v, size_t axis) const {
    return out_.values[v][axis].is_replicated() ||
           (joined_[slot(v, axis)] != 0 && !is_stored(v, axis));
  }

  bool scatters(size_t axis) const {
    return axis < options_.scatters.size() && options_.scatters[axis] != 0;
  }

  // A sum may be left pending through whatever is linear in it. Adding two of them changes the
  // order of the whole, so exact mode lets only views through.
  bool passes_pending(const Node& n, const LocalCall& c, size_t axis) const {
    const bool is_view = n.op->is_view && !n.op->has_effect && n.inputs.size() == 1;
    const bool is_free = is_view || n.op == &neg_op || n.op == &pad_op || n.op == &concat_op;
    const bool may_add = n.op->is_linear || adds(n.op) || widens(n, c);
    const bool is_max = n.op == &max_op || n.op == &reduce_max_op;
    const Combine how = is_max ? Combine::kMax : Combine::kSum;
    if (c.in.empty()) return false;
    const bool has_none = (may_add || is_max) && has_no_order(c.in[0].dtype, how);
    const bool is_scalar =
        has_none && c.in[0].shape.rank() == 0 && (n.op == &add_op || n.op == &max_op);
    if (n.op == &mul_op && is_kept_[static_cast<size_t>(&n - f_.nodes.data())] == 0) return false;
    if (!is_free && !has_none && n.op != &mul_op && (options_.mode == Mode::kExact || !may_add))
      return false;
    if (n.op == &pad_op && n.attrs.f("value") != 0) return false;
    const auto pends = [&](ValueId v) {
      const AxisSharding& s = out_.values[v][axis];
      return s.is_pending() && s.combine == how;
    };
    // A sum times what all ranks have.
    if (n.op == &mul_op)
      return pends(n.inputs[0]) && out_.values[n.inputs[1]][axis].is_replicated();
    // Beside a scalar that pends a whole one is what one of the ranks has of it.
    return is_scalar ? any_of(n.inputs, pends) : all_of(n.inputs, pends);
  }

  // Queries and keys lie in shares of the sequence already.
  bool may_ring(const Node& n, const LocalCall& c, const DimMap& map, size_t axis) const {
    if (ring_factors(c, map, options_.mesh.axes[axis].size).queries < 0) return false;
    const size_t id = static_cast<size_t>(&n - f_.nodes.data());
    for (const AxisCut& outer : out_.nodes[id])
      if (outer.kind == AxisCut::kRing) return false;
    return std::all_of(n.inputs.begin(), n.inputs.begin() + 3,
                       [&](ValueId v) { return out_.values[v][axis] == AxisSharding::split(1); });
  }

  // Seconds that a rank waits for others, and that it spends on what all do alike.
  double price_of(const Node& n, const LocalCall& c, size_t axis, const AxisCut& cut,
                  const std::vector<AxisSharding>& want, const std::vector<AxisSharding>& give,
                  int64_t flops) const {
    const int64_t n_ranks = options_.mesh.axes[axis].size;
    Exchange all;
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const bool is_there_already = want[k].is_replicated() && is_there(n.inputs[k], axis);
      const bool is_part = want[k].is_pending() && out_.values[n.inputs[k]][axis].is_replicated() &&
                           c.in[k].shape.rank() == 0 &&
                           has_no_order(c.in[k].dtype, want[k].combine);
      if (!is_there_already && !is_part)
        all += conversion(out_.values[n.inputs[k]][axis], want[k], c.in[k].bytes(), n_ranks);
    }
    const bool alike = cut.kind == AxisCut::kWhole || cut.kind == AxisCut::kLinear;
    // A value that lies apart will be joined again somewhere, most likely; what an operand's own
    // cut gives costs nothing that was not decided before; what was turned will be turned back.
    const bool is_new = cut.kind == AxisCut::kAlong &&
                        all_of(n.inputs, [&](ValueId v) { return is_there(v, axis); });
    const AxisSharding& first = out_.values[n.inputs.empty() ? 0 : n.inputs[0]][axis];
    const bool is_turned =
        !n.inputs.empty() && first.is_split() && want[0].is_split() && first.dim != want[0].dim;
    for (size_t r = 0; r < give.size(); ++r) {
      if (const AxisSharding* said = said_of(n.output(static_cast<uint32_t>(r)), axis)) {
        all += conversion(give[r], *said, c.out[r].bytes(), n_ranks);
        continue;
      }
      if (is_new) all += conversion(give[r], {}, c.out[r].bytes(), n_ranks);
      if (is_turned && give[r].is_split())
        all += conversion(want[0], first, c.out[r].bytes(), n_ranks);
    }
    if (cut.kind == AxisCut::kRing) {
      // In the background, so that nobody waits to meet. (A sum that pends is not priced here, and
      // no more are the gradients that a ring sends home.)
      const auto passed = ring_transfers(c, n_ranks);
      if (!passed.ok()) return kImpossible;
      all.bytes += static_cast<double>(passed->n_blocks * (c.in[1].bytes() + c.in[2].bytes())) /
                   static_cast<double>(n_ranks * n_ranks);
    }
    const DType dtype = c.in.empty() ? DType::kF32 : c.in[0].dtype;
    const double repeated = static_cast<double>(flops) * static_cast<double>(n_ranks - 1) /
                            static_cast<double>(n_ranks);
    // The least bit more lets, of two free cuts, the one win that leaves the work less alike.
    return all.seconds + price_of_exchange(options_.target, all.n_meetings, all.bytes) +
           (alike ? repeated / flops_per_s(options_.target, dtype) + 1e-15 : 0);
  }

  // Bytes that a rank sends to move a value of so many bytes (cost/collective.h).
  struct Exchange {
    double bytes = 0, seconds = 0;
    int n_meetings = 0;
    Exchange& operator+=(const Exchange& e) {
      bytes += e.bytes, seconds += e.seconds, n_meetings += e.n_meetings;
      return *this;
    }
  };
  static Exchange conversion(const AxisSharding& from, const AxisSharding& to, int64_t n_bytes,
                             int64_t n) {
    if (from == to) return {};
    if (to.is_pending()) return {0, kImpossible, 0};
    if (from.is_replicated()) return {};
    const Collective what = !from.is_pending()
                                ? to.is_split() ? Collective::kAllToAll : Collective::kAllGather
                            : to.is_split() ? Collective::kReduceScatter
                                            : Collective::kAllReduce;
    const double whole = static_cast<double>(n_bytes);
    const bool is_own = what == Collective::kAllToAll;  // each has its share alone
    const double sent = bytes_sent(what, is_own ? whole / static_cast<double>(n) : whole, n);
    const int n_meetings = what == Collective::kAllReduce ? 2 : 1;
    // Parts of a softmax are joined by two all-reduces.
    if (from.is_pending() && from.combine == Combine::kLogSumExp)
      return {2 * bytes_sent(Collective::kAllReduce, whole, n), 0, 4};
    return {sent, 0, n_meetings};
  }

  const Module& m_;
  const Function& f_;
  const ShardOptions& options_;
  std::vector<uint8_t> joined_;  // per value and axis: was it made whole for a reader?
  std::vector<ValueId> state_of_;
  std::vector<uint8_t> of_weights_;  // per value: is it made of weights alone?
  std::vector<uint8_t> is_kept_;     // per node: find_kept
  ShardedStep out_;
};

}  // namespace

Result<ShardedStep> shard(const Module& module, const Function& f, const ShardOptions& options) {
  return Sharder(module, f, options).run();
}

}  // namespace tegula
