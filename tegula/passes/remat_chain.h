// RematChain: the forward part of a training function as a chain of segments.
//
// A *cut* is a place in the forward part that one value alone crosses: everything after it depends
// on what is before only through that value (besides parameters, scalars, and what does not depend
// on the data: masks, position tables). Residual networks have cuts between their blocks, plain
// ones at every layer. What the backward part reads of a segment is *saved*; a saved value can be
// kept, or computed again from the segment's entry when the gradient arrives.
#pragma once

#include <cstdint>
#include <vector>

#include "tegula/passes/pass.h"

namespace tegula {

struct RematChain {
  static constexpr int kNowhere = -1;  // backward, update, or used by several segments

  int n_segments = 0;
  std::vector<int> segment;                 // per node
  std::vector<ValueId> entry;               // per segment: what crosses into it; kNone: the first
  std::vector<uint8_t> entry_is_saved;      // per segment
  std::vector<std::vector<ValueId>> saved;  // per segment: values made in it, but for entries
  // Per segment: values of the backward part (gradients above all) that live when it begins there.
  std::vector<int64_t> backward_bytes;
  std::vector<double> seconds;       // per node: what running it again takes, but for what
                                     // elementwise nodes move
  double seconds_per_byte = 0;       // of memory
  std::vector<uint8_t> is_backward;  // per node: not of the forward part
  std::vector<int> late;             // per backward node: the last segment it depends on
  std::vector<ValueId> root;         // per value: what it is a view of
  // Per value: the views of it from the forward part that the backward part reads.
  std::vector<std::vector<ValueId>> read_views;
};

// At most max_segments: neighbours are joined beyond that.
RematChain find_chain(const Module& module, const Function& f, const PassOptions& options,
                      int max_segments = 128);

// Computing saved values again.
struct Recompute {
  std::vector<NodeId> nodes;    // ascending
  std::vector<ValueId> inputs;  // what they read from outside, parameters too
  double seconds = 0;
  int64_t bytes = 0;  // of recomputed values that the backward part reads
};

class Recomputer {
 public:
  Recomputer(const Function& f, const RematChain& chain);
  // The plan of segments [begin, end): whatever is saved and not kept: keep[v] != 0.
  Recompute plan(int begin, int end, const std::vector<uint8_t>& keep);

 private:
  const Function& f_;
  const RematChain& chain_;
  int64_t moved_by_fused(const Recompute& r);
  std::vector<uint32_t> node_seen_, value_seen_, moved_seen_;
  std::vector<uint8_t> is_saved_;
  uint32_t tick_ = 0, moved_tick_ = 0;
};

}  // namespace tegula
