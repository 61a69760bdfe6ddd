#include "tegula/io/safetensors.h"

#include <cstring>
#include <numeric>
#include <random>

#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

// A file with any header text; `n` is the length that it claims.
std::string raw_file(const std::string& header, const std::string& data, int64_t n = -1) {
  const uint64_t length = n < 0 ? header.size() : static_cast<uint64_t>(n);
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + data;
}

Result<SafetensorsFile> open_bytes(const TempDir& dir, const std::string& bytes) {
  EXPECT_TRUE(write_file(dir / "t.safetensors", bytes).ok());
  return SafetensorsFile::open(dir / "t.safetensors");
}

std::string_view bytes_of(const TensorRef& t) {
  return {static_cast<const char*>(t.data),
          static_cast<size_t>(t.numel()) * static_cast<size_t>(size_bytes(t.dtype))};
}

// Every dtype, ranks 0 to 4, an empty tensor; bytes are counted up.
struct Sample {
  std::vector<std::vector<char>> memory;
  std::vector<NamedTensor> tensors;
  Sample() {
    int64_t k = 0;
    for (DType dtype : kAllDTypes) {
      add(cat("w.", dtype_name(dtype)), {dtype, {3, k % 3 + 1}});
      add(cat("scalar.", dtype_name(dtype)), {dtype, {}});
      ++k;
    }
    add("empty", {DType::kF32, {4, 0, 2}});
    add("deep é", {DType::kBF16, {2, 1, 3, 2}});
  }
  void add(const std::string& name, const Type& type) {
    memory.emplace_back(static_cast<size_t>(type.bytes()) + 1);
    std::iota(memory.back().begin(), memory.back().end(), static_cast<char>(memory.size()));
    tensors.push_back({name, contiguous_ref(memory.back().data(), type)});
  }
};

TEST(Safetensors, RoundTripsEveryDtypeAndMetadata) {
  TempDir dir;
  const Sample sample;
  const Metadata metadata = {{"format", "pt"}, {"note", "line\n\"quoted\" é"}};
  ASSERT_TRUE(write_safetensors(dir / "a", sample.tensors, metadata).ok());
  auto opened = SafetensorsFile::open(dir / "a");
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const SafetensorsFile file = std::move(*opened);
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), sample.tensors.size());
  for (const NamedTensor& t : sample.tensors) {
    const TensorRef* found = file.find(t.name);
    ASSERT_NE(found, nullptr) << t.name;
    EXPECT_EQ(found->dtype, t.tensor.dtype);
    ASSERT_EQ(found->rank, t.tensor.rank);
    for (int i = 0; i < found->rank; ++i) EXPECT_EQ(found->shape[i], t.tensor.shape[i]);
    EXPECT_TRUE(found->is_contiguous());
    EXPECT_EQ(bytes_of(*found), bytes_of(t.tensor)) << t.name;
    const auto width = static_cast<uintptr_t>(size_bytes(found->dtype));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(found->data) % width, 0u) << t.name;
  }
  EXPECT_EQ(file.find("absent"), nullptr);
}

TEST(Safetensors, LayoutIsTheSpecifiedOne) {
  TempDir dir;
  const float w[] = {1, 2};
  const uint8_t b[] = {7};
  const NamedTensor tensors[] = {
      {"b", contiguous_ref(const_cast<uint8_t*>(b), {DType::kU8, {1}})},
      {"w", contiguous_ref(const_cast<float*>(w), {DType::kF32, {2, 1}})}};
  ASSERT_TRUE(write_safetensors(dir / "a", tensors, {}).ok());
  const std::string header = R"({"w": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}, )"
                             R"("b": {"dtype": "U8", "shape": [1], "data_offsets": [8, 9]}})";
  std::string padded = header;
  while ((8 + padded.size()) % 64 != 0) padded += ' ';
  EXPECT_EQ(read_file(dir / "a").value(),
            raw_file(padded, std::string(reinterpret_cast<const char*>(w), 8) + '\x07'));
}

TEST(Safetensors, OrderOfTheListDoesNotChangeTheFile) {
  TempDir dir;
  Sample sample;
  ASSERT_TRUE(write_safetensors(dir / "a", sample.tensors).ok());
  std::shuffle(sample.tensors.begin(), sample.tensors.end(), std::mt19937(3));
  ASSERT_TRUE(write_safetensors(dir / "b", sample.tensors).ok());
  EXPECT_EQ(read_file(dir / "a").value(), read_file(dir / "b").value());
}

TEST(Safetensors, StridedViewsAreGathered) {
  TempDir dir;
  std::vector<int32_t> memory(200 * 300);
  std::iota(memory.begin(), memory.end(), 0);
  TensorRef transposed = contiguous_ref(memory.data(), {DType::kI32, {200, 300}});
  std::swap(transposed.shape[0], transposed.shape[1]);
  std::swap(transposed.stride[0], transposed.stride[1]);
  TensorRef broadcast = contiguous_ref(memory.data() + 5, {DType::kI32, {4, 1}});
  broadcast.shape[1] = 3, broadcast.stride[0] = -1, broadcast.stride[1] = 0;
  const NamedTensor tensors[] = {{"t", transposed}, {"b", broadcast}};
  ASSERT_TRUE(write_safetensors(dir / "a", tensors).ok());
  const SafetensorsFile file = SafetensorsFile::open(dir / "a").value();
  const auto* t = file.find("t")->as<int32_t>();
  for (int i = 0; i < 300; ++i)
    for (int j = 0; j < 200; ++j) ASSERT_EQ(t[i * 200 + j], j * 300 + i);
  const std::vector<int32_t> expected = {5, 5, 5, 4, 4, 4, 3, 3, 3, 2, 2, 2};
  const auto* b = file.find("b")->as<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(b, b + 12), expected);
}

TEST(Safetensors, UnalignedTensorsOfOtherWritersAreReadable) {
  TempDir dir;
  const float value = 1.25F;
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})";
  const auto file = open_bytes(
      dir, raw_file(header, "x" + std::string(reinterpret_cast<const char*>(&value), 4)));
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(*file->find("b")->as<float>(), value);
}

TEST(Safetensors, WriterRefusesBadNames) {
  TempDir dir;
  char x[4] = {};
  const NamedTensor one{"a", contiguous_ref(x, {DType::kF32, {}})};
  expect_error(write_safetensors(dir / "a", std::vector{one, one}), Code::kInvalidArgument,
               {"two tensors", "'a'"});
  const NamedTensor reserved{"__metadata__", one.tensor};
  expect_error(write_safetensors(dir / "a", std::vector{reserved}), Code::kInvalidArgument,
               {"__metadata__"});
}

TEST(Safetensors, FullDiskIsAnError) {
  const Sample sample;
  expect_error(write_safetensors("/dev/full", sample.tensors), Code::kDevice, {"ENOSPC"});
}

TEST(Safetensors, HostileFilesAreRefused) {
  TempDir dir;
  struct Case {
    std::string bytes;
    std::string_view message;
  };
  const auto one = [](const std::string& dtype, const std::string& shape,
                      const std::string& offsets, size_t n_data) {
    return raw_file(cat(R"({"x":{"dtype":")", dtype, R"(","shape":)", shape, R"(,"data_offsets":)",
                        offsets, "}}"),
                    std::string(n_data, 'd'));
  };
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const Case cases[] = {
      {"", "0 bytes"},
      {"1234567", "7 bytes"},
      {raw_file("{}", "", 3), "truncated"},
      {raw_file("{}", "", 100'000'001), "100000001"},
      {std::string(8, '\xff') + "{}", "at most"},
      {raw_file("", ""), "begin with '{'"},
      {raw_file(" {}", ""), "begin with '{'"},
      {raw_file("[1]", ""), "begin with '{'"},
      {raw_file("{", ""), "JSON"},
      {raw_file("{}x", ""), "JSON"},
      {raw_file("{}", "left"), "left over"},
      {raw_file("{\"\xff\":1}", ""), "JSON"},
      {raw_file("{\"a\":" + std::string(100000, '['), ""), "nested"},
      {raw_file("{" + a + "," + a + "}", "dddd"), "twice"},
      {raw_file(R"({"a":1})", ""), "'a': it needs"},
      {raw_file(R"({"__metadata__":[]})", ""), "__metadata__"},
      {raw_file(R"({"__metadata__":{"a":1}})", ""), "more than strings"},
      {one("F32", "[2]", "[0,8]", 7), "truncated"},
      {one("F32", "[2]", "[0,8]", 9), "left over"},
      {one("F32", "[2]", "[0,4]", 4), "need 8 bytes"},
      {one("F32", "[2]", "[8,0]", 8), "ascending"},
      {one("F32", "[2]", "[1,9]", 9), "hole"},
      {one("F32", "[2]", "[-8,0]", 8), "ascending"},
      {one("F32", "[2]", "[0,8.0]", 8), "ascending"},
      {one("F32", "[2]", "[0,8,8]", 8), "two data_offsets"},
      {one("F32", "[-2]", "[0,8]", 8), "not a size"},
      {one("F32", "[2.0]", "[0,8]", 8), "not a size"},
      {one("F32", "[4611686018427387904]", "[0,0]", 0), "64 bits"},
      {one("U8", "[4294967296,4294967296]", "[0,0]", 0), "64 bits"},
      {one("U8", "[0,4294967296,4294967296]", "[0,0]", 0), "64 bits"},
      {one("U8", "[9223372036854775807]", "[0,9223372036854775807]", 8), "truncated"},
      {one("U8", "[18446744073709551615]", "[0,8]", 8), "not a size"},
      {raw_file("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", "dddddd"),
       "inside the one before"},
      {raw_file("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "dddd"),
       "inside the one before"},
  };
  for (const Case& c : cases)
    expect_error(open_bytes(dir, c.bytes), Code::kInvalidArgument,
                 {"t.safetensors' is not a valid", c.message});
  expect_error(open_bytes(dir, one("F8_E5M2", "[2]", "[0,2]", 2)), Code::kUnsupported,
               {"'x'", "F8_E5M2", "t.safetensors"});
  expect_error(open_bytes(dir, one("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]", 1)), Code::kUnsupported,
               {"9 dims", "at most 8"});
  EXPECT_TRUE(open_bytes(dir, raw_file("{}      ", "")).ok());
}

// Random mutations of a good file: either an error, or views that lie inside the file.
TEST(Safetensors, MutatedFilesNeverCrash) {
  TempDir dir;
  const Sample sample;
  ASSERT_TRUE(write_safetensors(dir / "good", sample.tensors).ok());
  const std::string good = read_file(dir / "good").value();
  std::mt19937 random(7);
  static constexpr std::string_view kPieces[] = {
      "0",   "9",    "-",  "[", "]", "{", "}", ",", "\"", ":", "18446744073709551616",
      "1e9", "null", "F64"};
  int n_opened = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    std::string bytes = good;
    for (uint32_t edits = 1 + random() % 3; edits > 0 && !bytes.empty(); --edits) {
      const size_t at =
          random() % (random() % 2 ? bytes.size() : std::min(bytes.size(), size_t{9}));
      switch (random() % 5) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, 1 + random() % 16);
          break;
        case 2:
          bytes.insert(at, kPieces[random() % std::size(kPieces)]);
          break;
        case 3:
          bytes.resize(std::max<size_t>(at, 1));
          break;
        default:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
      }
    }
    // Not write_file, and a new file each time: thousands of syncs would only test the disk.
    ::unlink((dir / "t").c_str());
    FILE* f = std::fopen((dir / "t").c_str(), "wb");
    ASSERT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), f), bytes.size());
    std::fclose(f);
    const auto file = SafetensorsFile::open(dir / "t");
    if (!file.ok()) continue;
    ++n_opened;
    size_t sum = 0;
    for (const NamedTensor& t : file->tensors())
      for (char c : bytes_of(t.tensor)) sum += static_cast<unsigned char>(c);
    EXPECT_LE(sum, bytes.size() * 255);
  }
  EXPECT_GT(n_opened, 0);
  EXPECT_LT(n_opened, 3500);
}

}  // namespace
}  // namespace tegula
