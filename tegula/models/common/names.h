// The names of a family's tensors, asked by what reads and what writes them.
#pragma once

#include "tegula/base/algorithm.h"
#include "tegula/models/model.h"

namespace tegula {

inline const TensorNames& names_of(const ModelConfig& config) {
  static constexpr TensorNames kUnknown;
  const auto model = find_model(config.type);
  return model.ok() ? (*model)->names : kUnknown;
}

// Whether one of the words, by spaces, is as asked.
template <class F>
bool any_word(std::string_view words, F&& is_it) {
  while (!words.empty()) {
    const size_t n = std::min(words.find(' '), words.size());
    if (n > 0 && is_it(words.substr(0, n))) return true;
    words.remove_prefix(std::min(n + 1, words.size()));
  }
  return false;
}

}  // namespace tegula
