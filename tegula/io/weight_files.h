// WeightFiles: the tensors of a model, in one safetensors file or in shards; or those of a GGUF
// file by the names that the model has for them (models/gguf_files.h).
//
// One file: model.safetensors. Shards: model.safetensors.index.json, whose "weight_map" says which
// file holds which tensor, as Hugging Face writes large models. Files are mapped, no value is read.
// Errors: kIo for a file that is missing; kInvalidArgument for an index that breaks the form, names
// a file outside the directory, or disagrees with the shards; kUnsupported for a directory with
// PyTorch's pickles alone. Each names the file and what to do.
// Cost: linear in the number of tensors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tegula/io/safetensors.h"
#include "tegula/io/stored_tensor.h"

namespace tegula {

class WeightFiles {
 public:
  static Result<WeightFiles> open(const std::string& directory);
  // Tensors that lie in a file which `holder` keeps mapped. No two have one name.
  WeightFiles(std::string path, std::vector<StoredTensor> tensors,
              std::shared_ptr<const void> holder);

  struct Found {
    const TensorRef* tensor = nullptr;  // null: no file has it
    std::string_view path = {};
    const StoredTensor* stored = nullptr;  // null: it lies as the model has it
  };
  Found find(std::string_view name) const;
  // Calls f(name, found) for each.
  template <class F>
  void for_each(F&& f) const {
    for (const SafetensorsFile& file : files_)
      for (const NamedTensor& t : file.tensors()) f(std::string_view(t.name), find(t.name));
    for (const StoredTensor& t : stored_) f(std::string_view(t.name), find(t.name));
  }
  // Tensors of safetensors by other names; those that get "" are left out.
  void rename(std::string (*new_name)(std::string_view)) {
    for (SafetensorsFile& f : files_) f.rename(new_name);
  }
  // The path that errors about the model as a whole name: the one file, or the index.
  const std::string& path() const { return path_; }

 private:
  WeightFiles() = default;
  Status open_shards(const std::string& directory);
  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::vector<StoredTensor> stored_;  // by name
  std::shared_ptr<const void> holder_;
};

}  // namespace tegula
