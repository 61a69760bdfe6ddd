// The work that a device does in many small kernels of one kind, brought together in the order, so
// that neighbours may become one launch (runtime/device_joins.cpp).
#pragma once

#include <vector>

#include "tegula/ir/module.h"

namespace tegula {

// An order of f's nodes, changed thus.
//   a training step   What makes of weights alone what the backward reads too (casts) comes first:
//                     it lives until then anyway. The update at the end comes in waves, each of
//                     what needs only those before: all parameters' sums of squares, then their
//                     sums, then all updates.
//   inference         All of it in waves (queries beside keys and values, gates beside what they
//                     multiply), but for what is made of weights alone: that stays with its reader.
std::vector<NodeId> gather_alike(const Function& f, std::vector<NodeId> order);
// No backward, no update.
bool is_inference(const Function& f);

}  // namespace tegula
