// Tensors saved in boxes and loaded in others: the file is that of the whole, whatever cut it.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <numeric>

#include "tegula/io/checkpoint.h"
#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

// A tensor of numbers that tell their place, and memory of its own for each of its boxes.
struct Cut {
  explicit Cut(std::vector<int64_t> sizes) : shape(std::move(sizes)) {
    values.resize(static_cast<size_t>(Box::whole(shape).numel()));
    std::iota(values.begin(), values.end(), 1.0F);
  }
  TensorRef whole() {
    return contiguous_ref(values.data(), {DType::kF32, Shape(std::span<const int64_t>(shape))});
  }
  // Cuts the dim into n parts as equal as can be; of what was cut before, each part.
  void split(size_t dim, int64_t n) {
    std::vector<Box> finer;
    for (const Box& b : boxes)
      for (int64_t i = 0; i < n; ++i) {
        Box part = b;
        const int64_t from = b.extent[dim] * i / n, to = b.extent[dim] * (i + 1) / n;
        part.offset[dim] += from, part.extent[dim] = to - from;
        finer.push_back(part);
      }
    boxes = finer;
  }
  NamedTensor tensor(const std::string& name) {
    TensorRef shape_alone = whole();
    shape_alone.data = nullptr;
    NamedTensor t{name, shape_alone};
    for (const Box& b : boxes) {
      const TensorRef from = part_of(whole(), b);
      std::vector<float>& mine = memory.emplace_back(static_cast<size_t>(b.numel()));
      const TensorRef to =
          contiguous_ref(mine.data(), {DType::kF32, Shape(std::span<const int64_t>(b.extent))});
      copy_elements(from, to);
      t.parts.push_back({b, to});
    }
    return t;
  }
  std::vector<int64_t> shape;
  std::vector<float> values;
  std::vector<Box> boxes = {Box::whole(shape)};
  std::vector<std::vector<float>> memory;
};

// The elements that the file has in that box, row-major.
std::vector<float> loaded(const SafetensorsFile& file, std::string_view name, const Box& box) {
  std::vector<float> out(static_cast<size_t>(box.numel()));
  copy_elements(
      part_of(*file.find(name), box),
      contiguous_ref(out.data(), {DType::kF32, Shape(std::span<const int64_t>(box.extent))}));
  return out;
}

TEST(Boxes, SavedByTwoLoadedByThreeAndWhole) {
  for (const size_t saved_dim : {0, 1, 2})
    for (const size_t loaded_dim : {0, 1, 2}) {
      TempDir dir;
      Cut saved({5, 4, 6}), want({5, 4, 6});
      saved.split(saved_dim, 2), want.split(loaded_dim, 3);
      const NamedTensor in_boxes[] = {saved.tensor("w")}, whole[] = {{"w", want.whole()}};
      ASSERT_TRUE(write_safetensors(dir / "boxes", in_boxes).ok());
      ASSERT_TRUE(write_safetensors(dir / "whole", whole).ok());
      EXPECT_EQ(read_file(dir / "boxes").value(), read_file(dir / "whole").value());
      const auto file = SafetensorsFile::open(dir / "boxes");
      ASSERT_TRUE(file.ok()) << file.error().message;
      const NamedTensor thirds = want.tensor("w");
      for (size_t i = 0; i < want.boxes.size(); ++i)
        EXPECT_EQ(loaded(*file, "w", want.boxes[i]), want.memory[i]);
      EXPECT_EQ(loaded(*file, "w", Box::whole(want.shape)), want.values);
    }
}

RC_GTEST_PROP(Boxes, AnyCutGivesTheFileOfTheWhole, ()) {
  std::vector<int64_t> sizes(*rc::gen::inRange<size_t>(0, 5));
  for (int64_t& n : sizes) n = *rc::gen::inRange<int64_t>(0, 6);
  Cut cut(sizes);
  for (size_t d = 0; d < sizes.size(); ++d) cut.split(d, *rc::gen::inRange<int64_t>(1, 4));
  TempDir dir;
  const NamedTensor in_boxes[] = {cut.tensor("w")}, whole[] = {{"w", cut.whole()}};
  const Status st = write_safetensors(dir / "boxes", in_boxes);
  RC_ASSERT(st.ok() && write_safetensors(dir / "whole", whole).ok());
  RC_ASSERT(read_file(dir / "boxes").value() == read_file(dir / "whole").value());
}

TEST(Boxes, PartsMayLieInAnyStrides) {
  TempDir dir;
  Cut cut({3, 4});
  std::vector<float> columns(12);  // the transposed tensor
  TensorRef t = contiguous_ref(columns.data(), {DType::kF32, {3, 4}});
  t.stride[0] = 1, t.stride[1] = 3;
  copy_elements(cut.whole(), t);
  NamedTensor given{"w", cut.whole()};
  given.tensor.data = nullptr;
  for (const int64_t half : {0, 2}) {
    const Box box{{0, half}, {3, 2}};
    given.parts.push_back({box, part_of(t, box)});
  }
  ASSERT_TRUE(write_safetensors(dir / "f", std::span(&given, 1)).ok());
  EXPECT_EQ(loaded(*SafetensorsFile::open(dir / "f"), "w", Box::whole(cut.shape)), cut.values);
}

TEST(Boxes, WhatDoesNotMakeATensorIsRefused) {
  TempDir dir;
  const auto refused = [&](auto&& change, std::string_view words) {
    Cut cut({4, 6});
    cut.split(1, 2);
    NamedTensor t = cut.tensor("blocks.0.w");
    change(t);
    expect_error(write_safetensors(dir / "f", std::span(&t, 1)), Code::kInvalidArgument,
                 {"blocks.0.w: ", words});
  };
  refused([](NamedTensor& t) { t.parts.pop_back(); }, "its 1 parts have 12 of 24 elements");
  refused([](NamedTensor& t) { t.parts.push_back(t.parts[0]); }, "overlap");
  refused([](NamedTensor& t) { ++t.parts[1].box.offset[1]; }, "leaves its dim 1");
  refused([](NamedTensor& t) { t.parts[0].box.offset[0] = INT64_MAX; }, "leaves its dim 0");
  refused([](NamedTensor& t) { t.parts[0].data.dtype = DType::kI32; }, "i32");
  refused([](NamedTensor& t) { t.parts[0].data.shape[0] = 3; }, "is f32 [3,3], not f32 [4,3]");
  refused([](NamedTensor& t) { t.parts[0].box.offset.pop_back(); }, "has not its dims");
}

}  // namespace
}  // namespace tegula
