// Efficiency: which shares of a data sheet's peaks single calls reach. Three sets make an interval:
// a fast, an expected and a slow one. None is fitted to a training run.
//
// Expected, measured on H200s in 2026-11 with PyTorch 2.11 and NCCL: large products of bf16 at .75
// of the peak; flash attention (cuDNN, head size 128, 4096 tokens) at 652 of 989 TFLOP/s forward
// and 538 backward; reading a KV cache at 4.4 of 4.8 TB/s; all-reduce of 1 GiB at 352 of 450 GB/s.
// Slow and fast are the ends of what the same runs gave over shapes: attention of 1024 tokens or of
// size 256, messages of 16 MiB. Of networks between nodes nothing was measured; they are taken as
// .85 (.6 to .95) of a card's rate.
#pragma once

#include "tegula/planner/accelerator.h"

namespace tegula::planner {

struct Efficiency {
  double matmul = 0.75;
  double attention_forward = 0.66, attention_backward = 0.54;
  double memory = 0.9;
  double inside = 0.78, between = 0.85;  // of links
  double overlap = 1;  // share of the time that can hide communication which does hide it
};

inline constexpr Efficiency kExpected = {};
inline constexpr Efficiency kFast = {0.85, 0.75, 0.62, 0.95, 0.85, 0.95, 1};
inline constexpr Efficiency kSlow = {0.62, 0.5, 0.38, 0.8, 0.5, 0.6, 0};

}  // namespace tegula::planner
