// Splits of a convolution, executed on simulated ranks: each holds its shares alone, what it lacks
// is copied from the ranks that own it and counted, and the results are the whole convolution's.
#include "tegula/planner/conv_split.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

namespace tegula::planner {
namespace {

// A tensor of whole numbers, so that sums in any order are equal.
struct Array {
  std::array<int64_t, 4> dims;
  std::vector<double> v;
  explicit Array(std::array<int64_t, 4> d, double fill = 0)
      : dims(d), v(static_cast<size_t>(d[0] * d[1] * d[2] * d[3]), fill) {}
  double& at(int64_t a, int64_t b, int64_t c, int64_t d) {
    return v[static_cast<size_t>(((a * dims[1] + b) * dims[2] + c) * dims[3] + d)];
  }
  static Array any(std::array<int64_t, 4> d, int seed) {
    Array a(d);
    for (size_t i = 0; i < a.v.size(); ++i)
      a.v[i] = static_cast<double>((i * 7919 + static_cast<size_t>(seed) * 104729) % 11) - 5;
    return a;
  }
};

struct Range {
  int64_t begin = 0, end = 0;
  bool has(int64_t i) const { return begin <= i && i < end; }
};

// The part that a rank is to compute and what lies on it.
struct Rank {
  Range batch, out, in, oh, ow, h, w;
};

class Simulated {
 public:
  Simulated(const ConvShape& c, const Mesh& mesh, const ConvSplit& split)
      : c_(c), mesh_(mesh), split_(split) {
    for (int64_t r = 0; r < mesh.n_ranks(); ++r) ranks_.push_back(rank(r));
  }
  // The whole's results beside the ranks': what they have parts of is summed over them, as their
  // all-reduces would.
  void check() {
    const std::array<int64_t, 4> xs{c_.batch, c_.in, c_.height, c_.width},
        ys{c_.batch, c_.out, c_.out_height(), c_.out_width()},
        ks{c_.out, c_.in, c_.kernel, c_.kernel};
    Array x = Array::any(xs, 1), k = Array::any(ks, 2), dy = Array::any(ys, 3);
    Array y(ys), dx(xs), dk(ks), y_sum(ys), dx_sum(xs), dk_sum(ks);
    Rank whole{{0, c_.batch},       {0, c_.out},    {0, c_.in},   {0, c_.out_height()},
               {0, c_.out_width()}, {0, c_.height}, {0, c_.width}};
    for_each(whole, [&](int64_t n, int64_t co, int64_t oh, int64_t ow, int64_t ci, int64_t i,
                        int64_t j, int64_t a, int64_t b) {
      y.at(n, co, oh, ow) += x.at(n, ci, i, j) * k.at(co, ci, a, b);
      dx.at(n, ci, i, j) += dy.at(n, co, oh, ow) * k.at(co, ci, a, b);
      dk.at(co, ci, a, b) += dy.at(n, co, oh, ow) * x.at(n, ci, i, j);
    });
    for (const Rank& r : ranks_) {
      // An element that is not there is no number, and would make none of everything.
      Array held(xs, NAN), gradient(xs);
      for_each_of(r, [&](int64_t n, int64_t ci, int64_t i, int64_t j) {
        held.at(n, ci, i, j) = x.at(n, ci, i, j);
      });
      std::set<std::array<int64_t, 4>> lacks;
      for_each(r, [&](int64_t n, int64_t, int64_t, int64_t, int64_t ci, int64_t i, int64_t j,
                      int64_t, int64_t) {
        if (!r.h.has(i) || !r.w.has(j)) lacks.insert({n, ci, i, j});
      });
      for (const auto& [n, ci, i, j] : lacks) {
        ASSERT_EQ(owners(r, n, ci, i, j), 1);
        held.at(n, ci, i, j) = x.at(n, ci, i, j);
      }
      for_each(r, [&](int64_t n, int64_t co, int64_t oh, int64_t ow, int64_t ci, int64_t i,
                      int64_t j, int64_t a, int64_t b) {
        y_sum.at(n, co, oh, ow) += held.at(n, ci, i, j) * k.at(co, ci, a, b);
        gradient.at(n, ci, i, j) += dy.at(n, co, oh, ow) * k.at(co, ci, a, b);
        dk_sum.at(co, ci, a, b) += dy.at(n, co, oh, ow) * held.at(n, ci, i, j);
      });
      // Its own rows of x's gradient stay, those of its halo go home.
      for_each_of(r, [&](int64_t n, int64_t ci, int64_t i, int64_t j) {
        dx_sum.at(n, ci, i, j) += gradient.at(n, ci, i, j);
      });
      for (const auto& [n, ci, i, j] : lacks) dx_sum.at(n, ci, i, j) += gradient.at(n, ci, i, j);
      halo_bytes_ = std::max(halo_bytes_, c_.element_bytes * static_cast<double>(lacks.size()));
    }
    EXPECT_EQ(y_sum.v, y.v);
    EXPECT_EQ(dx_sum.v, dx.v);
    EXPECT_EQ(dk_sum.v, dk.v);
  }
  double halo_bytes() const { return halo_bytes_; }
  // Ranks whose parts of an output, of x's gradient and of the filter's gradient overlap.
  int64_t sharing(bool by_batch, bool by_out, bool by_in, bool by_space) const {
    int64_t n = 0;
    const Rank& first = ranks_[0];
    for (const Rank& r : ranks_) {
      const bool same =
          (!by_batch || r.batch.begin == first.batch.begin) &&
          (!by_out || r.out.begin == first.out.begin) && (!by_in || r.in.begin == first.in.begin) &&
          (!by_space || (r.oh.begin == first.oh.begin && r.ow.begin == first.ow.begin));
      n += same;
    }
    return n;
  }

 private:
  Range share(int64_t r, ConvDim dim, int64_t extent) const {
    const std::vector<int64_t> at = mesh_.at(r);
    int64_t index = 0, parts = 1;
    for (size_t a = 0; a < split_.size(); ++a)
      if (split_[a] == dim) index = index * mesh_.axes[a].size + at[a], parts *= mesh_.axes[a].size;
    return {index * extent / parts, (index + 1) * extent / parts};
  }
  Rank rank(int64_t r) const {
    Rank k{share(r, ConvDim::kBatch, c_.batch), share(r, ConvDim::kOut, c_.out),
           share(r, ConvDim::kIn, c_.in), share(r, ConvDim::kHeight, c_.out_height()),
           share(r, ConvDim::kWidth, c_.out_width())};
    // The rows of x that its outputs stride over; the last rank has what is left.
    const auto owned = [&](const Range& o, int64_t outs, int64_t ins) {
      return Range{o.begin * c_.stride, o.end == outs ? ins : o.end * c_.stride};
    };
    k.h = owned(k.oh, c_.out_height(), c_.height), k.w = owned(k.ow, c_.out_width(), c_.width);
    return k;
  }
  // Neighbours in space, with the same images and channels, on whom an element of x lies.
  int64_t owners(const Rank& r, int64_t n, int64_t ci, int64_t i, int64_t j) const {
    int64_t count = 0;
    for (const Rank& q : ranks_)
      count +=
          q.batch.has(n) && q.in.has(ci) && q.out.begin == r.out.begin && q.h.has(i) && q.w.has(j);
    return count;
  }
  template <class F>
  void for_each_of(const Rank& r, F&& visit) const {
    for (int64_t n = r.batch.begin; n < r.batch.end; ++n)
      for (int64_t ci = r.in.begin; ci < r.in.end; ++ci)
        for (int64_t i = r.h.begin; i < r.h.end; ++i)
          for (int64_t j = r.w.begin; j < r.w.end; ++j) visit(n, ci, i, j);
  }
  template <class F>
  void for_each(const Rank& r, F&& visit) const {
    for (int64_t n = r.batch.begin; n < r.batch.end; ++n)
      for (int64_t co = r.out.begin; co < r.out.end; ++co)
        for (int64_t oh = r.oh.begin; oh < r.oh.end; ++oh)
          for (int64_t ow = r.ow.begin; ow < r.ow.end; ++ow)
            for (int64_t ci = r.in.begin; ci < r.in.end; ++ci)
              for (int64_t a = 0; a < c_.kernel; ++a)
                for (int64_t b = 0; b < c_.kernel; ++b) {
                  const int64_t i = oh * c_.stride + a - c_.pad, j = ow * c_.stride + b - c_.pad;
                  if (i >= 0 && j >= 0 && i < c_.height && j < c_.width)
                    visit(n, co, oh, ow, ci, i, j, a, b);
                }
  }

  const ConvShape& c_;
  const Mesh& mesh_;
  const ConvSplit& split_;
  std::vector<Rank> ranks_;
  double halo_bytes_ = 0;
};

MeshLinks links_of(std::string_view mesh, const char* device = "A100") {
  const Mesh m = *mesh_from_text(mesh);
  return {m, *parse_cluster(cat(m.n_ranks(), "x", device))};
}

TEST(ConvSplit, EverySplitIsTheWholeConvolutionOnSimulatedRanks) {
  int n = 0, with_halo = 0;
  for (const char* mesh : {"a=2,b=3", "a=4", "a=2,b=2,c=2"})
    for (const auto& [kernel, stride, pad] :
         {std::array<int64_t, 3>{1, 1, 0}, {3, 1, 1}, {3, 2, 1}, {5, 1, 2}, {3, 1, 0}, {2, 2, 0}}) {
      // Twelve outputs each way.
      const int64_t side = pad == 0 ? 11 * stride + kernel : 12 * stride;
      const ConvShape small{12, 6, 12, side, side, kernel, stride, pad, 2};
      ASSERT_EQ(small.out_height(), 12);
      const MeshLinks links = links_of(mesh);
      for (const PricedConv& p : conv_splits(small, links, {})) {
        SCOPED_TRACE(cat(mesh, ", kernel ", kernel, ", stride ", stride, ", pad ", pad, ": ",
                         to_text(links.mesh(), p.split)));
        // One image of each rank's are enough to count; all channels are, as they are summed.
        ConvShape one = small;
        one.batch = parts_of(links.mesh(), p.split, ConvDim::kBatch);
        one.out = parts_of(links.mesh(), p.split, ConvDim::kOut);
        Simulated ranks(one, links.mesh(), p.split);
        ranks.check();
        const int64_t images = small.batch / one.batch;
        EXPECT_EQ(p.cost.halo_bytes, static_cast<double>(images) * ranks.halo_bytes());
        // A value that several ranks have parts of is summed, and nothing else.
        EXPECT_EQ(p.cost.y_sum_bytes > 0, ranks.sharing(true, true, false, true) > 1);
        EXPECT_EQ(p.cost.dx_sum_bytes > 0, ranks.sharing(true, false, true, true) > 1);
        EXPECT_EQ(p.cost.filter_sum_bytes > 0, ranks.sharing(false, true, true, false) > 1);
        ++n, with_halo += p.cost.halo_bytes > 0;
      }
    }
  EXPECT_GT(n, 300);
  EXPECT_GT(with_halo, 100);
}

TEST(ConvSplit, EverySplitSharesOutAllTheWork) {
  const ConvShape c{8, 16, 32, 16, 16, 3, 1, 1, 4};
  const MeshLinks links = links_of("a=2,b=2,c=2,d=2");
  const double flops = 2.0 * 8 * 32 * 16 * 16 * 16 * 9;
  const auto all = conv_splits(c, links, {});
  EXPECT_GT(all.size(), 400U);
  for (const PricedConv& p : all) {
    const auto parts = [&](ConvDim d) { return parts_of(links.mesh(), p.split, d); };
    EXPECT_EQ(p.cost.flops * 16, flops);
    // The lecture's B·C·H·W·sizeof(element), dealt over the ranks that split it.
    const int64_t dealt = 16 / parts(ConvDim::kIn);
    EXPECT_EQ(p.cost.y_bytes * static_cast<double>(dealt), 4.0 * 8 * 32 * 16 * 16);
    const bool cuts_space = parts(ConvDim::kHeight) * parts(ConvDim::kWidth) > 1;
    EXPECT_EQ(p.cost.forward_comm_s > 0, cuts_space || parts(ConvDim::kIn) > 1);
    // Channels in alone: each rank has its own part of the filter and of dx.
    EXPECT_EQ(p.cost.backward_comm_s > 0, parts(ConvDim::kIn) < 16);
  }
  for (size_t i = 1; i < all.size(); ++i)
    EXPECT_LE(all[i - 1].cost.seconds(), all[i].cost.seconds());
}

// The lecture's [B·M·P] of a product of [B·M, N] by [N, P]: (i, j) needs no sum forward, (i, k) one
// of what it makes.
TEST(ConvSplit, AProductIsAConvolutionOfOneElement) {
  const int64_t b = 8, m = 128, n = 512, p = 256;
  const ConvShape c = *parse_conv(cat("batch=", b * m, ",in=", n, ",out=", p));
  const MeshLinks links = links_of("i=2,j=4");
  const auto cost = [&](ConvDim i, ConvDim j) { return *price_conv(c, {i, j}, links); };
  const double whole = 4.0 * static_cast<double>(b * m * p);
  const ConvCost ij = cost(ConvDim::kBatch, ConvDim::kOut),
                 ik = cost(ConvDim::kBatch, ConvDim::kIn);
  EXPECT_EQ(ij.y_bytes, whole / 8);
  EXPECT_EQ(ij.forward_comm_s, 0);
  EXPECT_EQ(ij.dx_sum_bytes, 4.0 * static_cast<double>(b * m * n) / 2);
  EXPECT_EQ(ik.y_bytes, whole / 2);
  EXPECT_EQ(ik.y_sum_bytes, whole / 2);
  EXPECT_EQ(ik.dx_sum_bytes, 0);
  // 2·(4 − 1)/4 of it leaves each of four ranks by the ring, and so the link's time is.
  const Link link = links.cluster().device.inside;
  EXPECT_GT(ik.forward_comm_s, 1.5 * ik.y_sum_bytes / link.bytes_per_s);
}

TEST(ConvSplit, WhatIsBestDependsOnWhatIsLarge) {
  const MeshLinks links = links_of("x=8");
  const auto best = [&](const ConvShape& c) { return conv_splits(c, links, {})[0].split[0]; };
  // Large batch and image, small filter: by batch. One image: by space. Large filter: by channel.
  EXPECT_EQ(best({64, 64, 64, 56, 56, 3, 1, 1, 2}), ConvDim::kBatch);
  const ConvDim one = best({1, 16, 16, 1024, 1024, 3, 1, 1, 2});
  EXPECT_TRUE(one == ConvDim::kHeight || one == ConvDim::kWidth);
  const ConvDim deep = best({1, 4096, 4096, 8, 8, 3, 1, 1, 2});
  EXPECT_TRUE(deep == ConvDim::kOut || deep == ConvDim::kIn);
}

TEST(ConvSplit, RefusesWhatDoesNotDivideOrIsNone) {
  const ConvShape c{4, 6, 8, 30, 30, 7, 1, 3, 2};
  const auto batch = price_conv(c, {ConvDim::kBatch}, links_of("x=8"));
  EXPECT_NE(batch.error().message.find("batch, 4, is not a multiple of 8"), std::string::npos);
  const auto rows = price_conv(c, {ConvDim::kHeight}, links_of("x=15"));
  EXPECT_NE(rows.error().message.find("past the neighbour"), std::string::npos);
  for (const char* bad : {"batsh=4", "batch=0", "batch=4,batch=2", "batch", "kernel=3",
                          "height=8,width=8,kernel=3,pad=3", "in=99999999999999999999"})
    EXPECT_FALSE(parse_conv(bad).ok()) << bad;
  const Mesh mesh = *mesh_from_text("x=2,y=2");
  for (const char* bad : {"batch=z", "depth=x", "batch=x,out=x"})
    EXPECT_FALSE(parse_conv_layout(mesh, bad).ok()) << bad;
  const auto settled = *parse_conv_layout(mesh, "height=y");
  for (const PricedConv& p :
       conv_splits({4, 4, 4, 8, 8, 3, 1, 1, 4}, {mesh, *parse_cluster("4xA100")}, settled))
    EXPECT_EQ(p.split[1], ConvDim::kHeight);
}

}  // namespace
}  // namespace tegula::planner
