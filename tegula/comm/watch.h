// Judges ranks by their states: by the launcher, or by the processes themselves.
#pragma once

#include <optional>
#include <string>

#include "tegula/comm/segment.h"

namespace tegula {

// "rank 3", "ranks 2 to 3": those of a process.
std::string ranks_of(const Segment& segment, int64_t process);
// "waiting in call 12, all_reduce over dp (step 3 of train_step)"
std::string doing(const Segment& segment, int64_t rank);
// All have waited for one another for so many beats; processes for which has_ended(context, i) is
// true wait for nobody.
std::optional<Error> deadlock(const Segment& segment, uint32_t beats,
                              bool (*has_ended)(const void* context, int64_t process),
                              const void* context);

}  // namespace tegula
