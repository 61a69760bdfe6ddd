// Reshard: how a value goes from one place on a mesh to another, by collectives, and what that
// takes at α + nβ + nγ.
//
// A value's states are a graph: on one axis at a time S -> R gathers, P -> R reduces, P -> S
// reduces and scatters, S -> S of another dim is an all-to-all, R -> S cuts without a message. Of
// axes that split one dim the first is outermost (ir/sharding.h), so a dim is cut or joined on the
// last of them alone. The plan is the shortest way through that graph [Dijkstra 1959], so never
// dearer than gathering all and cutting again.
// The edges: cost/collective.h, over the link of the axis's group on the cluster: ring for large
// messages, minimum spanning tree for small ones, and for groups that cross nodes the hierarchy.
// [Chan et al. 2007; Xu et al. 2021 (GSPMD), section 4.5]
#pragma once

#include <vector>

#include "tegula/cost/collective.h"
#include "tegula/ir/sharding.h"
#include "tegula/planner/cluster.h"

namespace tegula::planner {

struct ReshardStep {
  bool is_cut = false;  // R -> S: no message
  Collective what = Collective::kAllGather;
  size_t axis = 0;
  AxisSharding from, to;  // on that axis
  double bytes = 0;       // of the message, as cost/collective.h counts it
  double seconds = 0;
};

struct ReshardPlan {
  std::vector<ReshardStep> steps;
  double seconds = 0;
  double sent_bytes = 0;  // that leave each rank, by the ring
};

// The cluster's links for a mesh that lies on it, its last axis on neighbouring devices.
class MeshLinks {
 public:
  // The cluster must have as many devices as the mesh has ranks.
  MeshLinks(Mesh mesh, ClusterSpec cluster);
  const Mesh& mesh() const { return mesh_; }
  const ClusterSpec& cluster() const { return cluster_; }
  // Seconds of a collective along an axis.
  double seconds(Collective what, double bytes, size_t axis) const;

 private:
  Mesh mesh_;
  ClusterSpec cluster_;
};

// Errors: a state that does not divide the shape; a pending state that is wanted where none is
// there; no way (parts that differ).
Result<ReshardPlan> plan_reshard(const MeshLinks& links, const Type& type, const Sharding& from,
                                 const Sharding& to);

}  // namespace tegula::planner
