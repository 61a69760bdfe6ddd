// The answer as one JSON object on one line, as a page of text, and as a page of HTML. Each part
// that has a source of its own is declared here, too.
#pragma once

#include <string>

#include "tegula/planner/answer.h"

namespace tegula::planner {

// Keys: docs/cli.md, tegula plan MODEL.
std::string to_json(const Answer& answer);
std::string to_text(const Answer& answer);
// A page of an answer whose best layout exists. Complete in itself (inline SVG, no script):
// layouts, a step's seconds, memory by class and over the step, every op on the roofline, the
// pipeline, and why others lost.
std::string to_html(const Answer& answer);

// Parts of the page of text: what serving costs (answer.serve must be there), accelerators of
// another kind (answer.other must be) and side by side.
void add_serving(std::string& out, const Answer& answer);
void add_other(std::string& out, const Answer& answer);
void add_compared(std::string& out, const Answer& answer);
// The best stages over micro-batches of up to 16 sequences, each stage's layers and submesh, beside
// the best layout of equal ones. Errors: those of price_stages; nothing fits.
Result<std::string> unequal_stages(const Answer& answer);
// The searches of others beside the enumeration, of an answer whose best layout exists. For each:
// how much slower what it found is, and after how many trials it had that; the median of nine
// seeds.
std::string compare_searches(const Answer& answer, int64_t n_trials);

}  // namespace tegula::planner
