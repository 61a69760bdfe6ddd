#include "tegula/ops/control.h"

#include "tegula/ops/common/regions.h"
#include "tegula/ops/table.h"

namespace tegula {
namespace control {

Body::Body(Builder& b, std::string_view what) : outer_(b), body_(b.module(), fresh_name(b, what)) {
  body_.set_phase(b.phase());
}

std::vector<Var> Body::params(std::string_view prefix, std::span<const Type> types) {
  std::vector<Var> out;
  for (const Type& t : types) out.push_back(body_.param(cat(prefix, out.size()), t));
  return out;
}

FuncId Body::finish(Vars results, Vars more) {
  if (outer_.failed()) return kNone;
  size_t k = 0;
  for (Vars list : {results, more})
    for (const Var& v : list) body_.result(cat("y", k++), v);
  auto f = body_.finish_into_module();
  if (f.ok()) return *f;
  outer_.fail(std::move(f).error());
  return kNone;
}

std::vector<Type> types_of(Vars vars) {
  std::vector<Type> types;
  for (const Var& v : vars) types.push_back(v.type());
  return types;
}

std::vector<Type> slice_types(Vars vars) {
  std::vector<Type> types;
  for (const Var& v : vars)  // scan itself rejects a scalar
    types.push_back(v.rank() == 0 ? v.type() : slice_type(v.type()));
  return types;
}

namespace {
std::vector<Var> emit(Builder& b, const OpDef& op, Attrs attrs, std::initializer_list<Vars> inputs,
                      std::vector<FuncId> regions, size_t n_results, Loc loc) {
  std::vector<Var> in;
  for (Vars list : inputs) in.insert(in.end(), list.begin(), list.end());
  auto out = b.emit_n(op, std::move(attrs), in, std::move(regions), loc);
  if (b.failed()) out.assign(n_results, b.fail(b.error()));
  return out;
}
}  // namespace

ScanResult emit_scan(Builder& b, FuncId body, Vars carry, Vars xs, Vars invariants,
                     const ScanOptions& options, Loc loc) {
  Attrs attrs{{"n_carry", static_cast<int64_t>(carry.size())},
              {"n_xs", static_cast<int64_t>(xs.size())},
              {"reverse", options.reverse}};
  Dim length = options.length;
  if (length == Dim(-1) && !xs.empty() && xs[0].rank() > 0) length = xs[0].dim(0);
  if (length == Dim(-1)) {
    b.fail(invalid_argument("scan: length is not known: say it when there are no xs", loc));
    length = 0;
  }
  attrs.set("length", std::vector<Dim>{length});
  const size_t n = body == kNone ? carry.size() : b.module()[body].results.size();
  auto out = emit(b, scan_op, std::move(attrs), {carry, xs, invariants}, {body}, n, loc);
  ScanResult r;
  const auto split = out.begin() + static_cast<std::ptrdiff_t>(std::min(carry.size(), out.size()));
  r.carry.assign(out.begin(), split), r.ys.assign(split, out.end());
  if (body == kNone) r.ys.assign(8, b.fail(b.error()));  // as many as there are names for
  return r;
}

std::vector<Var> emit_while(Builder& b, FuncId condition, FuncId body, Vars carry, Vars invariants,
                            int64_t max_trips, Loc loc) {
  return emit(b, while_loop_op,
              {{"n_carry", static_cast<int64_t>(carry.size())}, {"max_trips", max_trips}},
              {carry, invariants}, {condition, body}, carry.size(), loc);
}

std::vector<Var> emit_cond(Var predicate, FuncId then, FuncId otherwise, Vars operands,
                           size_t n_results, Loc loc) {
  return emit(predicate.builder(), cond_op, {}, {std::span(&predicate, 1), operands},
              {then, otherwise}, n_results, loc);
}

}  // namespace control

std::vector<Var> call(Builder& b, FuncId f, const VarList& args, Loc loc) {
  const size_t n = f < b.module().functions.size() ? b.module()[f].results.size() : 0;
  return control::emit(b, call_op, {}, {args}, {f}, n, loc);
}

}  // namespace tegula
