// Manifests of checkpoints, with the hash of their content repaired: what is read is written and
// read the same.
#include "tegula/io/manifest.h"

#include "tegula/io/json.h"
#include "tests/fuzz/target.h"

namespace tegula::fuzz {

namespace {

// The hash that its content should have stands in the error.
std::string repaired(std::string_view input) {
  const auto first = parse_manifest(input, "m");
  const std::string start = "SHA-256 is ";
  auto json = Json::parse(input, "m");
  if (first.ok() || !json.ok()) return std::string(input);
  const size_t at = first.error().message.find(start);
  if (at == std::string::npos || json->as<Json::Object>() == nullptr) return std::string(input);
  json->set("content_sha256", first.error().message.substr(at + start.size(), 64));
  return json->dump();
}

bool run(std::string_view input) {
  const auto manifest = parse_manifest(repaired(input), "m");
  if (!manifest.ok()) return false;
  const std::string text = format_manifest(*manifest);
  const auto again = parse_manifest(text, "m");
  TEGULA_CHECK(again.ok() && again->step == manifest->step);
  TEGULA_CHECK(again->files.size() == manifest->files.size());
  for (size_t i = 0; i < again->files.size(); ++i) {
    TEGULA_CHECK(again->files[i].name == manifest->files[i].name);
    TEGULA_CHECK(again->files[i].n_bytes == manifest->files[i].n_bytes);
    TEGULA_CHECK(again->files[i].name.find('/') == std::string::npos);
  }
  return true;
}

}  // namespace

extern constinit const Target manifest_target{"manifest", run};

}  // namespace tegula::fuzz
