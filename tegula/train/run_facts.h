// The processes of a run must have this in common before its first step.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tegula/kernels/target.h"
#include "tegula/train/checkpoint.h"

namespace tegula {

// The name of a fact, and its value here: the program, its instruction set, the configuration, the
// data.
using RunFacts = std::vector<std::pair<std::string, std::string>>;
RunFacts run_facts(const TrainConfig& config, const DataHashes& hashes, const Target& target);

// A text of it, "what TAB is NEWLINE …", to be exchanged.
std::string to_text(const RunFacts& facts);
// From the texts of all processes: the error that names the first fact in which one differs from
// the first process, with the ranks of both, n_own each.
Status check_runs(const std::vector<std::string>& texts, int64_t n_own);

}  // namespace tegula
