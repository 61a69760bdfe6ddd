#include "tests/kernels/cuda/emulator/driver/faults.h"

#include <pthread.h>
#include <ucontext.h>

#include <cstdint>
#include <iterator>

#include "tegula/base/str.h"
#include "tests/kernels/cuda/emulator/driver/block.h"

namespace tegula::emulated {

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr size_t kStack_bytes = 64 << 10;
alignas(16) char handler_stack[kStack_bytes];

struct sigaction before[std::size(kSignals)];
pthread_t owner;
int caught_signal = 0;
uintptr_t caught_address = 0;

// Where the thread goes on after the handler, on its own stack's top: it never comes back to what
// it did.
[[noreturn]] void after_fault() {
  Block& block = *running_block();
  if (caught_signal == SIGFPE) block.fail(kLaunchFailed, "a whole number is divided by zero");
  if (caught_signal == SIGILL) block.fail(kLaunchFailed, "an illegal instruction");
  if (caught_address == 0)  // what the processor says of an address that is none, or not aligned
    block.fail(kIllegalAddress, "an access that is not aligned, or to no address");
  block.fail(kIllegalAddress,
             cat("an access to where nothing may be: ", block.describe_fault(caught_address)));
}

void handle(int signal, siginfo_t* info, void* context) {
  const Block* block = running_block();
  if (block == nullptr || !block->is_running() || pthread_equal(pthread_self(), owner) == 0) {
    for (size_t i = 0; i < std::size(kSignals); ++i)
      if (kSignals[i] == signal) sigaction(signal, &before[i], nullptr);
    return;  // it is raised again
  }
  caught_signal = signal;
  caught_address = reinterpret_cast<uintptr_t>(info->si_addr);
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  registers[REG_RIP] = reinterpret_cast<greg_t>(&after_fault);
  registers[REG_RSP] = reinterpret_cast<greg_t>(block->top_of_stack() - 24);  // as after a call
}

}  // namespace

CatchFaults::CatchFaults() {
  owner = pthread_self();
  stack_t stack{};
  stack.ss_sp = handler_stack, stack.ss_size = kStack_bytes;
  sigaltstack(&stack, &stack_before_);
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &before[i]);
}

CatchFaults::~CatchFaults() {
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before[i], nullptr);
  sigaltstack(&stack_before_, nullptr);
}

}  // namespace tegula::emulated
