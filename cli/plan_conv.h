// tegula plan --conv: what every way to spread a convolution, or a product, over a mesh's axes
// takes.
#pragma once

#include <string>

#include "cli/command.h"

namespace tegula::cli {

struct ConvFlags {
  std::string shape;  // "batch=32,in=64,out=128,height=56,width=56,kernel=3,pad=1"
  bool asked() const { return !shape.empty(); }
};

// After --mesh, without which it means nothing; returns --conv.
Flag add_conv(const Command& cmd, ConvFlags& flags);
// `layout`: which axes cut what already; `on`: the accelerator. Half-precision elements if
// `is_half`.
Status plan_conv(const ConvFlags& flags, const std::string& mesh, const std::string& layout,
                 const std::string& on, bool is_half, bool as_json);

}  // namespace tegula::cli
