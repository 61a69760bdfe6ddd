#include <cstdio>

#include "cli/plan.h"
#include "tegula/io/json.h"
#include "tegula/planner/conv_split.h"

namespace tegula::cli {

namespace {

using planner::ConvCost;
using planner::ConvDim;
using planner::ConvShape;
using planner::PricedConv;

constexpr size_t kShown = 16;

Json json_of(const Mesh& mesh, const PricedConv& p) {
  const ConvCost& c = p.cost;
  Json axes = Json::object();
  for (size_t a = 0; a < p.split.size(); ++a)
    axes.set(mesh.axes[a].name, planner::conv_dim_name(p.split[a]));
  return Json::object({{"axes", std::move(axes)},
                       {"flops", c.flops},
                       {"x_bytes", c.x_bytes},
                       {"y_bytes", c.y_bytes},
                       {"filter_bytes", c.filter_bytes},
                       {"halo_bytes", c.halo_bytes},
                       {"y_sum_bytes", c.y_sum_bytes},
                       {"dx_sum_bytes", c.dx_sum_bytes},
                       {"filter_sum_bytes", c.filter_sum_bytes},
                       {"forward_s", c.forward_s},
                       {"backward_s", c.backward_s},
                       {"forward_comm_s", c.forward_comm_s},
                       {"backward_comm_s", c.backward_comm_s},
                       {"seconds", c.seconds()}});
}

void print(const ConvShape& c, const Mesh& mesh, const std::string& on,
           const std::vector<PricedConv>& all) {
  const double whole = c.element_bytes * static_cast<double>(c.batch) *
                       static_cast<double>(c.out * c.out_height() * c.out_width());
  std::printf(
      "convolution y [%lld %lld %lld %lld] of x [%lld %lld %lld %lld], kernel %lld, stride "
      "%lld, pad %lld\n",
      static_cast<long long>(c.batch), static_cast<long long>(c.out),
      static_cast<long long>(c.out_height()), static_cast<long long>(c.out_width()),
      static_cast<long long>(c.batch), static_cast<long long>(c.in),
      static_cast<long long>(c.height), static_cast<long long>(c.width),
      static_cast<long long>(c.kernel), static_cast<long long>(c.stride),
      static_cast<long long>(c.pad));
  std::printf("y           %.4g bytes (B·C·H·W·%g)\nmesh        %s on %s\n", whole, c.element_bytes,
              to_text(mesh).c_str(), on.c_str());
  std::printf(
      "splits      %zu divide, the fastest first; bytes are a rank's, seconds of forward and "
      "backward together\n\n",
      all.size());
  std::printf("  %-32s %10s %10s %10s %10s %10s %10s %10s\n", "split", "y", "halo", "sum of y",
              "of dx", "of dfilter", "exchange s", "all s");
  for (size_t i = 0; i < std::min(kShown, all.size()); ++i) {
    const ConvCost& k = all[i].cost;
    std::printf("  %-32s %10.4g %10.4g %10.4g %10.4g %10.4g %10.4g %10.4g\n",
                planner::to_text(mesh, all[i].split).c_str(), k.y_bytes, k.halo_bytes,
                k.y_sum_bytes, k.dx_sum_bytes, k.filter_sum_bytes,
                k.forward_comm_s + k.backward_comm_s, k.seconds());
  }
  if (all.size() > kShown)
    std::printf("  and %zu more, up to %.4g s: --json has them\n", all.size() - kShown,
                all.back().cost.seconds());
}

}  // namespace

Flag add_conv(const Command& cmd, ConvFlags& flags) {
  return cmd
      .add_option(
          "--conv", flags.shape,
          "Instead: what every split of a convolution over --mesh takes; keys are batch, in, "
          "out, height, width, kernel, stride, pad; with batch, in, out alone a product's")
      .needs(cmd.flag("--mesh"))
      .type_name("KEY=N,…");
}

Status plan_conv(const ConvFlags& flags, const std::string& mesh_text, const std::string& layout,
                 const std::string& on, bool is_half, bool as_json) {
  const Mesh mesh = TEGULA_TRY(mesh_from_text(mesh_text));
  ConvShape conv = TEGULA_TRY(planner::parse_conv(flags.shape));
  conv.element_bytes = is_half ? 2 : 4;
  const auto settled = TEGULA_TRY(planner::parse_conv_layout(mesh, layout));
  ClusterSpec cluster;
  cluster.device = TEGULA_TRY(planner::find_accelerator(on));
  cluster.n_devices = mesh.n_ranks();
  const planner::MeshLinks links(mesh, cluster);
  const std::vector<PricedConv> all = planner::conv_splits(conv, links, settled);
  if (all.empty()) {
    planner::ConvSplit asked;
    for (const auto& dim : settled) asked.push_back(dim.value_or(ConvDim::kBatch));
    TEGULA_TRY(planner::price_conv(conv, asked, links));
    return invalid_argument(cat("no split of --conv over ", to_text(mesh), " divides"));
  }
  if (!as_json) {
    print(conv, mesh, on, all);
    return {};
  }
  Json j = Json::object({{"mesh", to_text(mesh)}, {"on", on}});
  j.set("splits", json_list(all, [&](const PricedConv& p) { return json_of(mesh, p); }));
  print_line(j);
  return {};
}

}  // namespace tegula::cli
