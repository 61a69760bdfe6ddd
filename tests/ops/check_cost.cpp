#include "tests/ops/checks.h"

namespace tegula::testing {

Verdict check_cost(const Case& c) {
  const OpCall call = c.call();
  std::vector<HostTensor> wide, out;
  std::vector<TensorRef> in_refs, out_refs;
  for (const HostTensor& t : c.values)
    wide.push_back(is_float(t.type.dtype) ? t.as(DType::kF64) : t);
  for (const HostTensor& t : wide) in_refs.push_back(t.ref());
  for (const Type& t : c.out)
    out.emplace_back(Type{is_float(t.dtype) ? DType::kF64 : t.dtype, t.shape});
  for (const HostTensor& t : out) out_refs.push_back(t.ref());
  NodeCount count;
  auto status = interpret_call(call, in_refs, out_refs, Arithmetic::kCounted, {}, &count);
  if (!status.ok()) return fail(status.error().message);
  const Bytes bytes = bytes_of(call);
  if (c.op->is_view) count.bytes = {};  // nothing moves: the reference's copy is the test's own
  const bool is_bound = !c.sample.cost_bound.empty();
  const auto wrong = [&](int64_t planned, int64_t counted) {
    return is_bound ? planned < counted : planned != counted;
  };
  if (wrong(flops_of(call), count.flops))
    return fail(cat("flops says ", flops_of(call), ", the reference did ", count.flops));
  if (wrong(bytes.read, count.bytes.read))
    return fail(cat("bytes says ", bytes.read, " read, the reference read ", count.bytes.read));
  if (wrong(bytes.written, count.bytes.written))
    return fail(
        cat("bytes says ", bytes.written, " written, the reference wrote ", count.bytes.written));
  if (is_bound && flops_of(call) == count.flops && bytes.read == count.bytes.read &&
      bytes.written == count.bytes.written)
    return fail("the cost is exact: cost_bound is not needed");
  return pass();
}

}  // namespace tegula::testing
