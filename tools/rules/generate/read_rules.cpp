#include <set>

#include "tegula/base/algorithm.h"
#include "tegula/passes/superopt/search.h"
#include "tools/rules/check/check.h"
#include "tools/rules/generate/generate.h"
#include "tools/rules/generate/instances.h"

namespace tegula::superopt {

namespace {
// The inputs and functions of a side.
std::set<std::string> names_of(const Graph& g, int side) {
  std::set<std::string> names;
  for (const int n : nodes_of(g, side)) {
    const Node& node = g.nodes[static_cast<size_t>(n)];
    if (node.kind != "input" && node.kind != "function") continue;
    names.insert(cat(node.kind, " ", node.attrs.words.find("name")->second));
  }
  return names;
}
// A rewrite from left to right: what it begins with is an op, and has what the other side takes.
bool is_rewrite(const Rule& r) {
  const std::set<std::string> left = names_of(r.graph, r.left), right = names_of(r.graph, r.right);
  return r.graph.nodes[static_cast<size_t>(r.left)].kind != "input" &&
         std::includes(left.begin(), left.end(), right.begin(), right.end());
}

Result<std::string> checked_class(const Rule& r) {
  const auto said = r.notes.find("class");
  const std::string own = class_of(r);
  if (said == r.notes.end() || said->second == own) return own;
  if (said->second == "exact") return invalid_argument(cat("it is of class ", own, ", not exact"));
  return said->second;
}
}  // namespace

Result<std::shared_ptr<const RuleSet>> read_rules(std::string_view text, std::string_view file) {
  std::vector<Rule> rules = TEGULA_TRY(parse_rules(text, file)), rewrites = named_rules();
  if (rules.empty()) return invalid_argument(cat(file, ": has no rule"));
  std::string as_read;  // the checker has another reader: it is shown what this one understood
  for (const Rule& r : rules) as_read += r.text();
  TEGULA_TRY(rulecheck::check_rules(as_read, file));
  std::set<std::string> names;
  for (const Rule& r : named_rules()) names.insert(r.name);
  for (Rule& r : rules) {
    const auto refused = [&](const std::string& why) {
      return invalid_argument(cat(file, ": rule ", r.name, ": ", why));
    };
    if (!names.insert(r.name).second || r.name.find(':') != std::string::npos)
      return refused("another one, of the file or of the tool, has that name, or it has a ':'");
    auto own = checked_class(r);
    if (!own.ok()) return refused(own.error().message);
    r.notes["class"] = std::move(*own);
    r.proof.clear(), r.has_proof = false;
    // The other way needs what is taken for granted at left.
    Rule back = r;
    std::swap(back.left, back.right);
    back.name += "_backwards";
    for (Guard& g : conditions(r.graph, r.left)) back.where.push_back(std::move(g));
    if (is_rewrite(r)) rewrites.push_back(std::move(r));
    if (is_rewrite(back) && names.insert(back.name).second) rewrites.push_back(std::move(back));
  }
  return std::make_shared<const RuleSet>(std::move(rewrites), named_rules().size());
}

}  // namespace tegula::superopt
