#include "tegula/planner/conv_split.h"

#include "tegula/base/range.h"
#include "tegula/cost/price.h"

namespace tegula::planner {

namespace {

// The part that a rank lacks along one dim of space.
struct Halo {
  int64_t before = 0, after = 0;  // rows of the neighbour on either side
  int64_t share = 0;              // rows that a rank owns
  int64_t most = 0;               // of a rank: with both neighbours, or with one of the two
};

Halo halo_of(const ConvShape& c, int64_t in_rows, int64_t out_rows, int64_t parts) {
  Halo h;
  h.share = std::min(in_rows, out_rows / parts * c.stride);
  if (parts == 1) h.share = in_rows;
  if (parts == 1) return h;
  h.before = c.pad, h.after = std::max<int64_t>(0, c.kernel - c.stride - c.pad);
  h.most = parts == 2 ? std::max(h.before, h.after) : h.before + h.after;
  return h;
}

int64_t extent_of(const ConvShape& c, ConvDim dim) {
  switch (dim) {
    case ConvDim::kBatch:
      return c.batch;
    case ConvDim::kOut:
      return c.out;
    case ConvDim::kIn:
      return c.in;
    case ConvDim::kHeight:
      return c.out_height();
    case ConvDim::kWidth:
      return c.out_width();
  }
  return 0;
}

// Messages of the neighbours one after another, along the slowest axis that cuts the dim.
double halo_seconds(const MeshLinks& links, const ConvSplit& split, ConvDim dim, const Halo& h,
                    double row_bytes) {
  double slowest = 0;
  const Mesh& mesh = links.mesh();
  for (size_t a = 0; a < split.size(); ++a) {
    if (split[a] != dim || mesh.axes[a].size == 1) continue;
    RankSpan group{mesh.axes[a].size, 1};
    for (size_t later = a + 1; later < mesh.axes.size(); ++later)
      group.stride *= mesh.axes[later].size;
    const Link link = own_link(links.cluster(), group);
    const int64_t messages = h.most == h.before + h.after ? (h.before > 0) + (h.after > 0) : 1;
    const double rows = real(h.most);
    if (rows > 0) slowest = std::max(slowest, seconds_of(link, real(messages), rows * row_bytes));
  }
  return slowest;
}

Status check(const ConvShape& c, const ConvSplit& s, const Mesh& mesh) {
  TEGULA_CHECK(s.size() == mesh.axes.size());
  for (const ConvDim dim : kConvDims) {
    const int64_t parts = parts_of(mesh, s, dim), extent = extent_of(c, dim);
    if (extent % parts != 0)
      return invalid_argument(cat("the convolution's ", conv_dim_name(dim), ", ", extent,
                                  ", is not a multiple of ", parts));
  }
  for (const bool is_height : {true, false}) {
    const ConvDim dim = is_height ? ConvDim::kHeight : ConvDim::kWidth;
    const Halo h =
        halo_of(c, is_height ? c.height : c.width, extent_of(c, dim), parts_of(mesh, s, dim));
    if (h.share < std::max(h.before, h.after))
      return invalid_argument(cat("a share of ", h.share, " rows of the ", conv_dim_name(dim),
                                  " is less than the halo of ", std::max(h.before, h.after),
                                  ": it would reach past the neighbour"));
  }
  return {};
}

// All-reduces along one axis after another of those that cut the dims.
double sum_seconds(const MeshLinks& links, const ConvSplit& split,
                   std::initializer_list<ConvDim> dims, double bytes) {
  double seconds = 0;
  for (size_t a = 0; a < split.size(); ++a)
    if (links.mesh().axes[a].size > 1 && contains(dims, split[a]))
      seconds += links.seconds(Collective::kAllReduce, bytes, a);
  return seconds;
}

}  // namespace

int64_t parts_of(const Mesh& mesh, const ConvSplit& split, ConvDim dim) {
  int64_t parts = 1;
  for (size_t a = 0; a < split.size(); ++a)
    if (split[a] == dim) parts *= mesh.axes[a].size;
  return parts;
}

Result<ConvCost> price_conv(const ConvShape& c, const ConvSplit& s, const MeshLinks& links) {
  const Mesh& mesh = links.mesh();
  TEGULA_TRY(check(c, s, mesh));
  const auto parts = [&](ConvDim dim) { return parts_of(mesh, s, dim); };
  const double n = real(c.batch / parts(ConvDim::kBatch)), ci = real(c.in / parts(ConvDim::kIn)),
               co = real(c.out / parts(ConvDim::kOut));
  const double h = real(c.out_height() / parts(ConvDim::kHeight)),
               w = real(c.out_width() / parts(ConvDim::kWidth));
  const Halo rows = halo_of(c, c.height, c.out_height(), parts(ConvDim::kHeight)),
             columns = halo_of(c, c.width, c.out_width(), parts(ConvDim::kWidth));
  const double taps = real(c.kernel) * real(c.kernel), e = c.element_bytes;
  ConvCost cost;
  cost.flops = 2 * n * co * h * w * ci * taps;
  cost.x_bytes = e * n * ci * real(rows.share) * real(columns.share);
  cost.y_bytes = e * n * co * h * w;
  cost.filter_bytes = e * co * ci * taps;
  // Rows first, then columns with the rows' corners.
  const double row_bytes = e * n * ci * real(columns.share),
               column_bytes = e * n * ci * real(rows.share + rows.most);
  cost.halo_bytes = real(rows.most) * row_bytes + real(columns.most) * column_bytes;
  Work work = matmul_work("conv", n * h * w, co, ci * taps, e);
  work.bytes = cost.x_bytes + cost.y_bytes + cost.filter_bytes;
  cost.forward_s = price(links.cluster().device, work, e <= 2 ? Number::kBf16 : Number::kF32);
  cost.backward_s = 2 * cost.forward_s;
  const bool cuts_space = parts(ConvDim::kHeight) * parts(ConvDim::kWidth) > 1;
  if (parts(ConvDim::kIn) > 1) cost.y_sum_bytes = cost.y_bytes;
  if (parts(ConvDim::kOut) > 1) cost.dx_sum_bytes = cost.x_bytes;
  if (parts(ConvDim::kBatch) > 1 || cuts_space) cost.filter_sum_bytes = cost.filter_bytes;
  const double halos = halo_seconds(links, s, ConvDim::kHeight, rows, row_bytes) +
                       halo_seconds(links, s, ConvDim::kWidth, columns, column_bytes);
  cost.forward_comm_s = halos + sum_seconds(links, s, {ConvDim::kIn}, cost.y_bytes);
  cost.backward_comm_s = halos + sum_seconds(links, s, {ConvDim::kOut}, cost.x_bytes) +
                         sum_seconds(links, s, {ConvDim::kBatch, ConvDim::kHeight, ConvDim::kWidth},
                                     cost.filter_bytes);
  return cost;
}

std::vector<PricedConv> conv_splits(const ConvShape& c, const MeshLinks& links,
                                    std::span<const std::optional<ConvDim>> settled) {
  const size_t n_axes = links.mesh().axes.size();
  std::vector<PricedConv> all;
  ConvSplit split;
  const auto extend = [&](const auto& self) -> void {
    if (split.size() == n_axes) {
      if (auto cost = price_conv(c, split, links); cost.ok()) all.push_back({split, *cost});
      return;
    }
    const size_t axis = split.size();
    for (const ConvDim dim : kConvDims) {
      if (axis < settled.size() && settled[axis].value_or(dim) != dim) continue;
      split.push_back(dim);
      self(self);
      split.pop_back();
    }
  };
  extend(extend);
  std::stable_sort(all.begin(), all.end(), [](const PricedConv& a, const PricedConv& b) {
    return a.cost.seconds() < b.cost.seconds();
  });
  return all;
}

}  // namespace tegula::planner
