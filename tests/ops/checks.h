// The checks of the one runner. Each takes a case whose sample is valid (check_types: any).
#pragma once

#include "tegula/kernels/device.h"
#include "tests/ops/case.h"

namespace tegula::testing {

// infer() gives the error that the sample states, or types that the op's dims agree with.
Verdict check_types(const Case& c);
// The reverse rule against central differences of the f64 reference.
Verdict check_gradient(const Case& c);
// <v, J u> = <J^T v, u>: the forward and the reverse rule are adjoint.
Verdict check_adjoint(const Case& c);
// Forward over reverse: the Hessian is symmetric and agrees with differences of the gradient.
Verdict check_second_order(const Case& c);
// flops and bytes are what the counted reference does.
Verdict check_cost(const Case& c);
// Cut over simulated ranks by each factor of dim_map, run, recombined = the whole.
Verdict check_sharding(const Case& c);
// The op in simpler ops = its reference, in f64.
Verdict check_decompose(const Case& c);
// An elementwise op as a tile program of its own = its reference.
Verdict check_tile(const Case& c);
// Every kernel that supports the call: error against f64, equal bits for every number of threads,
// FLOPs as planned; also on narrow floats and strided operands.
Verdict check_kernels(const Case& c);
Verdict check_kernel(const Case& c, const KernelDef& kernel);
// The most tasks that this kernel had in a loop, in any check_kernel so far.
int64_t most_tasks_of(const KernelDef& kernel);
// The same for a kernel of a device, with operands in its memory between poisoned borders: error
// against f64, nothing written past the results, and the same bits again where `repeats_bits`.
// n_checked grows by the calls that it serves.
Verdict check_kernel_on_device(const Case& c, const KernelDef& kernel, Device& device,
                               bool repeats_bits, int& n_checked);
// Whether calls on a device are only launched (TEGULA_TEST_LAUNCH_ONLY), which compiles all kernels
// into the cache and needs no GPU: nothing is compared, so no test may pass.
bool is_launch_only();
inline constexpr const char* kLaunchOnly = "TEGULA_TEST_LAUNCH_ONLY is set: nothing was compared";

struct CheckDef {
  const char* name;
  Verdict (*run)(const Case&);
};
inline constexpr CheckDef kChecks[] = {
    {"types", check_types},         {"gradient", check_gradient},
    {"adjoint", check_adjoint},     {"second order", check_second_order},
    {"cost", check_cost},           {"sharding", check_sharding},
    {"decompose", check_decompose}, {"tile", check_tile},
    {"kernels", check_kernels},
};

}  // namespace tegula::testing
