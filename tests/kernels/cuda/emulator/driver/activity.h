// The kernels that ran, as CUPTI's activity records: of this library, which stands for libcupti,
// too (TEGULA_CUPTI), so that what reads them is tested.
#pragma once

#include <cstddef>
#include <functional>

#include "tests/kernels/cuda/emulator/driver/outcome.h"

namespace tegula::emulated {

enum class Activity : int { kCopy = 1, kFill = 2, kKernel = 10 };

// Runs it; a record of it is kept while somebody asked for that kind. `name` is of a kernel and
// outlives the record.
Outcome recorded(Activity kind, const char* name, size_t bytes,
                 const std::function<Outcome()>& work);

}  // namespace tegula::emulated
