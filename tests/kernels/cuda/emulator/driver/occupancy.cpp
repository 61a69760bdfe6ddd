// The resources that a kernel takes, and how many blocks of it a multiprocessor holds: found by
// placing one block after the other, warp by warp, until something is full. The host's compiler has
// no registers of a GPU to tell of: FAKE_CUDA_REGISTERS of a thread, 32.
#include <algorithm>
#include <array>

#include "tests/kernels/cuda/emulator/driver/launch.h"

namespace tegula::emulated {

namespace {

struct Quarter {
  int registers;
};

class Multiprocessor {
 public:
  explicit Multiprocessor(int capability) {
    const bool is_desktop = capability / 10 == 12 || capability == 86 || capability == 89;
    threads_ = is_desktop ? 1536 : 2048;
    slots_ = capability == 86 ? 16 : is_desktop ? 24 : 32;
    shared_ = is_desktop ? 102400 : capability >= 90 ? 233472 : 167936;
    for (Quarter& q : quarters_) q.registers = 16384;
  }
  bool place(int threads, int registers, int shared) {
    const int lines = (shared + 1024 + 127) / 128;  // the system takes 1 KiB of each block
    shared_ -= 128 * lines, --slots_;
    if (shared_ < 0 || slots_ < 0) return false;
    for (int warp = 0; warp * 32 < threads; ++warp) {
      threads_ -= 32;
      const auto roomiest =
          std::max_element(quarters_.begin(), quarters_.end(),
                           [](const auto& a, const auto& b) { return a.registers < b.registers; });
      roomiest->registers -= (registers * 32 + 255) / 256 * 256;
      if (threads_ < 0 || roomiest->registers < 0) return false;
    }
    return true;
  }

 private:
  int threads_, slots_, shared_;
  std::array<Quarter, 4> quarters_;
};

int registers_of_thread() { return setting("FAKE_CUDA_REGISTERS", 32); }

// Without the byte that every module has.
int static_bytes(const Function& f) {
  return f.kernel == nullptr ? 0 : static_cast<int>(f.module->static_shared().bytes) - 1;
}

}  // namespace
}  // namespace tegula::emulated

using namespace tegula::emulated;

// NOLINTBEGIN(readability-identifier-naming): the names that callers look up
extern "C" __attribute__((visibility("default"))) int cuFuncGetAttribute(int* value, int which,
                                                                         void* function) {
  constexpr int kMostThreadsOfIt = 0, kShared = 1, kRegisters = 4;
  if (function == nullptr || value == nullptr) return kInvalidValue;
  const auto& f = *static_cast<Function*>(function);
  if (which == kMostThreadsOfIt) {
    *value = f.kernel != nullptr && f.kernel->max_threads != 0
                 ? static_cast<int>(f.kernel->max_threads)
                 : 1024;
    return kSuccess;
  }
  if (which != kShared && which != kRegisters) return kInvalidValue;
  *value = which == kShared ? static_bytes(f) : registers_of_thread();
  return kSuccess;
}
extern "C" __attribute__((visibility("default"))) int cuOccupancyMaxActiveBlocksPerMultiprocessor(
    int* blocks, void* function, int threads, size_t dynamic_bytes) {
  if (function == nullptr || blocks == nullptr || threads < 1) return kInvalidValue;
  const auto& f = *static_cast<Function*>(function);
  const int shared = static_bytes(f) + static_cast<int>(dynamic_bytes);
  *blocks = 0;
  const int fullest = (threads + 127) / 128;  // warps of the block in one quarter
  const int of_warp = (registers_of_thread() * 32 + 255) / 256 * 256;
  if (threads > 1024 || shared > static_cast<int>(most_shared_bytes()) ||
      4 * fullest * of_warp > 65536)
    return kSuccess;
  Multiprocessor m(setting("FAKE_CUDA_CAPABILITY", 90));
  while (m.place(threads, registers_of_thread(), shared)) ++*blocks;
  return kSuccess;
}
// NOLINTEND(readability-identifier-naming)
