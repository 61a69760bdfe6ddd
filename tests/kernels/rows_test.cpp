// Kernels over rows against their definitions in f64: odd lengths, strides, dtypes; equal bits for
// all threads and instruction sets.
#include "tegula/kernels/cpu/common/rows.h"

#include <cmath>

#include "tests/kernels/strided.h"

namespace tegula {
namespace {
using testing::pick;
using testing::Rng;
using testing::Tensor;

// Operands of a call, and which op it is.
struct Inputs {
  std::string op;
  int64_t rows, d;
  bool layer, bias, residual;
  const Tensor *x, *w, *b, *dy, *mean, *rstd, *added;
  bool is_backward() const { return op.find("_bwd") != std::string::npos; }
  bool is_norm() const { return op.find("norm") != std::string::npos; }
};

template <class S>
struct Results {
  std::vector<S> y, dw, db, mean, rstd;  // rstd: of logsumexp, its result
};

template <class S>
void normalise(const Inputs& in, const std::vector<S>& x, Results<S>& r) {
  const auto at = [](const Tensor& t, int64_t i) { return static_cast<S>(t.at(i)); };
  const auto share = static_cast<S>(1 / static_cast<double>(in.d));
  S mean = 0, squares = 0;
  for (S v : x) mean += v;
  mean = in.layer ? mean * share : 0;
  for (S v : x) squares += (v - mean) * (v - mean);
  const S rstd = 1 / std::sqrt(squares * share + static_cast<S>(1e-3));
  r.mean.push_back(mean), r.rstd.push_back(rstd);
  for (int64_t j = 0; j < in.d; ++j)
    r.y.push_back((x[static_cast<size_t>(j)] - mean) * rstd * at(*in.w, j) +
                  (in.bias ? at(*in.b, j) : 0));
}

template <class S>
void normalise_bwd(const Inputs& in, int64_t row, const std::vector<S>& x, const std::vector<S>& dy,
                   Results<S>& r) {
  const auto at = [](const Tensor& t, int64_t i) { return static_cast<S>(t.at(i)); };
  const auto share = static_cast<S>(1 / static_cast<double>(in.d));
  const S mean = in.layer ? at(*in.mean, row) : 0, rstd = at(*in.rstd, row);
  S along = 0, level = 0;
  r.dw.resize(x.size()), r.db.resize(x.size());
  for (size_t j = 0; j < x.size(); ++j) {
    const S xhat = (x[j] - mean) * rstd, g = at(*in.w, static_cast<int64_t>(j)) * dy[j];
    along += xhat * g, level += in.layer ? g : 0;
    r.dw[j] += dy[j] * xhat, r.db[j] += dy[j];
  }
  along *= share, level *= share;
  for (size_t j = 0; j < x.size(); ++j) {
    const auto i = static_cast<int64_t>(j);
    const S y = rstd * (at(*in.w, i) * dy[j] - (x[j] - mean) * rstd * along - level);
    r.y.push_back(y + (in.residual ? at(*in.added, row * in.d + i) : 0));
  }
}

template <class S>
void soften(const Inputs& in, const std::vector<S>& x, const std::vector<S>& dy, Results<S>& r) {
  S along = 0, top = -INFINITY, sum = 0;
  for (size_t j = 0; j < x.size(); ++j) along += x[j] * dy[j], top = std::max(top, x[j]);
  for (S v : x) sum += std::exp(v - top);
  if (in.op == "logsumexp") r.rstd.push_back(top + std::log(sum));
  for (size_t j = 0; j < x.size(); ++j) {
    if (in.op == "softmax_bwd") r.y.push_back(x[j] * (dy[j] - along));
    if (in.op == "softmax") r.y.push_back(std::exp(x[j] - top) / sum);
    if (in.op == "log_softmax") r.y.push_back(x[j] - top - std::log(sum));
  }
}

// The ops' definitions as plain loops, in f64 the truth, in f32 what a naive kernel gives.
template <class S>
Results<S> define(const Inputs& in) {
  Results<S> r;
  for (int64_t row = 0; row < in.rows; ++row) {
    std::vector<S> x, dy;
    for (int64_t j = 0; j < in.d; ++j) {
      x.push_back(static_cast<S>(in.x->at(row * in.d + j)));
      dy.push_back(static_cast<S>(in.dy->at(row * in.d + j)));
    }
    if (!in.is_norm()) {
      soften(in, x, dy, r);
    } else if (in.is_backward()) {
      normalise_bwd(in, row, x, dy, r);
    } else {
      normalise(in, x, r);
    }
  }
  return r;
}

template <class S>
using Part = std::vector<S> Results<S>::*;
// A result's name, the tensor that a kernel wrote, and where definitions have it.
struct Written {
  const char* what;
  const Tensor* tensor;
  Part<double> truth;
  Part<float> naive;
};

double magnitude(const std::vector<double>& v) {
  double largest = 0;
  for (double x : v) largest = std::max(largest, std::fabs(x));
  return largest;
}
double naive_error(const Inputs& in, const Written& w, const std::vector<double>& truth) {
  const std::vector<float> naive = define<float>(in).*w.naive;
  double error = 0;
  for (size_t i = 0; i < truth.size(); ++i)
    error = std::max(error, std::fabs(double{naive[i]} - truth[i]));
  return error;
}

// Error at most twice the naive loops', plus a rounding of the largest result. Where the naive ones
// may have been lucky (a sum near 0, say), they try other values: `redraw` makes them.
template <class Redraw>
void expect_close(const Inputs& in, std::span<const Written> results, Redraw&& redraw) {
  struct Closeness {
    double error = 0, naive = 0, largest, floor;
    bool is_enough() const { return error <= 2 * naive + floor; }
  };
  std::vector<Closeness> close;
  for (const Written& w : results) {
    const std::vector<double> truth = define<double>(in).*w.truth;
    ASSERT_EQ(static_cast<int64_t>(truth.size()), w.tensor->numel()) << w.what;
    Closeness c;
    for (size_t i = 0; i < truth.size(); ++i) {
      const double x = w.tensor->at(static_cast<int64_t>(i));
      ASSERT_TRUE(std::isfinite(x)) << w.what << " at " << i;
      c.error = std::max(c.error, std::fabs(x - truth[i]));
    }
    c.largest = magnitude(truth), c.floor = epsilon(w.tensor->ref().dtype) * c.largest;
    c.naive = naive_error(in, w, truth);
    close.push_back(c);
  }
  const auto is_enough = [](const Closeness& c) { return c.is_enough(); };
  for (int i = 0; i < 8 && !std::all_of(close.begin(), close.end(), is_enough); ++i) {
    redraw();
    for (size_t r = 0; r < results.size(); ++r) {
      const std::vector<double> truth = define<double>(in).*results[r].truth;
      if (magnitude(truth) == 0) continue;
      const double share = naive_error(in, results[r], truth) / magnitude(truth);
      close[r].naive = std::max(close[r].naive, share * close[r].largest);
    }
  }
  for (size_t r = 0; r < results.size(); ++r)
    EXPECT_LE(close[r].error, 2 * close[r].naive + close[r].floor) << results[r].what;
}

struct OpEntry {
  std::string op;
  void (*kernel::IsaTable::*entry)(const KernelCall&);
};
const OpEntry kOps[] = {{"layer_norm", &kernel::IsaTable::layer_norm},
                        {"layer_norm_bwd", &kernel::IsaTable::layer_norm_bwd},
                        {"rms_norm", &kernel::IsaTable::rms_norm},
                        {"rms_norm_bwd", &kernel::IsaTable::rms_norm_bwd},
                        {"softmax", &kernel::IsaTable::softmax},
                        {"softmax_bwd", &kernel::IsaTable::softmax_bwd},
                        {"log_softmax", &kernel::IsaTable::log_softmax},
                        {"logsumexp", &kernel::IsaTable::logsumexp}};

struct RowShape {
  int64_t n0, n1, d;
};

void check(const OpEntry& setup, DType dtype, const RowShape& shape, Rng& rng) {
  const std::string& op = setup.op;
  const bool norm = op.find("norm") != std::string::npos, layer = op.find("layer") == 0;
  const bool backward = op.find("_bwd") != std::string::npos, bias = layer && pick(rng, 0, 1);
  const bool residual = layer && backward && pick(rng, 0, 1);
  const auto [n0, n1, d] = shape;
  const std::vector<int64_t> full = {n0, n1, d}, lead = {n0, n1};
  Tensor x(dtype, full, rng, true), w(dtype, {d}, rng, true), b(dtype, {d}, rng, true);
  Tensor dy(dtype, full, rng, true), mean(DType::kF32, lead, rng, true);
  Tensor rstd(DType::kF32, lead, rng, true), y(dtype, full, rng, false);
  Tensor added(dtype, full, rng, true);
  Tensor dw(dtype, {d}, rng, false), db(dtype, {d}, rng, false);
  Tensor out_mean(DType::kF32, lead, rng, false), out_rstd(DType::kF32, lead, rng, false);
  const auto draw = [&] {
    for (Tensor* t : {&x, &w, &b, &dy, &mean, &rstd, &added}) t->fill_random(rng);
  };
  draw();

  std::vector<TensorRef> in = {x.ref()}, out = {y.ref()};
  if (norm) in.push_back(w.ref());
  if (norm && backward) {
    if (layer) in.push_back(mean.ref());
    in.push_back(rstd.ref()), out.push_back(dw.ref());
    if (bias) out.push_back(db.ref());
  } else if (norm) {
    if (bias) in.push_back(b.ref());
    if (layer) out.push_back(out_mean.ref());
    out.push_back(out_rstd.ref());
  }
  if (backward) in.push_back(dy.ref());
  if (residual) in.push_back(added.ref());
  if (op == "logsumexp") out = {out_rstd.ref()};
  Attrs attrs;
  if (norm && !backward) attrs.set("eps", 1e-3);
  if (bias) attrs.set("bias", true);
  if (residual) attrs.set("residual", true);

  std::vector<double> first;
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    const kernel::IsaTable* table = kernel::isa_table_of(isa);
    for (int threads : {1, 3}) {
      if (table == nullptr) continue;
      testing::run_kernel(*find_kernel(op + "_rows"), attrs, in, out, threads, table->*setup.entry);
      std::vector<double> all;
      for (const Tensor* t : {&y, &dw, &db, &out_mean, &out_rstd})
        for (int64_t i = 0; i < t->numel(); ++i) all.push_back(t->at(i));
      if (first.empty()) first = all;
      ASSERT_EQ(first, all) << isa_name(isa) << " x" << threads;
    }
  }
  const Inputs inputs = {op, n0 * n1, d,   layer, bias,  residual, &x,
                         &w, &b,      &dy, &mean, &rstd, &added};
  using D = Results<double>;
  using F = Results<float>;
  std::vector<Written> results;
  if (op != "logsumexp") results.push_back({"y", &y, &D::y, &F::y});
  if (norm && backward) results.push_back({"dw", &dw, &D::dw, &F::dw});
  if (bias && backward) results.push_back({"db", &db, &D::db, &F::db});
  if (layer && !backward) results.push_back({"mean", &out_mean, &D::mean, &F::mean});
  if ((norm && !backward) || op == "logsumexp")
    results.push_back({"rstd or logsumexp", &out_rstd, &D::rstd, &F::rstd});
  expect_close(inputs, results, draw);
}

TEST(Rows, MatchTheirDefinitions) {
  for (const OpEntry& setup : kOps)
    for (unsigned seed = 0; seed < 400; ++seed) {
      Rng rng(seed);
      const DType dtypes[] = {DType::kF32, DType::kF32, DType::kBF16, DType::kF16};
      const DType dtype = dtypes[seed % 4];
      SCOPED_TRACE(cat(setup.op, " ", dtype_name(dtype), " seed ", seed));
      const int64_t n0 = pick(rng, 1, 5), n1 = pick(rng, 1, 4), d = pick(rng, 1, 150);
      check(setup, dtype, {n0, n1, d}, rng);
      if (HasFatalFailure()) return;
    }
}

// One less, equal, and one more than multiples of the kernels' own blocks: vectors of 16; shards of
// 16 rows and more from 1,025 on; the columns that sums over shards are cut into.
TEST(Rows, MatchTheirDefinitionsAroundTheirBlocks) {
  using kernel::NormShards;
  const int64_t few = NormShards::kFewestRows, most = few * NormShards::kMost;
  const RowShape shapes[] = {
      {few - 1, 1, 15},  {few, 1, 16},          {few + 1, 1, 17}, {2 * few - 1, 1, 33},
      {2 * few, 1, 32},  {1, 2 * few + 1, 31},  {5, few, 255},    {few + 3, 4, 256},
      {3, few - 1, 257}, {3 * few + 1, 1, 513}, {most - 1, 1, 5}, {2, most / 2, 16},
      {most + 1, 1, 17}, {2 * most - 1, 1, 3},  {2, most, 7},     {2 * most + 1, 1, 2},
  };
  unsigned seed = 0;
  for (const OpEntry& setup : kOps)
    for (const RowShape& shape : shapes) {
      Rng rng(++seed);
      const DType dtype = seed % 3 == 2 ? DType::kBF16 : DType::kF32;
      SCOPED_TRACE(
          cat(setup.op, " ", dtype_name(dtype), " ", shape.n0, "x", shape.n1, "x", shape.d));
      check(setup, dtype, shape, rng);
      if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace tegula
