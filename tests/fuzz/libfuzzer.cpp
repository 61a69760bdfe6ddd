// libFuzzer's entry, for the target that TEGULA_FUZZ_TARGET names.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/target.h"

#ifdef TEGULA_FUZZ_TARGET

namespace tegula::fuzz {
extern const Target TEGULA_FUZZ_TARGET;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tegula::fuzz::TEGULA_FUZZ_TARGET.run({reinterpret_cast<const char*>(data), size});
  return 0;
}

#endif
