// A call that a user of the library gets wrong beside ops (tests/ops/vocabulary_test.cpp) is an
// Error, of the builder, of eager arrays, sessions, stores and compile; never a crash.
#include <gtest/gtest.h>

#include "tegula/tegula.h"

namespace tegula {
namespace {

constexpr float kData[] = {1, 2, 3, 4, 5, 6};
const Type kX = {DType::kF32, {3}};

template <class T>
std::string error_of(const Result<T>& r) {
  return r.ok() ? "" : r.error().message;
}
void expect_error(const std::string& message, std::string_view part) {
  EXPECT_NE(message.find(part), std::string::npos) << "\"" << message << "\", expected: " << part;
}

struct Twice {  // y = 2 x
  std::shared_ptr<Module> module = std::make_shared<Module>();
  FuncId f = kNone;
  Twice() {
    Builder b(*module, "twice");
    b.result("y", b.param("x", kX) * 2.0);
    f = b.finish_into_module().value();
  }
};

TEST(Misuse, ABuilderThatIsFinished) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", kX);
  b.result("y", x * 2.0);
  ASSERT_TRUE(b.finish_into_module().ok());
  expect_error(error_of(b.finish_into_module()), "function f is finished already");
  EXPECT_TRUE((x * 3.0).is_poison());
  EXPECT_EQ(x.rank(), 0);
  EXPECT_EQ(x.dim(2), Dim(1));
  EXPECT_TRUE(b.param("z", kX).is_poison());
  b.result("z", x), b.donate("x", "y"), b.annotate(x, {});
  EXPECT_TRUE(grad(reduce_sum(x, {0}), std::vector{x})[0].is_poison());
  EXPECT_EQ(m.functions.size(), 1u);
}

TEST(Misuse, EmptyVars) {
  const Var empty;
  EXPECT_FALSE((empty + empty).valid());
  EXPECT_EQ(empty.rank(), 0);
  EXPECT_EQ(empty.dtype(), DType::kF32);
  EXPECT_EQ(empty.dim(0), Dim(1));
  Module m;
  Builder b(m, "f");
  b.result("y", empty);
  expect_error(error_of(b.finish()), "result y is an empty Var");

  Builder moved(m, "moved");
  Var x = moved.param("x", kX), y = std::move(x);
  EXPECT_FALSE(x.valid());  // NOLINT: that is what is asked
  x = std::move(y);
  EXPECT_TRUE(x.valid());
  EXPECT_TRUE(moved.finish().ok());
}

TEST(Misuse, SizesAndSymbols) {
  const auto error = [](const Type& t) {
    Module m;
    Builder b(m, "f");
    (void)b.param("x", t);
    return error_of(b.finish());
  };
  expect_error(error({DType::kF32, {-3}}), "below 0");
  expect_error(error({DType::kF32, {int64_t{1} << 62}}), "elements");
  expect_error(error({DType::kF32, {1, 1, 1, 1, 1, 1, 1, 1, 1}}), "more than 8 dims");
  expect_error(error({DType::kF32, {Dim::of(0, 4)}}), "a symbol that the module has not");
  Shape s = {1, 2};
  s.erase(2);
  expect_error(error({DType::kF32, s}), "inserted or erased where none is");
  s = {1, 2}, s.insert(-1, 3);
  expect_error(error({DType::kF32, s}), "inserted or erased where none is");

  Module m;
  m.add_symbol("n", 4);
  Builder b(m, "f");
  (void)b.param("x", {DType::kF32, {Dim::of(0, 5)}});
  expect_error(error_of(b.finish()), "a symbol that the module has not");
  Builder c(m, "g");
  (void)broadcast(c.param("x", {DType::kF32, {}}), {Dim::of(1, 4)});
  expect_error(error_of(c.finish()), "a symbol that the module has not");
}

TEST(Misuse, FunctionsThatAreNotThere) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", kX);
  EXPECT_TRUE(call(b, 7, {x}).empty());
  expect_error(error_of(b.finish()), "call: function 7");
  expect_error(error_of(vjp_function(m, 3)), "vjp_function: function 3");
  expect_error(error_of(jvp_function(m, kNone)), "jvp_function: function");
  expect_error(error_of(compile(nullptr, 0, {})), "there is no module");
  expect_error(error_of(compile(std::make_shared<Module>(), 0, {})), "function 0 of a module of 0");
}

TEST(Misuse, DerivativesOfWhatIsNotThere) {
  Module m;
  Builder b(m, "f"), other(m, "g");
  const Var x = b.param("x", kX), z = other.param("z", kX), loss = reduce_sum(x, {0});
  EXPECT_TRUE(grad(loss, std::vector{z})[0].is_poison());
  expect_error(error_of(b.finish()), "pullback: an x belongs to another builder");

  Builder c(m, "h");
  const Var w = c.param("w", kX);
  EXPECT_TRUE(grad(Var(), std::vector{w})[0].is_poison());
  expect_error(error_of(c.finish()), "grad: the loss is an empty Var");

  Builder d(m, "i");
  const Var u = d.param("u", kX), v = u * 2.0;
  const Var cts[] = {u, u}, scalar[] = {reduce_sum(u, {0})};
  EXPECT_FALSE(pullback(d, std::span(&v, 1), cts, std::span(&u, 1))[0].valid());
  expect_error(error_of(d.finish()), "2 derivatives for 1 values");
  Builder e(m, "j");
  const Var p = e.param("p", kX), q = p * 2.0;
  const Var sum[] = {reduce_sum(p, {0})};
  (void)pullback(e, std::span(&q, 1), sum, std::span(&p, 1));
  expect_error(error_of(e.finish()), "the derivative of f32[3] is f32[]");
  (void)scalar;
}

TEST(Misuse, EagerArrays) {
  Rank rank(1);
  const auto error = [&](auto&& misuse) {
    Eager e(rank);
    const Var x = e.tensor(kX, kData);
    return error_of(e.read(misuse(e, x)));
  };
  Eager other(rank);
  const Var foreign = other.tensor(kX, kData);
  expect_error(error([](Eager&, Var) { return Var(); }), "the value is an empty Var");
  expect_error(error([](Eager&, Var) { return concat(std::vector<Var>{}, 0); }), "empty Var");
  expect_error(error([&](Eager&, Var) { return foreign; }), "belongs to another builder");
  expect_error(error([&](Eager& e, Var) { return e.detach(foreign); }), "another builder");
  expect_error(error([](Eager& e, Var) { return e.detach(Var()); }), "empty Var");
  expect_error(error([&](Eager&, Var x) { return x + foreign; }), "another builder");
  expect_error(error([](Eager& e, Var) {
                 return e.tensor({DType::kF32, {-3}}, kData);
               }),
               "below 0");
  expect_error(error([](Eager& e, Var) { return e.tensor(kX, nullptr); }), "no data");
  expect_error(error([](Eager& e, Var) {
                 return e.tensor({DType::kF32, {Dim::of(0, 3)}}, kData);
               }),
               "symbolic");
  expect_error(error([](Eager& e, Var) { return e.param("p", kX); }), "has no memory");
  expect_error(error([](Eager& e, Var x) { return e.param("p", kX) + x; }), "has no memory");
  expect_error(error([](Eager& e, Var x) {
                 (void)e.finish();
                 return x;
               }),
               "finished already");
  expect_error(error([](Eager&, Var x) { return grad(reduce_sum(x, {0}), std::vector{Var()})[0]; }),
               "an x is an empty Var");

  Var left;  // by its Eager
  {
    Eager e(rank);
    left = e.tensor(kX, kData) * 2.0;
  }
  EXPECT_FALSE(left.valid());
  EXPECT_FALSE((left + left).valid());
  const float zero_size = 0;
  Eager e(rank);
  EXPECT_TRUE(e.read(e.tensor({DType::kF32, {0}}, &zero_size)).ok());
  EXPECT_TRUE(e.read(e.tensor({DType::kF32, {0}}, nullptr) * 2.0).ok());
}

TEST(Misuse, Sessions) {
  Rank rank(1);
  expect_error(error_of(Session::create(nullptr, rank)), "there is no plan");
  Twice t;
  const auto c = compile(t.module, t.f, {});
  ASSERT_TRUE(c.ok());
  const auto make = [&] { return Session::create(c->plan, rank).value(); };
  auto s = make();
  float data[3] = {1, 2, 3};
  expect_error(error_of(s->run()), "parameter x of plan twice has no memory");
  expect_error(error_of(s->bind("nix", data)), "no parameter nix");
  expect_error(error_of(s->bind_input("nix", data)), "no parameter nix");
  expect_error(error_of(s->fetch("nix")), "no result nix");
  EXPECT_EQ(s->result("nix").data, nullptr);
  EXPECT_EQ(s->result(-1).data, nullptr);
  EXPECT_EQ(s->result(9).data, nullptr);
  EXPECT_EQ(s->param(9).data, nullptr);
  EXPECT_EQ(s->step_output(99, 0).data, nullptr);
  EXPECT_FALSE(s->take_ready({}).ok());
  ASSERT_TRUE(s->bind("x", data).ok());
  const int64_t extents[] = {1, 2};
  expect_error(error_of(s->run(extents)), "has 0 symbols, got 2 extents");
  std::vector<StepStats> stats;
  s->collect(&stats);
  EXPECT_TRUE(s->run().ok());
  EXPECT_EQ(s->result("y").as<float>()[2], 6);
  s->bind(-1, data);
  expect_error(error_of(s->run()), "there is no number -1");
}

TEST(Misuse, Stores) {
  Rank rank(1);
  Store s(rank);
  const auto error = [&](const Type& t) { return error_of(s.get("w", t)); };
  expect_error(error({DType::kF32, {-2}}), "below 0");
  expect_error(error({DType::kF32, {Dim::of(0, 3)}}), "constant sizes");
  expect_error(error_of(s.get("w", kX, Share{})), "a share of 0 boxes");
  const Box box = {{0}, {3}};
  expect_error(error_of(s.borrow("w", kX, box, kData, nullptr)), "nobody keeps the memory");
  expect_error(error_of(s.borrow("w", kX, box, nullptr, std::make_shared<int>(1))), "no memory");
  expect_error(error_of(s.own("w")), "no tensor w");
  expect_error(error_of(s.zero("w")), "no tensor w");
  expect_error(error_of(s.fill("w", {})), "no tensor w");
  ASSERT_TRUE(s.get("w", kX).ok());
  expect_error(error_of(s.fill("w", contiguous_ref(nullptr, kX))), "no data");
  expect_error(error_of(s.read("w", contiguous_ref(nullptr, kX))), "no memory");
  float out[2];
  expect_error(error_of(s.read("w", contiguous_ref(out, {DType::kF32, {2}}))), "read into f32[2]");
  EXPECT_EQ(s.find("nix").data, nullptr);
}

TEST(Misuse, TheInterpreter) {
  Twice t;
  const Function& f = (*t.module)[t.f];
  const auto error = [&](std::vector<HostTensor> in, std::span<const int64_t> extents = {}) {
    return error_of(interpret(*t.module, f, in, Arithmetic::kNaive, extents));
  };
  expect_error(error({}), "has 1 parameters, got 0 inputs");
  expect_error(error({HostTensor({DType::kF32, {2}})}), "parameter x is f32[3]");
  expect_error(error({HostTensor({DType::kF32, {-3}})}), "parameter x is f32[3]");
  const double two[] = {1, 2};
  expect_error(error({HostTensor(kX, two)}), "parameter x is f32[3]");
  const int64_t extents[] = {1};
  expect_error(error({HostTensor(kX)}, extents), "0 symbols, got 1 extents");
  std::vector<NodeCount> counts;
  const HostTensor x(kX);
  expect_error(error_of(interpret(*t.module, f, std::span(&x, 1), Arithmetic::kNaive, {}, &counts)),
               "kCounted alone");
  expect_error(error_of(interpret_call({}, {}, {}, Arithmetic::kOracle)), "no op");
}

TEST(Misuse, Threads) {
  for (const int n : {-5, 0, 1}) {
    Rank rank(n);
    EXPECT_GE(rank.pool.n_threads(), 1);
    Eager e(rank);
    EXPECT_TRUE(e.read(e.tensor(kX, kData) * 2.0).ok());
  }
}

}  // namespace
}  // namespace tegula
