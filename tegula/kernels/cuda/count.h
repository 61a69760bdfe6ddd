// Operations that kernels count themselves (count.cuh), for tests: where TEGULA_COUNT_FLOPS is set
// when the process begins, all are compiled so, under keys of their own.
#pragma once

#include <cstdint>

#include "tegula/base/result.h"

namespace tegula::cuda {

bool counts_flops();
inline constexpr const char* kCountDefine = "TEGULA_COUNT=1";

// Since the last call, by all kernels that this library has loaded. The stream must be done.
Result<int64_t> counted_flops();

// A module with or without a counter, as long as it is loaded.
void watch_counter(void* module);
void forget_counter(void* module);

}  // namespace tegula::cuda
