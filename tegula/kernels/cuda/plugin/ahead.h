// Variants that were compiled when the plug-in was built and lie in it, so that common cases wait
// for no compiler, and work on machines that have none.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tegula::cuda {

// Empty: not among them.
std::string_view ahead_cubin(std::string_view source, std::span<const std::string> defines,
                             std::string_view arch);
int ahead_count();

}  // namespace tegula::cuda
