// What attention and attention_bwd share: attributes, operands, visibility, scores.
#pragma once

#include "tegula/base/philox.h"
#include "tegula/ops/elementwise.h"

namespace tegula {

inline constexpr InlineList<AttrDef, 16> kAttentionAttrs = {
    {"scale", AttrKind::kFloat, true, "of the scores"},
    {"is_causal", AttrKind::kBool, false, "keys after the query are hidden"},
    {"window_left", AttrKind::kInt, false, "keys at most so far before; absent: any"},
    {"window_right", AttrKind::kInt, false, "keys at most so far after; absent: any"},
    {"softcap", AttrKind::kFloat, false, "scores become cap·tanh(score / cap)"},
    {"bias", AttrKind::kBool, false, "an operand [b|1, hq|1, sq|1, sk] is added to the scores"},
    {"alibi", AttrKind::kBool, false, "an operand [hq] of slopes"},
    {"varlen", AttrKind::kBool, false, "operands cu_seqlens_q, cu_seqlens_k"},
    {"dropout", AttrKind::kFloat, false, "probability; an operand seed follows"},
    {"stream", AttrKind::kInt, false, "of the random numbers"},
    {"dlse", AttrKind::kBool, false, "backward only: lse has a gradient, the last operand"},
    {"q_offset", AttrKind::kInt, false, "position of query 0; absent: sk − sq"},
    {"k_offset", AttrKind::kInt, false, "position of key 0"},
    {"origin", AttrKind::kInts, false, "where this part's b, hq, sq, sk begin in the whole"},
    {"whole", AttrKind::kInts, false, "hq, sq, sk of the whole"}};

// Where the optional operands stand; −1: absent. `first`: operands before them (3, or 6 backward).
struct AttentionOperands {
  int bias = -1, alibi = -1, cu_q = -1, cu_k = -1, seed = -1, dlse = -1;
  int count = 0;
  AttentionOperands(const Attrs& a, int first) : count(first) {
    if (a.flag("bias")) bias = count++;
    if (a.flag("alibi")) alibi = count++;
    if (a.flag("varlen")) cu_q = count++, cu_k = count++;
    if (a.get_or<double>("dropout", 0) > 0) seed = count++;
    if (a.flag("dlse")) dlse = count++;
  }
};

// The dims of q, k, v and the optional operands, in the short form.
std::string attention_operand_dims(const OpCall& c, bool backward);
Result<DimMap> attention_dims(const OpCall& c, bool backward);
Status attention_check(const OpCall& c, int first);
Attrs attention_localize(const OpCall& c, const DimMap& m, int factor, int64_t lo, int64_t hi);
// Visible pairs per (batch, head), exactly (packed sequences: those of one sequence, a bound).
int64_t attention_visible_pairs(const OpCall& c);
// How many query rows of one (batch, head) see any key.
int64_t attention_live_rows(const OpCall& c);
// FLOPs per visible pair that the score's optional parts cost.
int64_t attention_score_flops(const Attrs& a);

// Positions and visibility of one (query, key) pair, from attributes and cu_seqlens.
struct AttentionMask {
  bool is_causal = false;
  int64_t left = -1, right = -1;
  int64_t q_offset = 0, k_offset = 0;
  std::vector<int64_t> cu_q, cu_k;

  template <class S>
  AttentionMask(const RefArgs<S>& a, const AttentionOperands& at) {
    const Attrs& attrs = a.attrs();
    is_causal = attrs.flag("is_causal");
    left = attrs.template get_or<int64_t>("window_left", -1);
    right = attrs.template get_or<int64_t>("window_right", -1);
    q_offset = attrs.template get_or<int64_t>("q_offset", a.dim(1, 1) - a.dim(0, 1));
    k_offset = attrs.template get_or<int64_t>("k_offset", 0);
    if (at.cu_q < 0) return;
    for (int64_t i = 0; i < a.dim(static_cast<size_t>(at.cu_q), 0); ++i) {
      cu_q.push_back(a.load_i(static_cast<size_t>(at.cu_q), i));
      cu_k.push_back(a.load_i(static_cast<size_t>(at.cu_k), i));
    }
  }
  // False: hidden. `distance` = query position − key position.
  bool visible(int64_t i, int64_t j, int64_t& distance) const {
    if (cu_q.empty()) {
      distance = (i + q_offset) - (j + k_offset);
    } else {
      size_t s = 0;
      while (s + 1 < cu_q.size() && !(cu_q[s] <= i && i < cu_q[s + 1])) ++s;
      if (s + 1 >= cu_q.size() || j < cu_k[s] || j >= cu_k[s + 1]) return false;
      const int64_t n_q = cu_q[s + 1] - cu_q[s], n_k = cu_k[s + 1] - cu_k[s];
      distance = (i - cu_q[s] + n_k - n_q) - (j - cu_k[s]);
    }
    if (is_causal && distance < 0) return false;
    if (left >= 0 && distance > left) return false;
    return !(right >= 0 && -distance > right);
  }
};

// Score of one visible pair; `slope` returns d score / d (scale·q·k) for the backward.
template <class S>
struct AttentionScore {
  const RefArgs<S>& a;
  AttentionOperands at;
  S scale, cap;
  bool has_cap;
  double dropout, keep_scale;
  uint64_t seed = 0, stream;
  int64_t g;
  std::array<int64_t, 4> origin{};
  std::array<int64_t, 3> whole;

  AttentionScore(const RefArgs<S>& args, const AttentionOperands& operands)
      : a(args),
        at(operands),
        scale(S(args.attrs().f("scale"))),
        cap(S(args.attrs().template get_or<double>("softcap", 0))),
        has_cap(args.attrs().template get_or<double>("softcap", 0) > 0),
        dropout(args.attrs().template get_or<double>("dropout", 0)),
        keep_scale(1 / (1 - dropout)),
        stream(static_cast<uint64_t>(args.attrs().template get_or<int64_t>("stream", 0))),
        g(args.dim(0, 2) / std::max<int64_t>(args.dim(1, 2), 1)),
        whole{args.dim(0, 2), args.dim(0, 1), args.dim(1, 1)} {
    if (at.seed >= 0) seed = static_cast<uint64_t>(a.load_i(static_cast<size_t>(at.seed)));
    if (a.attrs().has("origin"))
      for (size_t i = 0; i < 4; ++i) origin[i] = a.attrs().ints("origin")[i];
    if (a.attrs().has("whole"))
      for (size_t i = 0; i < 3; ++i) whole[i] = a.attrs().ints("whole")[i];
  }
  S operator()(int64_t b, int64_t h, int64_t i, int64_t j, int64_t distance, S* slope) const {
    S s = S(0.0);
    for (int64_t d = 0; d < a.dim(0, 3); ++d)
      s = scalar::fma(a.load(0, b, i, h, d), a.load(1, b, j, h / g, d), s);
    s = s * scale;
    if (has_cap) {
      const S t = scalar::tanh(s / cap);
      s = cap * t;
      if (slope) *slope = S(1.0) - t * t;
    }
    if (at.bias >= 0) {
      const auto k = static_cast<size_t>(at.bias);
      s += a.load(k, a.dim(k, 0) == 1 ? 0 : b, a.dim(k, 1) == 1 ? 0 : h, a.dim(k, 2) == 1 ? 0 : i,
                  j);
    }
    if (at.alibi >= 0)
      s -= a.load(static_cast<size_t>(at.alibi), h) * S(static_cast<double>(std::abs(distance)));
    return s;
  }
  // 0 or 1/(1−p): what dropout multiplies the weight by.
  S keep(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t linear =
        (((b + origin[0]) * whole[0] + h + origin[1]) * whole[1] + i + origin[2]) * whole[2] + j +
        origin[3];
    return S(philox_uniform(seed, stream, static_cast<uint64_t>(linear)) >= dropout ? keep_scale
                                                                                    : 0.0);
  }
};

std::vector<Sample> attention_samples(bool backward);

// The decompositions' common part, in Vars over [b, hk, g, sq, sk] (f32).
struct AttentionGraph {
  Var q, k, v;        // q [b sq hk g d], k, v [b sk hk d]
  Var visible;        // bool
  Var capped, score;  // tanh(…) if capped; the score
  Var keep;           // dropout's factor; invalid: none
  double scale = 1, softcap = 0;
  Shape shape;
};
AttentionGraph attention_graph(Builder& b, const OpCall& c, std::span<const Var> in, int first);
// [b, hq, sq] -> [b, hk, g, sq, 1]
Var attention_rows(Var lse, const AttentionGraph& g);

}  // namespace tegula
