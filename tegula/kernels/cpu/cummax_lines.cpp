// cummax: the running extremum of each line and its latest index, 64 lines at a time.
#include "tegula/kernels/cpu/common/lines.h"

namespace tegula::kernel {

namespace {
template <class T, class V>  // V: what elements are compared as
void run(const KernelCall& call) {
  const TensorRef &x = call.in[0], &y = call.out[0], &place = call.out[1];
  const bool smallest = call.attrs->flag("smallest"), reverse = call.attrs->flag("reverse");
  for_each_lines(
      call, {&x, &y, &place}, [&](int64_t lines, int64_t n, std::span<const LineOffsets> at) {
        V top[kLinesAtOnce] = {};
        int32_t index[kLinesAtOnce] = {};
        for (int64_t i = 0; i < n; ++i)
          for (int64_t j = 0; j < lines; ++j) {
            const auto v = static_cast<V>(x.as<const T>()[at[0].at[j] + i * at[0].step]);
            const bool wins =
                i == 0 || v != v || (top[j] == top[j] && (smallest ? v <= top[j] : v >= top[j]));
            if (wins) top[j] = v, index[j] = static_cast<int32_t>(reverse ? n - 1 - i : i);
            y.as<T>()[at[1].at[j] + i * at[1].step] = static_cast<T>(top[j]);
            place.as<int32_t>()[at[2].at[j] + i * at[2].step] = index[j];
          }
      });
}
}  // namespace

extern constinit const KernelDef cummax_lines{
    .name = "cummax_lines",
    .op = "cummax",
    .order = "exact",
    .doc = "64 lines at a time; threads over lines",
    .priority = 100,
    .supports = [](const KernelQuery& q) { return has_line_type(q.in[0].dtype); },
    .launch =
        [](const KernelCall& call) {
          by_line_type(call.in[0].dtype, [&](auto t, auto acc) {
            using T = decltype(t);
            run<T, std::conditional_t<std::is_integral_v<T>, T, decltype(acc)>>(call);
          });
        },
};

}  // namespace tegula::kernel
