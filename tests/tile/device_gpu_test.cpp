// Tile programs on a device give the bits of the CPU's interpreter: every instruction in every
// dtype, rows of every length and layout, and random programs.
#include <cmath>

#include "tegula/base/denormals.h"
#include "tests/tile/on_device.h"
#include "tests/tile/random_program.h"

namespace tegula::tile {
namespace {

// The same call by the interpreter and by the device, on the same operands.
void compare(const Program& p, const std::vector<int64_t>& shape, std::vector<Tensor> in,
             std::vector<Layout> out_layouts, std::vector<size_t> lies_on,
             const std::string& what) {
  std::vector<Tensor> mine = in, out, device_out;
  for (size_t k = 0; k < p.outputs.size(); ++k) {
    std::vector<int64_t> s = shape;
    if (p.outputs[k].extent == Extent::kRow) std::fill(s.end() - p.n_inner, s.end(), 1);
    out.emplace_back(p.outputs[k].dtype, s, out_layouts[k]);
  }
  device_out = out;
  std::vector<TensorRef> in_refs, out_refs;
  for (const Tensor& t : in) in_refs.push_back(t.ref());
  for (size_t k = 0; k < out.size(); ++k)
    out_refs.push_back(lies_on[k] < in.size() ? in_refs[lies_on[k]] : out[k].ref());
  run_kernel(p, in_refs, out_refs);
  Counts counts;
  run_device(p, mine, device_out, lies_on, &counts);
  if (testing::Test::HasFatalFailure()) return;
  std::string sizes;
  for (int64_t d : shape) append(sizes, cat(" ", d));
  for (size_t k = 0; k < out.size(); ++k) {
    const bool in_place = lies_on[k] < in.size();
    const auto same =
        in_place ? same_values(mine[lies_on[k]], in[lies_on[k]]) : same_bits(device_out[k], out[k]);
    ASSERT_TRUE(same) << what << ", out" << k << (in_place ? " in place" : "") << ", shape" << sizes
                      << "\n"
                      << to_text(p);
  }
  EXPECT_EQ(counts.math, flops(p, shape)) << what;
  EXPECT_EQ(counts.executed, counts.math) << what;
}

void compare(const Program& p, const std::vector<int64_t>& shape, std::vector<Tensor> in,
             const std::string& what) {
  compare(p, shape, std::move(in), std::vector<Layout>(p.outputs.size(), Layout::kContiguous),
          std::vector<size_t>(p.outputs.size(), 1000), what);
}

bool is_dear(Op op) {
  return (op >= Op::kExp && op <= Op::kLog) || (op >= Op::kTanh && op <= Op::kCos) ||
         op == Op::kGelu || op == Op::kSilu || (op >= Op::kExp2 && op <= Op::kErfc) ||
         op == Op::kPow || op == Op::kAtan2 || op == Op::kHypot;
}

// Values of all magnitudes, and those where functions turn.
void fill_wide(Tensor& t, Rng& rng) {
  t.fill(rng, -3, 3, true);
  if (!is_float(t.ref().dtype)) return;
  for (int64_t k = 0; k < t.numel(); k += 3) {
    const double e = std::uniform_real_distribution<double>(-60, 60)(rng);
    t.set(k, (pick(rng, 0, 1) ? 1 : -1) * std::exp2(e));
  }
  for (int64_t k = 1; k < t.numel(); k += 5)
    t.set(k, std::uniform_real_distribution<double>(-110, 110)(rng));
}

// All arithmetic of a dtype in one program: an output an instruction.
TEST_F(TileDevice, EveryInstructionInEveryDtype) {
  Rng rng(1);
  for (const DType t : kAllDTypes) {
    std::vector<Op> ops;
    for (int o = 0; o < kNumOps; ++o) {
      const OpInfo& info = op_info(static_cast<Op>(o));
      const bool is_logical = info.kind == Kind::kLogical && t == DType::kBool;
      const bool takes = is_float(t) ? info.takes_floats : info.takes_ints;
      const bool fits = (info.kind == Kind::kArithmetic && takes) || info.kind == Kind::kCompare;
      // The results of f64's functions are each machine's own.
      if (t == DType::kF64 && is_dear(static_cast<Op>(o))) continue;
      if (fits || is_logical) ops.push_back(static_cast<Op>(o));
    }
    for (size_t first = 0; first < ops.size(); first += 30) {
      Builder b(1);
      const Reg x = b.load(b.input(t)), y = b.load(b.input(t)), z = b.load(b.input(t));
      for (size_t k = first; k < std::min(ops.size(), first + 30); ++k) {
        const int n = op_info(ops[k]).n_src;
        const Reg r = n == 1   ? b.unary(ops[k], x)
                      : n == 2 ? b.binary(ops[k], x, y)
                               : b.fma(x, y, z);
        b.store(b.output(r.dtype), r);
      }
      const Program p = b.finish().value();
      std::vector<Tensor> in;
      for (int k = 0; k < 3; ++k) {
        in.emplace_back(t, std::vector<int64_t>{1003});
        fill_wide(in.back(), rng);
      }
      compare(p, {1003}, std::move(in), std::string(dtype_name(t)));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(TileDevice, EveryCastAndSelect) {
  Rng rng(2);
  for (const DType t : kAllDTypes) {
    Builder b(1);
    const Reg x = b.load(b.input(t)), y = b.load(b.input(t)), m = b.load(b.input(DType::kBool));
    for (const DType to : kAllDTypes)
      if (to != t) b.store(b.output(to), b.cast(x, to));
    b.store(b.output(t), b.select(m, x, y));
    b.store(b.output(t), b.constant(1.5, t) + b.cast(b.iota(0, DType::kI32), t));
    const Program p = b.finish().value();
    std::vector<Tensor> in;
    for (const DType d : {t, t, DType::kBool}) {
      in.emplace_back(d, std::vector<int64_t>{517});
      fill_wide(in.back(), rng);
    }
    compare(p, {517}, std::move(in), cat("from ", dtype_name(t)));
    if (HasFatalFailure()) return;
  }
}

Program statistics(DType t) {
  Builder b(2, 1);
  const Reg x = b.load(b.input(t));
  const bool sums = is_float(t) || size_bits(t) > 8;
  const Reg top = b.reduce(Op::kReduceMax, x), low = b.reduce(Op::kReduceMin, x);
  b.store(b.output(t, Extent::kRow), top);
  b.store(b.output(t, Extent::kRow), low);
  b.store(b.output(t, Extent::kRow), b.reduce(Op::kReduceSum, x));
  if (sums) b.store(b.output(t, Extent::kRow), b.reduce(Op::kReduceProd, x));
  const Reg d = b.binary(Op::kSub, x, b.binary(Op::kSub, top, low));
  b.store(b.output(t), d);
  b.store(b.output(t, Extent::kRow), b.reduce(Op::kReduceSum, d));
  return b.finish().value();
}

// One text a dtype and way of keeping: rows of 16 threads and of blocks, of 256, 512 and 1,024,
// that keep what crosses in registers or make it again.
TEST_F(TileDevice, ReductionsOfEveryDtypeAndLength) {
  Rng rng(3);
  for (const DType t : kAllDTypes) {
    const Program p = statistics(t);
    for (const int64_t n : {7, 48, 700, 1700, 5000, 20000}) {
      if (n != 48 && t != DType::kF32 && t != DType::kBF16 && t != DType::kF64) continue;
      const std::vector<int64_t> shape = {n > 1000 ? 3 : 19, n};
      std::vector<Tensor> in;
      in.emplace_back(t, shape);
      in[0].fill(rng, -1, 1);
      compare(p, shape, std::move(in), cat(dtype_name(t), ", rows of ", n));
      if (HasFatalFailure()) return;
    }
  }
}

Program layer_norm(DType t) {
  Builder b(2, 1);
  const Reg x = b.cast(b.load(b.input(t)), DType::kF32), w = b.load(b.input(DType::kF32));
  const Reg mean = b.reduce(Op::kReduceSum, x) * (1.0 / 96);
  const Reg d = x - mean;
  const Reg rstd = rsqrt(b.reduce(Op::kReduceSum, d * d) * (1.0 / 96) + 1e-5);
  b.store(b.output(t), b.cast(d * rstd * w, t));
  b.store(b.output(DType::kF32, Extent::kRow), rstd);
  return b.finish().value();
}

// Along memory, across it, with gaps, backwards, in place.
TEST_F(TileDevice, LayoutsOfRows) {
  Rng rng(4);
  for (const DType t : {DType::kF32, DType::kBF16}) {
    const Program p = layer_norm(t);
    for (const Layout layout :
         {Layout::kContiguous, Layout::kTransposed, Layout::kGaps, Layout::kReversed}) {
      for (const bool in_place : {false, true}) {
        const std::vector<int64_t> shape = {21, 96};
        std::vector<Tensor> in;
        in.emplace_back(t, shape, layout);
        in.emplace_back(DType::kF32, shape, Layout::kBroadcast);
        for (Tensor& i : in) i.fill(rng, -2, 2);
        compare(p, shape, std::move(in), {layout, Layout::kContiguous},
                {in_place ? size_t{0} : size_t{9}, 9}, cat("layout ", static_cast<int>(layout)));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// More sums than a block has room for.
TEST_F(TileDevice, ManySumsOfLongRows) {
  Rng rng(8);
  for (const int n_sums : {9, 40}) {
    Builder b(2, 1);
    const Reg x = b.load(b.input(DType::kF64));
    for (int k = 0; k < n_sums; ++k)
      b.store(b.output(DType::kF64, Extent::kRow), b.reduce(Op::kReduceSum, x * (k + 1.0)));
    const Program p = b.finish().value();
    std::vector<Tensor> in;
    in.emplace_back(DType::kF64, std::vector<int64_t>{2, 17000});
    in[0].fill(rng, -2, 2);
    compare(p, {2, 17000}, std::move(in), cat(n_sums, " sums"));
    if (HasFatalFailure()) return;
  }
}

// An output on an input: of elements that a later phase reads again, because a row is too long to
// keep; and of a row's value, which all its threads read and one writes.
TEST_F(TileDevice, InPlaceIsReadBeforeItIsWritten) {
  Rng rng(7);
  Builder again(2, 1);
  const Reg x = again.load(again.input(DType::kF32));
  again.store(again.output(DType::kF32), x + 1);
  const Reg top = again.reduce(Op::kReduceMax, x);
  again.store(again.output(DType::kF32, Extent::kRow), again.reduce(Op::kReduceSum, x - top));
  const Program p = again.finish().value();
  for (const auto& [n, layout] : {std::pair{int64_t{20000}, Layout::kContiguous},
                                  std::pair{int64_t{2000}, Layout::kTransposed}}) {
    std::vector<Tensor> in;
    in.emplace_back(DType::kF32, std::vector<int64_t>{3, n}, layout);
    in[0].fill(rng, -2, 2);
    compare(p, {3, n}, std::move(in), {layout, Layout::kContiguous}, {0, 9}, cat("rows of ", n));
    if (HasFatalFailure()) return;
  }
  Builder row(2, 1);
  const Reg a = row.load(row.input(DType::kF32));
  const Reg r = row.load(row.input(DType::kF32, Extent::kRow));
  row.store(row.output(DType::kF32), a + r);
  row.store(row.output(DType::kF32, Extent::kRow), r * 2);
  const Program q = row.finish().value();
  for (const Layout layout : {Layout::kContiguous, Layout::kTransposed}) {
    std::vector<Tensor> in;
    in.emplace_back(DType::kF32, std::vector<int64_t>{40, 33}, layout);
    in.emplace_back(DType::kF32, std::vector<int64_t>{40, 1});
    for (Tensor& t : in) t.fill(rng, -2, 2);
    compare(q, {40, 33}, std::move(in), {layout, Layout::kContiguous}, {9, 1}, "a row's value");
    if (HasFatalFailure()) return;
  }
}

// Vectors that begin at an odd element, ends that fill none, dims that do not merge.
TEST_F(TileDevice, LayoutsOfElements) {
  Rng rng(5);
  Builder b(3);
  const Reg x = b.load(b.input(DType::kBF16)), y = b.load(b.input(DType::kF32));
  const Reg seed = b.load(b.input(DType::kI64, Extent::kUniform));
  b.store(b.output(DType::kF32), b.cast(x, DType::kF32) * y + b.random_uniform(seed, 5));
  b.store(b.output(DType::kI32), b.iota(1, DType::kI32));
  const Program p = b.finish().value();
  const Layout all[] = {Layout::kContiguous, Layout::kTransposed, Layout::kGaps, Layout::kReversed,
                        Layout::kBroadcast};
  const std::vector<int64_t> shapes[] = {{3, 5, 16}, {2, 3, 7}, {1, 1, 1}, {4, 1, 24}, {0, 3, 2}};
  for (int k = 0; k < 16; ++k) {
    const std::vector<int64_t>& shape = shapes[k % 5];
    std::vector<Tensor> in;
    in.emplace_back(DType::kBF16, shape, all[k % 5]);
    in.emplace_back(DType::kF32, shape, all[(k / 2) % 5]);
    in.emplace_back(DType::kI64, std::vector<int64_t>{});
    for (Tensor& i : in) i.fill(rng, -2, 2);
    compare(p, shape, std::move(in), {all[k % 4], all[(k / 4) % 4]}, {9, 9}, cat("case ", k));
    if (HasFatalFailure()) return;
  }
}

// Arithmetic makes 0 of denormal numbers; copying keeps them.
TEST_F(TileDevice, DenormalsAreFlushedAsOnTheCpu) {
  Rng rng(6);
  for (const DType t : {DType::kF32, DType::kF64}) {
    Builder b(1);
    const Reg x = b.load(b.input(t)), y = b.load(b.input(t));
    for (const Reg r : {x + y, x - y, x * y, x / y, b.fma(x, y, x), b.unary(Op::kSqrt, x),
                        b.unary(Op::kNeg, x), b.unary(Op::kCopy, x), b.binary(Op::kLt, x, y),
                        b.binary(Op::kEq, x, y), b.cast(x, DType::kBool)})
      b.store(b.output(r.dtype), r);
    const Program p = b.finish().value();
    std::vector<Tensor> in;
    const double tiny = t == DType::kF32 ? 0x1p-126 : 0x1p-1022;
    for (int k = 0; k < 2; ++k) {
      in.emplace_back(t, std::vector<int64_t>{600});
      for (int64_t i = 0; i < 600; ++i)
        in.back().set(i, tiny * std::uniform_real_distribution<double>(-3, 3)(rng));
    }
    compare(p, {600}, std::move(in), std::string(dtype_name(t)));
    if (HasFatalFailure()) return;
  }
}

void run_random(uint64_t seed, int64_t max_inner) {
  Rng rng(seed);
  const int rank = static_cast<int>(pick(rng, 0, 4));
  const int n_inner =
      rank == 0 || pick(rng, 0, 1) ? 0 : static_cast<int>(pick(rng, 1, std::min(rank, 2)));
  const Program p =
      RandomProgram(rng, rank, n_inner, static_cast<int>(pick(rng, 4, 14)), Dear::kF32)
          .finish()
          .value();
  const std::vector<int64_t> shape = random_shape(rng, rank, n_inner, max_inner);
  std::vector<Tensor> in;
  for (const Operand& o : p.inputs) {
    std::vector<int64_t> s = shape;
    if (o.extent == Extent::kRow) std::fill(s.end() - n_inner, s.end(), 1);
    if (o.extent == Extent::kUniform) s.clear();
    in.emplace_back(o.dtype, s, static_cast<Layout>(pick(rng, 0, 4)));
    in.back().fill(rng, -2, 2, true);
  }
  std::vector<Layout> layouts;
  std::vector<size_t> lies_on(p.outputs.size(), 1000);
  std::vector<bool> taken(p.inputs.size(), false);
  for (size_t k = 0; k < p.outputs.size(); ++k) {
    layouts.push_back(static_cast<Layout>(pick(rng, 0, 3)));
    const auto i = static_cast<size_t>(pick(rng, 0, static_cast<int64_t>(p.inputs.size()) - 1));
    if (!taken[i] && p.inputs[i] == p.outputs[k] && in[i].is_one_to_one())
      lies_on[k] = i, taken[i] = true;
  }
  compare(p, shape, std::move(in), layouts, lies_on, cat("seed ", seed));
}

TEST_F(TileDevice, RandomPrograms) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    run_random(seed, 300);
    if (HasFatalFailure()) return;
  }
}
TEST_F(TileDevice, RandomProgramsOfLongRows) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    run_random(1000000 + seed, 9000);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tegula::tile
