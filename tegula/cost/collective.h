// Seconds of a collective among n ranks, by the model α + nβ + nγ. [Thakur et al. 2005; Chan et al.
// 2007]
//
// M is the message in bytes: of an all-reduce, broadcast or all-to-all what each rank has, of an
// all-gather or reduce-scatter the whole. α is a message's latency, β seconds a byte, γ seconds to
// add a byte.
//   ring       all-reduce      2(n−1)·α + 2(n−1)/n·M·β + (n−1)/n·M·γ
//              all-gather       (n−1)·α +  (n−1)/n·M·β
//              reduce-scatter   (n−1)·α +  (n−1)/n·M·(β + γ)
//   tree       all-reduce      2⌈log n⌉·(α + M·β) + ⌈log n⌉·M·γ   (reduce, then broadcast: MST)
//              all-gather       ⌈log n⌉·α + (n−1)/n·M·β           (gather by recursive doubling)
//              reduce-scatter   ⌈log n⌉·α + (n−1)/n·M·(β + γ)     (recursive halving)
//   all-to-all                  (n−1)·α +  (n−1)/n·M·β            (every pair on its own)
// The lesser of ring and tree is taken, small messages by tree and large ones by ring.
#pragma once

#include "tegula/cost/cluster.h"
#include "tegula/cost/efficiency.h"

namespace tegula {

enum class Algorithm : uint8_t { kRing, kTree };

// γ of a device: memory reads two bytes and writes one for each that is added. `reached`: the share
// of its peak.
inline double gamma_of(const Accelerator& device, double reached = 1) {
  return 3 / (device.memory_bytes_per_s * reached);
}
// Messages one after another: α·messages + β·bytes.
inline double seconds_of(const Link& link, double messages, double bytes) {
  return messages * link.seconds + bytes / link.bytes_per_s;
}
// α, β and γ as the caller has them.
double seconds_of(Collective what, Algorithm how, double bytes, int64_t n, Link link,
                  double gamma = 0);
// By the faster algorithm.
double seconds_of(Collective what, double bytes, int64_t n, Link link, double gamma = 0);
// Bytes that leave each rank by the ring.
double bytes_sent(Collective what, double bytes, int64_t n);
// The part that a link of the group gives of what its data sheet says.
Link reached(const ClusterSpec& cluster, Collective what, Link link, const RankSpan& group,
             const Efficiency& e);
// Over the group's link, with it and the memory as far as they are reached; no message takes less
// than its LinkShare says.
double seconds_of(const ClusterSpec& cluster, Collective what, double bytes, const RankSpan& group,
                  const Efficiency& e);
// By data sheets: a group within a node, or of one rank a node, by its link. One with several ranks
// in each of several nodes also by the hierarchy, if that is faster: within nodes, between them
// with as many cards as a node has ranks, within nodes again.
//   all-reduce      reduce-scatter inside + all-reduce of M/k between + all-gather inside
//   all-gather      all-gather of M/m between (each rank its share) + all-gather inside
//   reduce-scatter  the other way round
// k ranks of the group in each of m nodes.
double seconds_on(const ClusterSpec& cluster, Collective what, double bytes, const RankSpan& group);
// The same as so many messages of NCCL: all-gathers and reduce-scatters go by its ring whatever
// their size, n − 1 hops with 4 times the latency of a short message within a node, 14/6 times
// between nodes (src/graph/tuning.cc: 4 and 14 µs). All-reduces as above, each message by itself.
double seconds_of(const ClusterSpec& cluster, Collective what, double bytes, const RankSpan& group,
                  const Efficiency& e, double messages);
// The message from which on the ring is the faster one; 0: always.
double crossover_bytes(Collective what, int64_t n, Link link, double gamma = 0);

}  // namespace tegula
