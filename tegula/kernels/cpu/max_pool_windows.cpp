// max_pool: the largest of every window and its place among the spatial elements of x.

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/dot_plan.h"

namespace tegula::kernel {

namespace {
constexpr int kSpatial = 3;

// The spatial dims, with leading ones of extent 1 to make them three.
struct Windows {
  int64_t x[kSpatial], y[kSpatial], kernel[kSpatial], step[kSpatial], lo[kSpatial],
      dilation[kSpatial];
  int64_t x_stride[kSpatial], y_stride[kSpatial], at_stride[kSpatial];

  explicit Windows(const KernelCall& call) {
    const TensorRef &in = call.in[0], &out = call.out[0], &at = call.out[1];
    const int n = in.rank - 2;
    for (int i = 0; i < kSpatial; ++i) {
      const int d = i - (kSpatial - n);  // which spatial dim
      const auto attr = [&](std::string_view name, int64_t other) {
        return d < 0 ? other : call.attrs->ints(name)[static_cast<size_t>(d)];
      };
      kernel[i] = attr("kernel", 1), step[i] = attr("stride", 1), lo[i] = attr("lo", 0);
      dilation[i] = attr("dilation", 1);
      x[i] = d < 0 ? 1 : in.shape[d + 2], y[i] = d < 0 ? 1 : out.shape[d + 2];
      x_stride[i] = d < 0 ? 0 : in.stride[d + 2], y_stride[i] = d < 0 ? 0 : out.stride[d + 2];
      at_stride[i] = d < 0 ? 0 : at.stride[d + 2];
    }
  }
  // The window's elements of dim i that lie in x: kernel indices [first, last).
  void inside(int i, int64_t o, int64_t& first, int64_t& last) const {
    const int64_t origin = o * step[i] - lo[i];
    first = origin < 0 ? ceil_div(-origin, dilation[i]) : 0;
    last = origin >= x[i] ? 0 : std::min(kernel[i], (x[i] - 1 - origin) / dilation[i] + 1);
  }
};

// One plane [spatial…] of x; NaN wins, then the first of equals.
void plane(const Windows& w, const float* x, float* y, int32_t* at) {
  int64_t first[kSpatial], last[kSpatial];
  for (int64_t a = 0; a < w.y[0]; ++a)
    for (int64_t b = 0; b < w.y[1]; ++b)
      for (int64_t c = 0; c < w.y[2]; ++c) {
        const int64_t o[kSpatial] = {a, b, c};
        for (int i = 0; i < kSpatial; ++i) w.inside(i, o[i], first[i], last[i]);
        float best = 0;
        int64_t place = -1;
        for (int64_t k0 = first[0]; k0 < last[0]; ++k0)
          for (int64_t k1 = first[1]; k1 < last[1]; ++k1)
            for (int64_t k2 = first[2]; k2 < last[2]; ++k2) {
              const int64_t i0 = a * w.step[0] - w.lo[0] + k0 * w.dilation[0];
              const int64_t i1 = b * w.step[1] - w.lo[1] + k1 * w.dilation[1];
              const int64_t i2 = c * w.step[2] - w.lo[2] + k2 * w.dilation[2];
              const float v = x[i0 * w.x_stride[0] + i1 * w.x_stride[1] + i2 * w.x_stride[2]];
              if (place >= 0 && !(v > best) && (v == v || best != best)) continue;
              best = v, place = (i0 * w.x[1] + i1) * w.x[2] + i2;
            }
        y[a * w.y_stride[0] + b * w.y_stride[1] + c * w.y_stride[2]] = best;
        at[a * w.at_stride[0] + b * w.at_stride[1] + c * w.at_stride[2]] =
            static_cast<int32_t>(place);
      }
}

void launch(const KernelCall& call) {
  const TensorRef &x = call.in[0], &y = call.out[0], &at = call.out[1];
  const Windows w(call);
  call.pool->parallel_for(x.shape[0] * x.shape[1], [&](int64_t i, int) {
    const int64_t n = i / x.shape[1], c = i % x.shape[1];
    plane(w, x.as<const float>() + n * x.stride[0] + c * x.stride[1],
          y.as<float>() + n * y.stride[0] + c * y.stride[1],
          at.as<int32_t>() + n * at.stride[0] + c * at.stride[1]);
  });
}
}  // namespace

extern constinit const KernelDef max_pool_windows{
    .name = "max_pool_windows",
    .op = "max_pool",
    .order = "exact",
    .doc = "a plane a task",
    .priority = 100,
    .supports =
        [](const KernelQuery& q) {
          return q.in[0].dtype == DType::kF32 && q.in[0].rank <= kSpatial + 2;
        },
    .launch = launch,
};

}  // namespace tegula::kernel
