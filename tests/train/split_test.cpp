// A step cut into stages gives, part by part and under every schedule, the bits of the whole step.
#include <map>

#include "tests/train/one_step.h"

namespace tegula::testing {
namespace {

// The parts of a step cut before the given scopes, planned for GPipe; other schedules are planned
// from the same parts.
std::shared_ptr<const PlannedProgram> cut(Step& step, const std::vector<std::string>& cuts,
                                          bool weight_gradients_apart) {
  const TrainConfig& c = step.c;
  SplitOptions o;
  o.cuts = cuts, o.n_micro_batches = static_cast<int>(c.accumulate);
  o.weight_gradients_apart = weight_gradients_apart;
  const ScheduleDef& def = **find_schedule(weight_gradients_apart ? "zero_bubble" : "gpipe");
  const auto schedule =
      make_schedule(def, default_shape(def, static_cast<int>(cuts.size()) + 1, o.n_micro_batches));
  EXPECT_TRUE(schedule.ok());
  auto compiled = compile_program(step.f.module, step.f.train_step, o, *schedule,
                                  compile_options(c, Target::this_cpu(2)));
  EXPECT_TRUE(compiled.ok()) << compiled.error().to_string();
  return compiled.ok() ? compiled->planned : nullptr;
}

void run_cut(Step& step, const PlannedProgram& parts, const Schedule& schedule) {
  const TrainConfig& c = step.c;
  auto as_planned = plan_program(parts.program, parts.plans, schedule);
  ASSERT_TRUE(as_planned.ok()) << as_planned.error().to_string();
  const auto shared = std::make_shared<const PlannedProgram>(std::move(*as_planned));
  const PlannedProgram& planned = *shared;
  auto created = ProgramSession::create(shared, *step.rank, step.store);
  ASSERT_TRUE(created.ok()) << created.error().to_string();
  ProgramSession& s = **created;
  step.init_weights();
  const bool reads_seed = std::any_of(planned.plans.begin(), planned.plans.end(),
                                      [](const auto& p) { return p->find_param("seed") >= 0; });
  for (int64_t m = 0; m < c.accumulate; ++m) {
    const auto i = static_cast<int>(m);
    ASSERT_TRUE(s.bind("tokens", i, step.tokens.data() + step.row(m)).ok());
    ASSERT_TRUE(s.bind("targets", i, step.targets.data() + step.row(m)).ok());
    if (reads_seed) ASSERT_TRUE(s.bind("seed", i, &step.seeds[static_cast<size_t>(m)]).ok());
  }
  // A part that only runs forward reads no learning rate, and has no state but weights.
  for (auto [name, data] :
       {std::pair("lr", &step.lr), std::pair("c1", &step.c1), std::pair("c2", &step.c2)})
    EXPECT_EQ(s.bind(name, -1, data).ok(), schedule.trains);
  s.flows().poison(0xa5);
  s.arena().poison(0xa5);
  const Status st = s.run();
  ASSERT_TRUE(st.ok()) << st.error().to_string();
  // The plan is what was used: of flows, of the arena, of FLOPs.
  EXPECT_LE(s.flows().touched(0xa5), planned.flow_bytes);
  EXPECT_GT(s.flows().touched(0xa5), planned.flow_bytes - 64);
  EXPECT_LE(s.arena().touched(0xa5), planned.arena_bytes());
  EXPECT_EQ(s.counted_flops(), planned.flops());
  for (int64_t m = 0; m < c.accumulate; ++m)
    step.losses.push_back(s.result("loss", static_cast<int>(m)).as<float>()[0]);
  if (!schedule.trains) return;
  step.norm = s.result("grad_norm").as<float>()[0];
  EXPECT_GT(step.norm, 0);
}

// Schedules of one stage or two a rank, as the schedule has them; false where it cannot have these.
bool make_for(const ScheduleDef& def, size_t n_stages, int64_t accumulate, Schedule& out) {
  const auto n = static_cast<int>(n_stages);
  auto s = make_schedule(def, default_shape(def, n, static_cast<int>(accumulate)));
  if (s.ok()) out = std::move(*s);
  return s.ok();
}

class Split : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

const std::vector<std::vector<std::string>> kAllCuts = {
    {"layers.2"}, {"layers.1", "layers.2", "layers.3"}, {"layers.1", "layers.3", "head"}};

TEST_P(Split, StagesGiveTheBitsOfTheWholeStep) {
  const auto& [family, dtype] = GetParam();
  std::map<std::string_view, int> ran;
  for (const int64_t accumulate : {1, 4, 8}) {
    const TrainConfig c = config_of(family, accumulate, dtype);
    Step whole(c);
    whole.run_whole();
    for (const auto& cuts : kAllCuts)
      for (const bool apart : {false, true}) {
        Step step(c);
        const auto parts = cut(step, cuts, apart);
        ASSERT_NE(parts, nullptr);
        for (const ScheduleDef* def : all_schedules()) {
          Schedule schedule;
          if (!def->trains || def->weight_gradients_apart != apart ||
              !make_for(*def, cuts.size() + 1, accumulate, schedule))
            continue;
          SCOPED_TRACE(cat(family, " ", dtype, ", ", accumulate, " micro-batches, ",
                           cuts.size() + 1, " stages, ", def->name));
          Step run(c);
          run_cut(run, *parts, schedule);
          expect_same(whole, run);
          ++ran[def->name];
        }
      }
  }
  // Two stages or four, one micro-batch or several: of each schedule some.
  for (const ScheduleDef* def : all_schedules())
    if (def->trains) EXPECT_GE(ran[def->name], 2) << def->name;
}

// Inference: the loss of a batch, whole and from stage to stage. Nothing is kept for a backward
// part.
TEST_P(Split, StagesOfInferenceGiveTheBitsOfTheWhole) {
  const auto& [family, dtype] = GetParam();
  const TrainConfig c = config_of(family, 4, dtype);
  Step whole(c);
  whole.init_weights();
  auto compiled =
      compile(whole.f.module, whole.f.eval_loss, compile_options(c, Target::this_cpu(2)));
  ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
  auto session = Session::create(compiled->plan, *whole.rank);
  ASSERT_TRUE(session.ok() && (*session)->bind_store(whole.store).ok());
  for (int64_t m = 0; m < c.accumulate; ++m) {
    ASSERT_TRUE((*session)->bind("tokens", whole.tokens.data() + whole.row(m)).ok());
    ASSERT_TRUE((*session)->bind("targets", whole.targets.data() + whole.row(m)).ok());
    ASSERT_TRUE((*session)->run().ok());
    whole.losses.push_back((*session)->result("loss").as<float>()[0]);
  }
  for (const auto& cuts : kAllCuts) {
    Schedule schedule;
    ASSERT_TRUE(make_for(**find_schedule("forward_only"), cuts.size() + 1, 4, schedule));
    Step run(c), training(c);
    SplitOptions o;
    o.cuts = cuts, o.n_micro_batches = static_cast<int>(c.accumulate);
    auto parts = compile_program(run.f.module, run.f.eval_loss, o, schedule,
                                 compile_options(c, Target::this_cpu(2)));
    ASSERT_TRUE(parts.ok()) << parts.error().to_string();
    run_cut(run, *parts->planned, schedule);
    expect_same(whole, run);
    const auto step = cut(training, cuts, false);
    ASSERT_NE(step, nullptr);
    EXPECT_LT(parts->planned->flow_bytes, step->flow_bytes / 4);
  }
}

// The forward parts of a training step by themselves give its losses, and change nothing.
TEST_P(Split, ForwardPartsAloneGiveTheLossesOfTheWholeStep) {
  const auto& [family, dtype] = GetParam();
  const TrainConfig c = config_of(family, 4, dtype);
  Step whole(c), before(c);
  whole.run_whole();
  before.init_weights();
  for (const auto& cuts : kAllCuts) {
    Step run(c);
    const auto parts = cut(run, cuts, false);
    ASSERT_NE(parts, nullptr);
    Schedule schedule;
    ASSERT_TRUE(make_for(**find_schedule("forward_only"), cuts.size() + 1, 4, schedule));
    run_cut(run, *parts, schedule);
    EXPECT_EQ(run.losses, whole.losses);
    EXPECT_LT(std::distance(run.store.begin(), run.store.end()),
              std::distance(whole.store.begin(), whole.store.end()));
    for (const WeightSpec& w : before.f.weights) {
      const TensorRef a = before.store.find(w.name), b = run.store.find(w.name);
      EXPECT_EQ(std::memcmp(a.data, b.data, static_cast<size_t>(w.type.bytes())), 0) << w.name;
    }
  }
}

TEST(SplitSchedule, SlicesAreSimulatedAndNotRun) {
  const TrainConfig c = config_of("gpt2", 4, "f32");
  Step step(c);
  const auto parts = cut(step, {"layers.2"}, false);
  ASSERT_NE(parts, nullptr);
  const auto schedule = make_schedule(**find_schedule("tera_pipe"), {2, 2, 4, 3});
  ASSERT_TRUE(schedule.ok());
  const auto planned = plan_program(parts->program, parts->plans, *schedule);
  ASSERT_FALSE(planned.ok());
  EXPECT_NE(planned.error().message.find("3 slices of tokens"), std::string::npos)
      << planned.error().message;
}

INSTANTIATE_TEST_SUITE_P(Families, Split,
                         ::testing::Combine(::testing::Values("gpt2", "llama", "moe", "qwen2",
                                                              "gemma2"),
                                            ::testing::Values("f32", "bf16")));

}  // namespace
}  // namespace tegula::testing
