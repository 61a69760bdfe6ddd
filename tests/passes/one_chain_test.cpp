// Modes: exact keeps the shards of long contractions, fast sums each in one chain.
#include <cmath>

#include "tegula/runtime/compile.h"
#include "tests/common/run_plan.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

struct Product {
  std::shared_ptr<Module> module = std::make_shared<Module>();
  FuncId f = 0;
  explicit Product(int64_t k) {
    Builder b(*module, "product");
    const Var x = b.param("x", {DType::kF32, {9, k}}), w = b.param("w", {DType::kF32, {k, 21}});
    b.result("y", matmul(x, w));
    f = finish(b);
  }
  std::vector<HostTensor> inputs() const { return test::random_inputs(*module, (*module)[f], 5); }
  std::vector<HostTensor> run(Mode mode, int n_threads) {
    CompileOptions o;
    o.passes.pass.mode = mode, o.plan.target.n_threads = n_threads, o.plan.verify = true;
    auto copy = std::make_shared<Module>(*module);
    auto compiled = compile(copy, f, o);
    EXPECT_TRUE(compiled.ok()) << compiled.error().to_string();
    return test::run_plan(*compiled->plan, inputs(), {}, n_threads);
  }
};

TEST(Modes, FastIsOneChainAndExactIsShards) {
  Product p(1024);
  Module exact = *p.module, fast = *p.module;
  EXPECT_FALSE(run(exact, p.f, "one_chain"));
  EXPECT_EQ(only(exact[p.f], dot_op)->attrs.i("k_shards"), 8);
  EXPECT_TRUE(run(fast, p.f, "one_chain", {.mode = Mode::kFast}));
  EXPECT_FALSE(only(fast[p.f], dot_op)->attrs.has("k_shards"));
  EXPECT_FALSE(run(fast, p.f, "one_chain", {.mode = Mode::kFast}));
  Product small(64);  // without shards there is nothing to do, and the modes agree
  EXPECT_FALSE(run(*small.module, small.f, "one_chain", {.mode = Mode::kFast}));
  EXPECT_EQ(small.run(Mode::kFast, 1)[0].bytes, small.run(Mode::kExact, 1)[0].bytes);
}

// Bits are a contract in both: equal for any number of threads and from run to run. They differ
// between the modes, and either is as good as a naive sum.
TEST(Modes, EachKeepsItsBits) {
  Product p(1024);
  const auto in = p.inputs();
  const auto oracle = *interpret(*p.module, (*p.module)[p.f], in);
  std::vector<HostTensor> of_mode[2];
  for (Mode mode : {Mode::kExact, Mode::kFast}) {
    Module m = *p.module;
    run(m, p.f, "one_chain", {.mode = mode});
    const auto naive = *interpret(m, m[p.f], in, Arithmetic::kNaive);
    const auto y = of_mode[static_cast<size_t>(mode)] = p.run(mode, 1);
    for (int threads : {1, 2, 4}) EXPECT_EQ(p.run(mode, threads)[0].bytes, y[0].bytes);
    double error = 0, naive_error = 0;
    for (int64_t i = 0; i < y[0].numel(); ++i) {
      error = std::max(error, std::abs(y[0].at(i) - oracle[0].at(i)));
      naive_error = std::max(naive_error, std::abs(naive[0].at(i) - oracle[0].at(i)));
    }
    EXPECT_LE(error, 2 * naive_error + epsilon(DType::kF32));
  }
  EXPECT_NE(of_mode[0][0].bytes, of_mode[1][0].bytes);
}

}  // namespace
}  // namespace tegula
