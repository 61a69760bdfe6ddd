// Positions in runs: a part of a row, or some of its stripes, against the whole row whose mask is
// written out as a bias; and all parts of the keys joined by their log-sum-exps.
#include <gtest/gtest.h>

#include <cmath>

#include "tegula/ops/attention.h"
#include "tegula/tegula.h"

namespace tegula {
namespace {

constexpr int64_t kTokens = 24, kHeads = 2, kWidth = 3;
using Ints = std::vector<int64_t>;

HostTensor random(uint64_t seed) {
  HostTensor t({DType::kF64, {1, kTokens, kHeads, kWidth}});
  for (int64_t i = 0; i < t.numel(); ++i)
    t.put(i, 2 * philox_uniform(seed, 1, static_cast<uint64_t>(i)) - 1);
  return t;
}

// Rows of a tensor [1, tokens, heads, width], in that order.
HostTensor rows(const HostTensor& t, const Ints& which) {
  constexpr int64_t kRow = kHeads * kWidth;
  HostTensor r({t.type.dtype, {1, static_cast<int64_t>(which.size()), kHeads, kWidth}});
  for (int64_t i = 0; i < r.numel(); ++i)
    r.put(i, t.at(which[static_cast<size_t>(i / kRow)] * kRow + i % kRow));
  return r;
}

Ints positions(const Ints& runs) {
  Ints all;
  for (size_t r = 0; r < runs.size(); r += 3)
    for (int64_t i = 0; i < runs[r + 2]; ++i) all.push_back(runs[r] + i * runs[r + 1]);
  return all;
}

struct Out {
  HostTensor o, lse;
};
template <class F>
Out run(const std::vector<HostTensor>& in, F&& fn) {
  Module m;
  Builder b(m, "f");
  std::vector<Var> x;
  for (const HostTensor& t : in) x.push_back(b.param(cat("x", x.size()), t.type));
  const Attention a = fn(x);
  b.result("o", a.o), b.result("lse", a.lse);
  const auto f = b.finish_into_module();
  EXPECT_TRUE(f.ok()) << f.error().to_string();
  auto out = interpret(m, m[*f], in);
  EXPECT_TRUE(out.ok()) << out.error().to_string();
  return {std::move((*out)[0]), std::move((*out)[1])};
}

// Pieces of a row of 24: parts, stripes, pieces of a zigzag, and runs of different strides.
const Ints kPieces[] = {{0, 1, 8}, {8, 1, 16},          {0, 3, 8},  {1, 3, 8},
                        {2, 3, 8}, {0, 1, 4, 20, 1, 4}, {4, 1, 16}, {1, 2, 3, 9, 5, 3}};

TEST(AttentionRuns, AreTheWholeWithItsMask) {
  const HostTensor q = random(1), k = random(2), v = random(3);
  for (const int64_t window : {-1, 5})
    for (const Ints& of_q : kPieces)
      for (const Ints& of_k : kPieces) {
        const Ints at_q = positions(of_q), at_k = positions(of_k);
        HostTensor mask(
            {DType::kF64,
             {1, 1, static_cast<int64_t>(at_q.size()), static_cast<int64_t>(at_k.size())}});
        int64_t cell = 0;
        for (const int64_t i : at_q)
          for (const int64_t j : at_k)
            mask.put(cell++, j > i || (window >= 0 && j < i - window) ? -HUGE_VAL : 0);
        std::vector<HostTensor> in = {rows(q, at_q), rows(k, at_k), rows(v, at_k)};
        const Out have = run(in, [&](const std::vector<Var>& x) {
          AttentionOptions o{.is_causal = true, .window_left = window};
          o.q_runs = of_q, o.k_runs = of_k;
          return attention(x[0], x[1], x[2], o);
        });
        in.push_back(mask);
        const Out want = run(in, [&](const std::vector<Var>& x) {
          AttentionOptions o;
          o.bias = x[3];
          return attention(x[0], x[1], x[2], o);
        });
        for (int64_t i = 0; i < want.lse.numel(); ++i) {
          if (std::isinf(want.lse.at(i)))
            ASSERT_EQ(have.lse.at(i), want.lse.at(i));
          else
            ASSERT_NEAR(have.lse.at(i), want.lse.at(i), 1e-12);
        }
        for (int64_t i = 0; i < want.o.numel(); ++i) {
          const int64_t row = i / kWidth, query = row / kHeads, head = row % kHeads;
          if (std::isinf(want.lse.at(head * static_cast<int64_t>(at_q.size()) + query)))
            ASSERT_EQ(have.o.at(i), 0);
          else
            ASSERT_NEAR(have.o.at(i), want.o.at(i), 1e-12);
        }
      }
}

// A ring: queries of one rank meet the keys of all, a stripe or a zigzag piece each.
TEST(AttentionRuns, PartsOfTheKeysJoinToTheWhole) {
  const HostTensor q = random(4), k = random(5), v = random(6);
  const std::vector<std::vector<Ints>> layouts = {
      {{0, 3, 8}, {1, 3, 8}, {2, 3, 8}}, {{0, 1, 4, 20, 1, 4}, {4, 1, 4, 16, 1, 4}, {8, 1, 8}}};
  const auto causal = [](const std::vector<Var>& x) {
    return attention(x[0], x[1], x[2], {.is_causal = true});
  };
  const Out whole = run({q, k, v}, causal);
  for (const auto& layout : layouts)
    for (const Ints& of_q : layout) {
      const Ints at_q = positions(of_q);
      const auto n = static_cast<int64_t>(at_q.size());
      std::vector<Out> parts;
      for (const Ints& of_k : layout)
        parts.push_back(run({rows(q, at_q), rows(k, positions(of_k)), rows(v, positions(of_k))},
                            [&](const std::vector<Var>& x) {
                              AttentionOptions o{.is_causal = true};
                              o.q_runs = of_q, o.k_runs = of_k;
                              return attention(x[0], x[1], x[2], o);
                            }));
      for (int64_t i = 0; i < n * kHeads * kWidth; ++i) {
        const int64_t row = i / kWidth, query = row / kHeads, head = row % kHeads;
        double sum = 0, o = 0;
        for (const Out& p : parts) {
          const double w = std::exp(p.lse.at(head * n + query));
          sum += w, o += w * p.o.at(i);
        }
        const int64_t at = at_q[static_cast<size_t>(query)];
        ASSERT_NEAR(o / sum, whole.o.at((at * kHeads + head) * kWidth + i % kWidth), 1e-12);
        ASSERT_NEAR(std::log(sum), whole.lse.at(head * kTokens + at), 1e-12);
      }
    }
}

}  // namespace
}  // namespace tegula
