#include <gtest/gtest.h>

#include <random>

#include "tegula/ops/common/attention_call.h"
#include "tegula/ops/table.h"

namespace tegula {
namespace {

// The work of a head, counted query by query from what the mask shows.
AttentionWork counted(const AttentionCall& call) {
  AttentionWork w;
  const AttentionMask mask(call);
  std::vector<bool> is_seen(static_cast<size_t>(call.sk), false);
  for (int64_t i = 0; i < call.sq; ++i) {
    const KeyRange r = mask.keys(0, i);
    w.pairs += r.hi - r.lo;
    w.rows += r.hi > r.lo;
    for (int64_t j = r.lo; j < r.hi; ++j) is_seen[static_cast<size_t>(j)] = true;
  }
  for (const bool seen : is_seen) w.keys += seen;
  return w;
}

TEST(AttentionWork, IsWhatTheMaskShows) {
  const auto type = [](int64_t n) { return Type{DType::kF32, {1, n, 1, 2}}; };
  for (const int64_t sq : {0, 1, 2, 5, 9})
    for (const int64_t sk : {0, 1, 3, 6, 9})
      for (int64_t left = -1; left < 10; ++left)
        for (int64_t right = -1; right < 10; ++right)
          for (int64_t offset = -11; offset <= 11; ++offset) {
            const Attrs attrs = {{"scale", 1.0},
                                 {"window_left", left},
                                 {"window_right", right},
                                 {"q_runs", std::vector<int64_t>{offset}}};
            const Type in[] = {type(sq), type(sk), type(sk)};
            const AttentionCall call({&attention_op, &attrs, in, {}, nullptr, {}}, false);
            const AttentionWork have = attention_work(call), want = counted(call);
            ASSERT_TRUE(have.pairs == want.pairs && have.rows == want.rows &&
                        have.keys == want.keys)
                << sq << " queries, " << sk << " keys, window " << left << " " << right << " at "
                << offset << ": " << have.pairs << " " << have.rows << " " << have.keys
                << " instead of " << want.pairs << " " << want.rows << " " << want.keys;
          }
}

// Pairs of a pack of sequences, each of so many queries that end with its keys.
int64_t pairs_of(const std::vector<std::pair<int64_t, int64_t>>& sequences, int64_t left,
                 int64_t right) {
  int64_t pairs = 0;
  for (const auto& [q, k] : sequences)
    for (int64_t i = 0; i < q; ++i) {
      const int64_t aligned = k - q + i;
      const int64_t lo = left < 0 ? 0 : std::max<int64_t>(0, aligned - left);
      const int64_t hi = right < 0 ? k : std::min(k, aligned + right + 1);
      pairs += std::max<int64_t>(0, hi - lo);
    }
  return pairs;
}

TEST(AttentionWork, OfAPackIsABound) {
  std::mt19937 random(7);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  for (int n = 0; n < 20000; ++n) {
    std::vector<std::pair<int64_t, int64_t>> sequences(static_cast<size_t>(1 + below(4)));
    int64_t sq = 0, sk = 0;
    for (auto& [q, k] : sequences) q = below(8), k = below(8), sq += q, sk += k;
    const int64_t left = below(10) - 1, right = below(10) - 1;
    Attrs attrs = {{"scale", 1.0}, {"varlen", true}};
    if (left >= 0) attrs.set("window_left", left);
    if (right >= 0) attrs.set("window_right", right);
    const Type q{DType::kF32, {1, sq, 1, 2}}, k{DType::kF32, {1, sk, 1, 2}};
    const Type offsets{DType::kI32, {static_cast<int64_t>(sequences.size()) + 1}};
    const Type in[] = {q, k, k, offsets, offsets};
    const AttentionCall call({&attention_op, &attrs, in, {}, nullptr, {}}, false);
    const int64_t pairs = pairs_of(sequences, left, right), bound = attention_work(call).pairs;
    // A sequence alone meets it, but where a window ends some keys behind each query.
    const bool is_met = sequences.size() == 1 && right <= 0;
    ASSERT_TRUE(is_met ? pairs == bound : pairs <= bound)
        << pairs << " pairs, bound " << bound << ": " << sq << " queries, " << sk << " keys in "
        << sequences.size() << " sequences, window " << left << " " << right;
  }
}

}  // namespace
}  // namespace tegula
