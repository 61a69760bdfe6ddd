// layer_norm, rms_norm and their gradients. Sums along rows in order "lane16"; sums over rows are
// an ascending chain per column and shard of rows, and one over the shards.

#include "tegula/base/algorithm.h"
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

TEGULA_VEC Row16 sum_part(const float* p, int64_t length) {
  Row16 sum = row16(0);
  for_16(length, [&](int64_t j, int64_t n) { sum = sum + load16_n(p + j, n); });
  return sum;
}
template <bool kCentred>
TEGULA_VEC Row16 square_part(const float* p, int64_t length, float mean) {
  Row16 sum = row16(0);
  const Row16 centre = row16(mean);
  for_16(length, [&](int64_t j, int64_t n) {
    const Row16 c = kCentred ? load16_n(p + j, n, mean) - centre : load16_n(p + j, n);
    sum = fma(c, c, sum);
  });
  return sum;
}

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
      if (Norm::kCentred)
        mean =
            reduce_add(sum_16(d, [&](int64_t from, int64_t n) { return sum_part(p + from, n); })) *
            share;
      const Row16 centre = row16(mean);
      const auto squares = [&](int64_t from, int64_t n) {
        return square_part<Norm::kCentred>(p + from, n, mean);
      };
      const float rstd = reciprocal_root(reduce_add(sum_16(d, squares)), share, eps);
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
  const TensorRef* residual;  // null: none
  explicit Backward(const KernelCall& c)
      : call(c),
        x(c.in[0]),
        dy(c.in[Norm::kCentred ? 4 : 3]),
        mean(c.in[2]),
        rstd(c.in[Norm::kCentred ? 3 : 2]),
        bias(Norm::kCentred && c.attrs->flag("bias")),
        residual(c.in.size() == 6 ? &c.in[5] : nullptr) {}

  Row16 normalised(const float* p, int64_t n, float m, float r) const {
    // Lanes past the end become 0.
    return Norm::kCentred ? (load16_n(p, n, m) - row16(m)) * row16(r) : load16_n(p, n) * row16(r);
  }

  // One pass over memory: a shard's rows give dx, and add to the shard's own sums for dw and db
  // while they are in the first cache. Shards are few, the same for any number of threads.
  void shards() const {
    const RowIo dx(call.out[0]), added(residual ? *residual : call.out[0]);
    const int64_t d = x.length(), width = round_up(d, 16), rows = x.count();
    const float* w = shared_row(call, call.in[1], 0);
    const NormShards plan(rows, d, bias);
    auto* scratch = static_cast<float*>(call.workspace) + 2 * width;
    float* sums = scratch + kRowBuffers * width * call.pool->n_threads();
    claim_workspace(call, plan.workspace_bytes(call.pool->n_threads()));
    const auto share = static_cast<float>(1.0 / static_cast<double>(d));
    call.pool->parallel_for(plan.count, [&](int64_t shard, int thread) {
      const int64_t first = shard * plan.rows, last = std::min(first + plan.rows, rows);
      float* buf = scratch + thread * kRowBuffers * width;
      float* dw = sums + shard * plan.floats;
      float* db = bias ? dw + width : nullptr;
      std::fill_n(dw, plan.floats, 0.0f);
      for (int64_t row = first; row < last; ++row) {
        const float* px = x.read(row, buf);
        const float* pg = dy.read(row, buf + width);
        const float m = Norm::kCentred ? mean[row] : 0, r = rstd[row];
        // In parts as sum_16() has them, of both at once.
        Row16 along = row16(0), level = row16(0);
        LongSum alongs = long_sum(), levels = long_sum();
        for (int64_t from = 0, end; from < d; from = end) {
          end = std::min(from + 16 * kSumPart, d);
          if (from > 0) {
            take(alongs, along);
            if (Norm::kCentred) take(levels, level);
          }
          for_16(end - from, [&](int64_t i, int64_t n) {
            const int64_t j = from + i;
            const Row16 g = load16_n(w + j, n) * load16_n(pg + j, n);
            along = fma(normalised(px + j, n, m, r), g, along);
            if (Norm::kCentred) level = level + g;
          });
        }
        if (d > 16 * kSumPart) {
          along = rounded(alongs, along);
          if (Norm::kCentred) level = rounded(levels, level);
        }
        const Row16 a = row16(reduce_add(along) * share);
        const Row16 l = row16(Norm::kCentred ? reduce_add(level) * share : 0);
        const float* other = residual ? added.read(row, buf + 3 * width) : nullptr;
        float* out = dx.target(row, 0, buf + 2 * width);
        for_16(d, [&](int64_t j, int64_t n) {
          const Row16 grad = load16_n(pg + j, n), xhat = normalised(px + j, n, m, r);
          const Row16 g = load16_n(w + j, n) * grad;
          const Row16 v = Norm::kCentred ? g - fma(xhat, a, l) : g - xhat * a;
          const Row16 u = row16(r) * v;
          store16_n(out + j, other ? u + load16_n(other + j, n) : u, n);
          store16_n(dw + j, fma(grad, xhat, load16(dw + j)), 16);
          if (bias) store16_n(db + j, load16(db + j) + grad, 16);
        });
        dx.written(row, 0, d, out);
      }
      count(call, (last - first) *
                      (Norm::kCentred ? (12 + bias + (residual != nullptr)) * d + 2 : 9 * d + 1));
    });
    combine(plan, sums);
  }

  // The sums of all shards, in their order.
  void combine(const NormShards& plan, float* sums) const {
    const RowIo dw(call.out[1]), db(call.out[bias ? 2 : 1]);
    const int64_t d = x.length(), width = round_up(d, 16);
    constexpr int64_t kColumns = 256;
    call.pool->parallel_for(ceil_div(d, kColumns), [&](int64_t block, int) {
      const int64_t from = block * kColumns, n = std::min(d - from, kColumns);
      const auto put = [&](const RowIo& out, float* first) {
        for (int64_t s = 1; s < plan.count; ++s)
          for (int64_t j = 0; j < n; j += 16)
            store16_n(first + j, load16(first + j) + load16(first + s * plan.floats + j), 16);
        alignas(64) float buf[kColumns];
        float* p = out.target(0, from, buf);
        std::copy_n(first, n, p);
        out.written(0, from, n, p);
      };
      put(dw, sums + from);
      if (bias) put(db, sums + width + from);
    });
  }
};
}  // namespace

void layer_norm(const KernelCall& call) { forward<LayerNorm>(call); }
void rms_norm(const KernelCall& call) { forward<RmsNorm>(call); }
void layer_norm_bwd(const KernelCall& call) {
  const Backward<LayerNorm> b(call);
  b.shards();
}
void rms_norm_bwd(const KernelCall& call) {
  const Backward<RmsNorm> b(call);
  b.shards();
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
