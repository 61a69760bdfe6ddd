// Safetensors: every byte of an accepted file's tensors can be read, and it is written and read the
// same.
#include "tegula/io/safetensors.h"

#include <cstring>

#include "tests/fuzz/target.h"

namespace tegula::fuzz {

namespace {

bool run(std::string_view input) {
  const std::string path = scratch() + "/in.safetensors", copy = scratch() + "/out.safetensors";
  put(path, input);
  const auto file = SafetensorsFile::open(path);
  if (!file.ok()) return false;
  TEGULA_CHECK(write_safetensors(copy, file->tensors(), file->metadata()).ok());
  const auto again = SafetensorsFile::open(copy);
  TEGULA_CHECK(again.ok() && again->metadata() == file->metadata());
  TEGULA_CHECK(again->tensors().size() == file->tensors().size());
  for (size_t i = 0; i < file->tensors().size(); ++i) {
    const auto &a = file->tensors()[i], &b = again->tensors()[i];
    TEGULA_CHECK(a.name == b.name && a.tensor.dtype == b.tensor.dtype);
    TEGULA_CHECK(a.tensor.numel() == b.tensor.numel() && file->find(a.name) != nullptr);
    const auto n_bytes = static_cast<size_t>(a.tensor.numel() * size_bytes(a.tensor.dtype));
    TEGULA_CHECK(n_bytes <= input.size());
    TEGULA_CHECK(n_bytes == 0 || std::memcmp(a.tensor.data, b.tensor.data, n_bytes) == 0);
  }
  return true;
}

}  // namespace

extern constinit const Target safetensors_target{"safetensors", run};

}  // namespace tegula::fuzz
