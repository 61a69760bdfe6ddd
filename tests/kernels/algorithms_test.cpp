// Algorithms of collectives as data: whoever executes them in any order that their rounds allow,
// every rank ends with what the collective says, nothing is written twice, and what is sent is what
// the textbook's formula says.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tegula/base/philox.h"
#include "tegula/base/str.h"
#include "tegula/kernels/cpu/common/algorithm.h"

namespace tegula {
namespace {

using enum CollectiveKind;
constexpr CollectiveKind kKinds[] = {kBroadcast, kScatter,       kGather,    kAllGather,
                                     kReduce,    kReduceScatter, kAllReduce, kAllToAll};

// An element of a rank's operand; sums hold which ranks have been added, each once.
struct Cell {
  int64_t element = -1;
  std::set<int64_t> ranks;
  bool is_there = false;
};
using Cells = std::vector<Cell>;

bool is_sum(CollectiveKind k) { return k == kReduce || k == kReduceScatter || k == kAllReduce; }

struct Group {
  CollectiveJob job;
  const AlgorithmDef& how;
  std::vector<Cells> spaces[3];  // operand, result, workspace of each rank

  int64_t operand_size(int64_t r) const {
    if (job.kind == kAllToAll) return job.in_operand(r, job.n_ranks);
    const bool is_part = job.kind == kGather || job.kind == kAllGather;
    return is_part ? job.size(r) : job.n;
  }
  int64_t result_size(int64_t r) const {
    if (job.kind == kAllToAll) return job.in_result(job.n_ranks, r);
    const bool is_part = job.kind == kScatter || job.kind == kReduceScatter;
    return is_part ? job.size(r) : job.n;
  }
  // Element i of rank r's operand, as a number in the whole; of an all_to_all by sender.
  int64_t element(int64_t r, int64_t i) const {
    if (job.kind == kAllToAll) return r * 1'000'000 + i;
    return job.kind == kGather || job.kind == kAllGather ? job.begin(r) + i : i;
  }
  explicit Group(CollectiveJob j, const AlgorithmDef& a) : job(j), how(a) {
    for (int64_t r = 0; r < job.n_ranks; ++r) {
      Cells& x = spaces[0].emplace_back(static_cast<size_t>(operand_size(r)));
      const bool is_read = (job.kind != kBroadcast && job.kind != kScatter) || r == job.root;
      for (size_t i = 0; i < x.size(); ++i)
        if (is_read) x[i] = {element(r, static_cast<int64_t>(i)), {r}, true};
      spaces[1].emplace_back(static_cast<size_t>(result_size(r)));
      spaces[2].emplace_back(static_cast<size_t>(how.workspace ? how.workspace(job, r) : 0));
    }
  }
  Cells& at(Space s, int64_t r) { return spaces[static_cast<int>(s)][static_cast<size_t>(r)]; }

  testing::AssertionResult write(int64_t r, SpacePlace to, int64_t i, Cell cell) {
    Cells& cells = at(to.space, r);
    const auto place = static_cast<size_t>(to.at + i);
    if (to.space == Space::kOperand) return testing::AssertionFailure() << "writes an operand";
    if (place >= cells.size()) return testing::AssertionFailure() << "writes past the end";
    if (!cell.is_there) return testing::AssertionFailure() << "reads what is not there";
    if (cells[place].is_there) return testing::AssertionFailure() << "writes a place twice";
    cells[place] = std::move(cell);
    return testing::AssertionSuccess();
  }

  // All of a round's reads see what was there before it, whatever else the round writes.
  testing::AssertionResult run() {
    for (int64_t round = 0; round < how.n_rounds(job); ++round) {
      std::vector<Cells> before[3] = {spaces[0], spaces[1], spaces[2]};
      for (int64_t r = 0; r < job.n_ranks; ++r) {
        Round all;
        how.list(job, r, round, all);
        for (const Take& t : all.takes)
          for (int64_t i = 0; i < t.n; ++i) {
            const Cells& from =
                before[static_cast<int>(t.from.space)][static_cast<size_t>(t.giver)];
            const auto place = static_cast<size_t>(t.from.at + i);
            if (place >= from.size()) return testing::AssertionFailure() << "reads past the end";
            if (auto ok = write(r, t.to, i, from[place]); !ok)
              return ok << " in round " << round << " at rank " << r;
          }
        for (const Sum& s : all.sums)
          for (int64_t i = 0; i < s.n; ++i) {
            Cell sum;
            for (size_t k = 0; k < s.n_terms; ++k) {
              const SpacePlace p = all.terms[s.first_term + k];
              const Cell& term = at(p.space, r).at(static_cast<size_t>(p.at + i));
              if (!term.is_there) return testing::AssertionFailure() << "adds what is not there";
              if (k > 0 && term.element != sum.element)
                return testing::AssertionFailure() << "adds other elements";
              for (const int64_t rank : term.ranks)
                if (!sum.ranks.insert(rank).second)
                  return testing::AssertionFailure() << "adds rank " << rank << " twice";
              sum.element = term.element, sum.is_there = true;
            }
            if (auto ok = write(r, s.to, i, sum); !ok) return ok << " in round " << round;
          }
      }
    }
    return is_right();
  }

  testing::AssertionResult is_right() {
    for (int64_t r = 0; r < job.n_ranks; ++r) {
      if ((job.kind == kGather || job.kind == kReduce) && r != job.root) continue;
      const Cells& y = at(Space::kResult, r);
      const bool is_part = job.kind == kScatter || job.kind == kReduceScatter;
      size_t i = 0;
      const auto expect = [&](int64_t element, size_t n_terms) {
        const bool ok = i < y.size() && y[i].is_there && y[i].element == element &&
                        y[i].ranks.size() == n_terms;
        ++i;
        return ok;
      };
      for (size_t k = 0; k < y.size(); ++k) {
        int64_t element =
            is_part ? job.begin(r) + static_cast<int64_t>(k) : static_cast<int64_t>(k);
        if (job.kind == kAllToAll) {
          int64_t from = 0;
          while (job.in_result(from + 1, r) <= static_cast<int64_t>(k)) ++from;
          element = from * 1'000'000 + job.in_operand(from, r) + static_cast<int64_t>(k) -
                    job.in_result(from, r);
        }
        if (!expect(element, is_sum(job.kind) ? static_cast<size_t>(job.n_ranks) : 1))
          return testing::AssertionFailure() << "rank " << r << " ends with another element " << k;
      }
    }
    return testing::AssertionSuccess();
  }
};

std::string name_of(const AlgorithmDef& a, const CollectiveJob& j) {
  return cat(a.name, " ", kind_name(j.kind), " of ", j.n, " over ", j.n_ranks, " from ", j.root);
}

constexpr int64_t kRanks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16};

TEST(Algorithms, EveryRankEndsWithWhatTheOpSays) {
  int n_run = 0;
  for (const AlgorithmDef* a : all_algorithms())
    for (const CollectiveKind kind : kKinds)
      for (const int64_t n : kRanks) {
        if (!a->does(kind)) continue;
        const bool has_root =
            kind == kBroadcast || kind == kScatter || kind == kGather || kind == kReduce;
        for (int64_t root = 0; root < (has_root ? n : 1); ++root)
          for (const int64_t size : {n * 3, n * 2 + 1, int64_t{1}}) {
            if (kind == kAllToAll && size % n != 0) continue;
            const CollectiveJob job{
                .kind = kind, .n_ranks = n, .root = root, .n = size, .segment = 5};
            EXPECT_TRUE(Group(job, *a).run()) << name_of(*a, job);
            ++n_run;
          }
      }
  EXPECT_GT(n_run, 1500);
}

TEST(Algorithms, RaggedPartsGoToWhomTheyBelong) {
  uint64_t seed = 0;
  for (const AlgorithmDef* a : all_algorithms())
    for (const CollectiveKind kind :
         {kScatter, kGather, kAllGather, kReduceScatter, kAllReduce, kAllToAll})
      for (const int64_t n : kRanks) {
        // Blocks that go on through others are of one size.
        if (!a->does(kind) || (kind == kAllToAll && a->name == "halving")) continue;
        for (int64_t root = 0; root < n; root += 3) {
          std::vector<int64_t> sizes(static_cast<size_t>(kind == kAllToAll ? n * n : n));
          int64_t all = 0;
          for (size_t i = 0; i < sizes.size(); ++i) {
            sizes[i] = static_cast<int64_t>(4 * philox_uniform(seed, 3, i));  // 0 too
            all += sizes[i];
          }
          ++seed;
          const CollectiveJob job{
              .kind = kind, .n_ranks = n, .root = root, .n = all, .sizes = sizes, .segment = 3};
          EXPECT_TRUE(Group(job, *a).run()) << name_of(*a, job);
        }
      }
}

// Messages and elements of the fullest rank's link, round after round.
AlgorithmPrice measured(const AlgorithmDef& a, const CollectiveJob& job) {
  AlgorithmPrice p;
  for (int64_t round = 0; round < a.n_rounds(job); ++round) {
    int64_t fullest = 0, added = 0;
    for (int64_t r = 0; r < job.n_ranks; ++r) {
      Round all;
      a.list(job, r, round, all);
      std::map<int64_t, int64_t> links;
      int64_t adds = 0;
      for (const Take& t : all.takes)
        if (t.giver != r) links[t.giver] += t.n;
      for (const Sum& s : all.sums) adds += s.n * static_cast<int64_t>(s.n_terms - 1);
      for (const auto& [giver, n] : links) fullest = std::max(fullest, n);
      added = std::max(added, adds);
    }
    p.messages += fullest > 0;
    p.elements += static_cast<double>(fullest) / static_cast<double>(job.n);
    p.added += static_cast<double>(added) / static_cast<double>(job.n);
  }
  return p;
}

TEST(Algorithms, SendWhatTheTextbookSays) {
  for (const AlgorithmDef* a : all_algorithms())
    for (const CollectiveKind kind : kKinds)
      for (const int64_t n : {1, 2, 4, 8, 16}) {
        if (!a->does(kind)) continue;
        for (const int64_t root : {int64_t{0}, n / 2}) {
          const CollectiveJob job{
              .kind = kind, .n_ranks = n, .root = root, .n = 64 * n, .segment = 24};
          const AlgorithmPrice want = n == 1 ? AlgorithmPrice{} : a->price(job);
          const AlgorithmPrice got = measured(*a, job);
          EXPECT_EQ(got.messages, want.messages) << name_of(*a, job);
          EXPECT_NEAR(got.elements, want.elements, 1e-9) << name_of(*a, job);
          EXPECT_NEAR(got.added, want.added, 1e-9) << name_of(*a, job);
        }
      }
}

// In mode exact nothing may be added on the way.
TEST(Algorithms, OnlyDirectSumsAreExact) {
  for (const AlgorithmDef* a : all_algorithms())
    for (const CollectiveKind kind : kKinds) {
      if (!a->does(kind)) continue;
      bool adds_sums = false;
      for (const int64_t n : {3, 8}) {
        const CollectiveJob job{.kind = kind, .n_ranks = n, .n = 64 * n};
        for (int64_t round = 0; round < a->n_rounds(job); ++round)
          for (int64_t r = 0; r < n; ++r) {
            Round all;
            a->list(job, r, round, all);
            for (const Sum& s : all.sums) adds_sums |= s.n_terms != static_cast<size_t>(n);
          }
      }
      EXPECT_EQ(is_exact(*a, kind), !adds_sums) << a->name << " " << kind_name(kind);
    }
}

}  // namespace
}  // namespace tegula
