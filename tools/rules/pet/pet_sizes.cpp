// Sizes of rules as a command line gives them.
#include "tegula/base/algorithm.h"
#include "tegula/base/amounts.h"
#include "tools/rules/pet/pet.h"

namespace tegula::superopt {

Result<Assignment> sizes_of(std::span<const std::string> given, const Rule& rule) {
  Assignment at;
  for (const std::string& each : given) {
    const size_t equals = std::min(each.find('='), each.size());
    const auto n = read_count(each.substr(std::min(equals + 1, each.size())), 0, 1 << 20);
    if (equals == 0 || equals > 8 || !n.ok())
      return invalid_argument(cat("--sizes ", each, ": write NAME=NUMBER"));
    at.integers[Symbol(each.substr(0, equals))] = *n;
  }
  for (const auto* all : {&rule.sizes, &rule.integers})
    for (const Symbol s : *all)
      if (!at.integers.contains(s))
        return invalid_argument(
            cat("rule ", rule.name, ": give ", s.name(), " a size: --sizes ", s.name(), "=4"));
  for (const Symbol s : rule.scalars) at.scalars[s] = Residue::of_bits(mix(s.word()));
  for (const Guard& g : rule.where)
    if (!at.holds(std::span(&g, 1)))
      return invalid_argument(
          cat("rule ", rule.name, ": these sizes break its condition ", g.text()));
  return at;
}

Status check_sizes(std::span<const std::string> given, std::span<const Rule> rules,
                   std::string_view file) {
  for (const std::string& each : given) {
    const Symbol symbol(each.substr(0, std::min<size_t>(each.find('='), 8)));
    const auto has = [&](const std::vector<Symbol>& names) {
      return std::find(names.begin(), names.end(), symbol) != names.end();
    };
    if (std::none_of(rules.begin(), rules.end(),
                     [&](const Rule& r) { return has(r.sizes) || has(r.integers); }))
      return invalid_argument(cat("--sizes ", each, ": no rule of ", file, " has that symbol"));
  }
  return {};
}

}  // namespace tegula::superopt
