// A kernel's preprocessed text as C++ that runs on a host.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tegula::emulated {

struct KernelName {
  std::string name;
  std::string bounds;  // what stands in __launch_bounds__; may be empty
};

struct Rewritten {
  std::string text;
  std::vector<KernelName> kernels;
};

// Rewrites what language.h left marked: `extern __shared__` arrays become pointers to the block's
// dynamic shared memory, other __shared__ variables live once for all threads, extern "C" kernels
// are listed, and asm statements become calls of the functions in device/ptx*.h. `is_known` says
// whether there is one for an instruction; of others the text fails when it comes to them.
Rewritten rewrite(std::string_view text, const std::function<bool(const std::string&)>& is_known);

// One asm statement's text, as C++; `operands` are its operands' expressions.
std::string translate_ptx(std::string_view ptx, const std::vector<std::string>& operands,
                          const std::function<bool(const std::string&)>& is_known);

// Shared by both: the end of the literal that begins at `at`, and of an identifier.
size_t end_of_literal(std::string_view text, size_t at);
size_t end_of_name(std::string_view text, size_t at);
inline bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
size_t skip_space(std::string_view text, size_t at);

}  // namespace tegula::emulated
