// How processes that are apart come together, whoever has started them.
#pragma once

#include <optional>
#include <string>

#include "tegula/base/memory.h"
#include "tegula/comm/segment.h"
#include "tegula/comm/tcp.h"

namespace tegula {

constexpr const char* kAddressVariable = "TEGULA_COMM_ADDRESS";  // of the first process
constexpr const char* kKeyVariable = "TEGULA_COMM_KEY";          // the run's secret

// Over TCP, by those two variables, which are then gone. The listener is the first process's, if
// somebody has opened it.
Status meet_apart(Segment& segment, Listener listener);

}  // namespace tegula
