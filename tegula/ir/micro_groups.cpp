#include "tegula/ir/micro_groups.h"

#include "tegula/base/str.h"

namespace tegula {

bool is_sum_of_gradients(std::string_view name) {
  return name.starts_with(kSumOfGradients) || name.starts_with(kNextSum) ||
         name.starts_with(kPendingSum);
}

std::string name_at_slot(std::string_view param, int64_t slot) {
  if (param.starts_with(kNextSum))
    param.remove_prefix(kNextSum.size() - kSumOfGradients.size()), slot += 1;
  if (!param.starts_with(kSumOfGradients) || slot == 0) return std::string(param);
  return cat(kPendingSum, slot, ".", param);
}

}  // namespace tegula
