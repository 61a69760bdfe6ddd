#include "tegula/cost/collective.h"

#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/cost/sustained.h"

namespace tegula {

namespace {

struct Terms {
  double messages, bytes, added;  // times α, and shares of M times β and γ
};

Terms terms_of(Collective what, Algorithm how, int64_t n) {
  const double steps = static_cast<double>(n - 1), share = steps / static_cast<double>(n);
  const double log = std::ceil(std::log2(static_cast<double>(n)));
  const bool is_ring = how == Algorithm::kRing;
  switch (what) {
    case Collective::kAllReduce:
      return is_ring ? Terms{2 * steps, 2 * share, share} : Terms{2 * log, 2 * log, log};
    case Collective::kAllGather:
      return {is_ring ? steps : log, share, 0};
    case Collective::kReduceScatter:
      return {is_ring ? steps : log, share, share};
    case Collective::kAllToAll:
      return {steps, share, 0};
  }
  return {};
}

// Every pair of an all-to-all is on its own.
Link link_for(const ClusterSpec& cluster, Collective what, const RankSpan& group) {
  return what == Collective::kAllToAll ? own_link(cluster, group) : link_of(cluster, group);
}

const LinkShare& share_of_link(const ClusterSpec& cluster, Collective what, const RankSpan& group) {
  const Sustained& s = cluster.device.sustained;
  return (is_in_node(cluster, group) ? s.inside : s.between)[static_cast<size_t>(what)];
}

}  // namespace

double seconds_of(Collective what, Algorithm how, double bytes, int64_t n, Link link,
                  double gamma) {
  if (n <= 1) return 0;
  const Terms t = terms_of(what, how, n);
  return seconds_of(link, t.messages, bytes * t.bytes) + bytes * t.added * gamma;
}

double seconds_of(Collective what, double bytes, int64_t n, Link link, double gamma) {
  return std::min(seconds_of(what, Algorithm::kRing, bytes, n, link, gamma),
                  seconds_of(what, Algorithm::kTree, bytes, n, link, gamma));
}

Link reached(const ClusterSpec& cluster, Collective what, Link link, const RankSpan& group,
             const Efficiency& e) {
  link.bytes_per_s *= share_of_link(cluster, what, group).share *
                      (is_in_node(cluster, group) ? e.inside : e.between);
  return link;
}

double seconds_of(const ClusterSpec& cluster, Collective what, double bytes, const RankSpan& group,
                  const Efficiency& e) {
  if (group.size <= 1) return 0;
  const Link link = reached(cluster, what, link_for(cluster, what, group), group, e);
  return std::max(share_of_link(cluster, what, group).message_s,
                  seconds_of(what, bytes, group.size, link, 3 / memory_rate(cluster.device, e)));
}

double seconds_of(const ClusterSpec& cluster, Collective what, double bytes, const RankSpan& group,
                  const Efficiency& e, double messages) {
  const double hop = 4 * cluster.device.inside.seconds;
  const double hop_between = 14.0 / 6 * cluster.device.between.seconds;
  if (group.size <= 1) return 0;
  if (what == Collective::kAllReduce || what == Collective::kAllToAll)
    return messages * seconds_of(cluster, what, bytes / messages, group, e);
  Link link = reached(cluster, what, link_of(cluster, group), group, e);
  link.seconds = 0;
  const auto n = static_cast<double>(group.size);
  const int64_t in_node =
      std::max<int64_t>(1, cluster.device.devices_per_node / std::max<int64_t>(1, group.stride));
  // A ring that comes back to its first node is one hop short of going round.
  const double nodes = is_in_node(cluster, group) ? 0 : std::ceil(n / static_cast<double>(in_node));
  const double between = std::min(nodes, n - 1);
  const double seconds = messages * ((n - 1 - between) * hop + between * hop_between) +
                         seconds_of(what, Algorithm::kRing, bytes, group.size, link,
                                    3 / memory_rate(cluster.device, e));
  return std::max(messages * share_of_link(cluster, what, group).message_s, seconds);
}

double seconds_on(const ClusterSpec& cluster, Collective what, double bytes,
                  const RankSpan& group) {
  const Link link = link_for(cluster, what, group);
  const double gamma = gamma_of(cluster.device);
  const double flat = seconds_of(what, bytes, group.size, link, gamma);
  const int64_t k =
      std::min(group.size, cluster.device.devices_per_node / std::max<int64_t>(1, group.stride));
  if (is_in_node(cluster, group) || k <= 1 || group.size % k != 0 || what == Collective::kAllToAll)
    return flat;
  const int64_t m = group.size / k;
  const auto n = static_cast<double>(k);
  const Link inside = cluster.device.inside, between = cluster.device.between;
  // Each of a node's k ranks has a card of its own for its share of the message.
  double nested = 0;
  if (what == Collective::kAllReduce)
    nested = seconds_of(Collective::kReduceScatter, bytes, k, inside, gamma) +
             seconds_of(what, bytes / n, m, between, gamma) +
             seconds_of(Collective::kAllGather, bytes, k, inside, gamma);
  else
    nested =
        seconds_of(what, bytes / n, m, between, gamma) + seconds_of(what, bytes, k, inside, gamma);
  return std::min(flat, nested);
}

double bytes_sent(Collective what, double bytes, int64_t n) {
  return n <= 1 ? 0 : bytes * terms_of(what, Algorithm::kRing, n).bytes;
}

double crossover_bytes(Collective what, int64_t n, Link link, double gamma) {
  if (n <= 1) return 0;
  const Terms ring = terms_of(what, Algorithm::kRing, n);
  const Terms tree = terms_of(what, Algorithm::kTree, n);
  const auto byte = [&](const Terms& t) { return t.bytes / link.bytes_per_s + t.added * gamma; };
  const double latency = (ring.messages - tree.messages) * link.seconds;
  const double slope = byte(tree) - byte(ring);
  if (latency <= 0) return 0;
  return slope > 0 ? latency / slope : HUGE_VAL;
}

}  // namespace tegula
