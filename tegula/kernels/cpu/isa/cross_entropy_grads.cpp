// Loss and gradients of a linear layer's logits in one call. Some tokens' logits are formed as
// columns of [v][token], so that weights are read where they lie and sums over v run in lanes of
// tokens; then they become g in their place. Three products, all of them dot_packed's.
#include <algorithm>

#include "tegula/kernels/cpu/common/workspace.h"
#include "tegula/kernels/cpu/isa/cross_entropy_rows.h"
#include "tegula/kernels/cpu/isa/dot_call.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
TEGULA_VEC Vf finite(Vf x) { return select(eq(x - x, zero()), x, zero()); }

class Grads {
 public:
  Grads(const KernelCall& call, const CrossEntropyGradsCall& g)
      : call_(call),
        g_(g),
        kept_(static_cast<float*>(call.workspace)),
        m_(kept_ + round_up(g.kept_floats(), 16)),
        l_(m_ + g.row),
        lse_(l_ + g.row),
        dlse_(lse_ + g.row),
        dots_(dlse_ + g.row) {}

  void run() {
    claim_workspace(call_, g_.bytes(call_.pool->n_threads()));
    if (g_.c.n_tokens == 0) return fill_dw();
    const int64_t parts = ceil_div(g_.c.n_tokens, g_.tokens);
    const int64_t part = round_up(ceil_div(g_.c.n_tokens, parts), 16);
    for (int64_t t0 = 0; t0 < g_.c.n_tokens; t0 += part) {
      const int64_t n = std::min(part, g_.c.n_tokens - t0);
      std::fill_n(m_, g_.row, -kInf), std::fill_n(l_, g_.row, 0.0F);
      for_passes([&](int64_t v0, int64_t v) {
        product(g_.logits(n, v), g_.c.w->as<float>() + v0 * g_.w_row, x(t0), kept(v0));
        add_to_sums(n, v0, v);
      });
      finish_sums(t0, n);
      for_passes([&](int64_t v0, int64_t v) {
        make_g(t0, n, v0, v);
        product(g_.dw(n, v, t0 > 0), kept(v0), x(t0), out(3) + v0 * g_.dw_row);
        for (int64_t at = v0; at < v0 + v; at += g_.panel)
          product(g_.dx(n, std::min(g_.panel, v0 + v - at), at > 0), kept(at),
                  g_.c.w->as<float>() + at * g_.w_row, out(2) + t0 * g_.dx_row);
      });
    }
  }

 private:
  template <class F>
  void for_passes(F&& f) const {
    for (int64_t v0 = 0; v0 < g_.c.v; v0 += g_.columns) f(v0, std::min(g_.columns, g_.c.v - v0));
  }
  float* kept(int64_t v) const { return kept_ + v * g_.row; }
  float* x(int64_t token) const { return g_.c.x->as<float>() + token * g_.x_row; }
  float* out(int i) const { return call_.out[static_cast<size_t>(i)].as<float>(); }

  void product(const Contraction& c, float* a, float* b, float* to) const {
    const auto ref = [](float* data) {
      TensorRef t;
      t.data = data, t.dtype = DType::kF32;
      return t;
    };
    const TensorRef in[] = {ref(a), ref(b), ref(to)}, results[] = {ref(to)};
    KernelCall call = call_;
    call.in = in, call.out = results, call.workspace = dots_, call.tuning = {};
    dot_packed_call(call, c, in[0], in[1]);
  }

  // Blocks of 64 columns join the maximum m and the sum l of each token.
  void add_to_sums(int64_t n, int64_t v0, int64_t v) const {
    const int64_t group =
        std::clamp<int64_t>(round_up(n / (2 * call_.pool->n_threads()), 16), 16, 64);
    call_.pool->parallel_for(ceil_div(n, group), [&](int64_t i, int) {
      const int64_t begin = i * group, end = std::min(begin + group, round_up(n, 16));
      for (int64_t j = v0; j < v0 + v; j += kVocabBlock) {
        const int64_t rows = std::min<int64_t>(kVocabBlock, v0 + v - j);
        for (int64_t t = begin; t < end; t += kLanes) add_block(kept(j) + t, rows, m_ + t, l_ + t);
      }
    });
    call_.counters->add(4 * n * v, 4 * round_up(n, 16) * v);
  }
  void add_block(const float* logits, int64_t rows, float* m, float* l) const {
    Vf top = set1(-kInf);
    for (int64_t r = 0; r < rows; ++r) top = max(top, load(logits + r * g_.row));
    const Vf old = load(m), next = select(gt(old, top), old, top), shift = finite(next);
    Vf sum[16];  // "lane16" of each token
    for (int j = 0; j < 16; ++j) {
      sum[j] = zero();
      for (int64_t r = j; r < rows; r += 16)
        sum[j] = sum[j] + exp(load(logits + r * g_.row) - shift);
    }
    for (int width = 8; width > 0; width /= 2)
      for (int j = 0; j < width; ++j) sum[j] = sum[j] + sum[j + width];
    store(l, load(l) * exp(old - shift) + sum[0]);
    store(m, next);
  }

  void finish_sums(int64_t t0, int64_t n) const {
    const RowScalars lse(call_.out[0]), picked(call_.out[1]), dlse(call_.in[3]);
    for (int64_t t = 0; t < n; ++t) {
      const int64_t target = g_.c.target(t0 + t);
      picked[t0 + t] = target < 0 ? 0 : kept(target)[t];
      lse[t0 + t] = log_sum(m_[t], l_[t]);
      lse_[t] = TEGULA_ISA_NS::finite(lse[t0 + t]), dlse_[t] = dlse[t0 + t];
    }
    std::fill(lse_ + n, lse_ + g_.row, 0.0F), std::fill(dlse_ + n, dlse_ + g_.row, 0.0F);
    call_.counters->add(2 * n, 2 * n);
  }

  // Logits become dlse·exp(logit - lse), plus dpicked at the target.
  void make_g(int64_t t0, int64_t n, int64_t v0, int64_t v) const {
    const RowScalars dpicked(call_.in[4]);
    call_.pool->parallel_for(ceil_div(v, kVocabBlock), [&](int64_t i, int) {
      const int64_t begin = v0 + i * kVocabBlock, end = std::min(begin + kVocabBlock, v0 + v);
      for (int64_t r = begin; r < end; ++r) {
        float* row = kept(r);
        for (int64_t t = 0; t < n; t += kLanes)
          store(row + t, load(dlse_ + t) * exp(load(row + t) - load(lse_ + t)));
      }
      for (int64_t t = 0; t < n; ++t) {
        const int64_t target = g_.c.target(t0 + t);
        if (target >= begin && target < end) kept(target)[t] = kept(target)[t] + dpicked[t0 + t];
      }
    });
    call_.counters->add(4 * n * v, 4 * round_up(n, kLanes) * v);
  }

  void fill_dw() const {
    for (int64_t r = 0; r < g_.c.v; ++r) std::fill_n(out(3) + r * g_.dw_row, g_.c.d, 0.0F);
  }

  const KernelCall& call_;
  const CrossEntropyGradsCall& g_;
  float *kept_, *m_, *l_, *lse_, *dlse_, *dots_;
};
}  // namespace

void cross_entropy_grads(const KernelCall& call) {
  const auto g = parse_cross_entropy_grads(call.in, call.out, *call.attrs);
  TEGULA_CHECK(g.ok(), g.ok() ? "" : g.error().message);
  Grads(call, *g).run();
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
