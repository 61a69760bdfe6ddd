// Random graphs with constants, iotas, 0-d and repeated values in every place, and their gradients:
//   symbolic = constant   one plan made at the bounds, run at the extents 0, 1, bound - 1 and
//   bound,
//                         has the bits of a plan made for just those sizes, and by reference too;
//   rewritten = plain     the whole pipeline has the bits of one without its optional passes, and
//                         the values of the reference where any order of sums gives the same.
// In ctest a few hundred graphs; by command for as long as it is told:
//   TEGULA_SWEEP_SECONDS=1200 build/release/tests/tests_runtime --gtest_filter=GraphsSweep.*
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tegula/ir/text.h"
#include "tegula/ir/verify.h"
#include "tegula/ops/autodiff.h"
#include "tegula/runtime/compile.h"
#include "tests/common/differs.h"
#include "tests/common/random_graph.h"
#include "tests/common/run_plan.h"
#include "tests/common/sweep.h"

namespace tegula {
namespace {

using test::differs;
using Values = std::vector<HostTensor>;

Result<std::shared_ptr<const Plan>> plan_of(const Module& m, FuncId f, const char* passes) {
  CompileOptions o;
  o.plan.verify = true, o.passes.verify = true, o.passes.passes = passes;
  return TEGULA_TRY(compile(std::make_shared<Module>(m), f, o)).plan;
}

// The module with sizes written in for its symbols.
Module at_extents(const Module& m, std::span<const int64_t> extents) {
  Module out = m;
  out.symbols.clear();
  for (Function& f : out.functions) {
    for (Value& v : f.values) v.type.shape = v.type.shape.at(extents);
    for (Node& n : f.nodes) n.attrs = attrs_at(n.attrs, extents);
  }
  return out;
}

// The same with the extents as the symbols' bounds.
Module with_bounds(const Module& m, std::span<const int64_t> extents) {
  Module out = m;
  const auto rebound = [&](Dim& d) {
    if (!d.is_const()) d.symbol_bound = extents[static_cast<size_t>(d.symbol)];
  };
  for (size_t s = 0; s < extents.size(); ++s) out.symbols[s].bound = extents[s];
  for (Function& f : out.functions) {
    for (Value& v : f.values)
      for (int d = 0; d < v.type.shape.rank(); ++d) rebound(v.type.shape[d]);
    for (Node& n : f.nodes)
      for (const auto& [name, value] : Attrs(n.attrs))
        if (value.holds<std::vector<Dim>>())
          for (Dim& d : n.attrs.find(name)->get<std::vector<Dim>>()) rebound(d);
  }
  return out;
}

Values inputs(const Function& f, uint64_t seed, bool is_exact, std::span<const int64_t> extents) {
  Values in;
  for (const Param& p : f.params) {
    const Type& t = f.type(p.value);
    in.push_back(test::random_tensor({t.dtype, t.shape.at(extents)}, seed + 100 * in.size()));
    for (int64_t i = 0; is_exact && i < in.back().numel(); ++i)
      in.back().put(i, std::round(4 * in.back().at(i)));
  }
  return in;
}

bool has_negative_dim(const Function& f, std::span<const int64_t> extents) {
  for (const Value& v : f.values)
    for (const Dim& d : v.type.shape)
      if (d.at(extents) < 0) return true;
  return false;
}

bool has_derived_one(const Function& f, std::span<const int64_t> extents) {
  for (const Value& v : f.values)
    for (const Dim& d : v.type.shape)
      if (!d.is_const() && d.at(extents) == 1) return true;
  return false;
}

struct Tally {
  int not_built = 0, graphs = 0, runs = 0, refused = 0;
};

// Empty: all is well. An error is a failure, too, but of the builder, whose ops may refuse.
Result<std::string> symbolic_is_constant(uint64_t seed, Tally& tally) {
  Module m;
  testing::RandomGraphOptions options;
  options.is_wild = true, options.has_state = seed % 3 == 0;
  options.n_nodes = 4 + static_cast<int>(seed % 20);
  const auto built = testing::RandomGraph(m, seed, options).build();
  if (!built.ok()) {
    ++tally.not_built;
    return std::string();
  }
  const FuncId f = *built;
  const Module forward = m;
  const FuncId both = TEGULA_TRY(vjp_function(m, f));
  const auto plan = TEGULA_TRY(plan_of(m, both, ""));
  ++tally.graphs;
  for (int turn = 0; turn < 4; ++turn) {
    std::vector<int64_t> extents;
    for (size_t s = 0; s < m.symbols.size(); ++s) {
      const int64_t bound = m.symbols[s].bound;
      const int64_t tries[] = {0, std::min<int64_t>(1, bound), bound - 1, bound};
      extents.push_back(tries[(static_cast<uint64_t>(turn) + s * (1 + seed)) % 4]);
    }
    const std::string at = cat("at ", extents, ": ");
    // Gradients are derived anew from the constant function.
    const bool is_shape = !has_negative_dim(forward[f], extents);
    Module fixed = at_extents(forward, extents);
    Result<FuncId> fixed_both = invalid_argument("a negative dim");
    if (is_shape && verify(fixed, fixed[f]).ok()) fixed_both = vjp_function(fixed, f);
    const Function& g = m[both];
    if (has_negative_dim(g, extents) || !fixed_both.ok()) {
      ++tally.refused;
      const bool has_inputs = [&] {
        for (const Param& p : g.params)
          for (const Dim& d : g.type(p.value).shape)
            if (d.at(extents) < 0) return false;
        return true;
      }();
      if (has_inputs && test::try_run_plan(*plan, inputs(g, seed, false, extents), extents).ok())
        return cat(at, "runs, where constants are refused");
      continue;
    }
    ++tally.runs;
    const auto in = inputs(g, seed, false, extents);
    const auto have = test::try_run_plan(*plan, in, extents);
    const auto naive = interpret(m, g, in, Arithmetic::kNaive, extents);
    if (!have.ok()) return cat(at, have.error().message);
    if (!naive.ok()) return cat(at, "by reference: ", naive.error().message);
    // A constant 1 is no dim, so that sums may go another way: there a symbol of that bound.
    const bool has_one = has_derived_one(g, extents);
    const Module bounded = has_one ? with_bounds(m, extents) : Module();
    const Module& same = has_one ? bounded : fixed;
    const FuncId same_both = has_one ? both : *fixed_both;
    const auto want_naive = TEGULA_TRY(
        interpret(same, same[same_both], in, Arithmetic::kNaive,
                  has_one ? std::span<const int64_t>(extents) : std::span<const int64_t>()));
    if (auto d = differs(*naive, want_naive); !d.empty()) return cat(at, "by reference, ", d);
    const auto constant = plan_of(same, same_both, "");
    if (has_one && !constant.ok() &&
        constant.error().message.find("is not representable") != std::string::npos)
      continue;  // which sizes a reshape multiplies to find common ones depends on bounds
    if (!constant.ok()) return cat(at, constant.error().message);
    const auto want = TEGULA_TRY(test::try_run_plan(**constant, in));
    if (auto d = differs(*have, want); !d.empty())
      return cat(at, d, "\n", to_text(m, g), plan->to_string());
  }
  return std::string();
}

Result<std::string> rewritten_is_plain(uint64_t seed, Tally& tally) {
  Module m;
  testing::RandomGraphOptions options;
  options.is_wild = true, options.is_symbolic = false, options.is_exact = seed % 2 == 0;
  options.n_nodes = 4 + static_cast<int>(seed % 30);
  options.has_state = seed % 3 == 0;
  const auto built = testing::RandomGraph(m, seed, options).build();
  if (!built.ok()) {
    ++tally.not_built;
    return std::string();
  }
  FuncId f = *built;
  if (!options.is_exact) f = TEGULA_TRY(vjp_function(m, f));
  const auto in = inputs(m[f], seed, options.is_exact, {});
  const auto plan = TEGULA_TRY(plan_of(m, f, ""));
  const auto plain = TEGULA_TRY(
      plan_of(m, f, "-fuse,-cse,-views,-fold,-algebra,-loss_grads,-norm_residual,-widen_again"));
  ++tally.graphs;
  const auto have = TEGULA_TRY(test::try_run_plan(*plan, in));
  const auto want = TEGULA_TRY(test::try_run_plan(*plain, in));
  if (auto d = differs(have, want); !d.empty()) return cat(d, "\n", to_text(m, m[f]));
  if (!options.is_exact) return std::string();
  ++tally.runs;
  const auto naive = TEGULA_TRY(interpret(m, m[f], in, Arithmetic::kNaive));
  if (auto d = differs(have, naive, false); !d.empty()) return cat("beside the reference, ", d);
  return std::string();
}

TEST(GraphsSweep, SymbolicIsConstant) {
  Tally tally;
  test::sweep(150, [&](uint64_t seed) { return symbolic_is_constant(seed, tally); });
  std::printf("%d graphs (%d not built), %d runs, %d refused\n", tally.graphs, tally.not_built,
              tally.runs, tally.refused);
  EXPECT_GT(tally.runs, tally.graphs);
  EXPECT_LT(tally.not_built, tally.graphs / 4);
}

TEST(GraphsSweep, RewrittenIsPlain) {
  Tally tally;
  test::sweep(400, [&](uint64_t seed) { return rewritten_is_plain(seed, tally); });
  std::printf("%d graphs (%d not built), %d of them beside the reference\n", tally.graphs,
              tally.not_built, tally.runs);
  EXPECT_GT(tally.runs, 0);
  EXPECT_LT(tally.not_built, tally.graphs / 4);
}

}  // namespace
}  // namespace tegula
