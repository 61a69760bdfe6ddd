// The checker of schedules against planted faults, and against a plain player of entries on
// thousands of schedules with random mutations.
#include "tegula/plan/schedule_check.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "tests/plan/schedules.h"

namespace tegula::testing {
namespace {

std::string fault(const Schedule& s, int most_in_flight = 0) {
  const auto facts = check_schedule(s, most_in_flight);
  return facts.ok() ? "" : facts.error().message;
}
void expect_fault(const Schedule& s, const std::string& part) {
  const std::string f = fault(s);
  EXPECT_NE(f.find(part), std::string::npos) << f;
}

TEST(ScheduleCheck, NamesADroppedADoubledAndAMovedEntry) {
  const Schedule good = made("one_f_one_b", {2, 2, 3, 1});
  EXPECT_EQ(fault(good), "");
  Schedule s = good;
  s.ranks[1].erase(s.ranks[1].begin() + 2);
  expect_fault(s, "no rank runs stage 1's forward of micro-batch 1");
  s = good;
  s.ranks[0].push_back(s.ranks[0][0]);
  expect_fault(s, "on rank 0, stage 0's forward of micro-batch 0 is there a second time");
  s = good;
  s.ranks[1].push_back(s.ranks[0].back());
  s.ranks[0].pop_back();
  expect_fault(s,
               "on rank 1, stage 0's backward of micro-batch 2 is not where that micro-batch's "
               "activations lie, on rank 0");
}

TEST(ScheduleCheck, NamesTheCycle) {
  Schedule s = made("gpipe", {2, 2, 2, 1});
  // The first rank goes back before the second one went forward, and the second waits for it.
  std::swap(s.ranks[0][1], s.ranks[0][2]);
  std::swap(s.ranks[1][0], s.ranks[1][1]);
  const std::string f = fault(s);
  EXPECT_NE(f.find("can never go on"), std::string::npos) << f;
  for (const char* part : {"stage 0's backward of micro-batch 0 (rank 0) waits for",
                           "stage 1's forward of micro-batch 1 (rank 1) waits for"})
    EXPECT_NE(f.find(part), std::string::npos) << f;
}

TEST(ScheduleCheck, NamesWhatDoesNotBelongThere) {
  Schedule s = made("gpipe", {2, 2, 3, 1});
  std::swap(s.ranks[0][3], s.ranks[0][4]);
  expect_fault(s, "stage 0's backward of micro-batch 0 is added behind that of micro-batch 1");
  s = made("gpipe", {2, 2, 2, 1});
  s.ranks[0][0].stage = 2;
  expect_fault(s, "stage 2's forward of micro-batch 0 does not exist: there are 2 stages");
  s = made("gpipe", {2, 2, 2, 1});
  s.ranks[0][0].kind = PartKind::kWeightGradient;
  expect_fault(s, "weight_gradient of micro-batch 0 has no place in it");
  s = made("gpipe", {2, 2, 2, 1});
  s.ranks.pop_back();
  expect_fault(s, "1 lists for 2 ranks");
  s = made("dual_pipe", {2, 2, 4, 1});
  for (Instr& i : s.ranks[0]) i.with_next = &i != &s.ranks[0].back();
  expect_fault(s, "cannot go together with");
}

TEST(ScheduleCheck, WeightsMustHaveBeenMade) {
  Schedule s = made("in_turns", {1, 1, 2, 1});
  s.ranks[0].insert(s.ranks[0].begin() + 2, Instr{PartKind::kUpdate, 0});
  s.ranks[0][3].weights = s.ranks[0][4].weights = 1;
  EXPECT_EQ(fault(s), "");
  s.ranks[0][1].weights = 1;
  expect_fault(s, "reads weights of version 1, and 0 updates of the stage stand before it");
}

TEST(ScheduleCheck, MemoryHasALimit) {
  EXPECT_EQ(fault(made("one_f_one_b", {4, 4, 8, 1}), 4), "");
  const std::string f = fault(made("gpipe", {4, 4, 8, 1}), 4);
  EXPECT_NE(f.find("rank 0 keeps 8 forward results at once, and 4 are allowed"), std::string::npos)
      << f;
}

// Parts that go together begin together: a pair one half of which waits for the other, by way of
// another rank, can never begin.
TEST(ScheduleCheck, APairThatWaitsForItselfIsACycle) {
  Schedule s = made("one_f_one_b", {2, 2, 2, 1});
  EXPECT_EQ(fault(s), "");
  // Rank 0: F0, F1 with B0. Rank 1: F0, F1, then B0, which the pair waits for and F1 is before.
  s.ranks[0][1].with_next = true;
  s.ranks[1] = {{PartKind::kForward, 1, 0},
                {PartKind::kForward, 1, 1},
                {PartKind::kBackward, 1, 0},
                {PartKind::kBackward, 1, 1}};
  expect_fault(s, "can never go on");
  s.ranks[0][1].with_next = false;
  EXPECT_EQ(fault(s), "");
}

// A player that knows nothing of graphs: it tries every rank's next entry until nobody moves.
class Player {
 public:
  explicit Player(const Schedule& s) : s_(s) {}

  bool plays() {
    std::vector<size_t> at(s_.ranks.size());
    for (bool moves = true; moves;) {
      moves = false;
      for (size_t r = 0; r < at.size(); ++r) {
        const auto& list = s_.ranks[r];
        if (at[r] == list.size()) continue;
        size_t end = at[r] + 1;
        while (end < list.size() && list[end - 1].with_next) ++end;
        std::set<Key> inside;
        for (size_t i = at[r]; i < end; ++i) inside.insert(key(list[i]));
        bool can = true;
        for (size_t i = at[r]; i < end; ++i) can = can && can_run(list[i], inside);
        if (!can) continue;
        for (size_t i = at[r]; i < end; ++i)
          if (!note(list[i], static_cast<int>(r))) return false;
        at[r] = end, moves = true;
      }
    }
    for (size_t r = 0; r < at.size(); ++r)
      if (at[r] != s_.ranks[r].size()) return false;
    const ScheduleShape& n = s_.shape;
    const int parts = !s_.trains ? 1 : s_.weight_gradients_apart ? 3 : 2;
    return static_cast<int64_t>(done_.size()) ==
           int64_t{parts} * n.n_stages * n.n_micro_batches * n.n_slices;
  }

 private:
  using Key = std::tuple<char, int, int, int>;
  static char letter(PartKind k) {
    return k == PartKind::kForward ? 'F' : k == PartKind::kBackward ? 'B' : 'W';
  }
  static Key key(const Instr& i) { return {letter(i.kind), i.stage, i.micro_batch, i.slice}; }
  bool can_run(const Instr& i, const std::set<Key>& inside) const {
    const auto has = [&](char c, int stage, int slice) {
      const Key k{c, stage, i.micro_batch, slice};
      return done_.contains(k) || inside.contains(k);
    };
    const int last = s_.shape.n_stages - 1, slices = s_.shape.n_slices;
    switch (letter(i.kind)) {
      case 'F':
        return (i.stage == 0 || has('F', i.stage - 1, i.slice)) &&
               (i.slice == 0 || has('F', i.stage, i.slice - 1));
      case 'B':
        return has('F', i.stage, i.slice) && (i.stage == last || has('B', i.stage + 1, i.slice)) &&
               (i.slice == slices - 1 || has('B', i.stage, i.slice + 1));
      default:
        return has('B', i.stage, i.slice);
    }
  }
  // False where it breaks a rule that has nothing to do with waiting.
  bool note(const Instr& i, int rank) {
    if (!done_.insert(key(i)).second) return false;
    const auto [home, is_new] = home_.insert({{i.stage, i.micro_batch}, rank});
    if (!is_new && home->second != rank) return false;
    const char adds = s_.weight_gradients_apart ? 'W' : 'B';
    if (letter(i.kind) == adds) {
      int& last = last_[{rank, i.stage}];
      if (i.micro_batch < last) return false;
      last = i.micro_batch;
    }
    return true;
  }
  const Schedule& s_;
  std::set<Key> done_;
  std::map<std::pair<int, int>, int> home_, last_;
};

// Mutates one, two or three times; pairs stay pairs.
void mutate(Schedule& s, std::mt19937& random) {
  const auto draw = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const auto any_rank = [&]() -> std::vector<Instr>& { return s.ranks[draw(s.ranks.size())]; };
  for (size_t n = 1 + draw(3); n > 0; --n) {
    std::vector<Instr>& list = any_rank();
    if (list.size() < 2) continue;
    const size_t a = draw(list.size()), b = draw(list.size());
    switch (draw(6)) {
      case 0:
        std::swap(list[a], list[b]);
        break;
      case 1:  // neighbours: often still a schedule
      case 2:
        std::swap(list[a], list[a + 1 < list.size() ? a + 1 : a - 1]);
        break;
      case 3:
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(a));
        break;
      case 4:
        list.insert(list.begin() + static_cast<std::ptrdiff_t>(b), Instr(list[a]));
        break;
      default: {
        std::vector<Instr>& other = any_rank();
        const Instr i = list[a];
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(a));
        other.insert(other.begin() + static_cast<std::ptrdiff_t>(draw(other.size() + 1)), i);
      }
    }
  }
  for (auto& list : s.ranks)
    for (size_t i = 0; i < list.size(); ++i) {
      const bool can =
          i + 1 < list.size() &&
          ((list[i].kind == PartKind::kForward && list[i + 1].kind == PartKind::kBackward) ||
           (list[i].kind == PartKind::kBackward && list[i + 1].kind == PartKind::kWeightGradient));
      list[i].with_next = list[i].with_next && can;
    }
}

TEST(ScheduleCheck, AgreesWithAPlayerOnMutatedSchedules) {
  std::mt19937 random(37);
  int valid = 0, invalid = 0;
  for (const ScheduleDef* def : all_schedules())
    for (int round = 0; round < 600; ++round) {
      ScheduleShape shape = shape_of(def->name, 1 + static_cast<int>(random() % 4),
                                     1 + static_cast<int>(random() % 8));
      if (def->takes_slices) shape.n_slices = 1 + static_cast<int>(random() % 3);
      if (!serves(*def, shape)) continue;
      Schedule s = made(def->name, shape);
      mutate(s, random);
      const bool plays = Player(s).plays();
      EXPECT_EQ(fault(s).empty(), plays) << def->name << ": " << fault(s);
      (plays ? valid : invalid) += 1;
    }
  // There must be many of both, or nothing was compared.
  EXPECT_GT(valid, 500);
  EXPECT_GT(invalid, 2000);
}

}  // namespace
}  // namespace tegula::testing
