// Compiles our device sources, which are part of this library, for exactly the variant asked.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/result.h"

namespace tegula::cuda {

// A device source or header: its path in the repository, and its text.
struct KernelSource {
  std::string_view path, text;
};
std::span<const KernelSource> kernel_sources();  // generated from the folder

struct Compiled {
  std::string cubin;
  std::string log;             // warnings, and the assembler's resource report
  int registers = 0;           // at entry; setmaxnreg changes it
  int spill_bytes = 0;         // stores and loads
  int smem_bytes = 0;          // that the source declares
  bool is_serialized = false;  // the assembler had to wait for each wgmma
  double seconds = 0;          // of the calling thread's processor
};

// "13.0"; unsupported without the library.
Result<std::string> nvrtc_version();

// `source` is a file name of this folder ("attention_sm90.cu"); `defines` are NAME=VALUE, or what
// begins with -- a flag of the compiler's. Needs
// libnvrtc.so.13 or .12 (TEGULA_NVRTC names another), and no GPU. Errors: unsupported without the
// library, invalid_argument for an unknown source, internal with the compiler's log.
Result<Compiled> compile_kernel(std::string_view source, std::span<const std::string> defines,
                                std::string_view arch = "sm_90a");

// The same of a text, which may include this folder's headers; `path` is for messages.
Result<Compiled> compile_text(const std::string& path, const std::string& text,
                              std::span<const std::string> defines, std::string_view arch);

}  // namespace tegula::cuda
