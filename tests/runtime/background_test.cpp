// Collectives in the background: whenever between its start and its end the work is done, a run has
// the bits of one in which nothing runs in the background.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "tegula/base/philox.h"
#include "tegula/ir/host_tensor.h"
#include "tegula/ops/collective.h"
#include "tegula/ops/math.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/rank_group.h"
#include "tegula/runtime/session.h"
#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

constexpr int64_t kRanks = 4;
const Type kType = {DType::kF32, {16, 16}};

// Every kind of collective that may run in the background, several at a time, with work beside.
FuncId write_graph(Module& module, bool in_background) {
  Builder b(module, "background");
  const Group g{"cp", kRanks, in_background};
  const Var x = b.param("x", kType);
  const auto product = [](Var y, Var z) { return dot("i k, k j -> i j", y, z); };
  Var block = x, sum = product(x, x);
  const Var gathered = all_gather(x, g, 0);
  for (int64_t hop = 1; hop < kRanks; ++hop) {
    const Var next = send_recv(block, g, {3, 0, 1, 2});
    sum = sum + product(block, x);
    block = next;
  }
  const Var shared = reduce_scatter(sum, g, 0);
  const Var turned = all_to_all(sum, g, 0, 1);
  const Var last = broadcast_from(sum, g, 2);
  const Var home = reduce_to(sum, g, 1);
  const Var part = scatter_from(sum, g, 3, 0);
  const Var whole = gather_to(part, g, 2, 0);
  // A sum over all ranks as its two halves, each by itself.
  const Var doubled = sum + sum;
  const Var half = in_background ? reduce_scatter(reshape(doubled, {16 * 16}), g, 0) : doubled;
  const Var beside = product(product(sum, block), product(x, sum));
  const Var total = in_background ? reshape(all_gather(half, g, 0), kType.shape)
                                  : all_reduce(half, {"cp", kRanks});
  b.result("reduced", product(total, product(beside, x)));
  b.result("shared", product(shared, beside));
  b.result("turned", product(x, reshape(turned, kType.shape)));
  b.result("last", product(last, beside));
  b.result("home", product(home, x));
  b.result("part", product(part, beside));
  b.result("whole", product(whole, beside));
  b.result("gathered", product(gathered, beside));
  return *b.finish_into_module();
}

struct Choice {  // of one rank
  uint64_t seed = 0, asked = 0;
  std::string order;
};

struct Four {
  RankGroup group{*mesh_from_text("cp=4")};
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<HostTensor> x;
  std::shared_ptr<const Plan> plan;

  explicit Four(bool in_background, LinkSpeed link = {}) {
    group.segment().slow(link);
    auto module = std::make_shared<Module>();
    const FuncId f = write_graph(*module, in_background);
    CompileOptions options;
    options.plan.verify = true;
    group.describe_links(options.plan.target);
    plan = compile(module, f, options)->plan;
    for (int64_t r = 0; r < kRanks; ++r) {
      ranks.push_back(std::make_unique<Rank>(1));
      ranks.back()->peers = &group.peers(r);
      sessions.push_back(std::move(*Session::create(plan, *ranks.back())));
      x.emplace_back(kType);
      for (int64_t i = 0; i < x.back().numel(); ++i)
        x.back().put(i, philox_uniform(static_cast<uint64_t>(r), 1, static_cast<uint64_t>(i)) - .5);
    }
    for (size_t r = 0; r < kRanks; ++r) EXPECT_TRUE(sessions[r]->bind("x", x[r].ref().data).ok());
  }

  std::string bits() {
    for (auto& s : sessions) s->arena().poison(0xff, &ranks[0]->pool);
    const Status st = group.run([&](int64_t r) { return sessions[static_cast<size_t>(r)]->run(); });
    EXPECT_TRUE(st.ok()) << st.error().to_string();
    std::string all;
    for (const auto& s : sessions)
      for (size_t i = 0; i < plan->results.size(); ++i) {
        const TensorRef t = s->result(static_cast<int>(i));
        all.append(t.as<char>(), static_cast<size_t>(t.numel() * size_bytes(t.dtype)));
      }
    return all;
  }
};

TEST(Background, AThousandOrdersHaveTheSameBits) {
  Four alone(false), beside(true);
  EXPECT_EQ(alone.plan->n_background(), 0);
  EXPECT_GE(beside.plan->n_background(), 8);
  const std::string want = alone.bits();
  EXPECT_EQ(beside.bits(), want);
  std::vector<Choice> choices(kRanks);
  for (size_t r = 0; r < kRanks; ++r) {
    beside.sessions[r]->completes_context = &choices[r];
    beside.sessions[r]->completes = [](void* context, int number) {
      Choice& c = *static_cast<Choice*>(context);
      const bool is_time = philox_uniform(c.seed, 7, c.asked++) < 0.2;
      c.order += is_time ? cat("!", number) : ".";
      return is_time;
    };
  }
  std::set<std::string> orders;
  for (uint64_t run = 0; run < 1000; ++run) {
    for (size_t r = 0; r < kRanks; ++r) choices[r] = {run * kRanks + r, 0, ""};
    ASSERT_EQ(beside.bits(), want) << "run " << run;
    for (const Choice& c : choices) orders.insert(c.order);
  }
  EXPECT_GT(orders.size(), 2000U);
  for (int64_t r = 0; r < kRanks; ++r)
    EXPECT_EQ(beside.group.sent_bytes(r),
              1001 * beside.plan->sent_bytes(beside.group.mesh(), {{r}}))
        << "rank " << r;
}

// Then everything is brought, in the foreground too.
TEST(Background, SlowedLinksHaveTheSameBits) {
  const std::string want = Four(false).bits();
  for (const bool in_background : {false, true}) {
    Four slowed(in_background, {1e-4, 1e9});
    EXPECT_EQ(slowed.bits(), want);
    for (int64_t r = 0; r < kRanks; ++r) {
      EXPECT_EQ(slowed.group.sent_bytes(r), slowed.plan->sent_bytes(slowed.group.mesh(), {{r}}))
          << "rank " << r;
      double link_s = 0;
      for (const LinkUse& use : slowed.group.link_uses(r)) link_s += use.link_s;
      EXPECT_GT(link_s, 5e-4);
    }
  }
}

TEST(Background, ARankThatFailsLeavesNobodyWaiting) {
  Four run(true);
  for (int again = 0; again < 50; ++again) {
    const Status st = run.group.run([&](int64_t r) -> Status {
      if (r == again % kRanks) return invalid_argument("out of sorts");
      return run.sessions[static_cast<size_t>(r)]->run();
    });
    expect_error(st, Code::kInvalidArgument, {"out of sorts"});
  }
  EXPECT_EQ(run.bits(), Four(false).bits());
}

}  // namespace
}  // namespace tegula
