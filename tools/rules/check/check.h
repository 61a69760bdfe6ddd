// Replays the proofs of rules. It shares no code with what finds rules and proves them: it has its
// own polynomials, its own reading of the text and its own meaning of every kind, and searches
// nothing. The text of rules is described in program.h, the steps of a proof in prove.h.
#pragma once

#include <string_view>

#include "tegula/base/result.h"

namespace tegula::rulecheck {

// How many rules of the file have proofs that hold. Errors name the file's first rule that has
// none, or its first wrong step: "rule NAME: step 3, 'drop 0 1 by …': …".
Result<int> check_rules(std::string_view text, std::string_view file);

}  // namespace tegula::rulecheck
