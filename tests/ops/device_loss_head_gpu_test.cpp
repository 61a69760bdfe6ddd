// The loss's head whose product writes exponentials: against loops in double precision, where rows'
// sums are in range and where they are not; and a row's bits do not depend on the others.
// Skipped where no GPU of capability 9.0 can be used.
#include <gtest/gtest.h>

#include <cmath>

#include "tegula/kernels/registry.h"
#include "tegula/ops/table.h"
#include "tests/common/device_count.h"
#include "tests/ops/checks.h"

namespace tegula::testing {
namespace {

struct Head {
  int64_t n, d, v;
  DType id = DType::kI32;
};

struct Result {
  std::vector<double> lse, picked, dx, dw;
};

class DeviceLossHead : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto opened = open_device();
    if (!opened.ok()) GTEST_SKIP() << opened.error().message;
    if (is_launch_only()) GTEST_SKIP() << kLaunchOnly;
    device_ = *opened;
    if (device_->target().capability != 90) GTEST_SKIP() << "not of capability 9.0";
    for (const KernelDef* k : all_kernels())
      if (k->name == "linear_cross_entropy_grads_sm90") kernel_ = k;
    ASSERT_NE(kernel_, nullptr);
  }

  // Values of whole quarters, so that logits of few terms are exact in bf16. Row 1, 4, 7, … of x
  // has one term alone, `large`.
  void make(const Head& h, double large) {
    head_ = h;
    const Type stats{DType::kF32, {h.n}};
    x_ = HostTensor({DType::kBF16, {h.n, h.d}}), w_ = HostTensor({DType::kBF16, {h.v, h.d}});
    ids_ = HostTensor({h.id, {h.n}}), dlse_ = HostTensor(stats), dpicked_ = HostTensor(stats);
    uint32_t random = 7;
    const auto next = [&](int n) {
      random = random * 1664525 + 1013904223;
      return static_cast<int>((random >> 16) % static_cast<uint32_t>(n));
    };
    for (int64_t i = 0; i < w_.numel(); ++i) w_.put(i, (next(9) - 4) / 4.0);
    for (int64_t i = 0; i < h.n; ++i) {
      for (int64_t k = 0; k < h.d; ++k)
        x_.put(i * h.d + k, i % 3 == 1 ? (k == i % h.d ? large : 0) : (next(9) - 4) / 16.0);
      ids_.put(i, i % 11 == 5 ? -100 : static_cast<double>(next(static_cast<int>(h.v))));
      dlse_.put(i, i % 11 == 5 ? 0 : (next(7) + 1) / 64.0);
      dpicked_.put(i, i % 13 == 3 ? 0.5 : -dlse_.at(i));
      if (i % 17 == 2) dlse_.put(i, 0);         // and a target all the same
      if (i % 17 == 8) dlse_.put(i, 0x1p-100);  // next to nothing beside it
    }
  }

  [[nodiscard]] Result truth() const {
    const Head& h = head_;
    Result t;
    t.dx.resize(static_cast<size_t>(h.n * h.d)), t.dw.resize(static_cast<size_t>(h.v * h.d));
    std::vector<double> logits(static_cast<size_t>(h.v));
    for (int64_t i = 0; i < h.n; ++i) {
      double top = -INFINITY, sum = 0;
      for (int64_t j = 0; j < h.v; ++j) {
        double logit = 0;
        for (int64_t k = 0; k < h.d; ++k) logit += x_.at(i * h.d + k) * w_.at(j * h.d + k);
        logits[static_cast<size_t>(j)] = logit, top = std::max(top, logit);
      }
      for (const double l : logits) sum += std::exp(l - top);
      const auto id = static_cast<int64_t>(ids_.at(i));
      t.lse.push_back(top + std::log(sum));
      t.picked.push_back(id >= 0 ? logits[static_cast<size_t>(id)] : 0);
      for (int64_t j = 0; j < h.v; ++j) {
        const double g = dlse_.at(i) * std::exp(logits[static_cast<size_t>(j)] - t.lse.back()) +
                         (id == j ? dpicked_.at(i) : 0);
        for (int64_t k = 0; k < h.d; ++k) {
          t.dx[static_cast<size_t>(i * h.d + k)] += g * w_.at(j * h.d + k);
          t.dw[static_cast<size_t>(j * h.d + k)] += g * x_.at(i * h.d + k);
        }
      }
    }
    return t;
  }

  Result run() {
    const Head& h = head_;
    HostTensor lse(dlse_.type), picked(dlse_.type), dx(x_.type), dw(w_.type);
    HostTensor* const inputs[] = {&x_, &w_, &ids_, &dlse_, &dpicked_};
    HostTensor* const outputs[] = {&lse, &picked, &dx, &dw};
    std::vector<void*> owned;
    std::vector<TensorRef> in, out;
    const auto place = [&](HostTensor& t, std::vector<TensorRef>& all) {
      TensorRef r = t.ref();
      const int64_t bytes = r.numel() * size_bytes(r.dtype);
      void* data = owned.emplace_back(device_->allocate(bytes).value());
      device_->copy(data, r.data, bytes).value();
      r.data = data;
      all.push_back(r);
    };
    for (HostTensor* t : inputs) place(*t, in);
    for (HostTensor* t : outputs) {
      std::fill(t->bytes.begin(), t->bytes.end(), std::byte{0xff});
      place(*t, out);
    }
    Attrs attrs;
    Counters counters;
    DeviceCall call;
    call.attrs = &attrs, call.in = in, call.out = out;
    call.counters = &counters, call.target = &device_->target();
    const KernelQuery query{.attrs = &attrs, .in = in, .out = out, .target = call.target};
    const Status takes = kernel_->check(query);
    EXPECT_TRUE(takes.ok()) << takes.error().message;
    const int64_t bytes = kernel_->workspace_bytes(query);
    call.workspace = owned.emplace_back(device_->allocate(bytes).value());
    const std::vector<uint8_t> old(static_cast<size_t>(bytes), uint8_t{0xff});  // NaN
    device_->copy(call.workspace, old.data(), bytes).value();
    const auto ready = launch_of(*kernel_)->prepare(call);
    EXPECT_TRUE(ready.ok()) << ready.error().message;
    static const CountedFlops count = device_counter();
    if (count != nullptr) count();
    (*ready)->enqueue(device_->stream()).value();
    device_->wait().value();
    const int64_t counted = count != nullptr ? count() : 0;
    Result r;
    std::vector<double>* const to[] = {&r.lse, &r.picked, &r.dx, &r.dw};
    for (size_t i = 0; i < 4; ++i) {
      HostTensor& t = *outputs[i];
      device_->copy(t.ref().data, out[i].data, t.numel() * size_bytes(t.type.dtype)).value();
      for (int64_t e = 0; e < t.numel(); ++e) to[i]->push_back(t.at(e));
    }
    for (void* data : owned) device_->release(data);
    const int64_t flops = h.n * (8 * h.v + 2) + 6 * h.n * h.v * h.d;
    EXPECT_EQ(counters.math_flops.load(), flops);
    if (count != nullptr) EXPECT_EQ(counted, flops);
    return r;
  }

  void check(const Head& h, double large) {
    SCOPED_TRACE(cat(h.n, " tokens, d ", h.d, ", v ", h.v, ", single terms ", large));
    make(h, large);
    const Result got = run(), want = truth();
    const auto near = [](const std::vector<double>& a, const std::vector<double>& b, double bound,
                         const char* what) {
      double most = 1e-3;
      for (const double x : b) most = std::max(most, std::fabs(x));
      for (size_t i = 0; i < b.size(); ++i) ASSERT_NEAR(a[i], b[i], bound * most) << what << i;
    };
    // Logits are rounded to 8 bits, e and x·scale, too.
    near(got.lse, want.lse, 0.004, "lse ");
    near(got.picked, want.picked, 0.004, "picked ");
    near(got.dx, want.dx, 0.01, "dx ");
    near(got.dw, want.dw, 0.01, "dw ");
  }

  Head head_{};
  HostTensor x_{Type{}}, w_{Type{}}, ids_{Type{}}, dlse_{Type{}}, dpicked_{Type{}};
  Device* device_ = nullptr;
  const KernelDef* kernel_ = nullptr;
};

TEST_F(DeviceLossHead, AgreesWithLoops) {
  for (const double large : {0.5, 512.0})  // the second: sums from e^-1000 to e^1000
    for (const Head& h : {Head{1, 8, 1}, Head{5, 8, 9}, Head{130, 64, 57, DType::kI64},
                          Head{70, 136, 200}, Head{40, 32, 321}})
      check(h, large);
}

void expect_same_rows(const Result& alone, const Result& beside, bool every_third_is_other) {
  for (size_t i = 0; i < alone.lse.size(); ++i) {
    if (every_third_is_other && i % 3 == 1) continue;
    EXPECT_EQ(beside.lse[i], alone.lse[i]) << i;
    EXPECT_EQ(beside.picked[i], alone.picked[i]) << i;
    for (size_t k = 64 * i; k < 64 * (i + 1); ++k)
      ASSERT_EQ(beside.dx[k], alone.dx[k]) << i << ", " << k;
  }
}

TEST_F(DeviceLossHead, ARowsBitsAreItsOwn) {
  make({40, 64, 136}, 0.5);
  const Result alone = run();
  make({40, 64, 136}, 512);  // rows 1, 4, 7, … are others
  expect_same_rows(alone, run(), true);
  make({700, 64, 136}, 0.5);  // and there are more of them
  expect_same_rows(alone, run(), false);
}

}  // namespace
}  // namespace tegula::testing
