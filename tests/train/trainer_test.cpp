// A run that stops and resumes ends with the bits of one that never stopped; what the plan
// predicted is what the run measured.
#include "tegula/train/trainer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <set>

#include "tegula/io/file.h"
#include "tegula/kernels/kernel.h"

namespace tegula {
namespace {

std::string fresh_directory(const std::string& name) {
  const std::string dir = ::testing::TempDir() + name;
  (void)remove_tree(dir);
  EXPECT_TRUE(make_directories(dir).ok());
  return dir;
}

TrainConfig small_run(const std::string& dir) {
  TrainConfig c;
  c.data = dir + "/text.txt";
  std::string text;
  for (int i = 0; i < 300; ++i) text += cat("line ", i * i % 97, " of the text;\n");
  EXPECT_TRUE(write_file(c.data, text).ok());
  c.out = dir + "/out";
  c.model.n_layers = 2, c.model.n_heads = 2, c.model.d_model = 16, c.model.max_seqlen = 12;
  c.batch = 3, c.steps = 6, c.warmup = 2, c.eval_every = 0, c.threads = 2;
  return c;
}

// Stops after `at` steps, as a signal would.
struct StopAt {
  std::atomic<bool> stop{false};
  int64_t at;
};

TrainSummary run(TrainConfig c, int64_t stop_at = -1) {
  auto t = Trainer::create(std::move(c));
  EXPECT_TRUE(t.ok()) << t.error().to_string();
  StopAt stop{{false}, stop_at};
  (*t)->context = &stop;
  (*t)->on_step = [](void* context, const StepReport& r) {
    auto& s = *static_cast<StopAt*>(context);
    if (r.step == s.at) s.stop = true;
  };
  auto summary = (*t)->run(stop.stop);
  EXPECT_TRUE(summary.ok()) << summary.error().to_string();
  return *summary;
}

void expect_same_file(const std::string& a, const std::string& b) {
  const auto x = read_file(a), y = read_file(b);
  ASSERT_TRUE(x.ok() && y.ok());
  EXPECT_TRUE(*x == *y) << a << " differs from " << b;
}

TEST(Trainer, ResumesWithTheSameBits) {
  const std::string whole = fresh_directory("whole"), parts = fresh_directory("parts");
  for (int64_t accumulate : {1, 2}) {
    TrainConfig a = small_run(whole), b = small_run(parts);
    a.accumulate = b.accumulate = accumulate;
    a.model.dropout = b.model.dropout = 0.1;
    a.out += cat(accumulate), b.out += cat(accumulate);
    run(a);
    EXPECT_TRUE(run(b, 3).interrupted);
    b.resume = true;
    EXPECT_EQ(run(b).steps, 6);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      expect_same_file(a.out + "/latest/" + file, b.out + "/latest/" + file);
  }
}

// Two micro-batches of two rows are one batch of four: the same rows, so the same loss and
// gradient but for rounding.
TEST(Trainer, MicroBatchesAreTheRowsOfTheBatch) {
  const auto first_step = [](int64_t batch, int64_t accumulate) {
    TrainConfig c = small_run(fresh_directory(cat("micro", accumulate)));
    c.batch = batch, c.accumulate = accumulate, c.steps = 1;
    auto t = Trainer::create(std::move(c));
    EXPECT_TRUE(t.ok()) << t.error().to_string();
    StepReport report;
    (*t)->context = &report;
    (*t)->on_step = [](void* at, const StepReport& r) { *static_cast<StepReport*>(at) = r; };
    std::atomic<bool> stop{false};
    EXPECT_TRUE((*t)->run(stop).ok());
    return report;
  };
  const StepReport whole = first_step(4, 1), parts = first_step(2, 2);
  EXPECT_NEAR(parts.loss, whole.loss, 1e-6 * whole.loss);
  EXPECT_NEAR(parts.grad_norm, whole.grad_norm, 1e-5 * whole.grad_norm);
}

// Rows that do not fill the last batch count as many as they are.
TEST(Trainer, ValidationLossDoesNotDependOnTheBatch) {
  std::vector<double> losses;
  for (const int64_t batch : {1, 3, 7, 16}) {
    TrainConfig c = small_run(fresh_directory(cat("batch", batch)));
    c.batch = batch, c.steps = 0;
    losses.push_back(run(c).eval.val_loss);
  }
  for (const double loss : losses) EXPECT_NEAR(loss, losses[0], 1e-6 * losses[0]);
}

TEST(Trainer, MeasuresWhatWasPlanned) {
  const TrainSummary s = run(small_run(fresh_directory("planned")));
  EXPECT_EQ(s.flops_per_step_planned, s.flops_per_step_counted);
  EXPECT_EQ(s.peak_bytes_planned, s.peak_bytes_measured);
  EXPECT_LE(s.peak_bytes_written, s.peak_bytes_measured);
  EXPECT_GT(s.peak_bytes_written, s.peak_bytes_measured / 2);
  // Weights, arena and more lie in memory that is there.
  EXPECT_GE(s.process_touched_bytes, s.peak_bytes_written);
  EXPECT_LT(s.train_loss, 4);
}

// Every model with each op's memory checked: the same bits, and the same measures.
TEST(Trainer, CheckingMemoryChangesNothing) {
  for (const char* model : {"gpt2", "llama", "moe", "mlp", "lstm"})
    for (int64_t accumulate : {1, 2}) {
      SCOPED_TRACE(cat(model, ", accumulate ", accumulate));
      TrainConfig c = small_run(fresh_directory("checked"));
      c.model.type = model, c.accumulate = accumulate, c.steps = 3;
      const TrainSummary plain = run(c);
      const std::string out = c.out;
      c.out += "-checked", c.check = true;
      const TrainSummary checked = run(c);
      EXPECT_EQ(checked.peak_bytes_measured, plain.peak_bytes_measured);
      EXPECT_EQ(checked.peak_bytes_measured, checked.peak_bytes_planned);
      EXPECT_LE(checked.peak_bytes_written, checked.peak_bytes_measured);
      for (const char* file : {"model.safetensors", "optimizer.safetensors"})
        expect_same_file(out + "/latest/" + file, c.out + "/latest/" + file);
    }
}

// The number after "the least that works is".
int64_t least_that_works(const Error& e) {
  const std::string before = "the least that works is ";
  const size_t at = e.message.find(before);
  EXPECT_NE(at, std::string::npos) << e.message;
  return at == std::string::npos ? 0 : std::stoll(e.message.substr(at + before.size()));
}

TEST(Trainer, RecomputesWithinABudgetWithTheSameBits) {
  TrainConfig c = small_run(fresh_directory("budget"));
  c.model.n_layers = 12, c.model.dropout = 0.1, c.batch = 16, c.steps = 3;
  const std::string out = c.out;
  for (int64_t accumulate : {1, 2}) {
    c.accumulate = accumulate;
    c.out = cat(out, accumulate), c.memory_bytes = 0, c.checkpoint = "none";
    const TrainSummary all = run(c);
    c.out = "";
    auto t = Trainer::create(c);
    ASSERT_TRUE(t.ok());
    const int64_t arena = (*t)->plan().arena_bytes;

    c.memory_bytes = 1000, c.checkpoint = "auto";
    auto impossible = Trainer::create(c);
    ASSERT_FALSE(impossible.ok());
    EXPECT_EQ(impossible.error().code, Code::kOutOfMemory);
    const int64_t least = least_that_works(impossible.error());
    EXPECT_LT(least, arena / 2);

    for (int64_t budget : {arena * 3 / 4, arena / 2, least, int64_t{0}}) {
      c.out = cat(out, accumulate, "_", budget);
      c.memory_bytes = budget, c.checkpoint = budget > 0 ? "auto" : "sqrt";
      const TrainSummary s = run(c);
      EXPECT_EQ(s.flops_per_step_planned, s.flops_per_step_counted);
      EXPECT_GT(s.flops_per_step_planned, all.flops_per_step_planned);
      EXPECT_EQ(s.peak_bytes_planned, s.peak_bytes_measured);
      EXPECT_EQ(s.eval.val_loss, all.eval.val_loss);
      if (budget > 0) EXPECT_LE(s.peak_bytes_planned, all.peak_bytes_planned - arena + budget);
      // Weights and moments hold what all gradients so far were, to the last bit.
      for (const char* file : {"model.safetensors", "optimizer.safetensors"})
        expect_same_file(cat(out, accumulate, "/latest/", file), cat(c.out, "/latest/", file));
    }
    // A budget that is met without doing anything else changes nothing.
    c.checkpoint = "none", c.memory_bytes = arena, c.out = cat(out, accumulate, "_all");
    EXPECT_EQ(run(c).flops_per_step_planned, all.flops_per_step_planned);
    c.memory_bytes = arena - 1, c.out = "";
    impossible = Trainer::create(c);
    ASSERT_FALSE(impossible.ok());
    EXPECT_NE(impossible.error().message.find(std::to_string(arena)), std::string::npos);
  }
}

// Whoever asks for the least memory is not told more than --checkpoint sqrt takes, and gets it.
TEST(Trainer, TheLeastThatWorksIsNotAboveSqrt) {
  for (const char* model : {"gpt2", "llama", "mlp", "lstm"})
    for (const int64_t n_layers : {2, 3, 6}) {
      SCOPED_TRACE(cat(model, ", ", n_layers, " layers"));
      TrainConfig c = small_run(fresh_directory("least"));
      c.model.type = model, c.model.n_layers = n_layers, c.batch = 16, c.out = "";
      c.checkpoint = "sqrt";
      auto sqrt = Trainer::create(c);
      ASSERT_TRUE(sqrt.ok()) << sqrt.error().to_string();
      c.memory_bytes = 1000, c.checkpoint = "auto";
      const auto impossible = Trainer::create(c);
      ASSERT_FALSE(impossible.ok());
      const int64_t least = least_that_works(impossible.error());
      EXPECT_LE(least, (*sqrt)->plan().arena_bytes);
      c.memory_bytes = least;
      auto fits = Trainer::create(c);
      ASSERT_TRUE(fits.ok()) << fits.error().to_string();
      EXPECT_LE((*fits)->plan().arena_bytes, least);
    }
}

// The budget is that of the whole step, not of the bodies of its loops.
TEST(Trainer, RecomputesAroundLoops) {
  TrainConfig c = small_run(fresh_directory("loops"));
  c.model.type = "lstm", c.model.n_layers = 5, c.batch = 16, c.steps = 2;
  const std::string out = c.out;
  run(c);
  c.memory_bytes = 1000, c.out = "";
  const auto impossible = Trainer::create(c);
  ASSERT_FALSE(impossible.ok());
  EXPECT_NE(impossible.error().message.find("train_step:"), std::string::npos)
      << impossible.error().message;
  c.memory_bytes = least_that_works(impossible.error()), c.out = out + "-budget";
  const TrainSummary s = run(c);
  EXPECT_EQ(s.flops_per_step_planned, s.flops_per_step_counted);
  EXPECT_EQ(s.peak_bytes_planned, s.peak_bytes_measured);
  expect_same_file(out + "/latest/model.safetensors", c.out + "/latest/model.safetensors");
}

// Every pass can be left out by name, and none of them changes a bit, but for `lower`, which puts a
// sum in its own order in an op's place.
TEST(Trainer, TrainsWithTheSameBitsWithoutAnyOnePass) {
  TrainConfig c = small_run(fresh_directory("without"));
  c.model.has_bias = true, c.model.dropout = 0.1, c.batch = 8, c.steps = 2;
  const std::string out = c.out;
  for (const std::string model : {"gpt2", "llama"}) {
    c.model.type = model, c.passes = "", c.out = out + model;
    const TrainSummary all = run(c);
    std::set<std::string> names = {"dce,-fuse", "dce,-cse,-views",
                                   "merge_products,-bias_activation"};
    for (const PassDef* pass : pipeline())
      if (model == "gpt2" || pass->name != "lower") names.insert(std::string(pass->name));
    for (const std::string& name : names) {
      SCOPED_TRACE(cat(model, " without ", name));
      c.passes = "-" + name, c.out = cat(out, model, "-", name);
      const TrainSummary without = run(c);
      EXPECT_EQ(without.train_loss, all.train_loss);
      EXPECT_EQ(without.eval.val_loss, all.eval.val_loss);
      EXPECT_EQ(without.flops_per_step_planned, without.flops_per_step_counted);
      EXPECT_EQ(without.peak_bytes_planned, without.peak_bytes_measured);
      expect_same_file(out + model + "/latest/model.safetensors",
                       c.out + "/latest/model.safetensors");
    }
  }
}

// Products in bf16: the loss falls as in f32, masters and moments stay f32.
TEST(Trainer, TrainsInBf16) {
  TrainConfig c = small_run(fresh_directory("bf16"));
  c.steps = 60, c.lr = 1e-2;
  const std::string out = c.out;
  c.out = out + "f32";
  const TrainSummary full = run(c);
  c.out = out + "bf16", c.dtype = "bf16";
  const TrainSummary low = run(c);
  const double start =
      std::log(static_cast<double>(Tokenizer::load(c.out + "/latest")->vocab_size()));
  const double fell = start - full.eval.val_loss;
  EXPECT_GT(fell, 1);
  EXPECT_NE(low.eval.val_loss, full.eval.val_loss);
  EXPECT_NEAR(low.eval.val_loss, full.eval.val_loss, fell / 20);
  EXPECT_EQ(low.flops_per_step_planned, low.flops_per_step_counted);
  EXPECT_EQ(low.peak_bytes_planned, low.peak_bytes_measured);
  // AMX's tiles are padded to 32: of a model 16 wide that takes more than 16 bits save.
  if (machine_isa() < Isa::kAmx) EXPECT_LT(low.peak_bytes_planned, full.peak_bytes_planned);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const auto a = read_file(out + "f32/latest/" + file), b = read_file(c.out + "/latest/" + file);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a->size(), b->size());
    EXPECT_EQ(b->find("BF16"), std::string::npos);
  }
  c.dtype = "f8e4m3", c.out = "";
  const auto f8 = Trainer::create(c);
  ASSERT_FALSE(f8.ok());
  EXPECT_EQ(f8.error().code, Code::kUnsupported);
}

TEST(Trainer, StopsAtNanAndNamesTheOp) {
  TrainConfig c = small_run(fresh_directory("nan"));
  c.lr = 1e30, c.min_lr = 1e30, c.warmup = 0, c.optimizer.clip = 0;
  auto t = Trainer::create(c);
  ASSERT_TRUE(t.ok()) << t.error().to_string();
  const auto result = (*t)->run(std::atomic<bool>{false});
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("the first NaN came from"), std::string::npos)
      << result.error().message;
}

TEST(Trainer, RefusesToResumeAnotherRun) {
  TrainConfig c = small_run(fresh_directory("other"));
  run(c);
  c.resume = true, c.steps = 8, c.optimizer.name = "sgd";
  auto t = Trainer::create(c);
  ASSERT_FALSE(t.ok());
  EXPECT_NE(t.error().message.find("optimizer \"adamw\""), std::string::npos) << t.error().message;
}

// Text that repeats with the sequence: every row of either split is the same, so that both losses
// are one number, and a byte's share of it is known.
TEST(Trainer, EvaluatesBothSplitsAndBitsPerByte) {
  for (const std::string letter : {"b", "é"}) {
    TrainConfig c = small_run(fresh_directory("evaluates"));
    std::string text;
    for (int i = 0; i < 200; ++i) text += cat("a", letter, letter, "cddefghi", "j");
    EXPECT_TRUE(write_file(c.data, text).ok());
    ASSERT_EQ(c.model.max_seqlen, 12);
    auto t = Trainer::create(c);
    ASSERT_TRUE(t.ok()) << t.error().to_string();
    const auto e = (*t)->evaluate(std::atomic<bool>{false});
    ASSERT_TRUE(e.ok());
    EXPECT_GT(e->val_loss, 1);
    EXPECT_NEAR(e->train_loss, e->val_loss, 1e-6 * e->val_loss);
    const double bytes_per_token = letter == "b" ? 1 : 14.0 / 12;
    EXPECT_NEAR(e->bits_per_byte, e->val_loss / std::log(2) / bytes_per_token, 1e-9);
    EXPECT_TRUE(e->is_best);
  }
}

TEST(Trainer, LearningRateMayEndItsFallBeforeTheLastStep) {
  TrainConfig c;
  c.lr = 1, c.min_lr = 0.1, c.warmup = 10, c.steps = 100;
  EXPECT_EQ(learning_rate(c, 100), 0.1);
  EXPECT_GT(learning_rate(c, 50), 0.1);
  TrainConfig early = c;
  early.lr_decay_steps = 50;
  EXPECT_EQ(learning_rate(early, 50), 0.1);
  EXPECT_EQ(learning_rate(early, 99), 0.1);
  TrainConfig as_if = c;
  as_if.steps = 50;  // the curve is that of a run so long
  for (int64_t step = 0; step < 50; ++step)
    EXPECT_EQ(learning_rate(early, step), learning_rate(as_if, step)) << step;
  TrainConfig late = c;
  late.lr_decay_steps = 1000;
  EXPECT_GT(learning_rate(late, 99), 0.9);
}

// A model is its checkpoint's, whatever the config says of what nobody asked for.
TEST(Trainer, ResumesTheModelOfTheCheckpoint) {
  TrainConfig c = small_run(fresh_directory("model"));
  c.model.norm_eps = 1e-3;
  run(c);
  TrainConfig bare;
  bare.data = c.data, bare.out = c.out, bare.resume = true;
  bare.batch = c.batch, bare.warmup = c.warmup, bare.steps = 6, bare.threads = 2;
  auto t = Trainer::create(bare);
  ASSERT_TRUE(t.ok()) << t.error().to_string();
  EXPECT_EQ((*t)->config().model.n_layers, 2);
  EXPECT_EQ((*t)->config().model.norm_eps, 1e-3);
  t->reset();  // its lock
  bare.said = {"n-layers"};
  auto refused = Trainer::create(bare);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("has n-layers 2, not 4"), std::string::npos)
      << refused.error().message;
}

TEST(Trainer, LocksItsDirectoryForItsWholeLife) {
  TrainConfig c = small_run(fresh_directory("locked"));
  auto first = Trainer::create(c);
  ASSERT_TRUE(first.ok()) << first.error().to_string();
  const auto second = Trainer::create(c);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("another process"), std::string::npos);
  EXPECT_TRUE((*first)->save().ok());
  first->reset();
  run([&] {
    c.resume = true;
    return c;
  }());
}

TEST(Trainer, NotesWhatChangedInAResumedRun) {
  TrainConfig c = small_run(fresh_directory("notes"));
  run(c);
  c.resume = true, c.steps = 8, c.optimizer.weight_decay = 0.2, c.model.dropout = 0.1;
  EXPECT_TRUE(write_file(c.data, cat(*read_file(c.data), "line 1 of the text;\n")).ok());
  auto t = Trainer::create(c);
  ASSERT_TRUE(t.ok()) << t.error().to_string();
  ASSERT_EQ((*t)->notes.size(), 4u);
  const char* parts[] = {"weight_decay 0.1, now it is 0.2", "lr_decay_steps 6, now it is 8",
                         "dropout 0.0, now it is 0.1", "data_sha256"};
  for (size_t i = 0; i < 4; ++i)
    EXPECT_NE((*t)->notes[i].find(parts[i]), std::string::npos) << (*t)->notes[i];
}

}  // namespace
}  // namespace tegula
