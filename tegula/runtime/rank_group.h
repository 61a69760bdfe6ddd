// RankGroup: the ranks of a mesh, as threads of this process or of several. Collectives meet here
// and read one another's memory.
//
//   RankGroup group(mesh);                                    // all ranks are this process's
//   RankGroup group(mesh, segment);                           // the segment says which
//   Rank& rank = ...; group.join(rank, r);                    // for each of its own
//   group.run([&](int64_t r) { return sessions[r]->run(); });  // all own ranks at once
//   group.sent_bytes(r)                                       // counted by those that copied
//
// Two levels (comm/): ranks *meet* at boards in memory that all see, where each shows its tensors
// as offsets; what another one shows is *reached* by adding where the memory is mapped here. So the
// kernels of collectives are the same for threads and processes. With its tensors a rank shows a
// hash of what it calls: one that calls something else is named, with both calls. What runs in the
// background is brought by the process's mover.
#pragma once

#include <vector>

#include "tegula/base/memory.h"
#include "tegula/comm/segment.h"
#include "tegula/ir/sharding.h"
#include "tegula/kernels/peers.h"

namespace tegula {

struct Rank;    // runtime/rank.h
struct Target;  // kernels/target.h

class Mover;  // comm/mover.h

// The axis whose ranks do different things, and give one another what they make: stages.
inline constexpr std::string_view kPipelineAxis = "pp";

// Seconds that a call's links took over all steps, and how much of it its rank has waited for: the
// rest was hidden beside kernels.
struct LinkUse {
  std::string call;  // "send_recv over cp (step 12 of train_step)"
  double link_s = 0, waited_s = 0;
  int64_t times = 0;
};

class RankGroup {
 public:
  explicit RankGroup(Mesh mesh);
  // In a segment that was made for the mesh (flow_bytes). It outlives the group.
  RankGroup(Mesh mesh, Segment& segment);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // The bytes of a segment in which ranks meet.
  static int64_t flow_bytes(const Mesh& mesh);

  const Mesh& mesh() const { return mesh_; }
  Segment& segment() { return *segment_; }
  // The ranks of this process.
  int64_t first_rank() const { return segment_->first_rank(); }
  int64_t n_own() const { return segment_->n_own(); }
  Peers& peers(int64_t rank);
  // The rank gets its peers, and takes all its memory from here on where they can read it.
  void join(Rank& rank, int64_t number);
  // The bytes that others have taken from this rank since the group was made.
  int64_t sent_bytes(int64_t rank) const { return segment_->state(rank).sent_bytes; }

  // Tensors that others show are brought: their memory is not mapped, or links are slowed.
  bool brings() const { return segment_->brings(); }
  // Facts that a plan must know.
  void describe_links(Target& target) const;
  // Counts of an own rank, when nobody runs: its collectives in the background, and those that were
  // brought.
  std::vector<LinkUse> link_uses(int64_t rank) const;

  // Have all ranks the same number, but for those of a pipeline, who need not? Each calls it,
  // within run(). Error, on the ranks that see it: the first rank along an axis that has another
  // one.
  Status agree(int64_t rank, std::string_view what, uint64_t number);

  // Calls fn(rank) in a thread for each own rank; the error of the first rank that failed by
  // itself, whosever it is. When one fails, those that wait for it go on with an error.
  template <class F>
  Status run(F fn) {
    return run_all([](void* f, int64_t r) -> Status { return (*static_cast<F*>(f))(r); }, &fn);
  }

 private:
  struct Slot;
  struct Board;
  struct Meeting;
  struct Batch;
  struct Posted;
  struct Member;
  void make_members();
  Status run_all(Status (*fn)(void* context, int64_t rank), void* context);
  void begin();

  Mesh mesh_;
  std::unique_ptr<Segment> threads_;  // the segment of ranks of this process alone
  Segment* segment_;
  std::vector<std::unique_ptr<Meeting>> meetings_;  // of each group of each axis
  std::vector<std::unique_ptr<Member>> members_;    // of each own rank
  std::unique_ptr<Mover> mover_;                    // ends before what it moves for
};

}  // namespace tegula
