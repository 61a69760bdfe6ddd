// The verifier of plans: it passes what the planner makes, names every fault planted in it, and
// what it passes gives the right bits.
#include "tegula/plan/verify.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tegula/ops/autodiff.h"
#include "tegula/ops/control.h"
#include "tegula/runtime/compile.h"
#include "tegula/train/step.h"
#include "tests/common/random_graph.h"
#include "tests/common/run_plan.h"

namespace tegula {
namespace {

// w is updated in place by a gradient that also reads it; x is shown transposed.
Plan square_step() {
  auto m = std::make_shared<Module>();
  Builder b(*m, "step");
  const Type t = {DType::kF32, {32, 32}};
  const Var x = b.param("x", t), w = b.weight("w", t);
  const Var h = tanh(matmul(x, w));
  const Var xs[] = {w};
  const auto g = grad(reduce_sum(h * h, {0, 1}), xs);
  b.result("h", h), b.result("w", w - g[0] * 0.1);
  b.donate("w", "w");
  auto plan = make_plan(m, *b.finish_into_module(), {.verify = true});
  EXPECT_TRUE(plan.ok()) << plan.error().to_string();
  return std::move(*plan);
}

void expect_broken(const Plan& plan, std::string_view rule, std::string_view detail = {}) {
  const auto st = verify_plan(plan);
  ASSERT_FALSE(st.ok()) << "not caught: " << rule << "\n" << plan.to_string();
  const std::string& message = st.error().message;
  EXPECT_NE(message.find(cat("plan ", plan.name, " breaks ", rule)), std::string::npos) << message;
  EXPECT_NE(message.find(detail), std::string::npos) << message;
}

size_t find_step(const Plan& plan, std::string_view op, size_t from = 0) {
  for (size_t i = from; i < plan.steps.size(); ++i)
    if (plan.steps[i].op->name == op) return i;
  ADD_FAILURE() << "no " << op << "\n" << plan.to_string();
  return 0;
}
Slot& slot_of(Plan& plan, const PlanTensor& t) { return plan.slots[static_cast<size_t>(t.slot)]; }
bool in_arena(Plan& plan, const PlanTensor& t) { return slot_of(plan, t).kind == SlotKind::kArena; }

TEST(Verify, AnOffsetShifted) {
  const Plan good = square_step();
  int caught = 0;
  for (size_t s = 0; s < good.slots.size(); ++s)
    for (int64_t by : {-4096, -64, 64, 4096, 8}) {
      Plan p = good;
      Slot& slot = p.slots[s];
      if (slot.kind != SlotKind::kArena || slot.bytes == 0) continue;
      slot.offset += by;
      caught += !verify_plan(p).ok();
    }
  EXPECT_GT(caught, 0);
  Plan p = good;
  const size_t dot = find_step(p, "dot");
  slot_of(p, p.steps[dot].out[0]).offset = 0;
  p.slots[static_cast<size_t>(p.steps[dot].workspace)].offset = 0;
  expect_broken(p, "M3 overlap", "both alive at step");
  Plan q = good;
  for (Slot& s : q.slots)
    if (s.kind == SlotKind::kArena && s.bytes > 0) {
      s.offset = q.arena_bytes - s.bytes + 64;
      break;
    }
  expect_broken(q, "M1 slots", "does not lie in an arena of");
}

TEST(Verify, StepsSwapped) {
  const Plan good = square_step();
  int n = 0;
  for (size_t i = 0; i + 1 < good.steps.size(); ++i) {
    bool depends = false;
    for (const PlanTensor& out : good.steps[i].out)
      for (const PlanTensor& in : good.steps[i + 1].in) depends |= out.holds == in.holds;
    if (!depends) continue;
    Plan p = good;
    std::swap(p.steps[i], p.steps[i + 1]);
    EXPECT_FALSE(verify_plan(p).ok()) << "steps " << i << " and " << i + 1;
    // With lifetimes that fit the new order, the reader still misses its value.
    for (Slot& s : p.slots) {
      s.first_step = 1 << 30, s.last_step = -1;
      const auto at = static_cast<int>(&s - p.slots.data());
      auto touch = [&](int slot, int step) {
        if (slot == at) s.first_step = std::min(s.first_step, step), s.last_step = step;
      };
      for (int k = 0; k < static_cast<int>(p.steps.size()); ++k) {
        const Step& step = p.steps[static_cast<size_t>(k)];
        for (const PlanTensor& t : step.in) touch(t.slot, k);
        for (const PlanTensor& t : step.out) touch(t.slot, k);
        touch(step.workspace, k);
      }
      for (const auto& r : p.results) touch(r.tensor.slot, static_cast<int>(p.steps.size()));
    }
    EXPECT_FALSE(verify_plan(p).ok()) << "steps " << i << " and " << i + 1;
    ++n;
  }
  EXPECT_GT(n, 2);
}

TEST(Verify, ASlotTooSmall) {
  Plan p = square_step();
  Slot& s = slot_of(p, p.steps[find_step(p, "dot")].out[0]);
  s.bytes -= 4;
  expect_broken(p, "M2 tensors", "reaches bytes [0, 4096) of slot");
}

TEST(Verify, AWrongStride) {
  const Plan good = square_step();
  Plan out_of_slot = good;
  out_of_slot.steps[find_step(good, "dot")].in[0].stride[0] = 33;
  expect_broken(out_of_slot, "M2 tensors", "with strides [33,1]");
  Plan transposed = good;
  PlanTensor& t = transposed.steps[find_step(good, "dot")].in[0];
  std::swap(t.stride[0], t.stride[1]);
  expect_broken(transposed, "M9 strides", "has strides [1,32] of f32[32,32], should have [32,1]");
  Plan shared = good;
  shared.steps[find_step(good, "dot")].out[0].stride[0] = 0;
  expect_broken(shared, "M2 tensors", "elements would share a place");
}

// The update of w, in place, comes before w's last reader.
TEST(Verify, DonatedTooEarly) {
  auto m = std::make_shared<Module>();
  Builder b(*m, "step");
  const Type t = {DType::kF32, {32, 32}};
  const Var w = b.weight("w", t), x = b.param("x", t);
  const Var y = sin(w);
  b.result("y", y), b.result("w", w + x);
  b.donate("w", "w");
  Plan p = *make_plan(m, *b.finish_into_module(), {.reorder = false});
  ASSERT_TRUE(verify_plan(p).ok());
  ASSERT_EQ(p.steps.size(), 2u) << p.to_string();
  std::swap(p.steps[0], p.steps[1]);
  slot_of(p, p.results[0].tensor).first_step = 1;
  expect_broken(p, "M4 values",
                cat("step 1 (sin): operand 0 is value ", w.id(), ", bytes [0, 4096)"));
  expect_broken(p, "M4 values", "but step 0 (add) left value");
}

TEST(Verify, APlaceThatIsNotTheParameters) {
  Plan p = square_step();
  std::swap(p.params[0].tensor.slot, p.params[1].tensor.slot);
  expect_broken(p, "M1 slots", "is not bound to it");
  Plan q = square_step();
  q.params[1].donated_to = -1;
  expect_broken(q, "M5 donations", "which is not donated to it");
  q.params[1].donated_to = 0;
  expect_broken(q, "M5 donations", "which lies elsewhere");
  Plan r = square_step();  // x is nobody's to write
  const size_t dot = find_step(r, "tanh");
  ASSERT_EQ(slot_of(r, r.steps[dot].out[0]).kind, SlotKind::kArena);
  const int h = r.steps[dot].out[0].slot;
  for (Step& s : r.steps)
    for (auto* list : {&s.in, &s.out})
      for (PlanTensor& t : *list)
        if (t.slot == h) t.slot = r.params[0].tensor.slot;
  r.results[0].tensor.slot = r.params[0].tensor.slot;
  EXPECT_FALSE(verify_plan(r).ok());
}

TEST(Verify, OverwritingAnOperandThatIsStillBeingRead) {
  Plan p = square_step();
  const size_t dot = find_step(p, "dot", find_step(p, "dot") + 1);
  for (PlanTensor& t : p.steps[dot].in)
    if (in_arena(p, t)) {
      p.steps[dot].out[0].slot = t.slot;
      const auto st = verify_plan(p);
      ASSERT_FALSE(st.ok());
      return;
    }
  GTEST_FAIL() << p.to_string();
}

TEST(Verify, AWorkspaceTooSmall) {
  Plan p = square_step();
  for (size_t i = 0; i < p.steps.size(); ++i)
    if (const int w = p.steps[i].workspace; w >= 0) {
      p.slots[static_cast<size_t>(w)].bytes -= 64;
      expect_broken(p, "M7 kernels", "needs a workspace of");
      return;
    }
  GTEST_FAIL() << "no workspace";
}

TEST(Verify, TotalsThatLie) {
  Plan p = square_step();
  p.arena_bytes += 64;
  expect_broken(p, "M8 totals", "the highest slot ends at");
  p = square_step();
  p.lower_bound_bytes -= 64;
  expect_broken(p, "M8 totals", "the largest live sum is");
  p = square_step();
  p.param_bytes += 64;
  expect_broken(p, "M8 totals", "parameters are given as");
}

TEST(Verify, AnotherKernelOrType) {
  Plan p = square_step();
  Step& dot = p.steps[find_step(p, "dot")];
  const KernelDef* kernel = dot.kernel;
  dot.kernel = p.steps[find_step(p, "tanh")].kernel;
  if (dot.kernel) expect_broken(p, "M7 kernels", "is one of tanh");
  dot.kernel = kernel;
  dot.out[0].type.dtype = DType::kI32;
  EXPECT_FALSE(verify_plan(p).ok());
}

TEST(Verify, FaultsInRegions) {
  auto m = std::make_shared<Module>();
  Builder b(*m, "loop");
  const Type h = {DType::kF32, {4, 4}};
  const Var h0 = b.param("h", h), x = b.param("x", {DType::kF32, {4, 6, 4}});
  auto r = scan(b, {h0}, {transpose(x, 0, 1)}, {h0},
                [](Builder&, Vars c, Vars xs, Vars i) -> StepResult {
                  const Var next = tanh(matmul(c[0], i[0]) + xs[0]);
                  return {{next}, {next * c[0]}};
                });
  b.result("h", r.carry[0]), b.result("y", r.ys[0]);
  const Plan good = *make_plan(m, *b.finish_into_module(), {.verify = true});
  const size_t at = find_step(good, "scan");
  auto with = [&](auto&& change) {
    Plan p = good;
    auto sub = std::make_shared<Plan>(*p.steps[at].regions[0]);
    change(p, *sub);
    p.steps[at].regions[0] = sub;
    return verify_plan(p);
  };
  ASSERT_TRUE(with([](Plan&, Plan&) {}).ok());
  EXPECT_FALSE(with([](Plan&, Plan& s) { s.arena_bytes += 64; }).ok());
  EXPECT_FALSE(with([](Plan&, Plan& s) { s.params[1].tensor.stride[0] = 4; }).ok());
  EXPECT_FALSE(with([](Plan&, Plan& s) { std::swap(s.steps.front(), s.steps.back()); }).ok());
  EXPECT_FALSE(with([](Plan&, Plan& s) { s.params.pop_back(); }).ok());
  EXPECT_FALSE(with([&](Plan& p, Plan&) {
                 p.slots[static_cast<size_t>(p.steps[at].workspace)].bytes -= 64;
               }).ok());
  EXPECT_FALSE(with([&](Plan& p, Plan&) { p.steps[at].attrs.set("n_xs", int64_t{2}); }).ok());
  EXPECT_FALSE(
      with([&](Plan& p, Plan&) { p.steps[at].attrs.set("length", std::vector<Dim>{7}); }).ok());
}

TEST(Verify, PassesEveryModelsPlan) {
  for (const ModelDef* model : all_models()) {
    TrainConfig c;
    c.model.type = model->name;
    c.model.vocab_size = 50, c.model.n_layers = 2, c.model.n_heads = 2, c.model.d_model = 32;
    c.model.max_seqlen = 16, c.model.dropout = 0.1, c.batch = 2;
    ASSERT_TRUE(c.model.resolve().ok());
    auto f = build_step_functions(c);
    ASSERT_TRUE(f.ok()) << f.error().to_string();
    for (FuncId id : {f->train_step, f->eval_loss})
      for (const char* passes : {"", "-fuse"}) {
        CompileOptions o;
        o.plan.verify = true, o.plan.target.n_threads = 2, o.passes.passes = passes;
        auto copy = std::make_shared<Module>(*f->module);
        auto compiled = compile(copy, id, o);
        EXPECT_TRUE(compiled.ok()) << model->name << ": " << compiled.error().to_string();
      }
  }
}

bool same_bits(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b) {
  for (size_t r = 0; r < a.size(); ++r) {
    if (!(a[r].type == b[r].type)) return false;
    for (int64_t i = 0; i < a[r].numel(); ++i)
      if (a[r].at(i) != b[r].at(i) && !(std::isnan(a[r].at(i)) && std::isnan(b[r].at(i))))
        return false;
  }
  return true;
}

// One random change of a plan, of the kinds a wrong planner would make.
std::string mutate(Plan& p, std::mt19937_64& rng) {
  auto pick = [&](size_t n) { return static_cast<size_t>(rng() % n); };
  if (p.steps.empty()) return "nothing";
  Step& s = p.steps[pick(p.steps.size())];
  auto& list = pick(2) && !s.in.empty() ? s.in : s.out;
  PlanTensor& t = list[pick(list.size())];
  switch (pick(6)) {
    case 0: {
      Slot& slot = p.slots[pick(p.slots.size())];
      const int64_t by = (static_cast<int64_t>(pick(9)) - 4) * 64;
      slot.offset += by;
      return cat("slot ", slot.name, " moved by ", by);
    }
    case 1: {
      const size_t i = pick(p.steps.size()), j = pick(p.steps.size());
      std::swap(p.steps[i], p.steps[j]);
      return cat("steps ", i, " and ", j, " exchanged");
    }
    case 2: {
      const int to = static_cast<int>(pick(p.slots.size()));
      const int from = t.slot;
      t.slot = to;
      return cat("a tensor from slot ", from, " to ", to);
    }
    case 3: {
      if (t.type.shape.rank() == 0) return "nothing";
      const size_t d = pick(static_cast<size_t>(t.type.shape.rank()));
      t.stride[d] = static_cast<int64_t>(pick(5));
      return cat("stride ", d, " now ", t.stride[d]);
    }
    case 4:
      t.byte_offset += 4 * (static_cast<int64_t>(pick(5)) - 2);
      return cat("byte_offset now ", t.byte_offset);
    default: {
      const size_t a = pick(p.slots.size()), b = pick(p.slots.size());
      std::swap(p.slots[a].offset, p.slots[b].offset);
      return cat("slots ", a, " and ", b, " exchanged");
    }
  }
}

// A plan that passes is right: a mutated plan that the verifier accepts gives the same bits.
TEST(Verify, WhatItPassesGivesTheSameBits) {
  int rejected = 0, accepted = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    auto m = std::make_shared<Module>();
    testing::RandomGraph graph(*m, seed);
    auto f = graph.build();
    ASSERT_TRUE(f.ok()) << f.error().to_string();
    CompileOptions o;
    o.plan.verify = true;
    o.passes.passes = seed % 2 ? "-fuse" : "";
    auto compiled = compile(m, *f, o);
    ASSERT_TRUE(compiled.ok()) << "seed " << seed << ": " << compiled.error().to_string();
    std::vector<int64_t> extents;
    for (const Symbol& s : m->symbols) extents.push_back(s.bound - static_cast<int64_t>(seed % 3));
    const auto in = testing::random_inputs((*m)[*f], seed, extents);
    const auto want = test::run_plan(*compiled->plan, in, extents);
    std::mt19937_64 rng(seed);
    for (int k = 0; k < 40; ++k) {
      Plan p = *compiled->plan;
      const std::string what = mutate(p, rng);
      if (!verify_plan(p).ok()) {
        ++rejected;
        continue;
      }
      ++accepted;
      ASSERT_TRUE(same_bits(test::run_plan(p, in, extents), want))
          << "seed " << seed << ": " << what << "\n"
          << compiled->plan->to_string() << p.to_string();
    }
  }
  EXPECT_GT(rejected, 500);
  EXPECT_GT(accepted, 100);  // slots nobody uses, exchanges of independent steps
}

}  // namespace
}  // namespace tegula
