// searchsorted: a binary search per value, threads over values.

#include "tegula/base/algorithm.h"
#include "tegula/kernels/kernel.h"

namespace tegula::kernel {

namespace {
constexpr int64_t kTaskValues = 1024;

int64_t row_offset(const TensorRef& t, int64_t row) {
  int64_t offset = 0;
  for (int d = t.rank - 2; d >= 0; --d) offset += row % t.shape[d] * t.stride[d], row /= t.shape[d];
  return offset;
}

template <class T>
void run(const KernelCall& call) {
  const TensorRef &s = call.in[0], &x = call.in[1], &y = call.out[0];
  const bool right = call.attrs->flag("right");
  const int last = s.rank - 1;
  const int64_t n = s.shape[last], m = x.shape[last], values = x.numel();
  const auto less = [](T p, T q) { return p < q || (q != q && p == p); };  // NaN last
  const int64_t at_once = call.pool->grain(kTaskValues);
  call.pool->parallel_for((values + at_once - 1) / at_once, [&](int64_t task, int) {
    for (int64_t k = task * at_once; k < std::min(values, (task + 1) * at_once); ++k) {
      const int64_t row = k / m, j = k % m;
      const T* sorted = s.as<const T>() + row_offset(s, row);
      const T v = x.as<const T>()[row_offset(x, row) + j * x.stride[last]];
      int64_t lo = 0, hi = n;  // all before lo are counted, none from hi on
      while (lo < hi) {
        const int64_t mid = (lo + hi) / 2;
        const T e = sorted[mid * s.stride[last]];
        (right ? !less(v, e) : less(e, v)) ? lo = mid + 1 : hi = mid;
      }
      y.as<int32_t>()[row_offset(y, row) + j * y.stride[last]] = static_cast<int32_t>(lo);
    }
  });
}
}  // namespace

extern constinit const KernelDef searchsorted_rows{
    .name = "searchsorted_rows",
    .op = "searchsorted",
    .order = "exact",
    .doc = "a binary search per value; threads over values",
    .priority = 100,
    .supports =
        [](const KernelQuery& q) {
          const DType t = q.in[0].dtype;
          return t == DType::kF32 || t == DType::kF64 || t == DType::kI32 || t == DType::kI64;
        },
    .launch =
        [](const KernelCall& call) {
          switch (call.in[0].dtype) {
            case DType::kF64:
              return run<double>(call);
            case DType::kI32:
              return run<int32_t>(call);
            case DType::kI64:
              return run<int64_t>(call);
            default:
              return run<float>(call);
          }
        },
};

}  // namespace tegula::kernel
