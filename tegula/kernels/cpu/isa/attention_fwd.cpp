// Attention's forward: query blocks against packed key blocks, online softmax.
// [FlashAttention-2, section 3.1; order "kb64" of common/attention.h]
#include <algorithm>

#include "tegula/kernels/cpu/common/workspace.h"
#include "tegula/kernels/cpu/isa/attention_rows.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
constexpr float kInf = __builtin_inff();

template <class T>
class Flash {
 public:
  Flash(const KernelCall& call, const AttentionCall& c)
      : call_(call), c_(c), space_(c, false), o_(call.out[0]), lse_(call.out[1]) {
    Factor query{.extent = c.n_q}, head{.extent = c.group};
    query.stride[kA] = c.q->stride[1], head.stride[kA] = c.q->stride[2];
    rows_.add(query), rows_.add(head);
    d_of_q_ = loop_over(c.d, c.q->stride[3]);
    d_of_k_ = loop_over(c.d, c.k->stride[3]);
    keys_of_k_ = loop_over(c.n_k, c.k->stride[1]);
    keys_of_v_ = loop_over(c.n_k, c.v->stride[1]);
    d_of_v_ = loop_over(c.dv, c.v->stride[3]);
    n_rows_ = c.n_q * c.group;
    n_blocks_ = ceil_div(c.n_k, kKeyBlock);
  }

  void run() {
    const int64_t pairs = c_.batch * c_.n_kv_heads, row_blocks = ceil_div(n_rows_, kRowBlock);
    local_keys_ = row_blocks == 1;  // nobody else reads these keys: pack them when they are needed
    const int64_t pair_floats = n_blocks_ * key_block_floats(c_);
    const int64_t at_once = local_keys_ || pair_floats == 0
                                ? pairs
                                : std::max<int64_t>(1, space_.panel_floats / pair_floats);
    claim_workspace(call_, space_.bytes(call_.pool->n_threads()));
    float* panels = static_cast<float*>(call_.workspace);
    float* scratch = panels + space_.panel_floats;
    for (int64_t first = 0; first < pairs; first += at_once) {
      const int64_t n = std::min(at_once, pairs - first);
      if (!local_keys_)
        call_.pool->parallel_for(n * n_blocks_, [&](int64_t i, int) {
          pack_keys(first + i / n_blocks_, i % n_blocks_, panels + i * key_block_floats(c_));
        });
      call_.pool->parallel_for(n * row_blocks, [&](int64_t i, int thread) {
        // Causal: the last rows have most to do and go first.
        run_block(first + i / row_blocks, (row_blocks - 1 - i % row_blocks) * kRowBlock,
                  panels + i / row_blocks * pair_floats, scratch + thread * space_.thread_floats);
      });
    }
  }

 private:
  // Transposed keys in strips [d][kTileN], then values in strips [64][kTileN].
  void pack_keys(int64_t pair, int64_t block, float* dst) const {
    const int64_t b = pair / c_.n_kv_heads, h = pair % c_.n_kv_heads, k0 = block * kKeyBlock;
    const int64_t n = std::min<int64_t>(kKeyBlock, c_.n_k - k0);
    const T* k = c_.k->as<const T>() + offset4(*c_.k, b, 0, h);
    for (int64_t j = 0; j < n; j += kTileN)
      pack_panel(k, keys_of_k_, d_of_k_, kB, k0 + j,
                 static_cast<int>(std::min<int64_t>(kTileN, n - j)), 0, c_.d, dst + j * c_.d,
                 kTileN);
    const T* v = c_.v->as<const T>() + offset4(*c_.v, b, 0, h);
    for (int64_t e = 0; e < c_.dv; e += kTileN)
      pack_panel(v, d_of_v_, keys_of_v_, kB, e,
                 static_cast<int>(std::min<int64_t>(kTileN, c_.dv - e)), k0, n,
                 values(dst) + e * kKeyBlock, kTileN);
  }
  const float* values(const float* block) const { return block + kKeyBlock * c_.d; }
  float* values(float* block) const { return block + kKeyBlock * c_.d; }

  // A block of queries: r is a row of the (query, head of the group) pairs.
  struct Block {
    int64_t pair, r0;
    int rows;
    float *q, *s, *o, *keys;
    QueryRow row[kRowBlock];
    float m[kRowBlock], l[kRowBlock];
    int64_t executed = 0;
  };

  int64_t n_strips_v() const { return ceil_div(c_.dv, kTileN); }
  float* o_tile(const Block& x, int64_t strip, int64_t e_strip) const {
    return x.o + (strip * n_strips_v() + e_strip) * kTileM * kTileN;
  }
  static int strip_rows(const Block& x, int64_t strip) {
    return static_cast<int>(std::min<int64_t>(kTileM, x.rows - strip * kTileM));
  }
  const float* q_strip(const Block& x, int64_t strip) const {
    return x.q + strip * (kTileM * c_.d + kPanelSlack);
  }

  void run_block(int64_t pair, int64_t r0, const float* panels, float* scratch) const {
    Block x;
    x.pair = pair, x.r0 = r0;
    x.rows = static_cast<int>(std::min<int64_t>(kRowBlock, n_rows_ - r0));
    Scratch space(scratch);
    const int64_t strips = ceil_div(x.rows, kTileM);
    x.q = space.take(x.rows * c_.d + strips * kPanelSlack);
    x.s = space.take(kTileM * kKeyBlock);
    x.o = space.take(strips * kTileM * n_strips_v() * kTileN);
    x.keys = local_keys_ ? space.take(key_block_floats(c_)) : nullptr;
    std::fill_n(x.o, strips * kTileM * n_strips_v() * kTileN, 0.0f);
    int64_t lo = c_.n_k, hi = 0, visible = 0, live = 0;
    for (int i = 0; i < x.rows; ++i) {
      QueryRow& row = x.row[i];
      row.batch = pair / c_.n_kv_heads;
      row.query = (r0 + i) / c_.group;
      row.head = pair % c_.n_kv_heads * c_.group + (r0 + i) % c_.group;
      row.keys = visible_keys(c_, row.query);
      x.m[i] = -kInf, x.l[i] = 0;
      if (row.keys.count() == 0) continue;
      lo = std::min(lo, row.keys.lo), hi = std::max(hi, row.keys.hi);
      visible += row.keys.count(), ++live;
    }
    const T* q =
        c_.q->as<const T>() + offset4(*c_.q, x.row[0].batch, 0, pair % c_.n_kv_heads * c_.group);
    for (int64_t s = 0; s < strips; ++s)
      pack_panel(q, rows_, d_of_q_, kA, r0 + s * kTileM, strip_rows(x, s), 0, c_.d,
                 x.q + s * (kTileM * c_.d + kPanelSlack), strip_rows(x, s));
    for (int64_t block = lo / kKeyBlock; block * kKeyBlock < hi; ++block) {
      const float* keys = panels + block * key_block_floats(c_);
      if (local_keys_) pack_keys(pair, block, x.keys), keys = x.keys;
      for (int64_t s = 0; s < strips; ++s) run_strip(x, s, block * kKeyBlock, keys);
    }
    for (int i = 0; i < x.rows; ++i) finish_row(x, i);
    const int64_t per_pair = 2 * c_.d + c_.score_flops() + 4 + (c_.dropout > 0 ? 1 : 0) + 2 * c_.dv;
    const int64_t math = visible * per_pair + live * (3 + c_.dv);
    const int64_t other = visible * (per_pair - 2 * c_.d - 2 * c_.dv) + live * (3 + c_.dv);
    call_.counters->add(math, x.executed + other);
  }

  // One strip of rows against one key block.
  void run_strip(Block& x, int64_t strip, int64_t k0, const float* keys) const {
    const int rows = strip_rows(x, strip);
    const int64_t r = strip * kTileM;
    int64_t lo = k0 + kKeyBlock, hi = k0;
    for (int i = 0; i < rows; ++i) {
      const KeyRange& keys_of = x.row[r + i].keys;
      if (keys_of.count() == 0) continue;
      lo = std::min(lo, std::max(keys_of.lo, k0)), hi = std::max(hi, keys_of.hi);
    }
    lo -= k0, hi = std::min<int64_t>(hi - k0, kKeyBlock);
    if (lo >= hi) return;
    const int64_t n = std::min<int64_t>(kKeyBlock, c_.n_k - k0);
    for (int64_t j = lo / kTileN * kTileN; j < hi; j += kTileN) {
      const TileArgs t{q_strip(x, strip),
                       rows,
                       false,
                       keys + j * c_.d,
                       c_.d,
                       rows,
                       static_cast<int>(std::min<int64_t>(kTileN, n - j))};
      multiply_tile(t, x.s + j, kKeyBlock);
      x.executed += 2 * c_.d * rows * round_up(t.cols, kLanes);
    }
    for (int i = 0; i < rows; ++i) softmax_row(x, strip, i, k0, lo, hi);
    for (int64_t e = 0; e < n_strips_v(); ++e) {
      const TileArgs t{x.s + lo,
                       kKeyBlock,
                       true,
                       values(keys) + (e * kKeyBlock + lo) * kTileN,
                       hi - lo,
                       rows,
                       static_cast<int>(std::min<int64_t>(kTileN, c_.dv - e * kTileN))};
      accumulate_tile(t, o_tile(x, strip, e));
      x.executed += 2 * t.k * rows * round_up(t.cols, kLanes);
    }
  }

  // Scores become weights in place, for keys [lo, hi) of the block; m, l and o follow.
  void softmax_row(Block& x, int64_t strip, int i, int64_t k0, int64_t lo, int64_t hi) const {
    const int64_t r = strip * kTileM + i;
    const QueryRow& row = x.row[r];
    float* s = x.s + i * kKeyBlock;
    const int64_t from = std::max(row.keys.lo - k0, lo), to = std::min(row.keys.hi - k0, hi);
    const int g0 = static_cast<int>(lo / 16), g1 = static_cast<int>(ceil_div(hi, 16));
    if (from >= to) {
      for (int g = g0; g < g1; ++g) store16_n(s + 16 * g, row16(0), 16);
      return;
    }
    Row16 top = row16(-kInf);
    for (int g = g0; g < g1; ++g) {
      Row16 y = load16(s + 16 * g) * row16(c_.scale);
      if (c_.has_extras()) add_extras(c_, row, k0 + 16 * g, c_.n_k - k0 - 16 * g, y, nullptr);
      if (16 * g < from || 16 * g + 16 > to)
        for (int v = 0; v < Row16::kRegs; ++v)
          y.v[v] = select(lanes_in(16 * g + v * kLanes, from, to), y.v[v], set1(-kInf));
      top = max(top, y);
      store16_n(s + 16 * g, y, 16);
    }
    const float block_top = reduce_max(top);
    const float m = x.m[r] > block_top ? x.m[r] : block_top;
    const float shift = m == -kInf ? 0 : m;
    Row16 sum = row16(0);
    float factor[kKeyBlock];
    if (c_.dropout > 0) dropout_factors(c_, row, k0 + 16 * g0, 16 * (g1 - g0), factor + 16 * g0);
    for (int g = g0; g < g1; ++g) {
      Row16 p = load16(s + 16 * g);
      for (Vf& v : p.v) v = exp(v - set1(shift));
      sum = sum + p;
      if (c_.dropout > 0) p = p * load16(factor + 16 * g);
      store16_n(s + 16 * g, p, 16);
    }
    if (m != x.m[r]) {
      float alpha[kLanes];
      store(alpha, exp(set1(x.m[r] - shift)));
      x.l[r] *= alpha[0];
      for (int64_t e = 0; e < n_strips_v(); ++e) {
        float* o = o_tile(x, strip, e) + i * kTileN;
        for (int v = 0; v < kTileN; v += kLanes) store(o + v, load(o + v) * set1(alpha[0]));
      }
      x.m[r] = m;
    }
    x.l[r] = x.l[r] + reduce_add(sum);
  }

  void finish_row(const Block& x, int i) const {
    const QueryRow& row = x.row[i];
    const bool live = x.l[i] > 0;
    float t[kLanes];
    store(t, log(set1(x.l[i])));
    lse_.as<float>()[row.batch * lse_.stride[0] + row.head * lse_.stride[1] +
                     row.query * lse_.stride[2]] = live ? t[0] + x.m[i] : -kInf;
    const float* acc = o_tile(x, i / kTileM, 0) + i % kTileM * kTileN;
    store_row(acc, kTileM * kTileN, c_.dv, live ? 1 / x.l[i] : 0.0f,
              o_.as<T>() + offset4(o_, row.batch, row.query, row.head), o_.stride[3]);
  }

  const KernelCall& call_;
  const AttentionCall& c_;
  const AttentionWorkspace space_;
  const TensorRef& o_;
  const TensorRef& lse_;
  Loops rows_, d_of_q_, d_of_k_, keys_of_k_, keys_of_v_, d_of_v_;
  int64_t n_rows_ = 0, n_blocks_ = 0;
  bool local_keys_ = false;
};
}  // namespace

void attention_fwd(const KernelCall& call) {
  const auto c = parse_attention(*call.attrs, call.in, false);
  TEGULA_CHECK(c.ok(), c.ok() ? "" : c.error().message);
  switch (c->q->dtype) {
    case DType::kF32:
      return Flash<float>(call, *c).run();
    case DType::kBF16:
      return Flash<bf16>(call, *c).run();
    case DType::kF16:
      return Flash<f16>(call, *c).run();
    default:
      return;
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
