// FLOPs of attention, counted by hand: neither the op's formula nor a kernel's mask takes part.
#include <gtest/gtest.h>

#include "tegula/ops/table.h"
#include "tests/kernels/strided.h"

namespace tegula::testing {
namespace {

// One batch entry, 2 query heads over 1 key head, 5 queries, 7 keys, d = 3, dv = 2. Query i stands
// at key i + 2; causal, and at most 2 keys before its own:
//
//   query   sees keys   pairs
//   0       0 1 2       3
//   1       1 2 3       3
//   2       2 3 4       3
//   3       3 4 5       3
//   4       4 5 6       3
//
// hence 15 pairs a head and 5 rows that see a key. Forward, of a pair: the score's product 2·3 and
// its scale 1; the maximum, the difference, e to it and the sum 4; the weighted value 2·2: 15. Of a
// row: the logarithm, a sum and the reciprocal 3, its products with o 2: 5. In all
// 2 · (15·15 + 5·5) = 500.
//
// Backward, of a pair: the score again 7; the difference to lse, e to it, dp less delta, times p,
// and the scale of ds 5; p·do into dv 2·2, do·v into dp 2·2, ds·k into dq and ds·q into dk 2·3
// each: 32. Of a row: delta 2·2. In all 2 · (15·32 + 5·4) = 1000.
constexpr int64_t kForward = 500, kBackward = 1000;

struct Problem {
  Attrs attrs{{"scale", 0.5}, {"is_causal", true}, {"window_left", int64_t{2}}};
  Tensor q{DType::kF32, {1, 5, 2, 3}}, k{DType::kF32, {1, 7, 1, 3}}, v{DType::kF32, {1, 7, 1, 2}};
  Tensor o{DType::kF32, {1, 5, 2, 2}}, lse{DType::kF32, {1, 2, 5}}, d_o{DType::kF32, {1, 5, 2, 2}};
  Tensor dq{DType::kF32, {1, 5, 2, 3}}, dk{DType::kF32, {1, 7, 1, 3}},
      dv{DType::kF32, {1, 7, 1, 2}};
  Problem() {
    Rng rng(1);
    for (Tensor* t : {&q, &k, &v, &d_o}) t->fill_random(rng);
  }
};

int64_t planned(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> in,
                std::span<const TensorRef> out) {
  const auto types = [](std::span<const TensorRef> refs) {
    std::vector<Type> t;
    for (const TensorRef& r : refs) {
      t.push_back({r.dtype, {}});
      for (int d = 0; d < r.rank; ++d) t.back().shape.push_back(r.shape[d]);
    }
    return t;
  };
  const auto in_types = types(in), out_types = types(out);
  return flops_of({&op, &attrs, in_types, out_types, nullptr, {}});
}

TEST(AttentionFlops, AreThoseCountedByHand) {
  Problem p;
  const TensorRef in[] = {p.q.ref(), p.k.ref(), p.v.ref()}, out[] = {p.o.ref(), p.lse.ref()};
  EXPECT_EQ(planned(attention_op, p.attrs, in, out), kForward);
  const TensorRef bwd_in[] = {p.q.ref(), p.k.ref(), p.v.ref(), p.o.ref(), p.lse.ref(), p.d_o.ref()};
  const TensorRef bwd_out[] = {p.dq.ref(), p.dk.ref(), p.dv.ref()};
  EXPECT_EQ(planned(attention_bwd_op, p.attrs, bwd_in, bwd_out), kBackward);
  for (int threads : {1, 3}) {
    EXPECT_EQ(run_kernel(*find_kernel("attention_flash"), p.attrs, in, out, threads).math_flops,
              kForward);
    EXPECT_EQ(run_kernel(*find_kernel("attention_bwd_flash"), p.attrs, bwd_in, bwd_out, threads)
                  .math_flops,
              kBackward);
  }
}

// 200 queries over 200 keys in several blocks of rows and keys, causal, a window of 70 keys: of
// query i min(i, 69) + 1 keys. Σ = 70·71/2 + 130·70 = 11,585 pairs, one head, d = dv = 64:
// 11,585 · (1 + 4 + 4·64) + 200 · (3 + 64) = 3,037,085.
TEST(AttentionFlops, OfManyBlocksAreThoseCountedByHand) {
  const Attrs attrs{{"scale", 0.5}, {"is_causal", true}, {"window_left", int64_t{69}}};
  Tensor q(DType::kF32, {1, 200, 1, 64}), k(DType::kF32, {1, 200, 1, 64}),
      v(DType::kF32, {1, 200, 1, 64}), o(DType::kF32, {1, 200, 1, 64}),
      lse(DType::kF32, {1, 1, 200});
  Rng rng(2);
  for (Tensor* t : {&q, &k, &v}) t->fill_random(rng);
  const TensorRef in[] = {q.ref(), k.ref(), v.ref()}, out[] = {o.ref(), lse.ref()};
  EXPECT_EQ(planned(attention_op, attrs, in, out), 3037085);
  for (int threads : {1, 3})
    EXPECT_EQ(run_kernel(*find_kernel("attention_flash"), attrs, in, out, threads).math_flops,
              3037085);
}

}  // namespace
}  // namespace tegula::testing
