#include "tegula/plan/collectives.h"

#include "tegula/base/algorithm.h"
#include "tegula/ir/hash.h"
#include "tegula/ir/opdef.h"

namespace tegula {

std::vector<std::string> collectives_in_order(const Plan& plan) {
  std::vector<std::string> lines;
  for (const Step& s : plan.steps) {
    if (!s.op->collective) continue;
    const char* when = s.starts >= 0 ? "start " : s.ends >= 0 ? "done " : "";
    const Type& t = s.in[0].type;
    lines.push_back(cat(when, s.op->name, " over the ", s.attrs.i("ranks"), " ranks of ",
                        s.attrs.str("axis"), " of ", t.bytes(), " bytes of ", t.dtype));
  }
  return lines;
}

uint64_t collectives_hash(const Plan& plan) {
  uint64_t h = 0;
  for (const std::string& line : collectives_in_order(plan)) h = mix(h, hash_of(line));
  return h;
}

Status compare_collectives(const Mesh& mesh, std::span<const std::shared_ptr<const Plan>> plans) {
  const auto first = collectives_in_order(*plans[0]);
  for (size_t r = 1; r < plans.size(); ++r) {
    if (plans[r] == plans[0]) continue;
    const auto lines = collectives_in_order(*plans[r]);
    const auto [a, b] = std::mismatch(first.begin(), first.end(), lines.begin(), lines.end());
    if (a == first.end() && b == lines.end()) continue;
    const auto of = [](const auto& it, const auto& all) {
      return it == all.end() ? std::string("nothing more") : *it;
    };
    return internal_error(cat("ranks 0 and ", r, " of ", to_text(mesh),
                              " would wait for one another for ever: as collective ",
                              a - first.begin(), " rank 0 executes ", of(a, first), ", rank ", r,
                              " ", of(b, lines), ": take another mesh, and report this one"));
  }
  return {};
}

}  // namespace tegula
