// softmax, log_softmax, logsumexp and softmax's gradient; sums in order "lane16", or "kb64" of
// common/cross_entropy.h.
#include "tegula/kernels/cpu/isa/cross_entropy_rows.h"
#include "tegula/kernels/cpu/isa/row_io.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
float log_of(float x) {
  float t[kLanes];
  store(t, log(set1(x)));
  return t[0];
}

struct RowSum {
  float top, sum;
};

// The largest element and the sum of exp(x - top); e (may be null) takes the exponentials.
// `finite`: a top of -inf counts as 0, so that the sum is 0 and not NaN.
TEGULA_VEC Row16 exp_part(const float* p, int64_t d, float* e, float top) {
  Row16 sum = row16(0);
  for_16(d, [&](int64_t j, int64_t n) {
    const Row16 x = load16_n(p + j, n, -kInf);
    const Row16 y = exp(x - row16(top));
    sum = sum + y;
    if (e != nullptr) store16_n(e + j, y, n);
  });
  return sum;
}
RowSum exp_sum(const float* p, int64_t d, float* e, bool finite) {
  Row16 top = row16(-kInf);
  for_16(d, [&](int64_t j, int64_t n) { top = max(top, load16_n(p + j, n, -kInf)); });
  RowSum r{reduce_max(top), 0};
  if (finite && r.top == -kInf) r.top = 0;
  r.sum = reduce_add(sum_16(d, [&](int64_t from, int64_t n) {
    return exp_part(p + from, n, e ? e + from : nullptr, r.top);
  }));
  return r;
}

void count(const KernelCall& call, int64_t flops) { call.counters->add(flops, flops); }
}  // namespace

void softmax(const KernelCall& call) {
  const RowIo x(call.in[0]), y(call.out[0]);
  const int64_t d = x.length();
  for_row_runs(call, x.count(), d, [&](int64_t first, int64_t last, float* scratch) {
    for (int64_t row = first; row < last; ++row) {
      float* out = y.target(row, 0, scratch + round_up(d, 16));
      const RowSum r = exp_sum(x.read(row, scratch), d, out, false);
      for_16(d, [&](int64_t j, int64_t n) {
        const Row16 e = load16_n(out + j, n);
        store16_n(out + j, map16([&](int v) { return e.v[v] / set1(r.sum); }), n);
      });
      y.written(row, 0, d, out);
    }
    count(call, (last - first) * 5 * d);
  });
}

void log_softmax(const KernelCall& call) {
  const RowIo x(call.in[0]), y(call.out[0]);
  const int64_t d = x.length();
  for_row_runs(call, x.count(), d, [&](int64_t first, int64_t last, float* scratch) {
    for (int64_t row = first; row < last; ++row) {
      const float* p = x.read(row, scratch);
      const RowSum r = exp_sum(p, d, nullptr, false);
      const Row16 top = row16(r.top), log_sum = row16(log_of(r.sum));
      float* out = y.target(row, 0, scratch + round_up(d, 16));
      for_16(d, [&](int64_t j, int64_t n) {
        store16_n(out + j, load16_n(p + j, n) - top - log_sum, n);
      });
      y.written(row, 0, d, out);
    }
    count(call, (last - first) * (6 * d + 1));
  });
}

void logsumexp(const KernelCall& call) {
  const RowIo x(call.in[0]);
  const RowScalars y(call.out[0]);
  const int64_t d = x.length();
  const bool by_blocks = call.attrs->flag("by_blocks");
  for_row_runs(call, x.count(), d, [&](int64_t first, int64_t last, float* scratch) {
    for (int64_t row = first; row < last; ++row) {
      const float* p = x.read(row, scratch);
      if (by_blocks) {
        float m = -kInf, l = 0;
        for (int64_t j = 0; j < d; j += kVocabBlock)
          add_logits(p + j, cut(kVocabBlock, d - j), m, l);
        y[row] = log_sum(m, l);
        continue;
      }
      const RowSum r = exp_sum(p, d, nullptr, true);
      y[row] = r.top + log_of(r.sum);
    }
    count(call, (last - first) * (4 * d + 2));
  });
}

void softmax_bwd(const KernelCall& call) {
  const RowIo y(call.in[0]), dy(call.in[1]), dx(call.out[0]);
  const int64_t d = y.length();
  for_row_runs(call, y.count(), d, [&](int64_t first, int64_t last, float* scratch) {
    for (int64_t row = first; row < last; ++row) {
      const float* p = y.read(row, scratch);
      const float* g = dy.read(row, scratch + round_up(d, 16));
      const auto products = [&](int64_t from, int64_t length) {
        Row16 sum = row16(0);
        for_16(length, [&](int64_t j, int64_t n) {
          sum = fma(load16_n(p + from + j, n), load16_n(g + from + j, n), sum);
        });
        return sum;
      };
      const Row16 along = row16(reduce_add(sum_16(d, products)));
      float* out = dx.target(row, 0, scratch + 2 * round_up(d, 16));
      for_16(d, [&](int64_t j, int64_t n) {
        store16_n(out + j, load16_n(p + j, n) * (load16_n(g + j, n) - along), n);
      });
      dx.written(row, 0, d, out);
    }
    count(call, (last - first) * 4 * d);
  });
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
