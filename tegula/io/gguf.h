// GGUF files: typed metadata and named tensors of a model, mapped; in one file or in shards.
//
// Format (versions 2 and 3, little endian): "GGUF", u32 version, u64 tensors, u64 keys; the keys,
// each a string, a u32 type and a value (a string is u64 n and n bytes; an array is u32 type, u64 n
// and its elements); the tensors, each a string name, u32 rank, u64 dims with the fastest first,
// u32 type, u64 offset; then, from the next multiple of general.alignment (32), their bytes. Shards
// are NAME-00001-of-0000N.gguf, each with split.no and split.count; the first has the model's keys.
//
// Reading is zero copy: values and tensors are views of the map, as long as the object lives.
// Errors: kInvalidArgument for a file that breaks the format in any way (lengths, offsets,
// overlaps, overflow, alignment, names twice, arrays of arrays, shards that are not of one model),
// naming file and key or tensor; kUnsupported for other versions, byte orders and types of tensors;
// kIo. Cost: linear in keys, elements of arrays of strings, and tensors. Source: the GGUF project's
// format description.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/block_format.h"
#include "tegula/base/tensor.h"
#include "tegula/io/file.h"

namespace tegula {

enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

// The value of a key, in the file.
class GgufValue {
 public:
  GgufValue() = default;
  GgufValue(GgufType type, uint64_t n, const char* at) : type_(type), n_(n), at_(at) {}
  GgufType type() const { return is_array_ ? GgufType::kArray : type_; }
  // None: it is of another type. Whole numbers of every width; floats of both, an f32 as the number
  // of the fewest digits that it stands for: 1e-05.
  std::optional<int64_t> whole() const;
  std::optional<double> number() const;
  std::optional<bool> flag() const;
  std::optional<std::string_view> text() const;
  // Arrays: how many elements of which type, and each as a value of its own.
  bool is_array() const { return is_array_; }
  GgufType element_type() const { return type_; }
  uint64_t size() const { return n_; }
  // All elements, in turn: strings lie one behind the other, so that walking is all there is.
  std::vector<GgufValue> elements() const;
  // "f32", "array of string".
  std::string type_name() const;
  // Short, for messages.
  std::string shown() const;

  static GgufValue array(GgufType of, uint64_t n, const char* at);

 private:
  GgufType type_ = GgufType::kU8;
  bool is_array_ = false;
  uint64_t n_ = 0;  // elements; of a string its bytes
  const char* at_ = nullptr;
};

// The number of the fewest digits that is this one in f32.
double shortest_double(float x);

struct GgufKey {
  std::string_view name;
  GgufValue value;
};

struct GgufTensor {
  std::string_view name;
  // Its elements, row-major, the fastest dim last. Blocks: u8, whose last dim is a row's bytes.
  TensorRef bytes;
  std::optional<BlockFormat> format;
  std::vector<int64_t> shape;  // of values
  std::string_view type_name() const;
};

class GgufFile {
 public:
  // Any shard's path stands for all of them.
  static Result<GgufFile> open(const std::string& path);

  const std::string& path() const { return paths_.front(); }
  // In the order of the file; those of the other shards are not among them.
  std::span<const GgufKey> keys() const { return keys_; }
  const GgufValue* find(std::string_view key) const;
  // In the order of the files.
  std::span<const GgufTensor> tensors() const { return tensors_; }
  const GgufTensor* tensor(std::string_view name) const;
  // The file that holds it.
  const std::string& path_of(size_t tensor) const { return paths_[shard_of_[tensor]]; }
  size_t n_shards() const { return maps_.size(); }
  uint32_t version() const { return version_; }

 private:
  GgufFile() = default;
  Status add(const std::string& path, bool is_first);
  Result<std::vector<std::string>> shards_of(const std::string& path) const;
  Status check_names();
  uint32_t version_ = 0;
  std::vector<std::string> paths_;
  std::vector<MappedFile> maps_;
  std::vector<GgufKey> keys_;
  std::vector<GgufTensor> tensors_;
  std::vector<uint32_t> shard_of_, by_name_;                // of tensors
  int64_t shard_ = 0, n_split_ = 1, n_split_tensors_ = -1;  // as the first file says
};

}  // namespace tegula
