// A plan that decodes, ready to run on a device.
#pragma once

#include <gtest/gtest.h>

#include "tegula/base/str.h"
#include "tegula/ir/host_tensor.h"
#include "tegula/kernels/device.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/session.h"
#include "tegula/serve/runner.h"

namespace tegula::testing {

// A session of one text, in bf16.
inline std::unique_ptr<Session> decoding(const ModelConfig& config, Rank& rank, Store& store,
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

// A Llama whose heads of 64 and rows of 192 and 448 a persistent kernel takes.
inline ModelConfig small_llama() {
  ModelConfig c;
  c.type = "llama", c.vocab_size = 64, c.n_layers = 3, c.n_heads = 3, c.n_kv_heads = 1;
  c.d_model = 192, c.d_ff = 448, c.max_seqlen = 512;
  EXPECT_TRUE(c.resolve().ok());
  return c;
}

}  // namespace tegula::testing
