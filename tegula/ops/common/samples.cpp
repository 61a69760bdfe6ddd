#include "tegula/ops/common/elementwise.h"

namespace tegula {

std::vector<Sample> unary_samples(double low, double high, DType dtype) {
  std::vector<Sample> s;
  for (const Shape& shape : {Shape{}, Shape{7}, Shape{3, 5, 2}, Shape{2, 0}})
    s.push_back({cat("shape ", shape), {{{dtype, shape}, low, high}}, {}});
  return s;
}

std::vector<Sample> binary_samples(double low, double high, DType dtype) {
  std::vector<Sample> s;
  for (const Shape& shape : {Shape{}, Shape{7}, Shape{3, 5, 2}, Shape{2, 0}})
    s.push_back(
        {cat("shape ", shape), {{{dtype, shape}, low, high}, {{dtype, shape}, low, high}}, {}});
  s.push_back({"shapes differ",
               {{{dtype, {2, 3}}, low, high}, {{dtype, {2, 4}}, low, high}},
               {},
               "broadcast one of them"});
  return s;
}

}  // namespace tegula
