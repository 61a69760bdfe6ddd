// Attention of one query a sequence, at the speed of memory. A task takes a span of keys for all
// heads (or some neighbours): a block's keys, then its values, are one run of memory, fetched in
// its own order while the block before is worked on, whatever the order of that work. Spans are
// folded together at the end. [order "kb64" of common/attention.h; Flash-Decoding, Dao et al. 2023]
#pragma once

#include <utility>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/attention_decode.h"
#include "tegula/kernels/cpu/common/attention_pages.h"
#include "tegula/kernels/cpu/common/workspace.h"
#include "tegula/kernels/cpu/isa/attention_rows.h"
#include "tegula/kernels/cpu/isa/attention_thin.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// Fetches into L2 the rows that come some keys later, while a loop goes over those of now in an
// order of its own: a line at a time, upwards, as they lie, which the processor's own prefetching
// takes up.
class Ahead {
 public:
  static constexpr bool kSplits = true;
  // Rows of `bytes` each, next_row bytes apart; after n rows those from `further` on.
  Ahead(const void* row0, int64_t bytes, int64_t next_row, int64_t n = INT64_MAX,
        const void* further = nullptr)
      : at_(static_cast<const char*>(row0)),
        further_(static_cast<const char*>(further)),
        lines_(ceil_div(std::max<int64_t>(bytes, 1), 64)),
        gap_(next_row - 64 * lines_),
        left_(lines_),
        rows_(n) {}

  // As many lines as a loop reads of a key, or of a value.
  __attribute__((always_inline)) void of_key(int64_t, int64_t) const { line(); }
  template <int n>
  __attribute__((always_inline)) void of_values(int64_t, int64_t) const {
#pragma GCC unroll unrolled(4)
    for (int i = 0; i < n; ++i) line();
  }

 private:
  __attribute__((always_inline)) void line() const {
    __builtin_prefetch(at_, 0, 2);
    at_ += 64;
    if (--left_ == 0) {
      left_ = lines_, at_ += gap_;
      if (--rows_ == 0) at_ = further_;
    }
  }

  mutable const char* at_;
  const char* further_;
  int64_t lines_, gap_;   // of a row, behind it
  mutable int64_t left_;  // of a row's lines
  mutable int64_t rows_;  // before what is further
};

// T is the keys' and values' type; queries and results may be f32 instead. Scores says how those of
// a block's keys and all heads' queries are formed, and how many bytes are fetched ahead (16 rows
// of all heads at least): attention_decode.cpp and attention_decode_amx.cpp.
template <class T, class Scores>
class Decode {
 public:
  Decode(const KernelCall& call, const AttentionCall& c)
      : call_(call), c_(c), space_(c), scores_(c), group_(static_cast<int>(c.group)) {
    strips_ = ceil_div(c.dv, kTileN);
    log2_ = c.unit() * kLog2E;
    keys_ = static_cast<DecodeKeys*>(call.workspace);
    parts_ = static_cast<float*>(call.workspace) + space_.key_floats;
    scratch_ = parts_ + space_.part_floats;
  }

  void run() const {
    ThreadPool& pool = *call_.pool;
    claim_workspace(call_, space_.bytes(pool.n_threads()));
    for (int thread = 0; thread < pool.n_threads(); ++thread) held(scratch_of(thread)) = -1;
    const int64_t all_spans = find_keys();
    // Heads are shared out, too, where there are fewer spans than threads.
    const int64_t heads = ceil_div(
        c_.n_kv_heads,
        std::min(c_.n_kv_heads, ceil_div(pool.n_threads(), std::max<int64_t>(all_spans, 1))));
    const int64_t cuts = ceil_div(c_.n_kv_heads, heads);
    pool.parallel_for(all_spans * cuts, [&](int64_t i, int thread) {
      const int64_t h0 = i % cuts * heads, batch = batch_of(i / cuts);
      run_span(batch, i / cuts - keys_[batch].before, h0, std::min(heads, c_.n_kv_heads - h0),
               scratch_of(thread));
    });
    pool.parallel_for(c_.batch * c_.n_heads,
                      [&](int64_t i, int) { finish(i / c_.n_heads, i % c_.n_heads); });
  }

 private:
  float* scratch_of(int thread) const { return scratch_ + thread * space_.thread_floats; }
  // Whose queries a thread's scratch holds: the first head of the batch, or -1.
  static int64_t& held(float* scratch) { return *reinterpret_cast<int64_t*>(scratch); }

  // Finds the keys of each sequence; returns the spans of all.
  int64_t find_keys() const {
    int64_t before = 0;
    AttentionCall one = c_;
    for (int64_t b = 0; b < c_.batch; ++b) {
      if (c_.page > 0) one.n_k = sequence_keys_count(c_, b), one.q_offset = one.n_k - 1;
      DecodeKeys& k = keys_[b];
      k = {visible_keys(one, 0), one.n_k, 0, 0, before};
      k.first_span = k.seen.lo / kKeySpan;
      k.spans = k.seen.count() == 0 ? 0 : ceil_div(k.seen.hi, kKeySpan) - k.first_span;
      before += k.spans;
    }
    return before;
  }
  // Whose span it is, of all sequences'.
  int64_t batch_of(int64_t span) const {
    const DecodeKeys* next =
        std::upper_bound(keys_, keys_ + c_.batch, span,
                         [](int64_t at, const DecodeKeys& k) { return at < k.before; });
    return next - keys_ - 1;  // the last that begins there: those without spans begin there, too
  }

  // A head's part of a span: sums of weighted values [dv], the largest score, the sum of weights.
  float* part(int64_t batch, int64_t head, int64_t span) const {
    const DecodeKeys& k = keys_[batch];
    return parts_ + (k.before * c_.n_heads + head * k.spans + span) * space_.row_floats();
  }

  // The data that a task keeps of one key head: scores or weights [group][64], sums of values in
  // strips [group][kTileN], m [group] and l [group][16].
  struct Head {
    ThinRows<T> values;  // of a block
    float *s, *o, *m, *l;
  };
  struct Task {
    int64_t batch, h0, heads;
    float *q, *s, *o, *m, *l;
  };
  int64_t o_floats() const { return strips_ * group_ * kTileN; }
  // Keys or values of a block and a head.
  ThinRows<T> rows_of(const TensorRef& x, const Task& t, int64_t h, int64_t k0) const {
    return {x.as<const T>() + c_.key_offset(x, t.batch, k0, t.h0 + h), x.stride[1],
            std::min<int64_t>(kKeyBlock, keys_[t.batch].n_k - k0)};
  }
  Head head_of(const Task& t, int64_t h, int64_t k0) const {
    return {rows_of(*c_.v, t, h, k0), t.s + h * group_ * kKeyBlock, t.o + h * o_floats(),
            t.m + h * group_, t.l + h * group_ * 16};
  }
  // How many rows of a block are fetched ahead, of all heads, and hence how many of a head may go
  // in turn.
  int64_t rows_ahead(const ThinRows<T>& x) const {
    const int64_t row_bytes = x.stride * static_cast<int64_t>(sizeof(T));
    return std::clamp<int64_t>(Scores::kAheadBytes / std::max<int64_t>(row_bytes, 1) / 16, 1, 4) *
           16;
  }
  // The lines that a loop over a block's rows of `heads` heads fetches, from the first one's on: as
  // far as there are any, past the span, too, since most likely the next one is this thread's.
  Ahead ahead_of(const TensorRef& of, const Task& t, int64_t width, int64_t k0) const {
    const ThinRows<T> x = rows_of(of, t, 0, k0);
    const auto size = static_cast<int64_t>(sizeof(T));
    const int64_t left = std::max<int64_t>(keys_[t.batch].seen.hi - k0 - kKeyBlock, 0);
    const int64_t ahead = std::min(left, rows_ahead(x));
    const T* at = x.at + ahead * x.stride;
    if (c_.page == 0 || left == 0) return {at, t.heads * width * size, x.stride * size};
    // The next block may lie anywhere.
    const T* next = rows_of(of, t, 0, k0 + kKeyBlock).at;
    if (ahead >= kKeyBlock) return {next, t.heads * width * size, x.stride * size};
    return {at, t.heads * width * size, x.stride * size, kKeyBlock - ahead, next};
  }

  void run_span(int64_t batch, int64_t span, int64_t h0, int64_t heads, float* scratch) const {
    Scratch space(scratch + 16);
    Task t{.batch = batch, .h0 = h0, .heads = heads};
    const int64_t rows = heads * group_;
    t.q = space.take(scores_.q_floats(heads)), t.s = space.take(rows * kKeyBlock);
    t.o = space.take(heads * o_floats()), t.m = space.take(rows), t.l = space.take(rows * 16);
    if (const int64_t head = batch * c_.n_kv_heads + h0; std::exchange(held(scratch), head) != head)
      scores_.pack(c_, batch, h0 * group_, heads, t.q);
    std::fill_n(t.o, heads * o_floats(), 0.0f);
    std::fill_n(t.m, rows, -kInf), std::fill_n(t.l, rows * 16, 0.0f);
    const DecodeKeys& seen_keys = keys_[batch];
    const int64_t first_key = (seen_keys.first_span + span) * kKeySpan;
    const int64_t from = std::max(seen_keys.seen.lo, first_key);
    const int64_t to = std::min(seen_keys.seen.hi, first_key + kKeySpan);
    int64_t executed = 0, pairs = 0;  // operations; of a row and a key that it sees
    typename Scores::Work work;
    for (int64_t k0 = from / kKeyBlock * kKeyBlock; k0 < to; k0 += kKeyBlock) {
      const Seen seen = seen_in_block({from, to}, k0);
      executed += run_block(t, work, k0, seen), pairs += rows * (seen.hi - seen.lo);
    }
    for (int64_t i = 0; i < rows; ++i) {
      float* at = part(batch, h0 * group_ + i, span);
      const float* o = t.o + i / group_ * o_floats() + i % group_ * kTileN;
      for (int64_t e = 0; e < strips_; ++e)
        std::copy_n(o + e * group_ * kTileN, kTileN, at + e * kTileN);
      at[strips_ * kTileN] = t.m[i] * c_.unit();
      at[strips_ * kTileN + 1] = reduce_add(load16(t.l + i * 16));
    }
    const int64_t per_pair = c_.score_flops() + 4;
    call_.counters->add(pairs * (per_pair + 2 * c_.d + 2 * c_.dv), executed + pairs * per_pair);
  }

  // One block of keys for all heads, then its values, many of a head in turn: queries and sums then
  // move least often. Returns operations executed.
  int64_t run_block(const Task& t, typename Scores::Work& work, int64_t k0,
                    const Seen& seen) const {
    const int64_t lo = seen.lo, hi = seen.hi, lo16 = lo / 16 * 16, hi16 = round_up(hi, 16);
    const ThinRows<T> first_keys = rows_of(*c_.k, t, 0, k0),
                      first_values = rows_of(*c_.v, t, 0, k0);
    const Ahead keys = ahead_of(*c_.k, t, c_.d, k0), values = ahead_of(*c_.v, t, c_.dv, k0);
    const Ahead nothing(first_keys.at, 0, 0);
    const int64_t n_keys = rows_ahead(first_keys), n_values = rows_ahead(first_values);
    for (int64_t j = lo16; j < hi16; j += n_keys)
      scores_.of_keys(work, first_keys, keys, t.q, t.heads, j, std::min(j + n_keys, hi16), t.s);
    for (int64_t j = lo; j < hi; j += n_values)
      for (int64_t h = 0; h < t.heads; ++h) {
        const Head x = head_of(t, h, k0);
        if (j == lo)
          for (int i = 0; i < group_; ++i) weigh(x, i, seen);
        const int64_t end = std::min(j + n_values, hi), next_strip = group_ * kTileN;
        by_rows(group_, [&](auto n, int i) {
          const Ahead& fetch = i == 0 ? values : nothing;
          const float* p = x.s + i * kKeyBlock;
          int64_t e = 0;
          if constexpr (kStripsAtOnce == 2)
            for (; (e + 2) * kTileN <= c_.dv; e += 2)
              thin_columns<T, n(), 2, true>(x.values, fetch, e * kTileN, 2 * kTileN, p, j, end,
                                            x.o + (e * group_ + i) * kTileN, next_strip);
          for (; e < strips_; ++e)
            thin_values<T, n()>(x.values, fetch, e * kTileN,
                                static_cast<int>(std::min<int64_t>(kTileN, c_.dv - e * kTileN)), p,
                                j, end, x.o + (e * group_ + i) * kTileN);
        });
      }
    const int64_t of_values = group_ * 2 * strips_ * kTileN * (hi - lo);
    return t.heads * (scores_.columns() * 2 * c_.d * (hi16 - lo16) + of_values);
  }

  // Scores become weights in place; m, l and o of row i follow.
  void weigh(const Head& x, int i, const Seen& seen) const {
    float *s = x.s + i * kKeyBlock, *m = x.m + i, *l_at = x.l + i * 16;
    BlockScores y;
#pragma GCC unroll unrolled(4)
    for (int g = 0; g < kKeyBlock / 16; ++g) y[g] = load16(s + 16 * g);
    if (seen.hi - seen.lo < kKeyBlock) hide(y, seen);
    const auto top = [&] { return reduce_max(max(max(y[0], y[1]), max(y[2], y[3]))); };
    if (*m == -kInf) *m = top();
    Row16 p[kKeyBlock / 16], l = load16(l_at);
    const auto weigh = [&] {
      const Row16 log2 = row16(log2_), shift = row16(*m == -kInf ? 0 : *m);
#pragma GCC unroll unrolled(4)
      for (int g = 0; g < kKeyBlock / 16; ++g) p[g] = exp2_weight((y[g] - shift) * log2);
      return p[0] + p[1] + p[2] + p[3];
    };
    Row16 sum = weigh();
    if (exceeds(sum, kMostWeight)) [[unlikely]] {
      const float old = std::exchange(*m, top());
      const Vf alpha = exp2_weight(set1((old - *m) * log2_));
      for (Vf& v : l.v) v = v * alpha;
      for (int64_t e = 0; e < strips_; ++e) {
        float* o = x.o + (e * group_ + i) * kTileN;
        for (int v = 0; v < kTileN; v += kLanes) store(o + v, load(o + v) * alpha);
      }
      sum = weigh();
    }
#pragma GCC unroll unrolled(4)
    for (int g = 0; g < kKeyBlock / 16; ++g) store16_n(s + 16 * g, p[g], 16);
    store16_n(l_at, l + sum, 16);
  }

  // Folds the spans of one head together, divides and stores.
  void finish(int64_t batch, int64_t head) const {
    const int64_t width = strips_ * kTileN;
    float sum[kMaxDecodeWidth + kTileN] __attribute__((aligned(64)));
    float top = -kInf, total = 0;
    std::fill_n(sum, width, 0.0f);
    for (int64_t span = 0; span < keys_[batch].spans; ++span) {
      const float* at = part(batch, head, span);
      const float m = at[width], next = top > m ? top : m, shift = next == -kInf ? 0 : next;
      float scale[2][kLanes];
      store(scale[0], exp(set1(top - shift))), store(scale[1], exp(set1(m - shift)));
      const Vf before = set1(scale[0][0]), now = set1(scale[1][0]);
      for (int64_t e = 0; e < width; e += kLanes)
        store(sum + e, fma(load(at + e), now, load(sum + e) * before));
      total = __builtin_fmaf(at[width + 1], scale[1][0], total * scale[0][0]);
      top = next;
    }
    if constexpr (kSplitsColumns<T, Ahead>)
      for (int64_t e = 0; e + kTileN <= c_.dv; e += kTileN) {
        float halves[kTileN];
        std::copy_n(sum + e, kTileN, halves);
        for (int i = 0; i < kTileN; ++i) sum[e + i] = halves[i / 2 + i % 2 * kLanes];
      }
    const TensorRef &o = call_.out[0], &lse = call_.out[1];
    const bool has_weight = !(total <= 0);  // NaN has
    float log_sum[kLanes];
    store(log_sum, log(set1(total)));
    lse.as<float>()[batch * lse.stride[0] + head * lse.stride[1]] =
        has_weight ? log_sum[0] + top : -kInf;
    store_row_of<T>(sum, kTileN, c_.dv, has_weight ? 1 / total : 0.0f, o,
                    offset4(o, batch, 0, head));
    const int64_t flops = keys_[batch].spans > 0 ? 3 + c_.dv : 0;
    call_.counters->add(flops, flops);
  }

  // Where registers are many, values go by pairs of strips.
  static constexpr int kStripsAtOnce = kLanes == 16 ? 2 : 1;
  const KernelCall& call_;
  const AttentionCall& c_;
  const DecodeWorkspace space_;
  const Scores scores_;
  const int group_;
  DecodeKeys* keys_;
  float log2_;  // exponents of 2 in a product
  int64_t strips_ = 0;
  float *parts_ = nullptr, *scratch_ = nullptr;
};
}  // namespace tegula::kernel::TEGULA_ISA_NS
