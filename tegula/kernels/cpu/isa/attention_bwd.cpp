// Attention's backward: per (batch, key head), blocks of queries against blocks of 64 keys; weights
// are computed again from the log-sum-exp. [FlashAttention-2, section 3.1.2]
// The gradient of a bias that was broadcast comes in a second sweep, per part of the bias and some
// keys: what that part was broadcast over is summed in one chain, whatever the number of threads.
#include <atomic>
#include <utility>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/grid_tasks.h"
#include "tegula/kernels/cpu/common/workspace.h"
#include "tegula/kernels/cpu/isa/attention_whole.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
template <class T>
class FlashBackward {
  static constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t kMostBlocks = 4;  // of keys, in a column of tasks

 public:
  FlashBackward(const KernelCall& call, const AttentionCall& c, bool careful = false)
      : call_(call),
        c_(c),
        space_(c, true),
        products_({c.q, c.k, c.v, c.o, c.d_o}),
        n_rows_(c.n_q * c.group),
        careful_(careful) {
    // Rows are (head of the group, query): the order in which dk and dv are summed.
    Factor head{.extent = c.group}, query{.extent = c.n_q};
    head.stride[kA] = c.q->stride[2], query.stride[kA] = c.q->stride[1];
    head.stride[kB] = c.d_o->stride[2], query.stride[kB] = c.d_o->stride[1];
    rows_.add(head), rows_.add(query);
    head.stride[kA] = c.o->stride[2], query.stride[kA] = c.o->stride[1];
    o_rows_.add(head), o_rows_.add(query);
    d_of_q_ = loop_over(c.d, c.q->stride[3]), d_of_k_ = loop_over(c.d, c.k->stride[3]);
    d_of_v_ = loop_over(c.dv, c.v->stride[3]), d_of_o_ = loop_over(c.dv, c.o->stride[3]);
    d_of_do_ = loop_over(c.dv, c.d_o->stride[3]);
    keys_of_k_ = loop_over(c.n_k, c.k->stride[1]), keys_of_v_ = loop_over(c.n_k, c.v->stride[1]);
    n_keys_ = round_up(c.n_k, kKeyBlock);
    d_strips_ = ceil_div(c.d, kTileN), v_strips_ = ceil_div(c.dv, kTileN);
  }

  // A gradient came out as NaN. Perhaps because a hidden value is one, and 0·NaN is: then all
  // again, touching nothing that is hidden.
  void run() {
    sum_all();
    if (saw_nan_) FlashBackward(call_, c_, true).sum_all();
  }

 private:
  void sum_all() {
    ThreadPool& pool = *call_.pool;
    const int64_t pairs = c_.batch * c_.n_kv_heads, threads = pool.n_threads();
    claim_workspace(call_, space_.bytes(pool.n_threads()));
    // A pair's blocks of rows and columns of keys form a grid: chains of dk and dv go down its
    // columns, those of dq along its rows.
    const int64_t rows = std::max<int64_t>(1, ceil_div(n_rows_, kRowBlock));
    const GridColumns columns(pairs, n_keys_ / kKeyBlock, threads, kMostBlocks);
    auto* states = static_cast<int32_t*>(call_.workspace) +
                   (space_.pair_floats + space_.thread_floats) * threads;
    GridTasks tasks(states, pairs, rows, columns.n);
    pool.parallel_for(threads, [&](int64_t place, int thread) {
      Pair w{};
      Block x;
      tasks.work(place, [&](const GridTasks::Task& t) {
        if (x.at != std::pair(t.grid, t.row)) begin_rows(t, thread, w, x);
        run_task(t, columns.wide * kKeyBlock, t.row == rows - 1, w, x);
      });
    });
    if (c_.bias == nullptr || c_.owns_bias()) return;
    const int64_t parts = c_.bias->shape[0] * c_.bias->shape[1];
    const int64_t blocks = ceil_div(n_keys_, kBiasKeys);
    call_.pool->parallel_for(parts * blocks, [&](int64_t i, int thread) {
      sum_bias(i / blocks, i % blocks * kBiasKeys, thread);
    });
  }

  struct Pair {
    int64_t batch, kv_head;
    int64_t first_key = 0;     // of k_t and v_t
    float *k_t, *v_t;          // strips of keys: [d][kTileN], [dv][kTileN]
    float *k, *dk, *dv;        // strips of columns: [key][kTileN]
    float *q_a, *do_a;         // strips of rows: [d][rows]
    float* o_t;                // a strip of rows: [dv][rows]
    float *q, *d_o;            // strips of columns: [row][kTileN], kRowBlock rows
    float* dq;                 // the same, of the pair
    float *p, *ds;             // [row][64]
    float* db = nullptr;       // the gradients of biased scores, where they are wanted
    float* more;               // what is left of the thread's scratch
    int64_t next = INT64_MAX;  // the thread's next pair, most likely
    // Counted: pairs of a row and a key that it sees, rows that see one, operations.
    int64_t pairs = 0, live = 0, executed = 0;
  };

  struct Block {
    std::pair<int64_t, int64_t> at{-1, -1};  // pair of the batch and the key heads, block of rows
    bool is_loaded = false;
    int64_t r0;
    int rows;
    QueryRow row[kRowBlock];
    StripKeys strip[kStripsOfRows];
    float lse[kRowBlock], delta[kRowBlock];
    int64_t lo, hi;  // keys that any row sees
  };

  static int rows_of(const Block& x, int64_t r) {
    return static_cast<int>(std::min<int64_t>(kTileM, x.rows - r));
  }

  // The memory of pair `pair`, in place `i`, and of a thread.
  Pair pair_at(int64_t pair, int64_t i) const {
    Pair w{};
    w.batch = pair / c_.n_kv_heads, w.kv_head = pair % c_.n_kv_heads;
    Scratch space(static_cast<float*>(call_.workspace) + i * space_.pair_floats);
    w.k_t = space.take(n_keys_ * c_.d), w.v_t = space.take(n_keys_ * c_.dv);
    w.k = space.take(d_strips_ * kTileN * n_keys_);
    w.dk = space.take(d_strips_ * kTileN * n_keys_);
    w.dv = space.take(v_strips_ * kTileN * n_keys_);
    w.dq = space.take(0);
    return w;
  }
  void take_scratch(Pair& w, int thread) const {
    Scratch space(static_cast<float*>(call_.workspace) +
                  space_.pair_floats * call_.pool->n_threads() + space_.thread_floats * thread);
    const int64_t strips = ceil_div(kRowBlock, kTileM);
    w.q_a = space.take(kRowBlock * c_.d + strips * kPanelSlack);
    w.do_a = space.take(kRowBlock * c_.dv + strips * kPanelSlack);
    w.o_t = space.take(kTileM * c_.dv + kPanelSlack);
    w.q = space.take(d_strips_ * kTileN * kRowBlock);
    w.d_o = space.take(v_strips_ * kTileN * kRowBlock);
    w.p = space.take(kRowBlock * kKeyBlock), w.ds = space.take(kRowBlock * kKeyBlock);
    w.more = space.take(0);
    if (c_.owns_bias()) w.db = w.more;
  }
  int64_t dq_floats() const { return d_strips_ * kTileN * kRowBlock; }

  void begin_rows(const GridTasks::Task& t, int thread, Pair& w, Block& x) const {
    w = pair_at(t.grid, t.place);
    take_scratch(w, thread);
    w.next = t.grid + call_.pool->n_threads();
    w.dq += t.row * dq_floats();
    find_rows(w, t.row * kRowBlock, n_rows_, x);
    if (t.column > 0) w.live = 0;  // counted with the first keys
    x.at = {t.grid, t.row}, x.is_loaded = false;
  }
  void run_task(const GridTasks::Task& t, int64_t wide, bool is_last, Pair& w, Block& x) const {
    const int64_t from = t.column * wide, to = std::min(from + wide, n_keys_);
    const int64_t n = std::min(to, c_.n_k) - from;
    if (t.row == 0) prepare_keys(w, from, n);
    run_rows(w, x, from, to);
    if (is_last) store_keys(w, from, n);
    count(w);
  }

  void count(Pair& w) const {
    if (careful_) return;  // the operations are not the result's
    const int64_t scores =
        c_.score_flops() + (c_.softcap > 0 ? 3 : 0) + 5 + (c_.dropout > 0 ? 2 : 0);
    const int64_t other = w.pairs * (scores + (c_.bias != nullptr ? 1 : 0)) +
                          w.live * (2 * c_.dv + (c_.dlse != nullptr ? 1 : 0));
    call_.counters->add(other + w.pairs * (6 * c_.d + 4 * c_.dv), other + w.executed);
    w.pairs = w.live = w.executed = 0;
  }

  // Panels of keys [first, first + n) of the pair, and their gradients at 0.
  void prepare_keys(const Pair& w, int64_t first, int64_t n) const {
    pack_keys(w, first, n);
    pack_columns(c_.k->as<const T>() + offset4(*c_.k, w.batch, 0, w.kv_head), d_of_k_, keys_of_k_,
                 kA, c_.d, first, n, n_keys_, w.k + first * kTileN);
    for (int64_t e = 0; e < d_strips_; ++e)
      std::fill_n(w.dk + (e * n_keys_ + first) * kTileN, n * kTileN, 0.0f);
    for (int64_t e = 0; e < v_strips_; ++e)
      std::fill_n(w.dv + (e * n_keys_ + first) * kTileN, n * kTileN, 0.0f);
  }
  void store_keys(const Pair& w, int64_t first, int64_t n) const {
    for (int64_t j = first; j < first + n; ++j) {
      store_out(w.dk + j * kTileN, n_keys_, c_.d, c_.scale, call_.out[1], w.batch, j, w.kv_head);
      store_out(w.dv + j * kTileN, n_keys_, c_.dv, 1, call_.out[2], w.batch, j, w.kv_head);
    }
  }

  void store_out(const float* acc, int64_t n, int64_t width, float scale, const TensorRef& out,
                 int64_t b, int64_t s, int64_t h) const {
    Vm bad = is_nan(zero());
    for (int64_t e = 0; e < width; e += kTileN)
      for (int v = 0; v < kTileN; v += kLanes) bad = bad | is_nan(load(acc + e * n + v));
    if (any(bad)) saw_nan_.store(true, std::memory_order_relaxed);
    store_row_of<T>(acc, n * kTileN, width, scale, out, offset4(out, b, s, h));
  }

  // Keys [first, first + n) transposed.
  void pack_keys(const Pair& w, int64_t first, int64_t n_keys) const {
    const T* k = c_.k->as<const T>() + offset4(*c_.k, w.batch, 0, w.kv_head);
    const T* v = c_.v->as<const T>() + offset4(*c_.v, w.batch, 0, w.kv_head);
    for (int64_t j = 0; j < n_keys; j += kTileN) {
      const int n = static_cast<int>(std::min<int64_t>(kTileN, n_keys - j));
      const int64_t at = first - w.first_key + j;
      products_.pack(k, keys_of_k_, d_of_k_, kA, first + j, n, c_.d,
                     w.k_t + at * products_.steps(c_.d), kTileN);
      products_.pack(v, keys_of_v_, d_of_v_, kA, first + j, n, c_.dv,
                     w.v_t + at * products_.steps(c_.dv), kTileN);
    }
  }
  // [strip of columns][row][kTileN] of rows [r0, r0 + n), strips n_panel rows apart.
  static void pack_columns(const T* src, const Loops& columns, const Loops& rows, Operand operand,
                           int64_t width, int64_t r0, int64_t n, int64_t n_panel, float* dst) {
    for (int64_t e = 0; e < width; e += kTileN)
      pack_panel(src, columns, rows, operand, e,
                 static_cast<int>(std::min<int64_t>(kTileN, width - e)), r0, n, dst + e * n_panel,
                 kTileN);
  }

  // A block of rows against keys [from, to), whole blocks of them.
  void run_rows(Pair& w, Block& x, int64_t from, int64_t to) const {
    if (from == 0) std::fill_n(w.dq, dq_floats(), 0.0f);
    const int64_t lo = std::max(from, x.lo / kKeyBlock * kKeyBlock), hi = std::min(to, x.hi);
    if (w.db != nullptr) clear_bias(x, from, std::min(lo, to));
    if (lo < hi && !x.is_loaded) {
      x.is_loaded = true;
      load_rows(w, x);
      const int64_t h = w.kv_head * c_.group;
      pack_columns(c_.q->as<const T>() + offset4(*c_.q, w.batch, 0, h), d_of_q_, rows_, kA, c_.d,
                   x.r0, x.rows, kRowBlock, w.q);
      pack_columns(c_.d_o->as<const T>() + offset4(*c_.d_o, w.batch, 0, h), d_of_do_, rows_, kB,
                   c_.dv, x.r0, x.rows, kRowBlock, w.d_o);
    }
    for (int64_t k0 = lo; k0 < hi; k0 += kKeyBlock) {
      int first = x.rows, last = 0;  // rows between the first and the last strip that see a key
      for (int r = 0; r < x.rows; r += kTileM) {
        if (from == 0 && k0 == lo) fetch_next(w, x.r0 + r, rows_of(x, r));
        const bool sees = run_strip(w, x, r, k0);
        if (w.db != nullptr) store_bias(w, x, r, k0, sees);
        if (!sees) continue;
        first = std::min(first, r), last = r + rows_of(x, r);
      }
      if (first < last) sum_keys(w, x, k0, first, last);
    }
    if (w.db != nullptr) clear_bias(x, std::max(lo, round_up(hi, kKeyBlock)), to);
    if (to < n_keys_) return;
    for (int r = 0; r < x.rows; ++r)
      store_out(w.dq + r * kTileN, kRowBlock, c_.d, c_.scale, call_.out[0], w.batch, x.row[r].query,
                x.row[r].head);
  }

  // Fetches rows of the next pair's operands and results into the second cache: they lie too far
  // apart for the processor to do it.
  void fetch_next(const Pair& w, int64_t r0, int n) const {
    if (w.next >= c_.batch * c_.n_kv_heads || c_.group != 1 || c_.n_q != c_.n_k) return;
    const int64_t b = w.next / c_.n_kv_heads, h = w.next % c_.n_kv_heads;
    const auto& out = call_.out;
    for (const TensorRef* t : {c_.q, c_.k, c_.v, c_.o, c_.d_o, &out[0], &out[1], &out[2]}) {
      if (t->dtype != c_.q->dtype) continue;
      const T* rows = t->as<const T>() + offset4(*t, b, r0, h);
      for (int i = 0; i < n; ++i, rows += t->stride[1])
        for (int64_t e = 0; e < t->shape[3]; e += kLine) __builtin_prefetch(rows + e, 0, 2);
    }
  }

  // A bias of every (batch, head, query) its own: its gradient is what the strip found.
  void store_bias(const Pair& w, const Block& x, int r, int64_t k0, bool sees) const {
    for (int i = r; i < r + rows_of(x, r); ++i)
      store_bias_row(x.row[i], k0, sees ? w.db + i * kKeyBlock : nullptr);
  }
  void clear_bias(const Block& x, int64_t from, int64_t to) const {
    for (int64_t k0 = from; k0 < to; k0 += kKeyBlock)
      for (int i = 0; i < x.rows; ++i) store_bias_row(x.row[i], k0, nullptr);
  }
  void store_bias_row(const QueryRow& row, int64_t k0, const float* db) const {
    const TensorRef& out = call_.out[3];
    const int64_t at = row.batch * out.stride[0] + row.head * out.stride[1] +
                       row.query * out.stride[2] + k0 * out.stride[3];
    const int64_t n = std::min<int64_t>(kKeyBlock, c_.n_k - k0);
    for (int64_t g = 0; g < n; g += 16)
      store_floats16(out, at + g * out.stride[3], out.stride[3],
                     db == nullptr ? row16(0) : load16(db + g) + row16(0), n - g);
  }

  // Which rows these are, and what they see.
  void find_rows(Pair& w, int64_t r0, int64_t end, Block& x) const {
    x.r0 = r0, x.rows = static_cast<int>(std::min<int64_t>(kRowBlock, end - r0));
    x.lo = c_.n_k, x.hi = 0;
    if (x.rows == 0) return;
    int64_t query = r0 % c_.n_q, head = w.kv_head * c_.group + r0 / c_.n_q;
    for (int r = 0; r < x.rows; ++r, ++query) {
      if (query == c_.n_q) query = 0, ++head;
      QueryRow& row = x.row[r];
      row.batch = w.batch, row.query = query, row.head = head;
      row.keys = visible_keys(c_, row.query);
      x.lse[r] = c_.lse->as<float>()[row.batch * c_.lse->stride[0] + row.head * c_.lse->stride[1] +
                                     row.query * c_.lse->stride[2]];
      if (x.lse[r] == -__builtin_inff()) x.lse[r] = 0;  // a row that a bias hides throughout
      if (row.keys.count() == 0) continue;
      x.lo = std::min(x.lo, row.keys.lo), x.hi = std::max(x.hi, row.keys.hi);
      ++w.live;
    }
    for (int r = 0; r < x.rows; r += kTileM)
      x.strip[r / kTileM] = strip_keys(x.row + r, rows_of(x, r));
  }

  void load_rows(Pair& w, Block& x) const {
    const int64_t h = w.kv_head * c_.group;
    const T* q = c_.q->as<const T>() + offset4(*c_.q, w.batch, 0, h);
    const T* d_o = c_.d_o->as<const T>() + offset4(*c_.d_o, w.batch, 0, h);
    for (int r = 0; r < x.rows; r += kTileM) {
      const int64_t strip = r / kTileM;
      products_.pack(q, rows_, d_of_q_, kA, x.r0 + r, rows_of(x, r), c_.d,
                     w.q_a + strip * (kTileM * c_.d + kPanelSlack), rows_of(x, r));
      float* d_o_strip = w.do_a + strip * (kTileM * c_.dv + kPanelSlack);
      products_.pack(d_o, rows_, d_of_do_, kB, x.r0 + r, rows_of(x, r), c_.dv, d_o_strip,
                     rows_of(x, r));
      deltas(w, x, r, d_o_strip);
    }
  }

  // Deltas of a strip, a lane each. One chain, like do·v: a row with one key then has a gradient of
  // exactly 0.
  void deltas(const Pair& w, Block& x, int r, const float* d_o) const {
    const int n = rows_of(x, r);
    const T* o = c_.o->as<const T>() + offset4(*c_.o, w.batch, 0, w.kv_head * c_.group);
    products_.pack(o, o_rows_, d_of_o_, kA, x.r0 + r, n, c_.dv, w.o_t, n);
    Vf delta = zero();
    for (int64_t e = 0; e < products_.steps(c_.dv); ++e) {
      const Vf a = load(d_o + e * n), b = load(w.o_t + e * n);
      delta = kHasPairs && products_.are_pairs ? dot_pairs(delta, a, b) : fma(a, b, delta);
    }
    float out[kLanes];
    store(out, delta);
    for (int i = 0; i < n; ++i) {
      x.delta[r + i] = out[i];
      if (c_.dlse == nullptr) continue;
      const TensorRef& t = *c_.dlse;
      const QueryRow& row = x.row[r + i];
      x.delta[r + i] -=
          load_float(t, row.batch * t.stride[0] + row.head * t.stride[1] + row.query * t.stride[2]);
    }
  }

  // Weights and their gradients of one strip of rows in one key block. False where it sees no key
  // there; its rows of p and ds are then 0.
  bool weigh_strip(Pair& w, Block& x, int r, int64_t k0) const {
    const int rows = rows_of(x, r);
    const int64_t n = std::min<int64_t>(kKeyBlock, c_.n_k - k0);
    const Seen seen = x.strip[r / kTileM].in_block(k0);
    const int64_t lo = seen.lo, hi = seen.hi;
    float* p = w.p + r * kKeyBlock;
    float* ds = w.ds + r * kKeyBlock;
    if (lo >= hi) {
      std::fill_n(p, rows * kKeyBlock, 0.0f), std::fill_n(ds, rows * kKeyBlock, 0.0f);
      return false;
    }
    const int64_t strip = r / kTileM, key = k0 - w.first_key;
    const float* const q_a = w.q_a + strip * (kTileM * c_.d + kPanelSlack);
    const float* const do_a = w.do_a + strip * (kTileM * c_.dv + kPanelSlack);
    const float* const k_t = w.k_t + key * products_.steps(c_.d);
    const float* const v_t = w.v_t + key * products_.steps(c_.dv);
    const bool is_plain = !c_.has_extras() && c_.dropout <= 0;
    if (is_plain && seen.is_whole && rows == kTileM) {
      products_.multiply_whole(q_a, k_t, c_.d, p);
      products_.multiply_whole(do_a, v_t, c_.dv, ds);
      weigh_gradients_whole(p, ds, x.lse + r, x.delta + r, c_.scale);
      w.executed += 2 * (c_.d + c_.dv) * kTileM * kKeyBlock, w.pairs += kTileM * kKeyBlock;
      return true;
    }
    for (int64_t j = lo / kTileN * kTileN; j < hi; j += kTileN) {
      const int cols = columns_of_tile(n - j, hi - j);
      products_.multiply_columns(q_a, k_t + j * products_.steps(c_.d), c_.d, rows, cols, p + j);
      products_.multiply_columns(do_a, v_t + j * products_.steps(c_.dv), c_.dv, rows, cols, ds + j);
      w.executed += 2 * (c_.d + c_.dv) * rows * round_up(cols, kLanes);
    }
    float* db = w.db == nullptr ? nullptr : w.db + r * kKeyBlock;
    is_plain ? weigh_rows<true>(x, r, rows, k0, seen, p, ds, db)
             : weigh_rows<false>(x, r, rows, k0, seen, p, ds, db);
    w.pairs += pairs_in_block(x.row + r, rows, k0);
    return true;
  }
  // The same, and the strip's share of dq.
  bool run_strip(Pair& w, Block& x, int r, int64_t k0) const {
    if (!weigh_strip(w, x, r, k0)) return false;
    const int rows = rows_of(x, r);
    // All rows over the same keys, or (carefully) each over its own.
    for (int i = 0; i < rows; i += careful_ ? 1 : rows) {
      const Seen at =
          careful_ ? seen_in_block(x.row[r + i].keys, k0) : x.strip[r / kTileM].in_block(k0);
      const int64_t n = at.hi - at.lo;
      const int n_rows = careful_ ? 1 : rows;
      for (int64_t e = 0; e < d_strips_; ++e) {
        const float* k = w.k + (e * n_keys_ + k0 + at.lo) * kTileN;
        const int cols = static_cast<int>(std::min<int64_t>(kTileN, c_.d - e * kTileN));
        add_columns(w.ds + (r + i) * kKeyBlock + at.lo, k, n, n_rows, cols,
                    w.dq + (e * kRowBlock + r + i) * kTileN);
        w.executed += 2 * n * n_rows * round_up(cols, kLanes);
      }
    }
    return true;
  }
  // In: products q·k in p, do·v in ds (stale where there are none). Out: dropped-out weights in p,
  // gradients in ds, and the gradients of biased scores in db, 0 for keys that are not seen.
  // kPlain: no bias, cap or dropout, hence no db.
  template <bool kPlain>
  void weigh_rows(const Block& x, int r, int rows, int64_t k0, const Seen& seen, float* p,
                  float* ds, float* db) const {
    const Vf scale = set1(c_.scale), log2 = set1(kLog2E);
    for (int i = r; i < r + rows; ++i) {
      const QueryRow& row = x.row[i];
      const Vf lse = set1(x.lse[i]), delta = set1(x.delta[i]);
      const Seen own = seen_in_block(row.keys, k0);
      float factor[kKeyBlock];
      if (!kPlain && c_.dropout > 0) dropout_factors(c_, row, k0, kKeyBlock, factor);
#pragma GCC unroll unrolled(4)
      for (int g = 0; g < kKeyBlock; g += 16, p += 16, ds += 16) {
        if (kPlain && (g + 16 <= seen.lo || g >= seen.hi)) {  // no row sees these
          store16_n(p, row16(0), 16), store16_n(ds, row16(0), 16);
          continue;
        }
        Row16 s = load16(p), slope, keep;
        if (!kPlain && c_.has_extras()) {
          s = s * row16(c_.scale);
          add_extras(c_, row, k0 + g, c_.n_k - k0 - g, s, &slope);
        }
        if (!kPlain && c_.dropout > 0) keep = load16(factor + g);
#pragma GCC unroll unrolled(2)
        for (int v = 0; v < Row16::kRegs; ++v) {
          const Vf x = !kPlain && c_.has_extras() ? s.v[v] - lse : fma(s.v[v], scale, -lse);
          Vf weight = exp2_weight(x * log2), dp = load(ds + v * kLanes);
          if (!kPlain && c_.dropout > 0) dp = dp * keep.v[v];
          Vf of_bias = weight * (dp - delta);
          Vf y = !kPlain && c_.softcap > 0 ? of_bias * slope.v[v] : of_bias;
          if (!kPlain && c_.dropout > 0) weight = weight * keep.v[v];
          if (!seen.is_whole) {  // at the end: hidden scores may be NaN
            const Vm visible = lanes_in(g + v * kLanes, own.lo, own.hi);
            weight = select(visible, weight, zero()), y = select(visible, y, zero());
            of_bias = select(visible, of_bias, zero());
          }
          store(p + v * kLanes, weight), store(ds + v * kLanes, y);
          if (!kPlain && db != nullptr) store(db + g + v * kLanes, of_bias);
        }
      }
      if (!kPlain && db != nullptr) db += kKeyBlock;
    }
  }

  // dbias of one part [batch or all, head or all] for keys from k0: sums over what the bias was
  // broadcast over, in the order (batch, head, query).
  void sum_bias(int64_t part, int64_t k0, int thread) const {
    const TensorRef &bias = *c_.bias, &out = call_.out[3];
    const int64_t b = part / bias.shape[1], h = part % bias.shape[1];
    const int64_t n = std::min(kBiasKeys, c_.n_k - k0), rows = bias.shape[2];
    Pair w = pair_at(0, thread);
    take_scratch(w, thread);
    Scratch space(w.more);
    w.db = space.take(kRowBlock * kKeyBlock);
    float* sums = space.take(rows * kBiasKeys);
    std::fill_n(sums, rows * kBiasKeys, 0.0f);
    w.first_key = k0;
    const bool all_b = bias.shape[0] == 1, all_h = bias.shape[1] == 1;
    for (w.batch = all_b ? 0 : b; w.batch < (all_b ? c_.batch : b + 1); ++w.batch)
      for (int64_t head = all_h ? 0 : h; head < (all_h ? c_.n_heads : h + 1); ++head) {
        w.kv_head = head / c_.group;
        pack_keys(w, k0, n);
        const int64_t begin = head % c_.group * c_.n_q, end = begin + c_.n_q;
        for (int64_t r0 = begin; r0 < end; r0 += kRowBlock) add_bias(w, r0, end, k0, n, sums);
      }
    const int64_t at = b * out.stride[0] + h * out.stride[1] + k0 * out.stride[3];
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < n; j += 16)
        store_floats16(out, at + i * out.stride[2] + j * out.stride[3], out.stride[3],
                       load16(sums + i * kBiasKeys + j), n - j);
    call_.counters->add(0, w.executed);
  }
  void add_bias(Pair& w, int64_t r0, int64_t end, int64_t first, int64_t n, float* sums) const {
    Block x;
    find_rows(w, r0, end, x);
    if (x.hi <= first || x.lo >= first + n) return;
    load_rows(w, x);
    for (int64_t k0 = first; k0 < first + n; k0 += kKeyBlock)
      for (int r = 0; r < x.rows; r += kTileM) {
        if (!weigh_strip(w, x, r, k0)) continue;
        for (int i = r; i < r + rows_of(x, r); ++i) {
          float* sum =
              sums + (c_.bias->shape[2] == 1 ? 0 : x.row[i].query) * kBiasKeys + k0 - first;
          for (int j = 0; j < kKeyBlock; j += kLanes)
            store(sum + j, load(sum + j) + load(w.db + i * kKeyBlock + j));
        }
      }
  }

  // dk += dsᵀ q and dv += pᵀ do over rows [first, last) of the block.
  void sum_keys(Pair& w, const Block& x, int64_t k0, int first, int last) const {
    if (careful_) {
      for (int r = first; r < last; ++r) {
        const Seen own = seen_in_block(x.row[r].keys, k0);
        sum_keys_from(w, k0, own.lo, own.hi, [&](int64_t, int64_t) { return Rows{r, r + 1}; });
      }
      return;
    }
    const int64_t n = std::min<int64_t>(std::min<int64_t>(kKeyBlock, c_.n_k - k0), x.hi - k0);
    const int64_t from = std::max<int64_t>(0, x.lo - k0) / kTileM * kTileM;
    // Rows before and behind those that see any of the keys would add zeros.
    sum_keys_from(w, k0, from, n, [&](int64_t begin, int64_t end) {
      const auto sees = [&](int r) {
        const StripKeys& s = x.strip[r / kTileM];
        return s.lo < k0 + end && s.hi > k0 + begin;
      };
      Rows rows{first, last};
      while (rows.first < rows.last && !sees(rows.first)) rows.first += kTileM;
      while (rows.first < rows.last && !sees(rows.last - 1))
        rows.last = (rows.last - 1) / kTileM * kTileM;
      return rows;
    });
  }
  struct Rows {
    int first, last;
  };
  // rows_of_keys(j, end): the rows of the block that keys [j, end) need.
  template <class F>
  void sum_keys_from(Pair& w, int64_t k0, int64_t from, int64_t to, const F& rows_of_keys) const {
    for (int64_t j = from; j < to; j += kTileM) {
      const int keys = static_cast<int>(std::min<int64_t>(kTileM, to - j));
      const Rows rows = rows_of_keys(j, j + keys);
      if (rows.first >= rows.last) continue;
      // `after`: the sums that follow these.
      const auto sum = [&](const float* a, const float* b, int64_t strips, int64_t width,
                           float* acc, const float* after) {
        const float* of_a = a + rows.first * kKeyBlock + j;
        const int64_t n = rows.last - rows.first;
        for (int64_t e = 0; e < strips; ++e) {
          const float* of_b = b + (e * kRowBlock + rows.first) * kTileN;
          const int cols = static_cast<int>(std::min<int64_t>(kTileN, width - e * kTileN));
          float* sums = acc + (e * n_keys_ + k0 + j) * kTileN;
          const float* next = e + 1 < strips ? sums + n_keys_ * kTileN : after;
          if (keys == kTileM && cols == kTileN)
            add_queries<kTileM>(of_a, of_b, n, sums, next);
          else if (keys == kRestOfBlock && cols == kTileN)
            add_queries<kRestOfBlock>(of_a, of_b, n, sums, next);
          else
            accumulate_tile({of_a, kKeyBlock, Lies::kPanel, of_b, n, keys, cols}, sums);
          w.executed += 2 * n * keys * round_up(cols, kLanes);
        }
      };
      sum(w.ds, w.q, d_strips_, c_.d, w.dk, w.dv + (k0 + j) * kTileN);
      sum(w.p, w.d_o, v_strips_, c_.dv, w.dv, w.dk + (k0 + j + keys) * kTileN);
    }
  }

  const KernelCall& call_;
  const AttentionCall& c_;
  const AttentionWorkspace space_;
  const ProductRows<T> products_;  // along d and dv
  const int64_t n_rows_;
  Loops rows_, o_rows_, keys_of_k_, keys_of_v_;
  Loops d_of_q_, d_of_k_, d_of_v_, d_of_o_, d_of_do_;
  int64_t n_keys_, d_strips_, v_strips_;
  bool careful_;
  mutable std::atomic<bool> saw_nan_{false};
};
}  // namespace

void attention_bwd(const KernelCall& call) {
  const auto c = parse_attention(*call.attrs, call.in, true, kTakesParts);
  TEGULA_CHECK(c.ok(), c.ok() ? "" : c.error().message);
  switch (c->q->dtype) {
    case DType::kF32:
      return FlashBackward<float>(call, *c).run();
    case DType::kBF16:
      return FlashBackward<bf16>(call, *c).run();
    case DType::kF16:
      return FlashBackward<f16>(call, *c).run();
    default:
      return;
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
