// Shared<T>: a pointer to something that all its copies own. It is what std::shared_ptr is, made by
// share<T>(…), in headers that many files include: parsing <memory> takes longer than
// compiling most of them. Copies may be taken and dropped by several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tegula {

struct SharedBlock {
  int64_t n_owners = 1;
  void (*destroy)(SharedBlock*) = nullptr;
};

template <class T>
class Shared {
 public:
  Shared() = default;
  Shared(std::nullptr_t) {}
  Shared(const Shared& other) : block_(other.block_), object_(other.object_) { hold(); }
  Shared(Shared&& other) noexcept
      : block_(std::exchange(other.block_, nullptr)),
        object_(std::exchange(other.object_, nullptr)) {}
  // For example from a T that is not const.
  template <class U>
  requires requires(U* u, T*& t) { t = u; }
  Shared(Shared<U> other) noexcept
      : block_(std::exchange(other.block_, nullptr)),
        object_(std::exchange(other.object_, nullptr)) {}
  Shared& operator=(Shared other) noexcept {
    std::swap(block_, other.block_), std::swap(object_, other.object_);
    return *this;
  }
  ~Shared() {
    if (block_ && __atomic_sub_fetch(&block_->n_owners, 1, __ATOMIC_ACQ_REL) == 0)
      block_->destroy(block_);
  }
  T* get() const { return object_; }
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  friend bool operator==(const Shared& a, const Shared& b) { return a.object_ == b.object_; }

 private:
  template <class U>
  friend class Shared;
  template <class U, class... Args>
  friend Shared<U> share(Args&&... args);
  void hold() {
    if (block_) __atomic_add_fetch(&block_->n_owners, 1, __ATOMIC_RELAXED);
  }
  SharedBlock* block_ = nullptr;
  T* object_ = nullptr;
};

template <class T, class... Args>
Shared<T> share(Args&&... args) {
  struct Block : SharedBlock {
    T object;
    explicit Block(Args&&... a) : object(std::forward<Args>(a)...) {
      destroy = [](SharedBlock* b) { delete static_cast<Block*>(b); };
    }
  };
  auto* block = new Block(std::forward<Args>(args)...);
  Shared<T> shared;
  shared.block_ = block, shared.object_ = &block->object;
  return shared;
}

}  // namespace tegula
