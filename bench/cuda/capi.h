// Shared by the C calls of this folder. A call returns 0, or 1 (a load: null), and then
// tegula_error() says why.
#pragma once

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "tegula/base/result.h"

namespace tegula::cuda {

inline std::string last_error;

inline int report(const Status& s) {
  if (s.ok()) return 0;
  last_error = s.error().to_string();
  return 1;
}

inline Result<std::string> read_cubin(const char* path) {
  std::ifstream f(path, std::ios::binary);
  if (!f) return io_error(cat("cannot read ", path));
  return std::string(std::istreambuf_iterator<char>(f), {});
}

template <class T>
void* release(Result<T> loaded) {
  if (loaded.ok()) return new T(std::move(loaded).value());
  last_error = loaded.error().to_string();
  return nullptr;
}

}  // namespace tegula::cuda
