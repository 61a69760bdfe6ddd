// Rules as text: what is read is printed and read the same, and a proof is replayed to its end or
// to its first wrong step.
#include "tegula/base/algorithm.h"
#include "tegula/passes/superopt/program.h"
#include "tests/fuzz/target.h"
#include "tools/rules/check/check.h"

namespace tegula::fuzz {

namespace {
bool run(std::string_view input) {
  if (input.size() > 1 << 14) return false;
  const auto rules = superopt::parse_rules(input, "input");
  (void)rulecheck::check_rules(input, "input");
  if (!rules.ok()) return false;
  for (const superopt::Rule& r : *rules) {
    const std::string text = r.text();
    const auto again = superopt::parse_rules(text, "text");
    TEGULA_CHECK(again.ok() && again->size() == 1 && (*again)[0].text() == text);
  }
  return true;
}
}  // namespace

extern constinit const Target rules_target{"rules", run};

}  // namespace tegula::fuzz
