#include "tegula/plan/planning.h"

#include "tegula/ops/attention.h"

namespace tegula {

bool PlanningFor::has_kernel(const OpCall& call) const {
  if (const auto sorted = in_key_order(call)) {  // passes/sort_keys.cpp
    OpCall in_order = call;
    in_order.attrs = &*sorted;
    return has_kernel(in_order);
  }
  auto refs = [](std::span<const Type> types) {
    std::vector<TensorRef> r;
    for (const Type& t : types) r.push_back(contiguous_ref(nullptr, t));
    return r;
  };
  const auto in = refs(call.in), out = refs(call.out);
  const KernelQuery query{call.attrs, in, out, nullptr, &options_.target};
  return choose_kernel(*call.op, {&query, 1}, options_) != nullptr;
}

Result<int64_t> PlanningFor::peak_bytes(const Module& module, const Function& f) const {
  auto copy = std::make_shared<Module>(module);
  const FuncId id = copy->add(f);
  const Plan plan = TEGULA_TRY(make_plan(copy, id, options_));
  return plan.arena_bytes;
}

}  // namespace tegula
