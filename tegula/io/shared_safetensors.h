// A safetensors file that several threads or processes write at once, each the boxes that it has.
//
//   auto file = TEGULA_TRY(SharedSafetensors::plan(tensors, metadata));   // all of them
//   file.create(path);                                                    // one of them, first
//   auto out = TEGULA_TRY(file.open(path)); out.write(name, box, data); out.finish();
//
// The header says where each tensor lies, and is a function of names, shapes and dtypes; so nobody
// needs what others have, and the file is that of write_safetensors() byte for byte once every
// element has been written. Errors: those of safetensors.h and of file.h; a box that leaves its
// tensor; a tensor that the file has not. Cost: one write for each run of elements that lie side by
// side in the file, up to 1 MiB.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tegula/io/safetensors.h"

namespace tegula {

class SharedSafetensors {
 public:
  // Tensors without data: names, shapes, dtypes.
  static Result<SharedSafetensors> plan(std::span<const NamedTensor> tensors,
                                        const Metadata& metadata = default_metadata());
  // Makes the file with its header, as long as it will be. Errors name `shown_path`.
  Status create(const std::string& path, const std::string& shown_path) const;

  class Writer {
   public:
    Writer(Writer&& other) noexcept;
    Writer& operator=(Writer&&) = delete;
    ~Writer();
    // The box of a tensor, from a view of its extents with strides of any kind.
    Status write(std::string_view name, const Box& box, const TensorRef& data);
    // Syncs and closes.
    Status finish();

   private:
    friend class SharedSafetensors;
    Writer(const SharedSafetensors& file, int fd, std::string shown)
        : file_(&file), fd_(fd), shown_(std::move(shown)) {}
    Status put(uint64_t at, const char* bytes, size_t n);
    Status flush();
    const SharedSafetensors* file_;
    int fd_;
    std::string shown_, buffer_;
    uint64_t buffer_at_ = 0;
  };
  // This outlives the writer.
  Result<Writer> open(const std::string& path, const std::string& shown_path) const;

 private:
  struct Place {
    std::vector<int64_t> shape;
    DType dtype = DType::kF32;
    uint64_t at = 0;
  };
  std::string head_;
  std::map<std::string, Place, std::less<>> places_;
  uint64_t n_bytes_ = 0;
};

}  // namespace tegula
