// Work: operations and bytes of one call, and its seconds on an accelerator by the roofline.
//
//   seconds = launch + max(flops / (peak · η), bytes / (bandwidth · η))
//
// and for a GPU's products of m rows half of the lesser term · min(1, 256 / m): with few rows they
// do not hide behind one another (bench/results/layouts/decode_h200_torch.json).
// A product's η falls with the tiles of its last wave: tiles of 128 × 128 results go over all
// multiprocessors at once, and a wave that is not full takes as long as one that is. What bounds a
// call is the longest of the three terms. [Williams et al. 2009]
#pragma once

#include <span>
#include <string_view>

#include "tegula/cost/efficiency.h"
#include "tegula/cost/sustained.h"

namespace tegula {

enum class Unit : uint8_t { kMatmul, kAttention, kAttentionBackward, kRows };

struct Work {
  std::string_view name;
  Unit unit = Unit::kRows;
  double flops = 0, bytes = 0;
  double m = 0, n = 0, k = 0, count = 1;  // of products: `count` of [m k] · [k n]
  double seqlen = 0, head_dim = 0;        // of flash attention
  AttentionKernel kernel = AttentionKernel::kDefault;
  double launches = 1;
  bool in_f32 = false;  // whatever the dtype of the others
};

// count products [m k] · [k n] of elements of `bytes`: 2·m·n·k operations, bytes·(mk + kn + mn).
Work matmul_work(std::string_view name, double m, double n, double k, double bytes,
                 double count = 1);
Work rows_work(std::string_view name, double bytes);

enum class Bound : uint8_t { kCompute, kMemory, kLaunch };
std::string_view bound_name(Bound bound);

// Seconds by what bounds them.
struct Seconds {
  double compute = 0, memory = 0, launch = 0;
  double total() const { return compute + memory + launch; }
  Seconds& operator+=(const Seconds& s) {
    compute += s.compute, memory += s.memory, launch += s.launch;
    return *this;
  }
  Seconds operator*(double x) const { return {compute * x, memory * x, launch * x}; }
};

struct WorkPrice {
  double seconds = 0;
  double flops_s = 0, bytes_s = 0, launch_s = 0, apart_s = 0;
  double peak_s = 0;  // of its operations at the peak
  double wave = 1;    // share of the tiles' waves that is filled
  Bound bound = Bound::kCompute;
};
WorkPrice price(const Work& work, const Accelerator& device, const Efficiency& efficiency,
                Number dtype);
// One after another: products that keep the device busy slow its clock.
Seconds price(std::span<const Work> works, const Accelerator& device, const Efficiency& efficiency,
              Number dtype);

}  // namespace tegula
