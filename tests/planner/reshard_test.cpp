// Plans of reshards, executed on simulated ranks: each holds elements by their index in the whole.
#include "tegula/planner/reshard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

namespace tegula::planner {
namespace {

using Index = std::vector<int64_t>;
using Held = std::map<Index, double>;  // of one rank

// The indices of a dim that a rank has, by dealing them out: each axis keeps its share of each
// part.
std::vector<int64_t> dealt(const Mesh& mesh, int64_t extent, const Sharding& s, int dim,
                           const std::vector<int64_t>& at) {
  std::vector<int64_t> left(static_cast<size_t>(extent));
  for (size_t i = 0; i < left.size(); ++i) left[i] = static_cast<int64_t>(i);
  for (size_t a = 0; a < s.size(); ++a) {
    if (!s[a].is_split() || s[a].dim != dim) continue;
    const size_t part = left.size() / static_cast<size_t>(s[a].parts);
    const size_t n = static_cast<size_t>(mesh.axes[a].size), share = part / n;
    std::vector<int64_t> kept;
    for (size_t i = 0; i < left.size(); ++i)
      if (i % part / share == static_cast<size_t>(at[a])) kept.push_back(left[i]);
    left = kept;
  }
  return left;
}

bool has(const Mesh& mesh, const Shape& shape, const Sharding& s, const std::vector<int64_t>& at,
         const Index& index) {
  for (int d = 0; d < shape.rank(); ++d) {
    const auto mine = dealt(mesh, shape[d].bound(), s, d, at);
    if (std::find(mine.begin(), mine.end(), index[static_cast<size_t>(d)]) == mine.end())
      return false;
  }
  return true;
}

std::vector<Index> all_indices(const Shape& shape) {
  std::vector<Index> all = {{}};
  for (int d = 0; d < shape.rank(); ++d) {
    std::vector<Index> more;
    for (const Index& i : all)
      for (int64_t k = 0; k < shape[d].bound(); ++k) more.push_back(i), more.back().push_back(k);
    all = more;
  }
  return all;
}

double truth(const Index& index) {
  double v = 1;
  for (const int64_t i : index) v = 31 * v + static_cast<double>(i);
  return v;
}

// Every rank's part at first: its share, of which a pending axis's ranks have parts each.
std::vector<Held> begin(const Mesh& mesh, const Shape& shape, const Sharding& s) {
  std::vector<Held> ranks(static_cast<size_t>(mesh.n_ranks()));
  for (int64_t r = 0; r < mesh.n_ranks(); ++r) {
    const auto at = mesh.at(r);
    double share = 1;
    for (size_t a = 0; a < s.size(); ++a) {
      if (!s[a].is_pending()) continue;
      const auto n = static_cast<double>(mesh.axes[a].size);
      share *= 2 * static_cast<double>(at[a] + 1) / (n * (n + 1));  // they sum to 1
    }
    for (const Index& i : all_indices(shape))
      if (has(mesh, shape, s, at, i)) ranks[static_cast<size_t>(r)][i] = share * truth(i);
  }
  return ranks;
}

void execute(const Mesh& mesh, const Shape& shape, const ReshardPlan& plan, Sharding now,
             std::vector<Held>& ranks) {
  for (const ReshardStep& step : plan.steps) {
    ASSERT_EQ(now[step.axis], step.from);
    now[step.axis] = step.to;
    const std::vector<Held> before = ranks;
    for (int64_t r = 0; r < mesh.n_ranks(); ++r) {
      const auto at = mesh.at(r);
      Held got;
      if (step.is_cut) {
        got = before[static_cast<size_t>(r)];
      } else {
        const bool sums =
            step.what == Collective::kAllReduce || step.what == Collective::kReduceScatter;
        for (const int64_t other : mesh.group(r, step.axis))
          for (const auto& [i, v] : before[static_cast<size_t>(other)])
            got[i] = sums ? got[i] + v : v;
      }
      Held kept;
      for (const auto& [i, v] : got)
        if (has(mesh, shape, now, at, i)) kept[i] = v;
      ranks[static_cast<size_t>(r)] = kept;
    }
  }
}

struct Random {
  std::mt19937 bits;
  explicit Random(uint32_t seed) : bits(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }

  Mesh mesh() {
    Mesh m;
    for (int64_t a = 0; a <= below(3); ++a) m.axes.push_back({cat("a", a), 1 + below(3)});
    return m;
  }
  Sharding sharding(const Mesh& mesh, const Shape& shape, bool may_pend) {
    while (true) {
      Sharding s = replicated(mesh);
      for (AxisSharding& a : s) {
        const int64_t kind = below(may_pend ? 4 : 3);
        if (kind == 3) a = AxisSharding::pending();
        if (kind == 1 || kind == 2)
          a = AxisSharding::split(static_cast<int>(below(shape.rank())), 1 + below(2));
      }
      if (local_shape(mesh, shape, s).ok()) return s;
    }
  }
};

MeshLinks links_of(const Mesh& mesh) {
  return {mesh, *parse_cluster(cat(mesh.n_ranks(), "xH100"))};
}

void expect_whole(const Mesh& mesh, const Shape& shape, const Sharding& s,
                  const std::vector<Held>& ranks, const std::string& what) {
  const std::vector<Held> want = begin(mesh, shape, s);
  for (size_t r = 0; r < ranks.size(); ++r) {
    ASSERT_EQ(ranks[r].size(), want[r].size()) << what << " rank " << r;
    for (const auto& [i, v] : want[r]) {
      ASSERT_TRUE(ranks[r].count(i)) << what << " rank " << r;
      ASSERT_NEAR(ranks[r].at(i), v, 1e-9 * std::fabs(v)) << what << " rank " << r;
    }
  }
}

TEST(Reshard, ThereAndBackIsTheIdentityOnSimulatedRanks) {
  Random random(7);
  for (int i = 0; i < 400; ++i) {
    const Mesh mesh = random.mesh();
    Shape shape;
    for (int64_t d = 0; d <= random.below(3); ++d) shape.push_back(random.below(2) ? 12 : 36);
    if (shape.numel() > 2000) continue;
    const Sharding a = random.sharding(mesh, shape, false), b = random.sharding(mesh, shape, false);
    const MeshLinks links = links_of(mesh);
    const Type type{DType::kF32, shape};
    const auto there = plan_reshard(links, type, a, b), back = plan_reshard(links, type, b, a);
    const std::string what =
        cat(to_text(mesh), " ", type, " ", to_text(mesh, a), " to ", to_text(mesh, b));
    ASSERT_TRUE(there.ok()) << what << ": " << there.error().message;
    ASSERT_TRUE(back.ok()) << what << ": " << back.error().message;
    std::vector<Held> ranks = begin(mesh, shape, a);
    execute(mesh, shape, *there, a, ranks);
    expect_whole(mesh, shape, b, ranks, what);
    execute(mesh, shape, *back, b, ranks);
    expect_whole(mesh, shape, a, ranks, what);
  }
}

TEST(Reshard, SumsBecomeWholeOrAreSharedOut) {
  Random random(11);
  for (int i = 0; i < 200; ++i) {
    const Mesh mesh = random.mesh();
    const Shape shape{12, 36};
    const Sharding a = random.sharding(mesh, shape, true), b = random.sharding(mesh, shape, false);
    const auto plan = plan_reshard(links_of(mesh), {DType::kF32, shape}, a, b);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    std::vector<Held> ranks = begin(mesh, shape, a);
    execute(mesh, shape, *plan, a, ranks);
    expect_whole(mesh, shape, b, ranks, cat(to_text(mesh, a), " to ", to_text(mesh, b)));
  }
}

TEST(Reshard, TakesTheCollectiveThatMovesLeast) {
  const Mesh mesh = *mesh_from_text("x=4");
  const MeshLinks links = links_of(mesh);
  const Type type{DType::kF32, {1024, 1024}};
  const auto one = [&](const AxisSharding& from, const AxisSharding& to) {
    const auto plan = plan_reshard(links, type, {from}, {to});
    EXPECT_EQ(plan->steps.size(), 1U);
    return plan->steps[0];
  };
  const double whole = 4.0 * 1024 * 1024;
  EXPECT_EQ(one(AxisSharding::pending(), {}).what, Collective::kAllReduce);
  EXPECT_EQ(one(AxisSharding::pending(), AxisSharding::split(0)).what, Collective::kReduceScatter);
  EXPECT_EQ(one(AxisSharding::split(0), {}).what, Collective::kAllGather);
  EXPECT_EQ(one(AxisSharding::split(0), {}).bytes, whole);
  EXPECT_EQ(one(AxisSharding::split(0), AxisSharding::split(1)).what, Collective::kAllToAll);
  EXPECT_EQ(one(AxisSharding::split(0), AxisSharding::split(1)).bytes, whole / 4);
  EXPECT_TRUE(one({}, AxisSharding::split(1)).is_cut);
  EXPECT_FALSE(plan_reshard(links, type, {AxisSharding{}}, {AxisSharding::pending()}).ok());
  EXPECT_FALSE(
      plan_reshard(links, {DType::kF32, {6, 2}}, {AxisSharding{}}, {AxisSharding::split(0)}).ok());
}

TEST(Reshard, SmallMessagesTakeTheTreeLargeOnesTheRingAndNodesAHierarchy) {
  const ClusterSpec c = *parse_cluster("64xH100");
  const RankSpan in_node{8, 1}, across{64, 1}, one_each{8, 8};
  const double gamma = gamma_of(c.device);
  const double least = crossover_bytes(Collective::kAllReduce, 8, c.device.inside, gamma);
  for (const double bytes : {least / 4, least * 4}) {
    const Algorithm how = bytes < least ? Algorithm::kTree : Algorithm::kRing;
    EXPECT_EQ(seconds_on(c, Collective::kAllReduce, bytes, in_node),
              seconds_of(Collective::kAllReduce, how, bytes, 8, c.device.inside, gamma));
  }
  // One rank of each node: no hierarchy to use.
  EXPECT_EQ(seconds_on(c, Collective::kAllReduce, 1e9, one_each),
            seconds_of(Collective::kAllReduce, 1e9, 8, link_of(c, one_each), gamma));
  // Sixty-four at once: 126 latencies of the network by a ring, 14 of it and 14 of NVLink in turns.
  const double flat =
      seconds_of(Collective::kAllReduce, Algorithm::kRing, 1e6, 64, link_of(c, across), gamma);
  const double nested = seconds_on(c, Collective::kAllReduce, 1e6, across);
  EXPECT_LT(nested, flat / 2);
  const double by_hand = 2 * (3 * 1e-6 + 7.0 / 8 * 1e6 / 450e9) + 7.0 / 8 * 1e6 * 3 / 3.35e12 +
                         seconds_of(Collective::kAllReduce, 1e6 / 8, 8, c.device.between, gamma);
  EXPECT_NEAR(nested, by_hand, 1e-9 * by_hand);
  // The links that a reshard is priced by; and the flat one by what is reached of link and memory.
  EXPECT_EQ(MeshLinks({{{"x", 64}}}, c).seconds(Collective::kAllReduce, 1e6, 0), nested);
  Link link = link_of(c, across);
  link.bytes_per_s *= .85;
  EXPECT_EQ(seconds_of(c, Collective::kAllReduce, 1e9, across, kExpected),
            seconds_of(Collective::kAllReduce, 1e9, 64, link, 3 / (3.35e12 * .9)));
}

}  // namespace
}  // namespace tegula::planner
