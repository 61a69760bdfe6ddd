// layer_norm, rms_norm and their gradients. Sums along rows in order "lane16"; sums over rows are
// one ascending chain per column.
#include <algorithm>

#include "tegula/kernels/cpu/isa/row_io.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
// A vector [d] of any dtype as f32, in shared row `slot` of the workspace where need be.
const float* shared_row(const KernelCall& call, const TensorRef& t, int slot) {
  float* buf = static_cast<float*>(call.workspace) + slot * round_up(row_length(t), 16);
  return RowIo(t).read(0, buf);
}

float reciprocal_root(float squares, float share, float eps) {
  const float mean = squares * share;
  return 1.0f / __builtin_sqrtf(mean + eps);
}

void count(const KernelCall& call, int64_t flops) { call.counters->add(flops, flops); }

// Row statistics of the two normalisations, and what a row becomes.
struct LayerNorm {
  static constexpr bool kCentred = true;
};
struct RmsNorm {
  static constexpr bool kCentred = false;
};

template <class Norm>
void forward(const KernelCall& call) {
  const bool bias = call.in.size() == 3;
  const RowIo x(call.in[0]), y(call.out[0]);
  const RowScalars mean_out(call.out[1]), rstd_out(call.out[Norm::kCentred ? 2 : 1]);
  const float* w = shared_row(call, call.in[1], 0);
  const float* b = bias ? shared_row(call, call.in[2], 1) : nullptr;
  const int64_t d = x.length();
  const auto share = static_cast<float>(1.0 / static_cast<double>(d));
  const auto eps = static_cast<float>(call.attrs->get_or<double>("eps", 1e-5));
  for_row_runs(call, x.count(), d, [&](int64_t first, int64_t last, float* scratch) {
    for (int64_t row = first; row < last; ++row) {
      const float* p = x.read(row, scratch);
      float mean = 0;
      Row16 sum = row16(0);
      if (Norm::kCentred) {
        for_16(d, [&](int64_t j, int64_t n) { sum = sum + load16_n(p + j, n); });
        mean = reduce_add(sum) * share;
        sum = row16(0);
      }
      const Row16 centre = row16(mean);
      for_16(d, [&](int64_t j, int64_t n) {
        const Row16 c = Norm::kCentred ? load16_n(p + j, n, mean) - centre : load16_n(p + j, n);
        sum = fma(c, c, sum);
      });
      const float rstd = reciprocal_root(reduce_add(sum), share, eps);
      float* out = y.target(row, 0, scratch);
      for_16(d, [&](int64_t j, int64_t n) {
        Row16 v = load16_n(p + j, n);
        if (Norm::kCentred) v = v - centre;
        v = v * row16(rstd) * load16_n(w + j, n);
        if (bias) v = v + load16_n(b + j, n);
        store16_n(out + j, v, n);
      });
      y.written(row, 0, d, out);
      if (Norm::kCentred) mean_out[row] = mean;
      rstd_out[row] = rstd;
    }
    count(call, (last - first) * (Norm::kCentred ? (bias ? 8 : 7) * d + 5 : 4 * d + 4));
  });
}

// Operands of a gradient: x, w, (mean,) rstd, dy.
template <class Norm>
struct Backward {
  const KernelCall& call;
  RowIo x, dy;
  RowScalars mean, rstd;
  bool bias;
  explicit Backward(const KernelCall& c)
      : call(c),
        x(c.in[0]),
        dy(c.in[Norm::kCentred ? 4 : 3]),
        mean(c.in[2]),
        rstd(c.in[Norm::kCentred ? 3 : 2]),
        bias(Norm::kCentred && c.attrs->flag("bias")) {}

  Row16 normalised(const float* p, int64_t n, float m, float r) const {
    // Lanes past the end become 0.
    return Norm::kCentred ? (load16_n(p, n, m) - row16(m)) * row16(r) : load16_n(p, n) * row16(r);
  }

  void rows() const {
    const RowIo dx(call.out[0]);
    const int64_t d = x.length();
    const float* w = shared_row(call, call.in[1], 0);
    const auto share = static_cast<float>(1.0 / static_cast<double>(d));
    for_row_runs(call, x.count(), d, [&](int64_t first, int64_t last, float* scratch) {
      const int64_t width = round_up(d, 16);
      for (int64_t row = first; row < last; ++row) {
        const float* px = x.read(row, scratch);
        const float* pg = dy.read(row, scratch + width);
        const float m = Norm::kCentred ? mean[row] : 0, r = rstd[row];
        Row16 along = row16(0), level = row16(0);
        for_16(d, [&](int64_t j, int64_t n) {
          const Row16 g = load16_n(w + j, n) * load16_n(pg + j, n);
          along = fma(normalised(px + j, n, m, r), g, along);
          if (Norm::kCentred) level = level + g;
        });
        const Row16 a = row16(reduce_add(along) * share);
        const Row16 l = row16(Norm::kCentred ? reduce_add(level) * share : 0);
        float* out = dx.target(row, 0, scratch + 2 * width);
        for_16(d, [&](int64_t j, int64_t n) {
          const Row16 g = load16_n(w + j, n) * load16_n(pg + j, n);
          const Row16 xhat = normalised(px + j, n, m, r);
          const Row16 v = Norm::kCentred ? g - fma(xhat, a, l) : g - xhat * a;
          store16_n(out + j, row16(r) * v, n);
        });
        dx.written(row, 0, d, out);
      }
      count(call, (last - first) * (Norm::kCentred ? (bias ? 13 : 12) * d + 2 : 9 * d + 1));
    });
  }

  // Threads share the columns, so that every sum is one chain over the rows: a wide run of them
  // each, since memory is read in runs of a row.
  void columns() const {
    constexpr int64_t kMostColumns = 512;
    const RowIo dw(call.out[1]), db(call.out[bias ? 2 : 1]);
    const int64_t d = x.length(), share = ceil_div(d, call.pool->n_threads());
    const int64_t width = std::min(round_up(share, 16), kMostColumns);
    call.pool->parallel_for(ceil_div(d, width), [&](int64_t block, int) {
      const int64_t from = block * width, n = std::min(d - from, width);
      alignas(64) float bx[kMostColumns], bg[kMostColumns], w[kMostColumns] = {},
                                                            b[kMostColumns] = {};
      for (int64_t row = 0; row < x.count(); ++row) {
        const float* px = x.read(row, from, n, bx);
        const float* pg = dy.read(row, from, n, bg);
        const float m = Norm::kCentred ? mean[row] : 0, r = rstd[row];
        for_16(n, [&](int64_t j, int64_t left) {
          const Row16 g = load16_n(pg + j, left);
          store16_n(w + j, fma(g, normalised(px + j, left, m, r), load16(w + j)), 16);
          if (bias) store16_n(b + j, load16(b + j) + g, 16);
        });
      }
      const auto put = [&](const RowIo& out, const float* sums) {
        float* p = out.target(0, from, bx);
        std::copy_n(sums, n, p);
        out.written(0, from, n, p);
      };
      put(dw, w);
      if (bias) put(db, b);
    });
  }
};
}  // namespace

void layer_norm(const KernelCall& call) { forward<LayerNorm>(call); }
void rms_norm(const KernelCall& call) { forward<RmsNorm>(call); }
void layer_norm_bwd(const KernelCall& call) {
  const Backward<LayerNorm> b(call);
  b.rows(), b.columns();
}
void rms_norm_bwd(const KernelCall& call) {
  const Backward<RmsNorm> b(call);
  b.rows(), b.columns();
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
