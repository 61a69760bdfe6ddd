#include "tegula/planner/ring.h"

#include "tegula/base/algorithm.h"
#include "tegula/cost/efficiency.h"
#include "tegula/cost/sustained.h"
#include "tegula/planner/print.h"

namespace tegula::planner {

namespace {
constexpr double kLongSequence = 32768;
constexpr auto kToNeighbour = static_cast<size_t>(Collective::kAllToAll);
}  // namespace

double least_ring_tokens(const ModelSpec& m, double flops_per_s, double bytes_per_s,
                         double element_bytes, bool is_causal) {
  return flops_per_s / bytes_per_s * element_bytes * static_cast<double>(m.n_kv_heads) /
         (2 * static_cast<double>(m.n_heads)) * (is_causal ? 2 : 1);
}

void explain_ring(std::string& out, const ModelSpec& m, const ClusterSpec& c, const Job& job) {
  const double e = std::max(2.0, bytes_of(job.dtype)), peak = c.device.peak(job.dtype);
  print(out,
        "ring attention of %s on %s: a hop of keys and values hides behind attention from so many "
        "tokens a device on\n",
        m.name.c_str(), c.device.name.c_str());
  const struct {
    const char* where;
    const Link& link;
    double share;
  } links[] = {{"within a node", c.device.inside, c.device.sustained.inside[kToNeighbour].share},
               {"between nodes", c.device.between, c.device.sustained.between[kToNeighbour].share}};
  // It is that of long sequences, which the least block is a part of.
  const double share =
      attention_share(c.device, job.kernel, kLongSequence, static_cast<double>(m.head_dim), false);
  for (const auto& l : links) {
    const double rate = l.link.bytes_per_s;
    print(out, "  %-14s %.0f by peaks (%.4g FLOP/s over %.4g B/s), %.0f by what both reach; ",
          l.where, least_ring_tokens(m, peak, rate, e, false), peak, rate,
          least_ring_tokens(m, peak * share, rate * l.share, e, false));
    print(out, "with a balanced causal mask %.0f and %.0f; six blocks by peaks %.0f\n",
          least_ring_tokens(m, peak, rate, e, true),
          least_ring_tokens(m, peak * share, rate * l.share, e, true),
          6 * least_ring_tokens(m, peak, rate, e, false));
  }
}

}  // namespace tegula::planner
