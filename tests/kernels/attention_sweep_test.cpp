// Attention's kernels on many random cases: odd sizes, one query, one key, empty sequences,
// head_dim 1 to 256, any strides, NaN where nobody looks, large scores; and on some of the widths
// and lengths that models have. Equal bits with 1, 2, 3 and 7 threads.
//
// TEGULA_SWEEP=2400 runs so many cases instead of the quick 160 and prints what they covered (the
// rows of bench/results/attention_sweep.json), TEGULA_SWEEP_FROM=N begins at case N: each case is
// its number's own.
#include <cmath>
#include <cstdlib>
#include <map>

#include "tegula/kernels/cpu/common/attention_amx.h"
#include "tests/kernels/attention_problem.h"

namespace tegula {
namespace {
using testing::Case;
using testing::Closeness;
using testing::define;
using testing::expect_close;
using testing::pick;
using testing::Problem;
using testing::Rng;
using testing::Tensor;

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

int64_t head_dim(Rng& rng) {
  constexpr int64_t kEdges[] = {1,  2,  3,  7,  8,  15,  16,  17,  31,  32,
                                33, 48, 64, 80, 96, 127, 128, 129, 192, 255};
  return pick(rng, 0, 2) == 0 ? pick(rng, 1, 256) : kEdges[pick(rng, 0, 19)];
}

int64_t work(const Case& c) { return c.b * c.hk * c.g * c.sq * c.sk * (c.d + c.dv); }

Case random_case(Rng& rng) {
  Case c;
  c.b = pick(rng, 1, 3), c.hk = pick(rng, 1, 3), c.g = pick(rng, 1, 5);
  c.sq = pick(rng, 0, 2) == 0 ? pick(rng, 1, 3) : pick(rng, 1, 260);
  const int64_t kind = pick(rng, 0, 5);
  c.sk = kind == 0 ? 1 : kind == 1 ? c.sq : kind == 2 ? pick(rng, 400, 1700) : pick(rng, 1, 260);
  c.d = head_dim(rng), c.dv = pick(rng, 0, 3) ? c.d : head_dim(rng);
  const auto one_in = [&](int n) { return pick(rng, 1, n) == 1; };
  c.causal = one_in(2), c.bias = one_in(4), c.alibi = one_in(5), c.dlse = one_in(3);
  if (one_in(4)) c.left = pick(rng, 0, 100);
  if (one_in(5)) c.right = pick(rng, 0, 100);
  if (one_in(5)) c.softcap = 5;
  if (one_in(4)) c.dropout = 0.25;
  c.dtype = one_in(4) ? DType::kBF16 : one_in(5) ? DType::kF16 : DType::kF32;
  if (one_in(4)) c.varlen = true, c.b = 1, c.sequences = pick(rng, 1, 6);
  // Within a budget of the definition's loops, by less of what there is most.
  while (work(c) > 600'000) {
    int64_t& most = c.sq >= c.sk / 4 && c.sq > 1 ? c.sq
                    : c.b * c.hk * c.g > 1       ? (c.g > 1    ? c.g
                                                    : c.hk > 1 ? c.hk
                                                               : c.b)
                    : c.d > 8                    ? c.d
                                                 : c.sk;
    most = (most + 1) / 2;
    if (c.dv > 4 * c.d) c.dv = c.d;
  }
  return c;
}

// As wide as models' heads are, with several blocks of queries and of keys, seldom more than one
// span of keys; heads are few instead, for the definition's sake.
void give_real_width(Case& c, Rng& rng) {
  constexpr int64_t kWidths[] = {64, 80, 96, 128, 256};
  c.d = kWidths[pick(rng, 0, 4)], c.dv = pick(rng, 0, 3) ? c.d : kWidths[pick(rng, 0, 4)];
  c.sq = pick(rng, 0, 3) ? pick(rng, 140, 220) : pick(rng, 220, 330);
  const int64_t kind = pick(rng, 0, 7);
  c.sk = kind == 0 ? pick(rng, 530, 700) : kind < 4 ? c.sq : pick(rng, 140, 330);
  while (work(c) > 12'000'000 && c.b * c.hk * c.g > 1) (c.b > 1 ? c.b : c.hk > 1 ? c.hk : c.g) -= 1;
  while (work(c) > 12'000'000) c.sq -= 10;
}

// Case `i`; one of eight has a real width.
Case case_of(int64_t i, Rng& rng) {
  Case c = random_case(rng);
  if (i % 8 == 7) give_real_width(c, rng);
  return c;
}

// Large scores, and NaN in places: in rows and keys that nobody sees (whose gradients are zeros),
// or in a key that some do.
void disturb(Problem& p, Rng& rng) {
  const Case& c = p.c;
  const bool is_large = pick(rng, 0, 5) == 0;
  for (int64_t i = 0; is_large && i < p.q.numel(); ++i)
    p.q.put(i, 200 * p.q_at[static_cast<size_t>(i)]);
  const int64_t kind = pick(rng, 0, 3);
  const auto spoil = [&](Tensor& t, int64_t rows, int64_t row, int64_t heads, int64_t width) {
    for (int64_t b = 0; b < c.b; ++b)
      for (int64_t i = 0; i < heads * width; ++i) t.put((b * rows + row) * heads * width + i, NAN);
  };
  if (kind == 0) {
    for (int64_t j = 0, d; j < c.sk; ++j) {
      bool seen = false;
      for (int64_t i = 0; i < c.sq && !seen; ++i) seen = p.visible(i, j, d);
      if (!seen) spoil(p.k, c.sk, j, c.hk, c.d), spoil(p.v, c.sk, j, c.hk, c.dv);
    }
    for (int64_t i = 0, d; i < c.sq; ++i) {
      bool sees = false;
      for (int64_t j = 0; j < c.sk && !sees; ++j) sees = p.visible(i, j, d);
      if (!sees) spoil(p.q, c.sq, i, c.hk * c.g, c.d), spoil(p.d_o, c.sq, i, c.hk * c.g, c.dv);
    }
  } else if (kind == 1) {
    const int64_t j = pick(rng, 0, c.sk - 1);
    pick(rng, 0, 1) ? spoil(p.k, c.sk, j, c.hk, c.d) : spoil(p.v, c.sk, j, c.hk, c.dv);
  }
  p.settle();
}

// The bits of what a kernel wrote, NaN all alike.
std::vector<double> values(std::initializer_list<const Tensor*> tensors) {
  std::vector<double> all;
  for (const Tensor* t : tensors)
    for (int64_t i = 0; i < t->numel(); ++i) {
      const double x = t->at(i);
      all.push_back(std::isnan(x) ? 12345.678 : x);
    }
  return all;
}

struct Kernels {
  const char *forward, *backward;
  void (*kernel::IsaTable::*forward_entry)(const KernelCall&);
  void (*kernel::IsaTable::*backward_entry)(const KernelCall&);
  bool in_tiles;
  int64_t row_block, key_block;
};
const Kernels kFlash = {"attention_flash",
                        "attention_bwd_flash",
                        &kernel::IsaTable::attention_fwd,
                        &kernel::IsaTable::attention_bwd,
                        false,
                        kernel::kRowBlock,
                        kernel::kKeyBlock};
const Kernels kTiles = {"attention_amx",
                        "attention_bwd_amx",
                        &kernel::IsaTable::attention_fwd_amx,
                        &kernel::IsaTable::attention_bwd_amx,
                        true,
                        kernel::kAmxRowBlock,
                        kernel::kAmxKeyBlock};

// The cases' coverage, by kernel and dtype.
class Coverage {
 public:
  void add(const Kernels& kernels, const Case& c, std::span<const Closeness> tensors) {
    const bool many_rows = c.sq * c.g > kernels.row_block, many_keys = c.sk > kernels.key_block;
    const int64_t d = std::max(c.d, c.dv);
    const std::pair<const char*, bool> facts[] = {
        {"cases", true},
        {"causal", c.causal},
        {"window", c.left >= 0 || c.right >= 0},
        {"grouped_heads", c.g > 1},
        {"sequences", c.varlen},
        {"bias", c.bias},
        {"alibi", c.alibi},
        {"softcap", c.softcap > 0},
        {"dropout", c.dropout > 0},
        {"dlse", c.dlse},
        {"d_to_32", d <= 32},
        {"d_33_to_64", d > 32 && d <= 64},
        {"d_65_to_128", d > 64 && d <= 128},
        {"d_129_to_256", d > 128},
        {"several_query_blocks", many_rows},
        {"several_key_blocks", many_keys},
        {"several_of_both", many_rows && many_keys},
        {"and_d_from_64", many_rows && many_keys && std::min(c.d, c.dv) >= 64}};
    Row& row = rows_[cat("\"kernel\": \"", kernels.forward, ", ", kernels.backward,
                         "\", \"dtype\": \"", dtype_name(c.dtype), "\"")];
    row.counts.resize(std::size(facts));
    for (size_t i = 0; i < std::size(facts); ++i)
      row.counts[i].first = facts[i].first, row.counts[i].second += facts[i].second;
    for (const Closeness& t : tensors) {
      ++row.tensors, row.beyond_naive += t.error > 2 * t.naive;
      row.too_far += t.error > t.allowed();
      if (t.allowed() > 0) row.of_allowed = std::max(row.of_allowed, t.error / t.allowed());
      if (t.error > t.floor && t.naive > 0)
        row.of_naive = std::max(row.of_naive, (t.error - t.floor) / t.naive);
    }
  }
  // One JSON object a line.
  void print() const {
    for (const auto& [name, row] : rows_) {
      std::printf("{%s", name.c_str());
      for (const auto& [fact, n] : row.counts)
        std::printf(", \"%s\": %lld", fact, static_cast<long long>(n));
      std::printf(
          ", \"tensors\": %lld, \"beyond_twice_naive\": %lld, \"too_far\": %lld, "
          "\"worst_over_allowed\": %.3f, "
          "\"worst_less_floor_over_naive\": %.3f}\n",
          static_cast<long long>(row.tensors), static_cast<long long>(row.beyond_naive),
          static_cast<long long>(row.too_far), row.of_allowed, row.of_naive);
    }
  }

 private:
  struct Row {
    std::vector<std::pair<const char*, int64_t>> counts;
    // beyond_naive: roundings' floor was needed; too_far: that was not enough.
    int64_t tensors = 0, beyond_naive = 0, too_far = 0;
    double of_allowed = 0, of_naive = 0;
  };
  std::map<std::string, Row> rows_;
};

constexpr int kSomeThreads[] = {1, 2, 3, 7};
struct How {
  std::span<const int> threads = kSomeThreads;
  bool is_disturbed = true;
  Coverage* coverage = nullptr;
};

using Entry = void (*kernel::IsaTable::*)(const KernelCall&);
void run_same_bits(const char* kernel, Entry entry, const Attrs& attrs,
                   std::span<const TensorRef> in, std::span<const TensorRef> out,
                   std::initializer_list<const Tensor*> tensors, std::span<const Isa> isas,
                   std::span<const int> thread_counts) {
  const KernelDef& def = *find_kernel(kernel);
  std::vector<double> first;
  int64_t executed_flops = 0;
  for (int threads : thread_counts) {
    for (const Tensor* t : tensors) const_cast<Tensor*>(t)->fill(777);
    const auto counted = testing::run_kernel(def, attrs, in, out, threads);
    const auto all = values(tensors);
    if (first.empty()) first = all, executed_flops = counted.executed_flops;
    ASSERT_EQ(first, all) << kernel << " x" << threads;
    EXPECT_EQ(executed_flops, counted.executed_flops) << kernel << " x" << threads;
  }
  for (Isa isa : isas) {
    const kernel::IsaTable* table = kernel::isa_table_of(isa);
    if (table == nullptr) continue;
    for (const Tensor* t : tensors) const_cast<Tensor*>(t)->fill(777);
    testing::run_kernel(def, attrs, in, out, 3, table->*entry);
    ASSERT_EQ(first, values(tensors)) << kernel << " " << isa_name(isa);
  }
}

int failures() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  int n = 0;
  for (int i = 0; i < test->result()->total_part_count(); ++i)
    n += test->result()->GetTestPartResult(i).failed();
  return n;
}

void check(const Kernels& kernels, const Case& c, Rng& rng, const How& how = {}) {
  const int failed_before = failures();
  Problem p(c, rng);
  if (how.is_disturbed) disturb(p, rng);
  const auto truth = define<double>(p);
  const double sharpness = truth.sharpness;
  auto naive = define<float>(p);
  // Where one key has nearly all the weight, gradients cancel, and either rounding may be lucky.
  if (kernels.in_tiles) take_farther(truth, define<float>(p, true), naive);
  // Other sets, as far as these take no long time.
  constexpr Isa kOthers[] = {Isa::kAvx2, Isa::kPortable};
  const std::span<const Isa> isas(kOthers, work(c) < 60'000 ? 2 : 1);
  std::vector<Closeness> close;
  const auto expect = [&](const Tensor& got, const auto& want, const auto& naive_one,
                          const char* what) {
    expect_close(got, want, naive_one, got.ref().dtype, what, sharpness, &close.emplace_back());
  };
  Tensor o(c.dtype, {c.b, c.sq, c.hk * c.g, c.dv}, rng, false);
  Tensor lse(DType::kF32, {c.b, c.hk * c.g, c.sq}, rng, false);
  std::vector<TensorRef> in = {p.q.ref(), p.k.ref(), p.v.ref()};
  p.add_options(in);
  Attrs attrs = c.attrs();
  const TensorRef results[] = {o.ref(), lse.ref()};
  run_same_bits(kernels.forward, kernels.forward_entry, attrs, in, results, {&o, &lse}, isas,
                how.threads);
  if (failures() > failed_before) return;
  expect(o, truth.o, naive.o, "o");
  expect(lse, truth.lse, naive.lse, "lse");

  Tensor dq(c.dtype, {c.b, c.sq, c.hk * c.g, c.d}, rng, false);
  Tensor dk(c.dtype, {c.b, c.sk, c.hk, c.d}, rng, false);
  Tensor dv(c.dtype, {c.b, c.sk, c.hk, c.dv}, rng, false);
  const TensorRef bias = p.bias.ref();
  Tensor dbias(c.dtype, std::vector<int64_t>(bias.shape, bias.shape + 4), rng, false);
  in = {p.q.ref(), p.k.ref(), p.v.ref(), o.ref(), lse.ref(), p.d_o.ref()};
  p.add_options(in);
  if (c.dlse) attrs.set("dlse", true), in.push_back(p.dlse.ref());
  std::vector<TensorRef> out = {dq.ref(), dk.ref(), dv.ref()};
  if (c.bias) out.push_back(dbias.ref());
  run_same_bits(kernels.backward, kernels.backward_entry, attrs, in, out, {&dq, &dk, &dv, &dbias},
                isas, how.threads);
  if (failures() > failed_before) return;
  expect(dq, truth.dq, naive.dq, "dq");
  expect(dk, truth.dk, naive.dk, "dk");
  expect(dv, truth.dv, naive.dv, "dv");
  if (c.bias) expect(dbias, truth.dbias, naive.dbias, "dbias");
  if (how.coverage != nullptr) how.coverage->add(kernels, c, close);
}

// `n` cases unless TEGULA_SWEEP says how many; `change` makes them ones that the kernels take.
void sweep(const Kernels& kernels, int64_t n, void (*change)(Case&)) {
  const bool is_asked = std::getenv("TEGULA_SWEEP") != nullptr;
  const int64_t first = from_environment("TEGULA_SWEEP_FROM", 0);
  const int64_t end = first + from_environment("TEGULA_SWEEP", n);
  Coverage coverage;
  for (int64_t i = first; i < end; ++i) {
    Rng rng(static_cast<unsigned>(i));
    Case c = case_of(i, rng);
    change(c);
    SCOPED_TRACE(cat("case ", i, ": ", c.name()));
    check(kernels, c, rng, {.coverage = &coverage});
    if (::testing::Test::HasFailure() && !is_asked) return;
  }
  if (is_asked) coverage.print();
}

TEST(AttentionSweep, ErrorAtMostTwiceTheNaiveAndEqualBits) {
  sweep(kFlash, 160, [](Case&) {});
}

TEST(AttentionSweep, InTilesErrorAtMostTwiceTheNaiveAndEqualBits) {
  sweep(kTiles, 60, [](Case& c) {
    c.dtype = DType::kBF16;
    c.softcap = c.dropout = 0, c.bias = c.alibi = false;
  });
}

// Executed FLOPs depended on the threads where rows of a block were of sequences far apart.
TEST(AttentionSweep, GapsBetweenSequencesAreNoWork) {
  for (const int64_t i : {1574, 1943}) {
    Rng rng(static_cast<unsigned>(i));
    const Case c = case_of(i, rng);
    SCOPED_TRACE(cat("case ", i, ": ", c.name()));
    // Should cases be drawn otherwise one day: several sequences in a block of rows, beyond a span.
    ASSERT_TRUE(c.varlen && c.sequences > 1 && c.sk > kernel::kKeySpan && c.sq < 42 * c.sequences);
    check(kFlash, c, rng);
  }
}

// Widths and lengths that models have, each mask on each of them, several blocks of queries and of
// keys, in every dtype.
TEST(AttentionSweep, RealWidthsErrorAtMostTwiceTheNaiveAndEqualBits) {
  constexpr int kThreads[] = {1, 3};
  constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kF16 = DType::kF16;
  struct Wide {
    int64_t d, sq, sk, hk, g;
    bool causal;
    int64_t left, right;
    DType dtype;
  };
  constexpr Wide kWide[] = {
      {64, 330, 330, 1, 2, true, -1, -1, kF32},    {64, 200, 330, 1, 3, true, 150, -1, kF32},
      {128, 256, 256, 2, 1, false, -1, -1, kF32},  {128, 310, 200, 1, 1, true, -1, -1, kF32},
      {128, 200, 640, 1, 1, true, -1, -1, kF32},   {256, 200, 200, 1, 2, true, -1, -1, kF32},
      {256, 150, 300, 1, 1, false, 120, 90, kF32}, {64, 300, 300, 1, 2, false, -1, -1, kBF16},
      {128, 257, 257, 1, 2, true, -1, -1, kBF16},  {128, 200, 320, 1, 1, true, 130, -1, kBF16},
      {256, 210, 210, 1, 1, true, -1, -1, kBF16},  {64, 330, 330, 1, 2, true, 200, -1, kF16},
      {128, 230, 310, 1, 2, true, -1, -1, kF16},   {256, 220, 220, 1, 1, false, -1, -1, kF16}};
  for (const Kernels* kernels : {&kFlash, &kTiles})
    for (size_t i = 0; i < std::size(kWide); ++i) {
      const Wide& w = kWide[i];
      if (kernels->in_tiles && w.dtype != DType::kBF16) continue;
      Rng rng(static_cast<unsigned>(i));
      Case c;
      c.sq = w.sq, c.sk = w.sk, c.hk = w.hk, c.g = w.g, c.d = c.dv = w.d;
      c.causal = w.causal, c.left = w.left, c.right = w.right, c.dtype = w.dtype;
      SCOPED_TRACE(cat(kernels->forward, " ", i, ": ", c.name()));
      check(*kernels, c, rng, {.threads = kThreads, .is_disturbed = false});
      if (HasFailure()) return;
    }
}

// Grids of several blocks of rows and columns of keys, the last ones cut off, of one or more pairs;
// threads fewer, as many, and more.
TEST(AttentionSweep, BlocksCutOffAndOneToNineThreads) {
  constexpr int kThreads[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (const Kernels* kernels : {&kFlash, &kTiles})
    for (unsigned i = 0; i < 8; ++i) {
      Rng rng(i);
      Case c;
      c.b = pick(rng, 1, 2), c.hk = pick(rng, 1, 3), c.g = pick(rng, 1, 2);
      c.sq = (128 * pick(rng, 1, 2) + pick(rng, 1, 127)) / c.g;
      c.sk = 128 * pick(rng, 2, 4) + pick(rng, 1, 127);
      c.d = pick(rng, 1, 9), c.dv = pick(rng, 1, 9);
      c.causal = i % 2 == 1, c.dlse = i % 3 == 0;
      if (i % 4 == 2) c.left = pick(rng, 0, 200);
      if (kernels->in_tiles) c.dtype = DType::kBF16;
      SCOPED_TRACE(cat(kernels->backward, " ", i, ": ", c.name()));
      check(*kernels, c, rng, {.threads = kThreads});
      if (HasFailure()) return;
    }
}

}  // namespace
}  // namespace tegula
