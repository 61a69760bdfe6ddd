// The calls of NVRTC that kernels need; what they make runs in the emulated driver.
// TEGULA_EMULATOR_CXX names another compiler, TEGULA_EMULATOR_KEEP keeps its folders.
#include <cstring>

#include "tests/kernels/cuda/emulator/nvrtc/compile.h"

namespace {

struct Program {
  tegula::emulated::Source source;
  tegula::emulated::Built built;
};

constexpr int kSuccess = 0, kInvalidInput = 3, kInvalidProgram = 4, kCompilation = 6;

int size_of(const Program* p, size_t* size, size_t bytes) {
  if (p == nullptr || size == nullptr) return kInvalidProgram;
  *size = bytes;
  return kSuccess;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names that callers look up
#define TEGULA_EXPORT extern "C" __attribute__((visibility("default"))) int

// The minor version is a fingerprint of the emulator: kernels in a cache are found by it.
TEGULA_EXPORT nvrtcVersion(int* major, int* minor) {
  *major = 12, *minor = 1000 + static_cast<int>(tegula::emulated::fingerprint() % 1000000000U);
  return kSuccess;
}

TEGULA_EXPORT nvrtcCreateProgram(Program** program, const char* text, const char* name,
                                 int n_headers, const char* const* texts,
                                 const char* const* names) {
  if (program == nullptr || text == nullptr) return kInvalidInput;
  *program = new Program();
  tegula::emulated::Source& s = (*program)->source;
  s.path = name != nullptr ? name : "default_program";
  s.text = text;
  for (int i = 0; i < n_headers; ++i) s.headers.emplace_back(names[i], texts[i]);
  return kSuccess;
}

TEGULA_EXPORT nvrtcDestroyProgram(Program** program) {
  if (program == nullptr || *program == nullptr) return kInvalidProgram;
  delete *program;
  *program = nullptr;
  return kSuccess;
}

TEGULA_EXPORT nvrtcCompileProgram(Program* p, int n_options, const char* const* options) {
  if (p == nullptr) return kInvalidProgram;
  p->built = tegula::emulated::build(p->source, {options, options + n_options});
  return p->built.ok ? kSuccess : kCompilation;
}

TEGULA_EXPORT nvrtcGetProgramLogSize(Program* p, size_t* size) {
  return size_of(p, size, p != nullptr ? p->built.log.size() + 1 : 0);
}
TEGULA_EXPORT nvrtcGetProgramLog(Program* p, char* log) {
  if (p == nullptr) return kInvalidProgram;
  std::memcpy(log, p->built.log.c_str(), p->built.log.size() + 1);
  return kSuccess;
}
TEGULA_EXPORT nvrtcGetCUBINSize(Program* p, size_t* size) {
  return size_of(p, size, p != nullptr ? p->built.library.size() : 0);
}
TEGULA_EXPORT nvrtcGetCUBIN(Program* p, char* cubin) {
  if (p == nullptr) return kInvalidProgram;
  std::memcpy(cubin, p->built.library.data(), p->built.library.size());
  return kSuccess;
}
// NOLINTEND(readability-identifier-naming)
