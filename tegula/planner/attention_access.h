// The traffic and work of attention of N queries and keys of d, over `heads`: the access table of a
// kernel for each step, and the whole by how it is done.
//
//   naive     every product reads its operands for every result: 2·(2·N²·d) for the two of them
//   tiled     products in square tiles of √(M/3) elements, no larger than what they cut: N²·d/tile
//             for each operand; scores in memory
//   flash     K, V once, and Q, O once for each of the N/(M/4d) blocks of them: O(N²·d²/M)
//             [Dao et al. 2022, section 3.1, theorem 2]
//   least     Q, K, V read and O written once
#pragma once

#include <string_view>
#include <vector>

namespace tegula::planner {

struct AccessRow {
  std::string_view what;
  double elements = 0;  // of the tensor
  int times = 1;        // 2: read and written
  double bytes = 0;     // elements · times · bytes of one
  double flops = 0;
};

// Q, K; QKᵀ; mask; dropout; softmax; V; output. With elementwise steps of 2·N² operations a head.
std::vector<AccessRow> access_table(double n, double d, double heads, double element_bytes = 2);
struct AccessTotal {
  double bytes = 0, flops = 0;
  double intensity() const { return flops / bytes; }
};
AccessTotal total(const std::vector<AccessRow>& table);
// The limit that the intensity rises to as N grows: (4d + 6)/(7·bytes).
double intensity_limit(double d, double element_bytes = 2);

struct AccessBytes {
  double naive = 0, tiled = 0, flash = 0, least = 0;
};
// sram_bytes: of one multiprocessor.
AccessBytes access_bytes(double n, double d, double heads, double sram_bytes,
                         double element_bytes = 2);

}  // namespace tegula::planner
