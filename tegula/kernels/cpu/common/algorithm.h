// Algorithms of collectives, as data: what each rank takes from whom in which round, and adds.
//
// A collective works on elements. Each rank has three spaces: its operand, its result and a
// workspace. In a round a rank lays runs of others' spaces (or of its own) that were written in
// rounds before into its own, then adds. No place is written twice, so that nobody has to know
// when others have read what they need.
//
//   what            operand            result
//   broadcast       the root's n       n
//   scatter         the root's n       the rank's part
//   gather          the rank's part    the root's n
//   all_gather      the rank's part    n
//   reduce          n                  the root's n
//   reduce_scatter  n                  the rank's part
//   all_reduce      n                  n
//   all_to_all      parts for all      parts from all, in the order of ranks
//
// Prices are those of the textbook, with α a message, β a sent element and γ an added one:
// [Chan, Heimlich, Purkayastha, van de Geijn 2007; Thakur, Rabenseifner, Gropp 2005]
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tegula {

enum class CollectiveKind : uint8_t {
  kBroadcast,
  kScatter,
  kGather,
  kAllGather,
  kReduce,
  kReduceScatter,
  kAllReduce,
  kAllToAll
};

struct CollectiveJob {
  CollectiveKind kind = CollectiveKind::kBroadcast;
  int64_t n_ranks = 1, root = 0;
  int64_t n = 0;  // elements of the whole
  // The sizes of each rank's part; of all_to_all [from · n_ranks + to]. Empty: as equal as they can
  // be.
  std::span<const int64_t> sizes = {};
  int64_t segment = 1 << 14;  // elements that a chain passes on at once

  // Where the part of a rank begins in the whole; of n_ranks: its end.
  int64_t begin(int64_t rank) const;
  int64_t size(int64_t rank) const { return begin(rank + 1) - begin(rank); }
  // An all_to_all's elements from one to another, and where they begin in the operand of the one,
  // in the result of the other.
  int64_t size(int64_t from, int64_t to) const;
  int64_t in_operand(int64_t from, int64_t to) const;
  int64_t in_result(int64_t from, int64_t to) const;
};

enum class Space : uint8_t { kOperand, kResult, kWorkspace };
struct SpacePlace {
  Space space = Space::kOperand;
  int64_t at = 0;
};
struct Take {
  int64_t giver = 0;
  SpacePlace from, to;
  int64_t n = 0;
};
// to = the tree over neighbours of the terms.
struct Sum {
  SpacePlace to;
  int64_t n = 0;
  size_t first_term = 0, n_terms = 0;  // of the round's
};
struct Round {
  std::vector<Take> takes;
  std::vector<Sum> sums;
  std::vector<SpacePlace> terms;
  void clear() { takes.clear(), sums.clear(), terms.clear(); }
  void take(int64_t giver, SpacePlace from, SpacePlace to, int64_t n) {
    if (n > 0) takes.push_back({giver, from, to, n});
  }
  void add(SpacePlace a, SpacePlace b, SpacePlace to, int64_t n) {
    if (n == 0) return;
    sums.push_back({to, n, terms.size(), 2});
    terms.push_back(a), terms.push_back(b);
  }
};

// On the way of the last: messages, elements sent, elements added. Elements in shares of n.
struct AlgorithmPrice {
  double messages = 0, elements = 0, added = 0;
  double seconds(double alpha, double beta, double gamma) const {
    return messages * alpha + elements * beta + added * gamma;
  }
};

struct AlgorithmDef {
  std::string_view name, doc;
  bool (*does)(CollectiveKind kind) = nullptr;
  // It adds what has been added before: the order of a sum is the algorithm's, not our tree.
  bool adds_on_the_way = false;
  int64_t (*n_rounds)(const CollectiveJob& job) = nullptr;
  // Appends what the rank does in a round.
  void (*list)(const CollectiveJob& job, int64_t rank, int64_t round, Round& out) = nullptr;
  int64_t (*workspace)(const CollectiveJob& job, int64_t rank) = nullptr;  // elements; null: none
  // With equal parts.
  AlgorithmPrice (*price)(const CollectiveJob& job) = nullptr;
};

std::span<const AlgorithmDef* const> all_algorithms();
const AlgorithmDef* find_algorithm(std::string_view name);
std::string_view kind_name(CollectiveKind kind);
// Does it do this job without adding on the way?
bool is_exact(const AlgorithmDef& a, CollectiveKind kind);

// The least result of which 2^result ranks are as many or more.
int64_t rounds_of_tree(int64_t n_ranks);

}  // namespace tegula
