// Element access by dtype. Through double integers are exact to ±2^53, and what is stored is
// truncated and held at the ends of their range; load_int and store_int are exact everywhere, and
// store_int wraps.
#pragma once

#include "tegula/base/tensor.h"

namespace tegula {

double load_element(const TensorRef& t, int64_t offset);
void store_element(const TensorRef& t, int64_t offset, double value);
int64_t load_int(const TensorRef& t, int64_t offset);
void store_int(const TensorRef& t, int64_t offset, int64_t value);
// The double nearest to what an element of that dtype holds after `value` is stored to it.
double rounded_to(DType dtype, double value);

}  // namespace tegula
