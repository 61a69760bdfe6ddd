#include "tegula/train/run_facts.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/text.h"
#include "tegula/ir/sharding.h"
#include "tegula/models/checkpoint.h"

namespace tegula {

RunFacts run_facts(const TrainConfig& config, const DataHashes& hashes, const Target& target) {
  const auto program = MappedFile::open("/proc/self/exe");
  RunFacts facts = {{"program", program.ok() ? sha256_hex(program->bytes()) : "unknown"},
                    {"instruction set", std::string(isa_name(target.isa))},
                    {"mesh", to_text(config.mesh)},
                    {"--zero", cat(config.zero)},
                    {"--ring", config.ring},
                    {"--schedule", config.schedule},
                    {"--interleave", cat(config.interleave)},
                    {"--stages-at", stages_at_text(config)},
                    {"--passes", config.passes},
                    {"--checkpoint", config.checkpoint},
                    {"--memory", cat(config.memory_bytes)},
                    {"--steps", cat(config.steps)},
                    {"--eval-every", cat(config.eval_every)},
                    {"--save-every", cat(config.save_every)},
                    {"model", sha256_hex(model_config_json(config.model, DType::kF32))}};
  const auto settings = run_settings(config, hashes);
  facts.insert(facts.end(), settings.begin(), settings.end());
  return facts;
}

std::string to_text(const RunFacts& facts) {
  std::string text;
  for (const auto& [what, is] : facts) text += cat(what, '\t', is, '\n');
  return text;
}

namespace {
std::string ranks_of(int64_t process, int64_t n_own) {
  const int64_t first = process * n_own, last = first + n_own - 1;
  return n_own == 1 ? cat("rank ", first) : cat("ranks ", first, " to ", last);
}

Error differing(std::string_view first, std::string_view other, int64_t number, int64_t n_own) {
  while (!first.empty() || !other.empty()) {
    const std::string_view a = take_until('\n', first), b = take_until('\n', other);
    if (a == b) continue;
    const size_t tab = std::min(a.find('\t'), a.size());
    const auto value = [&](std::string_view line) {
      return line.substr(std::min(tab + 1, line.size()));
    };
    return invalid_argument(cat(ranks_of(number, n_own), " (process ", number, ") ",
                                n_own == 1 ? "has" : "have", " another ", a.substr(0, tab),
                                " than ", ranks_of(0, n_own), ": ", value(b), ", not ", value(a),
                                ": all must run one build with one configuration on one text"));
  }
  return internal_error("two processes differ in nothing");
}
}  // namespace

Status check_runs(const std::vector<std::string>& texts, int64_t n_own) {
  for (size_t p = 1; p < texts.size(); ++p)
    if (texts[p] != texts[0]) return differing(texts[0], texts[p], static_cast<int64_t>(p), n_own);
  return {};
}

}  // namespace tegula
