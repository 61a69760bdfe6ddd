// Signals that a kernel's instruction raises: they fail the launch, not the process.
#pragma once

#include <csignal>

namespace tegula::emulated {

// While it lives; signals of other code go where they went before.
class CatchFaults {
 public:
  CatchFaults();
  CatchFaults(const CatchFaults&) = delete;
  CatchFaults& operator=(const CatchFaults&) = delete;
  ~CatchFaults();

 private:
  stack_t stack_before_{};
};

}  // namespace tegula::emulated
