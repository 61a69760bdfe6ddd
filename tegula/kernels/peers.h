// Peers: what the kernels of collectives reach of the other ranks. Ranks see one another's memory,
// whether they are threads of one process or of several (runtime/rank_group.h), so a meeting is all
// that they need.
#pragma once

#include <span>
#include <string_view>

#include "tegula/base/counter.h"
#include "tegula/base/tensor.h"

namespace tegula {

// The data that a rank shows the others of its group until they meet again.
struct Shown {
  TensorRef in, out;
  Counter* sent_bytes = nullptr;  // whoever copies from this rank counts it here
};

class Errand;
struct KernelCall;  // kernels/kernel.h
struct CollectiveMoves;
struct Move;  // kernels/moves.h

class Peers {
 public:
  virtual ~Peers() = default;
  // The collective that this rank begins: a step of a plan. Those it then meets must do the same,
  // and whoever watches the rank can say what it was doing.
  virtual void begin(std::string_view op, std::string_view axis, std::string_view plan,
                     size_t step) = 0;
  // Waits for every rank of the group along the axis; then what they all show, in the axis's order,
  // and where this rank stands among them. Empty: a rank failed, and nothing may be touched.
  struct Met {
    std::span<const Shown> all;
    size_t index = 0;
  };
  virtual Met meet(std::string_view axis, const TensorRef& in, const TensorRef& out) = 0;
  // Waits for them without showing anything new; false: a rank failed.
  virtual bool meet(std::string_view axis) = 0;
  virtual bool has_failed() const = 0;
  // Tensors that others show are not here to be read: they are brought. Then exchange() does all of
  // a collective.
  virtual bool brings() const = 0;
  // Does all of it in the foreground; where memory is shared it copies.
  virtual void exchange(const KernelCall& call, const CollectiveMoves& moves) = 0;
  // The group's errand of that number along the axis, the same on all of its ranks. Made when it is
  // first asked for; lives as long as the group.
  virtual Errand& errand(std::string_view axis, int number) = 0;
  // The same of two ranks alone: this one and the one at place `other` along the axis, which must
  // be one that gives and takes between two (ranks of a pipeline).
  virtual Errand& errand_with(std::string_view axis, int64_t other, int number) = 0;
};

// A collective in the background: post() shows this rank's tensors and says what it needs of the
// others' (kernels/moves.h), and does not wait. That is brought as soon as all have posted, by a
// thread that moves bytes while kernels run.
class Errand {
 public:
  virtual ~Errand() = default;
  // This rank's place in its group.
  virtual int64_t index() const = 0;
  // The moves live until the end.
  virtual void post(const TensorRef& in, const TensorRef& out, std::span<const Move> moves) = 0;
  // Until all is there; false: a rank failed, and nothing may be touched.
  virtual bool wait() = 0;
  // Until nobody needs this rank's tensors; false: a rank failed.
  virtual bool end() = 0;
};

}  // namespace tegula
