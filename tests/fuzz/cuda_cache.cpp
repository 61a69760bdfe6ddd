// Entries of the cache of compiled CUDA kernels: what is accepted is written and read the same.
#include "tegula/kernels/cuda/cache_entry.h"
#include "tests/fuzz/target.h"

namespace tegula::fuzz {

namespace {

bool run(std::string_view input) {
  cuda::CacheEntry entry;
  // An entry's checksum is part of its text, so that only whole entries come through: the text
  // behind the first line is taken for a cubin, too.
  const size_t line = input.find('\n');
  const std::string_view cubin = line == input.npos ? input : input.substr(line + 1);
  const std::string made = cuda::entry_text({std::string(cubin), 168, 0, true});
  TEGULA_CHECK(cuda::parse_entry(made, entry) && entry.cubin == cubin);
  for (const std::string& broken : {made.substr(0, made.size() - 1), made + "x", " " + made})
    TEGULA_CHECK(!cuda::parse_entry(broken, entry));
  if (!cuda::parse_entry(input, entry)) return false;
  TEGULA_CHECK(entry.registers >= 0 && entry.spill_bytes >= 0);
  TEGULA_CHECK(cuda::entry_text(entry) == input);
  return true;
}

}  // namespace

extern constinit const Target cuda_cache_target{"cuda_cache", run};

}  // namespace tegula::fuzz
