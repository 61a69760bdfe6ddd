// Store: named tensors that outlive runs (weights, optimizer state), shared by several plans.
#pragma once

#include <map>
#include <string>

#include "tegula/base/tensor.h"
#include "tegula/runtime/rank.h"

namespace tegula {

class Store {
 public:
  explicit Store(Rank& rank) : rank_(&rank) {}

  // The tensor of that name, made zero-filled at first. Error: it exists with another type.
  Result<TensorRef> get(const std::string& name, const Type& type);
  // Null data: absent.
  TensorRef find(std::string_view name) const;
  auto begin() const { return tensors_.begin(); }
  auto end() const { return tensors_.end(); }
  int64_t bytes() const;

 private:
  struct Entry {
    Type type;
    Region region;
    TensorRef ref;
  };
  Rank* rank_;
  std::map<std::string, Entry, std::less<>> tensors_;
};

}  // namespace tegula
