// Tile programs as text: what is read is printed and read the same, and the kernel gives what the
// reference gives, in a workspace of just the size that it asks for. Transcendental functions of
// f32 alone may differ.
#include <cmath>
#include <memory>
#include <vector>

#include "tegula/base/element.h"
#include "tegula/ir/host_tensor.h"
#include "tegula/kernels/kernel.h"
#include "tegula/kernels/registry.h"
#include "tests/common/tile_reference.h"
#include "tests/fuzz/target.h"

namespace tegula::fuzz {

namespace {

using namespace tile;

// The type of an operand that is that wide, in an iteration space of that shape.
Type operand_type(const Operand& o, const Program& p, const int64_t (&space)[kMaxRank]) {
  Shape shape;
  if (o.extent != Extent::kUniform)
    for (int d = 0; d < p.rank; ++d)
      shape.push_back(o.extent == Extent::kRow && d >= p.rank - p.n_inner ? 1 : space[d]);
  return {o.dtype, shape};
}

void run_at(const Program& p, int64_t size) {
  int64_t space[kMaxRank];
  for (int d = 0; d < kMaxRank; ++d) space[d] = d % 2 ? size : (size + 1) / 2;
  std::vector<HostTensor> in, out, want;
  for (const Operand& o : p.inputs) {
    HostTensor& t = in.emplace_back(operand_type(o, p, space));
    for (int64_t k = 0; k < t.numel(); ++k) t.put(k, static_cast<double>(k % 7) / 2 - 1);
  }
  for (const Operand& o : p.outputs)
    out.emplace_back(operand_type(o, p, space)), want.emplace_back(out.back());
  const auto refs = [](const std::vector<HostTensor>& tensors) {
    std::vector<TensorRef> r;
    for (const HostTensor& t : tensors) r.push_back(t.ref());
    return r;
  };
  const auto in_refs = refs(in), out_refs = refs(out), want_refs = refs(want);
  if (!run_reference(p, in_refs, want_refs).ok()) return;
  KernelQuery query;
  query.in = in_refs, query.out = out_refs, query.program = &p;
  const KernelDef* kernel = nullptr;
  for (const KernelDef* k : all_kernels())
    if (k->name == "fused") kernel = k;
  TEGULA_CHECK(kernel != nullptr);
  if (!kernel->supports(query)) return;
  const auto n = static_cast<size_t>(kernel->workspace_bytes(query));
  const std::unique_ptr<void, decltype(&std::free)> workspace(
      std::aligned_alloc(64, (n + 63) / 64 * 64), &std::free);
  static ThreadPool pool(1);
  Counters counters;
  KernelCall call;
  call.in = in_refs, call.out = out_refs, call.program = &p, call.workspace = workspace.get();
  call.pool = &pool, call.counters = &counters;
  kernel->launch(call);
  TEGULA_CHECK(counters.math_flops == flops(p, {space, static_cast<size_t>(p.rank)}));
  for (size_t k = 0; k < out.size(); ++k)
    for (int64_t i = 0; i < out[k].numel(); ++i) (void)out[k].at(i);
}

bool run(std::string_view input) {
  const auto program = parse(input);
  if (!program.ok()) return false;
  const std::string text = to_text(*program);
  const auto again = parse(text);
  TEGULA_CHECK(again.ok() && to_text(*again) == text, text);
  TEGULA_CHECK(verify(*program).ok());
  if (program->rank > 4 || program->code.size() > 200) return true;
  for (const int64_t size : {1, 0, 3, 9}) run_at(*program, size);
  return true;
}

}  // namespace

extern constinit const Target tile_target{"tile", run};

}  // namespace tegula::fuzz
