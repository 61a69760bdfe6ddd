// Results beside others that they should be.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tegula/base/str.h"
#include "tegula/ir/host_tensor.h"

namespace tegula::test {

// Empty: equal, by bits or by value; any two NaNs are.
inline std::string differs(const std::vector<HostTensor>& have, const std::vector<HostTensor>& want,
                           bool by_bits = true) {
  for (size_t r = 0; r < want.size(); ++r) {
    if (!(have[r].type == want[r].type))
      return cat("result ", r, " is ", have[r].type, ", not ", want[r].type);
    const auto size = static_cast<size_t>(size_bytes(want[r].type.dtype));
    for (int64_t i = 0; i < want[r].numel(); ++i) {
      const double x = have[r].at(i), y = want[r].at(i);
      const auto at = static_cast<size_t>(i) * size;
      const bool same =
          by_bits ? std::memcmp(have[r].bytes.data() + at, want[r].bytes.data() + at, size) == 0
                  : x == y;
      if (!same && !(std::isnan(x) && std::isnan(y)))
        return cat("result ", r, ", ", want[r].type, ", element ", i, " is ", x, ", not ", y);
    }
  }
  return "";
}

}  // namespace tegula::test
