// A pass that does not declare what it does to sums (PassDef::sums) changes no bit: compiled with
// those passes and with some of them, or all, left out, a function has the same results. Functions
// are random graphs, loops, layers over time, and steps of training, with their gradients; passes
// that declare are left out in both. By command for as long as it is told:
//   TEGULA_SWEEP_SECONDS=1200 build/release/tests/tests_passes --gtest_filter=SumsSweep.*
#include <gtest/gtest.h>

#include <random>

#include "tegula/ir/text.h"
#include "tegula/ops/attention.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/embedding.h"
#include "tegula/ops/layers.h"
#include "tegula/ops/linear_cross_entropy.h"
#include "tegula/ops/norm.h"
#include "tegula/runtime/compile.h"
#include "tests/common/differs.h"
#include "tests/common/random_graph.h"
#include "tests/common/run_plan.h"
#include "tests/common/sweep.h"

namespace tegula {
namespace {

using Rng = std::mt19937_64;
int64_t pick(Rng& rng, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(rng);
}

// Names of passes for PipelineOptions: those that declare, and of the others those that `out` says.
template <class Out>
std::string left_out(bool declared, Out&& out) {
  std::string names;
  for (const PassDef* pass : pipeline()) {
    const std::string name = cat("-", pass->name);
    if (pass->name == "lower" || pass->name == "wrap") continue;  // without them references run
    if (pass->sums.empty() ? !out(*pass) : !declared) continue;
    if (names.find(name + ",") == std::string::npos) names += name + ",";
  }
  if (!names.empty()) names.pop_back();
  return names;
}

// The gradients of the sum of y's squares.
void add_gradients(Builder& b, Var y, std::span<const Var> xs) {
  std::vector<int64_t> all;
  for (int d = 0; d < y.rank(); ++d) all.push_back(d);
  const auto g = grad(reduce_sum(y * y, all), xs);
  b.result("y", y);
  for (size_t i = 0; i < g.size(); ++i) b.result(cat("g", i), g[i]);
}

Result<FuncId> recurrent(Module& m, Rng& rng) {
  Builder b(m, "recurrent");
  const int64_t batch = pick(rng, 1, 4), time = pick(rng, 1, 9), d = pick(rng, 1, 9),
                h = pick(rng, 1, 20);
  const bool is_lstm = pick(rng, 0, 1) == 0;
  const int64_t gates = is_lstm ? 4 * h : 3 * h;
  const Var x = b.param("x", {DType::kF32, {batch, time, d}});
  std::vector<Var> xs = {x, b.weight("w_x", {DType::kF32, {d, gates}}),
                         b.weight("w_h", {DType::kF32, {h, gates}}),
                         b.weight("b_x", {DType::kF32, {gates}})};
  if (!is_lstm) xs.push_back(b.weight("b_h", {DType::kF32, {gates}}));
  const Var y = is_lstm ? lstm(x, {xs[1], xs[2], xs[3]}).y : gru(x, {xs[1], xs[2], xs[3], xs[4]}).y;
  add_gradients(b, y, xs);
  return b.finish_into_module();
}

// A carry, a sum of products of it, and what may be cut out of the loop.
Result<FuncId> loop(Module& m, Rng& rng) {
  Builder b(m, "loop");
  const int64_t n = pick(rng, 1, 12), rows = pick(rng, 1, 5), d = pick(rng, 1, 8);
  const Var h = b.param("h", {DType::kF32, {rows, d}}), s = b.param("s", {DType::kF32, {d, d}}),
            x = b.param("x", {DType::kF32, {n, rows, d}}), w = b.param("w", {DType::kF32, {d, d}});
  const bool reverse = pick(rng, 0, 1) == 0, norms = pick(rng, 0, 1) == 0;
  const auto out = scan(b, {h, s}, {x}, {w},
                        [&](Builder&, Vars c, Vars xs, Vars in) -> StepResult {
                          Var next = tanh(matmul(c[0], in[0]) + xs[0]);
                          if (norms) next = next - reduce_mean(next, {-1}, true);
                          const Var sum = c[1] + dot("r i, r j -> i j", c[0], xs[0]);
                          return {{next, sum}, {next * 2.0}};
                        },
                        {.reverse = reverse});
  const Var xs[] = {h, s, x, w};
  b.result("sum", out.carry[1]);
  add_gradients(b, matmul(out.carry[0], out.carry[1]) + reduce_sum(out.ys[0], {0}), xs);
  return b.finish_into_module();
}

// A block with a loss, whose products share operands and are long enough for shards.
Result<FuncId> step(Module& m, Rng& rng) {
  Builder b(m, "step");
  const int64_t batch = pick(rng, 1, 4), s = pick(rng, 1, 2) == 1 ? 64 : pick(rng, 3, 20),
                heads = pick(rng, 1, 2), d = 8 * heads, v = 32;
  const Var ids = b.param("ids", {DType::kI32, {batch, s}});
  std::vector<Var> w = {b.weight("table", {DType::kF32, {v, d}}),
                        b.weight("norm", {DType::kF32, {d}})};
  for (const char* name : {"q", "k", "v", "o"}) w.push_back(b.weight(name, {DType::kF32, {d, d}}));
  const Var x = embedding(w[0], ids), n = rms_norm(x, w[1]);
  const auto split_heads = [&](size_t k) {
    return reshape(matmul(n, w[k]), {batch, s, heads, d / heads});
  };
  const Var o = attention(split_heads(2), split_heads(3), split_heads(4), {.is_causal = true}).o;
  const Var y = x + gelu(matmul(reshape(o, {batch, s, d}), w[5]));
  const Var loss = cross_entropy_loss(y, w[0], ids);
  const auto g = grad(loss, w);
  b.result("loss", loss);
  for (size_t i = 0; i < g.size(); ++i) b.result(cat("g", i), g[i]);
  return b.finish_into_module();
}

struct Program {
  Module module;
  FuncId f = kNone;
  bool is_step = false;
};
Result<Program> draw(uint64_t seed) {
  Program p;
  Rng rng(seed);
  switch (seed % 4) {
    case 0:
      p.f = TEGULA_TRY(recurrent(p.module, rng));
      break;
    case 1:
      p.f = TEGULA_TRY(loop(p.module, rng));
      break;
    case 2:
      p.f = TEGULA_TRY(step(p.module, rng)), p.is_step = true;
      break;
    default:
      testing::RandomGraphOptions options;
      options.is_wild = seed % 8 == 3, options.is_symbolic = false, options.has_layers = true;
      options.has_state = false, options.n_nodes = static_cast<int>(pick(rng, 4, 30));
      const FuncId f = TEGULA_TRY(testing::RandomGraph(p.module, seed, options).build());
      p.f = TEGULA_TRY(vjp_function(p.module, f));
  }
  return p;
}

Result<std::vector<HostTensor>> results(const Program& p, Mode mode, const std::string& passes,
                                        std::span<const HostTensor> in) {
  CompileOptions o;
  o.passes.pass.mode = mode, o.passes.pass.is_step = p.is_step;
  o.passes.verify = true, o.passes.passes = passes;
  const auto module = std::make_shared<Module>(p.module);
  return test::try_run_plan(*TEGULA_TRY(compile(module, p.f, o)).plan, in);
}

Result<std::string> check(const Program& p, uint64_t seed) {
  const auto in = test::random_inputs(p.module, p.module[p.f], seed);
  const Mode mode = seed / 4 % 2 == 0 ? Mode::kFast : Mode::kExact;
  const auto want =
      TEGULA_TRY(results(p, mode, left_out(true, [](const PassDef&) { return false; }), in));
  Rng rng(seed);
  std::vector<std::string> fewer = {left_out(true, [](const PassDef&) { return true; })};
  for (int i = 0; i < 2; ++i)
    fewer.push_back(left_out(true, [&](const PassDef&) { return pick(rng, 0, 2) == 0; }));
  for (const std::string& passes : fewer) {
    const auto have = results(p, mode, passes, in);
    if (!have.ok()) return cat("without ", passes, ": ", have.error().message);
    if (auto d = test::differs(*have, want); !d.empty())
      return cat("without ", passes, ", ", d, "\n", to_text(p.module, p.module[p.f]));
  }
  return std::string();
}

TEST(SumsSweep, PassesThatDeclareNothingKeepBits) {
  int n = 0, not_built = 0;
  test::sweep(60, [&](uint64_t seed) -> Result<std::string> {
    ++n;
    const auto program = draw(seed);
    if (program.ok()) return check(*program, seed);
    ++not_built;
    return std::string();
  });
  EXPECT_LT(not_built, n / 8 + 1);
}

// The other way round: what a declaration says does happen.
TEST(SumsSweep, ALoopsSumGoesAnotherWay) {
  int n = 0;
  for (uint64_t seed = 0; seed < 48; seed += 4) {
    const auto p = draw(seed);
    ASSERT_TRUE(p.ok()) << p.error().message;
    const auto in = test::random_inputs(p->module, p->module[p->f], seed);
    const auto with = results(*p, Mode::kFast, "", in),
               without = results(*p, Mode::kFast, "-scan_sums", in);
    ASSERT_TRUE(with.ok() && without.ok());
    n += !test::differs(*with, *without).empty();
  }
  EXPECT_GT(n, 0);
}

}  // namespace
}  // namespace tegula
