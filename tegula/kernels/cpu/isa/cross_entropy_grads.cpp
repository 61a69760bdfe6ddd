// Loss and gradients of a linear layer's logits in one call. Some tokens' logits are formed as
// columns of [v][token], so that weights are read where they lie and sums over v run in lanes of
// tokens; then they become g in their place. Three products, all of them dot_packed's.

#include "tegula/base/algorithm.h"
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
        lse_out_(call.out[0]),
        picked_(call.out[1]),
        kept_(static_cast<float*>(call.workspace)),
        m_(kept_ + round_up(g.kept_floats(), 16)),
        l_(m_ + g.row),
        lse_(l_ + g.row),
        dlse_(lse_ + g.row),
        pass_(dlse_ + g.row),
        narrow_(reinterpret_cast<bf16*>(pass_ + g.pass_floats())),
        dx_(pass_ + g.pass_floats() + g.g_floats()),
        dots_(dx_ + g.dx_floats()) {}

  void run() {
    claim_workspace(call_, g_.bytes(call_.pool->n_threads()));
    if (g_.c.n_tokens == 0) return fill_dw();
    if (g_.is_bf16) return run_bf16();
    const int64_t parts = ceil_div(g_.c.n_tokens, g_.tokens);
    const int64_t part = round_up(ceil_div(g_.c.n_tokens, parts), 16);
    for (int64_t t0 = 0; t0 < g_.c.n_tokens; t0 += part) {
      const int64_t n = std::min(part, g_.c.n_tokens - t0);
      begin_sums(t0, n);
      for_passes([&](int64_t v0, int64_t v) {
        product(g_.logits(n, v), w<float>(v0), x<float>(t0), kept(v0));
        add_to_sums(kept(v0), t0, n, v0, v);
      });
      finish_sums(t0, n);
      for_passes([&](int64_t v0, int64_t v) {
        make_g(kept(v0), t0, n, v0, v, [](int64_t, int64_t) {});
        product(g_.dw(n, v, t0 > 0), kept(v0), x<float>(t0), out<float>(3) + v0 * g_.dw_row);
        for_panels(v0, v, [&](int64_t at, int64_t columns) {
          product(g_.dx(n, columns, at > 0), kept(at), w<float>(at),
                  out<float>(2) + t0 * g_.dx_row);
        });
      });
    }
  }

 private:
  // All tokens at once, so that each part of dw is one product.
  void run_bf16() {
    const int64_t n = g_.c.n_tokens;
    begin_sums(0, n);
    for_passes([&](int64_t v0, int64_t v) {
      form_logits(v0, v);
      add_to_sums(logits(v0, v), 0, n, v0, v);
    });
    finish_sums(0, n);
    for_passes([&](int64_t v0, int64_t v) {
      if (!g_.is_kept(v0 + v)) form_logits_again(v0, v);
      float* const wide = logits(v0, v);
      make_g(wide, 0, n, v0, v, [&](int64_t begin, int64_t end) {
        for (int64_t at = begin * g_.row; at < end * g_.row; at += kLanes)
          store(narrow_ + at, load(wide + at));
      });
      product(g_.dw(n, v, false), narrow_, x<bf16>(0), out<bf16>(3) + v0 * g_.dw_row);
      for_panels(v0, v, [&](int64_t at, int64_t columns) {
        product(g_.dx(n, columns, at > 0), narrow_ + (at - v0) * g_.row, w<bf16>(at), dx_);
      });
    });
    call_.pool->parallel_for(n, [&](int64_t t, int) {
      const float* from = dx_ + t * g_.c.d;
      bf16* to = out<bf16>(2) + t * g_.dx_row;
      for_16(g_.c.d, [&](int64_t e, int64_t k) { store16_n(to + e, load16_n(from + e, k), k); });
    });
  }
  float* logits(int64_t v0, int64_t v) const { return g_.is_kept(v0 + v) ? kept(v0) : pass_; }
  void form_logits(int64_t v0, int64_t v) const {
    product(g_.logits(g_.c.n_tokens, v), w<bf16>(v0), x<bf16>(0), logits(v0, v));
  }

  // The mathematics has counted them.
  void form_logits_again(int64_t v0, int64_t v) const {
    Counters again;
    product(g_.logits(g_.c.n_tokens, v), w<bf16>(v0), x<bf16>(0), logits(v0, v), &again);
    call_.counters->add(0, again.executed_flops);
  }

  template <class F>
  void for_passes(F&& f) const {
    for (int64_t v0 = 0; v0 < g_.c.v; v0 += g_.columns) f(v0, std::min(g_.columns, g_.c.v - v0));
  }
  template <class F>
  void for_panels(int64_t v0, int64_t v, F&& f) const {
    for (int64_t at = v0; at < v0 + v; at += g_.panel) f(at, std::min(g_.panel, v0 + v - at));
  }
  float* kept(int64_t v) const { return kept_ + v * g_.row; }
  template <class T>
  T* x(int64_t token) const {
    return g_.c.x->as<T>() + token * g_.x_row;
  }
  template <class T>
  T* w(int64_t v) const {
    return g_.c.w->as<T>() + v * g_.w_row;
  }
  template <class T>
  T* out(int i) const {
    return call_.out[static_cast<size_t>(i)].as<T>();
  }

  void product(const Contraction& c, void* a, void* b, void* to,
               Counters* counters = nullptr) const {
    const auto ref = [](void* data, DType type) {
      TensorRef t;
      t.data = data, t.dtype = type;
      return t;
    };
    const TensorRef sums = ref(to, c.out_dtype);
    const TensorRef in[] = {ref(a, c.in_dtype), ref(b, c.in_dtype), sums}, results[] = {sums};
    KernelCall call = call_;
    call.in = in, call.out = results, call.workspace = dots_, call.tuning = {};
    if (counters != nullptr) call.counters = counters;
    dot_packed_call(call, c, in[0], in[1]);
  }

  void begin_sums(int64_t t0, int64_t n) const {
    std::fill_n(m_, g_.row, -kInf), std::fill_n(l_, g_.row, 0.0F);
    for (int64_t t = t0; t < t0 + n; ++t) picked_[t] = 0;
  }
  // Blocks of 64 columns join the maximum m and the sum l of each token.
  void add_to_sums(const float* logits, int64_t t0, int64_t n, int64_t v0, int64_t v) const {
    const int64_t group =
        std::clamp<int64_t>(round_up(n / (2 * call_.pool->n_threads()), 16), 16, 64);
    call_.pool->parallel_for(ceil_div(n, group), [&](int64_t i, int) {
      const int64_t begin = i * group, end = std::min(begin + group, round_up(n, 16));
      for (int64_t j = 0; j < v; j += kVocabBlock) {
        const int64_t rows = std::min<int64_t>(kVocabBlock, v - j);
        for (int64_t t = begin; t < end; t += kLanes)
          add_block(logits + j * g_.row + t, rows, m_ + t, l_ + t);
      }
      for (int64_t t = begin; t < std::min(end, n); ++t)
        if (const int64_t at = g_.c.target(t0 + t) - v0; at >= 0 && at < v)
          picked_[t0 + t] = logits[at * g_.row + t];
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
    const RowScalars dlse(call_.in[3]);
    for (int64_t t = 0; t < n; ++t) {
      lse_out_[t0 + t] = log_sum(m_[t], l_[t]);
      lse_[t] = TEGULA_ISA_NS::finite(lse_out_[t0 + t]), dlse_[t] = dlse[t0 + t];
    }
    std::fill(lse_ + n, lse_ + g_.row, 0.0F), std::fill(dlse_ + n, dlse_ + g_.row, 0.0F);
    call_.counters->add(2 * n, 2 * n);
  }

  // Logits become dlse·exp(logit - lse), plus dpicked at the target; after(begin, end) of columns
  // that are done, from v0.
  template <class F>
  void make_g(float* logits, int64_t t0, int64_t n, int64_t v0, int64_t v, const F& after) const {
    const RowScalars dpicked(call_.in[4]);
    call_.pool->parallel_for(ceil_div(v, kVocabBlock), [&](int64_t i, int) {
      const int64_t begin = i * kVocabBlock, end = std::min(begin + kVocabBlock, v);
      for (int64_t r = begin; r < end; ++r) {
        float* row = logits + r * g_.row;
        for (int64_t t = 0; t < n; t += kLanes)
          store(row + t, load(dlse_ + t) * exp(load(row + t) - load(lse_ + t)));
      }
      for (int64_t t = 0; t < n; ++t)
        if (const int64_t at = g_.c.target(t0 + t) - v0; at >= begin && at < end)
          logits[at * g_.row + t] = logits[at * g_.row + t] + dpicked[t0 + t];
      after(begin, end);
    });
    call_.counters->add(4 * n * v, 4 * round_up(n, kLanes) * v);
  }

  void fill_dw() const {
    for (int64_t r = 0; r < g_.c.v; ++r) {
      if (g_.is_bf16) {
        std::fill_n(out<bf16>(3) + r * g_.dw_row, g_.c.d, bf16(0.0F));
      } else {
        std::fill_n(out<float>(3) + r * g_.dw_row, g_.c.d, 0.0F);
      }
    }
  }

  const KernelCall& call_;
  const CrossEntropyGradsCall& g_;
  const RowScalars lse_out_, picked_;
  float *kept_, *m_, *l_, *lse_, *dlse_;
  float* pass_;   // logits that are not kept
  bf16* narrow_;  // g of a pass
  float *dx_, *dots_;
};
}  // namespace

void cross_entropy_grads(const KernelCall& call) {
  const auto g = parse_cross_entropy_grads(call.in, call.out, *call.attrs);
  TEGULA_CHECK(g.ok(), g.ok() ? "" : g.error().message);
  Grads(call, *g).run();
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
