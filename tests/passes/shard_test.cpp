// Tests what functions say of where values lie: passes keep it, `shard` starts from it, and what
// `shard` gives is held against the ops' dims by a check that finds every planted fault.
#include "tegula/passes/shard.h"

#include "tegula/ir/verify.h"
#include "tegula/ops/autodiff.h"
#include "tegula/passes/shard_check.h"
#include "tests/common/random_graph.h"
#include "tests/common/random_shardings.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

constexpr DType F = DType::kF32;
const AxisSharding kAll;

Module on(const char* mesh) {
  Module m;
  m.mesh = *mesh_from_text(mesh);
  return m;
}
ShardOptions options_of(const Module& m, const Function& f, Mode mode = Mode::kFast) {
  return {m.mesh, std::vector<Sharding>(f.params.size(), replicated(m.mesh)), mode};
}

// Two layers of a perceptron and what it loses; nothing is said but of x, dim 0 by dp.
FuncId perceptron(Module& m, std::initializer_list<std::pair<std::string_view, AxisSharding>> of_w,
                  std::initializer_list<std::pair<std::string_view, AxisSharding>> of_h) {
  Builder b(m, "step");
  const Var x = b.param("x", {F, {16, 8}});
  const Var w = b.param("w", {F, {8, 32}}, Role::kWeight);
  const Var u = b.param("u", {F, {32, 4}}, Role::kWeight);
  b.annotate(x, {{"dp", AxisSharding::split(0)}});
  if (of_w.size() > 0) b.annotate(w, of_w);
  const Var h = matmul(x, w);
  if (of_h.size() > 0) b.annotate(h, of_h);
  const Var y = matmul(relu(h), u);
  const Var loss = reduce_sum(y * y, {0, 1});
  const Var weights[] = {w, u};
  const auto g = grad(loss, weights);
  b.result("loss", loss), b.result("dw", g[0]), b.result("du", g[1]);
  return finish(b);
}
const Sharding& of_result(const Function& f, const ShardedStep& s, size_t dot) {
  for (const Node& n : f.nodes)
    if (n.op == &dot_op && dot-- == 0) return s.values[n.output()];
  TEGULA_CHECK(false, "no such dot");
}

TEST(Shard, StartsFromAnnotations) {
  Module m = on("dp=2,tp=4");
  const FuncId id = perceptron(m, {{"tp", AxisSharding::split(1)}}, {});
  const ShardedStep s = *shard(m, m[id], options_of(m, m[id]));
  ASSERT_TRUE(check_shardings(m, m[id], s).ok());
  // h's columns by tp as w's are, y pends over it: Megatron's pair of products.
  EXPECT_EQ(to_text(m.mesh, of_result(m[id], s, 0)), "[dp:0, tp:1]");
  EXPECT_EQ(to_text(m.mesh, of_result(m[id], s, 1)), "[dp:0, tp:+]");
  EXPECT_EQ(s.values, s.made);
}

// A value is brought to where it is said to lie as soon as it is made, whatever its node gives.
TEST(Shard, BringsValuesToWhereTheyAreSaidToLie) {
  Module m = on("dp=2,tp=4");
  const FuncId id =
      perceptron(m, {{"tp", AxisSharding::split(1)}}, {{"dp", AxisSharding::split(0)}});
  const ShardedStep s = *shard(m, m[id], options_of(m, m[id]));
  ASSERT_TRUE(check_shardings(m, m[id], s).ok());
  EXPECT_EQ(to_text(m.mesh, of_result(m[id], s, 0)), "[dp:0]");
  const Node& dot = *std::ranges::find(m[id].nodes, &dot_op, &Node::op);
  EXPECT_EQ(to_text(m.mesh, s.made[dot.output()]), "[dp:0, tp:1]");  // cut all the same
}

TEST(Shard, RefusesWhatItCannotTake) {
  const auto message = [](Module& m, FuncId f, Mesh mesh, Mode mode = Mode::kFast) {
    ShardOptions o = options_of(m, m[f], mode);
    o.mesh = std::move(mesh);
    o.params.assign(m[f].params.size(), replicated(o.mesh));
    const auto s = shard(m, m[f], o);
    return s.ok() ? std::string("taken") : s.error().message;
  };
  Module m = on("dp=2,tp=4");
  const FuncId f = perceptron(m, {}, {});
  EXPECT_EQ(message(m, f, m.mesh), "taken");
  EXPECT_EQ(
      message(m, f, *mesh_from_text("dp=4")),
      "value 0, f32[16,8] [dp:0]: it is annotated for the mesh \"dp=2,tp=4\", the step is cut "
      "for \"dp=4\": name this one");
  const ValueId dot = std::ranges::find(m[f].nodes, &dot_op, &Node::op)->output();
  m[f].set_sharding(dot, {kAll, AxisSharding::pending()});
  EXPECT_EQ(message(m, f, m.mesh),
            cat("value ", dot,
                " (dot), f32[16,32] [tp:+]: that it pends over tp follows from the op "
                "that makes it: say where it shall lie, or nothing"));
  m[f].set_sharding(dot, {kAll, AxisSharding::split(1, 3)});
  EXPECT_TRUE(message(m, f, m.mesh)
                  .starts_with(cat("value ", dot, " (dot), f32[16,32] [tp:1/3]: dim 1 of ")))
      << message(m, f, m.mesh);
}

// Fold, algebra, views and the merging of equals leave what is said, at what stands for the value.
TEST(Annotations, OutliveThePasses) {
  Module m = on("tp=2");
  Builder b(m, "f");
  const Var x = b.param("x", {F, {4, 6}}), y = b.param("y", {F, {4, 6}});
  const Var one = (x + y) * 1.0, two = y + x;
  b.annotate(one, {{"tp", AxisSharding::split(0)}});
  const Var chain = permute(permute(exp(two), {1, 0}), {1, 0});
  b.annotate(chain, {{"tp", AxisSharding::split(1)}});
  b.result("a", one), b.result("b", chain), b.result("c", tanh(two));
  const FuncId f = finish(b);
  PipelineOptions o;
  o.until = PassPhase::kPartition, o.verify = true;
  ASSERT_TRUE(run_passes(m, f, o).ok());
  EXPECT_EQ(count(m[f], add_op), 1);
  EXPECT_EQ(count(m[f], mul_op), 0);
  const auto said = [&](size_t r) {
    const Sharding* s = m[f].sharding(m[f].results[r].value);
    return s ? to_text(m.mesh, *s) : std::string("nothing");
  };
  EXPECT_EQ(said(0), "[tp:0]");
  EXPECT_EQ(said(1), "[tp:1]");
  EXPECT_EQ(said(2), "nothing");
}

// Equal but for where they are said to lie: two values.
TEST(Annotations, TellEqualNodesApart) {
  Module m = on("tp=2");
  Builder b(m, "f");
  const Var x = b.param("x", {F, {4, 6}});
  const Var rows = exp(x), columns = exp(x), anywhere = exp(x);
  b.annotate(rows, {{"tp", AxisSharding::split(0)}});
  b.annotate(columns, {{"tp", AxisSharding::split(1)}});
  b.result("a", rows), b.result("b", columns), b.result("c", anywhere);
  const FuncId f = finish(b);
  EXPECT_TRUE(run(m, f, "cse"));
  EXPECT_EQ(count(m[f], exp_op), 2);
  EXPECT_EQ(to_text(m.mesh, *m[f].sharding(m[f].results[0].value)), "[tp:0]");
  EXPECT_EQ(to_text(m.mesh, *m[f].sharding(m[f].results[1].value)), "[tp:1]");
  EXPECT_EQ(m[f].results[2].value, m[f].results[0].value);
}

// Random graphs with random annotations: what is said is kept, the check passes, and each state or
// cut that is changed is found, with the value and the axis in the message.
TEST(ShardCheck, FindsWhatIsPlanted) {
  int n_steps = 0, n_planted = 0, n_cuts = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 rng(seed);
    Module m;
    testing::RandomGraphOptions o;
    o.is_symbolic = seed % 2 == 0;
    ASSERT_TRUE(testing::RandomGraph(m, seed, o).build().ok());
    m.mesh = testing::random_mesh(rng);
    testing::annotate_some(m[0], m.mesh, rng, 4);
    const auto sharded = shard(m, m[0], options_of(m, m[0]));
    ASSERT_TRUE(sharded.ok()) << sharded.error().message;
    const Status st = check_shardings(m, m[0], *sharded);
    ASSERT_TRUE(st.ok()) << st.error().message;
    for (ValueId v = 0; v < m[0].shardings.size(); ++v)
      if (const Sharding* said = m[0].sharding(v)) EXPECT_EQ(*said, sharded->values[v]);
    Module with = m;
    with[0].shardings = sharded->values;
    EXPECT_TRUE(verify(with, with[0]).ok()) << verify(with, with[0]).error().message;
    ++n_steps;
    for (NodeId id = 0; id < m[0].nodes.size(); ++id) {
      const Node& n = m[0].nodes[id];
      if (n.n_outputs == 0) continue;
      const size_t a = rng() % m.mesh.axes.size();
      const ValueId v = n.output();
      ShardedStep broken = *sharded;
      AxisSharding& made = broken.made[v][a];
      const AxisSharding was = made;
      switch (rng() % 3) {
        case 0:
          made = AxisSharding::pending(Combine::kMin);
          break;
        case 1:
          made = was.is_replicated() ? AxisSharding::pending() : AxisSharding();
          break;
        default:
          made = AxisSharding::split(0, was.is_split() ? was.parts + 1 : 1);
      }
      if (made == was) continue;
      ++n_planted;
      const Status found = check_shardings(m, m[0], broken);
      ASSERT_FALSE(found.ok()) << "node " << id << " (" << n.op->name << "), axis "
                               << m.mesh.axes[a].name << ", now "
                               << to_text(m.mesh, broken.made[v]);
      EXPECT_NE(found.error().message.find(cat("value ", v, ", ")), std::string::npos)
          << found.error().message;
      EXPECT_NE(found.error().message.find(m.mesh.axes[a].name), std::string::npos)
          << found.error().message;
      // A cut that the op does not have.
      broken = *sharded;
      broken.nodes[id][a] = {AxisCut::kAlong, 40, 1};
      n_cuts += !check_shardings(m, m[0], broken).ok();
      broken.nodes[id].pop_back();
      EXPECT_FALSE(check_shardings(m, m[0], broken).ok());
      if (n.inputs.empty()) continue;
      // An operand that the cut does not want so.
      broken = *sharded;
      broken.wants[id].back()[a] = AxisSharding::pending(Combine::kMin);
      EXPECT_FALSE(check_shardings(m, m[0], broken).ok());
    }
  }
  EXPECT_GT(n_steps, 100);
  EXPECT_GT(n_planted, 1000);
  EXPECT_EQ(n_cuts, n_planted);
}

// Readers find a sum pending where the node leaves it so, and nowhere else.
TEST(ShardCheck, NothingPendsByItself) {
  Module m = on("dp=2,tp=4");
  const FuncId id = perceptron(m, {{"tp", AxisSharding::split(1)}}, {});
  ShardedStep s = *shard(m, m[id], options_of(m, m[id]));
  const ValueId h = std::ranges::find(m[id].nodes, &dot_op, &Node::op)->output();
  s.values[h][0] = AxisSharding::pending();
  const Status found = check_shardings(m, m[id], s);
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("readers find it pending over dp"), std::string::npos)
      << found.error().message;
  s.values[h][0] = s.made[h][0];
  s.values[m[id].params[1].value][1] = s.made[m[id].params[1].value][1] = AxisSharding::pending();
  EXPECT_FALSE(check_shardings(m, m[id], s).ok());
}

}  // namespace
}  // namespace tegula
