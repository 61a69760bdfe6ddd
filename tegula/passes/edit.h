// Edit: removes nodes of a function in place, lets other values stand for theirs and puts nodes
// that were appended meanwhile where they belong.
#pragma once

#include <utility>
#include <vector>

#include "tegula/ir/module.h"

namespace tegula {

class Edit {
 public:
  explicit Edit(Function& f);

  // From now on `stand_in` (an earlier value) is read wherever `v` was. It takes over what was said
  // of where v lies, unless something is said of it.
  void replace(ValueId v, ValueId stand_in) { map_[v] = resolve(stand_in); }
  ValueId resolve(ValueId v) const { return v < map_.size() ? map_[v] : v; }
  void drop(NodeId n) { dropped_[n] = true, ++n_dropped_; }
  bool is_dropped(NodeId n) const { return dropped_[n]; }
  // The nodes appended to f since the last call (or since the beginning) come before node n, which
  // must not be before the last call's.
  void put_before(NodeId n);
  bool any() const { return n_dropped_ > 0 || !inserted_.empty(); }

  // Rewrites every operand and result, removes dropped nodes and numbers values anew. No dropped
  // node's value may still be read.
  void apply();

 private:
  ValueId renumbered(ValueId v, const std::vector<ValueId>& new_value) const;
  void move_shardings(const std::vector<ValueId>& new_value);
  void close_gaps(std::vector<ValueId>& new_value);
  void rebuild(std::vector<ValueId>& new_value);

  Function& f_;
  std::vector<ValueId> map_;
  std::vector<uint8_t> dropped_;
  size_t n_dropped_ = 0;
  std::vector<std::pair<NodeId, NodeId>> inserted_;  // before a node: the appended ones up to here
};

// Removes the nodes that no result depends on; true: there were some.
bool remove_dead_nodes(Function& f);

}  // namespace tegula
