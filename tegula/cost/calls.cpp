#include "tegula/cost/calls.h"

#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/cost/price.h"
#include "tegula/ops/table.h"

namespace tegula {

namespace {
// `tegula bench ops --shape 1,64` does an op in 1 to 3 us.
constexpr double kStepSeconds = 2e-6;

double price_on_cpu(const Target& target, const OpCall& call) {
  if (call.op->collective || call.in.empty()) return kStepSeconds + price(target, call);
  Work w = work_of(call);
  double packing = 0;
  if (call.op == &dot_op) {
    if (w.n > 0) w.flops *= std::ceil(w.n / 16) * 16 / w.n;
    packing = static_cast<double>(call.in[0].bytes() + call.in[1].bytes()) / bytes_per_s(target);
  }
  return kStepSeconds + packing + price(target, w, call.in[0].dtype);
}
// An op that joins what calls write for it alone, which they write where it would put it
// (plan/concat.cpp): rows on end any call; others what is fused on a GPU, and gradients of
// attention.
bool is_in_place(const Target& target, const Function& f, const Node& n,
                 const std::vector<uint32_t>& uses) {
  if (n.op->joins.empty()) return false;
  bool is_on_end = true;
  for (int d = 0; d < static_cast<int>(n.attrs.i(n.op->joins)); ++d)
    is_on_end = is_on_end && f.type(n.output()).shape[d].bound() == 1;
  return std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) {
    const Node* by = f.producer(v);
    for (; by && by->op->is_view && uses[v] == 1; by = f.producer(v)) v = by->inputs[0];
    if (!by || by->op->is_view || uses[v] != 1) return false;
    return is_on_end || by->op == &attention_bwd_op ||
           (target.device == DeviceKind::kCuda &&
            (by->op->is_elementwise || by->op == &fused_op || !by->op->joins.empty()));
  });
}
}  // namespace

std::vector<Type> at_bounds(std::vector<Type> types) {
  for (Type& t : types)
    for (int d = 0; d < t.shape.rank(); ++d) t.shape[d] = t.shape[d].bound();
  return types;
}

double price_of_calls(const Target& target, const Module& module, const Function& f) {
  double sum = 0;
  const std::vector<uint32_t> uses = f.use_counts();
  for (const Node& n : f.nodes) {
    if (n.op->is_view || is_in_place(target, f, n, uses)) continue;
    const std::vector<Type> in = at_bounds(f.input_types(n)), out = at_bounds(f.output_types(n));
    const OpCall call{n.op, &n.attrs, in, out, &module, n.regions};
    sum += target.device == DeviceKind::kCpu ? price_on_cpu(target, call) : price(target, call);
  }
  return sum;
}

}  // namespace tegula
