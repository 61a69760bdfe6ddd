// Outputs that are also inputs, and inputs that are standard input.
#pragma once

#include <initializer_list>
#include <string>

#include "tegula/base/result.h"

namespace tegula::cli {

struct NamedPath {
  std::string flag, path;  // "--out", "a.txt"; an empty path is none
};

// Whether writing the file `out` leaves all inputs as they are: it is none of them, nor one of the
// files of a directory that is an input, however many links lead there. The error names both flags.
Status keep_inputs(const NamedPath& out, std::initializer_list<NamedPath> inputs);

// Whether both lead to one file or directory.
bool is_same_place(const std::string& a, const std::string& b);

// The file that a flag names: "-" is standard input.
std::string input_path(const std::string& path);

// Writes a result: through a device or a pipe that is there, else durably in place of the file, or
// of the one that a link leads to. Errors: a pipe that nobody reads.
Status write_result(const std::string& path, const std::string& bytes);

}  // namespace tegula::cli
