// A function's blocks: what the search looks at, one at a time, alike ones once.
//
// A block is the nodes of one phase at one place of the model ("layers.3"), or at none, between
// which no other node stands: what flows out of it and back begins another block. Ops with effects,
// regions and collectives belong to none, nor does the update.
#pragma once

#include "tegula/ir/builder.h"

namespace tegula::superopt {

// Who reads each value, in order.
class Users {
 public:
  explicit Users(const Function& f);
  std::span<const NodeId> of(ValueId v) const {
    return std::span(nodes_).subspan(begin_[v], begin_[v + 1] - begin_[v]);
  }

 private:
  std::vector<uint32_t> begin_;
  std::vector<NodeId> nodes_;
};

struct Block {
  std::string place;  // "layers.3"; "": none
  std::vector<NodeId> nodes;
  std::vector<ValueId> inputs, outputs;
};
std::vector<Block> blocks_of(const Module& module, const Function& f);

// The block as the only function of a module, its place called "*".
Result<Module> extract(const Module& module, const Function& f, const Block& block);

// f with each of these blocks replaced by its function, one that extract's became.
struct Replacement {
  const Block* block = nullptr;
  const Module* by = nullptr;
};
Result<Function> replace(Module& module, const Function& f, std::span<const Replacement> all);

}  // namespace tegula::superopt
