// A burst of f32 multiply-adds on registers: what an instruction set can do at most.
#pragma once

#include <cstdint>

namespace tegula::kernel {

struct FmaBurst {
  int64_t rounds = 0;
  int64_t* flops = nullptr;  // += what was done
};

}  // namespace tegula::kernel
