// An elementwise op's lowering to the tile language, run as the one-op program that a plan makes of
// it, against the op's reference: the bound of check_kernels, and integers and bool equal.
#include <cmath>
#include <cstdlib>

#include "tegula/tile/builder.h"
#include "tests/kernels/strided.h"
#include "tests/ops/checks.h"

namespace tegula::testing {

namespace {

// The program of one call; its full operands are flat.
Result<tile::Program> program_of(const OpCall& call) {
  tile::Builder b(1);
  std::vector<tile::Reg> in;
  for (const Type& t : call.in) in.push_back(b.load(b.input(t.dtype)));
  const tile::Reg y = call.op->tile(b, call, in);
  b.store(b.output(call.out[0].dtype), y);
  return b.finish();
}

int64_t run(const tile::Program& p, std::span<const TensorRef> in, std::span<const TensorRef> out) {
  const KernelDef* fused = nullptr;
  for (const KernelDef* k : all_kernels())
    if (k->name == "fused") fused = k;
  const KernelQuery q{.in = in, .out = out, .program = &p};
  const auto size = static_cast<size_t>((fused->workspace_bytes(q) + 63) / 64 * 64);
  void* workspace = size ? std::aligned_alloc(64, size) : nullptr;
  Counters counters;
  KernelCall call;
  call.in = in, call.out = out, call.program = &p, call.workspace = workspace;
  call.pool = &pool(1), call.counters = &counters;
  fused->launch(call);
  std::free(workspace);
  return counters.math_flops;
}

// Error of the naive reference over the result's magnitude, the worst of eight draws.
double naive_error(const Case& c, DType narrow) {
  double worst = 0;
  for (uint64_t draw = 0; draw < 8; ++draw) {
    Case other = make_case(*c.op, c.sample, c.seed + 100 * draw);
    for (HostTensor& v : other.values)
      if (v.type.dtype == DType::kF32) v = v.as(narrow);
    for (size_t k = 0; k < other.in.size(); ++k) other.in[k] = other.values[k].type;
    auto out = infer(other.call());
    if (!out.ok()) return 0;
    other.out = std::move(*out);
    const auto exact = evaluate(other.call(), other.refs(), Arithmetic::kOracle);
    const auto naive = evaluate(other.call(), other.refs(), Arithmetic::kNaive);
    if (!exact.ok() || !naive.ok() || max_abs((*exact)[0]) == 0) continue;
    worst = std::max(worst, largest_error((*naive)[0], (*exact)[0]) / max_abs((*exact)[0]));
  }
  return worst;
}

std::string check_as(const Case& original, DType narrow) {
  Case c = original;
  for (HostTensor& v : c.values)
    if (v.type.dtype == DType::kF32) v = v.as(narrow);
  for (size_t k = 0; k < c.in.size(); ++k) c.in[k] = c.values[k].type;
  auto types = infer(c.call());
  if (!types.ok()) return "";  // the op does not take this float
  c.out = std::move(*types);
  const auto program = program_of(c.call());
  if (!program.ok()) return program.error().message;
  HostTensor y(c.out[0]);
  const auto flat = [](const HostTensor& t) {
    TensorRef r = t.ref();
    r.shape[0] = t.numel(), r.stride[0] = 1, r.rank = 1;
    return r;
  };
  std::vector<TensorRef> in;
  for (const HostTensor& v : c.values) in.push_back(flat(v));
  const TensorRef out[] = {flat(y)};
  const int64_t flops = run(*program, in, out);
  if (flops != flops_of(c.call()))
    return cat("counted ", flops, " FLOPs, planned ", flops_of(c.call()));
  const auto want = evaluate(c.call(), c.refs(), Arithmetic::kOracle);
  if (!want.ok()) return want.error().message;
  const double error = largest_error(y, (*want)[0]), magnitude = max_abs((*want)[0]);
  double allowed = 0;
  if (is_float(c.out[0].dtype))
    allowed = (2 * naive_error(original, narrow) + epsilon(c.out[0].dtype)) * magnitude;
  if (error <= allowed) return "";
  return cat("error ", error, ", allowed ", allowed, ": ", difference(y, (*want)[0], 0));
}

}  // namespace

Verdict check_tile(const Case& c) {
  if (!c.op->is_elementwise || !c.op->tile) return skip("no lowering to the tile language");
  for (const DType narrow : {DType::kF32, DType::kBF16, DType::kF16})
    if (const std::string why = check_as(c, narrow); !why.empty())
      return fail(cat("as a tile program (", narrow, "): ", why));
  return pass();
}

}  // namespace tegula::testing
