#include "tegula/planner/collective_table.h"

#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/planner/print.h"

namespace tegula::planner {

namespace {

constexpr double kMessages[] = {1e3, 1e6, 1e9};

void explain_one(std::string& out, const ClusterSpec& c, Collective what, const RankSpan& g,
                 double gamma) {
  const Link link = what == Collective::kAllToAll ? own_link(c, g) : link_of(c, g);
  print(out, "  %-15s", kCollectiveNames[static_cast<size_t>(what)].data());
  const double least = crossover_bytes(what, g.size, link, gamma);
  if (what == Collective::kAllToAll)
    print(out, " every pair on its own;");
  else if (std::isinf(least))
    print(out, " the tree always, as it moves as much in fewer messages;");
  else
    print(out, " the tree below %.4g bytes, the ring above;", least);
  for (const double bytes : kMessages) {
    const double flat = seconds_of(what, bytes, g.size, link, gamma),
                 best = seconds_on(c, what, bytes, g);
    print(out, " %.0e bytes %.3g s", bytes, best);
    if (best < flat) print(out, " by nodes (flat %.3g)", flat);
    print(out, "%s", bytes == kMessages[2] ? "\n" : ",");
  }
}

}  // namespace

void explain_collectives(std::string& out, const ClusterSpec& c) {
  const Accelerator& d = c.device;
  const double gamma = gamma_of(d);
  print(out,
        "collectives on %lld x %s at α + nβ + nγ, by data sheets: α %.3g s and %.4g B/s within a "
        "node, %.3g and %.4g between, γ %.3g s a byte\n",
        static_cast<long long>(c.n_devices), d.name.c_str(), d.inside.seconds, d.inside.bytes_per_s,
        d.between.seconds, d.between.bytes_per_s, gamma);
  const int64_t in_node = std::min(c.n_devices, d.devices_per_node);
  if (in_node > 1) {
    print(out, " among %lld of a node\n", static_cast<long long>(in_node));
    for (int i = 0; i < kCollectives; ++i)
      explain_one(out, c, static_cast<Collective>(i), {in_node, 1}, gamma);
  }
  if (c.n_devices > in_node) {
    print(out, " among all %lld\n", static_cast<long long>(c.n_devices));
    for (int i = 0; i < kCollectives; ++i)
      explain_one(out, c, static_cast<Collective>(i), {c.n_devices, 1}, gamma);
  }
}

}  // namespace tegula::planner
