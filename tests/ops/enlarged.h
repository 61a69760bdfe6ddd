// Samples made large: what a test of bits needs, where those of the op table are a few elements.
#pragma once

#include <optional>

#include "tests/ops/case.h"

namespace tegula::testing {

// The sample with one factor of its dims of another size: the operands' dims that it indexes grow
// as the map says, attributes that state a shape grow with them, and ids that select along it are
// spread over it. None: the op does not come out with that factor of that size and all others as
// they were (a size stands in an attribute that this does not know).
std::optional<Sample> enlarged(const OpDef& op, const Sample& sample, int factor, int64_t size);

// The same for a factor of interest, and then all others that may grow to `other` while the call's
// FLOPs and each tensor's elements stay below `most`.
std::optional<Sample> enlarged_all(const OpDef& op, const Sample& sample, int factor, int64_t size,
                                   int64_t other, int64_t most);

}  // namespace tegula::testing
