// Splits of a convolution, against sets of elements that are counted one by one.
#include "tegula/planner/conv_split.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace tegula::planner {
namespace {

// Elements of x that the rank at (row, column) of the grid needs and does not own, in bytes.
double counted_halo(const ConvShape& c, const ConvSplit& s, int64_t row, int64_t column) {
  std::set<std::tuple<int64_t, int64_t>> lacks;
  const int64_t h = c.out_height() / s.height, w = c.out_width() / s.width;
  // The rank that owns row i of x: the first rows are those of the outputs' own strides.
  const auto owner = [&](int64_t i, int64_t share, int64_t parts) {
    return std::min(std::max<int64_t>(i + c.pad, 0) / (share * c.stride), parts - 1);
  };
  for (int64_t oh = row * h; oh < (row + 1) * h; ++oh)
    for (int64_t ow = column * w; ow < (column + 1) * w; ++ow)
      for (int64_t kh = 0; kh < c.kernel; ++kh)
        for (int64_t kw = 0; kw < c.kernel; ++kw) {
          const int64_t i = oh * c.stride + kh - c.pad, j = ow * c.stride + kw - c.pad;
          if (i < 0 || j < 0 || i >= c.height || j >= c.width) continue;
          if (owner(i, h, s.height) != row || owner(j, w, s.width) != column) lacks.emplace(i, j);
        }
  const int64_t images = c.batch / s.batch, channels = c.in / s.in;
  return c.element_bytes * static_cast<double>(images * channels) *
         static_cast<double>(lacks.size());
}

TEST(ConvSplit, HalosAreTheElementsThatARankLacks) {
  for (const int64_t kernel : {1, 3, 5})
    for (const int64_t stride : {1, 2})
      for (const auto& [height, width] : {std::pair<int64_t, int64_t>{4, 1}, {1, 4}, {4, 4}}) {
        const int64_t pad = (kernel - 1) / 2;
        ConvShape c{4, 6, 8, 32, 32, kernel, stride, pad, 2};
        const ConvSplit s{2, 1, 1, height, width};
        const ClusterSpec cluster = *parse_cluster(cat(s.ranks(), "xA100"));
        const auto cost = price_conv(c, s, cluster);
        ASSERT_TRUE(cost.ok()) << cost.error().message;
        // A rank with neighbours all around.
        const double counted = counted_halo(c, s, height > 1 ? 1 : 0, width > 1 ? 1 : 0);
        EXPECT_EQ(cost->halo_bytes, counted) << kernel << " " << stride << " " << height << width;
      }
}

TEST(ConvSplit, EverySplitSharesOutAllTheWork) {
  const ConvShape c{8, 16, 32, 16, 16, 3, 1, 1, 4};
  const ClusterSpec cluster = *parse_cluster("16xA100");
  const double flops = 2.0 * 8 * 32 * 16 * 16 * 16 * 9;
  const auto all = conv_splits(c, cluster);
  EXPECT_GT(all.size(), 60U);
  for (const PricedConv& p : all) {
    EXPECT_EQ(p.cost.flops * 16, flops);
    // The lecture's B·C·H·W·sizeof(element), dealt over the ranks that split it.
    const int64_t dealt_over = p.split.ranks() / p.split.in;
    const auto dealt = static_cast<double>(dealt_over);
    EXPECT_EQ(p.cost.activation_bytes * dealt, 4.0 * 8 * 32 * 16 * 16);
    const bool cuts_space = p.split.height > 1 || p.split.width > 1;
    EXPECT_EQ(p.cost.halo_bytes > 0, cuts_space);
    EXPECT_EQ(p.cost.forward_comm_s > 0, cuts_space || p.split.in > 1);
    // Channels in alone: each rank has its own part of the filter and of dx.
    EXPECT_EQ(p.cost.backward_comm_s > 0, p.split.in < 16);
  }
  for (size_t i = 1; i < all.size(); ++i)
    EXPECT_LE(all[i - 1].cost.seconds(), all[i].cost.seconds());
}

TEST(ConvSplit, WhatIsBestDependsOnWhatIsLarge) {
  const ClusterSpec cluster = *parse_cluster("8xA100");
  // Large batch and image, small filter: by batch. One image: by space. Large filter: by channel.
  EXPECT_EQ(conv_splits({64, 64, 64, 56, 56, 3, 1, 1, 2}, cluster)[0].split.batch, 8);
  const ConvSplit one = conv_splits({1, 16, 16, 1024, 1024, 3, 1, 1, 2}, cluster)[0].split;
  EXPECT_EQ(one.height * one.width, 8);
  const ConvSplit deep = conv_splits({1, 4096, 4096, 8, 8, 3, 1, 1, 2}, cluster)[0].split;
  EXPECT_EQ(deep.out * deep.in, 8);
}

TEST(ConvSplit, RefusesWhatDoesNotDivide) {
  const ConvShape c{4, 6, 8, 30, 30, 7, 1, 3, 2};
  const auto batch = price_conv(c, {8, 1, 1, 1, 1}, *parse_cluster("8xA100"));
  EXPECT_NE(batch.error().message.find("the batch, 4"), std::string::npos);
  const auto rows = price_conv(c, {1, 1, 1, 15, 1}, *parse_cluster("15xA100"));
  EXPECT_NE(rows.error().message.find("past its neighbour"), std::string::npos);
  EXPECT_FALSE(price_conv(c, {2, 1, 1, 1, 1}, *parse_cluster("8xA100")).ok());
}

}  // namespace
}  // namespace tegula::planner
