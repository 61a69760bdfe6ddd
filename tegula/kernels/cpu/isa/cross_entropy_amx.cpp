// Cross-entropy from the last hidden state in AMX's tiles: logits exist 32 tokens by 64 columns at
// a time, their gradients a chunk of columns at a time, in bf16 as tiles of a for both products.
// Where loss and gradients are one call, logits are kept from one to the other.
// [Wijmans et al. 2024, section 4; order of common/cross_entropy.h]
#include <utility>

#include "tegula/kernels/cpu/common/workspace.h"
#include "tegula/kernels/cpu/isa/amx_blocks.h"
#include "tegula/kernels/cpu/isa/cross_entropy_rows.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
int64_t tiles_of(int64_t n) { return ceil_div(n, kStrip); }
constexpr int64_t kTaskTokens = 2 * kStrip;
constexpr int64_t kKeptBlock = kStrip * kVocabBlock;
constexpr int64_t kBlockFlops = 2 * kStrip * kStrip * kStrip;

// Tokens as tiles of a, columns of a chunk as tiles of b, and their product.
struct AmxLogits {
  const KernelCall& call;
  const CrossEntropyCall& c;
  int64_t d_tiles = 0, n_tiles = 0;
  char *x_a = nullptr, *w_b = nullptr;  // [token strip][d], [column strip][d]

  void pack_tokens() const {
    call.pool->parallel_for(n_tiles, [&](int64_t i, int) {
      pack_block(c.x->as<const bf16>(), c.tokens, c.x_d, i * kStrip,
                 cut(kStrip, c.n_tokens - i * kStrip), 0, c.d, TileForm::kA,
                 x_a + i * d_tiles * kBf16Block);
    });
  }
  void pack_columns(int64_t v0, int64_t n) const {
    call.pool->parallel_for(ceil_div(n, kStrip), [&](int64_t i, int) {
      pack_block(c.w->as<const bf16>(), c.w_v, c.w_d, v0 + i * kStrip, cut(kStrip, n - i * kStrip),
                 0, c.d, TileForm::kB, w_b + i * d_tiles * kBf16Block);
    });
  }
  void block(Tiles& t, int64_t token_strip, int64_t column_strip, float* s, int64_t stride) const {
    TileOperands u;
    u.a = x_a + token_strip * d_tiles * kBf16Block;
    u.b = w_b + column_strip * d_tiles * kBf16Block;
    clear_sums<2, 2>(t);
    add_products<2, 2, true>(t, u, d_tiles);
    store_sums<2, 2>(t, s, stride);
  }
};

// Logits of the first tokens, [token strip][64 columns] in blocks of 32 × 64.
struct KeptLogits {
  float* at = nullptr;
  int64_t strips = 0, blocks = 0;
  // Null where they are not kept.
  float* block(int64_t token_strip, int64_t column) const {
    return token_strip >= strips ? nullptr
                                 : at + (token_strip * blocks + column / kVocabBlock) * kKeptBlock;
  }
};

class AmxForward {
 public:
  AmxForward(const KernelCall& call, const CrossEntropyCall& c, char* at, KeptLogits kept = {})
      : call_(call), c_(c), lse_(call.out[0]), picked_(call.out[1]), kept_(kept) {
    const AmxCrossEntropyWorkspace space(c, false);
    logits_.d_tiles = tiles_of(c.d), logits_.n_tiles = tiles_of(c.n_tokens);
    logits_.x_a = at, logits_.w_b = at + space.x_a;
    at += space.x_a + space.w_b;
    m_ = reinterpret_cast<float*>(at), l_ = m_ + c.n_tokens;
  }

  void run() {
    logits_.pack_tokens();
    const int64_t chunk = amx_vocab_chunk(0);
    for (int64_t v0 = 0; v0 < c_.v; v0 += chunk) {
      const int64_t n = std::min(chunk, c_.v - v0);
      logits_.pack_columns(v0, n);
      call_.pool->parallel_for(ceil_div(c_.n_tokens, kTaskTokens),
                               [&](int64_t i, int) { tokens(i * kTaskTokens, v0, n); });
    }
  }

 private:
  void tokens(int64_t t0, int64_t v0, int64_t n) const {
    Tiles tiles;
    alignas(64) float own[kKeptBlock];
    const int64_t end = std::min(t0 + kTaskTokens, c_.n_tokens);
    if (v0 == 0)
      for (int64_t t = t0; t < end; ++t) m_[t] = -kInf, l_[t] = 0, picked_[t] = 0;
    int64_t executed = 0;
    for (int64_t j = 0; j < n; j += kVocabBlock) {
      const int64_t cols = cut(kVocabBlock, n - j);
      for (int64_t r = t0; r < end; r += kStrip) {
        float* const kept = kept_.block(r / kStrip, v0 + j);
        float* const s = kept != nullptr ? kept : own;
        for (int64_t e = 0; e < cols; e += kStrip, executed += kBlockFlops * logits_.d_tiles)
          logits_.block(tiles, r / kStrip, (j + e) / kStrip, s + e, kVocabBlock);
        for (int64_t t = r; t < std::min(r + kStrip, end); ++t) {
          const float* row = s + (t - r) * kVocabBlock;
          const int64_t target = c_.target(t), at = target - v0 - j;
          if (target >= 0 && at >= 0 && at < cols) picked_[t] = row[at];
          add_logits(row, cols, m_[t], l_[t]);
        }
      }
    }
    int64_t more = (end - t0) * n * 4;
    if (v0 + n == c_.v) {
      more += 2 * (end - t0);
      for (int64_t t = t0; t < end; ++t) lse_[t] = log_sum(m_[t], l_[t]);
    }
    call_.counters->add((end - t0) * n * 2 * c_.d + more, executed + more);
  }

  const KernelCall& call_;
  const CrossEntropyCall& c_;
  const RowScalars lse_, picked_;
  const KeptLogits kept_;
  AmxLogits logits_{call_, c_};
  float *m_, *l_;
};

// The gradients' operands besides x, w and targets, and where they go.
struct AmxGradients {
  const TensorRef &lse, &dlse, &dpicked, &dx, &dw;
};

class AmxBackward {
 public:
  AmxBackward(const KernelCall& call, const CrossEntropyCall& c, const AmxGradients& g, char* at,
              KeptLogits kept = {})
      : call_(call),
        c_(c),
        lse_(g.lse),
        dlse_(g.dlse),
        dpicked_(g.dpicked),
        dx_out_(g.dx),
        dw_out_(g.dw),
        kept_(kept),
        chunk_(amx_vocab_chunk(c.n_tokens)),
        d_tiles_(tiles_of(c.d)),
        n_tiles_(tiles_of(c.n_tokens)),
        v_tiles_(std::min(chunk_, round_up(c.v, kVocabBlock)) / kStrip) {
    const AmxCrossEntropyWorkspace space(c, true);
    const auto take = [&](int64_t bytes) { return std::exchange(at, at + bytes); };
    logits_.x_a = take(space.x_a), logits_.w_b = take(space.w_b);
    x_b_ = take(space.x_a), w_k_ = take(space.w_b);
    g_a_ = take(space.g), g_t_ = take(space.g);
    dx_ = reinterpret_cast<float*>(take(space.dx));
    logits_.d_tiles = d_tiles_, logits_.n_tiles = n_tiles_;
  }

  void run() {
    logits_.pack_tokens();
    call_.pool->parallel_for(d_tiles_, [&](int64_t e, int) {
      pack_block(c_.x->as<const bf16>(), c_.x_d, c_.tokens, e * kStrip,
                 cut(kStrip, c_.d - e * kStrip), 0, c_.n_tokens, TileForm::kB,
                 x_b_ + e * n_tiles_ * kBf16Block);
    });
    for (int64_t v0 = 0; v0 < c_.v; v0 += chunk_) {
      const int64_t n = std::min(chunk_, c_.v - v0);
      if (kept_.strips < n_tiles_) logits_.pack_columns(v0, n);
      call_.pool->parallel_for(d_tiles_, [&](int64_t e, int) {
        pack_block(c_.w->as<const bf16>(), c_.w_d, c_.w_v, e * kStrip,
                   cut(kStrip, c_.d - e * kStrip), v0, n, TileForm::kB,
                   w_k_ + e * v_tiles_ * kBf16Block);
      });
      call_.pool->parallel_for(ceil_div(c_.n_tokens, kTaskTokens),
                               [&](int64_t i, int) { tokens(i * kTaskTokens, v0, n); });
      call_.pool->parallel_for(ceil_div(n, kStrip),
                               [&](int64_t i, int) { columns(i * kStrip, v0, n); });
    }
  }

 private:
  // Gradients of the logits of some tokens for the chunk, and the chunk's share of dx.
  void tokens(int64_t t0, int64_t v0, int64_t n) const {
    Tiles tiles;
    alignas(64) float s[kF32Block];
    const int64_t end = std::min(t0 + kTaskTokens, c_.n_tokens), strips = ceil_div(n, kStrip);
    int64_t executed = 0;
    for (int64_t i = 0; i < strips; ++i)
      for (int64_t t = t0; t < end; t += kStrip) {
        const int64_t column = v0 + i * kStrip;
        if (const float* kept = kept_.block(t / kStrip, column)) {
          weigh(kept + column % kVocabBlock, kVocabBlock, t / kStrip, v0, i, n);
          continue;
        }
        logits_.block(tiles, t / kStrip, i, s, kStrip);
        weigh(s, kStrip, t / kStrip, v0, i, n);
        executed += kBlockFlops * d_tiles_;
      }
    const RowIo dx(dx_out_);
    for (int64_t t = t0; t < end; t += kStrip)
      for (int64_t e = 0; e < d_tiles_; ++e, executed += kBlockFlops * strips) {
        float* sums = dx_ + (t / kStrip * d_tiles_ + e) * kF32Block;
        TileOperands u;
        u.a = g_a_ + t / kStrip * v_tiles_ * kBf16Block;
        u.b = w_k_ + e * v_tiles_ * kBf16Block;
        v0 == 0 ? clear_sums<2, 2>(tiles) : load_sums<2, 2>(tiles, sums, kStrip);
        add_products<2, 2>(tiles, u, strips);
        store_sums<2, 2>(tiles, sums, kStrip);
        if (v0 + n == c_.v) put(dx, t, cut(kStrip, end - t), e, sums);
      }
    const int64_t more = (end - t0) * 4 * n, products = kept_.at == nullptr ? 4 : 2;
    call_.counters->add((end - t0) * n * products * c_.d + more, executed + more);
  }

  // logits: of 32 tokens and 32 columns of the chunk.
  void weigh(const float* logits, int64_t stride, int64_t token_strip, int64_t v0,
             int64_t column_strip, int64_t n) const {
    alignas(64) float s[kStrip];
    const int64_t j0 = column_strip * kStrip, cols = std::min<int64_t>(kStrip, n - j0);
    char* g_a = g_a_ + (token_strip * v_tiles_ + column_strip) * kBf16Block;
    for (int r = 0; r < kStrip; ++r, logits += stride) {
      const int64_t t = token_strip * kStrip + r;
      if (t >= c_.n_tokens) {
        std::fill_n(s, kStrip, 0.0F);
      } else {
        const Vf shift = set1(finite(lse_[t])), scale = set1(dlse_[t]);
        for (int j = 0; j < kStrip; j += kLanes)
          store(s + j, scale * exp(load(logits + j) - shift));
        const int64_t target = c_.target(t), at = target - v0 - j0;
        if (target >= 0 && at >= 0 && at < cols) s[at] = s[at] + dpicked_[t];
        std::fill(s + cols, s + kStrip, 0.0F);
      }
      store_bf16(g_a + r * 64, load16(s), load16(s + 16));
    }
    char* g_t = g_t_ + (column_strip * n_tiles_ + token_strip) * kBf16Block;
    for (int half = 0; half < 2; ++half) {
      alignas(64) Dwords pairs;
      for (int p = 0; p < kTile; ++p)
        interleave(g_a + 128 * p + 32 * half, g_a + 128 * p + 64 + 32 * half, pairs[p]);
      transpose_dwords(pairs, *reinterpret_cast<Dwords*>(g_t + half * kTileBytes));
    }
  }

  // dw of 32 columns: one sum over all tokens.
  void columns(int64_t j, int64_t v0, int64_t n) const {
    Tiles tiles;
    alignas(64) float s[kF32Block];
    TensorRef dw_rows = dw_out_;  // as [v, d]
    if (c_.is_transposed) {
      std::swap(dw_rows.shape[0], dw_rows.shape[1]);
      std::swap(dw_rows.stride[0], dw_rows.stride[1]);
    }
    const RowIo dw(dw_rows);
    const int rows = cut(kStrip, n - j);
    for (int64_t e = 0; e < d_tiles_; ++e) {
      TileOperands u;
      u.a = g_t_ + j / kStrip * n_tiles_ * kBf16Block;
      u.b = x_b_ + e * n_tiles_ * kBf16Block;
      clear_sums<2, 2>(tiles);
      add_products<2, 2>(tiles, u, n_tiles_);
      store_sums<2, 2>(tiles, s, kStrip);
      put(dw, v0 + j, rows, e, s);
    }
    call_.counters->add(2 * c_.n_tokens * rows * c_.d, kBlockFlops * n_tiles_ * d_tiles_);
  }

  void put(const RowIo& out, int64_t row, int rows, int64_t d_tile, const float* sums) const {
    const int64_t e = d_tile * kStrip;
    for (int i = 0; i < rows; ++i)
      out.written(row + i, e, cut(kStrip, c_.d - e), sums + i * kStrip);
  }

  const KernelCall& call_;
  const CrossEntropyCall& c_;
  const RowScalars lse_, dlse_, dpicked_;
  const TensorRef &dx_out_, &dw_out_;
  const KeptLogits kept_;
  const int64_t chunk_, d_tiles_, n_tiles_, v_tiles_;
  AmxLogits logits_{call_, c_};
  char *x_b_, *w_k_;  // [d][token strip], k = tokens; [d][column strip], k = columns
  char *g_a_, *g_t_;  // [token strip][column strip]; [column strip][token strip], transposed
  float* dx_;         // [token strip][d]
};
}  // namespace

void cross_entropy_amx(const KernelCall& call) {
  const auto c = parse_cross_entropy(call.in, *call.attrs, false);
  TEGULA_CHECK(c.ok(), c.ok() ? "" : c.error().message);
  claim_workspace(call, AmxCrossEntropyWorkspace(*c, false).bytes());
  AmxForward(call, *c, static_cast<char*>(call.workspace)).run();
}

void cross_entropy_bwd_amx(const KernelCall& call) {
  const auto c = parse_cross_entropy(call.in, *call.attrs, true);
  TEGULA_CHECK(c.ok(), c.ok() ? "" : c.error().message);
  claim_workspace(call, AmxCrossEntropyWorkspace(*c, true).bytes());
  const AmxGradients g{call.in[3], call.in[4], call.in[5], call.out[0], call.out[1]};
  AmxBackward(call, *c, g, static_cast<char*>(call.workspace)).run();
}

void cross_entropy_grads_amx(const KernelCall& call) {
  const auto c = parse_cross_entropy(call.in.first(3), *call.attrs, false);
  TEGULA_CHECK(c.ok(), c.ok() ? "" : c.error().message);
  claim_workspace(call, amx_cross_entropy_grads_bytes(*c));
  auto* at = static_cast<char*>(call.workspace);
  const KeptLogits kept{reinterpret_cast<float*>(at), amx_kept_strips(*c),
                        ceil_div(c->v, kVocabBlock)};
  at += amx_kept_bytes(*c);
  AmxForward(call, *c, at, kept).run();
  const AmxGradients g{call.out[0], call.in[3], call.in[4], call.out[2], call.out[3]};
  AmxBackward(call, *c, g, at, kept).run();
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
