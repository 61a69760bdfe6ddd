// Cross-entropy from the last hidden state: logits exist one register tile at a time (forward) or
// one chunk of columns at a time (backward). [Wijmans et al. 2024, section 4]
#include <type_traits>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/workspace.h"
#include "tegula/kernels/cpu/isa/cross_entropy_rows.h"
#include "tegula/kernels/cpu/isa/dot_micro.h"
#include "tegula/kernels/cpu/isa/pack.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
// Shared by both directions: panels of w's columns, strips of tokens, tiles of logits.
template <class T>
struct Logits {
  const KernelCall& call;
  const CrossEntropyCall& c;
  float* w_t;

  void pack_columns(int64_t v0, int64_t n) const {
    call.pool->parallel_for(ceil_div(n, kTileN), [&](int64_t i, int) {
      pack_panel(c.w->as<const T>(), c.w_v, c.w_d, kB, v0 + i * kTileN, cut(kTileN, n - i * kTileN),
                 0, c.d, w_t + i * kTileN * c.d, kTileN);
    });
  }
  int64_t strip_floats() const { return kTileM * c.d + kPanelSlack; }
  void pack_tokens(int64_t t0, int64_t n, float* dst) const {
    for (int64_t r = 0; r < n; r += kTileM)
      pack_panel(c.x->as<const T>(), c.tokens, c.x_d, kA, t0 + r, cut(kTileM, n - r), 0, c.d,
                 dst + r / kTileM * strip_floats(), cut(kTileM, n - r));
  }
  // Columns [j, j + cols) of the chunk for one strip of tokens; returns operations executed.
  int64_t tiles(const float* strip, int rows, int64_t j, int64_t cols, float* dst,
                int64_t stride) const {
    int64_t executed = 0;
    for (int64_t e = 0; e < cols; e += kTileN) {
      const TileArgs t{strip, rows, Lies::kPanel,         w_t + (j + e) * c.d,
                       c.d,   rows, cut(kTileN, cols - e)};
      multiply_tile(t, dst + e, stride);
      executed += 2 * c.d * rows * round_up(t.cols, kLanes);
    }
    return executed;
  }
};

template <class T>
void forward(const KernelCall& call, const CrossEntropyCall& c) {
  const CrossEntropyWorkspace space(c, false);
  auto* w_t = static_cast<float*>(call.workspace);
  float *threads = w_t + space.w_t, *m = threads + space.thread * call.pool->n_threads();
  float* l = m + c.n_tokens;
  claim_workspace(call, space.bytes(call.pool->n_threads()));
  const RowScalars lse(call.out[0]), picked(call.out[1]);
  const Logits<T> logits{call, c, w_t};
  const auto run_block = [&](int64_t t0, int64_t v0, int64_t n, float* scratch) {
    const int64_t tokens = cut(kTokenBlock, c.n_tokens - t0);
    float* s = scratch + kTokenBlock * c.d + kTokenBlock / kTileM * kPanelSlack;
    logits.pack_tokens(t0, tokens, scratch);
    if (v0 == 0)
      for (int64_t t = t0; t < t0 + tokens; ++t) m[t] = -kInf, l[t] = 0, picked[t] = 0;
    int64_t executed = 0;
    for (int64_t j = 0; j < n; j += kVocabBlock) {
      const int64_t cols = cut(kVocabBlock, n - j);
      for (int64_t r = 0; r < tokens; r += kTileM) {
        const int rows = cut(kTileM, tokens - r);
        executed += logits.tiles(scratch + r / kTileM * logits.strip_floats(), rows, j, cols, s,
                                 kVocabBlock);
        for (int i = 0; i < rows; ++i) {
          const int64_t t = t0 + r + i, at = c.target(t) - v0 - j;
          const float* row = s + i * kVocabBlock;
          if (c.target(t) >= 0 && at >= 0 && at < cols) picked[t] = row[at];
          add_logits(row, cols, m[t], l[t]);
        }
      }
    }
    int64_t more = tokens * n * 4;
    if (v0 + n == c.v) {
      more += 2 * tokens;
      for (int64_t t = t0; t < t0 + tokens; ++t) lse[t] = log_sum(m[t], l[t]);
    }
    call.counters->add(tokens * n * 2 * c.d + more, executed + more);
  };
  for (int64_t v0 = 0; v0 < c.v; v0 += c.chunk) {
    const int64_t n = std::min(c.chunk, c.v - v0);
    logits.pack_columns(v0, n);
    call.pool->parallel_for(ceil_div(c.n_tokens, kTokenBlock), [&](int64_t i, int thread) {
      run_block(i * kTokenBlock, v0, n, threads + thread * space.thread);
    });
  }
}

template <class T>
class Backward {
 public:
  Backward(const KernelCall& call, const CrossEntropyCall& c)
      : call_(call),
        c_(c),
        space_(c, true),
        w_t_(static_cast<float*>(call.workspace)),
        w_(w_t_ + space_.w_t),
        x_(w_ + space_.w),
        g_(x_ + space_.x),
        threads_(g_ + space_.g),
        dx_(threads_ + space_.thread * call.pool->n_threads()),
        logits_{call, c, w_t_} {}

  void run() {
    const int64_t d_strips = ceil_div(c_.d, kTileN);
    claim_workspace(call_, space_.bytes(call_.pool->n_threads()));
    std::fill_n(dx_, space_.dx, 0.0f);
    call_.pool->parallel_for(d_strips, [&](int64_t e, int) {
      pack_panel(c_.x->as<const T>(), c_.x_d, c_.tokens, kA, e * kTileN,
                 cut(kTileN, c_.d - e * kTileN), 0, c_.n_tokens, x_ + e * c_.n_tokens * kTileN,
                 kTileN);
    });
    for (int64_t v0 = 0; v0 < c_.v; v0 += c_.chunk) {
      const int64_t n = std::min(c_.chunk, c_.v - v0);
      logits_.pack_columns(v0, n);
      call_.pool->parallel_for(d_strips, [&](int64_t e, int) {
        pack_panel(c_.w->as<const T>(), c_.w_d, c_.w_v, kB, e * kTileN,
                   cut(kTileN, c_.d - e * kTileN), v0, n, w_ + e * n * kTileN, kTileN);
      });
      call_.pool->parallel_for(ceil_div(c_.n_tokens, kTokenBlock), [&](int64_t i, int thread) {
        tokens(i * kTokenBlock, v0, n, threads_ + thread * space_.thread);
      });
      call_.pool->parallel_for(ceil_div(n, kTileM), [&](int64_t i, int thread) {
        columns(i * kTileM, v0, n, threads_ + thread * space_.thread);
      });
    }
    const RowIo dx(call_.out[0]);
    call_.pool->parallel_for(ceil_div(c_.n_tokens, kTokenBlock), [&](int64_t i, int) {
      for (int64_t t = i * kTokenBlock; t < std::min((i + 1) * kTokenBlock, c_.n_tokens); ++t)
        put(dx, t, dx_ + t * kTileN, c_.n_tokens * kTileN);
    });
  }

 private:
  // A row of sums in strips [kTileN], strip_stride apart.
  void put(const RowIo& out, int64_t row, const float* acc, int64_t strip_stride) const {
    for (int64_t e = 0; e < c_.d; e += kTileN) {
      const int64_t n = cut(kTileN, c_.d - e);
      float t[kTileN];
      float* to = out.target(row, e, t);
      std::copy_n(acc + e / kTileN * strip_stride, n, to);
      out.written(row, e, n, to);
    }
  }

  // g of a block of tokens for the chunk, and their share of dx.
  void tokens(int64_t t0, int64_t v0, int64_t n, float* scratch) const {
    const RowScalars lse(call_.in[3]), dlse(call_.in[4]), dpicked(call_.in[5]);
    const int64_t count = cut(kTokenBlock, c_.n_tokens - t0);
    logits_.pack_tokens(t0, count, scratch);
    int64_t executed = 0;
    for (int64_t r = 0; r < count; r += kTileM) {
      const int rows = cut(kTileM, count - r);
      float* g = g_ + (t0 + r) * c_.chunk;
      executed +=
          logits_.tiles(scratch + r / kTileM * logits_.strip_floats(), rows, 0, n, g, c_.chunk);
      for (int i = 0; i < rows; ++i) {
        const int64_t t = t0 + r + i, target = c_.target(t) - v0;
        const Vf shift = set1(finite(lse[t])), scale = set1(dlse[t]);
        float* row = g + i * c_.chunk;
        // The row is a multiple of 16 long; what lies past n is never read.
        for (int64_t j = 0; j < n; j += kLanes) store(row + j, scale * exp(load(row + j) - shift));
        if (c_.target(t) >= 0 && target >= 0 && target < n) row[target] = row[target] + dpicked[t];
        if constexpr (std::is_same_v<T, bf16>)
          for (int64_t j = 0; j < n; j += kLanes) store(row + j, round_bf16(load(row + j)));
      }
      for (int64_t e = 0; e < c_.d; e += kTileN) {
        const TileArgs a{g, c_.chunk, Lies::kRows, w_ + e * n, n, rows, cut(kTileN, c_.d - e)};
        accumulate_tile(a, dx_ + (e / kTileN * c_.n_tokens + t0 + r) * kTileN);
        executed += 2 * n * rows * round_up(a.cols, kLanes);
      }
    }
    const int64_t more = count * 4 * n;
    call_.counters->add(count * n * 4 * c_.d + more, executed + more);
  }

  // dw of a strip of columns: one chain over all tokens.
  void columns(int64_t j, int64_t v0, int64_t n, float* scratch) const {
    TensorRef dw_rows = call_.out[1];  // as [v, d]
    if (c_.is_transposed) {
      std::swap(dw_rows.shape[0], dw_rows.shape[1]);
      std::swap(dw_rows.stride[0], dw_rows.stride[1]);
    }
    const RowIo dw(dw_rows);
    const int rows = cut(kTileM, n - j);
    float* strip = scratch;
    float* tile = scratch + round_up(kTileM * c_.n_tokens + kPanelSlack, 16);
    for (int64_t t = 0; t < c_.n_tokens; ++t)
      std::copy_n(g_ + t * c_.chunk + j, rows, strip + t * rows);
    int64_t executed = 0;
    for (int64_t e = 0; e < c_.d; e += kTileN) {
      const int cols = cut(kTileN, c_.d - e);
      multiply_tile({strip, rows, Lies::kPanel, x_ + e * c_.n_tokens, c_.n_tokens, rows, cols},
                    tile, kTileN);
      executed += 2 * c_.n_tokens * rows * round_up(cols, kLanes);
      for (int i = 0; i < rows; ++i) {
        float t[kTileN];
        float* to = dw.target(v0 + j + i, e, t);
        std::copy_n(tile + i * kTileN, cols, to);
        dw.written(v0 + j + i, e, cols, to);
      }
    }
    call_.counters->add(2 * c_.n_tokens * rows * c_.d, executed);
  }

  const KernelCall& call_;
  const CrossEntropyCall& c_;
  const CrossEntropyWorkspace space_;
  float *w_t_, *w_, *x_, *g_, *threads_, *dx_;
  Logits<T> logits_;
};
}  // namespace

void linear_cross_entropy(const KernelCall& call) {
  const auto c = parse_cross_entropy(call.in, *call.attrs, false);
  TEGULA_CHECK(c.ok(), c.ok() ? "" : c.error().message);
  switch (c->x->dtype) {
    case DType::kF32:
      return forward<float>(call, *c);
    case DType::kBF16:
      return forward<bf16>(call, *c);
    case DType::kF16:
      return forward<f16>(call, *c);
    default:
      return;
  }
}

void linear_cross_entropy_bwd(const KernelCall& call) {
  const auto c = parse_cross_entropy(call.in, *call.attrs, true);
  TEGULA_CHECK(c.ok(), c.ok() ? "" : c.error().message);
  switch (c->x->dtype) {
    case DType::kF32:
      return Backward<float>(call, *c).run();
    case DType::kBF16:
      return Backward<bf16>(call, *c).run();
    case DType::kF16:
      return Backward<f16>(call, *c).run();
    default:
      return;
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
