// cumsum: one chain per line, 64 lines at a time.
#include "tegula/kernels/cpu/common/lines.h"

namespace tegula::kernel {

namespace {
template <class T, class Acc>
void run(const KernelCall& call) {
  const TensorRef &x = call.in[0], &y = call.out[0];
  for_each_lines(call, {&x, &y}, [&](int64_t lines, int64_t n, std::span<const LineOffsets> at) {
    Acc sum[kLinesAtOnce] = {};
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < lines; ++j) {
        sum[j] += static_cast<Acc>(x.as<const T>()[at[0].at[j] + i * at[0].step]);
        y.as<T>()[at[1].at[j] + i * at[1].step] = static_cast<T>(sum[j]);
      }
    call.counters->add(lines * n, lines * n);
  });
}
}  // namespace

extern constinit const KernelDef cumsum_lines{
    .name = "cumsum_lines",
    .op = "cumsum",
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
