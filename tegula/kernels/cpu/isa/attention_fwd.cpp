// Attention's forward: query blocks against packed key blocks, online softmax.
// [FlashAttention-2, section 3.1; order "kb64" of common/attention.h]
#include <type_traits>
#include <utility>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/attention_pages.h"
#include "tegula/kernels/cpu/common/attention_tasks.h"
#include "tegula/kernels/cpu/common/pair_panels.h"
#include "tegula/kernels/cpu/common/workspace.h"
#include "tegula/kernels/cpu/isa/attention_rows.h"
#include "tegula/kernels/cpu/isa/attention_thin.h"
#include "tegula/kernels/cpu/isa/attention_whole.h"
#include "tegula/kernels/cpu/isa/far_lines.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
// A task is a block of kRowBlock query rows. Where that makes fewer than kTasksPerThread tasks for
// each thread, a task is a smaller block of kFewRows: every thread waits for the last task, and
// some cores are slower than others. A NaN behind a mask makes rows be computed again
// (run_carefully). That is always done in blocks of kFewRows, whatever the size of a task, so that
// the work counted does not depend on the number of threads.
constexpr int64_t kTasksPerThread = 16, kFewRows = kRowBlock / (28 % kTileM == 0 ? 3 : 2);
static_assert(kRowBlock % kFewRows == 0 && kFewRows % kTileM == 0);
// A strip of queries that sees all keys of two neighbouring blocks scores both before it adds their
// values: its sums are then loaded and stored half as often.
constexpr int64_t kBlocksAtOnce = 2, kScores = kTileM * kKeyBlock;
// So many bytes of the keys and values that will be packed next are fetched ahead: what an L2
// holds.
constexpr int64_t kFetchedBytes = 512 << 10;

// T is the keys' and values' type; queries and results may be f32 instead.
template <class T>
class Flash {
  static constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));

 public:
  Flash(const KernelCall& call, const AttentionCall& c)
      : call_(call),
        c_(c),
        space_(c, false),
        products_({c.q, c.k}),
        o_(call.out[0]),
        lse_(call.out[1]) {
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
    // In one sequence no query sees what lies before the first one's keys: that is not packed.
    if (c.cu_q == nullptr && !c.has_runs() && c.n_q > 0)
      first_block_ = std::min(visible_keys(c, 0).lo / kKeyBlock, n_blocks_);
    n_blocks_ -= first_block_;
    o_width_ = round_up(c.dv, kMaxTileN);
    log2_ = c.unit() * kLog2E;
    is_plain_ = c.has_plain_scores() && c.dropout <= 0;
  }

  void run() {
    ThreadPool& pool = *call_.pool;
    const int64_t pairs = c_.batch * c_.n_kv_heads;
    const int n_threads = pool.n_threads();
    panels_ = static_cast<float*>(call_.workspace);
    parts_ = panels_ + space_.panel_floats(n_threads);
    scratch_ = parts_ + space_.part_floats(n_threads);
    auto* states = reinterpret_cast<int32_t*>(scratch_ + space_.thread_floats * n_threads);
    // Nobody else reads these keys: they are packed when they are needed.
    const int64_t row_blocks = ceil_div(n_rows_, kRowBlock);
    local_keys_ = row_blocks == 1 || n_blocks_ == 0;
    is_thin_ = n_rows_ <= kThinQueries && c_.k->stride[3] == 1 && c_.v->stride[3] == 1;
    const bool split = space_.splits(pairs * row_blocks, n_threads);
    const bool is_few =
        !split && !local_keys_ && n_threads > 1 && pairs * row_blocks < kTasksPerThread * n_threads;
    const RowTasks::Shape shape{n_rows_, c_.n_k, is_few ? kFewRows : kRowBlock, c_.is_causal,
                                n_threads};
    // One round takes all pairs, unless the workspace has room for the packed keys of fewer pairs
    // than the threads could be working on at once.
    const int64_t slots = local_keys_ ? 0 : space_.slots(n_threads);
    const bool is_enough = slots >= std::min(pairs, PairPanels::most_slots(n_threads));
    const int64_t most = std::max<int64_t>(1, local_keys_ || is_enough ? pairs : slots);
    const int64_t at_once = ceil_div(pairs, std::max<int64_t>(1, ceil_div(pairs, most)));
    for (int64_t first = 0; first < pairs; first += at_once) {
      const int64_t n = std::min(at_once, pairs - first);
      const RowTasks tasks(shape, first, n, std::min(at_once, pairs - first - n));
      const PairPanels packed(states, local_keys_ ? 0 : n, n_blocks_, slots, n_threads);
      const Round round{tasks, packed};
      if (split) {
        run_split(round);
      } else {
        pool.parallel_for(tasks.count(), [&](int64_t i, int thread) {
          run_all(begin(round, i, thread), thread, after(round, i));
          if (!local_keys_) packed.leave(i / tasks.of_pair(), tasks.of_pair());
        });
      }
    }
  }

 private:
  // Transposed keys in strips [d][kTileN], then values in strips [64][kTileN].
  void pack_keys(int64_t pair, int64_t block, float* dst) const {
    const int64_t b = pair / c_.n_kv_heads, h = pair % c_.n_kv_heads, k0 = block * kKeyBlock;
    const int64_t n = std::min<int64_t>(kKeyBlock, c_.n_k - k0);
    const T* k = c_.k->as<const T>() + c_.key_offset(*c_.k, b, k0, h);
    for (int64_t j = 0; j < n; j += kTileN) {
      for (int64_t i = j + kTileN; i < std::min(c_.n_k - k0, j + 2 * kTileN); ++i)
        for (int64_t e = 0; e < c_.d; e += kLine) __builtin_prefetch(k + i * c_.k->stride[1] + e);
      products_.pack(k, keys_of_k_, d_of_k_, kB, j,
                     static_cast<int>(std::min<int64_t>(kTileN, n - j)), c_.d,
                     dst + j * products_.steps(c_.d), kTileN);
    }
    const T* v = c_.v->as<const T>() + c_.key_offset(*c_.v, b, k0, h);
    for (int64_t e = 0; e < c_.dv; e += kTileN)
      pack_panel(v, d_of_v_, keys_of_v_, kB, e,
                 static_cast<int>(std::min<int64_t>(kTileN, c_.dv - e)), 0, n,
                 values(dst) + e * kKeyBlock, kTileN);
  }
  const float* values(const float* block) const { return block + kKeyBlock * c_.d; }
  float* values(float* block) const { return block + kKeyBlock * c_.d; }

  struct Round {
    const RowTasks& tasks;
    const PairPanels& packed;
  };
  // Rows of a pair, and its packed keys.
  struct Task : RowBlock {
    const float* panels = nullptr;
  };
  // With the keys packed.
  Task begin(const Round& round, int64_t i, int thread) const {
    Task t{round.tasks.block(i)};
    if (local_keys_) return t;
    const int64_t block_floats = key_block_floats(c_);
    const auto panels = [&](int64_t slot) { return panels_ + slot * n_blocks_ * block_floats; };
    const int64_t pair = i / round.tasks.of_pair();
    t.panels = panels(round.packed.enter(pair, thread, [&](int64_t block, int64_t slot) {
      pack_keys(t.pair, first_block_ + block, panels(slot) + block * block_floats);
    }));
    return t;
  }
  // The rows that are fetched beside task i: the queries of the next one, and keys that are packed
  // next, unless somebody does so already.
  RowTasks::Next after(const Round& round, int64_t i) const {
    if (local_keys_) return {};
    const int64_t key_bytes = (c_.d + c_.dv) * static_cast<int64_t>(sizeof(T));
    RowTasks::Next next = round.tasks.after(i, kFetchedBytes / key_bytes);
    const int64_t pair = next.key_pair - round.tasks.first_pair();
    if (next.keys > 0 && pair < round.tasks.pairs() && round.packed.has_begun(pair)) next.keys = 0;
    return next;
  }

  struct Block {
    int64_t pair;
    int rows;
    bool careful;
    float *q, *s, *o, *keys;
    QueryRow row[kRowBlock];
    StripKeys strip[kStripsOfRows];
    // The span's m in units of unit() (`shift`: 0 where it is -inf), sums of weights by lane.
    float m[kRowBlock], shift[kRowBlock];
    alignas(64) float l[kRowBlock][16];
    int64_t executed = 0, pairs = 0;  // operations; of a row and a key that it sees
    FarLines far;
    int64_t tile_lines = 0;  // of them, for a tile of products
  };
  // Spans folded together, a row each: sums of weighted values, m, sums of weights.
  struct Totals {
    float *o, *m, *l;
  };
  Totals totals_at(float* at, int rows) const {
    return {at, at + rows * o_width_, at + rows * (o_width_ + 1)};
  }

  int64_t n_strips_v() const { return ceil_div(c_.dv, kTileN); }
  float* o_tile(const Block& x, int64_t strip, int64_t e_strip) const {
    return x.o + (strip * n_strips_v() + e_strip) * kTileM * kTileN;
  }
  static int strip_rows(const Block& x, int64_t strip) {
    return static_cast<int>(std::min<int64_t>(kTileM, x.rows - strip * kTileM));
  }
  float* q_strip(const Block& x, int64_t strip) const {
    return x.q + strip * (kTileM * c_.d + kPanelSlack);
  }
  void find_rows(const Task& t, QueryRow (&row)[kRowBlock]) const {
    const int64_t batch = t.pair / c_.n_kv_heads, first = t.pair % c_.n_kv_heads * c_.group;
    int64_t query = t.r0 / c_.group, head = t.r0 % c_.group;
    for (int i = 0; i < t.rows; ++i) {
      row[i] = {batch, first + head, query,
                i > 0 && head > 0 ? row[i - 1].keys : visible_keys(c_, query)};
      if (++head == c_.group) head = 0, ++query;
    }
  }

  // A round whose spans of keys are tasks of their own, folded together then.
  void run_split(const Round& round) const {
    const int64_t spans = ceil_div(c_.n_k, kKeySpan);
    const auto part = [&](int64_t i, int64_t span) {
      const int64_t before = round.tasks.first_pair() * round.tasks.of_pair();
      return parts_ + ((before + i) * spans + span) * space_.row_floats();
    };
    call_.pool->parallel_for(round.tasks.count() * spans, [&](int64_t i, int thread) {
      const int64_t span = i % spans;
      run_block(begin(round, i / spans, thread), span, span + 1, thread, part(i / spans, span));
    });
    call_.pool->parallel_for(round.tasks.count(), [&](int64_t i, int thread) {
      const Task t = begin(round, i, thread);
      const int rows = t.rows;
      Totals sum = totals_at(part(i, 0), rows);
      for (int64_t span = 1; span < spans; ++span) {
        const Totals more = totals_at(part(i, span), rows);
        fold(
            sum, rows, more.m, more.l, [&](int r) { return more.o + r * o_width_; }, kTileN);
      }
      finish_all(t, sum, thread);
    });
  }
  void run_all(const Task& t, int thread, const RowTasks::Next& next) const {
    const int64_t spans = ceil_div(c_.n_k, kKeySpan);
    finish_all(t, run_block(t, 0, spans, thread, nullptr, false, next), thread);
  }
  // Some rows at a time. Those that must be computed again come last, since that overwrites the
  // thread's sums.
  void finish_all(const Task& t, const Totals& sum, int thread) const {
    const auto part = [&](int r) {
      return Task{{t.pair, t.r0 + r, std::min(static_cast<int>(kFewRows), t.rows - r)}, t.panels};
    };
    uint32_t again = 0;
    for (int i = 0, r = 0; r < t.rows; ++i, r += kFewRows)
      if (!finish(part(r), {sum.o + r * o_width_, sum.m + r, sum.l + r})) again |= 1u << i;
    for (int i = 0; again >> i != 0; ++i)
      if ((again >> i & 1) != 0) run_carefully(part(i * static_cast<int>(kFewRows)), thread);
  }
  // Some row came out as NaN. The reason may be a NaN behind the mask, since 0·NaN is NaN: computed
  // again without touching what is masked.
  void run_carefully(const Task& t, int thread) const {
    finish(t, run_block(t, 0, ceil_div(c_.n_k, kKeySpan), thread, nullptr, true), true);
  }

  // The first of keys [from, to) that some row sees, and the last's end.
  struct Keys {
    int64_t lo, hi;
  };
  static Keys keys_between(const Block& x, int64_t from, int64_t to) {
    Keys all{to, from};
    for (int i = 0; i < x.rows; ++i) {
      const int64_t lo = std::max(x.row[i].keys.lo, from), hi = std::min(x.row[i].keys.hi, to);
      if (lo < hi) all = {std::min(all.lo, lo), std::max(all.hi, hi)};
    }
    return all;
  }

  // Spans [first, last) of keys; the totals go to `part`, or where nullptr, to the thread's
  // scratch.
  Totals run_block(const Task& t, int64_t first, int64_t last, int thread, float* part = nullptr,
                   bool careful = false, const RowTasks::Next& next = {}) const {
    Block x;
    x.pair = t.pair, x.rows = t.rows, x.careful = careful;
    Scratch space(scratch_ + thread * space_.thread_floats);
    const int64_t strips = ceil_div(x.rows, kTileM);
    const int64_t o_floats = strips * kTileM * n_strips_v() * kTileN;
    x.q = space.take(x.rows * c_.d + strips * kPanelSlack);
    x.s = space.take(kBlocksAtOnce * kScores);
    x.o = space.take(o_floats);
    x.keys = local_keys_ ? space.take(key_block_floats(c_)) : nullptr;
    Totals sum = totals_at(part != nullptr ? part : space.take(0), x.rows);
    std::fill_n(sum.o, x.rows * o_width_, 0.0f);
    std::fill_n(sum.m, x.rows, -kInf), std::fill_n(sum.l, x.rows, 0.0f);
    const int64_t from = first * kKeySpan, to = std::min(last * kKeySpan, c_.n_k);
    find_rows(t, x.row);
    if (first == 0 && c_.o_before != nullptr) go_on(x.row, x.rows, sum);
    const auto [lo, hi] = keys_between(x, from, to);
    if (lo >= hi) return sum;
    for (int64_t s = 0; s < strips; ++s)
      x.strip[s] = strip_keys(x.row + s * kTileM, strip_rows(x, s));
    const int64_t first_head = t.pair % c_.n_kv_heads * c_.group;
    with_queries<T>(c_, offset4(*c_.q, x.row[0].batch, 0, first_head), [&](const auto* q) {
      if (is_thin_)
        return by_rows(x.rows, [&](auto n, int i) {
          pack_panel(q, rows_, d_of_q_, kA, t.r0 + i, n(), 0, c_.d, x.q + i * c_.d, n());
        });
      for (int64_t s = 0; s < strips; ++s)
        products_.pack(q, rows_, d_of_q_, kA, t.r0 + s * kTileM, strip_rows(x, s), c_.d,
                       q_strip(x, s), strip_rows(x, s));
    });
    if (!careful) add_far(x, t, next);
    x.tile_lines = ceil_div(
        x.far.lines(), strips * ceil_div(hi - lo, kKeyBlock) * (kKeyBlock / kTileN + n_strips_v()));
    for (int64_t span = lo / kKeySpan; span * kKeySpan < hi; ++span) {
      std::fill_n(x.o, o_floats, 0.0f);
      std::fill_n(x.m, x.rows, -kInf), std::fill_n(x.shift, x.rows, 0.0f);
      std::fill_n(x.l[0], x.rows * 16, 0.0f);
      // Takes the keys of this span alone, lest what lies between two sequences be done.
      const auto [at, end] = keys_between(x, span * kKeySpan, (span + 1) * kKeySpan);
      int64_t k0 = at / kKeyBlock * kKeyBlock;
      for (int64_t n; k0 < end; k0 += n * kKeyBlock) {
        n = local_keys_ ? 1 : std::min(kBlocksAtOnce, ceil_div(end - k0, kKeyBlock));
        run_keys(x, t, k0, n);
      }
      float l[kRowBlock];
      for (int i = 0; i < x.rows; ++i) x.m[i] *= c_.unit(), l[i] = reduce_add(load16(x.l[i]));
      const auto o = [&](int i) { return o_tile(x, i / kTileM, 0) + i % kTileM * kTileN; };
      fold(sum, x.rows, x.m, l, o, kTileM * kTileN);
    }
    const int64_t per_pair = c_.score_flops() + 4 + (c_.dropout > 0 ? 1 : 0);
    const int64_t math = x.pairs * (per_pair + 2 * c_.d + 2 * c_.dv);
    call_.counters->add(careful ? 0 : math, x.executed + x.pairs * per_pair);
    return sum;
  }

  // The rows of `sum` take a span's m, l and o; row i's o lies at o_of(i), its strips of kTileN
  // `strip_stride` apart.
  template <class F>
  void fold(Totals& sum, int rows, const float* m, const float* l, const F& o_of,
            int64_t strip_stride) const {
    float scale[2][round_up(kRowBlock, kLanes)];
    for (int i = 0; i < rows; i += kLanes) {
      const int n = rows - i;
      const Vf old = load_n(sum.m + i, n), now = load_n(m + i, n);
      const Vf top = select(gt(old, now), old, now);
      const Vf shift = select(eq(top, set1(-kInf)), zero(), top);
      const Vf a = exp(old - shift), b = exp(now - shift);
      store(scale[0] + i, a), store(scale[1] + i, b), store_n(sum.m + i, top, n);
      store_n(sum.l + i, fma(load_n(l + i, n), b, load_n(sum.l + i, n) * a), n);
    }
    for (int i = 0; i < rows; ++i) {
      const Vf before = set1(scale[0][i]), now = set1(scale[1][i]);
      const float* o = o_of(i);
      float* to = sum.o + i * o_width_;
      for (int64_t e = 0; e < c_.dv; e += kTileN, o += strip_stride)
        for (int v = 0; v < kTileN; v += kLanes)
          store(to + e + v, fma(load(o + v), now, load(to + e + v) * before));
    }
  }

  // From what the parts of the keys before gave.
  void go_on(const QueryRow* row, int rows, const Totals& sum) const {
    for (int i = 0; i < rows; ++i) {
      sum.m[i] = lse_before(c_, row[i].batch, row[i].head, row[i].query);
      if (sum.m[i] == -kInf) continue;
      sum.l[i] = 1;
      copy_o_before(c_, row[i].batch, row[i].query, row[i].head, 0, c_.dv, sum.o + i * o_width_);
    }
  }

  // Adds what is fetched beside the work: first lines that finish() will write, then the next
  // task's queries, then keys and values that are packed next.
  void add_far(Block& x, const Task& t, const RowTasks::Next& next) const {
    const auto add_rows = [&](const TensorRef& of, const RowBlock& rows, bool is_written) {
      const int64_t b = rows.pair / c_.n_kv_heads, head = rows.pair % c_.n_kv_heads * c_.group;
      x.far.add(of, b, rows.r0 / c_.group, head, rows.rows, is_written, c_.group,
                rows.r0 % c_.group);
    };
    if (o_.dtype == c_.q->dtype) add_rows(o_, t, true);
    if (next.is_there) add_rows(*c_.q, next.block, false);
    if (c_.page > 0) return;  // keys are no run of rows
    for (const TensorRef* of : {c_.k, c_.v})
      x.far.add(*of, next.key_pair / c_.n_kv_heads, next.first_key, next.key_pair % c_.n_kv_heads,
                next.keys, false);
  }

  // All rows against n key blocks.
  void run_keys(Block& x, const Task& t, int64_t k0, int64_t n) const {
    if (is_thin_) return run_thin(x, k0);
    const int64_t block_floats = key_block_floats(c_);
    const float* keys = t.panels + (k0 / kKeyBlock - first_block_) * block_floats;
    if (local_keys_) pack_keys(t.pair, k0 / kKeyBlock, x.keys), keys = x.keys;
    for (int64_t s = 0; s * kTileM < x.rows; ++s)
      for (int64_t b = 0; b < n;) {
        const auto is_whole = [&](int64_t block) {
          return x.strip[s].in_block(k0 + block * kKeyBlock).is_whole;
        };
        int64_t whole = 0;
        if (is_plain_ && strip_rows(x, s) == kTileM)
          while (b + whole < n && is_whole(b + whole)) ++whole;
        if (whole > 0) {
          run_whole(x, s, keys + b * block_floats, whole);
        } else {
          run_strip(x, s, k0 + b * kKeyBlock, keys + b * block_floats);
        }
        b += std::max<int64_t>(whole, 1);
      }
  }

  // One whole strip against n blocks of 64 keys that all its rows see.
  void run_whole(Block& x, int64_t strip, const float* keys, int64_t n) const {
    const int64_t r = strip * kTileM, block_floats = key_block_floats(c_);
    int64_t first = 0;  // whose values are to be added
    for (int64_t b = 0; b < n; ++b) {
      const float* block = keys + b * block_floats;
      float* s = x.s + b * kScores;
      for (int64_t j = 0; j < kKeyBlock; j += kTileN) {
        x.far.fetch(x.tile_lines);
        products_.multiply_strips(q_strip(x, strip), block + j * products_.steps(c_.d), c_.d,
                                  s + j);
      }
      if (any(eq(load_n(x.m + r, kTileM), set1(-kInf)))) {
        for (int i = 0; i < kTileM; ++i)
          if (x.m[r + i] == -kInf) set_m(x, r + i, top_of(s + i * kKeyBlock));
      }
      for (int i = 0; (i = weigh_whole(s, x.shift + r, x.l + r, log2_, i)) < kTileM;) {
        add_values(x, strip, keys, first, b);
        first = b;
        raise_whole(x, strip, i, block, s);
      }
    }
    add_values(x, strip, keys, first, n);
    x.executed += 2 * n * kTileM * kKeyBlock * (c_.d + round_up(c_.dv, kLanes));
    x.pairs += n * kTileM * kKeyBlock;
  }
  // Adds the values of blocks [first, last) behind `keys`.
  void add_values(Block& x, int64_t strip, const float* keys, int64_t first, int64_t last) const {
    const int64_t next = key_block_floats(c_);
    for (int64_t e = 0; e < n_strips_v(); ++e) {
      x.far.fetch((last - first) * x.tile_lines);
      float* o = o_tile(x, strip, e);
      const float* v = values(keys) + e * kKeyBlock * kTileN;
      const int cols = static_cast<int>(std::min<int64_t>(kTileN, c_.dv - e * kTileN));
      if (cols == kTileN) {
        if (first < last)
          add_blocks(x.s + first * kScores, v + first * next, last - first, next, o);
        continue;
      }
      for (int64_t b = first; b < last; ++b)
        accumulate_tile(
            {x.s + b * kScores, kKeyBlock, Lies::kBlockRows, v + b * next, kKeyBlock, kTileM, cols},
            o);
    }
  }

  static void set_m(Block& x, int64_t r, float m) { x.m[r] = m, x.shift[r] = m == -kInf ? 0 : m; }
  // m, as far as a row's 64 scores say it.
  float top_of(const float* s) const {
    Row16 top = load16(s);
    for (int g = 16; g < kKeyBlock; g += 16) top = max(top, load16(s + g));
    return reduce_max(top);
  }
  // Row i's weights were too large, and its scores are gone.
  __attribute__((noinline)) void raise_whole(Block& x, int64_t strip, int i, const float* keys,
                                             float* s) const {
    alignas(64) float again[kScores];
    products_.multiply_whole(q_strip(x, strip), keys, c_.d, again);
    std::copy_n(again + i * kKeyBlock, kKeyBlock, s + i * kKeyBlock);
    raise(x, strip, i, top_of(s + i * kKeyBlock));
    x.executed += 2 * kTileM * kKeyBlock * c_.d;
  }

  // A few rows: keys and values from where they lie.
  void run_thin(Block& x, int64_t k0) const {
    const Seen seen = x.strip[0].in_block(k0);
    const int64_t lo = seen.lo, hi = seen.hi;
    if (lo >= hi) return;
    const int64_t b = x.row[0].batch, h = x.pair % c_.n_kv_heads;
    const auto rows_at = [&](const TensorRef& t, int64_t k) {
      const int64_t n = std::min<int64_t>(kKeyBlock, c_.n_k - k);
      return ThinRows<T>{t.as<const T>() + c_.key_offset(t, b, k, h), t.stride[1], n};
    };
    const ThinRows<T> keys = rows_at(*c_.k, k0), values = rows_at(*c_.v, k0);
    const NextRows<T> of_values{values};
    NextRows<T> next{{keys.at, 0, 0}};  // nothing
    if (k0 + 2 * kKeyBlock <= c_.n_k) next.rows = rows_at(*c_.k, k0 + kKeyBlock);
    const int64_t lo16 = lo / 16 * 16, hi16 = round_up(hi, 16);
    by_rows(x.rows, [&](auto n, int i) {
      thin_scores<T, n()>(keys, of_values, c_.d, x.q + i * c_.d, lo16, hi16, x.s + i * kKeyBlock,
                          kKeyBlock);
    });
    softmax_strip(x, 0, k0, seen);
    for (int64_t e = 0; e < c_.dv; e += kTileN) {
      const int cols = static_cast<int>(std::min<int64_t>(kTileN, c_.dv - e));
      float* acc = o_tile(x, 0, e / kTileN);
      by_rows(x.rows, [&](auto n, int i) {
        if (!x.careful)
          return thin_values<T, n()>(values, next, e, cols, x.s + i * kKeyBlock, lo, hi,
                                     acc + i * kTileN);
        for (int r = i; r < i + n(); ++r) {
          const Seen own = seen_in_block(x.row[r].keys, k0);
          thin_values<T, 1>(values, next, e, cols, x.s + r * kKeyBlock, own.lo, own.hi,
                            acc + r * kTileN);
        }
      });
    }
    x.executed += x.rows * (2 * c_.d * (hi16 - lo16) + 2 * n_strips_v() * kTileN * (hi - lo));
    x.pairs += pairs_in_block(x.row, x.rows, k0);
  }
  // One strip of rows against one key block.
  void run_strip(Block& x, int64_t strip, int64_t k0, const float* keys) const {
    const int rows = strip_rows(x, strip);
    const Seen seen = x.strip[strip].in_block(k0);
    const int64_t lo = seen.lo, hi = seen.hi;
    if (lo >= hi) return;
    const int64_t n = std::min<int64_t>(kKeyBlock, c_.n_k - k0);
    for (int64_t j = lo / kTileN * kTileN; j < hi; j += kTileN) {
      x.far.fetch(x.tile_lines);
      const int cols = columns_of_tile(n - j, hi - j);
      products_.multiply_columns(q_strip(x, strip), keys + j * products_.steps(c_.d), c_.d, rows,
                                 cols, x.s + j);
      x.executed += 2 * c_.d * rows * round_up(cols, kLanes);
    }
    softmax_strip(x, strip, k0, seen, weigh_edge(x, strip, k0, hi));
    // All rows over the same keys, or (carefully) each over its own.
    for (int i = 0; i < rows; i += x.careful ? 1 : rows) {
      const Seen at = x.careful ? seen_in_block(x.row[strip * kTileM + i].keys, k0) : seen;
      const int n_rows = x.careful ? 1 : rows;
      const int64_t n_keys = at.hi - at.lo;
      for (int64_t e = 0; e < n_strips_v(); ++e) {
        x.far.fetch(x.tile_lines);
        const float* v = values(keys) + (e * kKeyBlock + at.lo) * kTileN;
        const int cols = static_cast<int>(std::min<int64_t>(kTileN, c_.dv - e * kTileN));
        add_columns(x.s + i * kKeyBlock + at.lo, v, n_keys, n_rows, cols,
                    o_tile(x, strip, e) + i * kTileN);
        x.executed += 2 * n_keys * n_rows * round_up(cols, kLanes);
      }
    }
    x.pairs += pairs_in_block(x.row + strip * kTileM, rows, k0);
  }

  // Weighs a strip that sees part of a block, if no row begins anew: each sees the block's first
  // keys then, as on the causal mask's edge. Returns how many rows it did.
  int weigh_edge(Block& x, int64_t strip, int64_t k0, int64_t hi) const {
    if constexpr (Row16::kRegs == 1) {
      const int64_t r = strip * kTileM;
      if (!is_plain_ || strip_rows(x, strip) < kTileM ||
          any(eq(load_n(x.m + r, kTileM), set1(-kInf))))
        return 0;
      const auto weigh = [&](auto groups) {
        return weigh_edge_rows<groups()>(x.s, x.shift + r, x.l + r, log2_, x.row + r, k0);
      };
      switch (ceil_div(hi, 16)) {
        case 1:
          return weigh(std::integral_constant<int, 1>());
        case 2:
          return weigh(std::integral_constant<int, 2>());
        case 3:
          return weigh(std::integral_constant<int, 3>());
        default:
          return weigh(std::integral_constant<int, 4>());
      }
    }
    return 0;
  }
  // From row `first` on, scores become weights in place, all 64 keys at once: those that are not
  // seen, or not there (stale scores), weigh nothing. m, l and o follow.
  void softmax_strip(Block& x, int64_t strip, int64_t k0, const Seen& seen, int first = 0) const {
    is_plain_ ? softmax<true>(x, strip, k0, seen, first)
              : softmax<false>(x, strip, k0, seen, first);
  }
  template <bool kPlain>
  void softmax(Block& x, int64_t strip, int64_t k0, const Seen& seen, int first) const {
    constexpr int kGroups = kKeyBlock / 16;
    const int rows = strip_rows(x, strip);
    const Row16 log2 = row16(log2_);
    float* s = x.s + first * kKeyBlock;
    // Groups of keys that no row of the strip sees.
    const auto sees = [&](int g) { return 16 * g < seen.hi && 16 * g + 16 > seen.lo; };
    for (int i = first; i < rows; ++i, s += kKeyBlock) {
      const int64_t r = strip * kTileM + i;
      const QueryRow& row = x.row[r];
      Row16 y[kGroups];
#pragma GCC unroll unrolled(4)
      for (int g = 0; g < kGroups; ++g) {
        y[g] = load16(s + 16 * g);
        if constexpr (!kPlain) make_score(row, k0 + 16 * g, y[g]);
      }
      if (!seen.is_whole) hide(y, seen_in_block(row.keys, k0));
      const auto top = [&] { return reduce_max(max(max(y[0], y[1]), max(y[2], y[3]))); };
      if (x.m[r] == -kInf) set_m(x, r, top());
      Row16 p[kGroups];
      const auto weigh = [&] {
        const Row16 shift = row16(x.shift[r]);
#pragma GCC unroll unrolled(4)
        for (int g = 0; g < kGroups; ++g)
          p[g] = sees(g) ? exp2_weight((y[g] - shift) * log2) : row16(0);
        return p[0] + p[1] + p[2] + p[3];
      };
      Row16 sum = weigh();
      if (exceeds(sum, kMostWeight)) [[unlikely]]
        raise(x, strip, i, top()), sum = weigh();
      store16_n(x.l[r], load16(x.l[r]) + sum, 16);
      float factor[kKeyBlock];
      if (!kPlain && c_.dropout > 0) dropout_factors(c_, row, k0, kKeyBlock, factor);
#pragma GCC unroll unrolled(4)
      for (int g = 0; g < kGroups; ++g) {
        if (!kPlain && c_.dropout > 0) p[g] = p[g] * load16(factor + 16 * g);
        store16_n(s + 16 * g, p[g], 16);
      }
    }
  }
  // From products of 16 keys, unless those will do.
  void make_score(const QueryRow& row, int64_t key, Row16& y) const {
    if (c_.has_plain_scores()) return;
    y = y * row16(c_.scale);
    if (c_.has_extras()) add_extras(c_, row, key, c_.n_k - key, y, nullptr);
  }
  // Row i's scores grew far beyond m: m moves, and l and o with it.
  __attribute__((noinline)) void raise(Block& x, int64_t strip, int i, float m) const {
    const int64_t r = strip * kTileM + i;
    const Vf alpha = exp2_weight(set1((x.m[r] - m) * log2_));
    set_m(x, r, m);
    for (int lane = 0; lane < 16; lane += kLanes) store(x.l[r] + lane, load(x.l[r] + lane) * alpha);
    for (int64_t e = 0; e < n_strips_v(); ++e) {
      float* o = o_tile(x, strip, e) + i * kTileN;
      for (int v = 0; v < kTileN; v += kLanes) store(o + v, load(o + v) * alpha);
    }
  }

  // Divides and stores; false (and perhaps nothing stored) where a row is NaN that may not be.
  bool finish(const Task& t, const Totals& sum, bool careful = false) const {
    const int rows = t.rows;
    QueryRow row[kRowBlock];
    find_rows(t, row);
    float log_sum[round_up(kRowBlock, kLanes)];
    for (int i = 0; i < rows; i += kLanes) store(log_sum + i, log(load_n(sum.l + i, rows - i)));
    int64_t live = 0;
    for (int i = 0; i < rows; ++i) {
      const float* o = sum.o + i * o_width_;
      Vm bad = is_nan(zero());
      for (int64_t e = 0; e < c_.dv; e += kLanes) bad = bad | is_nan(load(o + e));
      if (any(bad) && !careful) return false;
      live += row[i].keys.count() > 0;
      const bool has_weight = !(sum.l[i] <= 0);  // NaN has
      lse_.as<float>()[row[i].batch * lse_.stride[0] + row[i].head * lse_.stride[1] +
                       row[i].query * lse_.stride[2]] = has_weight ? log_sum[i] + sum.m[i] : -kInf;
      store_row_of<T>(o, kTileN, c_.dv, has_weight ? 1 / sum.l[i] : 0.0f, o_,
                      offset4(o_, row[i].batch, row[i].query, row[i].head));
    }
    const int64_t flops = live * flops_of_row(c_);
    call_.counters->add(flops, flops);
    return true;
  }

  const KernelCall& call_;
  const AttentionCall& c_;
  const AttentionWorkspace space_;
  const ProductRows<T> products_;  // along d
  const TensorRef& o_;
  const TensorRef& lse_;
  float log2_;  // exponents of 2 in a product
  Loops rows_, d_of_q_, d_of_k_, keys_of_k_, keys_of_v_, d_of_v_;
  int64_t n_rows_ = 0, o_width_ = 0;
  int64_t first_block_ = 0, n_blocks_ = 0;  // of keys that are packed
  bool local_keys_ = false, is_thin_ = false, is_plain_ = false;
  float *panels_ = nullptr, *parts_ = nullptr, *scratch_ = nullptr;
};
}  // namespace

void attention_fwd(const KernelCall& call) {
  const auto c = parse_attention(*call.attrs, call.in, false, kTakesAll);
  TEGULA_CHECK(c.ok(), c.ok() ? "" : c.error().message);
  claim_workspace(call, AttentionWorkspace(*c, false).bytes(call.pool->n_threads()));
  for_each_sequence(call, *c, [](const KernelCall& of_call, const AttentionCall& of) {
    switch (of.k->dtype) {
      case DType::kF32:
        return Flash<float>(of_call, of).run();
      case DType::kBF16:
        return Flash<bf16>(of_call, of).run();
      case DType::kF16:
        return Flash<f16>(of_call, of).run();
      default:
        return;
    }
  });
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
