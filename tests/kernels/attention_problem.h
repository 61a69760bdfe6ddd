// A case of attention: its options, inputs with awkward strides, and the definition as plain loops.
#pragma once

#include <algorithm>
#include <cmath>

#include "tegula/base/philox.h"
#include "tests/kernels/strided.h"

namespace tegula::testing {

struct Case {
  int64_t b = 1, sq = 5, sk = 5, hk = 1, g = 1, d = 8, dv = 8;
  bool causal = false;
  int64_t left = -1, right = -1;
  double softcap = 0, dropout = 0;
  bool bias = false, alibi = false, varlen = false, dlse = false;
  int64_t sequences = 2;  // of varlen
  DType dtype = DType::kF32;
  std::optional<DType> narrow = {};  // of keys and values, beside queries in f32; none: dtype
  DType key_dtype() const { return narrow.value_or(dtype); }
  std::string name() const {
    return cat("b", b, " sq", sq, " sk", sk, " hk", hk, " g", g, " d", d, " dv", dv,
               causal ? " causal" : "", " window ", left, ",", right, " cap ", softcap, " drop ",
               dropout, bias ? " bias" : "", alibi ? " alibi" : "",
               varlen ? cat(" varlen ", sequences) : "", " ", dtype_name(dtype),
               narrow ? cat(" keys ", dtype_name(*narrow)) : "");
  }
  Attrs attrs() const {
    Attrs a{{"scale", 1 / std::sqrt(static_cast<double>(d))}};
    if (causal) a.set("is_causal", true);
    if (left >= 0) a.set("window_left", left);
    if (right >= 0) a.set("window_right", right);
    if (softcap > 0) a.set("softcap", softcap);
    if (bias) a.set("bias", true);
    if (alibi) a.set("alibi", true);
    if (varlen) a.set("varlen", true);
    if (dropout > 0) a.set("dropout", dropout), a.set("stream", int64_t{3});
    return a;
  }
};

// Inputs, and the definition in precision S.
struct Problem {
  Case c;
  Tensor q, k, v, d_o, dlse, bias, alibi, cu_q, cu_k, seed;
  // Values in row-major order, for the definition; filled by settle().
  std::vector<double> q_at, k_at, v_at, do_at, dlse_at, bias_of;
  Problem(const Case& c_, Rng& rng)
      : c(c_),
        q(c.dtype, {c.b, c.sq, c.hk * c.g, c.d}, rng, true),
        k(c.key_dtype(), {c.b, c.sk, c.hk, c.d}, rng, true),
        v(c.key_dtype(), {c.b, c.sk, c.hk, c.dv}, rng, true),
        d_o(c.dtype, {c.b, c.sq, c.hk * c.g, c.dv}, rng, true),
        dlse(DType::kF32, {c.b, c.hk * c.g, c.sq}, rng, true),
        bias(c.dtype,
             {pick(rng, 0, 1) ? c.b : 1, pick(rng, 0, 1) ? c.hk * c.g : 1,
              pick(rng, 0, 1) ? c.sq : 1, c.sk},
             rng, true),
        alibi(DType::kF32, {c.hk * c.g}),
        cu_q(DType::kI32, {c.sequences + 1}),
        cu_k(DType::kI32, {c.sequences + 1}),
        seed(DType::kI64, {}) {
    for (Tensor* t : {&q, &k, &v, &d_o, &dlse, &bias, &alibi}) t->fill_random(rng);
    cut(cu_q, c.sq, rng), cut(cu_k, c.sk, rng);
    seed.put(0, 77);
    settle();
  }
  // Offsets of sequences, some of them empty; rows past the last see nothing.
  void cut(Tensor& cu, int64_t n, Rng& rng) const {
    std::vector<int64_t> at = {0, pick(rng, 0, 2) ? n : pick(rng, 0, n)};
    while (static_cast<int64_t>(at.size()) <= c.sequences)
      at.push_back(pick(rng, 0, 3) ? pick(rng, 0, at[1])
                                   : at[static_cast<size_t>(pick(rng, 0, at.size() - 1))]);
    std::sort(at.begin(), at.end());
    for (size_t i = 0; i < at.size(); ++i)
      cu.put(static_cast<int64_t>(i), static_cast<double>(at[i]));
  }
  // After the inputs were changed.
  void settle() {
    const auto all = [](const Tensor& t, std::vector<double>& to) {
      to.clear();
      for (int64_t i = 0; i < t.numel(); ++i) to.push_back(t.at(i));
    };
    all(q, q_at), all(k, k_at), all(v, v_at), all(d_o, do_at), all(dlse, dlse_at);
    all(bias, bias_of);
  }
  void add_options(std::vector<TensorRef>& in) const {
    if (c.bias) in.push_back(bias.ref());
    if (c.alibi) in.push_back(alibi.ref());
    if (c.varlen) in.push_back(cu_q.ref()), in.push_back(cu_k.ref());
    if (c.dropout > 0) in.push_back(seed.ref());
  }
  int64_t bias_at(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const TensorRef t = bias.ref();
    const int64_t* n = t.shape;
    return (((n[0] == 1 ? 0 : b) * n[1] + (n[1] == 1 ? 0 : h)) * n[2] + (n[2] == 1 ? 0 : i)) *
               n[3] +
           j;
  }
  bool visible(int64_t i, int64_t j, int64_t& distance) const {
    distance = i + c.sk - c.sq - j;
    if (c.varlen) {
      const auto at = [](const Tensor& t, int64_t s) { return static_cast<int64_t>(t.at(s)); };
      int64_t s = 0;
      while (s < c.sequences && !(at(cu_q, s) <= i && i < at(cu_q, s + 1))) ++s;
      if (s == c.sequences) return false;
      if (j < at(cu_k, s) || j >= at(cu_k, s + 1)) return false;
      const int64_t n_q = at(cu_q, s + 1) - at(cu_q, s), n_k = at(cu_k, s + 1) - at(cu_k, s);
      distance = (i - at(cu_q, s) + n_k - n_q) - (j - at(cu_k, s));
    }
    return !(c.causal && distance < 0) && !(c.left >= 0 && distance > c.left) &&
           !(c.right >= 0 && -distance > c.right);
  }
};

template <class S>
struct Result4 {
  std::vector<S> o, lse, dq, dk, dv, dbias;
  int64_t pairs = 0, live = 0;
  double sharpness = 0;  // the largest magnitude on the way to a score
};

// The definition's loops. `in_tiles`: as tiles of bf16 compute it, whose operands, weights and
// gradients of scores among them, are bf16.
template <class S>
Result4<S> define(const Problem& p, bool in_tiles = false) {
  const auto operand = [in_tiles](S x) {
    return in_tiles ? static_cast<S>(static_cast<float>(bf16(static_cast<float>(x)))) : x;
  };
  const Case& c = p.c;
  const int64_t h = c.hk * c.g;
  Result4<S> r;
  const auto size = [](int64_t n) { return static_cast<size_t>(n); };
  r.o.resize(size(c.b * c.sq * h * c.dv)), r.lse.resize(size(c.b * h * c.sq));
  r.dq.resize(size(c.b * c.sq * h * c.d)), r.dk.resize(size(c.b * c.sk * c.hk * c.d));
  r.dv.resize(size(c.b * c.sk * c.hk * c.dv)), r.dbias.resize(size(p.bias.numel()));
  for (int64_t b = 0; b < c.b; ++b)
    for (int64_t head = 0; head < h; ++head)
      for (int64_t i = 0; i < c.sq; ++i) {
        const int64_t hk = head / c.g, row = (b * c.sq + i) * h + head;
        std::vector<int64_t> key;
        std::vector<S> s, slope, keep;
        S top = -INFINITY, sum = 0;
        for (int64_t j = 0, distance; j < c.sk; ++j) {
          if (!p.visible(i, j, distance)) continue;
          S x = 0;
          for (int64_t e = 0; e < c.d; ++e)
            x += static_cast<S>(p.q_at[size(row * c.d + e)]) *
                 static_cast<S>(p.k_at[size(((b * c.sk + j) * c.hk + hk) * c.d + e)]);
          x *= static_cast<S>(1 / std::sqrt(static_cast<double>(c.d)));
          const auto note = [&r](S y) {
            if (std::isfinite(y)) r.sharpness = std::max(r.sharpness, std::fabs(double{y}));
          };
          note(x);
          slope.push_back(1);
          if (c.softcap > 0) {
            const S t = std::tanh(x / static_cast<S>(c.softcap));
            x = static_cast<S>(c.softcap) * t, slope.back() = 1 - t * t;
          }
          if (c.bias) x += static_cast<S>(p.bias_of[size(p.bias_at(b, head, i, j))]);
          if (c.alibi) x -= static_cast<S>(p.alibi.at(head)) * static_cast<S>(std::abs(distance));
          note(x);
          key.push_back(j), s.push_back(x), top = std::max(top, x);
          keep.push_back(c.dropout == 0 ? 1
                         : philox_uniform(77, 3,
                                          static_cast<uint64_t>(((b * h + head) * c.sq + i) * c.sk +
                                                                j)) >= c.dropout
                             ? static_cast<S>(1 / (1 - c.dropout))
                             : 0);
        }
        const size_t lse_at = size((b * h + head) * c.sq + i);
        r.lse[lse_at] = -INFINITY;
        if (key.empty()) continue;
        r.pairs += static_cast<int64_t>(key.size()), ++r.live;
        for (S x : s) sum += std::exp(x - top);
        r.lse[lse_at] = std::log(sum) + top;
        S delta = c.dlse ? -static_cast<S>(p.dlse_at[size((b * h + head) * c.sq + i)]) : 0;
        for (int64_t e = 0; e < c.dv; ++e) {
          S acc = 0;
          for (size_t n = 0; n < key.size(); ++n)
            acc += operand(std::exp(s[n] - r.lse[lse_at]) * keep[n]) *
                   static_cast<S>(p.v_at[size(((b * c.sk + key[n]) * c.hk + hk) * c.dv + e)]);
          r.o[size(row * c.dv + e)] = acc;
          // Who computes in low precision reads o as it was stored.
          if (std::is_same_v<S, float> && c.dtype == DType::kBF16)
            acc = static_cast<S>(static_cast<float>(bf16(static_cast<float>(acc))));
          if (std::is_same_v<S, float> && c.dtype == DType::kF16)
            acc = static_cast<S>(static_cast<float>(f16(static_cast<float>(acc))));
          delta += acc * static_cast<S>(p.do_at[size(row * c.dv + e)]);
        }
        for (size_t n = 0; n < key.size(); ++n) {
          const int64_t at = (b * c.sk + key[n]) * c.hk + hk;
          const S w = std::exp(s[n] - r.lse[lse_at]);
          S dp = 0;
          for (int64_t e = 0; e < c.dv; ++e) {
            const S g = static_cast<S>(p.do_at[size(row * c.dv + e)]);
            dp += g * static_cast<S>(p.v_at[size(at * c.dv + e)]);
            r.dv[size(at * c.dv + e)] += operand(w * keep[n]) * g;
          }
          const S db = w * (dp * keep[n] - delta);
          r.dbias[size(p.bias_at(b, head, i, key[n]))] += db;
          const S ds =
              operand(db * slope[n] * static_cast<S>(1 / std::sqrt(static_cast<double>(c.d))));
          for (int64_t e = 0; e < c.d; ++e) {
            r.dq[size(row * c.d + e)] += ds * static_cast<S>(p.k_at[size(at * c.d + e)]);
            r.dk[size(at * c.d + e)] += ds * static_cast<S>(p.q_at[size(row * c.d + e)]);
          }
        }
      }
  return r;
}

// Takes, of two naive results, element by element, the one farther from the truth.
inline void take_farther(const std::vector<double>& truth, const std::vector<float>& other,
                         std::vector<float>& naive) {
  for (size_t i = 0; i < truth.size(); ++i)
    if (std::fabs(double{other[i]} - truth[i]) > std::fabs(double{naive[i]} - truth[i]))
      naive[i] = other[i];
}
inline void take_farther(const Result4<double>& truth, const Result4<float>& other,
                         Result4<float>& naive) {
  take_farther(truth.o, other.o, naive.o), take_farther(truth.lse, other.lse, naive.lse);
  take_farther(truth.dq, other.dq, naive.dq), take_farther(truth.dk, other.dk, naive.dk);
  take_farther(truth.dv, other.dv, naive.dv);
  take_farther(truth.dbias, other.dbias, naive.dbias);
}

// How far a kernel's tensor is from the truth, and how far it may be: twice as far as the naive
// loops are, and the floor that roundings give.
struct Closeness {
  double error = 0, naive = 0, floor = 0;
  double allowed() const { return 2 * naive + floor; }
};

// Error at most twice the naive f32 loops', plus roundings of the stored inputs and outputs, plus
// (where scores are large) what rounding a score does to a weight: `sharpness`, the largest score
// in units of 1, times epsilon. NaN exactly where the definition has one.
template <class V, class W>
void expect_close(const Tensor& got, const V& truth, const W& naive, DType dtype,
                  const std::string& what, double sharpness = 0, Closeness* closeness = nullptr) {
  Closeness c;
  double largest = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    const double x = got.at(static_cast<int64_t>(i));
    if (std::isinf(truth[i])) {
      ASSERT_EQ(x, truth[i]) << what;
      continue;
    }
    ASSERT_EQ(std::isnan(x), std::isnan(truth[i])) << what << " at " << i << ": " << x;
    if (std::isnan(x)) continue;
    c.error = std::max(c.error, std::fabs(x - truth[i]));
    largest = std::max(largest, std::fabs(truth[i]));
    c.naive = std::max(c.naive, std::fabs(static_cast<double>(naive[i]) - truth[i]));
  }
  c.floor = (2 * epsilon(dtype) + sharpness * epsilon(DType::kF32)) * std::max(largest, 1.0);
  EXPECT_LE(c.error, c.allowed()) << what;
  if (closeness != nullptr) *closeness = c;
}

}  // namespace tegula::testing
