// Reads what `tegula bench comm` has measured of collectives on this machine, for whoever plans.
#pragma once

#include <string>

#include "tegula/plan/comm_table.h"
#include "tegula/runtime/tuner.h"

namespace tegula {

// All that these times depend on: the machine, and links that are slowed on purpose.
std::string links_name();
// The table that is kept where kernels' tunings are; read once. Null: there is none, or it cannot
// be read, as `warning` then says.
const CommTable* known_comm_table(const TuneOptions& options, std::string* warning = nullptr);

}  // namespace tegula
