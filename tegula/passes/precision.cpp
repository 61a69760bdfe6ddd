#include "tegula/passes/precision.h"

namespace tegula {

bool is_low_operand(const OpDef& op, size_t i) {
  if (op.types.empty()) return true;
  std::string_view types = op.types.substr(0, op.types.find("->"));
  for (; i > 0; --i) {
    if (types.find(',') == types.npos) return false;
    types.remove_prefix(types.find(',') + 1);
  }
  const size_t at = types.find_first_not_of(' ');
  return at != types.npos && (types[at] == 'F' || types[at] == 'T');
}

std::vector<Type> lowered_types(const OpDef& op, std::span<const Type> in, DType low) {
  std::vector<Type> out(in.begin(), in.end());
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i].dtype == DType::kF32 && is_low_operand(op, i)) out[i].dtype = low;
  return out;
}

}  // namespace tegula
