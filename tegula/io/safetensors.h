// Safetensors files: named tensors on disk, written as a stream and read as views of a map.
//
// Format: 8 bytes n (little endian), n bytes of JSON {"name": {"dtype", "shape", "data_offsets":
// [begin, end]}, …, "__metadata__": {string: string}}, then the data, row-major, without holes.
// Tegula pads the header with spaces, so that the data begin at a multiple of 64, and writes wide
// dtypes first, then by name, so that every tensor is aligned and equal tensors give equal files.
//
// Writing: strides of any kind (views are gathered); f64 f32 bf16 f16 i64 i32 i8 u8 bool; nothing
// is copied but one small buffer. A tensor may be given in boxes, whatever cut them: the file is
// that of the whole. Reading: zero copy, and of a box a view (base/box.h); a tensor that some other
// writer left unaligned is copied. The bytes are not touched until someone reads them. Errors:
// kInvalidArgument for a file that breaks the format in any way (sizes, offsets, overlaps, holes,
// duplicate names, overflow), naming the file and the tensor; kUnsupported for other dtypes and
// more than 8 dims; kIo. No file makes the reader read outside it. Cost: header linear in the
// number of tensors; data one pass when written, none when opened. Source: the safetensors
// project's format description.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tegula/base/box.h"
#include "tegula/base/memory.h"
#include "tegula/io/tensor_source.h"

namespace tegula {

struct TensorPart {
  Box box;
  TensorRef data;  // of the box's extents
};
// `parts` empty: the tensor itself. Else it has a shape and no data, and the parts hold every
// element once.
struct NamedTensor {
  std::string name;
  TensorRef tensor;
  std::vector<TensorPart> parts = {};
};
using Metadata = std::vector<std::pair<std::string, std::string>>;

// Headers longer than this are refused, as by every other reader.
inline constexpr uint64_t kMaxSafetensorsHeader_bytes = 100'000'000;

// The metadata that `transformers` asks for: row-major as PyTorch's.
inline const Metadata& default_metadata() {
  static const Metadata metadata = {{"format", "pt"}};
  return metadata;
}

// Where what of a file lies: its header with its length, each tensor's first byte, its size.
struct SafetensorsLayout {
  std::string head;
  std::vector<std::pair<const NamedTensor*, uint64_t>> places;  // in file order
  uint64_t n_bytes = 0;
};
// For tensors whose data do not matter here. Error: names that are taken twice or too many.
Result<SafetensorsLayout> safetensors_layout(std::span<const NamedTensor> tensors,
                                             const Metadata& metadata);

// Appends a whole safetensors file to `out`, which the caller finishes. Error: parts that leave
// their tensor, overlap, have another dtype or shape than they say, or leave elements out.
Status write_safetensors(OutputFile& out, std::span<const NamedTensor> tensors,
                         const Metadata& metadata = default_metadata());
// The same of tensors without data, whose bytes `source` gives.
Status write_safetensors(OutputFile& out, std::span<const NamedTensor> tensors,
                         const Metadata& metadata, TensorSource* source);
// Writes and syncs the file at `path`; not atomic.
Status write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                         const Metadata& metadata = default_metadata());

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);

  // Sorted by name. The views are read-only, contiguous, and live as long as this object, which
  // may be moved.
  std::span<const NamedTensor> tensors() const { return tensors_; }
  // The view of that name, or a null pointer.
  const TensorRef* find(std::string_view name) const;
  // The tensors by other names; those that get "" are left out.
  void rename(std::string (*new_name)(std::string_view));
  const Metadata& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }

 private:
  SafetensorsFile() = default;
  Status read_header();
  std::string path_;
  MappedFile file_;
  std::vector<NamedTensor> tensors_;
  Metadata metadata_;
  std::vector<std::unique_ptr<char[]>> realigned_;
};

}  // namespace tegula
