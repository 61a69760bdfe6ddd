#include <optional>

#include "tegula/planner/enumerate.h"
#include "tegula/planner/print.h"
#include "tegula/planner/report.h"
#include "tegula/planner/stage_search.h"

namespace tegula::planner {

Result<std::string> unequal_stages(const Answer& a) {
  const ModelSpec& m = a.preset.model;
  StepPricer pricer(m, a.params, *a.cluster, a.job);
  std::optional<StagePlan> best;
  std::optional<Error> why;
  int64_t size = 0;
  for (const int64_t microbatch : divisors(a.job.batch_tokens / a.job.seqlen)) {
    if (microbatch > kMostMicrobatch) break;
    const StageCosts costs =
        TEGULA_TRY(price_stages(pricer, m, a.params, *a.cluster, a.job, microbatch));
    auto found = search_stages(costs);
    if (!found.ok()) {
      why = found.error();
    } else if (!best || found->step_s < best->step_s) {
      best = std::move(*found), size = microbatch;
    }
  }
  if (!best) return *why;
  std::string out;
  print(out,
        "\nunequal stages on unequal submeshes (pipelines alone: messages between stages, the sum "
        "of\n"
        "gradients and the update are not in it)\n");
  print(out, "  %.4g s with micro-batches of %lld sequences\n", best->step_s,
        static_cast<long long>(size));
  for (const PlacedStage& s : best->stages)
    print(out, "  layers %lld to %lld on %lld node%s of %lld: %.4g s a micro-batch\n",
          static_cast<long long>(s.begin), static_cast<long long>(s.end - 1),
          static_cast<long long>(s.submesh.nodes), s.submesh.nodes == 1 ? "" : "s",
          static_cast<long long>(s.submesh.devices), s.seconds);
  if (!a.found.best.empty()) {
    const Waterfall& w = a.found.best[0].seconds;
    print(out, "  equal stages, the same counted: %.4g s\n",
          a.found.best[0].step_s() - w.pp - w.dp - w.optimizer);
  }
  return out;
}

}  // namespace tegula::planner
