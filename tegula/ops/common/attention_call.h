// Shared by attention and attention_bwd: attributes, operands, the mask, scores and their cost.
#pragma once

#include <cstdlib>

#include "tegula/base/algorithm.h"
#include "tegula/base/position_runs.h"
#include "tegula/ops/attention.h"
#include "tegula/ops/common/rows.h"

namespace tegula {

constexpr InlineList<AttrDef, 16> attention_attrs(bool is_bwd) {
  InlineList<AttrDef, 16> a = {
      {"scale", AttrKind::kFloat, true, "of the scores"},
      {"is_causal", AttrKind::kBool, false, "query i sees keys up to i + sk - sq"},
      {"window_left", AttrKind::kInt, false, "keys before i + sk - sq; -1 or absent: all"},
      {"window_right", AttrKind::kInt, false, "keys after i + sk - sq; -1 or absent: all"},
      {"softcap", AttrKind::kFloat, false, "scores are capped by tanh"},
      {"bias", AttrKind::kBool, false, "operand bias [b|1, hq|1, sq|1, sk]"},
      {"alibi", AttrKind::kBool, false, "operand of slopes [hq]"},
      {"varlen", AttrKind::kBool, false, "operands cu_seqlens_q, cu_seqlens_k [n+1]; paged: q's"},
      {"dropout", AttrKind::kFloat, false, "above 0: operand seed (i64)"},
      {"stream", AttrKind::kInt, false, "of the random numbers"},
      {"q_runs", AttrKind::kInts, false,
       "positions of queries: of the first (absent: sk - sq, packed 0), or start, stride, count, "
       ".."},
      {"k_runs", AttrKind::kInts, false, "positions of keys: likewise; absent: 0"},
      {"within", AttrKind::kInts, false,
       "of the whole, for dropout: where this part begins in b, hq, sq, sk; sizes of hq, sq, sk"},
      {"part", AttrKind::kString, false,
       is_bwd ? "gradients in f32, to be added to those of other parts of the keys"
              : "of the keys: first and middle give o in f32, middle and last take operands "
                "o_before, lse_before of those before"}};
  if (!is_bwd)
    a.items[a.count++] = {"paged", AttrKind::kBool, false,
                          "operands seqlens_k [n], block_table [n, pages]; k and v are pages"};
  if (!is_bwd)
    a.items[a.count++] = {"descale", AttrKind::kBool, false,
                          "operands descale_q, descale_k, descale_v [b|1, hk|1] of e4m3"};
  if (is_bwd)
    a.items[a.count++] = {"dlse", AttrKind::kBool, false, "operand dlse: lse has a gradient"};
  return a;
}

// Which operand is what; -1: absent. q, k, v are 0, 1, 2; attention_bwd's o, lse, do 3, 4, 5.
struct AttentionOperands {
  int bias = -1, slopes = -1, cu_q = -1, cu_k = -1, seed = -1, dlse = -1;
  int seqlens_k = -1, table = -1;
  int descale = -1;  // of q; those of k and v follow
  int before = -1;   // o of the parts before; their lse follows
  int count = 0;
  AttentionOperands(const Attrs& a, bool is_bwd);
};

// Sizes, and attributes with their defaults.
struct AttentionCall {
  int64_t b = 0, sq = 0, sk = 0, hq = 0, hk = 0, g = 0, d = 0, dv = 0;
  int64_t page = 0, n_pages = 0;  // keys of one, and how many there are; sk is what a table holds
  int64_t n = 0;                  // sequences, of keys in pages
  double scale = 0, softcap = 0, dropout = 0;
  int64_t left = -1, right = -1;  // -1: no limit
  PositionRuns q_at, k_at;        // packed: where the part begins in the pack; k_at ascends
  PositionRuns k_given;           // of keys as they lie
  int64_t stream = 0;
  std::array<int64_t, 4> origin{};  // of b, hq, sq, sk
  std::array<int64_t, 3> whole{};   // of hq, sq, sk
  AttentionOperands operands;

  AttentionCall(const OpCall& c, bool is_bwd);
  AttentionCall(const AttentionCall&) = delete;  // k_at may point into it
  AttentionCall& operator=(const AttentionCall&) = delete;
  // The number that a query's `aligned` is compared with.
  int64_t aligned_key(int64_t j) const { return k_at.is_one() ? j : k_at.at(j); }
  // Whether a block of 64 keys may lie in several pages, which no kernel reads in place.
  bool has_split_blocks() const { return page % 64 != 0 && sk > page; }
  bool is_e4m3 = false;  // q, k and v
  bool is_part = false;  // results are in f32
  // Keys count in the order of their positions: where the j-th lies.
  int64_t key_row(int64_t j) const {
    return key_rows_.empty() ? j : key_rows_[static_cast<size_t>(j)];
  }
  const std::vector<int64_t>& key_rows() const { return key_rows_; }  // empty: they lie in order
  // Dropout's factor of a weight: 0 or 1/(1 - dropout).
  double keep(int64_t seed, int64_t b, int64_t h, int64_t i, int64_t j) const;
  // The bound that is compared with a uniform number: rounded as f32 nodes would.
  double dropout_bound() const { return static_cast<double>(static_cast<float>(dropout)); }

 private:
  void sort_keys();
  std::vector<int64_t> key_rows_, ascending_;
};

// The keys [lo, hi) that a query sees, and the one it is aligned with, of keys in runs its
// position; whose keys they are (packed queries: -1, of no sequence), where they lie in pages.
struct KeyRange {
  int64_t lo = 0, hi = 0, aligned = 0, sequence = 0;
};

class AttentionMask {
 public:
  explicit AttentionMask(const AttentionCall& call) : call_(call) {}
  // Packed sequences; offsets are those of the whole. Keys in pages: cu_k are their numbers.
  AttentionMask(const AttentionCall& call, std::vector<int64_t> cu_q, std::vector<int64_t> cu_k);
  KeyRange keys(int64_t b, int64_t i) const;

 private:
  KeyRange of_sequence(int64_t b, int64_t i) const;

  const AttentionCall& call_;
  std::vector<int64_t> cu_q_, cu_k_;
};

// The work of one head of one batch entry. With packed sequences a bound: offsets are data.
struct AttentionWork {
  int64_t pairs = 0;  // of a query and a key it sees
  int64_t rows = 0;   // queries that see a key
  int64_t keys = 0;   // keys that are seen
};
AttentionWork attention_work(const AttentionCall& call);
int64_t score_flops(const AttentionCall& call);  // of one pair
// Bytes read of q, k, v and of what both ops read alike.
int64_t attention_bytes_read(const OpCall& c, const AttentionCall& call, const AttentionWork& work);
inline constexpr std::string_view kPackingDecides =
    "cu_seqlens are data: priced as if each query saw what it would in one sequence";
inline constexpr std::string_view kPagingDecides =
    "seqlens are data: priced as if all pages of the table were full";

Result<DimMap> attention_dims(const OpCall& c, bool is_bwd);
Result<std::vector<DType>> attention_types(const OpCall& c, bool is_bwd);
Status check_attention(const OpCall& c, bool is_bwd);
Attrs localize_attention(const OpCall& c, const DimMap& m, int factor, int64_t lo, int64_t hi);

std::vector<Sample> attention_samples();

template <class S>
AttentionMask mask_of(const RefArgs<S>& a, const AttentionCall& call) {
  const AttentionOperands& o = call.operands;
  const auto all = [&](int k) {
    std::vector<int64_t> v;
    for (int64_t s = 0; k >= 0 && s < a.dim(static_cast<size_t>(k), 0); ++s)
      v.push_back(a.load_i(static_cast<size_t>(k), s));
    return v;
  };
  return AttentionMask(call, all(o.cu_q), all(o.seqlens_k >= 0 ? o.seqlens_k : o.cu_k));
}

// Where key j of a sequence (without pages: of a batch entry) lies: in which entry of k's first
// dim, and which row of it.
struct KeyPlace {
  int64_t entry = 0, row = 0;
};
template <class S>
KeyPlace key_place(const RefArgs<S>& a, const AttentionCall& call, int64_t sequence, int64_t j) {
  if (call.operands.table < 0) return {sequence, call.key_row(j)};
  const int64_t page = a.load_i(static_cast<size_t>(call.operands.table), sequence, j / call.page);
  return {std::clamp<int64_t>(page, 0, call.n_pages - 1), j % call.page};
}

// q · k as Hopper's tensor cores sum products of e4m3: 32 and the sum so far at a time, each cut to
// 13 bits below the largest power of two among them, and what comes out to 13 below its own.
// Measured: bits_of_products in bench/cuda/attention_grid.py.
double sum_of_e4m3_products(std::span<const double> q, std::span<const double> k);

// Scores of a head, one pair at a time.
template <class S>
class Scorer {
 public:
  Scorer(const RefArgs<S>& a, const AttentionCall& call, int64_t b, int64_t h)
      : a_(a), call_(call), b_(b), h_(h), hk_(h / call.g), scale_(call.scale) {
    if (call.operands.descale >= 0) scale_ = scale_ * descale(0) * descale(1);
    if (call.operands.slopes >= 0) slope_ = a.load(static_cast<size_t>(call.operands.slopes), h);
  }
  // The score of query i and a key that it sees; *capped becomes tanh(S / softcap).
  S operator()(int64_t i, int64_t j, const KeyRange& keys, S* capped = nullptr) const {
    S s = S(0.0);
    if (a_.on_tensor_cores && call_.is_e4m3) {
      s = S(e4m3_product(i, j));
    } else {
      const KeyPlace at = key_place(a_, call_, keys.sequence, j);
      for (int64_t e = 0; e < call_.d; ++e)
        s = scalar::fma(a_.load(0, b_, i, h_, e), a_.load(1, at.entry, at.row, hk_, e), s);
    }
    s = s * scale_;
    if (call_.softcap > 0) {
      const S t = scalar::tanh(s * S(1 / call_.softcap));
      if (capped) *capped = t;
      s = t * S(call_.softcap);
    }
    if (call_.operands.bias >= 0)
      s = s + a_.load_at(static_cast<size_t>(call_.operands.bias), bias_index(i, j));
    if (call_.operands.slopes >= 0)
      s = s - slope_ * S(static_cast<double>(std::abs(keys.aligned - call_.aligned_key(j))));
    return s;
  }
  // As tensor cores would.
  double e4m3_product(int64_t i, int64_t j) const {
    std::vector<double> q, k;
    for (int64_t e = 0; e < call_.d; ++e) {
      q.push_back(static_cast<double>(a_.load(0, b_, i, h_, e)));
      k.push_back(static_cast<double>(a_.load(1, b_, call_.key_row(j), hk_, e)));
    }
    return sum_of_e4m3_products(q, k);
  }
  // The factor that q (0), k (1) or v (2) is to be multiplied with.
  S descale(size_t which) const {
    const size_t k = static_cast<size_t>(call_.operands.descale) + which;
    return a_.load(k, a_.dim(k, 0) == 1 ? 0 : b_, a_.dim(k, 1) == 1 ? 0 : hk_);
  }
  Index bias_index(int64_t i, int64_t j) const {
    const TensorRef& t = a_.in[static_cast<size_t>(call_.operands.bias)];
    return {t.shape[0] == 1 ? 0 : b_, t.shape[1] == 1 ? 0 : h_, t.shape[2] == 1 ? 0 : i,
            call_.key_row(j)};
  }

 private:
  const RefArgs<S>& a_;
  const AttentionCall& call_;
  int64_t b_, h_, hk_;
  S scale_, slope_ = S(0.0);
};

// The same in nodes, for decompositions, in the accumulator's type. Queries that are packed, with
// keys in pages, are a batch of one query each: b is their number then, sq 1.
struct AttentionGraph {
  Var q;       // [b, sq, hk, g, d]
  Var k, v;    // [b, sk, hk, d or dv]
  Var scores;  // [b, hk, g, sq, sk], -inf where masked
  Var capped;  // tanh(S / softcap), if there is a softcap
  Var keep;    // bool, if there is dropout
  Shape bias;  // [b|1, hk|1, g|1, sq|1, sk]

  // exp(scores - lse) for lse [b, hk, g, sq].
  Var weights(Var lse) const;
  // w with dropout applied.
  Var dropped(Var w, double dropout) const;
};
// Keys whose positions do not ascend, brought in order; unless something else counts them.
inline bool can_sort_keys(const AttentionCall& call) {
  return !call.key_rows().empty() && call.operands.bias < 0 && call.operands.seed < 0;
}
Attrs sorted(const AttentionCall& call, const Attrs& attrs);
std::vector<Var> sorted(Builder& b, const AttentionCall& call, std::span<const Var> in);

AttentionGraph attention_graph(Builder& b, const AttentionCall& call, const Attrs& attrs,
                               std::span<const Var> in);

}  // namespace tegula
