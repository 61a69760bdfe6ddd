// A burst of f32 multiply-adds on registers, or of sums of products of bf16 pairs: what an
// instruction set can do at most.
#pragma once

#include <cstdint>

namespace tegula::kernel {

struct FmaBurst {
  int64_t rounds = 0;
  int64_t* flops = nullptr;  // += what was done
  bool is_of_pairs = false;  // AVX-512 with VDPBF16PS only
};

}  // namespace tegula::kernel
