#include "tegula/planner/host_time.h"

#include "tegula/planner/framework.h"

namespace tegula::planner {

namespace {

// Views of queries, keys, values and attention's result, and the residual sums; turned halves.
constexpr double kViews = 8 + 2, kHalves = 2;
// More products where q, k and v are modules of their own: models that turn them.
constexpr double kApart = 2;

}  // namespace

HostOps host_ops(const LayerWork& layer) {
  HostOps n{0, kViews};
  for (const Work& w : layer.forward) {
    if (w.unit == Unit::kMatmul || w.name.find("norm") != w.name.npos)
      n.modules += 1;
    else
      n.others += w.launches;
    if (w.name == "rope") n.modules += kApart, n.others += kHalves;
  }
  return n;
}

double host_seconds(const Sustained& device, const Job& job, const Layout& l, const HostOps& layer,
                    int64_t n_layers, int64_t n_microbatches) {
  const auto& [op, module, autocast_module, recomputed, once, twice, of_optimizer, of_ddp] =
      device.host;
  if (!job.framework || !job.framework->keeps_like_torch) return 0;
  const bool is_alone = l.zero_ranks() == 1, is_sharded = job.framework->is_sharded;
  double each = 0;
  if (job.framework->one_by_one) {
    each = layer.modules * (is_autocast(job) ? autocast_module : module) + layer.others * op;
    if (l.remat == Remat::kFull) each *= recomputed;
    if (l.remat == Remat::kEveryOther) each *= (1 + recomputed) / 2;
  }
  if (is_sharded && !is_alone) each += l.zero >= 3 ? twice : once;
  const double parameter = of_optimizer + (is_sharded || is_alone ? 0 : of_ddp);
  return static_cast<double>(n_layers) *
         (static_cast<double>(n_microbatches) * each + layer.modules * parameter);
}

}  // namespace tegula::planner
