// gather: slices of x, copied; an id outside x gives zeros.
#include <cstring>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/gather.h"

namespace tegula::kernel {

namespace {
constexpr int64_t kTaskElements = 8192;

template <class T>
void copy(const T* from, int64_t from_stride, T* to, int64_t to_stride, const Loops& inner) {
  if (from_stride == 1 && to_stride == 1) {
    std::copy_n(from, inner.count, to);
    return;
  }
  for (int64_t j = 0; j < inner.count; ++j) to[inner.offset(j, kB)] = from[inner.offset(j, kA)];
}

template <class T>
void run(const KernelCall& call) {
  const GatherCall c(*call.attrs, call.in[0], call.in[1], call.out[0]);
  int64_t from_stride = 0, to_stride = 0;  // 1 and 1: both lie side by side
  if (!c.inner.is_linear(kA, &from_stride) || !c.inner.is_linear(kB, &to_stride)) from_stride = 0;
  const int64_t count = c.outer.count * c.index.count;
  const int64_t at_once = call.pool->grain(kTaskElements) / (c.inner.count + 1) + 1;
  call.pool->parallel_for(ceil_div(count, at_once), [&](int64_t task, int) {
    for (int64_t k = task * at_once; k < std::min(count, (task + 1) * at_once); ++k) {
      const int64_t o = k / c.index.count, i = k % c.index.count;
      const int64_t id = c.id(c.outer.offset(o, kOut), i);
      T* to = call.out[0].as<T>() + c.outer.offset(o, kB) + c.index.offset(i, kB);
      if (id >= 0) {
        copy(call.in[0].as<const T>() + c.outer.offset(o, kA) + id * c.n_stride, from_stride, to,
             to_stride, c.inner);
      } else {
        for (int64_t j = 0; j < c.inner.count; ++j) to[c.inner.offset(j, kB)] = T{};
      }
    }
  });
}
}  // namespace

extern constinit const KernelDef gather_strided{
    .name = "gather_strided",
    .op = "gather",
    .order = "exact",
    .doc = "slices are copied; threads over ids",
    .priority = 100,
    .supports = gather_supported,
    .launch =
        [](const KernelCall& call) {
          switch (size_bytes(call.in[0].dtype)) {
            case 1:
              return run<uint8_t>(call);
            case 2:
              return run<uint16_t>(call);
            case 4:
              return run<uint32_t>(call);
            default:
              return run<uint64_t>(call);
          }
        },
};

}  // namespace tegula::kernel
