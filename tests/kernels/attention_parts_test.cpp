// Attention in parts of the keys, each going on from the o and lse of those before, against the
// definition over all keys; gradients of the parts, from the whole's o and lse, likewise.
#include "tegula/kernels/cpu/isa/table.h"
#include "tests/kernels/attention_problem.h"

namespace tegula {
namespace {
using testing::Case;
using testing::define;
using testing::expect_close;
using testing::pick;
using testing::Problem;
using testing::Result4;
using testing::Rng;
using testing::Tensor;
using Launch = void (*)(const KernelCall&);

struct Kernels {
  const char *forward, *backward;
  Launch kernel::IsaTable::*forward_entry;
  Launch kernel::IsaTable::*backward_entry;
  bool in_tiles;
};
constexpr Kernels kFlash = {"attention_flash", "attention_bwd_flash",
                            &kernel::IsaTable::attention_fwd, &kernel::IsaTable::attention_bwd,
                            false};
constexpr Kernels kAmx = {"attention_amx", "attention_bwd_amx",
                          &kernel::IsaTable::attention_fwd_amx,
                          &kernel::IsaTable::attention_bwd_amx, true};

// Where the parts begin and end: of any size, perhaps of no key.
std::vector<int64_t> cuts(int64_t sk, Rng& rng) {
  std::vector<int64_t> at = {0, sk};
  for (int64_t n = pick(rng, 0, 3); n > 0; --n) at.push_back(pick(rng, 0, sk));
  std::sort(at.begin(), at.end());
  return at;
}

TensorRef keys_of(TensorRef t, int64_t from, int64_t to) {
  t.data = static_cast<std::byte*>(t.data) + from * t.stride[1] * size_bytes(t.dtype);
  t.shape[1] = to - from;
  return t;
}

Attrs attrs_of(const Case& c, int64_t from, const char* part) {
  Attrs a = c.attrs();
  a.set("q_runs", std::vector<int64_t>{c.sk - c.sq});
  a.set("k_runs", std::vector<int64_t>{from});
  a.set("part", std::string(part));
  return a;
}

class Parts {
 public:
  Parts(const Problem& p, const Kernels& kernels, const kernel::IsaTable& table, int threads,
        std::vector<int64_t> at)
      : p_(p), kernels_(kernels), table_(table), threads_(threads), at_(std::move(at)) {}

  void forward(Tensor& o, Tensor& lse) const {
    const Case& c = p_.c;
    const int64_t h = c.hk * c.g;
    Tensor sums[] = {{DType::kF32, {c.b, c.sq, h, c.dv}}, {DType::kF32, {c.b, c.sq, h, c.dv}}};
    Tensor logs[] = {{DType::kF32, {c.b, h, c.sq}}, {DType::kF32, {c.b, h, c.sq}}};
    int64_t flops = 0;
    for (size_t i = 0; i + 1 < at_.size(); ++i) {
      const bool is_last = i + 2 == at_.size();
      if (i == 0 && is_last) return whole(o, lse);
      std::vector<TensorRef> in = {p_.q.ref(), keys_of(p_.k.ref(), at_[i], at_[i + 1]),
                                   keys_of(p_.v.ref(), at_[i], at_[i + 1])};
      if (c.alibi) in.push_back(p_.alibi.ref());
      if (i > 0) in.push_back(sums[i % 2].ref()), in.push_back(logs[i % 2].ref());
      const TensorRef out[] = {is_last ? o.ref() : sums[(i + 1) % 2].ref(),
                               is_last ? lse.ref() : logs[(i + 1) % 2].ref()};
      flops += testing::run_kernel(*find_kernel(kernels_.forward),
                                   attrs_of(c, at_[i],
                                            i == 0    ? "first"
                                            : is_last ? "last"
                                                      : "middle"),
                                   in, out, threads_, table_.*kernels_.forward_entry)
                   .math_flops;
    }
    EXPECT_GT(flops, 0);
  }

  // Gradients in f32: dq summed over the parts.
  void backward(const Tensor& o, const Tensor& lse, Tensor& dq, Tensor& dk, Tensor& dv) const {
    const Case& c = p_.c;
    dq.fill(0);
    for (size_t i = 0; i + 1 < at_.size(); ++i) {
      Tensor part(DType::kF32, {c.b, c.sq, c.hk * c.g, c.d});
      std::vector<TensorRef> in = {p_.q.ref(),
                                   keys_of(p_.k.ref(), at_[i], at_[i + 1]),
                                   keys_of(p_.v.ref(), at_[i], at_[i + 1]),
                                   o.ref(),
                                   lse.ref(),
                                   p_.d_o.ref()};
      if (c.alibi) in.push_back(p_.alibi.ref());
      const TensorRef out[] = {part.ref(), keys_of(dk.ref(), at_[i], at_[i + 1]),
                               keys_of(dv.ref(), at_[i], at_[i + 1])};
      testing::run_kernel(*find_kernel(kernels_.backward), attrs_of(c, at_[i], "middle"), in, out,
                          threads_, table_.*kernels_.backward_entry);
      for (int64_t e = 0; e < dq.numel(); ++e) dq.put(e, dq.at(e) + part.at(e));
    }
  }

 private:
  void whole(Tensor& o, Tensor& lse) const {
    std::vector<TensorRef> in = {p_.q.ref(), p_.k.ref(), p_.v.ref()};
    if (p_.c.alibi) in.push_back(p_.alibi.ref());
    const TensorRef out[] = {o.ref(), lse.ref()};
    testing::run_kernel(*find_kernel(kernels_.forward), p_.c.attrs(), in, out, threads_,
                        table_.*kernels_.forward_entry);
  }

  const Problem& p_;
  const Kernels& kernels_;
  const kernel::IsaTable& table_;
  int threads_;
  std::vector<int64_t> at_;
};

void check(const Kernels& kernels, const Case& c, Rng& rng) {
  SCOPED_TRACE(cat(kernels.forward, " ", c.name()));
  const Problem p(c, rng);
  const Result4<double> truth = define<double>(p);
  Result4<float> naive = define<float>(p);
  if (kernels.in_tiles) take_farther(truth, define<float>(p, true), naive);
  const auto at = cuts(c.sk, rng);
  const int64_t h = c.hk * c.g;
  std::vector<double> first;  // bits of the first run: neither threads nor instructions change them
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    const kernel::IsaTable* table = kernel::isa_table_of(isa);
    if (table == nullptr) continue;
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(cat(isa_name(isa), " x", threads, " ", at.size() - 1, " parts"));
      Tensor o(c.dtype, {c.b, c.sq, h, c.dv}), lse(DType::kF32, {c.b, h, c.sq});
      Tensor dq(DType::kF32, {c.b, c.sq, h, c.d}), dk(DType::kF32, {c.b, c.sk, c.hk, c.d});
      Tensor dv(DType::kF32, {c.b, c.sk, c.hk, c.dv});
      const Parts parts(p, kernels, *table, threads, at);
      parts.forward(o, lse);
      parts.backward(o, lse, dq, dk, dv);
      std::vector<double> all;
      for (const Tensor* t : {&o, &lse, &dq, &dk, &dv})
        for (int64_t i = 0; i < t->numel(); ++i) all.push_back(t->at(i));
      if (first.empty()) {
        first = all;
        expect_close(o, truth.o, naive.o, c.dtype, "o", truth.sharpness);
        expect_close(lse, truth.lse, naive.lse, DType::kF32, "lse", truth.sharpness);
        expect_close(dq, truth.dq, naive.dq, c.dtype, "dq", truth.sharpness);
        expect_close(dk, truth.dk, naive.dk, c.dtype, "dk", truth.sharpness);
        expect_close(dv, truth.dv, naive.dv, c.dtype, "dv", truth.sharpness);
      }
      EXPECT_EQ(all, first);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

Case case_of(DType dtype, Rng& rng) {
  Case c;
  c.dtype = dtype, c.b = pick(rng, 1, 2), c.hk = pick(rng, 1, 2), c.g = pick(rng, 1, 3);
  c.sk = pick(rng, 0, 2) ? pick(rng, 1, 200) : pick(rng, 500, 1200);
  c.sq = pick(rng, 1, std::min<int64_t>(c.sk, 90));
  c.d = pick(rng, 1, 40), c.dv = pick(rng, 1, 70);
  c.causal = pick(rng, 0, 2) > 0;
  if (pick(rng, 0, 2) == 0) c.left = pick(rng, 0, 200);
  return c;
}

TEST(AttentionParts, HaveTheValuesOfTheWhole) {
  const DType dtypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  for (unsigned seed = 0; seed < 30; ++seed) {
    Rng rng(seed);
    Case c = case_of(dtypes[seed % 3], rng);
    if (pick(rng, 0, 3) == 0) c.softcap = 5;
    if (pick(rng, 0, 3) == 0) c.alibi = true;
    check(kFlash, c, rng);
    if (HasFailure()) return;
  }
}

TEST(AttentionParts, InTilesTheyDoToo) {
  for (unsigned seed = 100; seed < 120; ++seed) {
    Rng rng(seed);
    check(kAmx, case_of(DType::kBF16, rng), rng);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tegula
