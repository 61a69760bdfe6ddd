#include "tegula/passes/superopt/kinds.h"

namespace tegula::superopt {

namespace {
constexpr KindDef kKinds[] = {
    {"add", "", add_form},
    {"broadcast", "shape", broadcast_form},
    {"concat", "dim", concat_form},
    {"constant", "shape value", constant_form},
    {"conv", "stride dilation input_dilation lo hi out groups", conv_form},
    {"dot", "dims", dot_form},
    {"dynamic_update_slice", "dim start", update_form},
    {"iota", "shape dim", iota_form},
    {"logical_and", "", mul_form},
    {"logical_not", "", not_form},
    {"logical_or", "", or_form},
    {"max", "", max_form},
    {"mul", "", mul_form},
    {"neg", "", neg_form},
    {"pad", "dim lo hi interior value", pad_form},
    {"permute", "order", permute_form},
    {"pool_max", "kernel stride lo hi out", pool_max_form},
    {"pool_sum", "kernel stride lo hi out", pool_sum_form},
    {"reduce_max", "dims keep", reduce_max_form},
    {"reduce_sum", "dims keep", reduce_sum_form},
    {"reshape", "shape", reshape_form},
    {"scale", "by", scale_form},
    {"select", "", select_form},
    {"slice", "dim start size step", slice_form},
    {"sub", "", sub_form},
};
}  // namespace

std::span<const KindDef> all_kinds() { return kKinds; }

Status expect_operands(std::string_view kind, const KindCall& call, size_t n) {
  if (call.in.size() != n)
    return invalid_argument(cat(kind, ": has ", call.in.size(), " operands, must have ", n));
  return {};
}

Result<size_t> dim_of(std::string_view kind, const KindCall& call, size_t rank) {
  const std::vector<int64_t> dim = call.attrs.integers("dim");
  if (dim.size() != 1 || dim[0] < 0 || dim[0] >= static_cast<int64_t>(rank))
    return invalid_argument(cat(kind, ": dim must be 0 to ", static_cast<int64_t>(rank) - 1));
  return static_cast<size_t>(dim[0]);
}

std::vector<Poly> own_indices(size_t rank) {
  std::vector<Poly> all;
  for (size_t d = 0; d < rank; ++d) all.emplace_back(out_index(d));
  return all;
}

}  // namespace tegula::superopt
