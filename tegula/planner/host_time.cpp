#include "tegula/planner/host_time.h"

#include "tegula/planner/framework.h"

namespace tegula::planner {

namespace {

// Seconds, forward and backward together.
constexpr double kOp = 30e-6, kModule = 104e-6, kAutocastModule = 198e-6;
constexpr double kRecomputed = 2.2;  // of a layer that torch.utils.checkpoint calls, in layers
constexpr double kShardedTwice = 3.8e-3, kShardedOnce = 2.8e-3;  // fully_shard, a layer
constexpr double kParameter = 4.5e-6, kParameterOfDdp = 35e-6;   // of the optimizer; of DDP's hooks
constexpr double kViews = 8;  // of queries, keys, values and attention's result

}  // namespace

HostOps host_ops(const LayerWork& layer) {
  HostOps n{0, kViews};
  for (const Work& w : layer.forward)
    if (w.unit == Unit::kMatmul || w.name.find("norm") != w.name.npos)
      n.modules += 1;
    else
      n.others += w.launches;
  return n;
}

double host_seconds(const Job& job, const Layout& l, const HostOps& layer, int64_t n_layers,
                    int64_t n_microbatches) {
  if (!job.framework || !job.framework->keeps_like_torch) return 0;
  const bool is_alone = l.zero_ranks() == 1, is_sharded = job.framework->is_sharded;
  double each = 0;
  if (job.framework->one_by_one) {
    each = layer.modules * (is_autocast(job) ? kAutocastModule : kModule) + layer.others * kOp;
    if (l.remat == Remat::kFull) each *= kRecomputed;
    if (l.remat == Remat::kEveryOther) each *= (1 + kRecomputed) / 2;
  }
  if (is_sharded && !is_alone) each += l.zero >= 3 ? kShardedTwice : kShardedOnce;
  const double parameter = kParameter + (is_sharded || is_alone ? 0 : kParameterOfDdp);
  return static_cast<double>(n_layers) *
         (static_cast<double>(n_microbatches) * each + layer.modules * parameter);
}

}  // namespace tegula::planner
