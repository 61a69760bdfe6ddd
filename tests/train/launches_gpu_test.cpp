// How many kernels a token takes: those of a layer that may be one launch are.
#include <gtest/gtest.h>

#include <map>

#include "tegula/base/str.h"
#include "tegula/ir/host_tensor.h"
#include "tegula/kernels/device.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/session.h"
#include "tegula/serve/runner.h"

namespace tegula {
namespace {

// A decoding of one text that is ready to run.
std::unique_ptr<Session> decoding(const ModelConfig& config, Rank& rank, Store& store,
                                  std::vector<HostTensor>& inputs) {
  auto module = std::make_shared<Module>();
  const FuncId f =
      build_decoding(*module, config, "decode", {.pages = {8, 64}}, DType::kBF16).value();
  CompileOptions options;
  options.plan.target = rank.device->target();
  options.passes.pass.is_inference = true;
  options.passes.pass.mode = Mode::kFast;
  const Compiled c = compile(module, f, options).value();
  auto s = Session::create(c.plan, rank).value();
  EXPECT_TRUE(s->bind_store(store).ok());
  inputs.reserve(c.plan->params.size());
  for (const Plan::Port& p : c.plan->params)
    if (p.role == Role::kInput) {
      inputs.emplace_back(p.tensor.type);
      EXPECT_TRUE(s->bind_input(p.name, inputs.back().bytes.data()).ok()) << p.name;
    }
  return s;
}

// By the kernel, of all layers.
std::map<std::string, int64_t> launches_of(const ModelConfig& config, Device& device) {
  Rank rank(device);
  Store store(rank);
  std::vector<HostTensor> inputs;
  const auto s = decoding(config, rank, store, inputs);
  const Status st = s->run();
  EXPECT_TRUE(st.ok()) << st.error().to_string();
  std::map<std::string, int64_t> n;
  for (size_t i = 0; i < s->plan().steps.size(); ++i)
    if (const Step& step = s->plan().steps[i]; step.scope.starts_with("layers."))
      n[std::string(step.kernel->name)] += s->launches(i);
  return n;
}

// Queries, keys and values in one, what attention gives, gates and what they multiply in one, and
// down, of which three begin with a norm or a gate; rotations of queries and keys in one; keys and
// values put down in one. Angles once. Enough layers that memory is used again.
TEST(LaunchesOnDevice, OfATokenByLayer) {
  const auto device = open_device();
  if (!device.ok()) GTEST_SKIP() << device.error().message;
  ModelConfig c;
  c.type = "llama", c.vocab_size = 64, c.n_layers = 6, c.n_heads = 9, c.n_kv_heads = 3;
  c.d_model = 144, c.d_ff = 256, c.max_seqlen = 512;
  ASSERT_TRUE(c.resolve().ok());
  const int64_t n = c.n_layers;
  EXPECT_EQ(launches_of(c, **device), (std::map<std::string, int64_t>{{"matvec", 4 * n},
                                                                      {"fused_cuda", n + 1},
                                                                      {"scatter_cuda", n},
                                                                      {"attention_decode", n},
                                                                      {"concat_cuda", 0}}));
}

// One persistent kernel for all layers and the head: the first norm's step has it.
TEST(LaunchesOnDevice, OfATokenInOne) {
  const auto device = open_device();
  if (!device.ok()) GTEST_SKIP() << device.error().message;
  if ((*device)->target().capability < 90) GTEST_SKIP() << "persistent kernels are for sm_90";
  ModelConfig c;
  c.type = "llama", c.vocab_size = 64, c.n_layers = 3, c.n_heads = 3, c.n_kv_heads = 1;
  c.d_model = 192, c.d_ff = 448, c.max_seqlen = 512;
  ASSERT_TRUE(c.resolve().ok());
  ::setenv("TEGULA_CUDA_PERSISTENT", "1", 1);
  const std::map<std::string, int64_t> of = launches_of(c, **device);
  ::unsetenv("TEGULA_CUDA_PERSISTENT");
  EXPECT_EQ(of, (std::map<std::string, int64_t>{{"matvec", 0},
                                                {"fused_cuda", 1},
                                                {"scatter_cuda", 0},
                                                {"attention_decode", 0},
                                                {"concat_cuda", 0}}));
}

}  // namespace
}  // namespace tegula
