// MachineFile: what was measured on a machine, in one JSON file that is written whole and renamed:
//
//   {"format": …, "version": …, "machine": …, "sha256": of the body, BODY: …}
//
// Errors of reading: cut, altered, of another version or another machine; each says what to do.
#pragma once

#include <string>
#include <string_view>

#include "tegula/base/result.h"
#include "tegula/io/json.h"

namespace tegula {

struct MachineFile {
  std::string_view format;  // "tegula.calibration"
  int64_t version = 1;
  std::string_view what;    // "calibration", as an error calls it
  std::string_view remedy;  // "remove it to measure anew"
  std::string_view body = "body";

  Error refuse(const std::string& path, std::string_view why) const;
  Status save(const std::string& path, const std::string& machine, Json content) const;
  // The body.
  Result<Json> load(const std::string& path, const std::string& machine) const;
};

// DIRECTORY/PREFIX-HASH.json, HASH of the machine's description.
std::string machine_file_path(const std::string& directory, std::string_view prefix,
                              const std::string& machine);

}  // namespace tegula
