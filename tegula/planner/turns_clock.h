// TurnsClock: how long a pipeline's lists take when all stages are alike and messages take no time.
//
// A list (tegula/plan/schedules) is a graph: an entry waits for the one before it on its rank and
// for what it reads. Its longest path is the step, from the first begin to the last end, what
// tegula/plan/simulate finds for such stages. From some micro-batch on a list repeats itself every
// p micro-batches, so that of longer ones a beginning is followed, and what a round of p more
// takes is added for the rest:
//   T(m) = T(m') + (m − m')/p·(T(m') − T(m' − p)),   m' ≡ m mod p, kRounds·p ≤ m' < (kRounds + 1)·p
// For schedules without a closed form: ZB-V, Chimera, DualPipe. Not safe for several threads: it
// remembers the graphs.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "tegula/planner/layout.h"

namespace tegula::planner {

class TurnsClock {
 public:
  // The times of one stage for one micro-batch, seconds; backward without weight gradients.
  struct Times {
    double forward = 0, backward = 0, weights = 0;
    double together = 1;  // share of the sum of their times that entries that go together take
    friend bool operator==(const Times&, const Times&) = default;
  };
  static constexpr int64_t kRounds = 3;

  // Error: the schedule's own.
  Result<double> seconds(Turns turns, int64_t pp, int64_t n_microbatches, const Times& times);

 private:
  struct Graph {
    std::vector<uint8_t> counts;  // of each node 2 bits for F, B, W each
    std::vector<int> begin;       // its predecessors: from[begin[i] … begin[i + 1]]
    std::vector<int> from;
  };
  static Result<Graph> graph_of(Turns turns, int64_t pp, int64_t n_microbatches);
  Result<double> followed(Turns turns, int64_t pp, int64_t n_microbatches, const Times& times);
  Result<double> longest(Turns turns, int64_t pp, int64_t n_microbatches, const Times& times);

  std::map<std::tuple<Turns, int64_t, int64_t>, Graph> graphs_;
  std::vector<double> ends_;
  // Layouts that differ in ZeRO alone come one after another.
  struct Answer {
    Turns turns = Turns::kGpipe;
    int64_t pp = 0, n_microbatches = 0;
    Times times;
    double seconds = 0;
  };
  Answer last_;
};

}  // namespace tegula::planner
