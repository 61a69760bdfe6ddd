// Store: named tensors that outlive runs (weights, optimizer state), shared by the plans of a rank.
//
// An entry is a share of a tensor: all of it, or the boxes that this rank holds. Its memory is the
// store's own, or borrowed from someone who keeps it, such as a mapped file, until it is written.
#pragma once

#include <map>
#include <string>

#include "tegula/base/box.h"
#include "tegula/base/memory.h"
#include "tegula/io/safetensors.h"
#include "tegula/runtime/rank.h"

namespace tegula {

class Store {
 public:
  struct Entry {
    Shape shape;                          // of the whole tensor
    Share share;                          // of it, that lies here
    DeviceKind space = DeviceKind::kCpu;  // of a rank with a device: there
    Type type;                            // of what lies here
    Region region;                        // owned memory; empty: borrowed
    std::shared_ptr<const void> lender;
    TensorRef ref;  // row-major; of borrowed memory nobody may write it
    bool is_borrowed() const { return lender != nullptr; }
    // The boxes that lie here, of `ref` or a copy of it.
    std::vector<TensorPart> parts(const TensorRef& held) const;
  };

  explicit Store(Rank& rank) : rank_(&rank) {}

  // The tensor of that name, owned and zero-filled at first; `share`: of a tensor of that type, the
  // part. Errors: it exists with another type or share; a box leaves the tensor; no memory.
  Result<TensorRef> get(const std::string& name, const Type& type);
  Result<TensorRef> get(const std::string& name, const Type& type, const Share& share);
  Result<TensorRef> get(const std::string& name, const Type& type, const Box& box) {
    return get(name, type, Share::of(box));
  }
  // Memory of someone else's for the box, row-major, that lives as long as `lender`. Nothing is
  // copied, but to a device. Error: the name is taken; the box leaves the tensor.
  Status borrow(const std::string& name, const Type& type, const Box& box, const void* data,
                std::shared_ptr<const void> lender);
  // Before it is written: what was borrowed is copied once, and who was bound to it must be bound
  // again. Error: absent; no memory.
  Result<TensorRef> own(std::string_view name);
  bool is_borrowed(std::string_view name) const;
  bool has(std::string_view name) const { return entries_.contains(name); }
  // Null data: absent.
  TensorRef find(std::string_view name) const;
  // Fills the entry box by box: `read` gives one of the whole tensor's, row-major, on the host.
  using ReadBox = Status (*)(void* context, const Box& box, const TensorRef& to);
  Status fill_boxes(std::string_view name, ReadBox read, void* context);
  // Fills the entry with its share of a tensor. Error: another dtype or shape.
  Status fill(std::string_view name, const TensorRef& whole);
  // Reads what lies here into a whole tensor of the host.
  Status read(std::string_view name, const TensorRef& to) const;
  // Error: absent; no memory.
  Status zero(std::string_view name);

  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  int64_t bytes() const;        // of all entries
  int64_t owned_bytes() const;  // without what is borrowed

 private:
  Status allocate(Entry& e);
  Rank* rank_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace tegula
