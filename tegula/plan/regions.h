// Where the plans of a step's regions find their memory.
#pragma once

#include <cstdint>

namespace tegula {

// Offset of the regions' one arena in their step's workspace. Before it: a while_loop's condition.
inline constexpr int64_t kRegionArena = 64;

}  // namespace tegula
