// Runs a function of a module with its ops' references, one node after another: the oracle of every
// test, and the count of what an op really does.
//
//   oracle   every float value is f64 and every reference runs in double: the mathematical meaning.
//   naive    values keep their dtypes; a reference runs in float, or in double where a result is
//            f64 or an integer: what a plain implementation of that precision gives.
//            Both: what has no float at all runs in exact integers that wrap.
//   tensor cores  as naive, but products of e4m3 are summed with what a GPU keeps of them.
//   counted  as the oracle, on a scalar that counts FLOPs, with every touched element recorded.
//
// Views copy. Regions (fused, cond, while, scan, call) run the same way, through run_region.
// Cost: slow loops; memory: values are freed after their last use.
#pragma once

#include <span>
#include <vector>

#include "tegula/ir/host_tensor.h"
#include "tegula/ir/opdef.h"

namespace tegula {

enum class Arithmetic : uint8_t { kOracle, kNaive, kTensorCores, kCounted };

// The work of one node, by count: FLOPs of the instrumented scalar, and bytes of the distinct
// elements loaded and stored, at the values' own dtypes.
struct NodeCount {
  int64_t flops = 0;
  Bytes bytes;
};

// `inputs`: one per parameter, any float dtype for a float parameter (converted); shapes at
// `extents` (one per symbol of the module; none: every symbol at its bound). `counts`: one per
// node, only with kCounted. Errors: wrong inputs or extents, an op without a reference.
Result<std::vector<HostTensor>> interpret(const Module& module, const Function& f,
                                          std::span<const HostTensor> inputs,
                                          Arithmetic arithmetic = Arithmetic::kOracle,
                                          std::span<const int64_t> extents = {},
                                          std::vector<NodeCount>* counts = nullptr);

// One op on tensors: `call` has constant dims, `in` and `out` are of its shapes (their dtypes may
// be promoted). `count` only with kCounted.
Status interpret_call(const OpCall& call, std::span<const TensorRef> in,
                      std::span<const TensorRef> out, Arithmetic arithmetic,
                      std::span<const int64_t> extents = {}, NodeCount* count = nullptr);

// The attributes with every dim constant, at given extents.
Attrs attrs_at(const Attrs& attrs, std::span<const int64_t> extents);

}  // namespace tegula
