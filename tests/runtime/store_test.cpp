// A store's entries: boxes of tensors, owned or borrowed until they are written.
#include "tegula/runtime/store.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tegula/io/checkpoint.h"
#include "tegula/ops/math.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/session.h"
#include "tests/common/join_stores.h"
#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

constexpr int64_t kRows = 6, kColumns = 4;
const Type kType{DType::kF32, {kRows, kColumns}};
const Box kWhole{{0, 0}, {kRows, kColumns}};

using Floats = std::vector<float>;
std::shared_ptr<Floats> numbers() {
  auto v = std::make_shared<Floats>(kRows * kColumns);
  std::iota(v->begin(), v->end(), 1.0F);
  return v;
}
Floats values(const TensorRef& t) { return {t.as<float>(), t.as<float>() + t.numel()}; }

TEST(Store, WhatIsBorrowedIsCopiedWhenItIsOwned) {
  Rank rank(1);
  Store store(rank);
  const auto lent = numbers();
  ASSERT_TRUE(store.borrow("w", kType, kWhole, lent->data(), lent).ok());
  EXPECT_EQ(store.find("w").data, lent->data());
  EXPECT_TRUE(store.is_borrowed("w"));
  EXPECT_EQ(rank.memory.live_bytes(), 0);
  EXPECT_EQ(store.bytes(), kType.bytes());
  EXPECT_EQ(store.owned_bytes(), 0);
  EXPECT_EQ(store.get("w", kType)->data, lent->data());
  EXPECT_EQ(lent.use_count(), 2);
  const TensorRef own = *store.own("w");
  EXPECT_NE(own.data, lent->data());
  EXPECT_EQ(values(own), *lent);
  EXPECT_EQ(lent.use_count(), 1);
  EXPECT_EQ(store.own("w")->data, own.data);  // once
  EXPECT_EQ(rank.memory.live_bytes(), kType.bytes());
  EXPECT_EQ(store.owned_bytes(), kType.bytes());
  expect_error(store.borrow("w", kType, kWhole, lent->data(), lent), Code::kInvalidArgument,
               {"tensor w is there already"});
  EXPECT_FALSE(store.own("v").ok());
}

// Two plans share two weights; one plan writes one of them.
TEST(Store, APlanThatWritesAWeightOwnsItOneThatReadsDoesNot) {
  Rank rank(1);
  Store store(rank);
  const auto a = numbers(), b = numbers();
  ASSERT_TRUE(store.borrow("a", kType, kWhole, a->data(), a).ok());
  ASSERT_TRUE(store.borrow("b", kType, kWhole, b->data(), b).ok());
  const auto session_of = [&](bool writes) {
    auto module = std::make_shared<Module>();
    Builder builder(*module, "f");
    const Var x = builder.weight("a", kType), y = builder.weight("b", kType);
    builder.result("next", x + y);
    if (writes) builder.donate("a", "next");
    const auto compiled = compile(module, *builder.finish_into_module(), {});
    EXPECT_TRUE(compiled.ok()) << compiled.error().to_string();
    auto s = std::move(*Session::create(compiled->plan, rank));
    EXPECT_TRUE(s->bind_store(store).ok() && s->run().ok());
    return s;
  };
  Floats twice = *a;
  for (float& v : twice) v *= 2;
  const auto reads = session_of(false);
  EXPECT_EQ(values(reads->result("next")), twice);
  EXPECT_EQ(store.owned_bytes(), 0);
  const auto writes = session_of(true);
  EXPECT_EQ(values(store.find("a")), twice);
  EXPECT_FALSE(store.is_borrowed("a"));
  EXPECT_TRUE(store.is_borrowed("b"));
  EXPECT_EQ(*a, *numbers());  // the lender's
}

TEST(Store, AnEntryIsABoxOfItsTensor) {
  Rank rank(1);
  Store store(rank);
  const Box box{{2, 1}, {3, 2}};
  const TensorRef part = *store.get("w", kType, box);
  EXPECT_EQ(part.numel(), 6);
  EXPECT_EQ(store.bytes(), 24);
  const auto all = numbers();
  const TensorRef whole = contiguous_ref(all->data(), kType);
  ASSERT_TRUE(store.fill("w", whole).ok());
  EXPECT_EQ(values(part), (Floats{10, 11, 14, 15, 18, 19}));
  expect_error(store.get("w", kType, kWhole), Code::kInvalidArgument,
               {"here lies the box at [2,1] of [3,2]"});
  expect_error(store.get("v", kType, Box{{4, 0}, {3, 4}}), Code::kInvalidArgument,
               {"v: the box at [4,0] of [3,4] leaves its dim 0", "[6,4]"});
  const TensorRef other = contiguous_ref(all->data(), {DType::kF32, {kColumns, kRows}});
  expect_error(store.fill("w", other), Code::kInvalidArgument, {"f32[6,4]", "f32[4,6]"});
}

// Ranks that cut the same weights in two ways: by 2 saved, by 3 loaded, whole loaded.
TEST(Store, RanksSaveTogetherWhatOthersLoad) {
  TempDir dir;
  const auto all = numbers();
  const TensorRef whole = contiguous_ref(all->data(), kType);
  const auto halves = [](int64_t r) { return Box{{3 * r, 0}, {3, kColumns}}; };
  const auto thirds = [](int64_t r) { return Box{{0, r}, {kRows, r == 2 ? 2 : 1}}; };
  Rank rank(1);
  Store two[] = {Store(rank), Store(rank)};
  for (int64_t r = 0; r < 2; ++r) {
    ASSERT_TRUE(two[r].get("w", kType, halves(r)).ok() && two[r].fill("w", whole).ok());
    ASSERT_TRUE(two[r].get("norm", kType).ok() && two[r].fill("norm", whole).ok());  // on both
  }
  const Store* const ranks[] = {&two[0], &two[1]};
  const auto tensors = joined(ranks);
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  auto writer = CheckpointWriter::begin(dir.path(), 1);
  ASSERT_TRUE(writer.ok() && writer->add_tensors(kModelFile, *tensors).ok() &&
              writer->publish().ok());
  const std::string path = join_path(latest_good(dir.path())->path, kModelFile);
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  for (int64_t r = 0; r < 3; ++r) {
    Store mine(rank);
    const TensorRef part = *mine.get("w", kType, thirds(r));
    ASSERT_TRUE(mine.fill("w", *file->find("w")).ok());
    Floats want(static_cast<size_t>(part.numel()));
    TensorRef to = part;
    to.data = want.data();
    copy_elements(part_of(whole, thirds(r)), to);
    EXPECT_EQ(values(part), want);
  }
  EXPECT_EQ(values(*file->find("w")), *all);
  EXPECT_EQ(values(*file->find("norm")), *all);
  Store odd(rank);
  ASSERT_TRUE(odd.get("w", {DType::kF32, {kRows}}).ok());
  const Store* const both[] = {&two[0], &odd};
  EXPECT_FALSE(joined(both).ok());
  expect_error(write_safetensors(dir / "half", *joined(std::span(ranks, 1))),
               Code::kInvalidArgument, {"w: its 1 parts have 12 of 24 elements"});
}

}  // namespace
}  // namespace tegula
