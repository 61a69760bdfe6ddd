// Column outputs: sums over all rows, in one pass with what is added up.
#include <cmath>

#include "tests/tile/on_device.h"

namespace tegula::tile {
namespace {

// The gradient of a norm: y = w·dy, dx = (y - mean(y) - xhat·mean(y·xhat))·rstd + rest; sums of
// dy·xhat, and of |dy·xhat| where the test asks how far off they may be.
Program norm_gradient(int rank, DType dtype, int n_columns) {
  Builder b(rank, 1);
  const Reg xhat = b.load(b.input(DType::kF32));
  const Reg dy = b.cast(b.load(b.input(dtype)), DType::kF32);
  const Reg w = b.load(b.input(DType::kF32)), rest = b.load(b.input(DType::kF32));
  const Reg rstd = b.load(b.input(DType::kF32, Extent::kRow));
  const Reg n = b.load(b.input(DType::kF32, Extent::kUniform));
  const Reg y = w * dy, mean = b.reduce(Op::kReduceSum, y) * n;
  const Reg slope = b.reduce(Op::kReduceSum, y * xhat) * n;
  const Reg dx = (y - mean - xhat * slope) * rstd + rest;
  b.store(b.output(DType::kF32), dx);
  b.store(b.output(DType::kBF16), b.cast(dx, DType::kBF16));
  const Reg share = dy * xhat;
  b.store(b.output(DType::kF32, Extent::kColumn), share);
  if (n_columns > 2) b.store(b.output(DType::kF32, Extent::kColumn), b.unary(Op::kNeg, share));
  b.store(b.output(DType::kF32, Extent::kColumn), b.unary(Op::kAbs, share));
  return b.finish().value();
}

// Without a reduction of rows: a product, rounded as well, and its sums.
Program product(int rank, int n_inner, DType dtype) {
  Builder b(rank, n_inner);
  const Reg x = b.cast(b.load(b.input(dtype)), DType::kF32), y = b.load(b.input(DType::kF32));
  const Reg z = x * y + b.cast(b.iota(rank - 1), DType::kF32) * 0.25;
  b.store(b.output(DType::kBF16), b.cast(z, DType::kBF16));
  b.store(b.output(DType::kF32, Extent::kColumn), z);
  b.store(b.output(DType::kF32, Extent::kColumn), b.unary(Op::kAbs, z));
  return b.finish().value();
}

struct Case {
  std::vector<int64_t> shape;
  Layout layout = Layout::kContiguous;
  Layout columns = Layout::kContiguous;
};

std::vector<Tensor> outputs_of(const Program& p, const std::vector<int64_t>& shape,
                               Layout columns) {
  std::vector<Tensor> out;
  for (const Operand& o : p.outputs) {
    std::vector<int64_t> s = shape;
    const auto inner = s.end() - p.n_inner;
    if (o.extent == Extent::kRow) std::fill(inner, s.end(), 1);
    if (o.extent == Extent::kColumn) std::fill(s.begin(), inner, 1);
    out.emplace_back(o.dtype, s, o.extent == Extent::kColumn ? columns : Layout::kContiguous);
  }
  return out;
}

// Full outputs have the reference's bits. Columns are sums in some order: of n rows they differ
// from the reference's chain by less than n ulps of the sum of magnitudes, the last output. Twice
// the same bits.
void check(const Program& p, const Case& c, uint64_t seed) {
  Rng rng(seed);
  std::vector<Tensor> in;
  for (const Operand& o : p.inputs) {
    std::vector<int64_t> s = c.shape;
    if (o.extent == Extent::kRow) std::fill(s.end() - p.n_inner, s.end(), 1);
    if (o.extent == Extent::kUniform) std::fill(s.begin(), s.end(), 1);
    in.emplace_back(o.dtype, s, o.extent == Extent::kFull ? c.layout : Layout::kContiguous);
    in.back().fill(rng, -1, 1);
  }
  std::vector<Tensor> want = outputs_of(p, c.shape, c.columns), got = want, again = want;
  std::vector<TensorRef> in_refs, out_refs;
  for (const Tensor& t : in) in_refs.push_back(t.ref());
  for (const Tensor& t : want) out_refs.push_back(t.ref());
  ASSERT_TRUE(run_reference(p, in_refs, out_refs).ok());
  Counts counts;
  const std::vector<size_t> apart(p.outputs.size(), 1000);
  run_device(p, in, got, apart, &counts);
  run_device(p, in, again, apart);
  if (testing::Test::HasFatalFailure()) return;
  int64_t n_rows = 1;
  for (size_t d = 0; d + static_cast<size_t>(p.n_inner) < c.shape.size(); ++d) n_rows *= c.shape[d];
  const std::string what = cat("rows ", n_rows, " of ", c.shape.back(), "\n", to_text(p));
  const Tensor& magnitudes = want.back();
  for (size_t k = 0; k < want.size(); ++k) {
    EXPECT_TRUE(same_bits(again[k], got[k])) << what;
    if (p.outputs[k].extent != Extent::kColumn) {
      EXPECT_TRUE(same_bits(got[k], want[k])) << "out" << k << ", " << what;
      continue;
    }
    Tensor written = want[k];
    for (int64_t i = 0; i < want[k].numel(); ++i) written.set(i, got[k].get(i));
    EXPECT_TRUE(same_bits(got[k], written)) << "out" << k << ", " << what;
    for (int64_t i = 0; i < want[k].numel(); ++i)
      ASSERT_LE(std::abs(got[k].get(i) - want[k].get(i)),
                std::ldexp(static_cast<double>(n_rows) * magnitudes.get(i), -23))
          << "out" << k << " at " << i << ", " << what;
  }
  EXPECT_EQ(counts.math, flops(p, c.shape)) << what;
}

const std::vector<Case> kShapes = {{{1, 1}},
                                   {{1, 16}},
                                   {{2, 5}},
                                   {{5, 7}},
                                   {{37, 48}},
                                   {{100, 33}},
                                   {{64, 768}},
                                   {{301, 768}},
                                   {{70, 1024}},
                                   {{300, 2048}},
                                   {{9, 8192}},
                                   {{2100, 40}},
                                   {{40, 65}, Layout::kGaps},
                                   {{33, 24}, Layout::kTransposed},
                                   {{33, 24}, Layout::kContiguous, Layout::kSpread},
                                   {{0, 24}},
                                   {{0, 24}, Layout::kContiguous, Layout::kSpread}};

TEST_F(TileDevice, ColumnsOfRowsThatAreReduced) {
  uint64_t seed = 1;
  for (const DType t : {DType::kF32, DType::kBF16})
    for (const Case& c : kShapes) check(norm_gradient(2, t, t == DType::kF32 ? 2 : 3), c, ++seed);
  check(norm_gradient(3, DType::kBF16, 2), {{3, 50, 768}}, ++seed);
}

TEST_F(TileDevice, ColumnsOfElements) {
  uint64_t seed = 100;
  for (const DType t : {DType::kF32, DType::kBF16})
    for (const Case& c : kShapes) check(product(2, 1, t), c, ++seed);
  check(product(3, 1, DType::kBF16), {{3, 50, 3072}}, ++seed);
  for (const Layout l : {Layout::kContiguous, Layout::kGaps, Layout::kTransposed})
    for (const int64_t rows : {0, 30})
      check(product(4, 2, DType::kBF16), {{2, rows, 3, 24}, l, l}, ++seed);
}

TEST_F(TileDevice, ColumnsThatDoNotFitAreRefused) {
  Builder b(2, 1);
  const Reg x = b.load(b.input(DType::kF32));
  const Reg y = x - b.reduce(Op::kReduceMax, x);
  for (int k = 0; k < 6; ++k) b.store(b.output(DType::kF32, Extent::kColumn), y * (k + 1.0));
  const Program p = b.finish().value();
  KernelQuery q;
  const Tensor in(DType::kF32, {4, 65536});
  const std::vector<TensorRef> refs = {in.ref()};
  std::vector<Tensor> out = outputs_of(p, {4, 65536}, Layout::kContiguous);
  std::vector<TensorRef> out_refs;
  for (const Tensor& t : out) out_refs.push_back(t.ref());
  q.in = refs, q.out = out_refs, q.program = &p, q.target = &open_device().value()->target();
  const Status status = kernel_of("fused_cuda")->check(q);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("too long"), std::string::npos) << status.error().message;
}

}  // namespace
}  // namespace tegula::tile
