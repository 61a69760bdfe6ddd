// The named rules are true; the search takes them where they pay, and what it makes computes the
// same.
#include "tegula/passes/superopt/search.h"

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "tegula/base/philox.h"
#include "tegula/cost/calls.h"
#include "tegula/ir/hash.h"
#include "tegula/ops/attention.h"
#include "tegula/ops/conv.h"
#include "tegula/passes/superopt/blocks.h"
#include "tegula/passes/superopt/match.h"
#include "tests/passes/passes.h"
#include "tools/rules/check/check.h"
#include "tools/rules/generate/generate.h"
#include "tools/rules/prove/evaluate.h"

namespace tegula {
namespace {

using superopt::Found;
constexpr DType F = DType::kF32;

TEST(NamedRules, AreProvenCheckedAndOfTheirClass) {
  EXPECT_GE(superopt::named_rules().size(), 10u);
  for (superopt::Rule rule : superopt::named_rules()) {
    const superopt::Proof proof = superopt::prove(rule);
    EXPECT_TRUE(proof.is_proven) << rule.name << ": " << proof.failure;
    EXPECT_FALSE(superopt::is_refuted(rule, 20, 1)) << rule.name;
    ASSERT_TRUE(rule.notes.contains("class")) << rule.name;
    EXPECT_EQ(rule.notes["class"], superopt::class_of(rule)) << rule.name;
    // The proof holds for a program that shares no code with the one that found it.
    rule.proof = proof.steps, rule.has_proof = true;
    const auto checked = rulecheck::check_rules(rule.text(), "named.rules");
    ASSERT_TRUE(checked.ok()) << checked.error().message;
    EXPECT_EQ(*checked, 1);
  }
}

struct Net {
  Module m;
  Builder b{m, "f"};
  Var in(const char* name, Shape s) { return b.param(name, {F, s}); }
  Var w(const std::string& name, Shape s) { return b.weight(name, {F, s}); }
};

// A machine that says what the test wants of candidates; here they are compared by interpretation.
struct Fake : superopt::Trial {
  double times_faster = 1.5;
  bool same = true;
  double in_second_round = 1.5;
  int64_t kept = 0, rounds = 0;
  Result<std::vector<Timed>> time(std::span<const Module> all, double) override {
    const double faster = ++rounds == 1 ? times_faster : in_second_round;
    std::vector<Timed> out(all.size(), {1, faster, same});
    out[0] = {1, 1, true};
    return out;
  }
  std::string recall(uint64_t) override { return ""; }
  void keep(uint64_t, const std::string& text, bool) override { kept += text != "-"; }
};

struct Searched {
  Found found;
  bool changed = false;
};
// Passes are left out, so that the search must find what they do.
Searched search(Module& m, FuncId f, Mode mode = Mode::kExact, double seconds = 5,
                superopt::Trial* trial = nullptr, const superopt::RuleSet* rules = nullptr) {
  Searched s;
  Fake confirms;
  if (!trial && mode == Mode::kExact) trial = &confirms;
  Superoptimise how{.seconds = seconds, .passes = "-merge_products,-merge_sums", .trial = trial};
  how.found = &s.found, how.rules = rules;
  PassOptions o;
  o.mode = mode, o.superopt = &how;
  const Function before = m[f];
  s.changed = run(m, f, "superopt", o);
  if (mode == Mode::kExact) expect_same_bits(m, before, m[f]);
  return s;
}

void expect_near(const Module& m, const Function& before, const Function& after, double bound) {
  const std::vector<HostTensor> in = random_inputs(m, before, 1);
  const auto a = interpret(m, before, in, Arithmetic::kNaive, some_extents(m));
  const auto b = interpret(m, after, in, Arithmetic::kNaive, some_extents(m));
  ASSERT_TRUE(a.ok() && b.ok());
  for (size_t r = 0; r < a->size(); ++r) {
    ASSERT_EQ((*a)[r].type.shape, (*b)[r].type.shape);
    for (int64_t i = 0; i < (*a)[r].numel(); ++i)
      ASSERT_NEAR((*a)[r].at(i), (*b)[r].at(i), bound) << "result " << r << ", " << i;
  }
}

TEST(Superopt, GetsThePlanOfQkvConcatBack) {
  for (const bool in_rows : {false, true}) {
    Net n;
    const Var x = n.in("x", {4, 64, 16});
    for (const char* name : {"q", "k", "v"})
      n.b.result(name, in_rows ? dot("b m k, n k -> b m n", x, n.w(name, {8, 16}))
                               : dot("b m k, k n -> b m n", x, n.w(name, {16, 8})));
    const FuncId f = finish(n.b);
    const Searched s = search(n.m, f);
    EXPECT_TRUE(s.changed);
    EXPECT_EQ(count(n.m[f], dot_op), 1);
    EXPECT_EQ(count(n.m[f], concat_op), 1);
    ASSERT_EQ(s.found.rules.size(), 1u);
    EXPECT_EQ(s.found.rules[0].times, 2);
    EXPECT_TRUE(s.found.rules[0].keeps_order);
  }
}

// The tool's rules without those of these names, and those of the text, once proven.
superopt::RuleSet rules_with(const std::string& text, const std::string& without) {
  const auto proven = superopt::prove_file(text, "test");
  EXPECT_TRUE(proven.ok()) << (proven.ok() ? "" : proven.error().message);
  const auto read = superopt::read_rules(proven->text, "test");
  EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.error().message);
  std::vector<superopt::Rule> all = (*read)->all();
  const size_t before = all.size();
  all.erase(std::remove_if(all.begin(), all.end(),
                           [&](const superopt::Rule& r) { return r.name.find(without) == 0; }),
            all.end());
  EXPECT_LT(all.size(), before);
  const size_t n_named = (*read)->n_named() - (before - all.size());
  return {std::move(all), n_named};
}

TEST(Superopt, TakesRulesOfAFileWhereItHasNoneOfItsOwn) {
  Net n;
  const Var x = n.in("x", {256, 64});
  for (const char* name : {"q", "k", "v"})
    n.b.result(name, dot("m k, k n -> m n", x, n.w(name, {64, 8})));
  const FuncId f = finish(n.b);
  // As the generator writes it, and the other way round.
  for (const bool is_backwards : {false, true}) {
    const std::string sides[] = {"concat(dot(x, a), dot(x, b), dim=1)\n",
                                 "dot(x, concat(a, b, dim=1))\n"};
    const std::string text =
        cat("rule of_file\nclass exact\nsizes m k n1 n2\ninputs x[m,k] a[k,n1] b[k,n2]\nleft ",
            sides[is_backwards], "right ", sides[!is_backwards]);
    Module m = n.m;
    const auto without = rules_with("rule r\nsizes n\ninputs x[n]\nleft neg(x)\nright neg(x)\n",
                                    "products_of_one_value");
    EXPECT_FALSE(search(m, f, Mode::kExact, 5, nullptr, &without).changed);
    const auto with = rules_with(text, "products_of_one_value");
    const Searched s = search(m, f, Mode::kExact, 5, nullptr, &with);
    EXPECT_TRUE(s.changed);
    EXPECT_EQ(count(m[f], dot_op), 1);
    ASSERT_EQ(s.found.rules.size(), 1u);
    EXPECT_EQ(s.found.rules[0].name, is_backwards ? "of_file_backwards" : "of_file");
    EXPECT_EQ(s.found.rules[0].times, 2);
    EXPECT_NE(with.hash(), without.hash());
  }
}

TEST(Superopt, ConvolutionsBecomeGroupsAndRulesOfNoneLeaveThem) {
  Net n;
  ConvOptions same;
  same.lo = same.hi = {1, 1};
  std::vector<Var> paths;
  for (int i = 0; i < 4; ++i)
    paths.push_back(
        conv(n.in(cat("x", i).c_str(), {1, 8, 6, 6}), n.w(cat("w", i), {8, 8, 3, 3}), same));
  for (size_t i = 0; i < paths.size(); ++i) n.b.result(cat("y", i), paths[i]);
  const FuncId f = finish(n.b);
  std::ifstream file("tests/data/rules_groups.txt");
  std::stringstream text;
  text << file.rdbuf();
  const auto rules = superopt::parse_rules(text.str(), "rules_groups.txt");
  ASSERT_TRUE(rules.ok());
  const auto named = [&](std::string_view name) {
    return *std::find_if(rules->begin(), rules->end(),
                         [&](const superopt::Rule& r) { return r.name == name; });
  };
  const Function before = n.m[f];
  for (const char* name : {"convolutions_as_groups", "convolutions_as_groups", "groups_2_as_4"}) {
    const auto found = superopt::find_matches(n.m, n.m[f], named(name));
    ASSERT_FALSE(found.empty()) << name;
    auto after = superopt::apply(n.m, n.m[f], named(name), found.back());
    ASSERT_TRUE(after) << name;
    n.m[f] = std::move(*after);
  }
  EXPECT_EQ(count(n.m[f], conv_op), 1);
  expect_same_bits(n.m, before, n.m[f]);
  for (const superopt::Rule& rule : superopt::named_rules())
    EXPECT_TRUE(superopt::find_matches(n.m, n.m[f], rule).empty()) << rule.name;
}

// The other way round, a function would stand at right alone.
TEST(Superopt, TakesNoRuleWhoseLeftSideLacksWhatTheRightTakes) {
  const auto rules = rules_with(
      "rule r\nsizes n m\nfunctions f g\ninputs x[n,m]\n"
      "left slice(concat(f(x), g(x), dim=0), dim=0, start=0, size=n)\nright f(x)\n",
      "products_of_one_value");
  Net n;
  n.b.result("y", relu(n.in("x", {256, 64})));
  const FuncId f = finish(n.b);
  EXPECT_FALSE(search(n.m, f, Mode::kExact, 5, nullptr, &rules).changed);
  for (const superopt::Rule& r : rules.all()) EXPECT_NE(r.name, "r_backwards");
}

TEST(Superopt, GetsThePlanOfQkvGradsBack) {
  Net n;
  const Var x = n.in("x", {8, 64, 32});
  Var sum;
  n.b.set_phase(Phase::kBackward);
  for (int i = 0; i < 3; ++i) {
    const Var d = n.in(cat("d", i).c_str(), {8, 64, 8}), w = n.w(cat("w", i), {8, 32});
    const Var part = dot("b s n, n k -> b s k", d, w);
    sum = sum.valid() ? sum + part : part;
    n.b.result(cat("dw", i), dot("b s k, b s n -> n k", x, d));
  }
  n.b.result("dx", sum);
  const FuncId f = finish(n.b);
  const Function before = n.m[f];
  const Searched s = search(n.m, f, Mode::kFast);
  EXPECT_TRUE(s.changed);
  EXPECT_EQ(count(n.m[f], dot_op), 2);
  expect_near(n.m, before, n.m[f], 1e-3);
  // Sums of other lengths are not for mode exact.
  Module again = n.m;
  again[f] = before;
  for (const auto& rule : search(again, f).found.rules) EXPECT_TRUE(rule.keeps_order) << rule.name;
}

const superopt::Rule& named(std::string_view name) {
  const auto& all = superopt::named_rules();
  const auto at =
      std::find_if(all.begin(), all.end(), [&](const auto& r) { return r.name == name; });
  EXPECT_NE(at, all.end()) << name;
  return *at;
}

// In bf16, where the passes behind cast what the rules have put together.
TEST(Superopt, GetsPlansBackInBf16) {
  Net n;
  const Var x = n.in("x", {8, 512, 512});
  std::vector<Var> heads;
  for (const char* name : {"q", "k", "v"})
    heads.push_back(reshape(dot("b m k, n k -> b m n", x, n.w(name, {512, 512})), {8, 512, 8, 64}));
  n.b.result("o", attention(heads[0], heads[1], heads[2], {.is_causal = true}).o);
  const FuncId f = finish(n.b);
  Superoptimise how{.seconds = 5, .passes = "-merge_products,-merge_sums"};
  Found found;
  how.found = &found;
  PassOptions o;
  o.mode = Mode::kFast, o.superopt = &how, o.compute_dtype = DType::kBF16;
  const Target h200 = *find_target("h200");
  o.target = &h200;
  EXPECT_TRUE(run(n.m, f, "superopt", o));
  EXPECT_EQ(count(n.m[f], dot_op), 1);
  EXPECT_TRUE(run(n.m, f, "autocast", o));
  EXPECT_EQ(n.m[f].type(only(n.m[f], dot_op)->output()).dtype, DType::kBF16);
  EXPECT_EQ(n.m[f].type(only(n.m[f], concat_op)->output()).dtype, DType::kBF16);
}

// Rules that change the order of sums see through casts, others do not.
TEST(Superopt, SumsSeeThroughCasts) {
  Module m;
  Builder b(m, "f");
  std::vector<Var> parts;
  for (int i = 0; i < 2; ++i) {
    const Var d = b.param(cat("d", i), {DType::kBF16, {2, 16, 4}});
    parts.push_back(
        cast(dot("b s n, n k -> b s k", d, b.param(cat("w", i), {DType::kBF16, {4, 8}})), F));
  }
  b.result("sum", parts[0] + parts[1]);
  b.result("both", concat(parts, 2));
  const FuncId f = finish(b);
  const auto found = superopt::find_matches(m, m[f], named("sum_of_products"));
  ASSERT_EQ(found.size(), 1u);
  const auto after = superopt::apply(m, m[f], named("sum_of_products"), found[0]);
  ASSERT_TRUE(after);
  EXPECT_EQ(count(*after, add_op), 0);
  EXPECT_EQ(after->type(after->results[0].value).dtype, F);
  expect_near(m, m[f], *after, 0.2);
  for (const auto& match : superopt::find_matches(m, m[f], named("products_with_one_weight")))
    EXPECT_TRUE(match.is_split);
  superopt::Rule fast = named("sum_of_products");
  fast.notes["class"] = "exact";
  EXPECT_TRUE(superopt::find_matches(m, m[f], fast).empty());
}

// Any order of dims, more of them for one factor, and a batch beside.
TEST(Superopt, ProductsStandForThoseOfTheirFactors) {
  struct Case {
    const char *spec, *rule;
    Shape a[2], b[2];
    int dim;  // of the concatenation; −1: none stands there
  };
  const Shape x = {3, 16, 8};
  for (const Case& c : std::vector<Case>{
           {"b s k, n k -> n b s", "products_of_one_value", {x, x}, {{4, 8}, {6, 8}}, 0},
           {"e m k, e n k -> e m n", "products_of_one_value", {x, x}, {{3, 4, 8}, {3, 5, 8}}, 2},
           {"e m k, e n k -> e m n", "products_with_one_weight", {x, {3, 4, 8}}, {x, x}, 1},
           {"b s k, b s n -> k n", "products_of_one_value", {x, x}, {{3, 16, 4}, {3, 16, 5}}, 1},
           {"b s k, n k -> b s n", "products_with_one_weight", {x, x}, {{4, 8}, {4, 8}}, -1}}) {
    const bool shares_a = c.rule == std::string_view("products_of_one_value");
    for (const bool is_there : {false, true}) {
      if (c.dim < 0 && is_there) continue;
      Net n;
      std::vector<Var> y;
      const Var shared = n.in("shared", shares_a ? c.a[0] : c.b[0]);
      for (int i = 0; i < 2; ++i) {
        const Var own = n.in(cat("own", i).c_str(), shares_a ? c.b[i] : c.a[i]);
        y.push_back(dot(c.spec, shares_a ? shared : own, shares_a ? own : shared));
        if (!is_there) n.b.result(cat("y", i), y.back());
      }
      if (is_there) n.b.result("both", concat(y, c.dim));
      const FuncId f = finish(n.b);
      const auto found = superopt::find_matches(n.m, n.m[f], named(c.rule));
      ASSERT_EQ(found.size(), c.dim < 0 ? 0u : is_there ? 2u : 1u) << c.spec;
      for (const auto& match : found) {
        const auto after = superopt::apply(n.m, n.m[f], named(c.rule), match);
        ASSERT_TRUE(after) << c.spec;
        EXPECT_EQ(count(*after, dot_op), 1);
        expect_same_bits(n.m, n.m[f], *after);
      }
    }
  }
}

TEST(Superopt, FoldsNormsIntoConvolutions) {
  Net n;
  const Var x = n.in("x", {2, 4, 8, 8});
  ConvOptions same;
  same.lo = same.hi = {1, 1};
  const Var y = conv(x, n.w("w", {6, 4, 3, 3}), same);
  const Var mean = n.w("mean", {1, 6, 1, 1}), scale = n.w("scale", {1, 6, 1, 1});
  n.b.result("y", (y - mean) * scale);
  const FuncId f = finish(n.b);
  const superopt::Rule& rule = named("normalised_convolution");
  const auto found = superopt::find_matches(n.m, n.m[f], rule);
  ASSERT_EQ(found.size(), 1u);
  const auto after = superopt::apply(n.m, n.m[f], rule, found[0]);
  ASSERT_TRUE(after);
  expect_near(n.m, n.m[f], *after, 1e-3);
}

// Every op that a kind stands for is that kind alone: what the kind cannot say would hide it.
TEST(Superopt, PadsAreMatchedAndMade) {
  const superopt::Rule rule =
      superopt::parse_rules(
          "rule pads\nsizes m n\nintegers a b c d\ninputs x[m,n]\nwhere a >= 0\nwhere b >= 0\n"
          "where c >= 0\nwhere d >= 0\nleft pad(pad(x, dim=1, lo=a, hi=b), dim=1, lo=c, hi=d)\n"
          "right pad(x, dim=1, lo=a+c, hi=b+d)\n",
          "t")
          ->front();
  Net n;
  n.b.result("y", pad(pad(n.in("x", {3, 5}), 1, 1, 2, 0, 0), 1, 3, 0, 0, 0));
  const FuncId f = finish(n.b);
  const auto found = superopt::find_matches(n.m, n.m[f], rule);
  ASSERT_EQ(found.size(), 1u);
  const auto after = superopt::apply(n.m, n.m[f], rule, found[0]);
  ASSERT_TRUE(after);
  EXPECT_EQ(count(*after, pad_op), 1);
  expect_same_bits(n.m, n.m[f], *after);
}

TEST(Superopt, LeavesWhatDependsOnWhatItWouldReplace) {
  Net n;
  const Var x = n.in("x", {64, 16});
  const Var y = dot("m k, k n -> m n", x, n.w("a", {16, 16}));
  n.b.result("z", dot("m k, k n -> m n", x, slice(y, 0, 0, 16)));
  const FuncId f = finish(n.b);
  EXPECT_FALSE(search(n.m, f).changed);
}

TEST(Superopt, AlikeBlocksOnceAndEachReplaced) {
  Net n;
  Var x = n.in("x", {256, 16});
  for (int i = 0; i < 6; ++i) {
    Scope layer(n.b, cat("layers.", i));
    const Var a = dot("m k, k n -> m n", x, n.w(cat("a", i), {16, 16}));
    const Var b = dot("m k, k n -> m n", x, n.w(cat("b", i), {16, 16}));
    x = a * b;
  }
  n.b.result("y", x);
  const FuncId f = finish(n.b);
  const Searched s = search(n.m, f);
  EXPECT_EQ(s.found.n_blocks, 6);
  EXPECT_EQ(s.found.n_distinct, 1);
  EXPECT_EQ(count(n.m[f], dot_op), 6);
  EXPECT_EQ(n.m.scopes[n.m[f].producer(n.m[f].results[0].value)->origin.scope], "layers.5");
}

TEST(Superopt, SaysThatThereIsNothingAndThatTheBudgetIsSpent) {
  Net n;
  const Var x = n.in("x", {16, 16});
  n.b.result("y", dot("m k, k n -> m n", x, n.w("w", {16, 16})));
  const FuncId f = finish(n.b);
  const Searched none = search(n.m, f);
  EXPECT_FALSE(none.changed);
  EXPECT_EQ(none.found.lines().back(), "superopt: no rule makes any block faster");
  Net m;
  const Var z = m.in("x", {256, 16});
  for (int i = 0; i < 4; ++i)
    m.b.result(cat("y", i), dot("m k, k n -> m n", z, m.w(cat("w", i), {16, 16})));
  const FuncId g = finish(m.b);
  const Searched spent = search(m.m, g, Mode::kExact, 1e-9);
  EXPECT_TRUE(spent.found.is_spent);
  EXPECT_EQ(spent.found.lines()[1], "superopt: the budget is spent: this is the best so far");
}

TEST(Superopt, TakesNothingInExactWithoutTheTarget) {
  Net n;
  const Var x = n.in("x", {4, 64, 16});
  for (const char* name : {"q", "k", "v"})
    n.b.result(name, dot("b m k, k n -> b m n", x, n.w(name, {16, 8})));
  const FuncId f = finish(n.b);
  Superoptimise how{.seconds = 5, .passes = "-merge_products"};
  Found found;
  how.found = &found;
  PassOptions o;
  o.mode = Mode::kExact, o.superopt = &how;
  EXPECT_FALSE(run(n.m, f, "superopt", o));
  EXPECT_NE(found.failure.find("needs the target"), std::string::npos);
}

TEST(Superopt, TakesOnlyWhatTheMachineConfirms) {
  const auto with = [](Fake trial) {
    Net n;
    const Var x = n.in("x", {4, 64, 16});
    for (const char* name : {"q", "k", "v"})
      n.b.result(name, dot("b m k, k n -> b m n", x, n.w(name, {16, 8})));
    const FuncId f = finish(n.b);
    const bool changed = search(n.m, f, Mode::kExact, 5, &trial).changed;
    EXPECT_EQ(changed, trial.kept == 1);
    return changed;
  };
  EXPECT_TRUE(with({}));
  Fake slower, other_bits;
  slower.times_faster = slower.in_second_round = 1.01, other_bits.same = false;
  EXPECT_FALSE(with(slower));
  Fake by_accident;
  by_accident.times_faster = 3, by_accident.in_second_round = 1.02;
  EXPECT_FALSE(with(by_accident));
  EXPECT_FALSE(with(other_bits));
}

// A machine without time: it times one candidate a search, and keeps what it saw.
struct Slow : Fake {
  std::map<uint64_t, double> speeds;
  std::set<uint64_t> seen;  // hashes of what was timed
  uint64_t last = 0;
  int n_seen_again = 0;
  Result<std::vector<Timed>> time(std::span<const Module> all, double) override {
    const uint64_t first = hash_of(all[1], all[1][0]);
    const bool is_second_round = all.size() == 2 && std::exchange(last, first) == first;
    for (size_t k = 1; k < all.size() && !is_second_round; ++k)
      n_seen_again += seen.contains(hash_of(all[k], all[k][0]));
    seen.insert(last = first);
    return std::vector<Timed>{{1, 1, true}, {1, times_faster, same}};
  }
  double speed(uint64_t c) override { return speeds.contains(c) ? speeds[c] : -1; }
  void keep_speed(uint64_t c, double times) override { speeds[c] = times; }
};

TEST(Superopt, WhatWasTimedSlowerIsNotTimedAgain) {
  for (const bool same : {true, false}) {
    Net n;
    const Var xs[] = {n.in("x", {4, 64, 16}), n.in("u", {4, 64, 16})};
    for (int i = 0; i < 6; ++i)
      n.b.result(cat("y", i), dot("b m k, k n -> b m n", xs[i % 2], n.w(cat("w", i), {16, 8})));
    const FuncId f = finish(n.b);
    const Function before = n.m[f];
    Slow machine;
    machine.times_faster = same ? .97 : 1.5, machine.same = same;
    for (int i = 0; i < 2; ++i) {
      const Searched s = search(n.m, f, Mode::kExact, 5 + i, &machine);
      EXPECT_FALSE(s.changed);
      EXPECT_TRUE(s.found.is_spent);  // more were to be timed
    }
    EXPECT_EQ(machine.seen.size(), 2u);  // the second search went to the next one
    machine.times_faster = 1.5, machine.same = true;
    EXPECT_TRUE(search(n.m, f, Mode::kExact, 5, &machine).changed);
    EXPECT_EQ(machine.seen.size(), 3u);
    EXPECT_EQ(machine.n_seen_again, 0);
    // A candidate that was timed faster is timed again beside others, and first.
    n.m[f] = before;
    EXPECT_TRUE(search(n.m, f, Mode::kExact, 5, &machine).changed);
    EXPECT_EQ(machine.seen.size(), 3u);
  }
}

// Products of a few values in all orders, sums, slices and concatenations.
TEST(Superopt, RandomGraphsComputeTheSame) {
  int n_changed = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Net n;
    uint64_t drawn = 0;
    const auto below = [&](size_t k) { return philox_bits(seed, 7, drawn++) % k; };
    std::vector<Var> rows = {n.in("x", {32, 8}), n.in("y", {32, 8})};
    std::vector<Var> weights = {n.w("a", {8, 8}), n.w("b", {8, 8}), n.w("c", {8, 8})};
    for (int i = 0; i < 8; ++i) {
      const Var u = rows[below(rows.size())], v = rows[below(rows.size())];
      const Var w = weights[below(3)];
      switch (below(4)) {
        case 0:
          rows.push_back(u + v);
          break;
        case 1:
          rows.push_back(tanh(u));
          break;
        default:
          rows.push_back(dot("m k, k n -> m n", u, w));
      }
    }
    for (size_t k = 2; k < rows.size(); ++k) n.b.result(cat("r", k), rows[k]);
    const FuncId f = finish(n.b);
    const Module start = n.m;
    n_changed += search(n.m, f).changed;  // compares bits
    Module fast = start;
    search(fast, f, Mode::kFast);
    expect_near(fast, start[f], fast[f], 0.02);
  }
  EXPECT_GT(n_changed, 20);
}

}  // namespace
}  // namespace tegula
