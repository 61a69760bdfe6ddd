// WeightFiles: the tensors of a model directory, in one safetensors file or in shards.
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

namespace tegula {

class WeightFiles {
 public:
  static Result<WeightFiles> open(const std::string& directory);

  struct Found {
    const TensorRef* tensor = nullptr;  // null: no file has it
    const std::string* path = nullptr;
  };
  Found find(std::string_view name) const;
  const std::vector<SafetensorsFile>& files() const { return files_; }
  // The path that errors about the model as a whole name: the one file, or the index.
  const std::string& path() const { return path_; }

 private:
  Status open_shards(const std::string& directory);
  std::string path_;
  std::vector<SafetensorsFile> files_;
};

}  // namespace tegula
