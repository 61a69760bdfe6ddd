// Products that begin with the tile program that makes what they read: as many launches less, and
// the bits of launches apart. Skipped where there is no device; CI runs it on the driver made for
// tests.
#include <gtest/gtest.h>

#include <cmath>

#include "tegula/ir/host_tensor.h"
#include "tegula/kernels/device.h"
#include "tegula/ops/indexing.h"
#include "tegula/ops/math.h"
#include "tegula/ops/norm.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/session.h"
#include "tests/common/device_count.h"

namespace tegula {
namespace {

constexpr DType B = DType::kBF16, F = DType::kF32;

struct Ran {
  std::vector<std::vector<std::byte>> results;
  int64_t n_launches = 0, math_flops = 0;
};

class DevicePrologues : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto opened = open_device();
    if (!opened.ok()) GTEST_SKIP() << opened.error().message;
    device_ = *opened;
    counted_ = testing::device_counter();
  }

  template <class Write>
  std::shared_ptr<const Plan> plan_of(const Write& write) {
    auto module = std::make_shared<Module>();
    Builder b(*module, "products");
    write(b);
    const FuncId f = b.finish_into_module().value();
    CompileOptions options;
    options.plan.target = device_->target(), options.passes.pass.mode = Mode::kFast;
    options.passes.pass.is_inference = true;
    return compile(module, f, options).value().plan;
  }

  // Twice: the second time as a replayed graph.
  Ran run(const std::shared_ptr<const Plan>& plan, int times = 2) {
    Ran ran;
    Rank rank(*device_);
    const auto s = Session::create(plan, rank).value();
    std::vector<HostTensor> in;
    in.reserve(plan->params.size());
    for (const auto& p : plan->params) {
      HostTensor& t = in.emplace_back(p.tensor.type);
      const auto seed = static_cast<double>(in.size());
      for (int64_t i = 0; i < t.numel(); ++i)
        t.put(i, std::sin(static_cast<double>(i) * 0.7 + seed));
      EXPECT_TRUE(s->bind_input(p.name, t.bytes.data()).ok());
    }
    for (int i = 0; i < times; ++i) {
      if (counted_ != nullptr) (void)counted_();
      const Status done = s->run();
      EXPECT_TRUE(done.ok()) << done.error().to_string();
      // The value that each block makes counts once.
      if (counted_ != nullptr) EXPECT_EQ(counted_(), plan->flops());
    }
    ran.math_flops = rank.counters.math_flops.load();
    for (size_t i = 0; i < plan->steps.size(); ++i) ran.n_launches += s->launches(i);
    for (const auto& r : plan->results) {
      const auto y = s->fetch(r.name).value();
      const auto* data = static_cast<const std::byte*>(y.data);
      ran.results.emplace_back(data, data + y.numel() * size_bytes(y.dtype));
    }
    return ran;
  }

  // `less` launches less than apart.
  template <class Write>
  void expect_same(const char* what, int64_t less, const Write& write) {
    SCOPED_TRACE(what);
    const auto plan = plan_of(write);
    auto apart = std::make_shared<Plan>(*plan);
    for (Step& s : apart->steps) {
      ASSERT_TRUE(s.kernel) << s.op->name;
      if (s.program) s.ends = 0;  // what is said to touch work in the background stays alone
    }
    const Ran joined = run(plan), one_by_one = run(apart);
    EXPECT_EQ(one_by_one.n_launches - joined.n_launches, less);
    EXPECT_EQ(one_by_one.math_flops, joined.math_flops);
    ASSERT_EQ(one_by_one.results.size(), joined.results.size());
    for (size_t r = 0; r < joined.results.size(); ++r)
      EXPECT_TRUE(joined.results[r] == one_by_one.results[r]) << "result " << r;
  }

  Device* device_ = nullptr;
  testing::CountedFlops counted_ = nullptr;
};

TEST_F(DevicePrologues, HaveTheBitsOfLaunchesApart) {
  // Rows that lie in a block's steps whole and not; either way round; both kinds of element.
  for (const DType t : {B, F})
    for (const char* dims : {"m k, n k -> m n", "m k, k n -> m n"})
      for (const int64_t m : {1, 3})
        for (const int64_t k : {200, 576}) {
          SCOPED_TRACE(cat(dtype_name(t), " m ", m, " k ", k, " ", dims));
          const Shape w = dims[5] == 'n' ? Shape{48, k} : Shape{k, 48};
          expect_same("norm", 1, [&](Builder& b) {
            const Var x = b.param("x", {t, {m, k}});
            b.result("y", dot(dims, rms_norm(x, b.param("g", {t, {k}})), b.param("w", {t, w})));
          });
          expect_same("gate", 1, [&](Builder& b) {
            const Var x = b.param("x", {t, {m, k}}), u = b.param("u", {t, {m, k}});
            b.result("y", dot(dims, silu(x) * u, b.param("w", {t, w})));
          });
        }
}

// A residual stream that goes on: what lies in memory that is used again is not overwritten by one
// block while another reads it.
TEST_F(DevicePrologues, OfProductsThatAreJoinedToo) {
  for (const int64_t m : {1, 2})
    expect_same("layers", 3 * 4 + 1, [&](Builder& b) {
      const int64_t d = 144, f = 256;
      Var x = b.param("x", {B, {m, d}});
      const auto product = [&](const std::string& name, Var a, int64_t n) {
        const int64_t k = a.dim(-1).bound();
        return dot("m k, n k -> m n", a, b.param(name, {B, {n, k}}));
      };
      x = product("before", x, d);
      for (int i = 0; i < 4; ++i) {
        const std::string at = cat("layers.", i, ".");
        const Var h = rms_norm(x, b.param(at + "norm", {B, {d}}));
        const Var q = product(at + "q", h, d), k = product(at + "k", h, 48);
        const Var both[] = {q, k};
        x = x + product(at + "o", concat(both, 1), d);
        const Var g = rms_norm(x, b.param(at + "norm2", {B, {d}}));
        const Var gate = product(at + "gate", g, f), up = product(at + "up", g, f);
        x = x + product(at + "down", silu(gate) * up, d);
      }
      b.result("x", x);
    });
}

// A result that is read elsewhere, too, and one that the program writes beside it.
TEST_F(DevicePrologues, OfResultsThatOthersRead) {
  expect_same("read twice", 1, [](Builder& b) {
    const Var x = b.param("x", {B, {1, 128}}), r = b.param("r", {B, {1, 128}});
    const Var sum = x + r, h = rms_norm(sum, b.param("g", {B, {128}}));
    b.result("sum", sum), b.result("h", h);
    b.result("y", dot("m k, n k -> m n", h, b.param("w", {B, {64, 128}})));
  });
}

// Products that end with the program of elements that reads what they make.
TEST_F(DevicePrologues, EndWithElements) {
  const auto product = [](Builder& b, const std::string& name, Var a, int64_t n) {
    return dot("m k, n k -> m n", a, b.param(name, {a.dtype(), {n, a.dim(-1).bound()}}));
  };
  expect_same("f16", 1, [&](Builder& b) {
    const Var x = b.param("x", {DType::kF16, {3, 200}});
    b.result("y", silu(product(b, "gate", x, 48)) * product(b, "up", x, 48));
  });
  // Wider than what it reads: it may not lie where that does.
  expect_same("a wider result", 1, [&](Builder& b) {
    const Var y = product(b, "w", b.param("x", {B, {3, 200}}), 48);
    b.result("y", cast(y, F) * cast(y, F));
  });
  for (const int64_t m : {1, 3, 8, 24})
    for (const int64_t k : {200, 2048})
      for (const int64_t n : {48, 300}) {
        SCOPED_TRACE(cat("m ", m, " k ", k, " n ", n));
        const int64_t less = m * n <= 1792 ? 1 : 0;  // longer ones do better apart
        expect_same("gate and up", less, [&](Builder& b) {
          const Var x = b.param("x", {B, {m, k}});
          b.result("y", silu(product(b, "gate", x, n)) * product(b, "up", x, n));
        });
        expect_same("which are results, too", less, [&](Builder& b) {
          const Var x = b.param("x", {B, {m, k}});
          const Var g = product(b, "gate", x, n), u = product(b, "up", x, n);
          b.result("g", g), b.result("u", u);
          b.result("y", silu(g) * u + cast(b.param("r", {F, {m, n}}), B));
          b.result("z", u * b.param("column", {B, {n}}));
        });
        expect_same("one, and what is added", less, [&](Builder& b) {
          const Var x = b.param("x", {B, {m, k}});
          b.result("y", product(b, "w", x, n) + b.param("r", {B, {m, n}}));
        });
      }
}

TEST_F(DevicePrologues, BeginAndEndWithPrograms) {
  const int64_t n = 96;
  for (const int64_t m : {1, 3})
    expect_same("norm and gate", 2, [&](Builder& b) {
      const Var x = b.param("x", {B, {m, 144}}), h = rms_norm(x, b.param("g", {B, {144}}));
      const auto product = [&](const char* name) {
        return dot("m k, n k -> m n", h, b.param(name, {B, {n, 144}}));
      };
      b.result("y", silu(product("gate")) * product("up"));
    });
}

// The results of the beginning one block writes: the end may not read it, since others come sooner.
TEST_F(DevicePrologues, DoNotEndWithWhatReadsTheirBeginning) {
  expect_same("a residual", 1, [](Builder& b) {
    const Var sum = b.param("x", {B, {1, 128}}) + b.param("r", {B, {1, 128}});
    const Var h = rms_norm(sum, b.param("g", {B, {128}}));
    b.result("sum", sum);
    b.result("y", dot("m k, n k -> m n", h, b.param("w", {B, {128, 128}})) + sum);
  });
}

// The same as steps of a persistent kernel, once: the second time what is missing would still be
// there from the first.
TEST_F(DevicePrologues, StepsDoNotEndWithWhatReadsTheirBeginning) {
  if (device_->target().capability < 90) return;
  const auto plan = plan_of([](Builder& b) {
    Var x = b.param("x", {B, {1, 128}});
    const Var g = b.param("g", {B, {128}});
    for (int i = 0; i < 4; ++i) {
      const Var sum = x + b.param(cat("r", i), {B, {1, 128}});
      x = dot("m k, n k -> m n", rms_norm(sum, g), b.param(cat("w", i), {B, {128, 128}})) + sum;
    }
    b.result("y", x);
  });
  ::setenv("TEGULA_CUDA_PERSISTENT", "1", 1);
  const Ran one = run(plan, 1);
  ::setenv("TEGULA_CUDA_PERSISTENT", "0", 1);
  const Ran many = run(plan, 1);
  ::unsetenv("TEGULA_CUDA_PERSISTENT");
  EXPECT_LT(one.n_launches, many.n_launches);
  EXPECT_TRUE(one.results == many.results);
}

// Columns of several stages, of which the last is short; products of several sizes that read the
// same; rows that are put; and, of three rows, more units than a block has room for at once. As a
// token after another: what the first leaves behind is there.
TEST_F(DevicePrologues, StepsOfManyStagesHaveTheBitsOfLaunches) {
  if (device_->target().capability < 90) return;
  constexpr int64_t k = 1088, n = 320;
  for (const int64_t m : {1, 3}) {
    SCOPED_TRACE(m);
    const auto plan = plan_of([&](Builder& b) {
      const auto product = [&](const std::string& name, Var a, int64_t columns) {
        return dot("m k, n k -> m n", a, b.param(name, {B, {columns, a.dim(-1).bound()}}));
      };
      Var x = b.param("x", {B, {m, k}});
      for (int i = 0; i < 2; ++i) {
        const auto norm = [&](const char* name) {
          return rms_norm(x, b.param(cat(name, i), {B, {k}}));
        };
        const Var h = norm("g"), q = product(cat("wq", i), h, 64);
        b.result(cat("k", i), product(cat("wk", i), h, 40));
        // All ids are 0: the last row stands.
        const Var v = product(cat("wv", i), h, 24), ids = b.param(cat("i", i), {DType::kI32, {m}});
        const Var rows = b.param(cat("a", i), {B, {5, 24}}) * b.param(cat("b", i), {B, {5, 24}});
        b.result(cat("v", i), scatter(rows, ids, v, 0, ScatterMode::kSet));
        x = x + product(cat("wo", i), q, k);
        const Var of = norm("f");
        const Var u = silu(product(cat("gate", i), of, n)) * product(cat("up", i), of, n);
        x = x + product(cat("down", i), u, k);
      }
      b.result("y", x);
    });
    ::setenv("TEGULA_CUDA_PERSISTENT", "1", 1);
    const Ran one = run(plan);
    ::setenv("TEGULA_CUDA_PERSISTENT", "0", 1);
    const Ran many = run(plan);
    ::unsetenv("TEGULA_CUDA_PERSISTENT");
    EXPECT_LT(one.n_launches, many.n_launches);
    EXPECT_TRUE(one.results == many.results);
  }
}

// Elements of other columns, three calls, a matrix the other way round.
TEST_F(DevicePrologues, DoNotEndWithWhatIsNotTheirs) {
  const auto of = [](const char* dims, Shape w, int calls) {
    return [=](Builder& b) {
      const Var x = b.param("x", {B, {1, 64}});
      Var y = dot(dims, x, b.param("w", {B, w}));
      for (int i = 1; i < calls; ++i) y = y * dot(dims, x, b.param(cat("w", i), {B, w}));
      b.result("y", silu(y));
    };
  };
  expect_same("two", 1, of("m k, n k -> m n", {32, 64}, 2));
  expect_same("three", 0, of("m k, n k -> m n", {32, 64}, 3));
  expect_same("four", 1, of("m k, n k -> m n", {32, 64}, 4));
  expect_same("[k, n]", 0, of("m k, k n -> m n", {64, 32}, 2));
  expect_same("halves", 0, [&](Builder& b) {
    const Var y = dot("m k, n k -> m n", b.param("x", {B, {1, 64}}), b.param("w", {B, {64, 64}}));
    b.result("y", silu(slice(y, 1, 0, 32)) * slice(y, 1, 32, 32));
  });
}

// The work that each block would do again is too much: rows, elements, or blocks.
TEST_F(DevicePrologues, StayAloneWhereTheyAreLong) {
  const auto norm = [](int64_t m, int64_t k, int64_t n) {
    return [=](Builder& b) {
      const Var x = b.param("x", {B, {m, k}});
      const Var w = b.param("w", {B, {n, k}});
      b.result("y", dot("m k, n k -> m n", rms_norm(x, b.param("g", {B, {k}})), w));
    };
  };
  expect_same("many rows", 0, norm(8, 64, 64));
  expect_same("long rows", 0, norm(1, 8192, 16));
  const int64_t n = 2048 / 128 * 16 * device_->target().multiprocessors;
  expect_same("as many blocks as have room", 1, norm(1, 64, n));
  expect_same("one more", 0, norm(1, 64, n + 16));
}

}  // namespace
}  // namespace tegula
