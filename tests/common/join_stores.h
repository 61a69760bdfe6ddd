// The tensors that the stores of several ranks hold together.
#pragma once

#include <map>

#include "tegula/base/algorithm.h"
#include "tegula/base/str.h"
#include "tegula/io/safetensors.h"
#include "tegula/runtime/store.h"

namespace tegula {

// The tensors that the ranks hold together, by name: what one rank has whole as such, others in
// parts.
inline Result<std::vector<NamedTensor>> joined(std::span<const Store* const> ranks) {
  std::map<std::string, NamedTensor> all;
  for (const Store* rank : ranks)
    for (const auto& [name, e] : *rank) {
      const TensorRef whole = contiguous_ref(nullptr, {e.type.dtype, e.shape});
      NamedTensor& t = all.try_emplace(name, NamedTensor{name, whole}).first->second;
      if (t.tensor.dtype != whole.dtype ||
          !std::equal(t.tensor.shape, t.tensor.shape + t.tensor.rank, whole.shape,
                      whole.shape + whole.rank))
        return invalid_argument(cat("two ranks do not agree on what tensor ", name, " is"));
      // A tensor that several hold alike (a norm's weight on every rank) is one part.
      for (TensorPart& part : e.parts(e.ref)) {
        const bool is_known = std::any_of(t.parts.begin(), t.parts.end(),
                                          [&](const auto& p) { return p.box == part.box; });
        if (!is_known) t.parts.push_back(std::move(part));
      }
    }
  std::vector<NamedTensor> out;
  for (auto& [name, t] : all) {
    if (t.parts.size() == 1 && t.parts[0].box.numel() == t.tensor.numel())
      t.tensor = t.parts[0].data, t.parts.clear();
    out.push_back(std::move(t));
  }
  return out;
}

}  // namespace tegula
