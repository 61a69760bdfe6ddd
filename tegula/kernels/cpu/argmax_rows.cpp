// argmax (and argmin): a scan of each row, threads over rows.

#include "tegula/base/algorithm.h"
#include "tegula/base/half.h"
#include "tegula/kernels/kernel.h"

namespace tegula::kernel {

namespace {
constexpr int64_t kTaskElements = 8192;

template <class T, class V>  // V: what elements are compared as
void run(const KernelCall& call) {
  const TensorRef &x = call.in[0], &y = call.out[0];
  const bool smallest = call.attrs->flag("smallest");
  const int last = x.rank - 1;
  const int64_t n = x.shape[last], step = x.stride[last], rows = y.numel();
  const int64_t at_once = call.pool->grain(kTaskElements) / (n + 1) + 1;
  call.pool->parallel_for((rows + at_once - 1) / at_once, [&](int64_t task, int) {
    for (int64_t r = task * at_once; r < std::min(rows, (task + 1) * at_once); ++r) {
      int64_t from = 0, to = 0, rest = r;
      for (int d = last - 1; d >= 0; --d) {
        from += rest % x.shape[d] * x.stride[d], to += rest % x.shape[d] * y.stride[d];
        rest /= x.shape[d];
      }
      const T* row = x.as<const T>() + from;
      int64_t best = 0;
      V top = n > 0 ? static_cast<V>(row[0]) : V{};
      // Nothing comes before the first NaN.
      for (int64_t i = 1; i < n && top == top; ++i) {
        const auto v = static_cast<V>(row[i * step]);
        if ((smallest ? v < top : v > top) || v != v) top = v, best = i;
      }
      y.as<int32_t>()[to] = static_cast<int32_t>(best);
    }
  });
}
}  // namespace

extern constinit const KernelDef argmax_rows{
    .name = "argmax_rows",
    .op = "argmax",
    .order = "exact",
    .doc = "one scan per row; threads over rows",
    .priority = 100,
    .supports = [](const KernelQuery& q) { return q.in[0].dtype != DType::kF8E4M3; },
    .launch =
        [](const KernelCall& call) {
          switch (call.in[0].dtype) {
            case DType::kF64:
              return run<double, double>(call);
            case DType::kBF16:
              return run<bf16, float>(call);
            case DType::kF16:
              return run<f16, float>(call);
            case DType::kI64:
              return run<int64_t, int64_t>(call);
            case DType::kI32:
              return run<int32_t, int32_t>(call);
            case DType::kI8:
              return run<int8_t, int8_t>(call);
            case DType::kU8:
            case DType::kBool:
              return run<uint8_t, uint8_t>(call);
            default:
              return run<float, float>(call);
          }
        },
};

}  // namespace tegula::kernel
