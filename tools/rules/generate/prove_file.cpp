#include "tools/rules/generate/generate.h"

namespace tegula::superopt {

Result<ProvenFile> prove_file(std::string_view text, std::string_view file) {
  ProvenFile proven;
  std::vector<Rule> rules = TEGULA_TRY(parse_rules(text, file));
  for (Rule& r : rules) {
    const std::string own = class_of(r);
    std::string& said = r.notes["class"];
    if (said == "exact" && own != said)
      return invalid_argument(
          cat(file, ": rule ", r.name, ": it is of class ", own, ", not exact"));
    said = own;
    proven.n_exact += own == "exact";
    if (is_refuted(r, 8, 1))
      return invalid_argument(cat(file, ": rule ", r.name, ": its sides differ at small sizes"));
    if (!r.has_proof) {
      Proof proof = prove(r);
      if (!proof.is_proven) {
        std::string missing;
        for (const Guard& g : proof.missing)
          missing += (missing.empty() ? "; it would hold where " : ", or ") + g.text();
        return invalid_argument(
            cat(file, ": rule ", r.name, ": not proven: ", proof.failure, missing));
      }
      r.proof = std::move(proof.steps), r.has_proof = true;
    }
    proven.text += r.text();
    ++proven.n_rules;
  }
  return proven;
}

}  // namespace tegula::superopt
