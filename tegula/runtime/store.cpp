#include "tegula/runtime/store.h"

namespace tegula {

Result<TensorRef> Store::get(const std::string& name, const Type& type) {
  auto it = tensors_.find(name);
  if (it == tensors_.end()) {
    Region region = TEGULA_TRY(Region::allocate(rank_->memory, std::max<int64_t>(type.bytes(), 1)));
    Entry e{type, std::move(region), {}};
    e.ref = contiguous_ref(e.region.data(), type);
    it = tensors_.emplace(name, std::move(e)).first;
  }
  if (!(it->second.type == type))
    return invalid_argument(cat("tensor ", name, " is ", it->second.type, ", not ", type));
  return it->second.ref;
}

TensorRef Store::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? TensorRef{} : it->second.ref;
}

int64_t Store::bytes() const {
  int64_t n = 0;
  for (const auto& [name, e] : tensors_) n += e.type.bytes();
  return n;
}

}  // namespace tegula
