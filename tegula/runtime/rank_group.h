// RankGroup: the ranks of a mesh as threads of this process. Collectives meet here and read one
// another's memory.
//
//   RankGroup group(mesh);
//   Rank& rank = ...; rank.peers = &group.peers(r);          // one for each of mesh.n_ranks()
//   group.run([&](int64_t r) { return sessions[r]->run(); });  // all at once
//   group.sent_bytes(r)                                       // counted by those that copied
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
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
  Status run(F&& fn) {
    std::vector<Status> status(static_cast<size_t>(mesh_.n_ranks()));
    std::vector<std::thread> threads;
    begin();
    for (int64_t r = 1; r < mesh_.n_ranks(); ++r)
      threads.emplace_back([&, r] { status[static_cast<size_t>(r)] = ended(r, fn(r)); });
    status[0] = ended(0, fn(0));
    for (std::thread& t : threads) t.join();
    return first_cause(status);
  }

 private:
  struct Meeting;
  struct Posted;
  struct Member;
  void begin();
  Status ended(int64_t rank, Status status);
  Status first_cause(std::vector<Status>& status) const;

  Mesh mesh_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool failed_ = false;
  int64_t failed_first_ = -1;
  std::vector<std::unique_ptr<Meeting>> meetings_;  // of each group of each axis
  std::vector<std::unique_ptr<Member>> members_;    // of each rank
};

}  // namespace tegula
