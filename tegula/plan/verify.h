// verify_plan: is a plan safe to run, and are its totals true? It shares no code with the planner:
// it knows only what the interpreter does with a plan. A violation is an error that begins with the
// plan and the rule: "plan step breaks M4 values: step 7 (add): operand 1 is value 12, …".
//
//   M1 slots       an arena slot lies in the arena, aligned; a parameter's is its own
//   M2 tensors     a tensor lies in its slot; what is written has a place for each element
//   M3 overlap     slots alive at one step share no byte; lifetimes are those of the uses
//   M4 values      whoever reads a value finds its bytes: written before, overwritten by nobody
//   M5 donations   a parameter keeps its contents, unless the result it is donated to lies there
//   M6 aliasing    a step writes over an operand only if its op allows it, element by element
//   M7 kernels     the kernel supports the call and its workspace suffices, at every extent tried
//   M8 totals      arena = highest end; lower bound = largest live sum; parameters' bytes
//   M9 strides     a tensor shows the elements of its value (while the plan has its module)
//   M10 regions    the plans of regions are valid, and agree with the tensors bound to them
//   M11 background what is started ends once, later, alike; nobody wrote meanwhile where it writes
//                  (and M4: what it reads is still there, what it writes is not read before)
//
// Value tracking is by byte: a map from address to the value last written there is carried over the
// steps in order, so a step moved, an offset shifted or a donation too early all show as a reader
// that does not find its value. Cost: a few ms per thousand steps.
#pragma once

#include "tegula/plan/plan.h"

namespace tegula {

Status verify_plan(const Plan& plan);

}  // namespace tegula
