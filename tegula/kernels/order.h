// Numeric orders: in which order, and how often rounded, the sums of a call are formed. A node's
// order is chosen before its kernel is: by op, attributes, dtypes and target, never by extents, so
// that a rank's or a micro-batch's part of a call has the order of the whole. A kernel of an order
// serves all that the order takes.
#pragma once

#include <span>
#include <string_view>

#include "tegula/kernels/kernel.h"

namespace tegula {

struct OrderDef {
  std::string_view op, name;
  std::string_view doc;  // its definition, in a line
  Isa min_isa = Isa::kPortable;
  // It asks for the query's attributes and dtypes alone; null: every call.
  bool (*takes)(const KernelQuery&) = nullptr;
};

// The CPU's, of the ops that have several: of one op the preferred first, the last takes all.
std::span<const OrderDef> cpu_orders();

// The order of the call on the target. Empty: its op has one there, that of whichever kernel serves
// it. (CUDA's kernels do not tell yet: there the best kernel's is taken.)
std::string_view resolve_order(std::string_view op, const Target& target, const KernelQuery& query);

}  // namespace tegula
