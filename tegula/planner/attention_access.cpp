#include "tegula/planner/attention_access.h"

#include <cmath>

#include "tegula/base/algorithm.h"

namespace tegula::planner {

std::vector<AccessRow> access_table(double n, double d, double heads, double element_bytes) {
  const double scores = n * n * heads, rows = n * d * heads;
  std::vector<AccessRow> table = {
      {"Q, K", 2 * rows, 1, 0, 0},           {"Q·Kᵀ", scores, 1, 0, 2 * scores * d},
      {"mask", scores, 2, 0, 2 * scores},    {"dropout", scores, 2, 0, 2 * scores},
      {"softmax", scores, 2, 0, 2 * scores}, {"V", rows, 1, 0, 0},
      {"output", rows, 1, 0, 2 * scores * d}};
  for (AccessRow& r : table) r.bytes = r.elements * r.times * element_bytes;
  return table;
}

AccessTotal total(const std::vector<AccessRow>& table) {
  AccessTotal t;
  for (const AccessRow& r : table) t.bytes += r.bytes, t.flops += r.flops;
  return t;
}

double intensity_limit(double d, double element_bytes) { return (4 * d + 6) / (7 * element_bytes); }

AccessBytes access_bytes(double n, double d, double heads, double sram_bytes,
                         double element_bytes) {
  const double m = sram_bytes / element_bytes, e = element_bytes * heads;
  const double scores = n * n, rows = n * d;
  // Scores are written once, and thrice read and written; then they are an operand.
  const double between = e * (7 * scores + rows);
  const double tile = std::max(1.0, std::floor(std::sqrt(m / 3)));
  const double of_n = scores * d / std::min(tile, n), of_d = scores * d / std::min(tile, d);
  AccessBytes b;
  b.naive = between + e * 2 * (2 * scores * d);
  b.tiled = between + e * (2 * of_n + of_n + of_d);
  const double blocks = std::ceil(n / std::max(1.0, std::floor(m / (4 * d))));
  b.flash = e * (2 * rows + blocks * 3 * rows);
  b.least = e * 4 * rows;
  return b;
}

}  // namespace tegula::planner
