// Rules that merge, wherever that moves fewer bytes: what a pass may do without a search.
//
// For a rule of two alike parts, concatenated or added, whose right side is one such part with
// operands concatenated. What holds of two holds of any number: as many parts become one as there
// are, q, k and v at once. A concatenation's parts share an operand, which is read once; their own
// operands are weights, which are there at any time, or concatenated already. A sum's parts are no
// longer written and read. Parts stand in the order of a concatenation of their operands that is
// there, so that it is used again.
#pragma once

#include "tegula/passes/superopt/program.h"

namespace tegula {
struct Module;
struct Function;
}  // namespace tegula

namespace tegula::superopt {

// One rule of named.rules, parsed alone. It must be there.
Rule named_rule(std::string_view name);

// True: f changed. Error: an op refuses its operands.
Result<bool> merge(Module& module, Function& f, const Rule& rule);

}  // namespace tegula::superopt
