// Shared objects that a program loads where it needs them: beside it, in ../lib, or where a
// variable says.
#pragma once

#include <string_view>

#include "tegula/base/result.h"

namespace tegula {

struct PluginKind {
  const char* name;          // "CUDA", as an error says it
  const char* library;       // "libtegula_cuda.so"
  const char* variable;      // whose value is its path
  const char* entry;         // the function that it must have
  const char* how_to_build;  // what to do where there is none
  bool is_global = false;    // other libraries look for its symbols
};

// The entry. Errors: no such file, one that does not load or has no entry; what to do.
Result<void*> open_plugin(const PluginKind& kind);
// A plug-in of another interface is told this.
Error wrong_abi(const PluginKind& kind, int64_t abi, int64_t expected);

}  // namespace tegula
