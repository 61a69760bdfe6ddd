// Dims as reductions take them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tegula/ops/math.h"

namespace tegula {

// From the start and ascending; nothing where one is not there or stands twice, which is an error.
std::optional<std::vector<int64_t>> normal_dims(std::string_view op, Var x,
                                                std::vector<int64_t> dims, Loc loc);

}  // namespace tegula
