// Sharding plans of a step: its graph, a mesh on a cluster, and what is known of where values lie
// -> how every node is cut, what is exchanged, and what that takes.
//
// Two ways to say where values lie: names of dims, each by an axis (Mesh-TensorFlow's computation
// layout, Shazeer et al. 2018), and single tensors' (GSPMD's annotations). Names are batch and seq
// (of tokens), vocab (of the tables), hidden (d_model), and of the dims that the model's file cuts
// heads, experts or ff.
// Two ways to decide the rest: propagation (propagate.h), and the exact choice (choices.h) among
// each node's strategies, with the seconds of reshards on the edges.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tegula/models/model.h"
#include "tegula/planner/choices.h"
#include "tegula/planner/propagate.h"

namespace tegula::planner {

struct Exchange {
  int64_t count = 0;
  double sent_bytes = 0, seconds = 0;
};

struct ShardPlan {
  std::vector<Strategy> nodes;  // chosen
  std::vector<Sharding> params;
  double compute_s = 0, comm_s = 0;
  int64_t flops = 0;                          // of a rank
  double param_bytes = 0;                     // of a rank
  std::map<std::string, Exchange> exchanges;  // "all_reduce over cols"
  std::map<std::string, int64_t> uncut;       // FLOPs of products that an axis does not share out
  bool is_exact = false;                      // no other choice takes less, as priced
  double bound_s = 0;                         // search alone: no choice takes less
  double seconds() const { return compute_s + comm_s; }
};

// "batch=rows,hidden=cols" -> the parameters' shardings. Errors: a name or an axis that is not
// there, with those that are; an axis that would split one tensor twice.
Result<std::vector<std::vector<std::optional<AxisSharding>>>> layout_of_names(
    const Function& step, const ModelConfig& config, const Mesh& mesh, std::string_view layout);
// "NAME:DIM=AXIS,…": parameter by name or the end of it, so that ".c_fc.weight:1=cols" says it of
// every layer. Errors: no such parameter, dim or axis.
Status annotate(const Function& step, const Mesh& mesh, std::string_view text,
                std::vector<std::vector<std::optional<AxisSharding>>>& params);

// A cut that is not given of a parameter follows from what is.
Result<ShardPlan> plan_by_propagation(
    const Module& module, const Function& step, const MeshLinks& links,
    const std::vector<std::vector<std::optional<AxisSharding>>>& params);
// Parameters whose sharding is said keep it, others choose among whole and every dim that divides;
// state stays where its weight is. `most_branches` as of choose; `limit`: bytes of a rank's
// parameters.
Result<ShardPlan> plan_by_search(
    const Module& module, const Function& step, const MeshLinks& links,
    const std::vector<std::vector<std::optional<AxisSharding>>>& params, double limit = HUGE_VAL,
    int64_t most_branches = 100000);

}  // namespace tegula::planner
