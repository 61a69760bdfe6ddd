// Runs a function of a module through plan and session, on tensors of the host.
#pragma once

#include <span>
#include <vector>

#include "tegula/ir/interpret.h"
#include "tegula/runtime/session.h"

namespace tegula::test {

// References only, so that results have the bits of the naive interpreter.
inline PlanOptions references() {
  PlanOptions o;
  o.use_kernels = false;
  return o;
}

// Values in [-1, 1); integers in [0, 3).
HostTensor random_tensor(const Type& type, uint64_t seed);
std::vector<HostTensor> random_inputs(const Module& m, const Function& f, uint64_t seed,
                                      std::span<const int64_t> extents = {});

// One run of a plan: inputs are laid into parameters of the bounds' strides (donated ones are
// copies), results copied out at the extents.
std::vector<HostTensor> run_plan(const Plan& plan, std::span<const HostTensor> in,
                                 std::span<const int64_t> extents = {}, int n_threads = 1);

// Plans and runs with references, and expects the bits of the naive interpreter.
void expect_bits_of_interpreter(const std::shared_ptr<Module>& m, FuncId f, uint64_t seed = 1,
                                std::span<const int64_t> extents = {});

}  // namespace tegula::test
