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

// From two texts "what TAB is NEWLINE …": the error that names the first fact in which process
// `number` differs from the first one.
Error differing_runs(std::string_view first, std::string_view other, int64_t number);

}  // namespace tegula
