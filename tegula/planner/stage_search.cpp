#include "tegula/planner/stage_search.h"

#include "tegula/base/algorithm.h"
#include "tegula/planner/enumerate.h"
#include "tegula/planner/search.h"

namespace tegula::planner {

namespace {

constexpr int64_t kMostLayers = 128, kMostStageDevices = 256;

// The least Σ tᵢ with no tᵢ above `most`.
class Table {
 public:
  Table(const StageCosts& c, double most)
      : c_(c),
        most_(most),
        n_(static_cast<size_t>(c.n_layers) + 1),
        d_(static_cast<size_t>(c.n_devices) + 1),
        best_(n_ * n_ * d_, HUGE_VAL),
        step_(n_ * n_ * d_) {
    // No stages, no layers, no devices left.
    best_[at(0, c.n_layers, 0)] = 0;
    for (int64_t stages = 1; stages <= c.n_layers; ++stages)
      for (int64_t begin = c.n_layers - stages; begin >= 0; --begin)
        for (int64_t devices = stages; devices <= c.n_devices; ++devices)
          fill(stages, begin, devices);
  }

  // Over any number of stages.
  double best(int64_t& stages) const {
    double least = HUGE_VAL;
    for (int64_t s = 1; s <= c_.n_layers; ++s)
      if (const double sum = best_[at(s, 0, c_.n_devices)]; sum < least) least = sum, stages = s;
    return least;
  }

  std::vector<PlacedStage> trace(int64_t stages) const {
    std::vector<PlacedStage> list;
    for (int64_t begin = 0, devices = c_.n_devices; stages > 0; --stages) {
      const auto& [end, submesh] = step_[at(stages, begin, devices)];
      const Submesh& s = c_.submeshes[submesh];
      list.push_back({begin, end, s, c_.at(begin, end, submesh, stages - 1)});
      begin = end, devices -= s.size();
    }
    return list;
  }

 private:
  size_t at(int64_t stages, int64_t begin, int64_t devices) const {
    return (static_cast<size_t>(stages) * n_ + static_cast<size_t>(begin)) * d_ +
           static_cast<size_t>(devices);
  }

  void fill(int64_t stages, int64_t begin, int64_t devices) {
    double& least = best_[at(stages, begin, devices)];
    for (int64_t end = begin + 1; end <= c_.n_layers - (stages - 1); ++end)
      for (size_t s = 0; s < c_.submeshes.size(); ++s) {
        const int64_t left = devices - c_.submeshes[s].size();
        if (left < 0) continue;
        const double t = c_.at(begin, end, s, stages - 1);
        const double rest = best_[at(stages - 1, end, left)];
        if (t > most_ || t + rest >= least) continue;
        least = t + rest;
        step_[at(stages, begin, devices)] = {end, s};
      }
  }

  const StageCosts& c_;
  const double most_;
  const size_t n_, d_;
  std::vector<double> best_;
  std::vector<std::pair<int64_t, size_t>> step_;
};

}  // namespace

std::vector<Submesh> submeshes_of(const ClusterSpec& c) {
  const int64_t per_node = std::min(c.device.devices_per_node, c.n_devices);
  std::vector<Submesh> all;
  for (int64_t d = 1; d < per_node; d *= 2) all.push_back({1, d});
  for (int64_t n = 1; n * per_node <= c.n_devices; ++n) all.push_back({n, per_node});
  return all;
}

StageCosts stage_costs(int64_t n_layers, int64_t n_devices, int64_t n_micro_batches,
                       std::vector<Submesh> submeshes) {
  StageCosts c{n_layers, n_devices, n_micro_batches, std::move(submeshes), {}};
  const auto n = static_cast<size_t>(n_layers);
  c.seconds.assign((n + 1) * (n + 1) * c.submeshes.size() * n, HUGE_VAL);
  return c;
}

Result<StagePlan> search_stages(const StageCosts& c) {
  std::vector<double> times;
  for (const double t : c.seconds)
    if (t < HUGE_VAL) times.push_back(t);
  std::sort(times.begin(), times.end());
  // Layers are alike, so their times repeat but for rounding.
  times.erase(std::unique(times.begin(), times.end(),
                          [](double a, double b) { return b - a <= 1e-12 * b; }),
              times.end());
  StagePlan best;
  best.step_s = HUGE_VAL;
  const double waits = real(c.n_micro_batches - 1);
  for (const double most : times) {
    if (waits * most >= best.step_s) break;
    const Table table(c, most * (1 + 1e-12));
    int64_t stages = 0;
    const double sum = table.best(stages);
    if (sum == HUGE_VAL) continue;
    std::vector<PlacedStage> list = table.trace(stages);
    double slowest = 0;
    for (const PlacedStage& s : list) slowest = std::max(slowest, s.seconds);
    if (const double step = sum + waits * slowest; step < best.step_s)
      best.step_s = step, best.stages = std::move(list);
  }
  if (best.stages.empty())
    return invalid_argument(
        cat("no stages of ", c.n_layers, " layers fit on ", c.n_devices, " devices"));
  return best;
}

Result<StageCosts> price_stages(StepPricer& pricer, const ModelSpec& model,
                                const ParamCount& params, const ClusterSpec& cluster,
                                const Job& job, int64_t microbatch) {
  const int64_t n = model.n_layers, sequences = job.batch_tokens / job.seqlen;
  if (n > kMostLayers || cluster.n_devices > kMostStageDevices)
    return unsupported(cat(n, " layers on ", cluster.n_devices,
                           " devices: unequal stages are "
                           "searched up to ",
                           kMostLayers, " and ", kMostStageDevices));
  if (microbatch < 1 || sequences % microbatch != 0)
    return invalid_argument(cat("a step's sequences, ", sequences,
                                ", are not a multiple of micro-batches of ", microbatch));
  StageCosts c = stage_costs(n, cluster.n_devices, sequences / microbatch, submeshes_of(cluster));
  for (size_t s = 0; s < c.submeshes.size(); ++s)
    for (const int64_t tp : divisors(c.submeshes[s].devices)) {
      Layout l;
      l.tp = tp, l.dp = c.submeshes[s].size() / tp;
      if (microbatch % l.dp != 0) continue;
      l.microbatch = microbatch / l.dp, l.zero = l.dp > 1 ? 1 : 0;
      ClusterSpec part = cluster;
      part.n_devices = c.submeshes[s].size();
      Job of_part = job;
      of_part.batch_tokens = job.seqlen * microbatch;
      if (!check_layout(l, model, part, of_part).ok()) continue;
      const LayerPrice& p = pricer.layer(l);
      const double layer_s = p.forward.total() + p.input_backward.total() +
                             p.weight_backward.total() + p.tp_forward + p.tp_backward;
      const double head_s = p.last_forward.total() + p.last_input_backward.total() +
                            p.last_weight_backward.total() + p.tp_last;
      const RankParams rank = rank_params(model, params, l);
      for (int64_t begin = 0; begin < n; ++begin)
        for (int64_t end = begin + 1; end <= n; ++end)
          for (int64_t behind = end == n ? 0 : 1; behind <= (end == n ? 0 : n - end); ++behind) {
            // As one of p stages with the right number behind it.
            Layout at = l;
            const int64_t stage = begin == 0 ? 0 : 1;
            at.pp = stage + behind + 1;
            const MemoryBytes m = stage_memory(model, at, job, rank, p.activations, stage,
                                               {end - begin, end - begin, begin == 0, end == n});
            if (m.total() > usable_bytes(cluster, job, at)) break;
            const double t = real(end - begin) * layer_s + (end == n ? head_s : 0) +
                             (begin == 0 ? p.first.total() : 0);
            double& known = c.seconds[c.index(begin, end, s, behind)];
            known = std::min(known, t);
          }
    }
  return c;
}

}  // namespace tegula::planner
