#include "tests/ops/exact_parts.h"

#include <cmath>
#include <cstring>
#include <memory>

#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/exact_cuts.h"
#include "tegula/passes/shard.h"
#include "tegula/passes/sum_shards.h"
#include "tegula/plan/planning.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/session.h"
#include "tests/ops/join_parts.h"
#include "tests/ops/parts.h"

namespace tegula::testing {

namespace {

// One function of one op.
Result<FuncId> function_of(Module& m, const OpDef& op, const Attrs& attrs,
                           std::span<const Type> in) {
  Builder b(m, "f");
  std::vector<Var> x;
  for (const Type& t : in) x.push_back(b.param(cat("x", x.size()), t));
  const std::vector<Var> y = b.emit_n(op, attrs, x);
  for (size_t r = 0; r < y.size(); ++r) b.result(cat("y", r), y[r]);
  return b.finish_into_module();
}

CompileOptions options_of(bool is_step) {
  CompileOptions o;
  o.plan.target = Target::this_cpu(1);
  o.passes.pass.mode = Mode::kExact, o.passes.pass.is_step = is_step;
  return o;
}

// The module as it is when it is cut for ranks.
Result<Module> in_order(Module m, FuncId f) {
  const CompileOptions options = options_of(true);
  const PlanningFor planning(options.plan);
  PipelineOptions passes = options.passes;
  passes.pass.planning = &planning, passes.until = PassPhase::kPartition;
  TEGULA_TRY(run_passes(m, f, passes));
  return m;
}

// A planned function, run again and again.
class Planned {
 public:
  static Result<Planned> create(const std::shared_ptr<Module>& m, FuncId f, bool is_step) {
    Planned p;
    const Compiled c = TEGULA_TRY(compile(m, f, options_of(is_step)));
    p.n_results_ = c.plan->results.size();
    p.rank_ = std::make_unique<Rank>(1);
    p.session_ = TEGULA_TRY(Session::create(c.plan, *p.rank_));
    return p;
  }
  Result<std::vector<HostTensor>> run(std::span<const HostTensor> in) {
    for (size_t k = 0; k < in.size(); ++k)
      session_->bind(static_cast<int>(k), const_cast<std::byte*>(in[k].bytes.data()));
    TEGULA_TRY(session_->run());
    std::vector<HostTensor> out;
    for (size_t r = 0; r < n_results_; ++r)
      out.push_back(copy_of(session_->result(static_cast<int>(r))));
    return out;
  }

 private:
  size_t n_results_ = 0;
  std::unique_ptr<Rank> rank_;
  std::unique_ptr<Session> session_;
};

std::string first_difference(const HostTensor& got, const HostTensor& want) {
  const auto size = static_cast<size_t>(size_bytes(want.type.dtype));
  int64_t n_differ = 0, first = -1;
  for (int64_t i = 0; i < want.numel(); ++i) {
    const auto at = static_cast<size_t>(i) * size;
    if (std::memcmp(got.bytes.data() + at, want.bytes.data() + at, size) == 0) continue;
    if (got.at(i) != got.at(i) && want.at(i) != want.at(i)) continue;  // any two NaNs
    if (n_differ++ == 0) first = i;
  }
  if (n_differ == 0) return "";
  char text[160];
  std::snprintf(text, sizeof text, "%lld of %lld elements differ; element %lld is %.9g, not %.9g",
                static_cast<long long>(n_differ), static_cast<long long>(want.numel()),
                static_cast<long long>(first), got.at(first), want.at(first));
  return text;
}

// A part's call: its attributes and operands.
struct PartCall {
  Attrs attrs;
  std::vector<HostTensor> operands;
  std::vector<Type> in;
};

// The share of sum_shards of a part that is 1/n of the factor that they are of. False: no whole
// number of them.
bool share_shards(const DimMap& m, const Part& p, Attrs& attrs) {
  SumShards shards = SumShards::of(attrs);
  const bool is_outer = outer_factor(m) == p.factor;
  if (!is_outer && inner_factor(m) != p.factor) return true;
  int64_t& of_factor = is_outer ? shards.outer : shards.inner;
  if (of_factor == 1) return true;
  const int64_t size = m.factors[static_cast<size_t>(p.factor)].size.bound();
  const int64_t share = of_factor * (p.hi - p.lo);
  of_factor = std::max<int64_t>(1, share / size);
  shards.put(attrs);
  return share % size == 0;
}

Result<PartCall> part_of(const Case& c, const Attrs& attrs, std::span<const Part> parts) {
  PartCall call{attrs, {}, c.in};
  DimMap m;
  for (size_t p = 0; p < parts.size(); ++p) {
    const OpCall so_far{c.op, &call.attrs, call.in, {}, nullptr, {}};
    m = TEGULA_TRY(dim_map(so_far));
    const std::vector<Type> out = TEGULA_TRY(infer(so_far));
    OpCall with_types = so_far;
    with_types.out = out;
    Attrs local = c.op->localize
                      ? c.op->localize(with_types, m, parts[p].factor, parts[p].lo, parts[p].hi)
                      : call.attrs;
    if (!share_shards(m, parts[p], local)) return unsupported("cut within a shard");
    call.attrs = std::move(local);
    const DimMap whole = TEGULA_TRY(dim_map(c.call()));
    for (size_t k = 0; k < c.in.size(); ++k)
      call.in[k].shape =
          shape_of_part(indices(whole, whole.operands[k], c.in[k].shape, parts.first(p + 1)));
  }
  const DimMap whole = TEGULA_TRY(dim_map(c.call()));
  for (size_t k = 0; k < c.in.size(); ++k)
    call.operands.push_back(operand_of(whole, k, c.values[k], parts));
  return call;
}

struct PlannedPart {
  PartCall call;
  Planned planned;
};

// A part's function: what a rank has of the call.
Result<FuncId> function_of_part(Module& m, const Case& c, const PartCall& part, bool pends) {
  const FuncId plain = TEGULA_TRY(function_of(m, *c.op, part.attrs, part.in));
  if (!pends) return plain;
  const LocalCall call(m, m[plain], m[plain].nodes[0]);
  Builder b(m, "shards");
  std::vector<Var> x;
  for (const Type& t : part.in) x.push_back(b.param(cat("x", x.size()), t));
  const std::vector<uint8_t> all(c.out.size(), 1);
  const std::vector<Var> y = TEGULA_TRY(emit_pending(b, call, x, all, Loc::current()));
  for (size_t r = 0; r < y.size(); ++r) b.result(cat("y", r), y[r]);
  return b.finish_into_module();
}

using Plans = std::vector<std::unique_ptr<PlannedPart>>;  // parts that are alike share one

Result<PlannedPart*> plan_of(const Case& c, const DimMap& m, const PartCall& call,
                             std::span<const Part> parts, bool is_step, Plans& plans) {
  for (const auto& p : plans)
    if (p->call.attrs == call.attrs && p->call.in == call.in) return p.get();
  bool pends = false;
  for (const Part& p : parts)
    for (Combine how : m.combine[static_cast<size_t>(p.factor)]) pends |= how == Combine::kSum;
  const auto module = std::make_shared<Module>();
  const FuncId f = TEGULA_TRY(function_of_part(*module, c, call, pends));
  auto planned = TEGULA_TRY(Planned::create(module, f, is_step));
  plans.push_back(std::make_unique<PlannedPart>(PlannedPart{call, std::move(planned)}));
  return plans.back().get();
}

// The part's results, where they lie in the whole.
Result<Known> run_part(const Case& c, const Attrs& attrs, const DimMap& m,
                       std::span<const Part> parts, bool is_step, Plans& plans) {
  const PartCall call = TEGULA_TRY(part_of(c, attrs, parts));
  PlannedPart* const plan = TEGULA_TRY(plan_of(c, m, call, parts, is_step, plans));
  const std::vector<HostTensor> out = TEGULA_TRY(plan->planned.run(call.operands));
  Known known;
  for (size_t r = 0; r < out.size(); ++r) {
    const Type& whole = c.out[r];
    const Indices at = indices(m, m.results[r], whole.shape, parts);
    if (!(out[r].type.shape == shape_of_part(at)))
      return internal_error(
          cat("result ", r, " of a part is ", out[r].type, ", by the dims ", shape_of_part(at)));
    HostTensor all({wide(whole.dtype), whole.shape});
    std::vector<uint8_t> has(static_cast<size_t>(all.numel()));
    for_each_element(at, whole.shape, [&](int64_t from, int64_t to) {
      if (to < 0) return;
      copy_element(all, to, out[r], from);
      has[static_cast<size_t>(to)] = 1;
    });
    known.results.push_back(std::move(all)), known.has.push_back(std::move(has));
  }
  return known;
}

}  // namespace

Result<ExactCase> ExactCase::create(const Case& c) {
  ExactCase e;
  e.case_ = c, e.attrs_ = c.sample.attrs;
  e.map_ = TEGULA_TRY(dim_map(c.call()));
  const auto module = std::make_shared<Module>();
  // dot() gives a product its shards by its extents.
  const bool is_plain_dot = c.op == &dot_op && c.sample.attrs.size() == 1;
  FuncId f = kNone;
  if (is_plain_dot) {
    Builder b(*module, "f");
    const Var x = b.param("x0", c.in[0]), y = b.param("x1", c.in[1]);
    b.result("y0", dot(c.sample.attrs.str("dims"), x, y));
    f = TEGULA_TRY(b.finish_into_module());
  } else {
    f = TEGULA_TRY(function_of(*module, *c.op, e.attrs_, c.in));
  }
  const Module ordered = TEGULA_TRY(in_order(*module, f));
  for (const Node& n : ordered[f].nodes)
    if (n.op == c.op && ordered[f].nodes.size() == 1) e.attrs_ = n.attrs, e.is_one_node_ = true;
  Planned planned = TEGULA_TRY(Planned::create(module, f, true));
  e.whole_ = TEGULA_TRY(planned.run(c.values));
  return e;
}

bool ExactCase::may_be_shards(const Cut& cut) const {
  const SumShards of_sum = SumShards::of(attrs_);
  const bool is_inner = of_sum.inner > 1 && cut.factor == inner_factor(map_);
  const auto shards =
      is_inner ? of_sum.inner : std::max(of_sum.outer, attrs_.get_or<int64_t>("k_shards", 1));
  const auto& combine = map_.combine[static_cast<size_t>(cut.factor)];
  const bool sums = std::find(combine.begin(), combine.end(), Combine::kSum) != combine.end();
  return shards == 1 || !sums || shards % cut.n == 0;
}

Result<bool> ExactCase::is_cut_by_shard(const Cut& cut) const {
  Module m;
  const FuncId f = TEGULA_TRY(function_of(m, *case_.op, attrs_, case_.in));
  const LocalCall call(m, m[f], m[f].nodes[0]);
  const AxisCut along{AxisCut::kAlong, cut.factor, 1};
  std::vector<AxisSharding> in, out;
  if (!states_of_cut(call, map_, along, cut.n, in, out)) return false;
  ShardOptions options;
  options.mesh.axes = {{"dp", cut.n}};
  options.mode = Mode::kExact;
  for (const AxisSharding& s : in) options.params.push_back({s});
  const ShardedStep sharded = TEGULA_TRY(shard(m, m[f], options));
  return sharded.nodes[0][0] == along;
}

// Inner trees are joined for each outer shard before the outer tree: parts of them are parts of
// these, too.
std::vector<Cut> ExactCase::as_joined(std::span<const Cut> cuts) const {
  std::vector<Cut> all(cuts.begin(), cuts.end());
  const SumShards shards = SumShards::of(attrs_);
  const bool has_inner = std::any_of(cuts.begin(), cuts.end(), [&](const Cut& cut) {
    return cut.factor == inner_factor(map_) && sums_over(map_, cut.factor);
  });
  if (!has_inner || shards.inner == 1 || shards.outer == 1) return all;
  const int outer = outer_factor(map_);
  std::erase_if(all, [&](const Cut& cut) { return cut.factor == outer; });
  all.insert(all.begin(), Cut{outer, shards.outer});
  return all;
}

Result<std::string> ExactCase::differs(std::span<const Cut> asked) const {
  const std::vector<Cut> cuts = as_joined(asked);
  int64_t n = 1;
  for (const Cut& cut : cuts) n *= cut.n;
  std::vector<Known> known;
  Plans plans;
  for (int64_t i = 0; i < n; ++i) {
    std::vector<Part> parts(cuts.size());
    int64_t rest = i;
    for (size_t d = cuts.size(); d-- > 0; rest /= cuts[d].n) {
      const int64_t at = rest % cuts[d].n;
      const int64_t size = map_.factors[static_cast<size_t>(cuts[d].factor)].size.bound();
      parts[d] = {cuts[d].factor, at * size / cuts[d].n, (at + 1) * size / cuts[d].n};
    }
    // A part of one node has its share of the whole's shards; what becomes simpler ops has these
    // as the whole has.
    known.push_back(TEGULA_TRY(run_part(case_, attrs_, map_, parts, !is_one_node_, plans)));
  }
  for (size_t d = cuts.size(); d-- > 0;) {
    std::vector<Known> outer;
    const auto step = static_cast<size_t>(cuts[d].n);
    for (size_t i = 0; i < known.size(); i += step) {
      TEGULA_TRY(join_in_tree(map_, static_cast<size_t>(cuts[d].factor),
                              std::span(known).subspan(i, step)));
      outer.push_back(std::move(known[i]));
    }
    known = std::move(outer);
  }
  for (size_t r = 0; r < whole_.size(); ++r) {
    for (size_t i = 0; i < known[0].has[r].size(); ++i)
      if (!known[0].has[r][i]) return cat("element ", i, " of result ", r, " lies in no part");
    const std::string why =
        first_difference(known[0].results[r].as(whole_[r].type.dtype), whole_[r]);
    if (!why.empty()) return cat("result ", r, ": ", why);
  }
  return std::string();
}

}  // namespace tegula::testing
