// ClusterSpec: how many of which accelerator, and how groups of its ranks are linked.
#pragma once

#include "tegula/cost/accelerator.h"

namespace tegula {

struct ClusterSpec {
  Accelerator device;
  int64_t n_devices = 1;
};

// `size` ranks that are `stride` apart: ranks are numbered with tp innermost, then cp, dp and pp.
struct RankSpan {
  int64_t size = 1, stride = 1;
};

inline bool is_in_node(const ClusterSpec& cluster, const RankSpan& group) {
  return group.size * group.stride <= cluster.device.devices_per_node;
}
// The link that a reduction or a gather over a group is bound by. Within a node: the inner one.
// Over nodes: as many network cards as the group has ranks in a node, since each ring's crossing
// may take another one, but never more than the inner link carries.
Link link_of(const ClusterSpec& cluster, const RankSpan& group);
// The link of a rank that sends to its neighbour, or to all others on its own: its card's.
Link own_link(const ClusterSpec& cluster, const RankSpan& group);

}  // namespace tegula
