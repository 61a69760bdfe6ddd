// Steps of training on the ranks of a mesh, for tests: what is lost, and all weights afterwards.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tegula/train/ranks.h"

namespace tegula {

// Two layers, 32 wide: small enough for every mesh.
TrainConfig tiny(const char* model, const char* mode);

struct Ran {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<float>> weights;
  int64_t sent_bytes = 0, planned_bytes = 0;  // by all ranks, in all steps
};

inline constexpr int64_t kSteps = 3;
// Three steps on "dp=2,tp=2". Expects that each rank sends what was planned, or less where data
// decides, and that all have one loss.
Ran run_on(TrainConfig c, const char* mesh);

double largest_difference(const Ran& a, const Ran& b);
// Elements whose bits differ.
int64_t differing(const std::vector<float>& a, const std::vector<float>& b);
// Losses, norms and weights of the mesh's ranks are those of one rank.
void expect_bits_of_one_rank(const TrainConfig& c, const char* mesh);

}  // namespace tegula
