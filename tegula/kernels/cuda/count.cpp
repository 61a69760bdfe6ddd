#include "tegula/kernels/cuda/count.h"

#include <cstdlib>
#include <mutex>
#include <set>

#include "tegula/kernels/cuda/driver.h"

namespace tegula::cuda {

namespace {
std::mutex one;
// Never destroyed: modules may go later.
std::set<void*>& modules() {
  static auto& all = *new std::set<void*>();
  return all;
}
}  // namespace

bool counts_flops() {
  static const bool counts = std::getenv("TEGULA_COUNT_FLOPS") != nullptr;
  return counts;
}

void watch_counter(void* module) {
  if (!counts_flops()) return;
  const std::lock_guard lock(one);
  modules().insert(module);
}

void forget_counter(void* module) {
  if (!counts_flops()) return;
  const std::lock_guard lock(one);
  modules().erase(module);
}

Result<int64_t> counted_flops() {
  const Driver* d = TEGULA_TRY(Driver::get());
  int64_t sum = 0;
  const std::lock_guard lock(one);
  for (void* module : modules()) {
    void* at = nullptr;
    size_t bytes = 0;
    if (d->module_global(&at, &bytes, module, "tegula_flops") != 0) continue;  // it has none
    int64_t n = 0;
    TEGULA_TRY(d->check(d->copy(&n, at, sizeof n), "reading a counter"));
    TEGULA_TRY(d->check(d->fill(at, 0, sizeof n), "clearing a counter"));
    sum += n;
  }
  return sum;
}

}  // namespace tegula::cuda
