// The memory contract, for every model: the planned peak is what is claimed in an arena twice as
// large as planned, plus the parameters; nothing is written behind it or behind a workspace; and
// the loop of a run allocates nothing. FLOPs: planned = counted by the kernels = counted by the
// references. And the checks see planted lies.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tegula/ops/math.h"
#include "tegula/plan/memory.h"
#include "tegula/plan/verify.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/memory_watch.h"
#include "tegula/train/step.h"
#include "tests/common/run_plan.h"
#include "tests/runtime/allocations.h"

namespace tegula {
namespace {

using test::allocations;

TrainConfig small(std::string_view model) {
  TrainConfig c;
  c.model.type = model;
  c.model.vocab_size = 20, c.model.n_layers = 2, c.model.n_heads = 4, c.model.d_model = 16;
  if (model == "llama" || model == "moe") c.model.n_kv_heads = 2;
  c.model.max_seqlen = 8, c.model.dropout = 0.1, c.batch = 3;
  EXPECT_TRUE(c.model.resolve().ok());
  return c;
}

struct Job {
  std::shared_ptr<Module> module;
  FuncId function;
  std::shared_ptr<const Plan> plan;
};

Job compile_job(const StepFunctions& f, FuncId id, const char* passes = "") {
  CompileOptions o;
  o.plan.verify = true, o.plan.target.n_threads = 2, o.passes.passes = passes;
  Job job{std::make_shared<Module>(*f.module), id, nullptr};
  auto compiled = compile(job.module, id, o);
  EXPECT_TRUE(compiled.ok()) << compiled.error().to_string();
  job.plan = compiled->plan;
  return job;
}

struct Measured {
  int64_t peak_bytes = 0, written_bytes = 0;
  int64_t flops = 0;         // of one run, by the kernels' counters
  int64_t by_reference = 0;  // steps of the plan
  int64_t allocations = 0;
  std::string fault;  // what the watch says
};

int64_t to_line(int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

// A thread may come up late, and takes memory as it does: each must have run something before.
void start_all(ThreadPool& pool) {
  std::atomic<int> arrived{0};
  pool.parallel_for(pool.n_threads(), [&](int64_t, int) {
    ++arrived;
    while (arrived < pool.n_threads()) std::this_thread::yield();
  });
}

// Runs it with everything in sight: parameters in regions of their own, an arena twice as large as
// planned, and each workspace before a tail.
Measured measure(const Job& job,
                 MemoryWatch::Workspaces workspaces = MemoryWatch::Workspaces::kApart) {
  const Plan& plan = *job.plan;
  Rank rank(2);
  start_all(rank.pool);
  Region arena = std::move(*Region::between_guards(rank.memory, 2 * plan.arena_bytes + (1 << 12)));
  const Plan* plans[] = {&plan};
  const auto watch = std::move(*MemoryWatch::create(arena, plans, workspaces));
  Session s(job.plan, rank, arena.data());
  s.watch(watch.get());
  const auto in = test::random_inputs(*job.module, (*job.module)[job.function], 1);
  std::vector<Region> params;
  Measured m;
  for (size_t i = 0; i < plan.params.size(); ++i) {
    params.push_back(
        std::move(*Region::between_guards(rank.memory, std::max<int64_t>(1, in[i].type.bytes()))));
    std::memcpy(params[i].data(), in[i].bytes.data(), in[i].bytes.size());
    s.bind(static_cast<int>(i), params[i].data());
    m.peak_bytes += to_line(in[i].type.bytes());
  }
  for (uint8_t value : {0xa5, 0x5a}) {
    watch->begin(value);
    const int64_t regions = rank.memory.live_bytes();
    const auto before = allocations();
    s.counters().math_flops = 0;
    const auto status = s.run();
    m.allocations += allocations().count - before.count;
    EXPECT_EQ(rank.memory.live_bytes(), regions);
    const auto ended = watch->end();
    EXPECT_EQ(status.ok(), ended.ok());
    if (!ended.ok()) m.fault = ended.error().message;
  }
  for (const Region& r : params) EXPECT_LE(r.touched(0), r.bytes());
  m.peak_bytes += watch->claimed_bytes(), m.written_bytes = watch->written_bytes();
  m.flops = s.counters().math_flops;
  for (const Step& step : plan.steps) m.by_reference += !step.kernel && step.regions.empty();
  EXPECT_LE(m.written_bytes, watch->claimed_bytes());
  return m;
}

int64_t flops_of_references(const Job& job) {
  const Function& f = (*job.module)[job.function];
  std::vector<NodeCount> counts;
  auto out = interpret(*job.module, f, test::random_inputs(*job.module, f, 1), Arithmetic::kCounted,
                       {}, &counts);
  EXPECT_TRUE(out.ok()) << out.error().to_string();
  int64_t n = 0;
  for (const NodeCount& c : counts) n += c.flops;
  return n;
}

// The hook itself must see what it is there for.
TEST(Allocations, AreSeen) {
  const auto before = allocations();
  auto* p = new int(3);
  void* volatile q = std::malloc(100);
  EXPECT_EQ(allocations().count, before.count + 2) << *p;
  EXPECT_GE(allocations().bytes, before.bytes + 104);
  delete p;
  std::free(q);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const auto before_region = allocations();
  MemoryAccount account;
  auto region = Region::allocate(account, 1 << 20);
  EXPECT_GE(allocations().bytes, before_region.bytes + (1 << 20));
#endif
}

class MemoryContract : public ::testing::TestWithParam<const char*> {};

TEST_P(MemoryContract, HoldsForTrainingAndEvaluation) {
  auto f = build_step_functions(small(GetParam()));
  ASSERT_TRUE(f.ok()) << f.error().to_string();
  for (FuncId id : {f->train_step, f->eval_loss})
    for (const char* passes : {"", "-fuse"}) {
      SCOPED_TRACE(cat((*f->module)[id].name, " with passes \"", passes, "\""));
      const Job job = compile_job(*f, id, passes);
      const Measured m = measure(job);
      EXPECT_EQ(m.fault, "");
      EXPECT_EQ(m.peak_bytes, job.plan->peak_bytes());
      // Weights' gradients and activations are written to the end; a workspace has slack.
      EXPECT_GT(m.written_bytes, job.plan->arena_bytes / 2);
      const Measured as_planned = measure(job, MemoryWatch::Workspaces::kInArena);
      EXPECT_EQ(as_planned.peak_bytes, m.peak_bytes);
      EXPECT_LE(as_planned.written_bytes, job.plan->arena_bytes);
      EXPECT_EQ(m.flops, job.plan->flops());
      EXPECT_EQ(m.allocations, 0) << "by " << m.by_reference << " references?";
    }
}

TEST_P(MemoryContract, FlopsAreThoseOfTheReferences) {
  auto f = build_step_functions(small(GetParam()));
  ASSERT_TRUE(f.ok()) << f.error().to_string();
  for (const char* passes : {"", "-fuse"}) {
    const Job job = compile_job(*f, f->train_step, passes);
    EXPECT_EQ(flops_of_references(job), job.plan->flops()) << passes;
  }
}

INSTANTIATE_TEST_SUITE_P(All, MemoryContract,
                         ::testing::Values("mlp", "gpt2", "llama", "moe", "lstm"),
                         [](const auto& p) { return std::string(p.param); });

// An op whose price is wrong by one FLOP: the kernels' and the references' counts both disagree.
TEST(MemoryContract, APriceThatLiesIsSeen) {
  auto f = build_step_functions(small("gpt2"));
  ASSERT_TRUE(f.ok());
  static OpDef liar;
  Job job = compile_job(*f, f->eval_loss);
  for (Node& n : (*job.module)[job.function].nodes)
    if (n.op->name == "dot") {
      liar = *n.op;
      static int64_t (*const honest)(const OpCall&) = n.op->flops;
      liar.flops = [](const OpCall& c) { return honest(c) + 1; };
      n.op = &liar;
      break;
    }
  ASSERT_TRUE(liar.flops);
  job.plan = std::make_shared<Plan>(
      *make_plan(job.module, job.function, {.target = Target::this_cpu(2), .verify = true}));
  EXPECT_EQ(measure(job).flops, job.plan->flops() - 1);
  EXPECT_EQ(flops_of_references(job), job.plan->flops() - 1);
}

// A slot moved above the planned peak, and one that the plan claims and nobody uses.
TEST(MemoryContract, AnOffsetThatLiesIsSeen) {
  auto f = build_step_functions(small("gpt2"));
  ASSERT_TRUE(f.ok());
  Job job = compile_job(*f, f->train_step);
  Plan high = *job.plan;
  for (Slot& s : high.slots)
    if (s.kind == SlotKind::kArena && s.bytes > 0 &&
        s.offset + to_line(s.bytes) == high.arena_bytes) {
      s.offset += kAlignment;
      break;
    }
  EXPECT_FALSE(verify_plan(high).ok());
  job.plan = std::make_shared<Plan>(high);
  const Measured m = measure(job);
  EXPECT_EQ(m.peak_bytes, high.peak_bytes() + kAlignment);
  EXPECT_NE(m.fault.find("behind the arena of"), std::string::npos) << m.fault;
  Plan claims = *compile_job(*f, f->train_step).plan;
  claims.arena_bytes += 4096;
  EXPECT_FALSE(verify_plan(claims).ok());
  job.plan = std::make_shared<Plan>(claims);
  EXPECT_EQ(measure(job).peak_bytes, claims.peak_bytes() - 4096);
}

// A kernel that takes more than its workspace, or says that it took less: named, in place or apart.
TEST(MemoryContract, AKernelThatTakesMoreThanItsWorkspaceIsNamed) {
  auto f = build_step_functions(small("gpt2"));
  ASSERT_TRUE(f.ok());
  const Job honest = compile_job(*f, f->train_step);
  static void (*launch)(const KernelCall&);
  static int64_t behind, claims;  // a byte that it writes; what it claims more than it should
  static int64_t bytes;
  static KernelDef liar;
  size_t at = 0;
  while (!honest.plan->steps[at].kernel || honest.plan->steps[at].kernel->op != "attention") ++at;
  Plan plan = *honest.plan;
  bytes = plan.slots[static_cast<size_t>(plan.steps[at].workspace)].bytes;
  liar = *plan.steps[at].kernel;
  launch = liar.launch;
  liar.launch = [](const KernelCall& call) {
    launch(call);
    if (behind >= 0) static_cast<uint8_t*>(call.workspace)[bytes + behind] = 7;
    call.counters->claimed_bytes.add(claims);
  };
  plan.steps[at].kernel = &liar;
  const Job job{honest.module, honest.function, std::make_shared<Plan>(plan)};
  const auto fault = [&](int64_t b, int64_t c, MemoryWatch::Workspaces w) {
    behind = b, claims = c;
    return measure(job, w).fault;
  };
  using enum MemoryWatch::Workspaces;
  const std::string who = cat("kernel ", liar.name, " (step ", at, " of train_step) ");
  EXPECT_EQ(fault(-1, 0, kApart), "");
  for (int64_t b : {0, 1, 63, 64, 4095}) {
    const std::string why = fault(b, 0, kApart);
    EXPECT_EQ(
        why.rfind(cat(who, "wrote up to ", b + 1, " bytes behind its workspace of ", bytes), 0), 0u)
        << why;
  }
  for (auto w : {kInArena, kApart}) {
    const std::string why = fault(-1, 1, w);
    EXPECT_EQ(why.rfind(cat(who, "lays out ", bytes + 1, " bytes of a workspace of ", bytes), 0),
              0u)
        << why;
  }
  const std::string why = fault(-1, -bytes, kApart);
  EXPECT_NE(why.find("of its workspace and has claimed 0"), std::string::npos) << why;
}

// Extents that change from run to run: still no allocation.
TEST(MemoryContract, NewExtentsAllocateNothing) {
  auto m = std::make_shared<Module>();
  Builder b(*m, "f");
  const Dim n = m->add_symbol("n", 8);
  const Var x = b.param("x", {DType::kF32, {n, 16}}), w = b.param("w", {DType::kF32, {16, 16}});
  b.result("y", softmax(gelu(matmul(x, w))));
  CompileOptions o;
  o.plan.verify = true;
  auto compiled = compile(m, *b.finish_into_module(), o);
  ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
  Rank rank(1);
  auto s = std::move(*Session::create(compiled->plan, rank));
  std::vector<float> xs(8 * 16, 1), ws(16 * 16, 0.5f);
  ASSERT_TRUE(s->bind("x", xs.data()).ok() && s->bind("w", ws.data()).ok());
  const auto before = allocations();
  for (int64_t extent : {8, 1, 5, 0, 8}) {
    const auto status = s->run(std::span(&extent, 1));
    if (!status.ok()) std::abort();
  }
  EXPECT_EQ(allocations().count, before.count);
}

}  // namespace
}  // namespace tegula
