// Weights that are not finite are found wherever they stand and whatever holds them; all others
// pass.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tegula/base/element.h"
#include "tegula/io/safetensors.h"
#include "tegula/ir/host_tensor.h"
#include "tegula/models/checkpoint.h"
#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

class ReadWeights : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr int64_t kN = 10001;  // blocks, and a rest that fills no word
  ReadWeights() : from({GetParam(), {kN}}), to({DType::kF32, {kN}}) {}
  Status read() {
    const NamedTensor tensors[] = {{"w", from.ref()}};
    EXPECT_TRUE(write_safetensors(dir / "model.safetensors", tensors).ok());
    return read_weights(*WeightFiles::open(dir.path()), config, {{"w", to.ref()}});
  }
  TempDir dir;
  ModelConfig config;
  HostTensor from, to;
};

TEST_P(ReadWeights, KeepsEveryFiniteValue) {
  // The largest, the smallest, and all exponents between them.
  for (int64_t i = 0; i < kN; ++i) {
    const double value = rounded_to(GetParam(), (i % 3 - 1.0) * std::exp2(i % 267 - 140.0));
    from.put(i, std::isfinite(value) ? value : i % 2 == 0 ? 65504.0 : -0.0);
  }
  const Status st = read();
  ASSERT_TRUE(st.ok()) << st.error().message;
  for (int64_t i = 0; i < kN; ++i) ASSERT_EQ(to.at(i), rounded_to(DType::kF32, from.at(i))) << i;
}

TEST_P(ReadWeights, FindsWhatIsNotFinite) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const double bad : {kInf, -kInf, std::nan("")})
    for (const int64_t at : {0, 1, 2, 3, 5, 4095, 4096, 8191, 9999, 10000}) {
      for (int64_t i = 0; i < kN; ++i) from.put(i, 1.5);
      from.put(at, bad);
      expect_error(read(), Code::kInvalidArgument,
                   {"model.safetensors: tensor w has ", cat("element ", at, " of 10001")});
    }
}

TEST(ReadWeightsInto, WhatTheTargetCannotHoldIsTold) {
  const TempDir dir;
  for (const auto& [from_dtype, to_dtype, value] : {std::tuple(DType::kF64, DType::kF32, 1e300),
                                                    {DType::kF32, DType::kF16, 70000.0},
                                                    {DType::kBF16, DType::kF16, -1e5}}) {
    HostTensor from({from_dtype, {9}}), to({to_dtype, {9}});
    from.put(7, value);
    const NamedTensor tensors[] = {{"w", from.ref()}};
    ASSERT_TRUE(write_safetensors(dir / "model.safetensors", tensors).ok());
    expect_error(read_weights(*WeightFiles::open(dir.path()), ModelConfig(), {{"w", to.ref()}}),
                 Code::kInvalidArgument,
                 {"tensor w has ", "element 7 of 9", cat("too large for ", to_dtype)});
  }
}

// Weights that stay in their file, and boxes of them.
class MappedWeights : public ::testing::Test {
 protected:
  static constexpr int64_t kRows = 600, kColumns = 1000;
  MappedWeights() : from({DType::kF32, {kRows, kColumns}}) {
    for (int64_t i = 0; i < from.numel(); ++i) from.put(i, static_cast<double>(i));
  }
  std::shared_ptr<ModelWeights> open() {
    const NamedTensor tensors[] = {{"w", from.ref()}};
    EXPECT_TRUE(write_safetensors(dir / "model.safetensors", tensors).ok());
    auto w = ModelWeights::open(*WeightFiles::open(dir.path()), ModelConfig(),
                                {{"w", {kRows, kColumns}}});
    EXPECT_TRUE(w.ok()) << w.error().message;
    return *w;
  }
  TempDir dir;
  HostTensor from;
};

TEST_F(MappedWeights, LieInTheFileWhereTheyAreInOnePieceAndDtype) {
  const auto w = open();
  const TensorRef all = w->mapped("w", Box::whole({{kRows, kColumns}}), DType::kF32);
  ASSERT_NE(all.data, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(all.data) % 64, 0u);
  EXPECT_EQ(std::memcmp(all.data, from.bytes.data(), from.bytes.size()), 0);
  const TensorRef rows = w->mapped("w", {{200, 0}, {200, kColumns}}, DType::kF32);
  ASSERT_NE(rows.data, nullptr);
  EXPECT_EQ(rows.as<float>()[0], 200.0 * kColumns);
  const Box columns{{0, 500}, {kRows, 250}};
  EXPECT_EQ(w->mapped("w", columns, DType::kF32).data, nullptr);
  EXPECT_EQ(w->mapped("w", Box::whole({{kRows, kColumns}}), DType::kBF16).data, nullptr);
  EXPECT_EQ(w->mapped("v", columns, DType::kF32).data, nullptr);
  HostTensor to({DType::kF64, {kRows, 250}});
  ASSERT_TRUE(w->copy("w", columns, to.ref()).ok());
  for (int64_t i = 0; i < to.numel(); ++i)
    ASSERT_EQ(static_cast<int64_t>(to.at(i)), i / 250 * kColumns + 500 + i % 250);
}

TEST_F(MappedWeights, AreCheckedAllTheSame) {
  ThreadPool pool(3);
  EXPECT_TRUE(open()->check(pool).ok());
  from.put(599999, std::nan("")), from.put(300123, std::nan(""));
  const auto w = open();
  expect_error(w->check(pool), Code::kInvalidArgument,
               {"model.safetensors: tensor w has nan", "element 300123 of 600000"});
  // The error of a box names the element of the tensor.
  HostTensor to({DType::kF32, {kRows, 100}});
  expect_error(w->copy("w", {{0, 100}, {kRows, 100}}, to.ref()), Code::kInvalidArgument,
               {"element 300123 of 600000"});
  EXPECT_TRUE(w->copy("w", {{0, 200}, {kRows, 100}}, to.ref()).ok());
}

INSTANTIATE_TEST_SUITE_P(Dtypes, ReadWeights,
                         ::testing::Values(DType::kF64, DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& p) { return std::string(dtype_name(p.param)); });

}  // namespace
}  // namespace tegula
