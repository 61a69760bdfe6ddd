#include "tests/kernels/cuda/emulator/driver/early.h"

#include <cstring>

#include "tests/kernels/cuda/emulator/driver/memory.h"

namespace tegula::emulated {

namespace {
struct Writes {
  Contents before, after;
};
Writes now, last;
}  // namespace

bool checks_early_loads() { return setting("FAKE_CUDA_EARLY", 0) != 0; }

void begin_writes() {
  last = std::move(now);
  now.before = contents();
}

void end_writes() { now.after = contents(); }

bool last_launch_wrote(const void* data, size_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(data);
  auto was = last.before.upper_bound(at);
  if (was == last.before.begin()) return false;
  --was;
  const auto is = last.after.find(was->first);
  if (is == last.after.end() || at - was->first + bytes > was->second.size()) return false;
  return std::memcmp(was->second.data() + (at - was->first), is->second.data() + (at - was->first),
                     bytes) != 0;
}

}  // namespace tegula::emulated
