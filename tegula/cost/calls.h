// The price of a function as it will run: its calls one after another, and on a CPU what a step
// takes beside the roofline's work: its loop's beginning and end; of a product, both operands
// packed into panels, which reads and writes them once more, and whole vectors of 16 results.
//
// Views are free; sizes count by their bounds. It orders rewritings of one graph; what these take
// is then timed.
#pragma once

#include "tegula/ir/module.h"
#include "tegula/kernels/target.h"

namespace tegula {

// Every symbol is its bound.
std::vector<Type> at_bounds(std::vector<Type> types);

double price_of_calls(const Target& target, const Module& module, const Function& f);

}  // namespace tegula
