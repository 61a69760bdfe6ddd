// A step cut into stages gives, part by part and under every schedule, the bits of the whole step.
#include "tests/train/one_step.h"

namespace tegula::testing {
namespace {

// Cut before the given scopes.
void run_cut(Step& step, const std::vector<std::string>& cuts, const ScheduleDef& schedule) {
  const TrainConfig& c = step.c;
  SplitOptions o;
  o.cuts = cuts, o.n_micro_batches = static_cast<int>(c.accumulate);
  o.weight_gradients_apart = schedule.weight_gradients_apart;
  auto compiled = compile_program(step.f.module, step.f.train_step, o, schedule,
                                  compile_options(c, Target::this_cpu(2)));
  ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
  const PlannedProgram& planned = *compiled->planned;
  EXPECT_EQ(planned.program.n_stages, static_cast<int>(cuts.size()) + 1);
  auto created = ProgramSession::create(compiled->planned, *step.rank, step.store);
  ASSERT_TRUE(created.ok()) << created.error().to_string();
  ProgramSession& s = **created;
  step.init_weights();
  for (int64_t m = 0; m < c.accumulate; ++m) {
    const auto i = static_cast<int>(m);
    ASSERT_TRUE(s.bind("tokens", i, step.tokens.data() + step.row(m)).ok());
    ASSERT_TRUE(s.bind("targets", i, step.targets.data() + step.row(m)).ok());
    if (c.model.dropout > 0)
      ASSERT_TRUE(s.bind("seed", i, &step.seeds[static_cast<size_t>(m)]).ok());
  }
  for (auto [name, data] :
       {std::pair("lr", &step.lr), std::pair("c1", &step.c1), std::pair("c2", &step.c2)})
    ASSERT_TRUE(s.bind(name, -1, data).ok());
  s.flows().poison(0xa5);
  s.arena().poison(0xa5);
  const Status st = s.run();
  ASSERT_TRUE(st.ok()) << st.error().to_string();
  // What was planned is what was used: of flows, of the arena, of FLOPs.
  EXPECT_LE(s.flows().touched(0xa5), planned.flow_bytes);
  EXPECT_GT(s.flows().touched(0xa5), planned.flow_bytes - 64);
  EXPECT_LE(s.arena().touched(0xa5), planned.arena_bytes());
  EXPECT_EQ(s.counted_flops(), planned.flops());
  for (int64_t m = 0; m < c.accumulate; ++m)
    step.losses.push_back(s.result("loss", static_cast<int>(m)).as<float>()[0]);
  step.norm = s.result("grad_norm").as<float>()[0];
  EXPECT_GT(step.norm, 0);
}

class Split : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(Split, StagesGiveTheBitsOfTheWholeStep) {
  const auto& [family, dtype] = GetParam();
  for (const int64_t accumulate : {1, 4}) {
    const TrainConfig c = config_of(family, accumulate, dtype);
    Step whole(c);
    whole.run_whole();
    const std::vector<std::vector<std::string>> all_cuts = {
        {"layers.2"}, {"layers.1", "layers.2", "layers.3"}, {"layers.1", "layers.3", "head"}};
    for (const auto& cuts : all_cuts)
      for (const ScheduleDef* schedule : all_schedules()) {
        SCOPED_TRACE(cat(family, " ", dtype, ", ", accumulate, " micro-batches, ", cuts.size() + 1,
                         " stages, ", schedule->name));
        Step parts(c);
        run_cut(parts, cuts, *schedule);
        expect_same(whole, parts);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Split,
                         ::testing::Combine(::testing::Values("gpt2", "llama", "moe", "qwen2",
                                                              "gemma2"),
                                            ::testing::Values("f32", "bf16")));

}  // namespace
}  // namespace tegula::testing
