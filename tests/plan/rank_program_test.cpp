// The programs of a pipeline's ranks, run by ranks that are as fast as chance will have it: nobody
// waits for ever, and whoever reads a flow finds it, wherever others' messages and later flows lie.
#include "tegula/plan/rank_program.h"

#include <map>
#include <random>

#include "tests/plan/schedules.h"

namespace tegula::testing {
namespace {

using Kind = ProgramStep::Kind;

struct Chain {
  StageChain chain;
  std::vector<PlannedProgram> ranks;
};

Chain chain_on_ranks(const Schedule& schedule) {
  Chain c;
  std::vector<StagePrice> stages;
  for (int s = 0; s < schedule.shape.n_stages; ++s)
    stages.push_back(
        {.output_bytes = 64 + 64 * s, .saved_bytes = 192, .saved_for_weights_bytes = 64});
  c.chain = chain_of(schedule, stages);
  const std::vector<std::shared_ptr<const Plan>> none(c.chain.program.parts.size(),
                                                      std::make_shared<const Plan>());
  const MicroGroups groups{schedule.shape.n_micro_batches, has_halves(schedule) ? 2 : 1};
  auto ranks = plan_ranks(c.chain.program, none, {}, groups, schedule);
  EXPECT_TRUE(ranks.ok()) << ranks.error().to_string();
  if (ranks.ok()) c.ranks = std::move(*ranks);
  return c;
}

// Flows as tags of their bytes.
class ByChance {
 public:
  ByChance(const Chain& c, uint64_t seed) : c_(c), random_(seed) {
    for (const PlannedProgram& p : c.ranks)
      memory_.emplace_back(static_cast<size_t>(p.flow_bytes), -1);
    at_.resize(c.ranks.size());
  }

  void run() {
    for (;;) {
      std::vector<size_t> can;
      bool any = false;
      for (size_t r = 0; r < at_.size(); ++r) {
        if (at_[r] == c_.ranks[r].steps.size()) continue;
        any = true;
        if (is_able(r)) can.push_back(r);
      }
      if (!any) return;
      // A message that two ranks have posted may come now, or later.
      int n_brought = random_() % 2 == 0 ? bring_some() : 0;
      if (!can.empty()) step(can[random_() % can.size()]);
      if (can.empty()) n_brought += bring_all();
      ASSERT_TRUE(!can.empty() || n_brought > 0) << "all wait for one another";
    }
  }

 private:
  using Key = std::tuple<int, int, int, int>;  // from, to, flow, micro-batch
  struct Way {
    bool is_sent = false, is_expected = false, is_there = false;
  };
  static Key key_of(const Message& m) { return {m.from, m.to, m.flow, m.micro_batch}; }
  int tag(size_t flow, int micro_batch) const {
    return static_cast<int>(flow) * 1000 + micro_batch;
  }
  std::span<int> place(size_t rank, size_t flow, int micro_batch) {
    const auto& offsets = c_.ranks[rank].offsets[flow];
    const int64_t at = offsets[std::min(static_cast<size_t>(micro_batch), offsets.size() - 1)];
    EXPECT_GE(at, 0);
    return std::span(memory_[rank])
        .subspan(static_cast<size_t>(at),
                 static_cast<size_t>(c_.chain.program.flows[flow].type.bytes()));
  }
  void expect(size_t rank, size_t flow, int micro_batch) {
    for (int t : place(rank, flow, micro_batch)) ASSERT_EQ(t, tag(flow, micro_batch));
  }

  bool is_able(size_t r) {
    const ProgramStep& s = c_.ranks[r].steps[at_[r]];
    if (s.kind != Kind::kReceive && s.kind != Kind::kReclaim) return true;
    return ways_[key_of(c_.ranks[r].messages[static_cast<size_t>(s.message)])].is_there;
  }

  void step(size_t r) {
    const PlannedProgram& p = c_.ranks[r];
    const ProgramStep& s = p.steps[at_[r]++];
    if (s.kind == Kind::kRun) return run_part(r, s.run);
    if (s.kind == Kind::kJoin || s.kind == Kind::kClear) return;
    Way& way = ways_[key_of(p.messages[static_cast<size_t>(s.message)])];
    way.is_sent |= s.kind == Kind::kSend, way.is_expected |= s.kind == Kind::kExpect;
  }

  void run_part(size_t r, const PartRun& run) {
    const Program& program = c_.chain.program;
    for (size_t f = 0; f < program.flows.size(); ++f) {
      const Flow& flow = program.flows[f];
      if (c_.ranks[r].is_state(f)) continue;
      for (int to : flow.to)
        if (to == run.part) expect(r, f, run.micro_batch);
      if (flow.from == run.part)
        for (int& t : place(r, f, run.micro_batch)) t = tag(f, run.micro_batch);
    }
  }

  bool bring(const Key& key, Way& way) {
    if (!way.is_sent || !way.is_expected || way.is_there) return false;
    const auto [from, to, flow, micro_batch] = key;
    if (flow >= 0) {
      const auto f = static_cast<size_t>(flow);
      expect(static_cast<size_t>(from), f, micro_batch);
      for (int& t : place(static_cast<size_t>(to), f, micro_batch)) t = tag(f, micro_batch);
    }
    way.is_there = true;
    return true;
  }
  int bring_some() {
    int n = 0;
    for (auto& [key, way] : ways_)
      if (random_() % 3 == 0) n += bring(key, way);
    return n;
  }
  int bring_all() {
    int n = 0;
    for (auto& [key, way] : ways_) n += bring(key, way);
    return n;
  }

  const Chain& c_;
  std::mt19937_64 random_;
  std::vector<std::vector<int>> memory_;
  std::vector<size_t> at_;
  std::map<Key, Way> ways_;
};

TEST(RankProgram, FlowsAreFoundHoweverFastRanksAre) {
  int n = 0;
  for (const ScheduleDef* def : all_schedules())
    for (const auto& [p, m] : {std::pair{2, 4}, {4, 8}, {3, 5}, {4, 3}, {8, 16}}) {
      const ScheduleShape shape = shape_of(def->name, p, m);
      auto schedule = make_schedule(*def, shape);
      if (!schedule.ok()) continue;
      if (!share_halves(*schedule).ok()) continue;
      SCOPED_TRACE(cat(def->name, " ", p, " ranks, ", m, " micro-batches"));
      const Chain c = chain_on_ranks(*schedule);
      ASSERT_EQ(c.ranks.size(), static_cast<size_t>(p));
      for (uint64_t seed = 0; seed < 10; ++seed, ++n) ByChance(c, seed).run();
      if (HasFatalFailure()) return;
    }
  EXPECT_GT(n, 300);
}

// 1F1B's first rank keeps what it sent until its gradient comes: as many as it has under way.
TEST(RankProgram, SentFlowsLiveNoLongerThanWhatProvesThemRead) {
  const Chain c = chain_on_ranks(made("1f1b", {4, 4, 16, 1}));
  ASSERT_EQ(c.ranks.size(), 4U);
  for (size_t r = 0; r < 4; ++r) {
    // At most p − r micro-batches of what is saved, their messages, and one each way.
    EXPECT_LE(c.ranks[r].flow_bytes, static_cast<int64_t>(4 - r) * (192 + 256) + 3 * 320);
  }
  int64_t sent = 0, got = 0;
  for (const PlannedProgram& p : c.ranks)
    for (const Message& m : p.messages) (m.from == p.rank ? sent : got) += m.bytes;
  EXPECT_EQ(sent, got);
}

TEST(RankProgram, StagesThatAreNoHalvesAreRefused) {
  Schedule s = made("chimera", {4, 4, 8, 1});
  const std::vector<std::shared_ptr<const Plan>> none(100, std::make_shared<const Plan>());
  const StageChain chain = chain_of(s, std::vector<StagePrice>(4));
  const auto ranks = plan_ranks(chain.program, none, {}, {8, 2}, s);
  ASSERT_FALSE(ranks.ok());
  EXPECT_NE(ranks.error().message.find("micro-batch 1 of stage 0"), std::string::npos)
      << ranks.error().message;
}

}  // namespace
}  // namespace tegula::testing
