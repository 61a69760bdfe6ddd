// The manifest of a checkpoint: which files it has, with sizes and SHA-256, and a hash of itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/result.h"

namespace tegula {

struct ManifestEntry {
  std::string name;
  uint64_t n_bytes = 0;
  std::string sha256;
};

struct Manifest {
  int64_t step = 0;
  std::vector<ManifestEntry> files;
};

std::string format_manifest(const Manifest& manifest);
// Errors name `path`: not JSON, fields missing, names that leave the directory, its hash wrong.
Result<Manifest> parse_manifest(std::string_view text, const std::string& path);
// Reads it and, of the files of the directory, the sizes; the content of all but tensors' files,
// which may be read when their values are; or all content.
enum class Check { kSizes, kAllButTensors, kHashes };
Result<Manifest> check_manifest(const std::string& directory, Check check);
// The content of one of them; nothing where the manifest does not name it.
Status check_file_of_manifest(const std::string& directory, std::string_view name);

}  // namespace tegula
