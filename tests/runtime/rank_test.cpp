// Several ranks in one process, a thread each: every one measures what it took and did itself, as
// if it were alone.
#include "tegula/runtime/rank.h"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "tegula/ops/math.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/eager.h"
#include "tegula/runtime/memory_watch.h"
#include "tegula/train/step.h"

namespace tegula {
namespace {

constexpr int kRuns = 5;

std::shared_ptr<const Plan> step_of(std::string_view model, int64_t batch) {
  TrainConfig c;
  c.model.type = model;
  c.model.vocab_size = 20, c.model.n_layers = 2, c.model.n_heads = 4, c.model.d_model = 16;
  if (model == "llama") c.model.n_kv_heads = 2;
  c.model.max_seqlen = 8, c.batch = batch;
  EXPECT_TRUE(c.model.resolve().ok());
  const auto f = build_step_functions(c);
  EXPECT_TRUE(f.ok()) << f.error().to_string();
  CompileOptions o;
  o.plan.target = Target::this_cpu(2);
  const auto compiled = compile(f->module, f->train_step, o);
  EXPECT_TRUE(compiled.ok()) << compiled.error().to_string();
  return compiled->plan;
}

struct Measured {
  int64_t flops = 0;          // of all runs, by the rank's counters
  int64_t session_flops = 0;  // by the session's own
  int64_t claimed_bytes = 0;  // of the arena, by the watch
  int64_t peak_bytes = 0, state_bytes = 0, left_bytes = 0;
  std::string fault;
};

// Everything of a rank's life, all of it while the others live theirs.
Measured live(const std::shared_ptr<const Plan>& plan, std::barrier<>& together) {
  Measured m;
  Rank rank(2);
  {
    Store store(rank);
    auto made = Session::create(plan, rank);
    EXPECT_TRUE(made.ok()) << made.error().to_string();
    Session& s = **made;
    EXPECT_TRUE(s.bind_store(store).ok());
    std::vector<std::vector<std::byte>> inputs;
    for (const auto& p : plan->params)
      if (p.role == Role::kInput) {
        inputs.emplace_back(static_cast<size_t>(p.tensor.type.bytes()));
        EXPECT_TRUE(s.bind(p.name, inputs.back().data()).ok());
      }
    const Plan* const plans[] = {plan.get()};
    const auto watch =
        std::move(*MemoryWatch::create(s.arena(), plans, MemoryWatch::Workspaces::kInArena));
    s.watch(watch.get());
    for (int i = 0; i < kRuns; ++i) {
      together.arrive_and_wait();
      watch->begin(i % 2 == 0 ? 0xa5 : 0x5a, &rank.pool);
      if (const Status st = s.run(); !st.ok()) m.fault = st.error().message;
      if (const Status st = watch->end(); !st.ok()) m.fault = st.error().message;
    }
    m.flops = rank.counters.math_flops, m.session_flops = s.counters().math_flops;
    m.claimed_bytes = watch->claimed_bytes();
    m.peak_bytes = rank.memory.peak_bytes(), m.state_bytes = store.bytes();
    EXPECT_EQ(rank.memory.live_bytes(), m.peak_bytes);
  }
  m.left_bytes = rank.memory.live_bytes();
  return m;
}

TEST(Rank, SeveralInOneProcessMeasureEachItsOwnPlan) {
  const std::shared_ptr<const Plan> plans[] = {step_of("gpt2", 3), step_of("llama", 5),
                                               step_of("lstm", 2)};
  Measured m[3];
  std::barrier together(3);
  {
    std::vector<std::jthread> ranks;
    for (size_t r = 0; r < 3; ++r) ranks.emplace_back([&, r] { m[r] = live(plans[r], together); });
  }
  for (size_t r = 0; r < 3; ++r) {
    SCOPED_TRACE(plans[r]->name);
    EXPECT_EQ(m[r].fault, "");
    EXPECT_EQ(m[r].flops, kRuns * plans[r]->flops());
    EXPECT_EQ(m[r].session_flops, kRuns * plans[r]->flops());
    EXPECT_EQ(m[r].claimed_bytes, plans[r]->arena_bytes);
    EXPECT_EQ(m[r].peak_bytes, plans[r]->arena_bytes + m[r].state_bytes);
    EXPECT_EQ(m[r].left_bytes, 0);
  }
}

// The rank's counts are those of all its sessions, whichever ran; each session has its own.
TEST(Rank, CountsWhatItsSessionsDid) {
  const auto plan = step_of("lstm", 2);  // a loop: its body's sessions count once, too
  Rank rank(1);
  Store store(rank);
  const auto a = std::move(*Session::create(plan, rank)),
             b = std::move(*Session::create(plan, rank));
  std::vector<std::byte> zeros(1 << 12);
  for (Session* s : {a.get(), b.get()}) {
    ASSERT_TRUE(s->bind_store(store).ok());
    for (const auto& p : plan->params)
      if (p.role == Role::kInput) ASSERT_TRUE(s->bind(p.name, zeros.data()).ok());
  }
  ASSERT_TRUE(a->run().ok() && b->run().ok() && b->run().ok());
  EXPECT_EQ(a->counters().math_flops, plan->flops());
  EXPECT_EQ(b->counters().math_flops, 2 * plan->flops());
  EXPECT_EQ(rank.counters.math_flops, 3 * plan->flops());
}

// Two eager ranks at once.
TEST(Rank, EagerArraysAreItsOwnToo) {
  int64_t flops[2] = {}, peak[2] = {};
  std::barrier together(2);
  {
    std::vector<std::jthread> ranks;
    for (int64_t r = 0; r < 2; ++r)
      ranks.emplace_back([&, r] {
        const int64_t n = 16 * (r + 1);
        const std::vector<float> ones(static_cast<size_t>(n * n), 1.0F);
        Rank rank(1);
        Eager e(rank);
        const Var x = e.tensor({DType::kF32, {n, n}}, ones.data());
        together.arrive_and_wait();
        Var y = x;
        for (int i = 0; i < 10; ++i) y = matmul(y, x);
        EXPECT_TRUE(e.read(y).ok());
        flops[r] = rank.counters.math_flops, peak[r] = rank.memory.peak_bytes();
      });
  }
  for (int64_t r = 0; r < 2; ++r) {
    const int64_t n = 16 * (r + 1);
    EXPECT_EQ(flops[r], 10 * 2 * n * n * n);
    EXPECT_GE(peak[r], 11 * n * n * 4);
    EXPECT_LT(peak[r], 2 * 11 * n * n * 4);
  }
}

}  // namespace
}  // namespace tegula
