// Replaces a node with sums in shards by its op on each shard and a tree of sums (sum_shards.h).
#include "tegula/passes/sum_shards.h"

#include <algorithm>
#include <map>

#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/pass.h"

namespace tegula {

namespace {

// This shard's piece of an operand that is split so.
Var piece_of(Var x, const AxisSharding& s, int64_t shards, int64_t index) {
  if (!s.is_split()) return x;
  const int64_t size = x.dim(s.dim).bound() / shards;
  return slice(x, s.dim, index * size, size);
}

Var tree_of(std::span<const Var> partials) {
  if (partials.size() == 1) return partials[0];
  const size_t half = partials.size() / 2;
  return tree_of(partials.first(half)) + tree_of(partials.subspan(half));
}

class Expander {
 public:
  Expander(Module& module, Function& f)
      : module_(module), f_(f), rw_(module, f), root_of_(shard_addends(f)) {}

  Result<Function> run() {
    for (const Node& n : f_.nodes) {
      const bool is_addend = n.op == &cast_op && root_of_[n.output()] != kNone;
      if (!is_addend && !n.attrs.has(kSumShards)) {
        rw_.clone(n);
        continue;
      }
      rw_.builder().set_origin(n.origin);
      rw_.builder().set_phase(n.phase);
      if (is_addend) {
        shards_[n.output()] = shards_[n.inputs[0]];
      } else if (n.op == &add_op) {
        add(n);
      } else {
        TEGULA_TRY(expand(n));
      }
    }
    return rw_.finish();
  }

 private:
  Status expand(const Node& n) {
    LocalCall call(module_, f_, n);
    const int64_t shards = call.attrs.i(kSumShards);
    call.attrs.erase(kSumShards);
    std::vector<Var> in;
    for (ValueId v : n.inputs) in.push_back(rw_.at(v));
    const auto out = TEGULA_TRY(emit_shards(rw_.builder(), call, shards, in, n.origin.loc));
    for (uint32_t r = 0; r < n.n_outputs; ++r) give(n, r, out[r]);
    return {};
  }

  void add(const Node& n) {
    std::vector<Var> sum = shards_[n.inputs[0]];
    const std::vector<Var>& other = shards_[n.inputs[1]];
    TEGULA_CHECK(sum.size() == other.size() && !sum.empty(), "sums over other shards are added");
    const DType wide = accumulator(f_.type(n.output()).dtype);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = cast(sum[i], wide) + cast(other[i], wide);
    give(n, 0, sum);
  }

  // To whom adds them up, or joined.
  void give(const Node& n, uint32_t r, const std::vector<Var>& shards) {
    const ValueId v = n.output(r);
    if (root_of_[v] != kNone)
      shards_[v] = shards;
    else
      rw_.bind(v, cast(tree_of(shards), f_.type(v).dtype, n.origin.loc));
  }

  Module& module_;
  Function& f_;
  Rewriter rw_;
  std::vector<NodeId> root_of_;
  std::map<ValueId, std::vector<Var>> shards_;  // of values that are added before they are joined
};

Result<bool> run(Module& module, Function& f, const PassOptions&) {
  const bool any = std::any_of(f.nodes.begin(), f.nodes.end(),
                               [](const Node& n) { return n.attrs.has(kSumShards); });
  if (!any) return false;
  f = TEGULA_TRY(Expander(module, f).run());
  return true;
}

}  // namespace

int sharded_factor(const LocalCall& c, const DimMap& m) {
  const int factor = outermost_factor(m);
  if (c.op == &dot_op || factor < 0) return -1;
  const auto& combine = m.combine[static_cast<size_t>(factor)];
  return std::any_of(combine.begin(), combine.end(),
                     [](Combine how) { return how == Combine::kSum; })
             ? factor
             : -1;
}

int64_t most_shards(const LocalCall& c) {
  // What an op says of a part of itself it says at the bounds.
  for (const auto* types : {&c.in, &c.out})
    for (const Type& t : *types)
      for (const Dim& d : t.shape)
        if (!d.is_const()) return 1;
  const auto map = dim_map(c.call());
  if (!map.ok()) return 1;
  const int factor = sharded_factor(c, *map);
  if (factor < 0) return 1;
  const Dim size = map->factors[static_cast<size_t>(factor)].size;
  if (!size.is_const() || size.bound() == 0) return 1;
  const int64_t shards = shards_of(size.bound());
  std::vector<AxisSharding> in, out;
  const AxisCut cut{AxisCut::kAlong, factor, 1};
  return shards > 1 && states_of_cut(c, *map, cut, shards, in, out) ? shards : 1;
}

std::vector<NodeId> shard_addends(const Function& f) {
  std::vector<NodeId> root_of(f.values.size(), kNone);
  for (NodeId id = static_cast<NodeId>(f.nodes.size()); id-- > 0;) {
    const Node& n = f.nodes[id];
    if (n.op != &add_op || !n.attrs.has(kSumShards)) continue;
    const NodeId root = root_of[n.output()] == kNone ? id : root_of[n.output()];
    for (ValueId v : n.inputs) {
      root_of[v] = root;
      for (const Node* from = f.producer(v); from && from->op == &cast_op; from = f.producer(v))
        v = from->inputs[0], root_of[v] = root;
    }
  }
  return root_of;
}

Result<std::vector<std::vector<Var>>> emit_shards(Builder& b, const LocalCall& call, int64_t shards,
                                                  std::span<const Var> in, Loc loc) {
  const DimMap map = TEGULA_TRY(dim_map(call.call()));
  const AxisCut cut{AxisCut::kAlong, sharded_factor(call, map), 1};
  std::vector<std::vector<Var>> results(call.out.size());
  if (cut.factor < 0) {  // nothing is summed
    const auto out = b.emit_n(*call.op, call.attrs, in, {}, loc);
    for (size_t r = 0; r < results.size(); ++r) results[r] = {out[r]};
    return results;
  }
  std::vector<AxisSharding> want, give;
  if (!states_of_cut(call, map, cut, shards, want, give))
    return internal_error(cat(call.op->name, " has no ", shards, " shards"));
  for (int64_t i = 0; i < shards; ++i) {
    LocalCall part = call;
    TEGULA_TRY(part.cut(cut, shards, i));
    std::vector<Var> operands;
    for (size_t k = 0; k < in.size(); ++k) operands.push_back(piece_of(in[k], want[k], shards, i));
    const auto out = b.emit_n(*part.op, part.attrs, operands, {}, loc);
    if (b.failed()) return b.error();
    for (size_t r = 0; r < out.size(); ++r) results[r].push_back(out[r]);
  }
  for (size_t r = 0; r < results.size(); ++r) {
    if (give[r].is_split())
      results[r] = {concat(results[r], give[r].dim, loc)};
    else if (!give[r].is_pending())
      results[r].resize(1);
    for (Var& v : results[r])
      if (give[r].is_pending() && is_float(v.dtype())) v = cast(v, accumulator(v.dtype()), loc);
  }
  return results;
}

Result<std::vector<Var>> emit_in_shards(Builder& b, const LocalCall& call, int64_t shards,
                                        std::span<const Var> in, Loc loc) {
  std::vector<Var> out;
  for (const auto& sums : TEGULA_TRY(emit_shards(b, call, shards, in, loc)))
    out.push_back(tree_of(sums));
  return out;
}

extern const PassDef sum_shards_pass = {
    .name = "sum_shards",
    .doc = "sums that have shards, shard by shard and in a tree",
    .phase = PassPhase::kFuse,
    .needs = kIsUnfused,
    .run = run,
};

}  // namespace tegula
