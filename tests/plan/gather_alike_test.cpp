// Orders with alike nodes beside each other: still orders, and alike is beside alike.
#include "tegula/plan/gather_alike.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tegula/ir/builder.h"
#include "tegula/ir/opdef.h"
#include "tegula/ops/arrange.h"
#include "tegula/ops/indexing.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/plan/order.h"

namespace tegula {
namespace {

const Type kRow{DType::kF32, {1, 8}}, kCache{DType::kF32, {4, 8}}, kSquare{DType::kF32, {8, 8}};

// Every node once, behind what it reads.
void expect_order(const Function& f, const std::vector<NodeId>& order) {
  ASSERT_EQ(std::set<NodeId>(order.begin(), order.end()).size(), f.nodes.size());
  std::vector<bool> is_done(f.nodes.size(), false);
  for (const NodeId at : order) {
    for (const ValueId v : f.nodes[at].inputs)
      if (const NodeId from = f.values[v].node; from != kNone)
        EXPECT_TRUE(is_done[from]) << f.nodes[at].op->name << " before " << f.nodes[from].op->name;
    is_done[at] = true;
  }
}

// Places of the nodes of an op, among those that do something.
std::vector<size_t> places_of(const Function& f, const std::vector<NodeId>& order,
                              const OpDef& op) {
  std::vector<size_t> places;
  size_t at = 0;
  for (const NodeId n : order) {
    if (f.nodes[n].op == &op) places.push_back(at);
    if (!f.nodes[n].op->is_view) ++at;
  }
  return places;
}

// Two layers that decode: keys are turned before they go into the cache, values are not, and both
// caches are read as pages, through a view.
TEST(GatherAlike, ValuesGoIntoTheCacheWithKeys) {
  Module m;
  Builder b(m, "decode");
  Var x = b.param("x", kRow);
  const Var slot = b.param("slot", {DType::kI32, {1}});
  for (int layer = 0; layer < 2; ++layer) {
    const auto weight = [&](const char* name) {
      return b.param(cat(name, layer), kSquare, Role::kWeight);
    };
    const auto cached = [&](const char* name, Var fresh) {
      const std::string cache = cat("cache.", name, layer);
      const Var rows = b.param(cache, kCache, Role::kState);
      const Var stored = scatter(rows, slot, fresh, 0, ScatterMode::kSet);
      b.result(cache, stored);
      b.donate(cache, cache);
      return reshape(stored, {2, 2, 8});
    };
    const Var k = dot("m k, k n -> m n", x, weight("k"));
    const Var v = cached("v", dot("m k, k n -> m n", x, weight("v")));
    const Var q = dot("m k, k n -> m n", x, weight("q"));
    const Var keys = cached("k", cos(k));
    x = x + cos(q) * reduce_sum(keys * v, {0, 1});
  }
  b.result("y", x);
  const FuncId id = b.finish_into_module().value();
  const std::vector<NodeId> order = gather_alike(m[id], schedule_nodes(m[id]));
  expect_order(m[id], order);
  const auto scatters = places_of(m[id], order, scatter_op), dots = places_of(m[id], order, dot_op);
  ASSERT_EQ(scatters.size(), 4u);
  EXPECT_EQ(scatters[1], scatters[0] + 1);
  EXPECT_EQ(scatters[3], scatters[2] + 1);
  ASSERT_EQ(dots.size(), 6u);
  EXPECT_EQ(dots[2], dots[0] + 2);
  EXPECT_EQ(dots[5], dots[3] + 2);
}

// A value that the weights alone make stays with its reader, as it would take memory until then.
TEST(GatherAlike, WhatWeightsMakeStaysWithItsReader) {
  Module m;
  Builder b(m, "infer");
  Var x = b.param("x", kRow);
  for (int layer = 0; layer < 3; ++layer) {
    const Var w = cos(b.param(cat("w", layer), kSquare, Role::kWeight));
    x = dot("m k, k n -> m n", x, w);
  }
  b.result("y", x);
  const FuncId id = b.finish_into_module().value();
  const std::vector<NodeId> order = gather_alike(m[id], schedule_nodes(m[id]));
  expect_order(m[id], order);
  const auto made = places_of(m[id], order, cos_op), dots = places_of(m[id], order, dot_op);
  ASSERT_EQ(made.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(made[i] + 1, dots[i]);
}

// A step: casts of weights first, the update in waves.
TEST(GatherAlike, StepsHaveCastsFirstAndUpdatesInWaves) {
  Module m;
  Builder b(m, "step");
  const Var x = b.param("x", {DType::kBF16, {1, 8}});
  std::vector<Var> weights, casts;
  Var y = x;
  for (int layer = 0; layer < 3; ++layer) {
    weights.push_back(b.param(cat("w", layer), kSquare, Role::kWeight));
    casts.push_back(cast(weights.back(), DType::kBF16));
    y = dot("m k, k n -> m n", y, casts.back());
  }
  b.set_phase(Phase::kBackward);
  std::vector<Var> gradients;
  for (const Var& c : casts) {
    y = dot("m k, n k -> m n", y, c);
    gradients.push_back(dot("m k, m n -> k n", y, y, DType::kF32));
  }
  b.set_phase(Phase::kUpdate);
  Var total;
  for (const Var& g : gradients) {
    const Var square = reduce_sum(g * g, {1});
    const Var sum = reduce_sum(square, {0});
    total = total.valid() ? total + sum : sum;
  }
  for (int layer = 0; layer < 3; ++layer) {
    const auto at = static_cast<size_t>(layer);
    b.result(cat("w", layer), weights[at] - gradients[at] * total);
    b.donate(cat("w", layer), cat("w", layer));
  }
  const FuncId id = b.finish_into_module().value();
  const std::vector<NodeId> order = gather_alike(m[id], schedule_nodes(m[id]));
  expect_order(m[id], order);
  const auto first = places_of(m[id], order, cast_op),
             sums = places_of(m[id], order, reduce_sum_op);
  EXPECT_EQ(first, (std::vector<size_t>{0, 1, 2}));
  ASSERT_EQ(sums.size(), 6u);
  EXPECT_EQ(sums[2], sums[0] + 2);  // of squares
  EXPECT_EQ(sums[5], sums[3] + 2);  // of their sums
}

}  // namespace
}  // namespace tegula
