// Kernels of texts that are made for a plan: compiled by any thread, once each, and loaded by the
// one that launches.
#pragma once

#include <functional>

#include "tegula/kernels/cuda/plugin/launch.h"

namespace tegula::cuda {

struct KernelText {
  std::string name;                   // tells it from all others
  std::string path;                   // for messages
  std::function<std::string()> text;  // asked for where it must be compiled
  std::vector<std::string> defines;
};

// True: it was compiled, which no cache had done before.
Result<bool> compile_once(const KernelText& t);
Result<const Module*> loaded_text(const KernelText& t);

// The defines of texts that compute with tile programs (kTileFlags), and more.
std::vector<std::string> tile_defines(std::vector<std::string> more = {});

}  // namespace tegula::cuda
