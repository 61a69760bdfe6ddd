#include "tests/kernels/cuda/emulator/driver/fiber.h"

#include <cstdint>

#if !defined(__x86_64__)
#error "the switch between stacks is written for x86-64"
#endif

// The registers that a call keeps (System V ABI), then the stack.
asm(".text\n"
    ".globl tegula_emulated_switch\n"
    ".hidden tegula_emulated_switch\n"
    ".type tegula_emulated_switch, @function\n"
    "tegula_emulated_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size tegula_emulated_switch, . - tegula_emulated_switch\n");

namespace tegula::emulated {

void* fresh_stack(char* top, void (*begin)()) {
  constexpr int kSaved = 6;
  auto* words = reinterpret_cast<uint64_t*>(top) - kSaved - 2;
  for (int i = 0; i < kSaved; ++i) words[i] = 0;
  words[kSaved] = reinterpret_cast<uint64_t>(begin);
  words[kSaved + 1] = 0;  // as if called from nowhere
  return words;
}

}  // namespace tegula::emulated
