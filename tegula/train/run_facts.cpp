#include "tegula/train/run_facts.h"

#include "tegula/base/algorithm.h"
#include "tegula/ir/sharding.h"
#include "tegula/models/checkpoint.h"

namespace tegula {

RunFacts run_facts(const TrainConfig& config, const DataHashes& hashes, const Target& target) {
  const auto program = MappedFile::open("/proc/self/exe");
  RunFacts facts = {{"program", program.ok() ? sha256_hex(program->bytes()) : "unknown"},
                    {"instruction set", std::string(isa_name(target.isa))},
                    {"mesh", to_text(config.mesh)},
                    {"--zero", cat(config.zero)},
                    {"--steps", cat(config.steps)},
                    {"--eval-every", cat(config.eval_every)},
                    {"--save-every", cat(config.save_every)},
                    {"model", sha256_hex(model_config_json(config.model, DType::kF32))}};
  const auto settings = run_settings(config, hashes);
  facts.insert(facts.end(), settings.begin(), settings.end());
  return facts;
}

namespace {
std::string_view next_line(std::string_view& text) {
  const size_t n = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, n);
  text.remove_prefix(std::min(n + 1, text.size()));
  return line;
}
}  // namespace

Error differing_runs(std::string_view first, std::string_view other, int64_t number) {
  while (!first.empty() || !other.empty()) {
    const std::string_view a = next_line(first), b = next_line(other);
    if (a == b) continue;
    const size_t tab = std::min(a.find('\t'), a.size());
    const auto value = [&](std::string_view line) {
      return line.substr(std::min(tab + 1, line.size()));
    };
    return invalid_argument(cat("process ", number, " has another ", a.substr(0, tab),
                                " than the first one (", value(b), ", not ", value(a),
                                "): all must run one build with one configuration on one text"));
  }
  return internal_error("two processes differ in nothing");
}

}  // namespace tegula
