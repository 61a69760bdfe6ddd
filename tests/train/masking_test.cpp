// Which tokens are masked: as many in every row, in the shares of BERT, by place alone.
#include "tegula/train/masking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tegula/text/tokenizer.h"

namespace tegula {
namespace {

constexpr int32_t kVocab = 50, kMask = 49;

Masking masking() {
  Masking m{.mask = kMask, .vocab_size = kVocab};
  m.is_special.assign(kVocab, false);
  m.is_special[kMask] = true;
  return m;
}

struct Rows {
  std::vector<int32_t> text, tokens, targets;
};

// Rows from `first` on; the text's token at a place of a row is a function of both.
Rows rows(const Masking& m, int64_t first, int64_t n, int64_t seqlen, uint64_t seed = 7,
          Masking::Stream stream = Masking::kSteps) {
  Rows r;
  for (int64_t i = 0; i < n * seqlen; ++i)
    r.text.push_back(static_cast<int32_t>((first * seqlen + i) * 31 % 47));
  r.tokens = r.text, r.targets.resize(r.text.size());
  m.apply(seed, stream, first, seqlen, r.tokens, r.targets);
  return r;
}

TEST(Masking, EveryRowHasItsShareOfTargets) {
  for (const auto& [seqlen, want] : {std::pair{128, 19}, {20, 3}, {12, 2}, {3, 1}, {1, 1}}) {
    const Rows r = rows(masking(), 0, 50, seqlen);
    for (int64_t row = 0; row < 50; ++row) {
      int n = 0;
      for (int64_t i = row * seqlen; i < (row + 1) * seqlen; ++i) {
        const auto at = static_cast<size_t>(i);
        n += r.targets[at] != kIgnored;
        if (r.targets[at] == kIgnored)
          EXPECT_EQ(r.tokens[at], r.text[at]);
        else
          EXPECT_EQ(r.targets[at], r.text[at]);
      }
      EXPECT_EQ(n, want) << "of " << seqlen;
    }
  }
}

// Each within four standard deviations.
TEST(Masking, BecomeMasksRandomTokensOrStayByTheirShares) {
  constexpr int64_t kRows = 4000, kSeqlen = 100;
  const Rows r = rows(masking(), 0, kRows, kSeqlen);
  double chosen = 0, masks = 0, stay = 0, others = 0;
  std::vector<double> by_place(kSeqlen), by_token(kVocab);
  for (size_t i = 0; i < r.text.size(); ++i) {
    if (r.targets[i] == kIgnored) continue;
    ++chosen, ++by_place[i % kSeqlen];
    if (r.tokens[i] == kMask)
      ++masks;
    else if (r.tokens[i] == r.text[i])
      ++stay;
    else
      ++others, ++by_token[static_cast<size_t>(r.tokens[i])];
  }
  EXPECT_EQ(chosen, 0.15 * kRows * kSeqlen);
  const auto expect_share = [](double n, double of, double share) {
    EXPECT_LT(std::abs(n - share * of), 4 * std::sqrt(of * share * (1 - share))) << n / of;
  };
  // A random token may be [MASK], or the one that was there.
  expect_share(masks, chosen, 0.8 + 0.1 / kVocab);
  expect_share(stay, chosen, 0.1 + 0.1 / kVocab);
  expect_share(others, chosen, 0.1 * (1 - 2.0 / kVocab));
  for (const double n : by_place) expect_share(n, kRows, 0.15);
  double square = 0;  // chi squared of 49 tokens: 48 ± 4 · sqrt(96)
  for (int32_t id = 0; id < kMask; ++id) {
    const double want = others / (kVocab - 1);
    square += std::pow(by_token[static_cast<size_t>(id)] - want, 2) / want;
  }
  EXPECT_NEAR(square, 48, 4 * std::sqrt(96));
}

// Neighbours are chosen as often as independent draws are, and other rows, seeds and streams choose
// others.
TEST(Masking, ChoicesSayNothingOfEachOther) {
  constexpr int64_t kRows = 2000, kSeqlen = 40;  // 6 are chosen
  const Masking m = masking();
  const Rows r = rows(m, 0, kRows, kSeqlen);
  double both = 0;
  for (size_t i = 0; i + 1 < r.targets.size(); ++i)
    if (i % kSeqlen + 1 < kSeqlen) both += r.targets[i] >= 0 && r.targets[i + 1] >= 0;
  const double pairs = kRows * (kSeqlen - 1), share = 6.0 / 40 * 5 / 39;
  EXPECT_LT(std::abs(both - pairs * share), 5 * std::sqrt(pairs * share));
  for (const Rows& other :
       {rows(m, 0, kRows, kSeqlen, 8), rows(m, 0, kRows, kSeqlen, 7, Masking::kValidation)}) {
    double same = 0;
    for (size_t i = 0; i < r.targets.size(); ++i)
      same += r.targets[i] >= 0 && other.targets[i] >= 0;
    const double n = kRows * kSeqlen, s = 0.15 * 0.15;
    EXPECT_LT(std::abs(same - n * s), 5 * std::sqrt(n * s));
  }
}

TEST(Masking, ARowIsMaskedAlikeInAnyBatch) {
  const Masking m = masking();
  const Rows all = rows(m, 12, 8, 33);
  for (int64_t row = 0; row < 8; ++row) {
    const Rows one = rows(m, 12 + row, 1, 33);
    EXPECT_TRUE(std::equal(one.tokens.begin(), one.tokens.end(), all.tokens.begin() + row * 33));
    EXPECT_TRUE(std::equal(one.targets.begin(), one.targets.end(), all.targets.begin() + row * 33));
  }
}

TEST(Masking, SpecialTokensStandAroundARowAndStay) {
  Masking m = masking();
  m.before = {48, 47}, m.behind = {46};
  for (const int32_t id : {48, 47, 46, 3}) m.is_special[static_cast<size_t>(id)] = true;
  const Rows r = rows(m, 0, 200, 23);
  for (size_t row = 0; row < 200; ++row) {
    const auto* t = r.tokens.data() + row * 23;
    EXPECT_EQ((std::vector<int32_t>{t[0], t[1], t[22]}), (std::vector<int32_t>{48, 47, 46}));
    int n = 0;
    for (size_t i = 0; i < 23; ++i) {
      const int32_t target = r.targets[row * 23 + i];
      if (target == kIgnored) continue;
      EXPECT_FALSE(m.is_special[static_cast<size_t>(target)]);
      EXPECT_EQ(target, r.text[row * 23 + i - 2]);  // text begins behind them
      ++n;
    }
    EXPECT_EQ(n, 3);  // of 20 tokens of text
  }
}

// A row of nothing but special tokens has no targets.
TEST(Masking, ChoosesAtMostWhatThereIs) {
  Masking m = masking();
  m.is_special.assign(kVocab, true);
  m.is_special[5] = false;
  std::vector<int32_t> tokens = {1, 5, 2, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, targets(14);
  const auto text = tokens;
  m.apply(1, Masking::kSteps, 0, 14, tokens, targets);
  for (size_t i = 0; i < 14; ++i) EXPECT_EQ(targets[i], i == 1 ? 5 : kIgnored);
}

TEST(Masking, IsThatOfTheTokenizer) {
  auto t = *Tokenizer::train("chars", "abc");
  ASSERT_FALSE(masking_of(t, nullptr, 8).ok());
  t.add_special(kMaskToken);
  const auto m = masking_of(t, nullptr, 8);
  ASSERT_TRUE(m.ok()) << m.error().message;
  EXPECT_EQ(m->mask, 3);
  EXPECT_EQ(m->vocab_size, 4);
  EXPECT_EQ(m->is_special, (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(*t.encode("ab[MASK]c"), (std::vector<int32_t>{0, 1, 3, 2}));
  // It is saved, and read again.
  const std::string dir = cat(::testing::TempDir(), "masking_tokenizer");
  ASSERT_TRUE(t.save(dir).ok());
  const auto again = Tokenizer::load(dir);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->special(kMaskToken), 3);
  EXPECT_EQ(*again->encode("ab[MASK]c"), (std::vector<int32_t>{0, 1, 3, 2}));
  const int32_t ids[] = {0, 3, 1};
  EXPECT_EQ(again->decode(ids), t.decode(ids));
}

}  // namespace
}  // namespace tegula
