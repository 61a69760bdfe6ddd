#include "tegula/planner/help.h"

namespace tegula::planner {

std::vector<Help> what_would_help(const Answer& a) {
  const StepPrice& p = a.found.best[0];
  std::vector<Help> all;
  const auto on = [&](const char* what, const ClusterSpec& c) {
    StepPricer pricer(a.preset.model, a.params, c, a.job);
    all.push_back({what, pricer.price(p.layout).step_s() / p.step_s() - 1, "", ""});
  };
  ClusterSpec c = *a.cluster;
  for (double& f : c.device.flops_per_s) f *= 2;
  on("arithmetic", c);
  c = *a.cluster, c.device.memory_bytes_per_s *= 2;
  on("memory bandwidth", c);
  c = *a.cluster, c.device.inside.bytes_per_s *= 2;
  on("bandwidth within nodes", c);
  c = *a.cluster, c.device.between.bytes_per_s *= 2;
  on("bandwidth between nodes", c);
  Job job = a.job;
  job.batch_tokens *= 2;
  StepPricer pricer(a.preset.model, a.params, *a.cluster, job);
  all.push_back({"batch", pricer.price(p.layout).step_s() / 2 / p.step_s() - 1, " a token", ""});
  if (a.found.with_twice_memory) {
    const double other = a.found.with_twice_memory->step_s() / p.step_s() - 1;
    if (other < 0)
      all.push_back({"memory", other, "", to_string(a.found.with_twice_memory->layout)});
  }
  return all;
}

}  // namespace tegula::planner
