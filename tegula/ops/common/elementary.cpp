#include "tegula/ops/common/elementary.h"

namespace tegula {

Result<std::vector<DType>> bit_types(const OpCall& c, bool takes_bool) {
  if (c.in.size() != 2)
    return invalid_argument(cat(c.op->name, ": takes 2 operands, got ", c.in.size()));
  for (size_t k = 0; k < 2; ++k) {
    const DType t = c.in[k].dtype;
    if (!is_int(t) && !(takes_bool && t == DType::kBool))
      return invalid_argument(cat(c.op->name, ": operand ", k, " is ", t, ", expected an integer",
                                  takes_bool ? " or bool" : ""));
  }
  if (c.in[0].dtype != c.in[1].dtype)
    return invalid_argument(cat(c.op->name, ": operand 1 is ", c.in[1].dtype, ", operand 0 is ",
                                c.in[0].dtype, ": cast one of them"));
  return std::vector<DType>{c.in[0].dtype};
}

std::vector<Sample> division_samples(double low, double high) {
  std::vector<Sample> s = binary_samples(low, high);
  const std::vector<double> a = {7, -7, 7, -7, 5, -5, 0, 0, -2147483648.0, 2147483647},
                            b = {2, 2, -2, -2, 0, 0, 0, 3, -1, -1};
  s.push_back({"integers", {{{DType::kI32, {10}}, 0, 0, a}, {{DType::kI32, {10}}, 0, 0, b}}, {}});
  s.push_back({"i64", {{{DType::kI64, {50}}, -9, 9}, {{DType::kI64, {50}}, -4, 4}}, {}});
  s.push_back({"u8", {{{DType::kU8, {50}}, 0, 255}, {{DType::kU8, {50}}, 0, 9}}, {}});
  s.push_back({"signs",
               {{{DType::kF32, {8}}, 0, 0, {-4, 4, -7.5, 7.5, 6, -1, 1, 0}, false},
                {{DType::kF32, {8}}, 0, 0, {2, -2, 2, -2, 0.1, kInfinity, -kInfinity, -3}, false}},
               {}});
  return s;
}

std::vector<Sample> shift_samples() {
  std::vector<Sample> s = binary_samples(0, 20, DType::kI32);
  s.push_back({"edges",
               {{{DType::kI32, {6}}, 0, 0, {-5, 5, -5, 5, -2147483648.0, 3}},
                {{DType::kI32, {6}}, 0, 0, {1, 31, 32, -1, 1, 40}}},
               {}});
  s.push_back({"i8", {{{DType::kI8, {40}}, -128, 127}, {{DType::kI8, {40}}, -1, 9}}, {}});
  return s;
}

Grads rest_vjp(Builder&, const VjpCall& c) {
  return {c.grad[0], -(c.grad[0] * round((c.in[0] - c.out[0]) / c.in[1]))};
}

}  // namespace tegula
