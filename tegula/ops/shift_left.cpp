// y = a 2^b, wrapped; 0 where b is negative or the width and more
#include "tegula/ops/elementary.h"

namespace tegula {

constinit const OpDef shift_left_op = {
    .name = "shift_left",
    .formula = "y = a 2^b, wrapped; 0 where b is negative or the width and more",
    .group = "elementwise",
    .dims = kBinaryDims,
    .types_fn = [](const OpCall& c) { return bit_types(c, false); },
    .flops = per_element<1>,
    .tile = tile_binary<tile::Op::kShiftLeft>,
    .reference = reference_of<IntegerRef<integer::shift_left>>,
    .samples =
        [] {
          std::vector<Sample> s = binary_samples(0, 20, DType::kI32);
          s.push_back({"edges",
                       {{{DType::kI32, {6}}, 0, 0, {-5, 5, -5, 5, -2147483648.0, 3}},
                        {{DType::kI32, {6}}, 0, 0, {1, 31, 32, -1, 1, 40}}},
                       {}});
          s.push_back({"i8", {{{DType::kI8, {40}}, -128, 127}, {{DType::kI8, {40}}, -1, 9}}, {}});
          return s;
        },
    .is_elementwise = true,
};

}  // namespace tegula
