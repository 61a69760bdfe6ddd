#include "tegula/io/shared_safetensors.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

struct Whole {
  std::string name;
  Type type;
  std::vector<float> values;
  TensorRef ref() { return contiguous_ref(values.data(), type); }
};

std::vector<Whole> tensors() {
  std::vector<Whole> all = {{"b", {DType::kF32, {6, 4, 5}}, {}},
                            {"a", {DType::kF32, {8, 6}}, {}},
                            {"scalar", {DType::kF32, {}}, {}},
                            {"none", {DType::kF32, {0, 3}}, {}}};
  for (Whole& w : all) {
    w.values.resize(static_cast<size_t>(w.type.shape.numel()));
    std::iota(w.values.begin(), w.values.end(), static_cast<float>(w.name.size()));
  }
  return all;
}

std::vector<NamedTensor> named(std::vector<Whole>& all, bool has_data) {
  std::vector<NamedTensor> out;
  for (Whole& w : all)
    out.push_back({w.name, has_data ? w.ref() : contiguous_ref(nullptr, w.type)});
  return out;
}

// Boxes of a random cut of every dim, in a random order, by three writers in turns.
TEST(SharedSafetensors, BoxesInAnyOrderMakeTheFileOfTheWhole) {
  TempDir dir;
  auto all = tensors();
  ASSERT_TRUE(write_safetensors(dir / "whole", named(all, true)).ok());
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    const std::string path = dir / cat("shared", round);
    const auto file = SharedSafetensors::plan(named(all, false));
    ASSERT_TRUE(file.ok()) << file.error().to_string();
    ASSERT_TRUE(file->create(path, path).ok());
    struct Piece {
      Whole* of;
      Box box;
    };
    std::vector<Piece> pieces;
    for (Whole& w : all) {
      std::vector<Box> boxes = {Box::whole(std::span(w.ref().shape, w.type.shape.rank()))};
      for (int d = 0; d < w.type.shape.rank(); ++d) {
        const int64_t n = w.type.shape[d].bound(), at = n < 2 ? 0 : 1 + random() % (n - 1);
        if (at == 0) continue;
        std::vector<Box> cut;
        for (const Box& b : boxes) {
          cut.push_back(b), cut.push_back(b);
          const auto i = static_cast<size_t>(d);
          cut[cut.size() - 2].extent[i] = at;
          cut.back().offset[i] = at, cut.back().extent[i] = n - at;
        }
        boxes = std::move(cut);
      }
      for (Box& b : boxes) pieces.push_back({&w, std::move(b)});
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    std::vector<SharedSafetensors::Writer> writers;
    for (int i = 0; i < 3; ++i) writers.push_back(std::move(*file->open(path, path)));
    for (size_t i = 0; i < pieces.size(); ++i) {
      const Piece& p = pieces[i];
      ASSERT_TRUE(writers[i % 3].write(p.of->name, p.box, part_of(p.of->ref(), p.box)).ok());
    }
    for (auto& w : writers) ASSERT_TRUE(w.finish().ok());
    EXPECT_EQ(*read_file(path), *read_file(dir / "whole"));
  }
}

TEST(SharedSafetensors, WhatDoesNotBelongIsRefused) {
  TempDir dir;
  auto all = tensors();
  const auto file = SharedSafetensors::plan(named(all, false));
  ASSERT_TRUE(file.ok());
  expect_error(file->open(dir / "absent", "shown"), Code::kIo, {"shown"});
  ASSERT_TRUE(file->create(dir / "f", "shown").ok());
  expect_error(file->create(dir / "f", "shown"), Code::kIo, {"shown"});
  auto out = *file->open(dir / "f", "shown");
  Whole& a = all[1];
  expect_error(out.write("c", Box::whole(std::array<int64_t, 2>{8, 6}), a.ref()),
               Code::kInvalidArgument, {"no tensor c"});
  expect_error(out.write("a", {{1, 0}, {8, 6}}, a.ref()), Code::kInvalidArgument, {"a"});
  expect_error(out.write("a", {{0, 0}, {4, 6}}, a.ref()), Code::kInvalidArgument,
               {"the box at", "8"});
}

}  // namespace
}  // namespace tegula
