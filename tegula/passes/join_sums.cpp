#include "tegula/passes/join_sums.h"

#include "tegula/ir/builder.h"
#include "tegula/ir/micro_groups.h"
#include "tegula/ops/math.h"

namespace tegula {

Result<FuncId> join_sums(Module& module, FuncId summing, const std::string& name) {
  std::vector<std::pair<std::string, Type>> sums;
  for (const Param& p : module[summing].params)
    if (p.name.starts_with(kSumOfGradients) && p.role == Role::kState && p.donated_to >= 0)
      sums.emplace_back(p.name, module[summing].type(p.value));
  if (sums.empty()) return FuncId{kNone};
  Builder b(module, name);
  b.set_phase(Phase::kUpdate);
  for (const auto& [sum_name, type] : sums) {
    const std::string next_name = cat("next.", sum_name);
    const Var sum = b.param(sum_name, type, Role::kState),
              next = b.param(next_name, type, Role::kState);
    b.result(sum_name, sum + next), b.donate(sum_name, sum_name);
    b.result(next_name, zeros_like(next)), b.donate(next_name, next_name);
  }
  return b.finish_into_module();
}

}  // namespace tegula
