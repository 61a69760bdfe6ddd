// Boxes of programs that are right in part equal what brute force finds, and the correction is
// right.
#include "tools/rules/pet/pet.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tegula/base/philox.h"
#include "tegula/runtime/compile.h"
#include "tests/common/run_plan.h"
#include "tools/rules/generate/generate.h"

namespace tegula::superopt {
namespace {

Rule rule_of(const std::string& text) {
  auto rules = parse_rules("rule r\n" + text, "test");
  EXPECT_TRUE(rules.ok()) << (rules.ok() ? "" : rules.error().message) << "\n" << text;
  return rules.ok() ? (*rules)[0] : Rule();
}

// Elements at which both sides differ, all of them computed.
std::set<std::vector<int64_t>> brute_force(const Rule& rule, const std::vector<int64_t>& shape) {
  std::vector<FieldTensor> in;
  for (size_t k = 0; k < rule.graph.inputs.size(); ++k) {
    std::vector<int64_t> s;
    for (const Poly& p : rule.graph.inputs[k].shape) s.push_back(p.constant());
    in.push_back(random_tensor(s, 100 + k));
  }
  const auto a = evaluate(rule.graph, rule.left, {}, in),
             b = evaluate(rule.graph, rule.right, {}, in);
  EXPECT_TRUE(a.ok() && b.ok());
  std::set<std::vector<int64_t>> wrong;
  std::vector<int64_t> index(shape.size());
  for (size_t i = 0; i < a->data.size(); ++i) {
    size_t rest = i;
    for (size_t d = shape.size(); d-- > 0; rest /= static_cast<size_t>(shape[d]))
      index[d] = static_cast<int64_t>(rest % static_cast<size_t>(shape[d]));
    if (a->data[i] != b->data[i]) wrong.insert(index);
  }
  return wrong;
}

size_t n_in(const std::vector<Box>& boxes, const std::set<std::vector<int64_t>>& wrong) {
  size_t n = 0;
  for (const Box& b : boxes)
    for (const auto& i : wrong) {
      bool is_in = true;
      for (size_t d = 0; d < i.size(); ++d) is_in &= b.lo[d] <= i[d] && i[d] < b.hi[d];
      n += is_in;
    }
  return n;
}

// A program and what a rewriting that is not quite one makes of it: images beside one another,
// weights of another piece, kernels, paddings and slices that are a little off.
struct Mutants {
  uint64_t seed, drawn = 0;
  int64_t upto(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(philox_bits(seed, 3, drawn++) %
                                        static_cast<uint64_t>(most - least + 1));
  }
  std::string next() {
    const int64_t c = upto(1, 3), o = upto(1, 3), h = upto(4, 7), w = upto(4, 7), k = upto(1, 3),
                  pad = upto(0, k - 1), cut = upto(1, 2);
    const auto conv = [&](const std::string& x, const std::string& a, int64_t lo, int64_t hi) {
      return cat("conv(", x, ",", a, ",lo=[", lo, ",", lo, "],hi=[", hi, ",", hi, "])");
    };
    const std::string images =
        cat("inputs x[1,", c, ",", h, ",", w, "] y[1,", c, ",", h, ",", w, "] a[", o, ",", c, ",",
            k, ",", k, "] b[", o, ",", c, ",", k, ",", k, "]\n");
    const int64_t dim = upto(2, 3);
    switch (upto(0, 5)) {
      case 0: {  // two images beside one another, as far as sizes agree
        const int64_t lo = k / 2, hi = k - 1 - lo;
        return cat(images, "left concat(", conv("x", "a", lo, hi), ",", conv("y", "a", lo, hi),
                   ",dim=", dim, ")\nright ", conv(cat("concat(x,y,dim=", dim, ")"), "a", lo, hi),
                   "\n");
      }
      case 1: {  // the weights of another piece
        const char* pieces[] = {"a", "b"};
        return cat(images, "left ", conv("x", "concat(a,b,dim=0)", pad, pad), "\nright ",
                   conv("x", cat("concat(", pieces[upto(0, 1)], ",", pieces[upto(0, 1)], ",dim=0)"),
                        pad, pad),
                   "\n");
      }
      case 2: {  // what is cut is not padded again
        return cat("inputs x[", h, ",", w, "]\nleft x\nright pad(slice(x,dim=", dim - 2,
                   ",start=", cut, ",size=", (dim == 2 ? h : w) - cut, "),dim=", dim - 2,
                   ",lo=", cut, ")\n");
      }
      case 3: {  // a sum of which one addend is a piece
        return cat("inputs x[", h, ",", w, "] y[", h, ",", w, "] z[", h, ",", w,
                   "]\nleft add(x, y)\nright add(x, concat(slice(y,dim=0,start=0,size=", cut,
                   "),slice(", upto(0, 1) ? "z" : "y", ",dim=0,start=", cut, ",size=", h - cut,
                   "),dim=0))\n");
      }
      case 4:  // rows as one row, columns of a neighbour
        return cat("inputs x[", h, ",", w,
                   "]\nleft x\nright reshape(concat(slice(reshape(x,shape=[", h * w,
                   "]),dim=0,start=0,size=", h * w - cut, "),slice(reshape(x,shape=[", h * w,
                   "]),dim=0,start=", upto(0, h * w - cut), ",size=", cut, "),dim=0),shape=[", h,
                   ",", w, "])\n");
      default:  // an image that slides under the same kernel
        return cat(
            images, "left ", conv("x", "a", pad, pad), "\nright ",
            conv(cat("concat(slice(x,dim=", dim, ",start=0,size=", cut, "),slice(y,dim=", dim,
                     ",start=", cut, ",size=", (dim == 2 ? h : w) - cut, "),dim=", dim, ")"),
                 "a", pad, pad),
            "\n");
    }
  }
};

TEST(Pet, BoxesEqualBruteForceAndCorrectionsAreRight) {
  int n_partial = 0;
  constexpr int kMutants = 1000;
  for (int m = 0; m < kMutants; ++m) {
    const std::string text = Mutants{static_cast<uint64_t>(m)}.next();
    const Rule rule = rule_of(text);
    const auto partial = compare(rule, {});
    ASSERT_TRUE(partial.ok()) << text << partial.error().message;
    const auto wrong = brute_force(rule, partial->shape);
    int64_t n_wrong = 0, n = 1;
    for (const Box& b : partial->wrong) n_wrong += b.n_elements();
    for (const int64_t size : partial->shape) n *= size;
    ASSERT_EQ(n_wrong, static_cast<int64_t>(wrong.size())) << text;
    ASSERT_EQ(n_in(partial->wrong, wrong), wrong.size()) << text;
    const auto rank = static_cast<int64_t>(partial->shape.size());
    EXPECT_LE(static_cast<double>(partial->wrong.size()), std::pow(3, rank)) << text;
    EXPECT_LE(partial->positions_tested, (rank + 1) * partial->n_boxes);
    n_partial += n_wrong > 0 && n_wrong < n;
    const auto corrected = correct(rule, {}, partial->wrong);
    ASSERT_TRUE(corrected.ok()) << text << corrected.error().message;
    ASSERT_TRUE(brute_force(*corrected, partial->shape).empty()) << text << corrected->text();
  }
  RecordProperty("partial", n_partial);
  EXPECT_GE(n_partial, kMutants * 4 / 10);
}

TEST(Pet, PositionsDoNotDependOnSizes) {
  int64_t first = 0;
  for (const int64_t w : {6, 12, 48}) {
    const Rule rule = rule_of(
        cat("inputs x[1,2,6,", w, "] y[1,2,6,", w,
            "] a[2,2,3,3]\nleft concat(conv(x,a,lo=[1,1],hi=[1,1]),conv(y,a,lo=[1,1],hi=[1,1]),dim="
            "3)\nright conv(concat(x,y,dim=3),a,lo=[1,1],hi=[1,1])\n"));
    const auto partial = compare(rule, {});
    ASSERT_TRUE(partial.ok());
    ASSERT_EQ(partial->wrong.size(), 1u);
    EXPECT_EQ(partial->wrong[0].lo, (std::vector<int64_t>{0, 0, 0, w - 1}));
    EXPECT_EQ(partial->wrong[0].hi, (std::vector<int64_t>{1, 2, 6, w + 1}));
    if (first == 0) first = partial->positions_tested;
    EXPECT_EQ(partial->positions_tested, first);
    const auto corrected = correct(rule, {}, partial->wrong);
    ASSERT_TRUE(corrected.ok());
    // The seam's share: two columns of 2·w.
    const int64_t extra =
        work_of(corrected->graph, corrected->right, {}) - work_of(rule.graph, rule.right, {});
    EXPECT_LE(extra * w, work_of(rule.graph, rule.left, {}));
  }
}

// The corrected program as it runs: what the original does, and of the whole result nothing is
// moved again but the boxes.
TEST(Pet, CorrectedProgramsRunAndMoveTheirBoxesAlone) {
  const int64_t w = 32;
  const Rule rule = rule_of(cat(
      "inputs x[1,8,16,", w, "] y[1,8,16,", w,
      "] a[8,8,3,3]\nleft concat(conv(x,a,lo=[1,1],hi=[1,1]),conv(y,a,lo=[1,1],hi=[1,1]),dim=3)\n"
      "right conv(concat(x,y,dim=3),a,lo=[1,1],hi=[1,1])\n"));
  const auto partial = compare(rule, {});
  ASSERT_TRUE(partial.ok());
  const auto corrected = correct(rule, {}, partial->wrong);
  ASSERT_TRUE(corrected.ok());
  std::vector<HostTensor> results[2];
  for (const bool is_right : {false, true}) {
    auto module = graph_of(*corrected, is_right ? corrected->right : corrected->left);
    ASSERT_TRUE(module.ok()) << module.error().message;
    CompileOptions o;
    o.plan.verify = true;
    const auto compiled = tegula::compile(std::make_shared<Module>(std::move(*module)), 0, o);
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    const Plan& plan = *compiled->plan;
    std::vector<HostTensor> in;
    for (const auto& p : plan.params) in.push_back(test::random_tensor(p.tensor.type, in.size()));
    results[is_right] = test::run_plan(plan, in);
    // Behind the convolution of both images, 256 bytes a row and 128 rows: 2 columns of boxes.
    int64_t written = 0;
    for (const Step& s : plan.steps)
      if (s.op->name == "dynamic_update_slice") {
        EXPECT_EQ(s.out[0].slot, s.in[0].slot) << plan.to_string();  // in place
        EXPECT_EQ(s.out[0].byte_offset, s.in[0].byte_offset);
        written += s.in[1].type.bytes();
      } else if (is_right && s.op->name == "concat") {
        EXPECT_EQ(&s, &plan.steps[0]) << plan.to_string();  // of x and y alone
      }
    if (is_right) EXPECT_EQ(written, partial->wrong[0].n_elements() * 4);
  }
  ASSERT_EQ(results[0][0].numel(), results[1][0].numel());
  for (int64_t i = 0; i < results[0][0].numel(); ++i)
    ASSERT_NEAR(results[0][0].at(i), results[1][0].at(i), 1e-4) << i;
}

// The rules' conv in groups is the op's.
TEST(Graphs, OfRulesComputeTheRulesMeaning) {
  const Rule rule = rule_of(
      "inputs x[2,6,7,5] a[4,3,3,2]\nleft "
      "conv(x,a,lo=[1,0],hi=[0,1],stride=[2,1],out=[3,5],groups=2)\n"
      "right "
      "concat(conv(slice(x,dim=1,start=0,size=3),slice(a,dim=0,start=0,size=2),lo=[1,0],hi=[0,"
      "1],stride=[2,1],out=[3,5]),conv(slice(x,dim=1,start=3,size=3),slice(a,dim=0,start=2,size=2),"
      "lo=[1,0],hi=[0,1],stride=[2,1],out=[3,5]),dim=1)\n");
  EXPECT_TRUE(brute_force(rule, {2, 4, 3, 5}).empty());
  std::vector<HostTensor> results[2];
  for (const bool is_right : {false, true}) {
    auto module = graph_of(rule, is_right ? rule.right : rule.left);
    ASSERT_TRUE(module.ok()) << module.error().message;
    const auto compiled = tegula::compile(std::make_shared<Module>(std::move(*module)), 0, {});
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    std::vector<HostTensor> in;
    for (const auto& p : compiled->plan->params)
      in.push_back(test::random_tensor(p.tensor.type, in.size()));
    results[is_right] = test::run_plan(*compiled->plan, in);
  }
  ASSERT_EQ(results[0][0].numel(), 2 * 4 * 3 * 5);
  for (int64_t i = 0; i < results[0][0].numel(); ++i)
    ASSERT_NEAR(results[0][0].at(i), results[1][0].at(i), 1e-4) << i;
}

TEST(Pet, RefusesWhatIsNoSumOfProducts) {
  EXPECT_FALSE(compare(rule_of("inputs x[4] y[4]\nleft max(x,y)\nright max(y,x)\n"), {}).ok());
  EXPECT_FALSE(compare(rule_of("inputs x[4] y[5]\nleft x\nright y\n"), {}).ok());
}

TEST(Pet, SizesThatLeaveTheIntegersAreRefused) {
  const auto rule = [](const std::string& text) {
    return (*parse_rules("rule r\n" + text, "t"))[0];
  };
  const auto expect = [](const Rule& r, std::map<Symbol, int64_t> sizes, std::string_view why) {
    Assignment at;
    at.integers = std::move(sizes);
    const auto p = compare(r, at);
    ASSERT_FALSE(p.ok());
    EXPECT_NE(p.error().message.find(why), std::string::npos) << p.error().message;
  };
  const Rule merged = rule(
      "sizes a b c d e\ninputs x[a,b,c,d,e]\nleft reshape(x, shape=[a*b*c*d*e])\n"
      "right reshape(x, shape=[a*b*c*d*e])\n");
  std::map<Symbol, int64_t> all;
  for (const char* name : {"a", "b", "c", "d", "e"}) all[Symbol(name)] = 1 << 20;
  expect(merged, all, "elements are too many");
  const Rule far = rule(
      "sizes n\ninputs x[n]\nleft pad(x, dim=0, lo=1000000000*n, hi=-1000000000*n)\n"
      "right x\n");
  expect(far, {{Symbol("n"), 4}}, "is too large at these sizes");
}

}  // namespace
}  // namespace tegula::superopt
