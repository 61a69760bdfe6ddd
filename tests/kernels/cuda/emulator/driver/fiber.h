// Stacks and the switch between them: how one thread of the host is all threads of a block.
#pragma once

#include <cstddef>

namespace tegula::emulated {

inline constexpr size_t kStack_bytes = 192 << 10;

// Saves where it is called in `*from`, goes on where `to` was saved.
extern "C" void tegula_emulated_switch(void** from, void* to);

// The stack for `to` so that `begin`, which never returns, starts on the stack that ends at `top`.
void* fresh_stack(char* top, void (*begin)());

}  // namespace tegula::emulated
