#include "tegula/ir/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tegula/ir/interpret.h"
#include "tegula/ir/verify.h"
#include "tests/common/random_graph.h"
#include "tests/ir/goes_round.h"

namespace tegula {
namespace {

void expect_round_trip(const Module& m) {
  const std::string text = to_text(m);
  auto again = module_from_text(text);
  ASSERT_TRUE(again.ok()) << again.error().message << "\n" << text;
  EXPECT_EQ(to_text(*again), text);
}

TEST(Text, ReadsAsWritten) {
  Module m;
  const Dim n = m.add_symbol("n", 8);
  Builder b(m, "step");
  const Var x = b.param("x", {DType::kF32, {n, 4}});
  const Var w = b.param("w", {DType::kF32, {4, 4}}, Role::kState);
  b.result("y", reshape(matmul(x, w), {n, 2, 2}));
  b.set_phase(Phase::kUpdate);
  b.result("w", w * 0.1);
  b.donate("w", "w");
  ASSERT_TRUE(b.finish_into_module().ok());
  EXPECT_EQ(to_text(m), R"(symbol n <= 8

func 0 "step" {
  param %0 input "x" f32[n,4]
  param %1 state "w" f32[4,4] donated 1
  %2 = dot(%0, %1) {dims = "a k, k n -> a n"} : f32[n,4]
  %3 = reshape(%2) {shape = (n,2,2)} : f32[n,2,2]
  %4 = constant() {dtype = f32, value = 0.1} : f32[] update
  %5 = broadcast(%4) {shape = (4,4)} : f32[4,4] update
  %6 = mul(%1, %5) : f32[4,4] update
  result "y" %3
  result "w" %6
}
)");
  expect_round_trip(m);
}

TEST(Text, KeepsEveryAttributeAndName) {
  Module m;
  m.add_symbol("two words", 3);
  m.add_symbol("n", 4);
  m.add_symbol("n", 5);
  Function f;
  f.name = "tab\t quote\" back\\ line\n bell\a";
  Node n;
  n.op = &barrier_op, n.n_outputs = 0, n.first_output = 0, n.phase = Phase::kBackward;
  n.attrs = {{"a", true},
             {"b", int64_t{INT64_MIN}},
             {"c", std::string("\"\\\n\x01\x7f\xff")},
             {"d", DType::kBF16},
             {"e", std::vector<int64_t>{}},
             {"f", std::vector<int64_t>{-1, INT64_MAX}},
             {"g", std::vector<Dim>{}},
             {"h", std::vector<Dim>{Dim::of(0, 3), Dim::of(1, 4), Dim::of(2, 5), 7}},
             {"i", false}};
  Dim d = Dim::of(1, 4);
  d.scale = 3, d.offset = -2;
  n.attrs.set("j", std::vector<Dim>{d});
  f.nodes.push_back(n);
  m.add(f);
  const std::string text = to_text(m);
  auto again = module_from_text(text);
  ASSERT_TRUE(again.ok()) << again.error().message << "\n" << text;
  EXPECT_EQ((*again)[0].nodes[0].attrs, n.attrs) << text;
  EXPECT_EQ((*again)[0].name, f.name);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(again->symbols[i].name, m.symbols[i].name);
  EXPECT_EQ(to_text(*again), text);
}

TEST(Text, FloatsKeepTheirBits) {
  std::mt19937_64 rng(1);
  std::vector<double> values = {
      0.0,       -0.0,      1,         -1,   0.1,  1e300,        5e-324,        HUGE_VAL,
      -HUGE_VAL, 0x1p-1022, 123456789, 1e21, 1e22, std::nan(""), -std::nan(""), std::nan("1")};
  for (int i = 0; i < 2000; ++i) values.push_back(std::bit_cast<double>(rng()));
  Module m;
  Function f;
  for (double v : values) {
    Node n;
    n.op = &constant_op, n.n_outputs = 0, n.first_output = 0;
    n.attrs = {{"value", v}};
    f.nodes.push_back(n);
  }
  m.add(f);
  auto again = module_from_text(to_text(m));
  ASSERT_TRUE(again.ok()) << again.error().message;
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(std::bit_cast<uint64_t>((*again)[0].nodes[i].attrs.f("value")),
              std::bit_cast<uint64_t>(values[i]))
        << values[i];
}

TEST(Text, RandomGraphsRoundTrip) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Module m;
    for (uint64_t k = 0; k < 2; ++k) {
      auto f = testing::RandomGraph(m, 2 * seed + k).build();
      ASSERT_TRUE(f.ok()) << f.error().to_string();
    }
    auto status = verify(m);
    ASSERT_TRUE(status.ok()) << status.error().message;
    expect_round_trip(m);
    auto again = module_from_text(to_text(m));
    ASSERT_TRUE(again.ok());
    status = verify(*again);
    ASSERT_TRUE(status.ok()) << status.error().message;
    const auto in = testing::random_inputs(m[0], seed);
    auto a = interpret(m, m[0], in, Arithmetic::kNaive);
    auto b = interpret(*again, (*again)[0], in, Arithmetic::kNaive);
    ASSERT_TRUE(a.ok() && b.ok());
    for (size_t r = 0; r < a->size(); ++r) {
      EXPECT_EQ((*a)[r].bytes, (*b)[r].bytes);
      for (double v : (*a)[r].values()) ASSERT_TRUE(std::isfinite(v)) << "result " << r;
    }
  }
}

TEST(Text, ErrorsSayWhereAndWhat) {
  const auto message = [](std::string_view text) {
    auto m = module_from_text(text);
    return m.ok() ? std::string("parsed") : m.error().message;
  };
  EXPECT_EQ(message(""), "parsed");
  EXPECT_EQ(message("# nothing"), "parsed");
  EXPECT_EQ(message("fun 0"), "1:1: expected mesh, symbol or func, found \"fun\"");
  EXPECT_EQ(message("symbol n < 8"), "1:10: expected \"<=\", found \"<\"");
  EXPECT_EQ(message("symbol n <= -1"),
            "1:13: the symbol's bound is -1, must be in [0, 1099511627776]");
  EXPECT_EQ(message("symbol n <= 1\nsymbol n <= 2"), "2:8: symbol n stands twice");
  EXPECT_EQ(message("func 1 \"f\" {}"), "1:6: expected function 0, found 1");
  EXPECT_EQ(message("func 0 \"f"), "1:8: this string does not end");
  const auto body = [&](std::string_view line) {
    return message(cat("func 0 \"f\" {\n  param %0 input \"x\" f32[4]\n  ", line, "\n}"));
  };
  EXPECT_EQ(body("result \"y\" %0"), "parsed");
  EXPECT_EQ(body("%1 = neg(%0) : f32[4]"), "parsed");
  EXPECT_EQ(body("%1 = neg(%0) : f33[4]"), "3:18: expected a dtype, found \"f33\"");
  EXPECT_EQ(body("%1 = negg(%0) : f32[4]"), "3:8: expected the name of an op, found \"negg\"");
  EXPECT_EQ(body("%1 = neg(%1) : f32[4]"), "3:12: %1 is not defined before its use");
  EXPECT_EQ(body("%0 = neg(%0) : f32[4]"), "3:3: %0 is defined twice");
  EXPECT_EQ(body("%1 = neg(%0) : f32[4"), "4:1: expected \"]\", found \"}\"");
  EXPECT_EQ(body("%1 = neg(%0)"), "4:1: expected \":\", found \"}\"");
  EXPECT_EQ(body("%1 = neg(%0) : f32[m]"), "3:22: there is no symbol m");
  EXPECT_EQ(body("%1 = neg(%0) : f32[99999999999999]"),
            "3:22: a size is 99999999999999, must be in [-1099511627776, 1099511627776]");
  EXPECT_EQ(body("%1 = neg(%0) : f32[1,1,1,1,1,1,1,1,1]"), "3:18: a shape of 9 dims, 8 at most");
  EXPECT_EQ(body("%1 = neg(%0) {a = } : f32[4]"),
            "3:21: expected an attribute's value, found \"}\"");
  EXPECT_EQ(body("%1 = neg(%0) {a = 1, a = 2} : f32[4]"), "3:24: attribute a stands twice");
  EXPECT_EQ(body("%1 = neg(%0) {a = 99999999999999999999} : f32[4]"),
            "3:21: expected an integer, found \"99999999999999999999\"");
  EXPECT_EQ(body("%1 = fused(%0) regions [4] : f32[4]"),
            "3:27: region 4 is not a function: there are 1");
  EXPECT_EQ(body("param %1 const \"c\" f32[]"),
            "3:12: expected input, weight or state, found \"const\"");
  EXPECT_EQ(body("param %1 state \"c\" f32[] donated 2"), "3:36: donated to result 2, there are 0");
  EXPECT_EQ(body("result \"y\" %0 }"), "4:1: expected func, found \"}\"");
  EXPECT_EQ(body("result \"\\q\" %0"), "3:12: expected \\n, \\\", \\\\ or \\xHH");
}

// Mutated text parses or gives an error with its place; what parses prints, parses and verifies (or
// gives an error) again. Run under a sanitizer this shows that nothing is read out of bounds.
TEST(Text, MutationsNeverCrash) {
  std::vector<std::string> seeds;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Module m;
    ASSERT_TRUE(testing::RandomGraph(m, seed).build().ok());
    seeds.push_back(to_text(m));
  }
  const std::string_view pieces[] = {"%0", "%1",  "-1",  "0",    "99",  "(",    ")",    "[",  "]",
                                     "{",  "}",   ",",   ":",    "=",   "*",    "n",    "\"", "\\",
                                     "#",  "inf", "f16", "bool", "i64", "true", "nan(", "\n", "1e"};
  std::mt19937_64 rng(7);
  int n_parsed = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = seeds[rng() % seeds.size()];
    for (uint64_t edits = 1 + rng() % 3; edits-- > 0;) {
      const size_t at = rng() % text.size(), n = rng() % 6;
      const std::string_view piece = pieces[rng() % std::size(pieces)];
      switch (rng() % 4) {
        case 0:
          text.erase(at, n);
          break;
        case 1:
          text.insert(at, piece);
          break;
        case 2:
          text.replace(at, std::min(n, text.size() - at), piece);
          break;
        default:
          text[at] = static_cast<char>(rng());
      }
      if (text.empty()) text = " ";
    }
    n_parsed += test::goes_round(text);
  }
  EXPECT_GT(n_parsed, 100);  // else the mutations are too wild to test anything
}

}  // namespace
}  // namespace tegula
