// Kernels over rows against double loops: odd lengths, strides, dtypes; equal bits for all threads
// and instruction sets.
#include <cmath>

#include "tests/kernels/strided.h"

namespace tegula {
namespace {
using testing::pick;
using testing::Rng;
using testing::Tensor;

struct Row {
  std::vector<double> x, w, b, dy;
  double mean = 0, rstd = 0;
};

// What the op gives for one row; dw and db are summed by the caller.
std::vector<double> define(const std::string& op, const Row& r, double eps, bool bias) {
  const size_t d = r.x.size();
  std::vector<double> y(d);
  if (op == "layer_norm" || op == "rms_norm") {
    double mean = 0, squares = 0;
    if (op == "layer_norm")
      for (double v : r.x) mean += v / static_cast<double>(d);
    for (double v : r.x) squares += (v - mean) * (v - mean) / static_cast<double>(d);
    for (size_t j = 0; j < d; ++j)
      y[j] = (r.x[j] - mean) / std::sqrt(squares + eps) * r.w[j] + (bias ? r.b[j] : 0);
  } else if (op == "layer_norm_bwd" || op == "rms_norm_bwd") {
    double along = 0, level = 0;
    for (size_t j = 0; j < d; ++j) {
      along += (r.x[j] - r.mean) * r.rstd * r.w[j] * r.dy[j] / static_cast<double>(d);
      if (op == "layer_norm_bwd") level += r.w[j] * r.dy[j] / static_cast<double>(d);
    }
    for (size_t j = 0; j < d; ++j)
      y[j] = r.rstd * (r.w[j] * r.dy[j] - (r.x[j] - r.mean) * r.rstd * along - level);
  } else if (op == "softmax_bwd") {
    double along = 0;
    for (size_t j = 0; j < d; ++j) along += r.x[j] * r.dy[j];
    for (size_t j = 0; j < d; ++j) y[j] = r.x[j] * (r.dy[j] - along);
  } else {
    double top = -INFINITY, sum = 0;
    for (double v : r.x) top = std::max(top, v);
    for (double v : r.x) sum += std::exp(v - top);
    if (op == "logsumexp") return {top + std::log(sum)};
    for (size_t j = 0; j < d; ++j)
      y[j] = op == "softmax" ? std::exp(r.x[j] - top) / sum : r.x[j] - top - std::log(sum);
  }
  return y;
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

void check(const OpEntry& setup, DType dtype, Rng& rng) {
  const std::string& op = setup.op;
  const bool norm = op.find("norm") != std::string::npos, layer = op.find("layer") == 0;
  const bool backward = op.find("_bwd") != std::string::npos, bias = layer && pick(rng, 0, 1);
  const bool residual = layer && backward && pick(rng, 0, 1);
  const int64_t n0 = pick(rng, 1, 5), n1 = pick(rng, 1, 4), d = pick(rng, 1, 150);
  const std::vector<int64_t> full = {n0, n1, d}, lead = {n0, n1};
  Tensor x(dtype, full, rng, true), w(dtype, {d}, rng, true), b(dtype, {d}, rng, true);
  Tensor dy(dtype, full, rng, true), mean(DType::kF32, lead, rng, true);
  Tensor rstd(DType::kF32, lead, rng, true), y(dtype, full, rng, false);
  Tensor added(dtype, full, rng, true);
  Tensor dw(dtype, {d}, rng, false), db(dtype, {d}, rng, false);
  Tensor out_mean(DType::kF32, lead, rng, false), out_rstd(DType::kF32, lead, rng, false);
  for (Tensor* t : {&x, &w, &b, &dy, &mean, &rstd, &added}) t->fill_random(rng);

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
  std::vector<double> sum_w(static_cast<size_t>(d)), sum_b(static_cast<size_t>(d));
  const auto near = [&](const Tensor& t, int64_t i, double want, double scale) {
    // Some tens of roundings of values of that scale; a wrong element is off by far more.
    const double eps = epsilon(t.ref().dtype) + 64 * epsilon(DType::kF32);
    ASSERT_NEAR(t.at(i), want, eps * (std::fabs(want) + scale)) << op << " d=" << d << " at " << i;
  };
  for (int64_t row = 0; row < n0 * n1; ++row) {
    Row r;
    r.mean = layer ? mean.at(row) : 0, r.rstd = rstd.at(row);
    for (int64_t j = 0; j < d; ++j) {
      r.x.push_back(x.at(row * d + j)), r.dy.push_back(dy.at(row * d + j));
      r.w.push_back(w.at(j)), r.b.push_back(b.at(j));
      const auto at = static_cast<size_t>(j);
      sum_w[at] += r.dy[at] * (r.x[at] - r.mean) * r.rstd, sum_b[at] += r.dy[at];
    }
    auto want = define(op, r, 1e-3, bias);
    for (int64_t j = 0; residual && j < d; ++j)
      want[static_cast<size_t>(j)] += added.at(row * d + j);
    if (op == "logsumexp") {
      near(out_rstd, row, want[0], 1);
      continue;
    }
    for (int64_t j = 0; j < d; ++j) near(y, row * d + j, want[static_cast<size_t>(j)], 30);
  }
  for (int64_t j = 0; norm && backward && j < d; ++j) {
    near(dw, j, sum_w[static_cast<size_t>(j)], 30);
    if (bias) near(db, j, sum_b[static_cast<size_t>(j)], 30);
  }
}

TEST(Rows, MatchTheirDefinitions) {
  for (const OpEntry& setup : kOps)
    for (unsigned seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE(cat(setup.op, " seed ", seed));
      Rng rng(seed);
      const DType dtypes[] = {DType::kF32, DType::kF32, DType::kBF16, DType::kF16};
      check(setup, dtypes[seed % 4], rng);
      if (HasFailure()) return;
    }
}

}  // namespace
}  // namespace tegula
