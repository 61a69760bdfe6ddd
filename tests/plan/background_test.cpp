// Work in the background in a plan: two steps, what lies between them, and every way to get it
// wrong.
#include <gtest/gtest.h>

#include "tegula/ir/sharding.h"
#include "tegula/ops/collective.h"
#include "tegula/ops/math.h"
#include "tegula/plan/plan_json.h"
#include "tegula/plan/verify.h"

namespace tegula {
namespace {

// x -> a; (start) y = a of the neighbour, or the sum of a in two halves; b, c, d beside; (done) y +
// d.
enum class Kind : uint8_t { kRing, kSum };
Plan planned(Kind kind = Kind::kRing) {
  auto module = std::make_shared<Module>();
  Builder b(*module, "ring");
  const Type type{DType::kF32, {64, 64}};
  const Var a = tanh(b.param("x", type));
  const Group g{"cp", 2, true};
  const Var part = kind == Kind::kRing ? send_recv(a, g, {1, 0}) : reduce_scatter(a, g, 0);
  const Var c = cumsum(cumsum(a, 0), 1);
  const Var y = kind == Kind::kRing ? part : all_gather(part, g, 0);
  const Var d = cumsum(c, 0);
  if (kind == Kind::kSum) b.result("share", cumsum(part, 1));  // beside the second half
  b.result("z", cumsum(y, 0) + d);
  PlanOptions options;
  options.verify = true;
  auto plan = make_plan(module, *b.finish_into_module(), options);
  EXPECT_TRUE(plan.ok()) << plan.error().to_string();
  return std::move(*plan);
}

size_t start_of(const Plan& p) {
  for (size_t i = 0; i < p.steps.size(); ++i)
    if (p.steps[i].starts >= 0) return i;
  return p.steps.size();
}
size_t end_of(const Plan& p) {
  for (size_t i = 0; i < p.steps.size(); ++i)
    if (p.steps[i].ends >= 0) return i;
  return p.steps.size();
}

TEST(BackgroundSteps, WhatTheyTouchIsLiveInBetween) {
  const Plan p = planned();
  const size_t start = start_of(p), end = end_of(p);
  ASSERT_LT(start + 1, end);
  ASSERT_LT(end, p.steps.size());
  const Step& s = p.steps[start];
  EXPECT_EQ(p.n_background(), 1);
  for (const auto* tensors : {&s.in, &s.out})
    for (const PlanTensor& t : *tensors) {
      const Slot& slot = p.slots[static_cast<size_t>(t.slot)];
      EXPECT_LE(slot.first_step, static_cast<int>(start));
      EXPECT_GE(slot.last_step, static_cast<int>(end));
    }
  EXPECT_EQ(p.steps[end].bytes, 0);
  const Mesh mesh = *mesh_from_text("cp=2");
  const int64_t at[] = {0};
  EXPECT_EQ(p.sent_bytes(mesh, at), 64 * 64 * 4);
}

TEST(BackgroundSteps, TextAndJsonShowThem) {
  const Plan p = planned();
  EXPECT_NE(p.to_string().find("start 0 send_recv"), std::string::npos) << p.to_string();
  EXPECT_NE(p.to_string().find("done 0 send_recv"), std::string::npos) << p.to_string();
  const std::string text = plan_to_json(p);
  EXPECT_NE(text.find("\"starts\": 0"), std::string::npos);
  EXPECT_NE(text.find("\"ends\": 0"), std::string::npos);
  const auto again = plan_from_json(text, "the plan");
  ASSERT_TRUE(again.ok()) << again.error().to_string();
  EXPECT_EQ(plan_to_json(*again), text);
}

TEST(BackgroundSteps, WithNothingBesideThemAreOne) {
  auto module = std::make_shared<Module>();
  Builder b(*module, "at_once");
  const Var x = b.param("x", {DType::kF32, {8}});
  b.result("y", tanh(send_recv(x, {"cp", 2, true}, {1, 0})));
  const auto plan = make_plan(module, *b.finish_into_module(), {});
  ASSERT_TRUE(plan.ok()) << plan.error().to_string();
  EXPECT_EQ(plan->n_background(), 0);
  EXPECT_EQ(plan->steps.size(), 2U);
}

// The faults, and what finds each.
struct Fault {
  const char* name;
  const char* found;
  void (*plant)(Plan& p, size_t start, size_t end);
};
const Fault kFaults[] = {
    {"never ended", "works are started,",
     [](Plan& p, size_t, size_t end) { p.steps[end].ends = -1; }},
    {"not started", "there is no work 0",
     [](Plan& p, size_t start, size_t) { p.steps[start].starts = -1; }},
    {"ended twice", "ends work 0, which is not running",
     [](Plan& p, size_t, size_t end) {
       p.steps.insert(p.steps.begin() + static_cast<std::ptrdiff_t>(end), p.steps[end]);
     }},
    {"ended before it starts", "ends work 0, which is not running",
     [](Plan& p, size_t start, size_t end) { std::swap(p.steps[start], p.steps[end]); }},
    {"another's end", "which is another",
     [](Plan& p, size_t, size_t end) {
       p.steps[end].attrs.set("from", std::vector<int64_t>{-1, 0});
     }},
    {"its result is read too early", "left scratch there",
     [](Plan& p, size_t start, size_t) {
       const PlanTensor y = p.steps[start].out[0];
       p.steps[start + 1].in[0] = y;
     }},
    {"its operand is written", "",
     [](Plan& p, size_t start, size_t) {
       PlanTensor& out = p.steps[start + 1].out[0];
       out.slot = p.steps[start].in[0].slot;
     }},
    {"its result's place is written", "",
     [](Plan& p, size_t start, size_t) {
       PlanTensor& out = p.steps[start + 1].out[0];
       out.slot = p.steps[start].out[0].slot;
     }},
    {"no collective", "cannot run in the background",
     [](Plan& p, size_t start, size_t) { p.steps[start + 1].starts = 0; }},
};

// An all_reduce is two works, the second of which begins when the first is over.
TEST(BackgroundSteps, ASumIsTwoHalves) {
  const Plan p = planned(Kind::kSum);
  EXPECT_EQ(p.n_background(), 2) << p.to_string();
  const size_t first = end_of(p);
  ASSERT_LT(first + 1, p.steps.size());
  EXPECT_EQ(p.steps[first].op->name, "reduce_scatter");
  EXPECT_EQ(p.steps[first + 1].op->name, "all_gather");
  EXPECT_GE(p.steps[first + 1].starts, 0);
  const Mesh mesh = *mesh_from_text("cp=2");
  const int64_t at[] = {0};
  EXPECT_EQ(p.sent_bytes(mesh, at), 64 * 64 * 4);
}

// The workspace that others' terms are brought into is counted from the start to the end, and
// nobody else's.
TEST(BackgroundSteps, TermsOfASumHaveAWorkspaceInBetween) {
  Plan p = planned(Kind::kSum);
  const size_t start = start_of(p), end = end_of(p);
  const Step& s = p.steps[start];
  ASSERT_GE(s.workspace, 0);
  EXPECT_EQ(p.steps[end].workspace, s.workspace);
  const Slot& slot = p.slots[static_cast<size_t>(s.workspace)];
  EXPECT_EQ(slot.bytes, 64 * 64 * 4 / 2);
  EXPECT_EQ(slot.first_step, static_cast<int>(start));
  EXPECT_EQ(slot.last_step, static_cast<int>(end));
  for (size_t i = start + 1; i < end; ++i)
    for (const PlanTensor& t : p.steps[i].out) {
      const Slot& other = p.slots[static_cast<size_t>(t.slot)];
      EXPECT_TRUE(other.offset >= slot.offset + slot.bytes ||
                  slot.offset >= other.offset + other.bytes)
          << "step " << i;
    }
  ASSERT_GT(end, start + 1);
  p.steps[start + 1].out[0].slot = s.workspace;
  EXPECT_FALSE(verify_plan(p).ok());
}

void check(Kind kind, const Fault& fault) {
  SCOPED_TRACE(fault.name);
  Plan p = planned(kind);
  fault.plant(p, start_of(p), end_of(p));
  // Lifetimes say what the steps say, so that nothing else finds the fault first.
  const auto at_end = static_cast<int>(p.steps.size());
  for (size_t s = 0; s < p.slots.size(); ++s) {
    int first = at_end + 1, last = -1;
    const auto use = [&](int slot, int step) {
      if (slot == static_cast<int>(s)) first = std::min(first, step), last = std::max(last, step);
    };
    for (int i = 0; i < at_end; ++i) {
      const Step& step = p.steps[static_cast<size_t>(i)];
      for (const PlanTensor& t : step.in) use(t.slot, i);
      for (const PlanTensor& t : step.out) use(t.slot, i);
      use(step.workspace, i);
    }
    for (const auto& r : p.results) use(r.tensor.slot, at_end);
    if (last >= 0) p.slots[s].first_step = first, p.slots[s].last_step = last;
  }
  const Status st = verify_plan(p);
  ASSERT_FALSE(st.ok());
  // The planted fault is of a ring's types, so that something else of a share may come first.
  if (kind == Kind::kRing)
    EXPECT_NE(st.error().message.find(fault.found), std::string::npos) << st.error().message;
}

TEST(BackgroundSteps, FaultsAreFound) {
  for (const Kind kind : {Kind::kRing, Kind::kSum})
    for (const Fault& fault : kFaults) check(kind, fault);
}

}  // namespace
}  // namespace tegula
