// The names of a family's tensors, asked by what reads and what writes them.
#pragma once

#include "tegula/base/algorithm.h"
#include "tegula/base/text.h"
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
    const std::string_view word = take_until(' ', words);
    if (!word.empty() && is_it(word)) return true;
  }
  return false;
}

}  // namespace tegula
