// Few rows times a matrix on a device: a row has the bits that it has alone. Where no tensor cores
// sum, they are those of matvec's order. Skipped where no GPU can be used.
#include <gtest/gtest.h>

#include <cmath>

#include "tegula/kernels/registry.h"
#include "tegula/ops/table.h"
#include "tests/ops/checks.h"

namespace tegula::testing {
namespace {

struct Product {
  int64_t m, n, k, shards;
  bool is_mn_major;  // b as [k, n]
  DType dtype;
};

// Σ over k of one shard: `lanes` chains, each of which takes `vector` neighbours at a time; then
// lane l + half is added to l, of ever smaller halves.
float sum_of_shard(const std::vector<float>& a, const std::vector<float>& b, int64_t lanes,
                   int64_t vector) {
  std::vector<float> sum(static_cast<size_t>(lanes));
  for (size_t k = 0; k < a.size(); ++k) {
    float& s = sum[k / static_cast<size_t>(vector) % sum.size()];
    s = std::fma(a[k], b[k], s);
  }
  for (size_t half = sum.size() / 2; half > 0; half /= 2)
    for (size_t l = 0; l < half; ++l) sum[l] += sum[l + half];
  return sum[0];
}

float want(const Product& p, const HostTensor& a, const HostTensor& b, int64_t m, int64_t n) {
  const int64_t vector = 16 / size_bytes(p.dtype), share = p.k / p.shards;
  std::vector<float> parts;
  for (int64_t first = 0; first < p.k; first += share) {
    std::vector<float> x, y;
    for (int64_t k = first; k < first + share; ++k) {
      x.push_back(static_cast<float>(a.at(m * p.k + k)));
      y.push_back(static_cast<float>(b.at(p.is_mn_major ? k * p.n + n : n * p.k + k)));
    }
    parts.push_back(p.is_mn_major ? sum_of_shard(x, y, 4 * vector, 1)
                                  : sum_of_shard(x, y, 32, vector));
  }
  for (; parts.size() > 1; parts.resize(parts.size() / 2))
    for (size_t i = 0; i < parts.size() / 2; ++i) parts[i] = parts[2 * i] + parts[2 * i + 1];
  return parts[0];
}

class DeviceFewRows : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto opened = open_device();
    if (!opened.ok()) GTEST_SKIP() << opened.error().message;
    if (is_launch_only()) GTEST_SKIP() << kLaunchOnly;
    device_ = *opened;
    for (const KernelDef* k : all_kernels())
      if (k->name == "matvec") kernel_ = k;
    ASSERT_NE(kernel_, nullptr);
  }
  void TearDown() override { release(); }
  void release() {
    for (void* data : owned_) device_->release(data);
    owned_.clear();
  }

  // Rows [first, first + m) of a, times b.
  HostTensor run(const Case& c, int64_t first, int64_t m) {
    Type type = c.out[0];
    type.shape[0] = m;
    HostTensor got(type);
    std::vector<TensorRef> in = c.refs(), out{got.ref()};
    const int64_t row = in[0].shape[1] * size_bytes(in[0].dtype);
    in[0].data = static_cast<uint8_t*>(in[0].data) + first * row, in[0].shape[0] = m;
    for (std::vector<TensorRef>* all : {&in, &out})
      for (TensorRef& t : *all) {
        const int64_t bytes = t.numel() * size_bytes(t.dtype);
        void* data = owned_.emplace_back(device_->allocate(bytes).value());
        device_->copy(data, t.data, bytes).value();
        t.data = data;
      }
    Counters counters;
    DeviceCall call;
    call.attrs = &c.sample.attrs, call.in = in, call.out = out;
    call.counters = &counters, call.target = &device_->target();
    const KernelQuery query{
        .attrs = call.attrs, .in = in, .out = out, .target = &device_->target()};
    const Status takes = kernel_->check(query);
    EXPECT_TRUE(takes.ok()) << takes.error().message;
    const auto ready = launch_of(*kernel_)->prepare(call);
    EXPECT_TRUE(ready.ok()) << ready.error().message;
    (*ready)->settle({}).value();
    (*ready)->enqueue(device_->stream()).value();
    device_->wait().value();
    device_->copy(got.ref().data, out[0].data, got.numel() * 4).value();
    release();
    return got;
  }

  void check(const Product& p) {
    SCOPED_TRACE(cat(dtype_name(p.dtype), p.is_mn_major ? " [k, n] " : " [n, k] ", p.m, " rows, n ",
                     p.n, ", k ", p.k, ", shards ", p.shards));
    Sample s;
    s.in = {{{p.dtype, {p.m, p.k}}},
            {{p.dtype, p.is_mn_major ? Shape{p.k, p.n} : Shape{p.n, p.k}}}};
    s.attrs = Attrs{{"dims", std::string(p.is_mn_major ? "m k, k n -> m n" : "m k, n k -> m n")},
                    {"k_shards", p.shards},
                    {"out", DType::kF32}};
    const Case c = make_case(*find_op("dot"), s, 1);
    ASSERT_EQ(c.out.size(), 1U) << infer(c.call()).error().message;
    const HostTensor got = run(c, 0, p.m);
    const bool is_in_order = p.is_mn_major || p.dtype == DType::kF32;
    for (int64_t m = 0; m < p.m; ++m) {
      const HostTensor alone = run(c, m, 1);
      for (int64_t n = 0; n < p.n; ++n) {
        const auto x = static_cast<float>(got.at(m * p.n + n));
        ASSERT_EQ(x, static_cast<float>(alone.at(n))) << m << ", " << n;
        const float wanted = want(p, c.values[0], c.values[1], m, n);
        // The bits that tensor cores cut off: of sums of 64, and those of the warps' chains.
        if (is_in_order)
          ASSERT_EQ(x, wanted) << m << ", " << n;
        else
          ASSERT_NEAR(x, wanted, 0x1p-20 * static_cast<double>(p.k)) << m << ", " << n;
      }
    }
  }

  Device* device_ = nullptr;
  const KernelDef* kernel_ = nullptr;
  std::vector<void*> owned_;
};

TEST_F(DeviceFewRows, HaveTheBitsOfTheOrder) {
  // Steps and chunks of k that are whole, cut short and more than one.
  for (const DType t : {DType::kBF16, DType::kF32})
    for (const bool is_mn_major : {false, true}) {
      check({1, 24, 10848, 4, is_mn_major, t});  // a shard ends just before a chunk does
      for (const int64_t m : {1, 3, 11, 16, 21})
        for (const int64_t k : {64, 2048, 8544}) {
          check({m, 24, k, 1, is_mn_major, t});
          if (m <= 3) check({m, 24, k, 4, is_mn_major, t});
        }
    }
}

// More blocks than there is room for at once: each has several groups of columns in turn.
TEST_F(DeviceFewRows, SoHaveThoseOfBlocksThatGoOn) {
  const int64_t n = 16 * (int64_t{8} * device_->target().multiprocessors + 3) + 8;
  for (const int64_t k : {64, 320})
    for (const int64_t m : {1, 3}) check({m, n, k, 1, false, DType::kBF16});
  check({2, n, 512, 4, false, DType::kF16});
}

}  // namespace
}  // namespace tegula::testing
