// Plans as text: a loaded plan prints the same table and gives the same bits; text that is cut,
// altered or hostile is refused with a reason, and never crashes.
#include "tegula/plan/plan_json.h"

#include <gtest/gtest.h>

#include <random>

#include "tegula/io/json.h"
#include "tegula/io/sha256.h"
#include "tegula/ops/control.h"
#include "tegula/runtime/compile.h"
#include "tegula/train/step.h"
#include "tests/common/random_graph.h"
#include "tests/common/run_plan.h"

namespace tegula {
namespace {

std::shared_ptr<const Plan> compiled(const std::shared_ptr<Module>& m, FuncId f) {
  CompileOptions o;
  o.plan.verify = true, o.plan.target.n_threads = 2;
  auto c = compile(m, f, o);
  EXPECT_TRUE(c.ok()) << c.error().to_string();
  return c->plan;
}

void expect_round_trip(const Plan& plan, const std::vector<HostTensor>& in,
                       std::span<const int64_t> extents = {}) {
  const std::string text = plan_to_json(plan);
  auto loaded = plan_from_json(text, "plan.json");
  ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
  EXPECT_EQ(loaded->to_string(), plan.to_string());
  EXPECT_EQ(plan_to_json(*loaded), text);
  const auto want = test::run_plan(plan, in, extents), have = test::run_plan(*loaded, in, extents);
  for (size_t r = 0; r < want.size(); ++r)
    EXPECT_EQ(have[r].bytes, want[r].bytes) << plan.results[r].name;
}

TEST(PlanJson, TrainingStepsOfEveryModel) {
  for (const ModelDef* model : all_models()) {
    TrainConfig c;
    c.model.type = model->name;
    c.model.vocab_size = 20, c.model.n_layers = 2, c.model.n_heads = 2, c.model.d_model = 16;
    c.model.max_seqlen = 8, c.model.dropout = 0.1, c.batch = 2;
    ASSERT_TRUE(c.model.resolve().ok());
    auto f = build_step_functions(c);
    ASSERT_TRUE(f.ok()) << f.error().to_string();
    const auto plan = compiled(f->module, f->train_step);
    expect_round_trip(*plan, test::random_inputs(*f->module, (*f->module)[f->train_step], 1));
  }
}

std::shared_ptr<const Plan> loop() {
  auto m = std::make_shared<Module>();
  Builder b(*m, "loop \"quoted\"\n");
  const Dim n = m->add_symbol("n", 6);
  const Type h = {DType::kF32, {4}};
  const Var h0 = b.param("h", h), x = b.param("x", {DType::kF32, {n, 4}}), k = b.param("k", h);
  auto r = scan(b, {h0}, {x}, {k},
                [](Builder&, Vars c, Vars xs, Vars i) -> StepResult {
                  const Var next = tanh(c[0] * i[0] + xs[0] * 1e-3);
                  return {{next}, {next * c[0]}};
                },
                {.reverse = true});
  const auto y = cond(
      gt(reduce_sum(r.carry[0], {0}), 0.0), {r.carry[0]},
      [](Builder&, Vars v) { return std::vector{sin(v[0])}; },
      [](Builder&, Vars v) { return std::vector{v[0] * 2.0}; });
  b.result("y", y[0]), b.result("ys", r.ys[0]);
  return compiled(m, *b.finish_into_module());
}

TEST(PlanJson, RegionsAndSymbols) {
  const auto plan = loop();
  const Function& f = (*plan->module)[plan->function];
  for (int64_t n : {6, 3, 1, 0})
    expect_round_trip(*plan, test::random_inputs(*plan->module, f, 1, std::span(&n, 1)),
                      std::span(&n, 1));
}

TEST(PlanJson, RandomGraphs) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    auto m = std::make_shared<Module>();
    auto f = testing::RandomGraph(*m, seed).build();
    ASSERT_TRUE(f.ok());
    const auto plan = compiled(m, *f);
    expect_round_trip(*plan, testing::random_inputs((*m)[*f], seed));
  }
}

void expect_refused(std::string_view text, std::string_view why) {
  auto p = plan_from_json(text, "plan.json");
  ASSERT_FALSE(p.ok());
  EXPECT_NE(p.error().message.find("plan.json"), std::string::npos) << p.error().message;
  EXPECT_NE(p.error().message.find(why), std::string::npos) << p.error().message;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// The same with a hash that fits.
std::string rehashed(Json file) {
  file.set("sha256", sha256_hex(file.find("plan")->dump()));
  return file.dump();
}
std::string edited(const std::string& text, std::string_view from, std::string_view to) {
  return rehashed(*Json::parse(replaced(text, from, to), "test"));
}

TEST(PlanJson, RefusalsSayWhy) {
  const std::string text = plan_to_json(*loop());
  expect_refused("", "plan.json");
  expect_refused("{}", "this is no saved plan");
  expect_refused("[1, 2]", "this is no saved plan");
  expect_refused(replaced(text, cat("\"version\": ", kPlanVersion), "\"version\": 7"),
                 cat("the plan has version 7, this build reads version ", kPlanVersion));
  expect_refused(
      edited(text, cat("\"isa\": \"", isa_name(machine_isa()), "\""), "\"isa\": \"sve2\""),
      "there is no instruction set sve2");
  expect_refused(edited(text, "\"device\": \"cpu\"", "\"device\": \"tpu\""),
                 "there is no device tpu");
  expect_refused(replaced(text, "[\"n\", 6, 0, \"\"]", "[\"n\", 7, 0, \"\"]"), "SHA-256");
  expect_refused(edited(text, "\"op\": \"scan\"", "\"op\": \"spin\""), "this build has no op spin");
  expect_refused(edited(text, "\"kernel\": \"fused\"", "\"kernel\": \"fusing\""),
                 "this build has no kernel fusing");
  expect_refused(edited(text, "[\"n\", 6, 0, \"\"]", "[\"n\", -6, 0, \"\"]"), "a bound is -6");
  expect_refused(edited(text, "[\"n\", 6, 0, \"\"]", "[\"n\", 9000000, 0, \"\"]"),
                 "breaks M2 tensors");
  expect_refused(edited(text, "[\"n\", 6, 0, \"\"]", "[\"n\", 6, 7, \"\"]"), "breaks M2 tensors");
  expect_refused(edited(text, "\"n_threads\": 2", "\"n_threads\": 3"), "breaks M");
}

TEST(PlanJson, TruncatedAnywhere) {
  const std::string text = plan_to_json(*loop());
  for (size_t n = 0; n + 1 < text.size(); ++n)
    ASSERT_FALSE(plan_from_json(std::string_view(text).substr(0, n), "plan.json").ok()) << n;
}

TEST(PlanJson, AnyByteChanged) {
  const std::string text = plan_to_json(*loop());
  std::mt19937_64 rng(1);
  for (size_t at = 0; at + 1 < text.size(); ++at) {
    std::string bad = text;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (rng() % 8)));
    auto p = plan_from_json(bad, "plan.json");
    // A text that means the same is the same: a space for a space.
    if (p.ok()) ASSERT_EQ(plan_to_json(*p), text) << at;
  }
}

// All numbers, names and lists of a tree, in order.
void leaves(Json& j, std::vector<Json*>& out) {
  out.push_back(&j);
  if (auto* a = j.as<Json::Array>())
    for (Json& x : *a) leaves(x, out);
  if (auto* o = j.as<Json::Object>())
    for (auto& m : *o) leaves(m.value, out);
}

// A few hundred bytes may claim a tensor in a billion places; listing them would take all memory.
TEST(PlanJson, RefusesATensorInVeryManyPlaces) {
  auto m = std::make_shared<Module>();
  Builder b(*m, "f");
  b.result("y", b.param("x", {DType::kF32, {int64_t{1} << 30}}) + 1.0);
  const std::string text = plan_to_json(*compiled(m, *b.finish_into_module()));
  Json file = *Json::parse(text, "test");
  const std::string plain = file.find("plan")->dump();
  std::string scattered = plain;
  // The parameter's stride of 1 becomes 2, in a slot of twice the size.
  for (const auto& [from, to] :
       {std::pair("[1073741824], [1]", "[1073741824], [2]"), std::pair("4294967296", "8589934592")})
    for (size_t at = 0; (at = scattered.find(from, at)) != scattered.npos; at += 3)
      scattered.replace(at, std::string_view(from).size(), to);
  ASSERT_NE(scattered, plain);
  Json hostile = *Json::parse(scattered, "test");
  hostile.set("arena_bytes", int64_t{1} << 40);
  file.set("plan", std::move(hostile));
  expect_refused(rehashed(file), "is scattered over more than 1048576 places");
}

// Hostile plans whose hash fits: refused, or safe to print and, when small, to run.
TEST(PlanJson, HostileValuesAreRefusedOrSafe) {
  const std::string texts[] = {plan_to_json(*loop()), [] {
                                 auto m = std::make_shared<Module>();
                                 auto f = testing::RandomGraph(*m, 5, {.n_nodes = 40}).build();
                                 return plan_to_json(*compiled(m, *f));
                               }()};
  std::mt19937_64 rng(7);
  int n_refused = 0, n_accepted = 0;
  for (const std::string& text : texts)
    for (int round = 0; round < 800; ++round) {
      Json file = *Json::parse(text, "test");
      std::vector<Json*> all;
      leaves(*const_cast<Json*>(file.find("plan")), all);
      Json& j = *all[rng() % all.size()];
      const Json other = *all[rng() % all.size()];
      const int64_t numbers[] = {0,       1,         -1,        2,         63,
                                 1 << 20, 1LL << 41, INT64_MAX, INT64_MIN, -(1LL << 40)};
      switch (rng() % 4) {
        case 0:
          j = numbers[rng() % std::size(numbers)];
          break;
        case 1:
          if (const int64_t* v = j.as<int64_t>()) j = *v + static_cast<int64_t>(rng() % 5) - 2;
          break;
        case 2:
          j = other;
          break;
        default:
          if (auto* a = j.as<Json::Array>()) {
            if (!a->empty() && rng() % 2) {
              a->pop_back();
            } else {
              a->push_back(other);
            }
          }
      }
      auto p = plan_from_json(rehashed(std::move(file)), "plan.json");
      p.ok() ? ++n_accepted : ++n_refused;
      if (p.ok()) EXPECT_FALSE(p->to_string().empty());
    }
  EXPECT_GT(n_refused, 300);
  EXPECT_GT(n_accepted, 20);
}

}  // namespace
}  // namespace tegula
