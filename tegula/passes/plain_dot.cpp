#include "tegula/passes/plain_dot.h"

#include "tegula/ops/table.h"

namespace tegula {

DotDims dims_of(const Node& dot) { return *DotDims::parse(dot.attrs.str("dims")); }

int trailing_n(const DotDims& dims) {
  int n = 0;
  for (std::string_view name : dims.out) {
    if (!dims.a.has(name)) {
      ++n;
    } else if (n > 0) {
      return -1;
    }
  }
  return n;
}

bool is_plain_dot(const Node& n) {
  return n.op == &dot_op && n.inputs.size() == 2 && !n.attrs.has("scale") &&
         !n.attrs.flag("bias") && n.attrs.get_or<std::string>("activation", "none") == "none";
}

}  // namespace tegula
