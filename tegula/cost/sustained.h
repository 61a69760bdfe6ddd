// Sustained: the shares of its peaks that a device's kernels reach, and the clock that its power
// leaves them.
//
//   product [m k]·[k n]   η = product · k / (k + k_half), at the full clock; waves are work.h's
//   attention             η = most · s / (s + half), s tokens a sequence: blocks on a causal mask's
//                         diagonal are half in vain, and short sequences start and end more often
//   clock                 1 − (1 − clock) · min(1, busy / .8)^1.5, busy: operations over those of
//                         the peak in the same time
//
// Measured on an H200 in a minute of products, attention and copies in turns, random data
// (bench/layouts_torch.py --part kernels), and of a product alone. The constants are
// from these alone, as are .9 of the memory's rate (a KV cache at 4.4 of 4.8 TB/s) and .78 of a
// link's (an all-reduce of 1 GiB at 352 of 450 GB/s); the law of the clock (.8, 1.5) was chosen
// with half of the executed steps of bench/results/layouts in view.
#pragma once

#include "tegula/cost/accelerator.h"

namespace tegula {

// Sets the table's curves, by CUDA's capability: FlashAttention 2 is usual on Ampere, cuDNN's on
// later ones.
void set_attention(int capability, Sustained& shares);

// At the full clock.
double product_share(const Accelerator& device, double k);
// Bytes a second of memory.
double memory_rate(const Accelerator& device, const Efficiency& efficiency = kExpected);
double attention_share(const Accelerator& device, AttentionKernel kernel, double seqlen,
                       double head_dim, bool is_backward);
// busy: the share of the peak that is reached on average.
double clock_share(const Accelerator& device, double busy);
// The share that one large product after another reaches.
double large_product_share(const Accelerator& device);

}  // namespace tegula
