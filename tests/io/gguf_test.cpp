#include "tegula/io/gguf.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tegula/io/gguf_writer.h"
#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

// Bytes of a file, piece by piece.
class Bytes {
 public:
  template <class T>
  Bytes& put(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Bytes& u32(uint32_t x) { return put(x); }
  Bytes& u64(uint64_t x) { return put(x); }
  Bytes& raw(std::string_view bytes) { return text_ += bytes, *this; }
  Bytes& str(std::string_view s) { return u64(s.size()).raw(s); }
  Bytes& head(uint64_t n_tensors, uint64_t n_keys, uint32_t version = 3) {
    return raw("GGUF").u32(version).u64(n_tensors).u64(n_keys);
  }
  Bytes& key(std::string_view name, uint32_t type) { return str(name).u32(type); }
  // A list of values of one dim.
  Bytes& tensor(std::string_view name, uint64_t n, uint32_t type, uint64_t offset) {
    return str(name).u32(1).u64(n).u32(type).u64(offset);
  }
  // The padding, and n bytes of data.
  Bytes& data(size_t n, size_t alignment = 32) {
    text_.resize((text_.size() + alignment - 1) / alignment * alignment);
    text_.append(n, 'd');
    return *this;
  }
  operator std::string() const { return text_; }

 private:
  std::string text_;
};

Result<GgufFile> open_bytes(const TempDir& dir, const std::string& bytes,
                            std::string_view name = "m.gguf") {
  EXPECT_TRUE(write_file(dir / name, bytes).ok());
  return GgufFile::open(dir / name);
}

constexpr uint32_t kF32 = 0, kQ4_0 = 2;

TEST(Gguf, ValuesOfEveryTypeAreRead) {
  TempDir dir;
  Bytes b;
  b.head(0, 15);
  b.key("u8", 0).put(uint8_t{200}).key("i8", 1).put(int8_t{-3}).key("u16", 2).put(uint16_t{65535});
  b.key("i16", 3).put(int16_t{-300}).key("u32", 4).u32(4000000000).key("i32", 5).put(int32_t{-7});
  b.key("f32", 6).put(1e-5F).key("bool", 7).put(uint8_t{1}).key("string", 8).str("text");
  b.key("list", 9).u32(5).u64(2).put(int32_t{4}).put(int32_t{-4});
  b.key("texts", 9).u32(8).u64(2).str("a").str("");
  b.key("u64", 10).u64(1).key("i64", 11).put(int64_t{-1} << 40).key("f64", 12).put(0.1);
  b.key("large", 10).u64(UINT64_MAX);
  const auto file = open_bytes(dir, b);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->find("u8")->whole(), 200);
  EXPECT_EQ(file->find("i8")->whole(), -3);
  EXPECT_EQ(file->find("u16")->whole(), 65535);
  EXPECT_EQ(file->find("i16")->whole(), -300);
  EXPECT_EQ(file->find("u32")->whole(), 4000000000);
  EXPECT_EQ(file->find("i32")->whole(), -7);
  EXPECT_EQ(file->find("f32")->number(), 1e-5);  // the number that was meant
  EXPECT_EQ(file->find("f32")->whole(), std::nullopt);
  EXPECT_EQ(file->find("bool")->flag(), true);
  EXPECT_EQ(file->find("bool")->whole(), std::nullopt);
  EXPECT_EQ(file->find("string")->text(), "text");
  EXPECT_EQ(file->find("list")->elements()[1].whole(), -4);
  EXPECT_EQ(file->find("list")->whole(), std::nullopt);
  EXPECT_EQ(file->find("texts")->elements()[0].text(), "a");
  EXPECT_EQ(file->find("texts")->elements()[1].text(), "");
  EXPECT_EQ(file->find("i64")->whole(), int64_t{-1} << 40);
  EXPECT_EQ(file->find("f64")->number(), 0.1);
  EXPECT_EQ(file->find("large")->whole(), std::nullopt);
  EXPECT_EQ(file->find("none"), nullptr);
}

TEST(Gguf, TensorsAreViewsOfTheFile) {
  TempDir dir;
  Bytes b;
  b.head(2, 0).str("w").u32(2).u64(64).u64(3).u32(kQ4_0).u64(32).tensor("x", 2, kF32, 0);
  const std::string head = b;
  std::string bytes = b.data(0);
  const float values[] = {1.5F, -2};
  bytes.append(reinterpret_cast<const char*>(values), sizeof values);
  bytes.resize(bytes.size() + 24, '\0');
  for (int i = 0; i < 3 * 2 * 18; ++i) bytes += static_cast<char>(i);
  const auto file = open_bytes(dir, bytes);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const GgufTensor* w = file->tensor("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->shape, (std::vector<int64_t>{3, 64}));  // the fastest last
  EXPECT_EQ(w->format, BlockFormat::kQ4_0);
  EXPECT_EQ(w->type_name(), "Q4_0");
  EXPECT_EQ(w->bytes.shape[0], 3);
  EXPECT_EQ(w->bytes.shape[1], 36);
  EXPECT_EQ(w->bytes.as<uint8_t>()[107], 107);
  EXPECT_EQ(file->tensor("x")->bytes.as<float>()[1], -2);
  EXPECT_EQ(file->tensor("y"), nullptr);
}

TEST(Gguf, HostileFilesAreRefused) {
  TempDir dir;
  struct Case {
    std::string bytes;
    std::string_view message;
    Code code = Code::kInvalidArgument;
  };
  const std::string list = Bytes().head(0, 1).key("k", 9);
  const auto one = [](uint64_t n, uint32_t type, uint64_t offset, size_t n_data) {
    return std::string(Bytes().head(1, 0).tensor("x", n, type, offset).data(n_data));
  };
  const auto two = [](uint64_t offset) {
    return std::string(
        Bytes().head(2, 0).tensor("x", 16, kF32, 0).tensor("y", 16, kF32, offset).data(256));
  };
  const Case cases[] = {
      {"", "0 bytes"},
      {"GGU", "begins with GGUF"},
      {"GGML", "begins with GGUF"},
      {"GGUF", "the version at byte 4 needs 4 bytes"},
      {"<!DOCTYPE html><html>", "a web page"},
      {Bytes().head(0, 0, 1), "version 1", Code::kUnsupported},
      {Bytes().head(0, 0, 4), "version 4", Code::kUnsupported},
      {Bytes().head(0, 0, 0x03000000), "big endian", Code::kUnsupported},
      {Bytes().raw("GGUF").u32(3).u64(1), "the number of keys at byte 16"},
      {Bytes().head(UINT64_MAX, 0), "claims 18446744073709551615 tensors"},
      {Bytes().head(0, UINT64_MAX), "18446744073709551615 keys"},
      {Bytes().head(0, 1).u64(UINT64_MAX).raw("abcdefg"), "the name of key 0"},
      {Bytes().head(0, 1).str("").u32(0).put(uint8_t{1}).raw("fill"), "no name"},
      {Bytes().head(0, 1).str("a\nb").u32(0).put(uint8_t{1}), "no name"},
      {Bytes().head(0, 1).str("a\xff").u32(0).put(uint8_t{1}), "no name"},
      {Bytes().head(0, 1).key("key", 13).u64(0), "key key: its type is the number 13"},
      {Bytes().head(0, 1).key("kk", 4).put(uint8_t{1}), "key kk: its value"},
      {Bytes().head(0, 1).key("kk", 8).u64(1u << 20), "key kk: its string"},
      {Bytes().head(0, 1).key("kk", 8).u64(UINT64_MAX), "key kk: its string"},
      {Bytes().head(0, 1).key("kk", 7).put(uint8_t{2}), "key kk: it has a bool of 2"},
      {Bytes().head(0, 2).key("k", 0).put(uint8_t{1}).key("k", 0).put(uint8_t{1}),
       "key k is there twice"},
      {Bytes().raw(list).u32(99).u64(0), "key k: the type of its elements"},
      {Bytes().raw(list).u32(9).u64(1).u32(9).u64(1), "array of arrays", Code::kUnsupported},
      {Bytes().raw(list).u32(4).u64(UINT64_MAX), "key k: it claims"},
      {Bytes().raw(list).u32(10).u64(uint64_t{1} << 61), "key k: it claims"},
      {Bytes().raw(list).u32(8).u64(2).str("a").u64(5), "key k: its element 1"},
      {Bytes().raw(list).u32(7).u64(2).put(uint8_t{1}).put(uint8_t{3}), "a bool of 3"},
      {Bytes().head(1, 0).str("x").u32(0).u32(kF32).u64(0).data(9), "tensor x: it has 0 dims"},
      {Bytes().head(1, 0).str("x").u32(5).raw(std::string(60, 'a')), "it has 5 dims"},
      {Bytes().head(1, 0).str("x").u32(UINT32_MAX).raw(std::string(60, 'a')), "dims"},
      {one(0, kF32, 0, 8), "tensor x: a dim of it is 0"},
      {one(uint64_t{1} << 62, kF32, 0, 8), "64 bits"},
      {Bytes().head(1, 0).str("x").u32(2).u64(1ull << 40).u64(1ull << 40).u32(0).u64(0), "64 bits"},
      {one(2, 99, 0, 8), "its type is the number 99"},
      {one(256, 16, 0, 66), "IQ2_XXS", Code::kUnsupported},
      {one(33, kQ4_0, 0, 64), "a block of Q4_0 has 32"},
      {one(2, kF32, 1, 64), "multiple of the file's alignment"},
      {one(2, kF32, 32, 39), "tensor x: its 8 bytes at 32"},
      {one(2, kF32, 0, 7), "cut off"},
      {one(2, kF32, UINT64_MAX - 31, 64), "cut off"},
      {two(32), "tensor y begins at 32, inside of x"},
      {two(0), "inside of"},
      {Bytes().head(2, 0).tensor("x", 8, kF32, 0).tensor("x", 8, kF32, 32).data(64),
       "tensor x is there twice"},
      {Bytes().head(0, 1).key("general.alignment", 4).u32(0), "power of two"},
      {Bytes().head(0, 1).key("general.alignment", 4).u32(48), "power of two"},
      {Bytes().head(0, 1).key("general.alignment", 4).u32(1u << 30), "power of two"},
      {Bytes().head(0, 1).key("general.alignment", 8).str("32"), "power of two"},
      {Bytes().head(0, 1).key("split.count", 4).u32(UINT32_MAX), "split.count"},
      {Bytes()
           .head(0, 2)
           .key("split.count", 2)
           .put(uint16_t{2})
           .key("split.no", 2)
           .put(uint16_t{2}),
       "the shard 2 of 2"},
  };
  for (const Case& c : cases)
    expect_error(open_bytes(dir, c.bytes), c.code, {"m.gguf'", c.message});
  // Any beginning of a whole file.
  const std::string whole = Bytes()
                                .head(1, 2)
                                .key("a", 9)
                                .u32(8)
                                .u64(2)
                                .str("x")
                                .str("yz")
                                .key("b", 12)
                                .put(1.0)
                                .tensor("t", 8, kF32, 0)
                                .data(32);
  ASSERT_TRUE(open_bytes(dir, whole).ok());
  for (size_t n = 0; n < whole.size(); ++n)
    EXPECT_FALSE(open_bytes(dir, whole.substr(0, n)).ok()) << n;
}

std::string shard(uint16_t no, uint16_t n, std::string_view name, bool has_key = false) {
  Bytes b;
  b.head(1, has_key ? 4 : 3);
  b.key("split.no", 2).put(no).key("split.count", 2).put(n);
  b.key("split.tensors.count", 5).put(int32_t{3});
  if (has_key) b.key("general.architecture", 8).str("llama");
  return b.tensor(name, 8, kF32, 0).data(32);
}

TEST(Gguf, ShardsAreOneFile) {
  TempDir dir;
  const auto put = [&](const char* name, const std::string& bytes) {
    ASSERT_TRUE(write_file(dir / name, bytes).ok());
  };
  put("m-00001-of-00003.gguf", shard(0, 3, "a", true));
  put("m-00002-of-00003.gguf", shard(1, 3, "b"));
  expect_error(GgufFile::open(dir / "m-00001-of-00003.gguf"), Code::kIo,
               {"m-00003-of-00003.gguf", "download the rest"});
  put("m-00003-of-00003.gguf", shard(2, 3, "c"));
  for (const char* name : {"m-00001-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const auto file = GgufFile::open(dir / name);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->path(), dir / "m-00001-of-00003.gguf");
    EXPECT_EQ(file->n_shards(), 3U);
    EXPECT_EQ(file->find("general.architecture")->text(), "llama");
    EXPECT_EQ(file->tensors().size(), 3U);
    EXPECT_EQ(file->path_of(2), dir / "m-00003-of-00003.gguf");
    EXPECT_NE(file->tensor("b"), nullptr);
  }
  put("m-00003-of-00003.gguf", shard(1, 3, "c"));
  expect_error(GgufFile::open(dir / "m-00001-of-00003.gguf"), Code::kInvalidArgument,
               {"m-00003-of", "the shard 1 of 3, in the place of shard 2"});
  put("m-00003-of-00003.gguf", shard(2, 3, "a"));
  expect_error(GgufFile::open(dir / "m-00001-of-00003.gguf"), Code::kInvalidArgument,
               {"tensor a is there twice"});
  put("m-00003-of-00003.gguf", shard(2, 3, "c", true));
  EXPECT_TRUE(GgufFile::open(dir / "m-00001-of-00003.gguf").ok());
  put("other.gguf", shard(0, 3, "a"));
  expect_error(GgufFile::open(dir / "other.gguf"), Code::kInvalidArgument, {"rename them"});
}

TEST(Gguf, WhatIsWrittenIsRead) {
  TempDir dir;
  class Source : public TensorSource {
   public:
    Status write(std::string_view name, OutputFile& out) override {
      return out.write(std::string(name == "a" ? 6 : 8, name[0]));
    }
  } source;
  auto out = OutputFile::create(dir / "m.gguf").value();
  const std::vector<GgufOutKey> keys = {{"text", std::string("x")},
                                        {"n", uint32_t{7}},
                                        {"e", 1e-5F},
                                        {"on", true},
                                        {"texts", std::vector<std::string>{"", "é"}},
                                        {"scores", std::vector<float>{-1, 2}},
                                        {"ids", std::vector<int32_t>{3}}};
  ASSERT_TRUE(
      write_gguf(out, keys, {{"a", DType::kBF16, {3}}, {"b", DType::kF32, {1, 2}}}, source).ok());
  ASSERT_TRUE(out.finish().ok());
  const auto file = GgufFile::open(dir / "m.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->keys().size(), keys.size());
  EXPECT_EQ(file->find("text")->text(), "x");
  EXPECT_EQ(file->find("n")->whole(), 7);
  EXPECT_EQ(file->find("e")->number(), 1e-5);
  EXPECT_EQ(file->find("on")->flag(), true);
  EXPECT_EQ(file->find("texts")->elements()[1].text(), "é");
  EXPECT_EQ(file->find("scores")->elements()[0].number(), -1);
  EXPECT_EQ(file->find("ids")->elements()[0].whole(), 3);
  EXPECT_EQ(file->tensor("a")->type_name(), "BF16");
  EXPECT_EQ(file->tensor("b")->shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(std::memcmp(file->tensor("b")->bytes.data, "bbbbbbbb", 8), 0);
}

}  // namespace
}  // namespace tegula
