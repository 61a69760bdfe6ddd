// A step on the ranks of a mesh, from whole operands to each rank's results.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tegula/ir/host_tensor.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/rank_group.h"
#include "tegula/runtime/session.h"

namespace tegula::test {

// The part of the whole that a rank at `at` holds.
inline HostTensor share_of_whole(const Mesh& mesh, const HostTensor& whole, const Sharding& s,
                                 std::span<const int64_t> at) {
  HostTensor part({whole.type.dtype, *local_shape(mesh, whole.type.shape, s)});
  const Share share = local_share(mesh, whole.type.shape, s, at);
  for (size_t i = 0; i < share.boxes.size(); ++i)
    copy_elements(part_of(whole.ref(), share.boxes[i]), part_of(part.ref(), share.places[i]));
  return part;
}

// Each rank's results. Arenas are poisoned; what is sent is what was planned.
inline std::vector<std::vector<HostTensor>> run_ranks(const CompiledRanks& compiled,
                                                      const std::vector<HostTensor>& whole) {
  const Mesh& mesh = compiled.mesh;
  RankGroup group(mesh);
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<std::vector<HostTensor>> shares, results;
  for (int64_t r = 0; r < mesh.n_ranks(); ++r) {
    ranks.push_back(std::make_unique<Rank>(1));
    ranks.back()->peers = &group.peers(r);
    auto session = Session::create(compiled.plans[static_cast<size_t>(r)], *ranks.back());
    EXPECT_TRUE(session.ok()) << session.error().to_string();
    if (!session.ok()) return {};
    sessions.push_back(std::move(*session));
    sessions.back()->arena().poison(0xff, &ranks.back()->pool);
    shares.emplace_back();
    for (size_t p = 0; p < whole.size(); ++p)
      shares.back().push_back(share_of_whole(mesh, whole[p], compiled.params[p], mesh.at(r)));
    for (size_t p = 0; p < whole.size(); ++p)
      sessions.back()->bind(static_cast<int>(p), shares.back()[p].ref().data);
  }
  const Status st = group.run([&](int64_t r) { return sessions[static_cast<size_t>(r)]->run(); });
  EXPECT_TRUE(st.ok()) << st.error().to_string();
  for (int64_t r = 0; st.ok() && r < mesh.n_ranks(); ++r) {
    Session& s = *sessions[static_cast<size_t>(r)];
    EXPECT_EQ(group.sent_bytes(r), s.plan().sent_bytes(mesh, mesh.at(r))) << "rank " << r;
    results.emplace_back();
    for (size_t i = 0; i < s.plan().results.size(); ++i) {
      HostTensor t(s.plan().results[i].tensor.type);
      copy_elements(s.result(static_cast<int>(i)), t.ref());
      results.back().push_back(std::move(t));
    }
  }
  return results;
}

}  // namespace tegula::test
