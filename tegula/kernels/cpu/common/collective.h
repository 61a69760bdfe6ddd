// Shared by the kernels of collectives.
#pragma once

#include <cstring>
#include <string>
#include <utility>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/device_call.h"
#include "tegula/kernels/moves.h"
#include "tegula/kernels/peers.h"

namespace tegula::kernel {

// A rank that is alone in its group keeps what it has; true: that was all.
bool keeps_alone(const KernelCall& c);

// Meets the group over the call's operand and result, does `work(met, peers)`, and waits until all
// have done theirs, since nobody may change what others still read. `work` gives false where a rank
// failed meanwhile.
template <class F>
void with_group(const KernelCall& c, F&& work) {
  if (keeps_alone(c)) return;
  Peers& peers = *static_cast<const DeviceCall&>(c).peers;
  const std::string& axis = c.attrs->str("axis");
  const Peers::Met met = peers.meet(axis, c.in[0], c.out[0]);
  if (!met.all.empty() && work(met, peers)) peers.meet(axis);
}

inline constexpr size_t kMostRanks = 64;  // that are joined at once
// Not more ranks than are joined at once.
bool supports_group(const Attrs& attrs);
// One operand and one result, both dense.
bool supports_collective(const KernelQuery& q);

// A dense tensor as rows along one dim: of each of `parts` parts of the dim, in each of `outer`
// indices before it, one rank's share is a run of `run` elements.
struct Runs {
  int64_t outer = 1, parts = 1, run = 1;
  // The runs of the tensor in which all ranks' shares lie side by side.
  Runs(const TensorRef& whole, int64_t dim, int64_t parts, int64_t n_ranks);
  int64_t count() const { return outer * parts; }
  // First element of run i, in a share of its own and in the whole.
  int64_t in_share(int64_t i) const { return i * run; }
  int64_t in_whole(int64_t i, int64_t rank, int64_t n_ranks) const {
    return (i * n_ranks + rank) * run;
  }
};

// to[0, n) = the tree over neighbours (ir/collective.h) of n elements from each of terms on, one a
// rank in their order.
void reduce_terms(DType dtype, std::string_view combine, std::span<const uint8_t* const> terms,
                  int64_t n, uint8_t* to);
// The same of all ranks' operands from `from` on. The others' part of it counts as sent by them.
void reduce_run(const Peers::Met& met, std::string_view combine, int64_t from, int64_t n,
                uint8_t* to);

// A sum in parts: the others' terms wait in the workspace side by side, each of `bytes`, the rank's
// own lies in its operand. Plans count it where a call is in the background, or none reads what
// others show.
int64_t terms_bytes(const KernelQuery& q, int64_t bytes);
struct BroughtTerms {
  uint8_t* workspace = nullptr;
  int64_t bytes = 0, index = 0, n = 1;
  BroughtTerms(const KernelCall& c, int64_t bytes, int64_t index);
  // Where that of another rank lies.
  uint8_t* of(int64_t rank) const { return workspace + (rank < index ? rank : rank - 1) * bytes; }
  // to[0, count) = the tree of all from byte `from` of each on, `own` of this rank.
  void reduce(DType dtype, std::string_view combine, const uint8_t* own, int64_t from,
              int64_t count, uint8_t* to) const;
};
// The move of a whole run of bytes.
Move move_of(int64_t giver, int64_t from, int64_t bytes, uint8_t* to);
// Appends the moves of a part of the giver's operand (`operand` + data's distance from it) into a
// tensor of the same shape.
void list_strided(int64_t giver, const uint8_t* operand, const TensorRef& from, const TensorRef& to,
                  std::vector<Move>& moves);

// fn(from, n) on the parts of elements [lo, hi), shared out over threads.
template <class F>
void in_parts(ThreadPool& pool, int64_t lo, int64_t hi, F&& fn) {
  constexpr int64_t kGrain = 4096;
  const int64_t grain = pool.grain(kGrain);
  pool.parallel_for((hi - lo + grain - 1) / grain, [&](int64_t i, int) {
    const int64_t from = lo + i * grain;
    fn(from, std::min(grain, hi - from));
  });
}

uint8_t* at(const TensorRef& t, int64_t element);
// Bytes of `from`, which belongs to rank `giver`.
void copy_from(const Shown& giver, const uint8_t* from, int64_t n_bytes, uint8_t* to);

}  // namespace tegula::kernel
