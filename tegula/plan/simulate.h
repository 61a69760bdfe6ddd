// simulate: what a schedule takes, if every rank has a device of its own: begin and end of each
// part, messages between ranks, waiting, memory. It is ScheduleLoop with a backend that computes
// nothing.
//
// A part begins when its rank is free and all messages that it reads have come. What one part makes
// for another rank goes as one message, as soon as the part has ended: it takes a link, of which
// there is one from each rank to each other, for bytes / bytes_per_s, one message after another,
// and comes latency_s later. If sends do not overlap, the sender computes nothing meanwhile.
// Gradients that several ranks sum go to the rank that has the update once, after the last of them.
//
// The unit is the second; sums of whole numbers of seconds are exact.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tegula/plan/schedule_loop.h"

namespace tegula {

struct Links {
  double latency_s = 0;
  double bytes_per_s = 0;     // 0: messages take no time but the latency
  bool sends_overlap = true;  // with computing
};

struct SimulateOptions {
  // Seconds of each part, say its plan's; or of each part and slice, slices of a part together.
  std::span<const double> seconds;
  Links links;
  double together = 1;  // share of the sum of their times that parts that go together take
};

struct Simulated {
  struct Item {
    PartRun run;
    int rank;
    double begin_s, end_s;
  };
  struct Message {
    int from, to;  // ranks
    int64_t bytes;
    double begin_s, end_s;  // on the link; it comes latency_s later
  };
  struct OfRank {
    double busy_s = 0;
    double begin_s = 0, end_s = 0;  // of its first and its last part of a micro-batch
    double waits_s = 0;             // between them
    int64_t peak_bytes = 0;  // flows made or awaited there, from the begin of their part or message
                             // until they have been read and sent
  };
  std::vector<Item> items;  // each rank's in its order
  std::vector<Message> messages;
  std::vector<OfRank> ranks;
  double step_s = 0;  // from the first begin to the last end
  double bubble = 0;  // 1 − Σ busy / (ranks · step)
};

// Errors: seconds that are not one for each part (or part and slice); numbers that are negative or
// not finite; an order that can never go on.
Result<Simulated> simulate(const Program& program, const Schedule& schedule,
                           const SimulateOptions& options);

}  // namespace tegula
