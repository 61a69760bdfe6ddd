// Attention's kernels on many random cases: odd sizes, one query, one key, empty sequences,
// head_dim 1 to 256, any strides, NaN where nobody looks, large scores, tensors that span more than
// 2^31 elements. Equal bits with 1, 2, 3 and 7 threads.
//
// TEGULA_SWEEP=2000 runs so many cases instead of the quick 160, TEGULA_SWEEP_FROM=N begins at case
// N: each case is its number's own.
#include <sys/mman.h>

#include <cmath>
#include <cstdlib>
#include <memory>

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

void run_same_bits(const char* kernel, const Attrs& attrs, std::span<const TensorRef> in,
                   std::span<const TensorRef> out, std::initializer_list<const Tensor*> tensors,
                   bool portable, void (*kernel::IsaTable::*entry)(const KernelCall&),
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
  if (!portable) return;
  for (const Tensor* t : tensors) const_cast<Tensor*>(t)->fill(777);
  testing::run_kernel(def, attrs, in, out, 3, kernel::isa_table_of(Isa::kPortable)->*entry);
  ASSERT_EQ(first, values(tensors)) << kernel << " portable";
}

struct Kernels {
  const char *forward, *backward;
  void (*kernel::IsaTable::*forward_entry)(const KernelCall&);
  void (*kernel::IsaTable::*backward_entry)(const KernelCall&);
  bool in_tiles;
};
const Kernels kFlash = {"attention_flash", "attention_bwd_flash", &kernel::IsaTable::attention_fwd,
                        &kernel::IsaTable::attention_bwd, false};
const Kernels kTiles = {"attention_amx", "attention_bwd_amx", &kernel::IsaTable::attention_fwd_amx,
                        &kernel::IsaTable::attention_bwd_amx, true};

constexpr int kSomeThreads[] = {1, 2, 3, 7};

void check(const Kernels& kernels, const Case& c, Rng& rng,
           std::span<const int> threads = kSomeThreads) {
  Problem p(c, rng);
  disturb(p, rng);
  const auto truth = define<double>(p);
  const double sharpness = truth.sharpness;
  auto naive = define<float>(p);
  // Where one key has nearly all the weight, gradients cancel, and either rounding may be lucky.
  if (kernels.in_tiles) take_farther(truth, define<float>(p, true), naive);
  const bool portable = work(c) < 60'000;
  Tensor o(c.dtype, {c.b, c.sq, c.hk * c.g, c.dv}, rng, false);
  Tensor lse(DType::kF32, {c.b, c.hk * c.g, c.sq}, rng, false);
  std::vector<TensorRef> in = {p.q.ref(), p.k.ref(), p.v.ref()};
  p.add_options(in);
  Attrs attrs = c.attrs();
  const TensorRef results[] = {o.ref(), lse.ref()};
  run_same_bits(kernels.forward, attrs, in, results, {&o, &lse}, portable, kernels.forward_entry,
                threads);
  if (::testing::Test::HasFailure()) return;
  expect_close(o, truth.o, naive.o, c.dtype, "o", sharpness);
  expect_close(lse, truth.lse, naive.lse, DType::kF32, "lse", sharpness);

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
  run_same_bits(kernels.backward, attrs, in, out, {&dq, &dk, &dv, &dbias}, portable,
                kernels.backward_entry, threads);
  if (::testing::Test::HasFailure()) return;
  expect_close(dq, truth.dq, naive.dq, c.dtype, "dq", sharpness);
  expect_close(dk, truth.dk, naive.dk, c.dtype, "dk", sharpness);
  expect_close(dv, truth.dv, naive.dv, c.dtype, "dv", sharpness);
  if (c.bias) expect_close(dbias, truth.dbias, naive.dbias, c.dtype, "dbias", sharpness);
}

TEST(AttentionSweep, ErrorAtMostTwiceTheNaiveAndEqualBits) {
  const int64_t first = from_environment("TEGULA_SWEEP_FROM", 0);
  const int64_t n = from_environment("TEGULA_SWEEP", 160);
  for (int64_t i = first; i < first + n; ++i) {
    Rng rng(static_cast<unsigned>(i));
    const Case c = random_case(rng);
    SCOPED_TRACE(cat("case ", i, ": ", c.name()));
    check(kFlash, c, rng);
    if (HasFailure()) return;
  }
}

TEST(AttentionSweep, InTilesErrorAtMostTwiceTheNaiveAndEqualBits) {
  const int64_t first = from_environment("TEGULA_SWEEP_FROM", 0);
  const int64_t n = from_environment("TEGULA_SWEEP", 60);
  for (int64_t i = first; i < first + n; ++i) {
    Rng rng(static_cast<unsigned>(i));
    Case c = random_case(rng);
    c.dtype = DType::kBF16;
    c.softcap = c.dropout = 0, c.bias = c.alibi = false;
    if (c.sq * c.g < 16) c.sq = 16;
    SCOPED_TRACE(cat("case ", i, ": ", c.name()));
    check(kTiles, c, rng);
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
      check(*kernels, c, rng, kThreads);
      if (HasFailure()) return;
    }
}

// What a sequence has of its own bits when it lies far from the others: offsets of more than 2^31
// elements, in memory that only exists where it is written.
class Sparse {
 public:
  Sparse(const Tensor& dense, int64_t batch_stride) : ref_(dense.ref()) {
    ref_.stride[0] = batch_stride;
    bytes_ = static_cast<size_t>((batch_stride * ref_.shape[0] + dense.numel()) *
                                 size_bytes(ref_.dtype));
    ref_.data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (ref_.data == MAP_FAILED) ref_.data = nullptr;
  }
  ~Sparse() {
    if (ref_.data) munmap(ref_.data, bytes_);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  const TensorRef& ref() const { return ref_; }
  int64_t offset(int64_t i) const {
    int64_t off = 0;
    for (int d = ref_.rank - 1; d >= 0; --d)
      off += i % ref_.shape[d] * ref_.stride[d], i /= ref_.shape[d];
    return off;
  }

 private:
  TensorRef ref_;
  size_t bytes_;
};

TEST(AttentionSweep, OffsetsBeyondTwoToThe31) {
  constexpr int64_t kFar = (int64_t{1} << 31) + 12345;
  Rng rng(7);
  for (int64_t sq : {int64_t{1}, int64_t{70}}) {
    // q, k, v, o, lse, do, dq, dk, dv
    const int64_t rows[] = {sq, 90, 90, sq, 4, sq, sq, 90, 90};
    std::vector<std::unique_ptr<Tensor>> dense;
    std::vector<std::unique_ptr<Sparse>> sparse;
    for (size_t i = 0; i < 9; ++i) {
      const int64_t heads = rows[i] == 90 ? 2 : 4;
      dense.push_back(std::make_unique<Tensor>(
          DType::kF32,
          i == 4 ? std::vector<int64_t>{2, 4, sq} : std::vector<int64_t>{2, rows[i], heads, 24}));
      dense[i]->fill_random(rng);
      sparse.push_back(std::make_unique<Sparse>(*dense[i], kFar));
      if (sparse[i]->ref().data == nullptr) GTEST_SKIP() << "no room for 16 GiB of addresses";
      for (int64_t j = 0; j < dense[i]->numel(); ++j)
        testing::set(sparse[i]->ref(), sparse[i]->offset(j), dense[i]->at(j));
    }
    const Attrs attrs{{"scale", 0.2}, {"is_causal", true}};
    const auto run = [&](auto& t) {
      std::vector<TensorRef> r;
      for (const auto& x : t) r.push_back(x->ref());
      testing::run_kernel(*find_kernel("attention_flash"), attrs, {r.data(), 3}, {&r[3], 2}, 2);
      testing::run_kernel(*find_kernel("attention_bwd_flash"), attrs, {r.data(), 6}, {&r[6], 3}, 2);
    };
    run(dense), run(sparse);
    for (size_t i = 3; i < 9; ++i)
      for (int64_t j = 0; j < dense[i]->numel(); ++j)
        ASSERT_EQ(testing::get(sparse[i]->ref(), sparse[i]->offset(j)), dense[i]->at(j))
            << "tensor " << i << " at " << j;
  }
}

}  // namespace
}  // namespace tegula
