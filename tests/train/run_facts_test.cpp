// Processes that are not alike are refused before the first step, with what differs and on which
// ranks.
#include "tegula/train/run_facts.h"

#include <gtest/gtest.h>

#include <functional>

namespace tegula {
namespace {

struct Process {
  TrainConfig config;
  DataHashes hashes{"text", "batches"};
  Target target = Target::one_thread();
  std::string program;  // its hash; "": this one's
};

std::string text_of(const Process& p) {
  RunFacts facts = run_facts(p.config, p.hashes, p.target);
  if (!p.program.empty()) facts[0].second = p.program;
  return to_text(facts);
}

TEST(RunFacts, WhatDiffersIsNamed) {
  const std::string first = text_of({});
  const std::pair<const char*, std::function<void(Process&)>> changes[] = {
      {"program: 1234, not ", [](Process& p) { p.program = "1234"; }},
      {"instruction set: portable, not ", [](Process& p) { p.target.isa = Isa::kPortable; }},
      {"data_sha256: \"other\", not \"text\"", [](Process& p) { p.hashes.text = "other"; }},
      {"batches_sha256", [](Process& p) { p.hashes.batches = "other"; }},
      {"mesh: dp=2", [](Process& p) { p.config.mesh = *mesh_from_text("dp=2"); }},
      {"--zero: 1, not 0", [](Process& p) { p.config.zero = 1; }},
      {"--schedule: zb-h1, not 1f1b", [](Process& p) { p.config.schedule = "zb-h1"; }},
      {"--interleave: 2, not 0", [](Process& p) { p.config.interleave = 2; }},
      {"--stages-at: 0,3, not ",
       [](Process& p) {
         p.config.stages_at = {0, 3};
       }},
      {"--ring: striped, not zigzag", [](Process& p) { p.config.ring = "striped"; }},
      {"--passes: -fuse, not ", [](Process& p) { p.config.passes = "-fuse"; }},
      {"--checkpoint: sqrt, not auto", [](Process& p) { p.config.checkpoint = "sqrt"; }},
      {"--memory: 1000, not 0", [](Process& p) { p.config.memory_bytes = 1000; }},
      {"--steps: 7, not ", [](Process& p) { p.config.steps = 7; }},
      {"model: ", [](Process& p) { p.config.model.n_layers = 7; }},
      {"batch: 7, not 12", [](Process& p) { p.config.batch = 7; }},
      {"accumulate: 2, not 1", [](Process& p) { p.config.accumulate = 2; }},
      {"dtype: \"bf16\", not \"f32\"", [](Process& p) { p.config.dtype = "bf16"; }},
      {"mode: \"exact\", not \"fast\"", [](Process& p) { p.config.mode = "exact"; }},
      {"lr: 5", [](Process& p) { p.config.lr = 5; }},
      {"seed: ", [](Process& p) { p.config.seed = 5; }}};
  for (const auto& [what, change] : changes) {
    Process changed;
    change(changed);
    const std::string other = text_of(changed);
    for (const int64_t n_own : {1, 2}) {
      const Status st = check_runs({first, first, other}, n_own);
      ASSERT_FALSE(st.ok()) << what;
      const std::string expected = n_own == 1 ? cat("rank 2 (process 2) has another ")
                                              : cat("ranks 4 to 5 (process 2) have another ");
      EXPECT_TRUE(st.error().message.starts_with(expected)) << st.error().message;
      // "has another WHAT than rank 0: IS, not WAS"
      const std::string_view name =
          std::string_view(what).substr(0, std::string_view(what).find(':'));
      EXPECT_NE(st.error().message.find(cat(name, " than rank")), std::string::npos)
          << st.error().message;
      EXPECT_NE(st.error().message.find(what + name.size()), std::string::npos)
          << st.error().message;
    }
  }
  EXPECT_TRUE(check_runs({first, first}, 1).ok());
}

}  // namespace
}  // namespace tegula
