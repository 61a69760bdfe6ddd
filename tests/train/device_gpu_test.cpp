// Training and generating on a device beside the CPU: losses, memory, checkpoints, graphs. Skipped
// where there is none; CI runs it on the driver made for tests (tests/kernels/cuda/emulator).
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <memory>

#include "tegula/base/element.h"
#include "tegula/io/file.h"
#include "tegula/ir/host_tensor.h"
#include "tegula/ops/arrange.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/session.h"
#include "tegula/serve/generator.h"
#include "tegula/serve/runner.h"
#include "tegula/train/device_memory.h"
#include "tegula/train/trainer.h"

namespace tegula {
namespace {

class OnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto opened = open_device();
    if (!opened.ok()) GTEST_SKIP() << opened.error().message;
    device_ = *opened;
  }

  static TrainConfig config_of(const std::string& family, const std::string& dtype) {
    TrainConfig c;
    c.data = ::testing::TempDir() + "/device.txt";
    std::string text;
    for (int i = 0; i < 200; ++i) text += cat("line ", i, " of ", i * 7919 % 1000, "\n");
    EXPECT_TRUE(write_file(c.data, text).ok());
    c.model.type = family, c.model.n_layers = 2, c.model.n_heads = 2, c.model.d_model = 32;
    c.model.max_seqlen = 32, c.batch = 3, c.steps = 5, c.warmup = 1, c.lr = 1e-2, c.min_lr = 1e-3;
    if (family == "moe") c.model.n_experts = 4;
    c.eval_every = 0, c.dtype = dtype, c.threads = 1;
    return c;
  }

  struct Run {
    std::vector<double> losses, norms;
    std::vector<StepReport> steps;
    TrainSummary sum;
  };
  static Run train(TrainConfig c, const std::string& device) {
    c.device = device;
    Run run;
    auto t = Trainer::create(c);
    EXPECT_TRUE(t.ok()) << t.error().to_string();
    if (!t.ok()) return run;
    (*t)->context = &run;
    (*t)->on_step = [](void* context, const StepReport& r) {
      static_cast<Run*>(context)->steps.push_back(r);
      static_cast<Run*>(context)->losses.push_back(r.loss);
      static_cast<Run*>(context)->norms.push_back(r.grad_norm);
    };
    auto sum = (*t)->run(std::atomic<bool>{false});
    EXPECT_TRUE(sum.ok()) << sum.error().to_string();
    if (sum.ok()) run.sum = *sum;
    return run;
  }

  Device* device_ = nullptr;
};

// In bf16 the orders of sums, and what is rounded in between, differ.
TEST_F(OnDevice, LossesAreTheCpus) {
  for (const char* family : {"gpt2", "llama", "gemma2", "moe", "mlp", "lstm"})
    for (const char* dtype : {"f32", "bf16", "f16"}) {
      const TrainConfig c = config_of(family, dtype);
      const Run cpu = train(c, "cpu"), gpu = train(c, "cuda");
      ASSERT_EQ(cpu.losses.size(), gpu.losses.size()) << family << " " << dtype;
      const double share = c.dtype == "f32" ? 2e-5 : 2e-2;
      for (size_t i = 0; i < cpu.losses.size(); ++i) {
        EXPECT_NEAR(gpu.losses[i], cpu.losses[i], share * cpu.losses[i])
            << family << " " << dtype << ", step " << i;
        EXPECT_NEAR(gpu.norms[i], cpu.norms[i], 10 * share * cpu.norms[i])
            << family << " " << dtype << ", step " << i;
      }
    }
}

// 512 rows: the gradients of norms' weights and of biases are sums of columns, of loops that write
// other gradients.
TEST_F(OnDevice, SumsOfColumnsAreTheCpus) {
  for (const char* dtype : {"f32", "bf16"}) {
    TrainConfig c = config_of("gpt2", dtype);
    c.batch = 16, c.steps = 3, c.model.has_bias = true;
    const Run cpu = train(c, "cpu"), gpu = train(c, "cuda");
    ASSERT_EQ(cpu.losses.size(), gpu.losses.size()) << dtype;
    const double share = c.dtype == "f32" ? 2e-5 : 2e-2;
    for (size_t i = 0; i < cpu.losses.size(); ++i) {
      EXPECT_NEAR(gpu.losses[i], cpu.losses[i], share * cpu.losses[i]) << dtype << ", step " << i;
      EXPECT_NEAR(gpu.norms[i], cpu.norms[i], 10 * share * cpu.norms[i]) << dtype << ", step " << i;
    }
  }
}

// A scale that is too large at first, and one batch again and again: after a step that was skipped
// the loss is the same to the bit, and the scale goes as the rule says.
TEST_F(OnDevice, F16SkipsHalvesAndGrows) {
  for (const auto& [name, accumulate] : {std::pair{"gpt2", int64_t{1}}, {"llama", int64_t{2}}}) {
    const std::string family = name;
    TrainConfig c = config_of(family, "f16");
    c.accumulate = accumulate, c.steps = 28, c.loss_scale_every = 2;
    c.loss_scale = kMostLossScale;
    c.batches = ::testing::TempDir() + "/device_batches.txt";
    std::string lines;
    for (int64_t i = 0; i < c.steps * accumulate; ++i) lines += "0 100 1000\n";
    ASSERT_TRUE(write_file(c.batches, lines).ok());
    const Run gpu = train(c, "cuda");
    ASSERT_EQ(gpu.steps.size(), 28U) << family;
    double scale = kMostLossScale;
    int64_t good = 0, skipped = 0, grown = 0;
    for (size_t i = 0; i < gpu.steps.size(); ++i) {
      const StepReport& r = gpu.steps[i];
      SCOPED_TRACE(cat(family, " step ", r.step, " scale ", scale, " norm ", r.grad_norm));
      EXPECT_EQ(r.loss_scale, scale);
      EXPECT_EQ(r.is_skipped, !std::isfinite(r.grad_norm));
      if (i + 1 < gpu.steps.size())
        EXPECT_EQ(gpu.steps[i + 1].loss == r.loss, r.is_skipped || r.lr == 0);
      if (r.is_skipped) {
        scale /= 2, good = 0, ++skipped;
      } else if (++good == 2) {
        good = 0, scale *= 2, ++grown;
      }
    }
    EXPECT_GT(skipped, 2) << family;
    EXPECT_GT(grown, 1) << family;
    EXPECT_EQ(gpu.sum.loss_scale.skipped, skipped) << family;
    EXPECT_EQ(gpu.sum.loss_scale.scale, scale) << family;
    EXPECT_EQ(gpu.sum.host_steps, 0) << family;
    EXPECT_EQ(gpu.sum.peak_bytes_measured, gpu.sum.peak_bytes_planned) << family;
  }
}

// Columns 4 to 12 of a wider matrix: nothing that 16-byte loads could read.
TEST_F(OnDevice, FactorsMayBeginAnywhere) {
  for (const int64_t m : {3, 80})
    for (const DType t : {DType::kF32, DType::kBF16}) {
      const int64_t first = t == DType::kF32 ? 2 : 4;
      auto module = std::make_shared<Module>();
      Builder b(*module, "product");
      const Var x = b.param("x", {t, {m, 24}}), w = b.param("w", {t, {8, 16}});
      b.result("y", dot("m k, k n -> m n", slice(x, 1, first, 8), w));
      const FuncId f = b.finish_into_module().value();
      CompileOptions options;
      options.plan.target = device_->target(), options.passes.pass.mode = Mode::kFast;
      const auto compiled = compile(module, f, options);
      ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
      Rank rank(*device_);
      auto s = Session::create(compiled->plan, rank);
      ASSERT_TRUE(s.ok()) << s.error().to_string();
      HostTensor xs({t, {m, 24}}), ws({t, {8, 16}});
      for (int64_t i = 0; i < xs.numel(); ++i) xs.put(i, static_cast<double>(i % 7 - 3));
      for (int64_t i = 0; i < ws.numel(); ++i) ws.put(i, static_cast<double>(i % 5 - 2));
      ASSERT_TRUE((*s)->bind_input("x", xs.bytes.data()).ok());
      ASSERT_TRUE((*s)->bind_input("w", ws.bytes.data()).ok());
      const Status ran = (*s)->run();
      ASSERT_TRUE(ran.ok()) << ran.error().to_string();
      const auto y = (*s)->fetch("y");
      ASSERT_TRUE(y.ok()) << y.error().to_string();
      for (int64_t i = 0; i < m; ++i)  // small whole numbers: exact in bf16
        for (int64_t j = 0; j < 16; ++j) {
          double sum = 0;
          for (int64_t k = 0; k < 8; ++k) sum += xs.at(i * 24 + first + k) * ws.at(k * 16 + j);
          EXPECT_EQ(load_element(*y, i * 16 + j), sum) << m << " rows of " << dtype_name(t);
        }
    }
}

// Many launches of one kernel, of several sizes, some of which need others' results: joined or not,
// the values are those of the CPU, to the bit. More of them than one launch takes.
TEST_F(OnDevice, AlikeLaunchesAreJoinedWhereNothingStandsBetween) {
  const int n_chains = 70, n_links = 3;
  std::vector<HostTensor> values;
  for (int i = 0; i < n_chains; ++i) {
    values.emplace_back(Type{DType::kF32, {1 + i % 5, 33}});
    for (int64_t k = 0; k < values.back().numel(); ++k)
      values.back().put(k, std::sin(static_cast<double>(k + i)));
  }
  std::vector<std::vector<float>> got;
  for (const bool is_gpu : {false, true}) {
    auto module = std::make_shared<Module>();
    Builder b(*module, "chains");
    std::vector<Var> x;
    for (int i = 0; i < n_chains; ++i)
      x.push_back(b.param(cat("x", i), {DType::kF32, {1 + i % 5, 33}}));
    for (int link = 0; link < n_links; ++link)
      for (Var& v : x) v = v * v + 0.5;
    for (int i = 0; i < n_chains; ++i) b.result(cat("y", i), x[static_cast<size_t>(i)]);
    const FuncId f = b.finish_into_module().value();
    CompileOptions options;
    options.passes.passes = "-fuse";  // a step each
    if (is_gpu) options.plan.target = device_->target();
    const auto compiled = compile(module, f, options);
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
    Rank on_gpu(*device_), on_cpu(1);
    auto s = Session::create(compiled->plan, is_gpu ? on_gpu : on_cpu);
    ASSERT_TRUE(s.ok()) << s.error().to_string();
    for (int i = 0; i < n_chains; ++i)
      ASSERT_TRUE((*s)->bind_input(cat("x", i), values[static_cast<size_t>(i)].bytes.data()).ok());
    for (int run = 0; run < 3; ++run) ASSERT_TRUE((*s)->run().ok());  // as launches, as a graph
    got.emplace_back();
    for (int i = 0; i < n_chains; ++i) {
      const auto y = (*s)->fetch(cat("y", i));
      ASSERT_TRUE(y.ok()) << y.error().to_string();
      for (int64_t k = 0; k < y->numel(); ++k)
        got.back().push_back(static_cast<float>(load_element(*y, k)));
    }
  }
  EXPECT_EQ(got[0], got[1]);
}

// More tokens than have their logits at once: the parts of dW are added up.
TEST_F(OnDevice, GradientsOfManyTokens) {
  const int64_t n = 2 * 16384 + 40, d = 16, v = 24;
  const Type tx{DType::kBF16, {n, d}}, tw{DType::kBF16, {v, d}}, ti{DType::kI32, {n}};
  const Type stats{DType::kF32, {n}};
  HostTensor x(tx), w(tw), t(ti), dlse(stats), dpicked(stats);
  for (int64_t i = 0; i < x.numel(); ++i) x.put(i, static_cast<double>(i * 37 % 9 - 4) / 4);
  for (int64_t i = 0; i < w.numel(); ++i) w.put(i, static_cast<double>(i * 53 % 7 - 3) / 4);
  for (int64_t i = 0; i < n; ++i) {
    t.put(i, static_cast<double>(i * 11 % v));
    dlse.put(i, 1.0 / static_cast<double>(n)), dpicked.put(i, -1.0 / static_cast<double>(n));
  }
  std::vector<std::vector<float>> got;
  for (const bool is_gpu : {false, true}) {
    auto module = std::make_shared<Module>();
    Builder b(*module, "loss");
    const std::vector<Var> in = {b.param("x", tx), b.param("w", tw), b.param("t", ti),
                                 b.param("dlse", stats), b.param("dpicked", stats)};
    const auto out = b.emit_n(linear_cross_entropy_grads_op, {}, in);
    b.result("dx", out[2]), b.result("dw", out[3]);
    const FuncId f = b.finish_into_module().value();
    CompileOptions options;
    options.passes.pass.mode = Mode::kFast;
    if (is_gpu) options.plan.target = device_->target();
    const auto compiled = compile(module, f, options);
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
    Rank on_gpu(*device_), on_cpu(1);
    auto s = Session::create(compiled->plan, is_gpu ? on_gpu : on_cpu);
    ASSERT_TRUE(s.ok()) << s.error().to_string();
    for (const auto& [name, values] :
         {std::pair{"x", &x}, {"w", &w}, {"t", &t}, {"dlse", &dlse}, {"dpicked", &dpicked}})
      ASSERT_TRUE((*s)->bind_input(name, values->bytes.data()).ok());
    const Status ran = (*s)->run();
    ASSERT_TRUE(ran.ok()) << ran.error().to_string();
    for (const char* name : {"dx", "dw"}) {
      const auto y = (*s)->fetch(name);
      ASSERT_TRUE(y.ok()) << y.error().to_string();
      got.emplace_back();
      for (int64_t i = 0; i < y->numel(); ++i)
        got.back().push_back(static_cast<float>(load_element(*y, i)));
    }
  }
  for (size_t k = 0; k < 2; ++k) {  // logits and results are bf16 on both
    float most = 0;
    for (const float g : got[k]) most = std::max(most, std::abs(g));
    for (size_t i = 0; i < got[k].size(); ++i)
      ASSERT_NEAR(got[k + 2][i], got[k][i], 0.02 * most) << (k ? "dw " : "dx ") << i;
  }
}

TEST_F(OnDevice, NothingOfAStepIsDoneOnTheHost) {
  for (const char* family : {"gpt2", "llama", "gemma2", "moe", "mlp"})
    for (const char* dtype : {"f32", "bf16", "f16"}) {
      const Run gpu = train(config_of(family, dtype), "cuda");
      EXPECT_EQ(gpu.sum.host_steps, 0) << family << " " << dtype;
      EXPECT_EQ(gpu.sum.flops_per_step_counted, gpu.sum.flops_per_step_planned)
          << family << " " << dtype;
    }
}

// The part that was written of the arena ends where the plan says, and not behind it.
TEST_F(OnDevice, MemoryIsThePlans) {
  TrainConfig c = config_of("gpt2", "bf16");
  c.model.d_model = 256, c.steps = 1;
  const Run gpu = train(c, "cuda");
  EXPECT_EQ(gpu.sum.peak_bytes_measured, gpu.sum.peak_bytes_planned);
  // By the driver's account nothing that was planned was not taken. It hands out from pieces of
  // 2 MiB, of which one may have been there before.
  constexpr int64_t kPiece = 2 << 20;
  EXPECT_GT(gpu.sum.peak_bytes_planned, 4 * kPiece);
  EXPECT_GE(gpu.sum.device_taken_bytes + kPiece, gpu.sum.peak_bytes_planned);
}

// The driver's count of memory lies within the budget, and recomputing changes no weight.
TEST_F(OnDevice, DeviceMemoryIsKept) {
  TrainConfig c = config_of("gpt2", "f32");
  c.model.n_layers = 4, c.model.max_seqlen = 64, c.batch = 8, c.steps = 3;
  const Run whole = train(c, "cuda");
  ASSERT_GT(whole.sum.steps, 0);
  c.device_memory_bytes = whole.sum.peak_bytes_planned * 4 / 5 + kPluginBytes;
  const Run tight = train(c, "cuda");
  EXPECT_LT(tight.sum.peak_bytes_planned, whole.sum.peak_bytes_planned);
  EXPECT_LE(tight.sum.device_taken_bytes, c.device_memory_bytes);
  EXPECT_EQ(tight.losses, whole.losses);
  c.device = "cuda", c.device_memory_bytes = kPluginBytes + (1 << 20);
  const auto none = Trainer::create(c);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Code::kOutOfMemory) << none.error().message;
}

TEST_F(OnDevice, RunsRepeatTheirBits) {
  for (const char* dtype : {"f32", "bf16"}) {
    TrainConfig c = config_of("gpt2", dtype);
    c.mode = "exact";
    EXPECT_EQ(train(c, "cuda").losses, train(c, "cuda").losses) << dtype;
  }
}

// A run that was begun on one device goes on, on the other.
TEST_F(OnDevice, CheckpointsCrossDevices) {
  for (const auto& [first, second] : {std::pair{"cpu", "cuda"}, {"cuda", "cpu"}}) {
    TrainConfig c = config_of("gpt2", "f32");
    c.out = ::testing::TempDir() + "/device_" + first;
    (void)remove_tree(c.out);
    c.lr_decay_steps = 5;
    const Run whole = train(
        [&] {
          TrainConfig w = c;
          w.out.clear();
          return w;
        }(),
        first);
    c.steps = 3;
    (void)train(c, first);
    c.steps = 5, c.resume = true;
    const Run rest = train(c, second);
    ASSERT_EQ(rest.losses.size(), 2U);
    for (size_t i = 0; i < 2; ++i)
      EXPECT_NEAR(rest.losses[i], whole.losses[3 + i], 2e-5 * whole.losses[3 + i]) << first;
  }
}

// Two texts, together and alone, with graphs and with launches, at every length: the same logits,
// bit by bit.
class Decoding : public OnDevice {
 protected:
  static std::string model() {
    const TrainConfig c = config_of("gpt2", "f32");
    return model_of(c);
  }
  static std::string model_of(TrainConfig c) {
    c.out = ::testing::TempDir() + "/device_decodes", c.model.max_seqlen = 80, c.overwrite = true;
    (void)train(c, "cpu");
    return c.out;
  }
  std::vector<std::vector<float>> logits(const std::string& directory, DType dtype, bool captures,
                                         int64_t n_texts, int most = 64) {
    RunnerOptions o;
    o.device = device_, o.captures = captures, o.batch = n_texts, o.dtype = dtype;
    std::vector<std::vector<float>> all;
    auto config = load_model_config(**ModelFiles::open(directory));
    EXPECT_TRUE(config.ok());
    auto r = Runner::create(*ModelFiles::open(directory), *config, o);
    EXPECT_TRUE(r.ok()) << r.error().to_string();
    if (!r.ok()) return all;
    const auto pages = pages_of(**r, n_texts);
    const std::vector<int32_t> prompt = {1, 2, 3};
    std::vector<Runner::Piece> pieces;
    for (const auto& p : pages) pieces.push_back({p, 0, prompt});
    EXPECT_TRUE((*r)->read(pieces).ok());
    std::vector<int32_t> token(1, 4);
    for (auto& p : pieces) p.first = 3, p.tokens = token;
    for (int length = 1; length <= most; ++length) {
      token[0] = length % 7;
      const Status st = (*r)->decode(pieces);
      EXPECT_TRUE(st.ok()) << st.error().to_string();
      const auto row = (*r)->logits(0);
      all.emplace_back(row.begin(), row.end());
      for (auto& p : pieces) ++p.first;
    }
    return all;
  }
  // The cache's pages, shared out among the texts.
  static std::vector<std::vector<int32_t>> pages_of(const Runner& r, int64_t n_texts) {
    std::vector<std::vector<int32_t>> pages(static_cast<size_t>(n_texts));
    const int64_t each = r.pages().n_pages() / n_texts;
    for (int64_t p = 0; p < each * n_texts; ++p)
      pages[static_cast<size_t>(p / each)].push_back(static_cast<int32_t>(p));
    return pages;
  }
};

// Prompts of several lengths, read together out of pages, give the logits that each gives alone.
TEST_F(Decoding, PromptsReadTogetherKeepTheirBits) {
  const std::string dir = model();
  const std::vector<std::vector<int32_t>> prompts = {
      std::vector<int32_t>(70, 5), {1, 2, 3}, {6, 5, 4, 3, 2, 1, 0, 1, 2}};
  const auto config = load_model_config(**ModelFiles::open(dir));
  ASSERT_TRUE(config.ok());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    RunnerOptions o;
    o.device = device_, o.batch = 3, o.chunk = 96, o.dtype = dtype;
    const auto read = [&](std::vector<size_t> which) {
      auto r = Runner::create(*ModelFiles::open(dir), *config, o).value();
      const auto pages = pages_of(*r, static_cast<int64_t>(which.size()));
      std::vector<Runner::Piece> pieces;
      for (size_t i = 0; i < which.size(); ++i) pieces.push_back({pages[i], 0, prompts[which[i]]});
      EXPECT_TRUE(r->read(pieces).ok());
      std::vector<std::vector<float>> logits;
      for (size_t i = 0; i < which.size(); ++i) {
        const auto row = r->logits(i);
        logits.emplace_back(row.begin(), row.end());
      }
      return logits;
    };
    const auto together = read({0, 1, 2});
    for (const size_t i : {0, 1, 2})
      EXPECT_EQ(together[i], read({i})[0]) << dtype_name(dtype) << ", prompt " << i;
  }
}

TEST_F(Decoding, AGraphReplaysAtEveryLength) {
  const std::string dir = model();
  for (const DType dtype : {DType::kF32, DType::kBF16})
    EXPECT_EQ(logits(dir, dtype, true, 1), logits(dir, dtype, false, 1)) << dtype_name(dtype);
}

// A token as the steps of one kernel has the bits that it has as many launches, alone and beside
// others: rows of 192 and 448, of which the last piece is short, and a group of three heads. Of one
// and three texts a block attends to one, and keeps what it looks up; of more than the emulated
// GPU's four multiprocessors, to several.
TEST_F(Decoding, OneKernelHasTheBitsOfMany) {
  if (device_->target().capability < 90) GTEST_SKIP() << "persistent kernels are for sm_90";
  TrainConfig c = config_of("llama", "f32");
  c.model.n_heads = 3, c.model.n_kv_heads = 1, c.model.d_model = 192, c.model.d_ff = 448;
  c.steps = 1;
  const std::string dir = model_of(c);
  for (const auto& [dtype, n_texts] :
       {std::pair{DType::kBF16, 1}, {DType::kBF16, 3}, {DType::kBF16, 6}, {DType::kF16, 1}}) {
    ::setenv("TEGULA_CUDA_PERSISTENT", "0", 1);
    const auto many = logits(dir, dtype, true, n_texts, 16);
    ::setenv("TEGULA_CUDA_PERSISTENT", "1", 1);
    EXPECT_EQ(logits(dir, dtype, true, n_texts, 16), many) << dtype_name(dtype) << ", " << n_texts;
    ::unsetenv("TEGULA_CUDA_PERSISTENT");
  }
}

TEST_F(Decoding, CompanionsChangeNoBit) {
  const std::string dir = model();
  for (const DType dtype : {DType::kF32, DType::kBF16})
    EXPECT_EQ(logits(dir, dtype, true, 1), logits(dir, dtype, true, 3)) << dtype_name(dtype);
}

}  // namespace
}  // namespace tegula
