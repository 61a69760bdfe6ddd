// Attention over keys in pages against the same kernel on each sequence alone, its keys side by
// side: the same bits, whatever the pages, their order, the companions, the threads and how many of
// its queries come at once. What lies in pages beyond a sequence's keys is NaN.
#include "tegula/kernels/cpu/isa/table.h"
#include "tests/kernels/attention_problem.h"

namespace tegula {
namespace {
using testing::Case;
using testing::pick;
using testing::Problem;
using testing::Rng;
using testing::Tensor;
using Launch = void (*)(const KernelCall&);

std::vector<double> values(const Tensor& t) {
  std::vector<double> out;
  for (int64_t i = 0; i < t.numel(); ++i) out.push_back(t.at(i));
  return out;
}

struct Bits {
  std::vector<double> o, lse;
  int64_t math_flops = 0;
};

Tensor in_a_row(const Tensor& from) {
  const TensorRef& t = from.ref();
  Tensor to(t.dtype, {t.shape, t.shape + t.rank});
  for (int64_t i = 0; i < to.numel(); ++i) to.put(i, from.at(i));
  return to;
}

// A sequence alone: q [1, sq, h, d], k [1, sk, hk, d].
Bits alone(const Problem& p, const char* kernel, Launch launch) {
  const Case& c = p.c;
  Tensor o(c.dtype, {1, c.sq, c.hk * c.g, c.dv}), lse(DType::kF32, {1, c.hk * c.g, c.sq});
  const Tensor q = in_a_row(p.q), k = in_a_row(p.k), v = in_a_row(p.v);
  const TensorRef in[] = {q.ref(), k.ref(), v.ref()}, out[] = {o.ref(), lse.ref()};
  const auto have = testing::run_kernel(*find_kernel(kernel), c.attrs(), in, out, 1, launch);
  return {values(o), values(lse), have.math_flops};
}

// Some sequences in one call: the last `take` queries of each.
class Pages {
 public:
  Pages(std::vector<Problem>& all, int64_t page, bool is_packed, std::vector<int64_t> take,
        Rng& rng)
      : all_(all), c_(all[0].c), is_packed_(is_packed), take_(std::move(take)) {
    const auto n = static_cast<int64_t>(all.size());
    int64_t most = 1, rows = 0;
    for (const Problem& p : all) most = std::max(most, (p.c.sk + page - 1) / page);
    for (const int64_t t : take_) cu_.push_back(rows), rows += t;
    cu_.push_back(rows);
    const int64_t h = c_.hk * c_.g, b = is_packed ? 1 : n, sq = is_packed ? rows : take_[0];
    attrs_ = c_.attrs();
    attrs_.set("paged", true);
    if (is_packed) attrs_.set("varlen", true);
    add({c_.dtype, {b, sq, h, c_.d}});
    add({c_.key_dtype(), {n * most + 1, page, c_.hk, c_.d}});
    add({c_.key_dtype(), {n * most + 1, page, c_.hk, c_.dv}});
    if (is_packed) add({DType::kI32, {n + 1}});
    add({DType::kI32, {n}}), add({DType::kI32, {n, most}});
    o_.emplace_back(c_.dtype, std::vector<int64_t>{b, sq, h, c_.dv});
    o_.emplace_back(DType::kF32, std::vector<int64_t>{b, h, sq});
    fill(page, most, rng);
  }

  void check(const char* kernel, Launch launch, const std::vector<Bits>& want, int threads) {
    const TensorRef out[] = {o_[0].ref(), o_[1].ref()};
    std::vector<TensorRef> in;
    for (const Tensor& t : in_) in.push_back(t.ref());
    for (Tensor& t : o_) t.fill(NAN);
    const auto have = testing::run_kernel(*find_kernel(kernel), attrs_, in, out, threads, launch);
    EXPECT_GE(have.executed_flops, have.math_flops);
    const int64_t h = c_.hk * c_.g, sq = out[0].shape[1];
    for (size_t s = 0; s < all_.size(); ++s) {
      const int64_t all = all_[s].c.sq, first = all - take_[s];
      for (int64_t i = 0; i < take_[s]; ++i)
        for (int64_t head = 0; head < h; ++head) {
          const int64_t row = is_packed_ ? cu_[s] + i : static_cast<int64_t>(s) * sq + i;
          for (int64_t e = 0; e < c_.dv; ++e)
            ASSERT_EQ(o_[0].at((row * h + head) * c_.dv + e),
                      want[s].o[static_cast<size_t>(((first + i) * h + head) * c_.dv + e)])
                << "sequence " << s << ", query " << i << ", head " << head;
          const int64_t of_lse =
              is_packed_ ? head * sq + row : (static_cast<int64_t>(s) * h + head) * sq + i;
          ASSERT_EQ(o_[1].at(of_lse), want[s].lse[static_cast<size_t>(head * all + first + i)]);
        }
    }
  }

 private:
  void add(Tensor t) { in_.push_back(std::move(t)); }
  void fill(int64_t page, int64_t most, Rng& rng) {
    const auto n = static_cast<int64_t>(all_.size());
    std::vector<int64_t> order(static_cast<size_t>(n * most + 1));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng);
    in_[1].fill(NAN), in_[2].fill(NAN);
    const size_t lengths = in_.size() - 2, table = in_.size() - 1;
    for (size_t s = 0; s < all_.size(); ++s) {
      const Problem& p = all_[s];
      const auto at = static_cast<int64_t>(s);
      if (is_packed_) in_[3].put(at, static_cast<double>(cu_[s]));
      in_[lengths].put(at, static_cast<double>(p.c.sk));
      for (int64_t i = 0; i < most; ++i)
        in_[table].put(at * most + i,
                       static_cast<double>(order[static_cast<size_t>(at * most + i)]));
      const auto row_of = [&](int64_t j) {
        return order[static_cast<size_t>(at * most + j / page)] * page + j % page;
      };
      copy_rows(p.k, 1, c_.hk * c_.d, p.c.sk, row_of),
          copy_rows(p.v, 2, c_.hk * c_.dv, p.c.sk, row_of);
      const int64_t width = c_.hk * c_.g * c_.d, first = p.c.sq - take_[s];
      for (int64_t i = 0; i < take_[s] * width; ++i)
        in_[0].put(cu_[s] * width + i, p.q.at(first * width + i));
    }
    if (is_packed_) in_[3].put(n, static_cast<double>(cu_.back()));
  }
  template <class F>
  void copy_rows(const Tensor& from, size_t to, int64_t width, int64_t rows, const F& row_of) {
    for (int64_t j = 0; j < rows; ++j)
      for (int64_t e = 0; e < width; ++e)
        in_[to].put(row_of(j) * width + e, from.at(j * width + e));
  }

  std::vector<Problem>& all_;
  Case c_;
  bool is_packed_;
  std::vector<int64_t> take_, cu_;
  Attrs attrs_;
  std::vector<Tensor> in_, o_;
};

std::vector<Problem> sequences(Case c, int64_t n, bool is_one_query, Rng& rng) {
  std::vector<Problem> all;
  for (int64_t s = 0; s < n; ++s) {
    c.sk = pick(rng, 0, 3) ? pick(rng, 1, 150) : pick(rng, 400, 1100);
    c.sq = is_one_query ? 1 : pick(rng, 1, std::min<int64_t>(c.sk, 100));
    all.emplace_back(c, rng);
  }
  return all;
}

void check(const char* kernel, Launch kernel::IsaTable::*launch, const Case& c, bool is_one_query,
           Rng& rng) {
  SCOPED_TRACE(cat(kernel, " ", c.name()));
  const int64_t n = pick(rng, 1, 5);
  std::vector<Problem> all = sequences(c, n, is_one_query, rng);
  const int64_t pages[] = {64, 128, 192};
  // Or each sequence a page of its own, of any size.
  const int64_t page = pick(rng, 0, 3) ? pages[pick(rng, 0, 2)] : pick(rng, 1100, 1200);
  std::vector<int64_t> take;
  for (const Problem& p : all) take.push_back(pick(rng, 0, 2) ? p.c.sq : pick(rng, 0, p.c.sq));
  if (is_one_query) take.assign(all.size(), 1);
  Pages x(all, page, !is_one_query, take, rng);
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    const kernel::IsaTable* table = kernel::isa_table_of(isa);
    if (table == nullptr) continue;
    std::vector<Bits> want;
    for (const Problem& p : all) want.push_back(alone(p, kernel, table->*launch));
    for (const int threads : {1, 2, 5}) {
      SCOPED_TRACE(cat(isa_name(isa), " x", threads));
      x.check(kernel, table->*launch, want, threads);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// By seed: all in one dtype, or queries in f32 beside halves.
Case case_of(unsigned seed, Rng& rng) {
  const DType dtypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  Case c;
  if (seed % 5 >= 3)
    c.narrow = dtypes[seed % 5 - 2];
  else
    c.dtype = dtypes[seed % 5];
  c.hk = pick(rng, 1, 3), c.g = pick(rng, 1, 4);
  c.d = pick(rng, 0, 1) ? 32 * pick(rng, 1, 3) : pick(rng, 1, 40), c.dv = pick(rng, 1, 70);
  c.causal = true;
  if (pick(rng, 0, 2) == 0) c.left = pick(rng, 0, 200);
  return c;
}

TEST(AttentionPages, PackedQueriesHaveTheBitsOfEachSequenceAlone) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    Case c = case_of(seed, rng);
    if (pick(rng, 0, 3) == 0) c.softcap = 5;
    check("attention_flash", &kernel::IsaTable::attention_fwd, c, false, rng);
    if (HasFailure()) return;
  }
}

TEST(AttentionPages, OneQueryEachHasTheBitsOfEachSequenceAlone) {
  for (unsigned seed = 0; seed < 75; ++seed) {
    Rng rng(seed);
    const Case c = case_of(seed, rng);
    check("attention_decode", &kernel::IsaTable::attention_decode, c, true, rng);
    check("attention_flash", &kernel::IsaTable::attention_fwd, c, true, rng);
    if (HasFailure()) return;
  }
}

TEST(AttentionPages, InTilesTheBitsAreThoseOfEachSequenceAlone) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    Rng rng(seed);
    Case c = case_of(1, rng);  // bf16
    check("attention_amx", &kernel::IsaTable::attention_fwd_amx, c, false, rng);
    c.d = (c.d + 31) / 32 * 32;
    check("attention_decode_amx", &kernel::IsaTable::attention_decode_amx, c, true, rng);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tegula
