// Collectives by algorithms that are data, on ranks: what only passes has the bits of each rank
// taking from all, sums are near, and planned = sent.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tegula/base/philox.h"
#include "tegula/kernels/cpu/common/algorithm.h"
#include "tegula/ops/collective.h"
#include "tests/common/run_ranks.h"

namespace tegula {
namespace {

using enum CollectiveKind;

struct Op {
  CollectiveKind kind;
  Var (*call)(Var x, const Group& g);
};
constexpr Op kOps[] = {
    {kBroadcast, [](Var x, const Group& g) { return broadcast_from(x, g, g.n_ranks / 2); }},
    {kReduce, [](Var x, const Group& g) { return reduce_to(x, g, g.n_ranks / 2); }},
    {kScatter, [](Var x, const Group& g) { return scatter_from(x, g, g.n_ranks / 2, 0); }},
    {kGather, [](Var x, const Group& g) { return gather_to(x, g, g.n_ranks / 2, 0); }},
    {kAllGather, [](Var x, const Group& g) { return all_gather(x, g, 0); }},
    {kReduceScatter, [](Var x, const Group& g) { return reduce_scatter(x, g, 0); }},
    {kAllReduce, [](Var x, const Group& g) { return all_reduce(x, g); }},
    {kAllToAll, [](Var x, const Group& g) { return all_to_all(x, g, 0, 1); }},
};

// Every rank's result, one after the other.
std::vector<std::vector<float>> run(const Op& op, std::string_view how, int64_t n_ranks,
                                    LinkSpeed link) {
  const Mesh mesh{{{"dp", n_ranks}}};
  const Type type{DType::kF32, {n_ranks, 6 * n_ranks}};
  RankGroup group(mesh);
  group.segment().slow(link);
  auto module = std::make_shared<Module>();
  Builder b(*module, "one");
  b.result("y", op.call(b.param("x", type), {"dp", n_ranks}));
  const FuncId f = *b.finish_into_module();
  for (Node& node : (*module)[f].nodes)
    if (node.op->collective && how != "direct") node.attrs.set("algorithm", std::string(how));
  CompileOptions options;
  options.plan.verify = true;
  group.describe_links(options.plan.target);
  const auto compiled = compile(module, f, options);
  EXPECT_TRUE(compiled.ok()) << compiled.error().to_string();
  const Plan& plan = *compiled->plan;
  std::string kernel;
  for (const Step& s : plan.steps)
    if (s.op->collective) kernel = s.kernel->name;
  EXPECT_EQ(kernel.find("_rounds") != kernel.npos, how != "direct") << kernel;
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<HostTensor> x;
  for (int64_t r = 0; r < n_ranks; ++r) {
    ranks.push_back(std::make_unique<Rank>(1));
    group.join(*ranks.back(), r);
    sessions.push_back(std::move(*Session::create(compiled->plan, *ranks.back())));
    sessions.back()->arena().poison(0xff, &ranks.back()->pool);
    x.emplace_back(type);
    for (int64_t i = 0; i < x.back().numel(); ++i)
      x.back().put(i, philox_uniform(static_cast<uint64_t>(r), 1, static_cast<uint64_t>(i)) - .5);
  }
  for (size_t r = 0; r < sessions.size(); ++r)
    EXPECT_TRUE(sessions[r]->bind("x", x[r].ref().data).ok());
  for (int64_t r = 0; r < n_ranks; ++r) EXPECT_EQ(group.sent_bytes(r), 0);
  std::vector<std::vector<float>> all;
  constexpr int kRuns = 3;
  for (int again = 0; again < kRuns; ++again) {
    const Status st = group.run([&](int64_t r) { return sessions[static_cast<size_t>(r)]->run(); });
    EXPECT_TRUE(st.ok()) << st.error().to_string();
    all.clear();
    for (const auto& s : sessions) {
      const TensorRef y = s->result("y");
      all.emplace_back(y.as<float>(), y.as<float>() + y.numel());
    }
  }
  for (int64_t r = 0; r < n_ranks; ++r)
    EXPECT_EQ(group.sent_bytes(r), kRuns * plan.sent_bytes(mesh, {{r}})) << "rank " << r;
  return all;
}

TEST(Rounds, EveryAlgorithmGivesWhatDirectGives) {
  for (const Op& op : kOps)
    for (const AlgorithmDef* a : all_algorithms())
      for (const int64_t n : {2, 3, 4, 7})
        for (const LinkSpeed link : {LinkSpeed{}, LinkSpeed{1e-5, 1e9}}) {
          if (a->name == "direct" || !a->does(op.kind)) continue;
          SCOPED_TRACE(cat(a->name, " ", kind_name(op.kind), " over ", n,
                           link.is_slowed() ? ", slowed" : ""));
          const auto want = run(op, "direct", n, link), got = run(op, a->name, n, link);
          ASSERT_EQ(want.size(), got.size());
          for (size_t r = 0; r < want.size(); ++r) {
            ASSERT_EQ(want[r].size(), got[r].size());
            if (is_exact(*a, op.kind)) {
              EXPECT_EQ(want[r], got[r]) << "rank " << r;
              continue;
            }
            for (size_t i = 0; i < want[r].size(); ++i)
              ASSERT_NEAR(want[r][i], got[r][i], 1e-6 * static_cast<double>(n)) << "rank " << r;
          }
        }
}

}  // namespace
}  // namespace tegula
