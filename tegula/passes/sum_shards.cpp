// Replaces a node with sums in shards by its op on each cell and trees of sums (sum_shards.h).
#include "tegula/passes/sum_shards.h"

#include "tegula/base/dot_dims.h"
#include "tegula/base/range.h"
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

// A matrix that is made of several is made before they are many: without a barrier the sums of all
// that is added to it later would be one loop, and what it reads would wait for that.
Var at_once(Var x) { return x.rank() < 2 ? x : barrier(std::span(&x, 1), {})[0]; }

// The same tree while its leaves come, so that few of them wait.
class Tree {
 public:
  void add(Var leaf) {
    for (size_t n = ++n_leaves_; n % 2 == 0; n /= 2)
      leaf = waiting_.back() + leaf, waiting_.pop_back();
    waiting_.push_back(leaf);
  }
  Var sum() const { return at_once(waiting_[0]); }  // of a power of two of leaves

 private:
  std::vector<Var> waiting_;
  size_t n_leaves_ = 0;
};

// The call on each of `shards` shares of a factor: what `make` emits of one. Per result the sums of
// all, or one value, where they lie side by side or are the same.
template <class Make>
Result<std::vector<std::vector<Var>>> by_shares(const LocalCall& call, int factor, int64_t shards,
                                                std::span<const Var> in, Loc loc, Make&& make) {
  const DimMap map = TEGULA_TRY(dim_map(call.call()));
  const AxisCut cut{AxisCut::kAlong, factor, 1};
  std::vector<AxisSharding> want, give;
  if (!states_of_cut(call, map, cut, shards, want, give))
    return internal_error(cat(call.op->name, " has no ", shards, " shards"));
  std::vector<std::vector<Var>> results(call.out.size());
  for (int64_t i = 0; i < shards; ++i) {
    LocalCall part = call;
    TEGULA_TRY(part.cut(cut, shards, i, &map));
    std::vector<Var> operands;
    for (size_t k = 0; k < in.size(); ++k) operands.push_back(piece_of(in[k], want[k], shards, i));
    const std::vector<Var> out = TEGULA_TRY(make(part, operands));
    for (size_t r = 0; r < out.size(); ++r)
      if (i == 0 || give[r].is_split() || give[r].is_pending()) results[r].push_back(out[r]);
  }
  for (size_t r = 0; r < results.size(); ++r)
    if (give[r].is_split()) results[r] = {concat(results[r], give[r].dim, loc)};
  return results;
}

Result<std::vector<Var>> emit_plain(Builder& b, const LocalCall& call, std::span<const Var> in,
                                    Loc loc) {
  std::vector<Var> out = b.emit_n(*call.op, call.attrs, in, {}, loc);
  if (b.failed()) return b.error();
  return out;
}

// One outer shard: the tree of its inner ones. Sums are wide.
Result<std::vector<Var>> emit_inner(Builder& b, const LocalCall& call, int factor, int64_t shards,
                                    std::span<const Var> in, Loc loc) {
  const DimMap map = TEGULA_TRY(dim_map(call.call()));
  const auto is_sum = [&](size_t r, int f) { return f >= 0 && map.combine[f][r] == Combine::kSum; };
  const auto wide = [&](std::vector<Var> out) {
    for (size_t r = 0; r < out.size(); ++r)
      if ((is_sum(r, outer_factor(map)) || is_sum(r, factor)) && is_float(out[r].dtype()))
        out[r] = cast(out[r], accumulator(out[r].dtype()), loc);
    return out;
  };
  if (shards == 1) return wide(TEGULA_TRY(emit_plain(b, call, in, loc)));
  std::vector<Tree> trees(call.out.size());
  const auto of_cell = [&](const LocalCall& part,
                           std::span<const Var> operands) -> Result<std::vector<Var>> {
    std::vector<Var> out = wide(TEGULA_TRY(emit_plain(b, part, operands, loc)));
    for (size_t r = 0; r < out.size(); ++r)
      if (is_sum(r, factor)) trees[r].add(out[r]);
    return out;
  };
  auto parts = TEGULA_TRY(by_shares(call, factor, shards, in, loc, of_cell));
  std::vector<Var> out;
  for (size_t r = 0; r < parts.size(); ++r)
    out.push_back(is_sum(r, factor) ? trees[r].sum() : parts[r][0]);
  return out;
}

// A product's dims with those of shards beside them.
struct ShardedDims {
  Shape shape;
  std::string names;
};
constexpr std::string_view kOuterName = "outer_shard", kInnerName = "inner_shard";

// The dims of an operand in which the two factors stand: [p, b/p] and [q, s/q] instead of b and s.
ShardedDims sharded_dims(Var x, const DimNames& names, const DimNames& factors, SumShards shards) {
  ShardedDims d;
  const auto add = [&](std::string_view name, Dim size) {
    d.shape.push_back(size), append(d.names, cat(d.names.empty() ? "" : " ", name));
  };
  for (int i = 0; i < names.size(); ++i) {
    const bool is_outer = names[i] == factors[0], is_inner = names[i] == factors[1];
    const int64_t n = is_outer ? shards.outer : is_inner ? shards.inner : 1;
    if (n > 1) add(is_outer ? kOuterName : kInnerName, n);
    const Dim left = n > 1 ? Dim(x.dim(i).bound() / n) : x.dim(i);
    if (left != Dim(1) || (n == 1 && !is_outer)) add(names[i], left);
  }
  return d;
}

// One product for all cells: outer shards are a dim of its result, inner ones k's own. Its k goes
// over inner shards, then within a cell over the batch and the sequence.
Result<Var> emit_dot(Builder& b, const LocalCall& call, SumShards shards, std::span<const Var> in,
                     Loc loc) {
  const std::string spec = call.attrs.str("dims");
  const DotDims dims = TEGULA_TRY(DotDims::parse(spec));
  DimNames factors;
  factors.push_back(dims.a[0]), factors.push_back(dims.a[1]);
  ShardedDims a = sharded_dims(in[0], dims.a, factors, shards);
  const ShardedDims right = sharded_dims(in[1], dims.b, factors, shards);
  if (std::max(a.shape.rank(), right.shape.rank()) > kMaxRank ||
      dims.out.size() + (shards.outer > 1 ? 1 : 0) > kMaxRank)
    return internal_error(cat("dot ", spec, " has no room for its shards"));
  Var left = reshape(in[0], a.shape, loc);
  const int at = shards.outer > 1 ? 1 : 0;  // of what is left of the batch, if anything is
  const bool has_batch = in[0].dim(0) != Dim(shards.outer);
  if (has_batch && shards.inner > 1) {
    std::vector<int64_t> order;
    for (int64_t d = 0; d < a.shape.rank(); ++d) order.push_back(d);
    std::swap(order[at], order[static_cast<size_t>(at) + 1]);
    left = permute(left, order, loc);
    const std::string first = cat(dims.a[0], " ", kInnerName),
                      then = cat(kInnerName, " ", dims.a[0]);
    a.names.replace(a.names.find(first), first.size(), then);
  }
  const std::string lead = shards.outer > 1 ? cat(kOuterName, " ") : "";
  Attrs attrs = call.attrs;
  attrs.set("dims", cat(a.names, ", ", right.names, " -> ", lead, dims.out.text()));
  if (shards.inner > 1) attrs.set("k_shards", shards.inner);
  const DType wide = accumulator(call.out[0].dtype);
  if (wide != in[0].dtype()) attrs.set("out", wide);
  const Var y = b.emit(*call.op, std::move(attrs), {left, reshape(in[1], right.shape, loc)}, loc);
  if (b.failed()) return b.error();
  return y;
}

Status expand(Rewriter& rw, const LocalCall& call, const Node& n) {
  std::vector<Var> in;
  for (ValueId v : n.inputs) in.push_back(rw.at(v));
  rw.builder().set_origin(n.origin);
  rw.builder().set_phase(n.phase);
  const auto out = TEGULA_TRY(emit_by_shards(rw.builder(), call, in, n.origin.loc));
  for (uint32_t r = 0; r < n.n_outputs; ++r)
    rw.bind(n.output(r), cast(out[r].joined(), call.out[r].dtype, n.origin.loc));
  return {};
}

Result<bool> run(Module& module, Function& f, const PassOptions&) {
  const bool any = any_of(f.nodes, [](const Node& n) { return n.attrs.has(kSumShards); });
  if (!any) return false;
  Rewriter rw(module, f);
  for (const Node& n : f.nodes) {
    if (n.attrs.has(kSumShards))
      TEGULA_TRY(expand(rw, LocalCall(module, f, n), n));
    else
      rw.clone(n);
  }
  f = TEGULA_TRY(rw.finish());
  return true;
}

}  // namespace

std::vector<Var> ByShards::each() const {
  if (!apart_.empty()) return apart_;
  std::vector<Var> all;
  for (int64_t i = 0; i < together_.dim(0).bound(); ++i)
    all.push_back(squeeze(slice(together_, 0, i, 1), 0));
  return all;
}

Var ByShards::side_by_side() const {
  if (together_.valid()) return together_;
  std::vector<Var> rows;
  for (Var v : apart_) rows.push_back(unsqueeze(v, 0));
  return rows.size() == 1 ? rows[0] : concat(rows, 0);
}

Var ByShards::joined() const {
  const Var sum = tree_of(each());
  return together_.valid() ? at_once(sum) : sum;
}

bool sums_over(const DimMap& m, int factor) {
  if (factor < 0) return false;
  const auto& combine = m.combine[factor];
  return any_of(combine, [](Combine how) { return how == Combine::kSum; });
}

SumShards most_shards(const LocalCall& c) {
  // An op says its facts about a part of itself at the bounds.
  for (const auto* types : {&c.in, &c.out})
    for (const Type& t : *types)
      for (const Dim& d : t.shape)
        if (!d.is_const()) return {};
  const auto map = dim_map(c.call());
  if (!map.ok()) return {};
  const int outer = outer_factor(*map), inner = inner_factor(*map);
  if (!sums_over(*map, outer)) return {};
  const auto may = [&](int factor, int64_t shards) {
    std::vector<AxisSharding> in, out;
    if (shards == 1 || !states_of_cut(c, *map, {AxisCut::kAlong, factor, 1}, shards, in, out))
      return false;
    bool has_order = false;  // sums of integers have none
    for (size_t r = 0; r < out.size(); ++r) {
      if (!out[r].is_pending()) continue;
      if (out[r].combine != Combine::kSum) return false;
      has_order |= is_float(c.out[r].dtype);
    }
    return has_order;
  };
  const auto size = [&](int factor) { return map->factors[factor].size.bound(); };
  SumShards s;
  if (size(outer) == 0) return {};
  if (may(outer, shards_of(size(outer)))) s.outer = shards_of(size(outer));
  if (inner != outer && sums_over(*map, inner) && may(inner, shards_of_sequence(size(inner))))
    s.inner = shards_of_sequence(size(inner));
  return s;
}

Result<std::vector<ByShards>> emit_by_shards(Builder& b, const LocalCall& whole,
                                             std::span<const Var> in, Loc loc) {
  LocalCall call = whole;
  SumShards shards = SumShards::of(call.attrs);
  call.attrs.erase(kSumShards);
  const DimMap map = TEGULA_TRY(dim_map(call.call()));
  std::vector<ByShards> results;
  if (!sums_over(map, outer_factor(map))) {  // nothing is summed: a loss of each token
    if (call.op == &dot_op)
      return internal_error(cat("a dot with an epilogue (", call.attrs.str("dims"),
                                ") has shards that are joined after it"));
    for (Var v : TEGULA_TRY(emit_plain(b, call, in, loc))) results.push_back(ByShards::apart({v}));
    return results;
  }
  if (!sums_over(map, inner_factor(map))) shards.inner = 1;
  if (call.op == &dot_op) {
    const Var y = TEGULA_TRY(emit_dot(b, call, shards, in, loc));
    results.push_back(shards.outer > 1 ? ByShards::together(y) : ByShards::apart({y}));
    return results;
  }
  const auto inner = [&](const LocalCall& part, std::span<const Var> operands) {
    return emit_inner(b, part, inner_factor(map), shards.inner, operands, loc);
  };
  if (shards.outer == 1) {
    for (Var v : TEGULA_TRY(inner(call, in))) results.push_back(ByShards::apart({v}));
    return results;
  }
  for (auto& sums : TEGULA_TRY(by_shares(call, outer_factor(map), shards.outer, in, loc, inner)))
    results.push_back(ByShards::apart(std::move(sums)));
  return results;
}

extern const PassDef sum_shards_pass = {
    .name = "sum_shards",
    .doc = "sums that have shards, shard by shard and in a tree",
    .sums = "sums that have shards are summed in a tree of them",
    .phase = PassPhase::kFuse,
    .needs = kIsUnfused,
    .run = run,
};

}  // namespace tegula
