#include "tegula/ops/common/literal.h"

#include "tegula/base/integer.h"

namespace tegula {

Status check_literal(const OpDef& op, double value, DType dtype) {
  if (is_float(dtype) || static_cast<double>(truncated_int(dtype, value)) == value) return {};
  return invalid_argument(cat(op.name, ": ", dtype, " does not hold ", value,
                              ": cast the operand to a float, or give a number that it holds"));
}

}  // namespace tegula
