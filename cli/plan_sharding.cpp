#include <cstdio>

#include "cli/plan.h"
#include "tegula/io/json.h"
#include "tegula/planner/shard_plan.h"
#include "tegula/train/step.h"

namespace tegula::cli {

namespace {

using planner::ShardPlan;

Json json_of(const ShardPlan& p, const Function& f, const Mesh& mesh, bool is_search) {
  Json::Array exchanges, uncut, params;
  for (const auto& [what, e] : p.exchanges)
    exchanges.push_back(Json::object({{"what", what},
                                      {"count", e.count},
                                      {"sent_bytes", e.sent_bytes},
                                      {"seconds", e.seconds}}));
  for (const auto& [what, flops] : p.uncut)
    uncut.push_back(Json::object({{"what", what}, {"flops", flops}}));
  for (size_t i = 0; i < f.params.size(); ++i)
    params.push_back(
        Json::object({{"name", f.params[i].name}, {"sharding", to_text(mesh, p.params[i])}}));
  Json j = Json::object({{"mesh", to_text(mesh)},
                         {"seconds", p.seconds()},
                         {"compute_s", p.compute_s},
                         {"comm_s", p.comm_s},
                         {"flops", p.flops},
                         {"param_bytes", p.param_bytes}});
  if (is_search) j.set("is_exact", p.is_exact), j.set("bound_s", p.bound_s);
  j.set("exchanges", std::move(exchanges)), j.set("uncut", std::move(uncut));
  j.set("params", std::move(params));
  return j;
}

void print(const ShardPlan& p, const Function& f, const Mesh& mesh, const std::string& on,
           bool is_search) {
  std::printf("mesh        %s on %s\n", to_text(mesh).c_str(), on.c_str());
  std::printf("a step      %.4g s: %.4g computing, %.4g exchanging; %.4g FLOPs a rank\n",
              p.seconds(), p.compute_s, p.comm_s, static_cast<double>(p.flops));
  if (is_search)
    std::printf("search      %s\n",
                p.is_exact
                    ? "exact: no other choice takes less, as priced"
                    : cat("ended early: no choice takes less than ", p.bound_s, " s").c_str());
  std::printf("memory      %.1f MiB of parameters and state a rank\n", p.param_bytes / (1 << 20));
  for (const auto& [what, e] : p.exchanges)
    std::printf("exchange    %lld %s, %.4g bytes sent, %.4g s\n", static_cast<long long>(e.count),
                what.c_str(), e.sent_bytes, e.seconds);
  for (const auto& [what, flops] : p.uncut)
    std::printf("not cut     %s: %.4g FLOPs on every rank\n", what.c_str(),
                static_cast<double>(flops));
  for (size_t i = 0; i < f.params.size(); ++i) {
    const std::string sharding = to_text(mesh, p.params[i]);
    const bool is_state = f.params[i].name.starts_with("adam.");
    if (!sharding.empty() && !is_state)
      std::printf("lies        %s %s\n", f.params[i].name.c_str(), sharding.c_str());
  }
}

}  // namespace

void add_sharding(const Command& cmd, ShardingFlags& flags) {
  Flag mesh = cmd.flag("--mesh");
  cmd.add_option("--computation-layout", flags.layout,
                 "Axes of --mesh by names of dims: batch=rows,hidden=cols; names are batch, seq, "
                 "vocab, hidden, heads, ff, experts")
      .needs(mesh)
      .type_name("DIM=AXIS,…");
  cmd.add_option("--shard", flags.tensors,
                 "Axes by parameter, or the end of its name, and dim: .c_fc.weight:1=cols")
      .needs(mesh)
      .type_name("NAME:DIM=AXIS,…");
  cmd.add_flag("--search-sharding", flags.searches,
               "What is not said is chosen, so that the step takes least, instead of propagated")
      .needs(mesh);
  cmd.add_option("--shard-on", flags.on, "The accelerator that shardings are priced on")
      .needs(mesh)
      .type_name("NAME");
}

Status plan_sharding(const TrainConfig& config, const ShardingFlags& flags) {
  if (flags.mesh.empty())
    return invalid_argument("--computation-layout and --shard need --mesh: rows=2,cols=2");
  const Mesh mesh = TEGULA_TRY(mesh_from_text(flags.mesh));
  ClusterSpec cluster;
  cluster.device = TEGULA_TRY(planner::find_accelerator(flags.on));
  cluster.n_devices = mesh.n_ranks();
  const planner::MeshLinks links(mesh, cluster);
  const StepFunctions built = TEGULA_TRY(build_step_functions(config));
  const FuncId id = config.accumulate > 1 ? built.micro_step : built.train_step;
  const Function& f = (*built.module)[id];
  auto said = TEGULA_TRY(planner::layout_of_names(f, config.model, mesh, flags.layout));
  TEGULA_TRY(planner::annotate(f, mesh, flags.tensors, said));
  const ShardPlan plan =
      TEGULA_TRY(flags.searches ? planner::plan_by_search(*built.module, f, links, said)
                                : planner::plan_by_propagation(*built.module, f, links, said));
  if (config.json)
    print_line(json_of(plan, f, mesh, flags.searches));
  else
    print(plan, f, mesh, flags.on, flags.searches);
  return {};
}

}  // namespace tegula::cli
