// Control flow at run time: how a step with regions runs their sub-plans.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tegula/runtime/session.h"

namespace tegula {

void run_region_step(const Step& step, std::span<const TensorRef> in,
                     std::span<const TensorRef> out,
                     std::span<const std::unique_ptr<Session>> regions, ThreadPool* pool);

}  // namespace tegula
