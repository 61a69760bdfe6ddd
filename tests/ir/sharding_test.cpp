// Meshes and shardings: text, and what every rank holds.
#include "tegula/ir/sharding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

TEST(Mesh, IsReadAndPrintedAndRefused) {
  const Mesh mesh = *mesh_from_text("dp=2,tp=3");
  EXPECT_EQ(to_text(mesh), "dp=2,tp=3");
  EXPECT_EQ(mesh.n_ranks(), 6);
  EXPECT_EQ(mesh.at(4), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(mesh.group(4, 0), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(mesh.group(4, 1), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(mesh_from_text("")->n_ranks(), 1);
  for (const auto& [text, why] : {std::pair{"dp", "\"dp\" must be an axis"},
                                  {"dp=", "must be an axis"},
                                  {"=2", "must be an axis"},
                                  {"dp=0", "must be an axis"},
                                  {"dp=2x", "must be an axis"},
                                  {"dp=2,dp=2", "axis dp stands there twice"},
                                  {"dp=1024,tp=1025", "more than 1048576 ranks"},
                                  {"dp=9223372036854775807,tp=2", "more than"}})
    expect_error(mesh_from_text(text), Code::kInvalidArgument, {why});
}

// Every element on as many ranks as do not split it, each where its shares say.
TEST(Sharding, SharesAreDisjointAndWhole) {
  const Mesh mesh = *mesh_from_text("a=2,b=3,c=2");
  const Shape shape = {12, 36};
  const std::vector<Sharding> all = {
      replicated(mesh),
      {AxisSharding::split(0), AxisSharding::split(1), {}},
      {AxisSharding::split(1, 3), AxisSharding::split(1, 2), AxisSharding::split(1)},
      {AxisSharding::split(1), {}, AxisSharding::split(1, 3)},
      {AxisSharding::split(0), AxisSharding::split(0), AxisSharding::split(1, 2)}};
  for (const Sharding& s : all) {
    SCOPED_TRACE(to_text(mesh, s));
    const Shape local = *local_shape(mesh, shape, s);
    int64_t splits = 1;
    for (size_t a = 0; a < s.size(); ++a)
      if (s[a].is_split()) splits *= mesh.axes[a].size;
    std::vector<int> held(12 * 36);
    for (int64_t r = 0; r < mesh.n_ranks(); ++r) {
      const Share share = local_share(mesh, shape, s, mesh.at(r));
      EXPECT_EQ(Shape(std::span<const int64_t>(share.extent())), local);
      int64_t n = 0;
      for (const Box& box : share.boxes) {
        n += box.numel();
        for (int64_t i = 0; i < box.extent[0]; ++i)
          for (int64_t j = 0; j < box.extent[1]; ++j)
            ++held[static_cast<size_t>((box.offset[0] + i) * 36 + box.offset[1] + j)];
      }
      EXPECT_EQ(n, local.numel());
    }
    EXPECT_EQ(std::set<int>(held.begin(), held.end()),
              std::set<int>{static_cast<int>(mesh.n_ranks() / splits)});
  }
  expect_error(local_shape(mesh, {10, 4}, all[1]), Code::kInvalidArgument,
               {"dim 1 of [10,4]", "the 3 ranks of b"});
}

TEST(Sharding, HasAText) {
  const Mesh mesh = *mesh_from_text("dp=2,tp=2,cp=2");
  EXPECT_EQ(to_text(mesh, replicated(mesh)), "");
  EXPECT_EQ(
      to_text(mesh, {AxisSharding::split(0), AxisSharding::split(1, 3), AxisSharding::pending()}),
      "[dp:0, tp:1/3, cp:+]");
}

}  // namespace
}  // namespace tegula
