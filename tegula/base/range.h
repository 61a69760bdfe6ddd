// Algorithms on all of a range.
#pragma once

#include <iterator>

#include "tegula/base/algorithm.h"

namespace tegula {

template <class R, class F>
bool any_of(const R& range, F is_so) {
  return std::any_of(std::begin(range), std::end(range), is_so);
}
template <class R, class F>
bool all_of(const R& range, F is_so) {
  return std::all_of(std::begin(range), std::end(range), is_so);
}
template <class R, class T>
bool contains(const R& range, const T& value) {
  return std::find(std::begin(range), std::end(range), value) != std::end(range);
}

}  // namespace tegula
