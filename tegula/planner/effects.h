// Effects: the inputs of a question without which the answer is the same.
//
// Found by asking again without each: flags, and keys of --fix. The answer is the chosen layouts'
// settings, seconds and bytes, or what is served. Where a search without a key would look at more
// than kMostMeshes meshes, it is not tried, and said so.
#pragma once

#include "tegula/planner/answer.h"

namespace tegula::planner {

inline constexpr size_t kMostMeshes = 5000;

struct Effects {
  std::vector<std::string> without;  // "--optimizer sgd", "--fix context=zigzag"
  std::vector<std::string> untried;
};
Effects effects_of(const Question& question, const Answer& answer);

}  // namespace tegula::planner
