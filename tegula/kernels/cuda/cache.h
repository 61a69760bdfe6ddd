// Compiled kernels kept on disk, so that a variant is compiled once per machine.
//
// An entry's name is a hash of all device sources, the source, its defines, the architecture and
// the compiler's version; its file holds a checksum, and appears by a rename when it is whole. Two
// processes that want the same variant compile it once: the second waits for the first's lock.
// Whatever is wrong with the folder or an entry, the kernel is compiled, and `note` says why.
#pragma once

#include "tegula/kernels/cuda/nvrtc.h"

namespace tegula::cuda {

struct KernelCache {
  std::string folder;                        // made if it is not there
  int64_t limit_bytes = int64_t{256} << 20;  // beyond it the entries used longest ago go

  // $TEGULA_KERNEL_CACHE, else $XDG_CACHE_HOME/tegula/kernels, else ~/.cache/tegula/kernels; an
  // empty folder (nothing is kept) without any of them.
  static KernelCache standard();
  // Makes the folder and tries to write there: empty, or what is wrong and what to do.
  std::string why_unusable() const;
};

// The name of a variant: a hash of all device sources and of what is given. Of a variant that is
// built in, whatever compiled it, the version is kAheadVersion.
inline constexpr std::string_view kAheadVersion = "ahead";
std::string kernel_key(std::string_view source, std::span<const std::string> defines,
                       std::string_view arch, std::string_view version);

struct CachedKernel {
  Compiled kernel;  // without a log if it was found
  bool was_found = false;
  std::string note;  // why it could not be found or kept; empty if all is well
};

// As compile_kernel, by way of the cache.
Result<CachedKernel> compile_cached(const KernelCache& cache, std::string_view source,
                                    std::span<const std::string> defines,
                                    std::string_view arch = "sm_90a");

// As compile_text.
Result<CachedKernel> compile_text_cached(const KernelCache& cache, const std::string& path,
                                         const std::string& text,
                                         std::span<const std::string> defines,
                                         std::string_view arch);

}  // namespace tegula::cuda
