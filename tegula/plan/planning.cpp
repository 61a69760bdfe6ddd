#include "tegula/plan/planning.h"

#include "tegula/ir/regions.h"
#include "tegula/ops/attention.h"
#include "tegula/passes/lower_tile.h"

namespace tegula {

namespace {
TensorRef space_view(const TensorRef& t, const SpaceView& view) {
  TensorRef out = t;
  out.rank = view.shape.rank();
  for (int d = 0; d < out.rank; ++d) {
    const int from = view.dim[static_cast<size_t>(d)];
    out.shape[d] = view.shape[d].bound();
    out.stride[d] = from < 0 ? 0 : t.stride[from];
  }
  return out;
}
}  // namespace

const KernelDef* PlanningFor::kernel_of(const OpCall& call) const {
  if (const auto sorted = in_key_order(call)) {  // passes/sort_keys.cpp
    OpCall in_order = call;
    in_order.attrs = &*sorted;
    return kernel_of(in_order);
  }
  auto refs = [](std::span<const Type> types) {
    std::vector<TensorRef> r;
    for (const Type& t : types) r.push_back(contiguous_ref(nullptr, t));
    return r;
  };
  auto in = refs(call.in), out = refs(call.out);
  KernelQuery query{call.attrs, {}, {}, nullptr, &options_.target};
  TileLowering lowered;
  if (call.op->regions && call.op->regions->is_program()) {
    auto made = lower_tile(*call.module, call.regions[0], *call.attrs);
    if (!made.ok()) return nullptr;
    lowered = std::move(*made);
    query.program = lowered.program.get();
    const RegionDef& def = *call.op->regions;
    for (size_t i = def.n_factors; i < in.size(); ++i)
      in[i] = space_view(in[i], lowered.in[i - def.n_factors + def.n_made]);
    for (size_t i = 0; i < out.size(); ++i) out[i] = space_view(out[i], lowered.out[i]);
  }
  query.in = in, query.out = out;
  return choose_kernel(*call.op, {&query, 1}, options_);
}

std::string_view PlanningFor::order_of(const OpCall& call) const {
  const KernelDef* kernel = kernel_of(call);
  return kernel ? kernel->order : "reference";
}

Result<int64_t> PlanningFor::peak_bytes(const Module& module, const Function& f) const {
  auto copy = std::make_shared<Module>(module);
  const FuncId id = copy->add(f);
  const Plan plan = TEGULA_TRY(make_plan(copy, id, options_));
  return plan.arena_bytes;
}

}  // namespace tegula
