// Gradients of a real step are summed over ranks beside its kernels. These sleep here, by their
// FLOPs, so that nobody else's work on this machine counts; links are slowed on purpose.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tegula/base/algorithm.h"
#include "tegula/ir/host_tensor.h"
#include "tests/train/on_ranks.h"

namespace tegula {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kStep_s = 0.3;  // all of a step's kernels

struct Timed {
  double seconds = 0, link_s = 0, waited_s = 0, forward_s = 0;
};

// As long as a kernel overslept, its successors sleep less.
struct Sleeper {
  double seconds_a_flop = 0, owed_s = 0;
  static void after(void* context, const Session& session, size_t step) {
    auto& self = *static_cast<Sleeper*>(context);
    self.owed_s += self.seconds_a_flop * static_cast<double>(session.plan().steps[step].flops);
    if (self.owed_s < 1e-4) return;
    const auto start = Clock::now();
    std::this_thread::sleep_for(std::chrono::duration<double>(self.owed_s));
    self.owed_s -= std::chrono::duration<double>(Clock::now() - start).count();
  }
};

// A step of rank 0 of dp=2, the fastest of a few. bytes_per_s: 0 for links as they are.
Timed time(const TrainConfig& c, double bytes_per_s) {
  RankGroup group(c.mesh);
  group.segment().slow({0, bytes_per_s});
  Target target = Target::this_cpu(1);
  group.describe_links(target);
  target.brings = true;
  const StepFunctions f = *build_step_functions(c);
  const CompiledRanks ranks = *compile_for_ranks(c, f, f.train_step, target);
  std::vector<std::unique_ptr<Rank>> own;
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<HostTensor> values;
  std::vector<Sleeper> sleepers(static_cast<size_t>(c.mesh.n_ranks()));
  Timed best{1e9, 0, 0, 0};
  double flops = 0, forward = 0;
  for (const Step& s : ranks.plans[0]->steps) {
    flops += static_cast<double>(s.flops);
    forward += s.phase == Phase::kForward ? static_cast<double>(s.flops) : 0;
  }
  for (int64_t r = 0; r < c.mesh.n_ranks(); ++r) {
    own.push_back(std::make_unique<Rank>(1));
    group.join(*own.back(), r);
    sessions.push_back(std::move(*Session::create(ranks.plan_of(r), *own.back())));
    for (const auto& p : ranks.plan_of(r)->params) {
      values.emplace_back(p.tensor.type);
      EXPECT_TRUE(sessions.back()->bind(p.name, values.back().ref().data).ok());
    }
    sleepers[static_cast<size_t>(r)].seconds_a_flop = kStep_s / flops;
    sessions.back()->observer = Sleeper::after;
    sessions.back()->observer_context = &sleepers[static_cast<size_t>(r)];
  }
  for (int again = 0; again < 3; ++again) {
    Timed t;
    for (const LinkUse& use : group.link_uses(0))
      t.link_s -= use.link_s, t.waited_s -= use.waited_s;
    const auto start = Clock::now();
    const Status st = group.run([&](int64_t r) { return sessions[static_cast<size_t>(r)]->run(); });
    EXPECT_TRUE(st.ok()) << st.error().to_string();
    t.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    for (const LinkUse& use : group.link_uses(0))
      t.link_s += use.link_s, t.waited_s += use.waited_s;
    t.forward_s = kStep_s * forward / flops;
    if (t.seconds < best.seconds) best = t;
  }
  return best;
}

TEST(HiddenSums, OfAStepAreHiddenAsFarAsItsKernelsReach) {
  for (const char* mode : {"fast", "exact"}) {
    TrainConfig c = tiny("gpt2", mode);
    c.model.n_layers = 12, c.model.d_model = 128, c.model.d_ff = 0, c.model.head_dim = 0,
    c.model.max_seqlen = 32;
    c.batch = 2;
    ASSERT_TRUE(c.model.resolve().ok());
    c.mesh = *mesh_from_text("dp=2");
    const Timed free = time(c, 0);
    const StepFunctions f = *build_step_functions(c);
    double bytes = 0;  // of halves: what a rank takes of the other one
    for (const WeightSpec& w : f.weights) bytes += static_cast<double>(w.type.bytes());
    const double backward_s = kStep_s - free.forward_s;
    for (const double share : {.4, .7}) {
      const Timed t = time(c, bytes / (share * backward_s));
      EXPECT_GE(1 - (t.seconds - free.seconds) / t.link_s, .9)
          << mode << ": " << free.seconds << " s, " << t.seconds << " s with links that take "
          << t.link_s << " s, of which " << t.waited_s << " s were waited for";
    }
    // Three times too slow: once there is a gradient, the link is never idle.
    const Timed slow = time(c, bytes / (3 * backward_s));
    EXPECT_GE(slow.link_s, .9 * (slow.seconds - free.forward_s)) << mode;
  }
}

// Gathers of the layer before begin between a layer's sums: none of these ends for them.
TEST(HiddenSums, GathersEndNoSums) {
  TrainConfig c = tiny("gpt2", "fast");
  c.model.n_layers = 6, c.zero = 3;
  ASSERT_TRUE(c.model.resolve().ok());
  c.mesh = *mesh_from_text("dp=2");
  Target target = Target::this_cpu(1);
  target.brings = true;
  const StepFunctions f = *build_step_functions(c);
  const CompiledRanks ranks = *compile_for_ranks(c, f, f.train_step, target);
  const auto grows = [](const Step& s) { return s.in[0].type.bytes() < s.out[0].type.bytes(); };
  int n_gathers = 0, n_sums = 0;
  bool is_behind_a_gather = false;
  for (const Step& s : ranks.plans[0]->steps) {
    if (s.phase != Phase::kBackward) continue;
    if (s.ends >= 0 && !grows(s)) {
      ++n_sums;
      EXPECT_FALSE(is_behind_a_gather) << s.scope;
      continue;
    }
    is_behind_a_gather = s.starts >= 0 && grows(s);
    n_gathers += is_behind_a_gather;
  }
  EXPECT_GE(n_gathers, 6);
  EXPECT_GE(n_sums, 20);
}

}  // namespace
}  // namespace tegula
