// reshape where no view shows the result: elements in row-major order from one layout to another.

#include "tegula/base/algorithm.h"
#include "tegula/kernels/kernel.h"

namespace tegula::kernel {

namespace {
constexpr int64_t kTaskElements = 16 << 10;

// A place that goes through a tensor in row-major order.
class Walk {
 public:
  Walk(const TensorRef& t, int64_t from) : t_(t) {
    for (int d = t.rank; d-- > 0;) {
      index_[d] = from % t.shape[d], from /= t.shape[d];
      at_ += index_[d] * t.stride[d];
    }
  }
  int64_t at() const { return at_; }
  void next() {
    for (int d = t_.rank; d-- > 0;) {
      at_ += t_.stride[d];
      if (++index_[d] < t_.shape[d]) return;
      at_ -= t_.shape[d] * t_.stride[d];
      index_[d] = 0;
    }
  }

 private:
  const TensorRef& t_;
  int64_t index_[kMaxRank] = {};
  int64_t at_ = 0;
};

template <class T>
void move(const KernelCall& c) {
  const TensorRef &x = c.in[0], &y = c.out[0];
  const int64_t n = y.numel(), run = c.pool->grain(kTaskElements);
  c.pool->parallel_for((n + run - 1) / run, [&](int64_t task, int) {
    const int64_t begin = task * run, end = std::min(n, begin + run);
    Walk from(x, begin), to(y, begin);
    for (int64_t i = begin; i < end; ++i, from.next(), to.next())
      y.as<T>()[to.at()] = x.as<const T>()[from.at()];
  });
}

void launch(const KernelCall& c) {
  switch (size_bytes(c.out[0].dtype)) {
    case 1:
      return move<uint8_t>(c);
    case 2:
      return move<uint16_t>(c);
    case 4:
      return move<uint32_t>(c);
    default:
      return move<uint64_t>(c);
  }
}
}  // namespace

extern constinit const KernelDef reshape_strided = {
    .name = "reshape_strided",
    .op = "reshape",
    .order = "exact",
    .doc = "element by element between any strides",
    .supports = [](const KernelQuery&) { return true; },
    .launch = launch,
};

}  // namespace tegula::kernel
