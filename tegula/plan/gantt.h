// gantt_svg: a simulated schedule as a picture, complete in itself: a row for each rank, a box for
// each part, its micro-batch in it where there is room, what it is on hover.
//
// Colour says forward, backward, weight gradients or update; a rank's second, third … stage has a
// deeper shade. Frames join what goes together. Where messages take time, thin lines lead from
// their begin on the sender's row to their end on the receiver's.
#pragma once

#include <string>
#include <string_view>

#include "tegula/plan/simulate.h"

namespace tegula {

std::string gantt_svg(const Program& program, const Simulated& simulated, std::string_view title);

}  // namespace tegula
