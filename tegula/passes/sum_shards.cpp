// Replaces a node with sums in shards by its op on each shard and a tree of sums (sum_shards.h).
#include "tegula/passes/sum_shards.h"

#include <algorithm>

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

Result<bool> run(Module& module, Function& f, const PassOptions&) {
  const bool any = std::any_of(f.nodes.begin(), f.nodes.end(),
                               [](const Node& n) { return n.attrs.has(kSumShards); });
  if (!any) return false;
  Rewriter rw(module, f);
  for (const Node& n : f.nodes) {
    if (!n.attrs.has(kSumShards)) {
      rw.clone(n);
      continue;
    }
    LocalCall call(module, f, n);
    const int64_t shards = call.attrs.i(kSumShards);
    call.attrs.erase(kSumShards);
    Builder& b = rw.builder();
    b.set_origin(n.origin);
    b.set_phase(n.phase);
    std::vector<Var> in;
    for (ValueId v : n.inputs) in.push_back(rw.at(v));
    const auto out = TEGULA_TRY(emit_in_shards(b, call, shards, in, n.origin.loc));
    for (uint32_t r = 0; r < n.n_outputs; ++r)
      rw.bind(n.output(r), cast(out[r], f.type(n.output(r)).dtype, n.origin.loc));
  }
  f = TEGULA_TRY(rw.finish());
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

Result<std::vector<Var>> emit_in_shards(Builder& b, const LocalCall& call, int64_t shards,
                                        std::span<const Var> in, Loc loc) {
  const DimMap map = TEGULA_TRY(dim_map(call.call()));
  const AxisCut cut{AxisCut::kAlong, sharded_factor(call, map), 1};
  if (cut.factor < 0) return b.emit_n(*call.op, call.attrs, in, {}, loc);  // nothing is summed
  std::vector<AxisSharding> want, give;
  if (!states_of_cut(call, map, cut, shards, want, give))
    return internal_error(cat(call.op->name, " has no ", shards, " shards"));
  std::vector<std::vector<Var>> results(call.out.size());
  for (int64_t i = 0; i < shards; ++i) {
    LocalCall part = call;
    TEGULA_TRY(part.cut(cut, shards, i));
    std::vector<Var> operands;
    for (size_t k = 0; k < in.size(); ++k) operands.push_back(piece_of(in[k], want[k], shards, i));
    const auto out = b.emit_n(*part.op, part.attrs, operands, {}, loc);
    if (b.failed()) return b.error();
    for (size_t r = 0; r < out.size(); ++r) results[r].push_back(out[r]);
  }
  std::vector<Var> out;
  for (size_t r = 0; r < results.size(); ++r) {
    if (give[r].is_pending()) {
      for (Var& v : results[r])
        if (is_float(v.dtype())) v = cast(v, accumulator(v.dtype()), loc);
      out.push_back(tree_of(results[r]));
    } else {
      out.push_back(give[r].is_split() ? concat(results[r], give[r].dim, loc) : results[r][0]);
    }
  }
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
