// Attention of prompts over keys in pages on a device: a query's bits are those that it has alone,
// whatever the pages, the companions and how its text was cut into chunks. Nothing past a
// sequence's keys is read: there is NaN. (Values: device_gpu_test, by the op's samples.) Skipped
// where no GPU can be used.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "tegula/base/half.h"
#include "tegula/kernels/registry.h"
#include "tests/ops/checks.h"

namespace tegula::testing {
namespace {

constexpr int64_t kPage = 64, kHeads = 4, kKvHeads = 2;

// Queries [first, end) of a text, whose keys are those before `end`.
struct Piece {
  int text;
  int64_t first, end;
};

// A draw in [-2, 2) by what it belongs to.
bf16 value_of(int text, int which, int64_t row, int64_t column) {
  const auto at = static_cast<uint64_t>(((text * 3 + which) * 4096 + row) * 4096 + column);
  uint64_t x = at * 0x9E3779B97F4A7C15 + 0x1234567;
  x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9;
  return bf16(static_cast<float>(x >> 40) * 0x1p-22F - 2.0F);
}

class DevicePages : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    const auto opened = open_device();
    if (!opened.ok()) GTEST_SKIP() << opened.error().message;
    device_ = *opened;
  }
  void TearDown() override {
    for (void* data : owned_) device_->release(data);
  }

  template <class T>
  TensorRef on_device(DType t, std::initializer_list<int64_t> shape, const std::vector<T>& host) {
    Shape s;
    for (const int64_t n : shape) s.push_back(n);
    TensorRef r = contiguous_ref(nullptr, {t, s});
    const auto bytes = static_cast<int64_t>(host.size() * sizeof(T));
    r.data = owned_.emplace_back(device_->allocate(bytes).value());
    device_->copy(r.data, host.data(), bytes).value();
    return r;
  }

  // Rows of o, a query after the other; `shuffle` places the pages.
  std::vector<std::vector<bf16>> run(const std::vector<Piece>& pieces, const Attrs& more,
                                     uint64_t shuffle) {
    const int64_t d = GetParam(), n = static_cast<int64_t>(pieces.size());
    const int64_t pages = 6, n_pages = n * pages + 2;
    std::vector<int32_t> places(static_cast<size_t>(n_pages)), table, lengths, cu{0};
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), std::mt19937_64(shuffle));
    std::vector<bf16> q, kv[2];
    for (auto& t : kv)
      t.assign(static_cast<size_t>(n_pages * kPage * kKvHeads * d), bf16(std::nanf("")));
    for (int64_t s = 0; s < n; ++s) {
      const Piece& p = pieces[static_cast<size_t>(s)];
      for (int64_t i = 0; i < pages; ++i)
        table.push_back(places[static_cast<size_t>(s * pages + i)]);
      lengths.push_back(static_cast<int32_t>(p.end));
      cu.push_back(cu.back() + static_cast<int32_t>(p.end - p.first));
      for (int64_t i = p.first; i < p.end; ++i)
        for (int64_t e = 0; e < kHeads * d; ++e) q.push_back(value_of(p.text, 0, i, e));
      for (int64_t j = 0; j < p.end; ++j)
        for (int64_t e = 0; e < kKvHeads * d; ++e) {
          const int64_t page = table[static_cast<size_t>(s * pages + j / kPage)];
          const auto at = static_cast<size_t>((page * kPage + j % kPage) * kKvHeads * d + e);
          for (int which : {0, 1}) kv[which][at] = value_of(p.text, which + 1, j, e);
        }
    }
    Attrs attrs = more;
    attrs.set("scale", 1 / std::sqrt(static_cast<double>(d)));
    attrs.set("varlen", true), attrs.set("paged", true);
    const int64_t rows = cu.back();
    const TensorRef in[] = {on_device(DType::kBF16, {1, rows, kHeads, d}, q),
                            on_device(DType::kBF16, {n_pages, kPage, kKvHeads, d}, kv[0]),
                            on_device(DType::kBF16, {n_pages, kPage, kKvHeads, d}, kv[1]),
                            on_device(DType::kI32, {n + 1}, cu),
                            on_device(DType::kI32, {n}, lengths),
                            on_device(DType::kI32, {n, pages}, table)};
    std::vector<bf16> o(q.size(), bf16(std::nanf("")));
    const TensorRef out[] = {
        on_device(DType::kBF16, {1, rows, kHeads, d}, o),
        on_device(DType::kF32, {1, kHeads, rows}, std::vector<float>(size_t(rows * kHeads)))};
    launch(attrs, in, out);
    device_->copy(o.data(), out[0].data, static_cast<int64_t>(o.size() * sizeof(bf16))).value();
    std::vector<std::vector<bf16>> each;
    for (int64_t i = 0; i < rows; ++i)
      each.emplace_back(o.begin() + i * kHeads * d, o.begin() + (i + 1) * kHeads * d);
    return each;
  }

  void launch(const Attrs& attrs, std::span<const TensorRef> in, std::span<const TensorRef> out) {
    const KernelDef* kernel = nullptr;
    for (const KernelDef* k : all_kernels())
      if (k->name == "attention_mma") kernel = k;
    ASSERT_NE(kernel, nullptr);
    const KernelQuery query{.attrs = &attrs, .in = in, .out = out, .target = &device_->target()};
    const Status takes = kernel->check(query);
    ASSERT_TRUE(takes.ok()) << takes.error().message;
    ASSERT_EQ(kernel->workspace_bytes(query), 0) << "no page is copied";
    Counters counters;
    DeviceCall call;
    call.attrs = &attrs, call.in = in, call.out = out;
    call.counters = &counters, call.target = &device_->target();
    const auto ready = launch_of(*kernel)->prepare(call);
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    (*ready)->enqueue(device_->stream()).value();
    device_->wait().value();
  }

  static bool same(const std::vector<bf16>& a, const std::vector<bf16>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(bf16)) == 0;
  }

  Device* device_ = nullptr;
  std::vector<void*> owned_;
};

TEST_P(DevicePages, AQuerysBitsAreItsOwn) {
  if (is_launch_only()) GTEST_SKIP() << kLaunchOnly;
  const int64_t length[] = {300, 1, 65, 129};
  for (const int64_t window : {-1, 70}) {
    Attrs attrs{{"is_causal", true}};
    if (window >= 0) attrs.set("window_left", window);
    std::vector<Piece> together;
    std::vector<std::vector<std::vector<bf16>>> alone;
    for (int t = 0; t < 4; ++t) {
      together.push_back({t, 0, length[t]});
      alone.push_back(run({together.back()}, attrs, 1));
      for (const auto& row : alone.back())
        for (const bf16 x : row) ASSERT_TRUE(std::isfinite(static_cast<float>(x)));
    }
    // All at once, a batch of pieces of every text, and one text's queries in chunks.
    const std::vector<std::vector<Piece>> calls = {
        together,       {{2, 30, 65}, {0, 17, 290}, {3, 128, 129}, {1, 0, 1}},
        {{0, 0, 37}},   {{0, 37, 38}},
        {{0, 38, 300}}, {{0, 100, 101}, {0, 101, 102}, {0, 250, 300}}};
    uint64_t shuffle = 2;
    for (const auto& pieces : calls) {
      const auto rows = run(pieces, attrs, shuffle++);
      size_t row = 0;
      for (const Piece& p : pieces)
        for (int64_t i = p.first; i < p.end; ++i, ++row)
          ASSERT_TRUE(same(rows[row], alone[static_cast<size_t>(p.text)][static_cast<size_t>(i)]))
              << "query " << i << " of text " << p.text << ", window " << window;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(HeadDims, DevicePages, ::testing::Values(64, 96, 128, 256));

}  // namespace
}  // namespace tegula::testing
