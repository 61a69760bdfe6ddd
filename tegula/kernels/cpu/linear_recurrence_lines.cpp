// linear_recurrence: one chain of multiply-adds per line, 64 lines at a time.
#include <cmath>

#include "tegula/kernels/cpu/common/lines.h"

namespace tegula::kernel {

namespace {
template <class T, class Acc>
void run(const KernelCall& call) {
  const TensorRef &a = call.in[0], &b = call.in[1], &y = call.out[0];
  for_each_lines(
      call, {&y, &a, &b}, [&](int64_t lines, int64_t n, std::span<const LineOffsets> at) {
        Acc last[kLinesAtOnce] = {};
        for (int64_t i = 0; i < n; ++i)
          for (int64_t j = 0; j < lines; ++j) {
            const auto p = static_cast<Acc>(a.as<const T>()[at[1].at[j] + i * at[1].step]);
            const auto q = static_cast<Acc>(b.as<const T>()[at[2].at[j] + i * at[2].step]);
            Acc next = q;
            if constexpr (std::is_floating_point_v<Acc>) {
              if (i > 0) next = std::fma(p, last[j], q);
            } else {
              if (i > 0) next = p * last[j] + q;
            }
            y.as<T>()[at[0].at[j] + i * at[0].step] = static_cast<T>(last[j] = next);
          }
        call.counters->add(2 * lines * n, 2 * lines * n);
      });
}
}  // namespace

extern constinit const KernelDef linear_recurrence_lines{
    .name = "linear_recurrence_lines",
    .op = "linear_recurrence",
    .order = "chain",
    .doc = "64 chains at a time; threads over lines",
    .priority = 100,
    .supports = [](const KernelQuery& q) { return has_line_type(q.in[0].dtype); },
    .launch =
        [](const KernelCall& call) {
          by_line_type(call.in[0].dtype,
                       [&](auto t, auto acc) { run<decltype(t), decltype(acc)>(call); });
        },
};

}  // namespace tegula::kernel
