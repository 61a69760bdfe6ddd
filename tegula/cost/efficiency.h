// Efficiency: how far calls come short of what a device sustains (sustained.h) and its links say.
// Three sets make an interval: a fast, an expected and a slow one. None is fitted to a training
// run.
//
// Expected, measured on H200s in 2026-11 with PyTorch 2.11 and NCCL: reading a KV cache at 4.4
// of 4.8 TB/s; all-reduce of 1 GiB at 352 of 450 GB/s. Slow and fast are the ends of what the same
// runs gave over shapes and messages. Of networks between nodes nothing was measured; they are
// taken as .85 (.6 to .95) of a card's rate.
#pragma once

#include "tegula/cost/accelerator.h"

namespace tegula {

struct Efficiency {
  double products = 1, attention = 1;  // of what the device sustains
  double memory = 0.9;
  double inside = 0.78, between = 0.85;  // of links
  double overlap = 1;  // share of the time that can hide communication which does hide it
  double host = 1;     // times as long as the host that was measured (host_time.h)
};

inline constexpr Efficiency kExpected = {};
inline constexpr Efficiency kFast = {1.1, 1.15, 0.95, 0.85, 0.95, 1, 0.5};
inline constexpr Efficiency kSlow = {0.85, 0.75, 0.8, 0.5, 0.6, 0, 1.6};

}  // namespace tegula
