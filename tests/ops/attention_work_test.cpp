#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tegula
