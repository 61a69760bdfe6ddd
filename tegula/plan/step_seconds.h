// A step's price on a target, by the one price (cost/price.h).
#pragma once

#include "tegula/plan/plan.h"

namespace tegula {

// At its bounds. Of work in the background: where it is started.
double seconds_of(const Target& target, const Step& step);

}  // namespace tegula
