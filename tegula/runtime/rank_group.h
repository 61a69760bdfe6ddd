// RankGroup: the ranks of a mesh as threads of this process. Collectives meet here and read one
// another's memory.
//
//   RankGroup group(mesh);
//   Rank& rank = ...; rank.peers = &group.peers(r);          // one for each of mesh.n_ranks()
//   group.run([&](int64_t r) { return sessions[r]->run(); });  // all at once
//   group.sent_bytes(r)                                       // counted by those that copied
#pragma once

#include <vector>

#include "tegula/base/memory.h"
#include "tegula/ir/sharding.h"
#include "tegula/kernels/peers.h"

namespace tegula {

class RankGroup {
 public:
  explicit RankGroup(Mesh mesh);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  const Mesh& mesh() const { return mesh_; }
  Peers& peers(int64_t rank);
  // The bytes that others have taken from this rank since the group was made.
  int64_t sent_bytes(int64_t rank) const;

  // Have all ranks the same number? Each calls it, within run(). Error, on the ranks that see it:
  // the first rank along an axis that has another one.
  Status agree(int64_t rank, std::string_view what, uint64_t number);

  // Calls fn(rank) in a thread for each rank; the error of the first rank that failed by itself.
  // When one fails, those that wait for it go on with an error.
  template <class F>
  Status run(F fn) {
    return run_all([](void* f, int64_t r) -> Status { return (*static_cast<F*>(f))(r); }, &fn);
  }

 private:
  struct Meeting;
  struct Posted;
  struct Member;
  struct Waiting;  // the lock of all that ranks share, and who waits for a change
  Status run_all(Status (*fn)(void* context, int64_t rank), void* context);
  void begin();
  Status ended(int64_t rank, Status status);
  Status first_cause(std::vector<Status>& status) const;

  Mesh mesh_;
  std::unique_ptr<Waiting> waiting_;
  bool failed_ = false;
  int64_t failed_first_ = -1;
  std::vector<std::unique_ptr<Meeting>> meetings_;  // of each group of each axis
  std::vector<std::unique_ptr<Member>> members_;    // of each rank
};

}  // namespace tegula
