// Edit: removes nodes of a function in place and lets other values stand for theirs.
#pragma once

#include <vector>

#include "tegula/ir/module.h"

namespace tegula {

class Edit {
 public:
  explicit Edit(Function& f);

  // From now on `stand_in` (an earlier value) is read wherever `v` was.
  void replace(ValueId v, ValueId stand_in) { map_[v] = map_[stand_in]; }
  ValueId resolve(ValueId v) const { return map_[v]; }
  void drop(NodeId n) { dropped_[n] = true, ++n_dropped_; }
  bool is_dropped(NodeId n) const { return dropped_[n]; }
  bool any() const { return n_dropped_ > 0; }

  // Rewrites every operand and result, removes dropped nodes and numbers values anew. No dropped
  // node's value may still be read.
  void apply();

 private:
  Function& f_;
  std::vector<ValueId> map_;
  std::vector<uint8_t> dropped_;
  size_t n_dropped_ = 0;
};

// Removes the nodes that no result depends on; true: there were some.
bool remove_dead_nodes(Function& f);

}  // namespace tegula
