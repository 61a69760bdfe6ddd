// scatter: slices of y meet those of x in the order of ids; threads over what no two ids share.
#include <cmath>
#include <limits>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/gather.h"
#include "tegula/kernels/cpu/common/strided.h"

namespace tegula::kernel {

namespace {
constexpr int64_t kColumns = 256;  // of the inner dims, in one task

// Integers wrap.
template <class T, class F>
T wrapped(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(f(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return f(a, b);
  }
}
struct Set {
  template <class T>
  static T start() {
    return 0;
  }
  template <class T>
  static T combine(T, T y) {
    return y;
  }
};
struct Add : Set {
  template <class T>
  static T combine(T x, T y) {
    return wrapped(x, y, [](auto a, auto b) { return a + b; });
  }
};
struct Mul {
  template <class T>
  static T start() {
    return 1;
  }
  template <class T>
  static T combine(T x, T y) {
    return wrapped(x, y, [](auto a, auto b) { return a * b; });
  }
};
// NaN wins.
struct Max {
  template <class T>
  static T start() {
    return std::is_integral_v<T> ? std::numeric_limits<T>::lowest()
                                 : -std::numeric_limits<T>::infinity();
  }
  template <class T>
  static T combine(T x, T y) {
    return x > y || x != x ? x : y;
  }
};
struct Min {
  template <class T>
  static T start() {
    return std::is_integral_v<T> ? std::numeric_limits<T>::max()
                                 : std::numeric_limits<T>::infinity();
  }
  template <class T>
  static T combine(T x, T y) {
    return x < y || x != x ? x : y;
  }
};

template <class T, class Mode>
void run(const KernelCall& call) {
  const TensorRef &y = call.in[0], &x = call.out[0];
  const bool has_x = call.in.size() > 2;
  if (has_x && call.in[2].data != x.data) move_strided(call.in[2], x, *call.pool);
  const GatherCall c(*call.attrs, x, call.in[1], y);
  const int64_t flops = std::is_same_v<Mode, Set> ? 0 : 1;
  int64_t x_stride = 0, y_stride = 0;  // 1 and 1: slices lie in one piece
  if (!c.inner.is_linear(kA, &x_stride) || !c.inner.is_linear(kB, &y_stride)) x_stride = 0;
  const bool are_rows = x_stride == 1 && y_stride == 1;
  const int64_t columns = call.pool->grain(kColumns), parts = ceil_div(c.inner.count, columns);
  call.pool->parallel_for(c.outer.count * parts, [&](int64_t task, int) {
    const int64_t o = task / parts, first = task % parts * columns;
    const int64_t count = std::min(columns, c.inner.count - first);
    int64_t x_at[kColumns], y_at[kColumns];
    c.inner.offsets(first, count, kA, x_at), c.inner.offsets(first, count, kB, y_at);
    T* to = x.as<T>() + c.outer.offset(o, kA);
    for (int64_t n = 0; n < c.n && !has_x; ++n)
      for (int64_t j = 0; j < count; ++j) to[n * c.n_stride + x_at[j]] = Mode::template start<T>();
    const T* from = y.as<const T>() + c.outer.offset(o, kB);
    const int64_t ids = c.outer.offset(o, kOut);
    int64_t hits = 0;
    for (int64_t i = 0; i < c.index.count; ++i) {
      const int64_t id = c.id(ids, i);
      if (id < 0) continue;
      T* at = to + id * c.n_stride;
      const T* row = from + c.index.offset(i, kB);
      ++hits;
      if (std::is_same_v<Mode, Set> && are_rows) {
        std::copy_n(row + y_at[0], count, at + x_at[0]);
        continue;
      }
      for (int64_t j = 0; j < count; ++j) at[x_at[j]] = Mode::combine(at[x_at[j]], row[y_at[j]]);
    }
    // Ids out of range are priced, because only the data tells them apart; they are not executed.
    call.counters->add(flops * c.index.count * count, flops * hits * count);
  });
}

template <class T>
void launch_of(const KernelCall& call) {
  const std::string& mode = call.attrs->str("mode");
  if (mode == "max") return run<T, Max>(call);
  if (mode == "min") return run<T, Min>(call);
  return mode == "mul" ? run<T, Mul>(call) : run<T, Add>(call);
}
bool sets(const Attrs& attrs) { return attrs.str("mode") == "set"; }

// The type does not matter: bits move.
void launch_set(const KernelCall& call) {
  switch (size_bytes(call.out[0].dtype)) {
    case 1:
      return run<uint8_t, Set>(call);
    case 2:
      return run<uint16_t, Set>(call);
    case 4:
      return run<uint32_t, Set>(call);
    default:
      return run<uint64_t, Set>(call);
  }
}
}  // namespace

extern constinit const KernelDef scatter_strided{
    .name = "scatter_strided",
    .op = "scatter",
    .order = "row_chain",
    .doc = "ids in ascending order; threads over the other dims; in place of x, or on a copy",
    .priority = 100,
    .supports =
        [](const KernelQuery& q) {
          const DType t = q.in[0].dtype;
          const bool combines =
              t == DType::kF32 || t == DType::kF64 || t == DType::kI32 || t == DType::kI64;
          return (combines || sets(*q.attrs)) && gather_supported(q);
        },
    .launch =
        [](const KernelCall& call) {
          if (sets(*call.attrs)) return launch_set(call);
          switch (call.out[0].dtype) {
            case DType::kF64:
              return launch_of<double>(call);
            case DType::kI32:
              return launch_of<int32_t>(call);
            case DType::kI64:
              return launch_of<int64_t>(call);
            default:
              return launch_of<float>(call);
          }
        },
};

}  // namespace tegula::kernel
