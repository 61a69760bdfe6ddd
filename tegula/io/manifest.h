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
// Reads it and, unless only sizes are asked for, every file of the directory.
enum class Check { kSizes, kHashes };
Result<Manifest> check_manifest(const std::string& directory, Check check);

}  // namespace tegula
