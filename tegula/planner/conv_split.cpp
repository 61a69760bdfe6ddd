#include "tegula/planner/conv_split.h"

#include <algorithm>
#include <vector>

#include "tegula/planner/efficiency.h"
#include "tegula/planner/enumerate.h"

namespace tegula::planner {

namespace {

double real(int64_t n) { return static_cast<double>(n); }

// Rows of x that an inner rank needs and does not own. It owns share·stride rows of x for `share`
// rows of y and needs (share − 1)·stride + kernel of them.
int64_t halo_rows(const ConvShape& c, int64_t parts) {
  return parts == 1 ? 0 : std::max<int64_t>(0, c.kernel - c.stride);
}

Status check(const ConvShape& c, const ConvSplit& s, const ClusterSpec& cluster) {
  if (s.ranks() != cluster.n_devices)
    return invalid_argument(
        cat("a split over ", s.ranks(), " ranks on ", cluster.n_devices, " devices"));
  const struct {
    const char* name;
    int64_t extent, parts;
  } dims[] = {{"the batch", c.batch, s.batch},
              {"the channels out", c.out, s.out},
              {"the channels in", c.in, s.in},
              {"the height out", c.out_height(), s.height},
              {"the width out", c.out_width(), s.width}};
  for (const auto& d : dims)
    if (d.parts < 1 || d.extent % d.parts != 0)
      return invalid_argument(cat(d.name, ", ", d.extent, ", is not a multiple of ", d.parts));
  for (const auto& [extent, parts] :
       {std::pair{c.out_height(), s.height}, std::pair{c.out_width(), s.width}})
    if (extent / parts * c.stride < halo_rows(c, parts))
      return invalid_argument(cat("a share of ", extent / parts, " rows of ", extent,
                                  " reaches past its neighbour: the kernel is ", c.kernel));
  return {};
}

// One message each way to the neighbour on each side, at the same time; halves of the halo.
double halo_seconds(const ClusterSpec& cluster, double bytes, const RankGroup& group) {
  if (bytes == 0) return 0;
  const Link link = own_link(cluster, group);
  return 2 * (link.seconds + bytes / 2 / link.bytes_per_s);
}

}  // namespace

Result<ConvCost> price_conv(const ConvShape& c, const ConvSplit& s, const ClusterSpec& cluster) {
  TEGULA_TRY(check(c, s, cluster));
  const Accelerator& device = cluster.device;
  const double n = real(c.batch / s.batch), ci = real(c.in / s.in), co = real(c.out / s.out);
  const double h = real(c.out_height() / s.height), w = real(c.out_width() / s.width);
  const double taps = real(c.kernel) * real(c.kernel), e = c.element_bytes;
  const double x_rows = h * real(c.stride), x_columns = w * real(c.stride);
  const double halo_h = real(halo_rows(c, s.height)), halo_w = real(halo_rows(c, s.width));
  ConvCost cost;
  cost.flops = 2 * n * co * h * w * ci * taps;
  cost.activation_bytes = e * n * co * h * w;
  // Rows first, then columns with the rows' corners.
  const double row_bytes = e * n * ci * halo_h * x_columns;
  const double column_bytes = e * n * ci * halo_w * (x_rows + halo_h);
  cost.halo_bytes = row_bytes + column_bytes;
  const double rate = device.peak(e <= 2 ? Number::kBf16 : Number::kF32) * kExpected.matmul;
  const double filter = e * co * ci * taps;
  const double moved = cost.activation_bytes + e * n * ci * x_rows * x_columns + filter;
  const double memory = moved / (device.memory_bytes_per_s * kExpected.memory);
  cost.forward_s = std::max(cost.flops / rate, memory) + device.launch_s;
  cost.backward_s = 2 * cost.forward_s;
  const double gamma = 3 / device.memory_bytes_per_s;
  const RankGroup columns{s.width, 1}, rows{s.height, s.width}, in{s.in, s.height * s.width};
  const RankGroup out{s.out, in.stride * s.in}, batch{s.batch, out.stride * s.out};
  const double halos =
      halo_seconds(cluster, row_bytes, rows) + halo_seconds(cluster, column_bytes, columns);
  const auto sum = [&](double bytes, const RankGroup& group) {
    return seconds_on(cluster, Collective::kAllReduce, bytes, group, gamma);
  };
  cost.forward_comm_s = halos + sum(cost.activation_bytes, in);
  // The filter's gradient is summed over the ranks of one filter share: space, then batch.
  const RankGroup space{s.height * s.width, 1};
  cost.backward_comm_s =
      halos + sum(e * n * ci * x_rows * x_columns, out) + sum(filter, space) + sum(filter, batch);
  return cost;
}

std::vector<PricedConv> conv_splits(const ConvShape& c, const ClusterSpec& cluster) {
  std::vector<PricedConv> all;
  const int64_t n = cluster.n_devices;
  for (const int64_t batch : divisors(n))
    for (const int64_t out : divisors(n / batch))
      for (const int64_t in : divisors(n / batch / out))
        for (const int64_t height : divisors(n / batch / out / in)) {
          const ConvSplit s{batch, out, in, height, n / batch / out / in / height};
          if (const auto cost = price_conv(c, s, cluster); cost.ok()) all.push_back({s, *cost});
        }
  std::stable_sort(all.begin(), all.end(), [](const PricedConv& a, const PricedConv& b) {
    return a.cost.seconds() < b.cost.seconds();
  });
  return all;
}

}  // namespace tegula::planner
