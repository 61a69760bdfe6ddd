// attention_decode against attention_flash: the same bits, any keys, heads, windows and threads,
// NaN where nobody looks; and what it leaves to others. attention_decode_amx against the
// definition.
#include "tegula/kernels/cpu/isa/table.h"
#include "tests/kernels/attention_problem.h"

namespace tegula {
namespace {
using testing::Case;
using testing::define;
using testing::expect_close;
using testing::pick;
using testing::Problem;
using testing::Rng;
using testing::Tensor;

std::vector<double> values(const Tensor& t) {
  std::vector<double> out;
  for (int64_t i = 0; i < t.numel(); ++i) out.push_back(t.at(i));
  return out;
}

// Values of `from` [b, s, h, d] where another h or none lies beside every key's.
struct Cache {
  Tensor all;
  TensorRef ref;
  Cache(const Tensor& from, int64_t beside)
      : all(from.ref().dtype, {from.ref().shape[0], from.ref().shape[1],
                               from.ref().shape[2] + beside, from.ref().shape[3]}),
        ref(all.ref()) {
    ref.shape[2] -= beside;
    const int64_t row = ref.shape[2] * ref.shape[3], wide = row + beside * ref.shape[3];
    for (int64_t i = 0; i < all.numel(); ++i) all.put(i, NAN);
    for (int64_t i = 0; i < from.numel(); ++i) all.put(i / row * wide + i % row, from.at(i));
  }
};

// NaN in keys and values that a window hides.
void spoil_hidden(const Case& c, Cache& k, Cache& v) {
  if (c.left < 0) return;
  for (Tensor* t : {&k.all, &v.all}) {
    const int64_t wide = t->ref().shape[2] * t->ref().shape[3];
    for (int64_t i = 0; i < t->numel(); ++i)
      if (i / wide % c.sk + c.left + 1 < c.sk) t->put(i, NAN);
  }
}

// A problem whose keys and values lie in caches, and its results.
struct Decoding {
  Problem p;
  Cache k, v;
  Tensor o, lse;
  TensorRef in[3], out[2];
  Attrs attrs;
  Decoding(const Case& c, Rng& rng)
      : p(c, rng),
        k(p.k, pick(rng, 0, 1)),
        v(p.v, pick(rng, 0, 1)),
        o(c.dtype, {c.b, 1, c.hk * c.g, c.dv}, rng, false),
        lse(DType::kF32, {c.b, c.hk * c.g, 1}, rng, false),
        in{p.q.ref(), k.ref, v.ref},
        out{o.ref(), lse.ref()},
        attrs(c.attrs()) {
    spoil_hidden(c, k, v);
  }
  template <class Launch>
  auto run(const char* kernel, int threads, Launch launch) {
    for (int64_t i = 0; i < o.numel(); ++i) o.put(i, NAN);
    return testing::run_kernel(*find_kernel(kernel), attrs, in, out, threads, launch);
  }
};

Tensor in_f32(const Tensor& from) {
  const TensorRef& t = from.ref();
  Tensor to(DType::kF32, {t.shape, t.shape + t.rank});
  for (int64_t i = 0; i < to.numel(); ++i) to.put(i, from.at(i));
  return to;
}

// Queries in f32 beside narrower keys and values: bits are those beside these widened.
void expect_bits_of_widened(Decoding& x, const kernel::IsaTable& table,
                            const std::vector<double>& want_o,
                            const std::vector<double>& want_lse) {
  const Tensor k = in_f32(x.k.all), v = in_f32(x.v.all);
  const TensorRef narrow[] = {x.in[1], x.in[2]};
  for (size_t i : {1, 2}) {
    TensorRef& t = x.in[i];
    const TensorRef whole = (i == 1 ? k : v).ref();
    t.data = whole.data, t.dtype = whole.dtype;
    std::copy_n(whole.stride, 4, t.stride);
  }
  (void)x.run("attention_decode", 1, table.attention_decode);
  EXPECT_EQ(values(x.o), want_o);
  EXPECT_EQ(values(x.lse), want_lse);
  x.in[1] = narrow[0], x.in[2] = narrow[1];
}

void check(const Case& c, Rng& rng) {
  SCOPED_TRACE(c.name());
  Decoding x(c, rng);
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    const kernel::IsaTable* table = kernel::isa_table_of(isa);
    if (table == nullptr) continue;
    const auto flash = x.run("attention_flash", 1, table->attention_fwd);
    const auto want_o = values(x.o), want_lse = values(x.lse);
    if (c.narrow) expect_bits_of_widened(x, *table, want_o, want_lse);
    for (int threads : {1, 2, 3, 7}) {
      const auto have = x.run("attention_decode", threads, table->attention_decode);
      ASSERT_EQ(values(x.o), want_o) << isa_name(isa) << " x" << threads;
      ASSERT_EQ(values(x.lse), want_lse) << isa_name(isa) << " x" << threads;
      EXPECT_EQ(have.math_flops, flash.math_flops);
    }
  }
}

TEST(AttentionDecode, HasTheBitsOfFlash) {
  const DType dtypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  for (unsigned seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    Case c;
    c.b = pick(rng, 1, 3), c.sq = 1, c.hk = pick(rng, 1, 4), c.g = pick(rng, 1, 8);
    c.sk = pick(rng, 0, 3) ? pick(rng, 1, 200) : pick(rng, 400, 1700);
    c.d = pick(rng, 1, 80), c.dv = pick(rng, 1, 80);
    if (pick(rng, 0, 2) == 0) c.d = 64, c.dv = 64;
    if (seed % 5 < 3)
      c.dtype = dtypes[seed % 5];
    else
      c.narrow = dtypes[seed % 5 - 2];
    c.causal = pick(rng, 0, 1) == 1;
    if (pick(rng, 0, 2) == 0) c.left = pick(rng, 0, c.sk);
    check(c, rng);
    if (HasFailure()) return;
  }
}

TEST(AttentionDecode, WideHeadsAndManyKeys) {
  for (int64_t d : {128, 256}) {
    Rng rng(static_cast<unsigned>(d));
    Case c;
    c.sq = 1, c.hk = 2, c.g = 4, c.sk = 2500, c.d = c.dv = d;
    check(c, rng);
    c.narrow = DType::kF16;
    check(c, rng);
  }
}

void check_tiles(const Case& c, Rng& rng) {
  SCOPED_TRACE(c.name());
  Decoding x(c, rng);
  const auto truth = define<double>(x.p);
  const auto naive = define<float>(x.p);
  std::vector<double> first_o, first_lse;
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    const kernel::IsaTable* table = kernel::isa_table_of(isa);
    if (table == nullptr) continue;
    for (int threads : {1, 2, 3, 7}) {
      const auto have = x.run("attention_decode_amx", threads, table->attention_decode_amx);
      EXPECT_EQ(have.math_flops, truth.pairs * (2 * c.d + 5 + 2 * c.dv) + truth.live * (3 + c.dv));
      EXPECT_GE(have.executed_flops, have.math_flops);
      if (first_o.empty()) first_o = values(x.o), first_lse = values(x.lse);
      ASSERT_EQ(values(x.o), first_o) << isa_name(isa) << " x" << threads;
      ASSERT_EQ(values(x.lse), first_lse) << isa_name(isa) << " x" << threads;
    }
  }
  expect_close(x.o, truth.o, naive.o, c.dtype, "o");
  expect_close(x.lse, truth.lse, naive.lse, DType::kF32, "lse");
}

// Rows of all heads so long that less than a block of them is fetched ahead, and goes in turn.
TEST(AttentionDecode, ManyKeyHeads) {
  for (int64_t group : {2, 5}) {
    Rng rng(static_cast<unsigned>(group));
    Case c;
    c.sq = 1, c.hk = 17, c.g = group, c.sk = 200, c.left = 170, c.d = c.dv = 128;
    check(c, rng);
    c.dtype = DType::kBF16;
    check(c, rng), check_tiles(c, rng);
  }
}

TEST(AttentionDecode, InTilesErrorAtMostTwiceTheNaiveAndEqualBits) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    Case c;
    c.b = pick(rng, 1, 3), c.sq = 1, c.hk = pick(rng, 1, 4), c.g = pick(rng, 1, 8);
    c.sk = pick(rng, 0, 3) ? pick(rng, 1, 200) : pick(rng, 400, 1700);
    c.d = 32 * pick(rng, 1, 4), c.dv = pick(rng, 0, 1) ? c.d : pick(rng, 1, 80);
    if (pick(rng, 0, 9) == 0) c.d = c.dv = 256;
    c.dtype = DType::kBF16, c.causal = pick(rng, 0, 1) == 1;
    if (pick(rng, 0, 2) == 0) c.left = pick(rng, 0, c.sk);
    check_tiles(c, rng);
    if (HasFailure()) return;
  }
}

TEST(AttentionDecode, LeavesTheRestToOthers) {
  const auto supports = [](auto change, const char* kernel = "attention_decode") {
    Rng rng(1);
    Case c;
    c.sq = 1, c.hk = 2, c.g = 2, c.sk = 40;
    change(c);
    const Problem p(c, rng);
    const Tensor k(c.key_dtype(), {c.b, c.sk, c.hk, c.d}),
        v(c.key_dtype(), {c.b, c.sk, c.hk, c.dv});
    std::vector<TensorRef> in = {p.q.ref(), k.ref(), v.ref()};
    p.add_options(in);
    const Tensor o(c.dtype, {c.b, c.sq, c.hk * c.g, c.dv}),
        lse(DType::kF32, {c.b, c.hk * c.g, c.sq});
    const TensorRef out[] = {o.ref(), lse.ref()};
    const Attrs attrs = c.attrs();
    const KernelQuery q{.attrs = &attrs, .in = in, .out = out};
    return find_kernel(kernel)->supports(q);
  };
  EXPECT_TRUE(supports([](Case&) {}));
  EXPECT_TRUE(supports([](Case& c) { c.left = 9, c.causal = true; }));
  EXPECT_FALSE(supports([](Case& c) { c.sq = 2; }));
  EXPECT_FALSE(supports([](Case& c) { c.g = 9; }));
  EXPECT_FALSE(supports([](Case& c) { c.softcap = 10; }));
  EXPECT_FALSE(supports([](Case& c) { c.alibi = true; }));
  EXPECT_FALSE(supports([](Case& c) { c.dropout = 0.1; }));
  EXPECT_FALSE(supports([](Case& c) { c.dv = 300; }));
  EXPECT_TRUE(supports([](Case& c) { c.narrow = DType::kF16; }));
  EXPECT_TRUE(supports([](Case& c) { c.narrow = DType::kBF16; }, "attention_flash"));
  EXPECT_FALSE(supports([](Case& c) { c.narrow = DType::kF32, c.dtype = DType::kF16; }));
  const auto in_tiles = [&](DType dtype, int64_t d) {
    return supports([&](Case& c) { c.dtype = dtype, c.d = d; }, "attention_decode_amx");
  };
  EXPECT_TRUE(in_tiles(DType::kBF16, 96));
  EXPECT_FALSE(in_tiles(DType::kBF16, 80));
  EXPECT_FALSE(in_tiles(DType::kBF16, 288));
  EXPECT_FALSE(in_tiles(DType::kF32, 96));
}

}  // namespace
}  // namespace tegula
