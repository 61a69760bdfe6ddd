#include "tegula/models/gguf_files.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tegula/io/gguf_writer.h"
#include "tegula/io/weight_files.h"
#include "tegula/models/checkpoint.h"
#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

using Keys = std::vector<GgufOutKey>;

// Values count up, tensor by tensor: 0, 1, 2, …
class Counting : public TensorSource {
 public:
  explicit Counting(const std::vector<GgufOutTensor>& tensors) : tensors_(tensors) {}
  Status write(std::string_view name, OutputFile& out) override {
    for (const GgufOutTensor& t : tensors_) {
      if (t.name != name) continue;
      int64_t n = 1;
      for (const int64_t d : t.shape) n *= d;
      std::vector<float> values;
      for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(i));
      return out.write(values.data(), values.size() * sizeof(float));
    }
    return {};
  }

 private:
  const std::vector<GgufOutTensor>& tensors_;
};

// A Llama of one layer: 8 wide, two heads of four, one for keys and values.
Keys llama_keys() {
  return {{"general.architecture", std::string("llama")},
          {"llama.context_length", uint32_t{16}},
          {"llama.embedding_length", uint32_t{8}},
          {"llama.block_count", uint32_t{1}},
          {"llama.feed_forward_length", uint32_t{12}},
          {"llama.attention.head_count", uint32_t{2}},
          {"llama.attention.head_count_kv", uint32_t{1}},
          {"llama.attention.layer_norm_rms_epsilon", 1e-5F}};
}
std::vector<GgufOutTensor> llama_tensors() {
  return {{"token_embd.weight", DType::kF32, {5, 8}},
          {"output_norm.weight", DType::kF32, {8}},
          {"blk.0.attn_norm.weight", DType::kF32, {8}},
          {"blk.0.ffn_norm.weight", DType::kF32, {8}},
          {"blk.0.attn_q.weight", DType::kF32, {8, 8}},
          {"blk.0.attn_k.weight", DType::kF32, {4, 8}},
          {"blk.0.attn_v.weight", DType::kF32, {4, 8}},
          {"blk.0.attn_output.weight", DType::kF32, {8, 8}},
          {"blk.0.ffn_gate.weight", DType::kF32, {12, 8}},
          {"blk.0.ffn_up.weight", DType::kF32, {12, 8}},
          {"blk.0.ffn_down.weight", DType::kF32, {8, 12}}};
}

Result<std::shared_ptr<const ModelFiles>> open_with(const TempDir& dir, const Keys& keys,
                                                    const std::vector<GgufOutTensor>& tensors) {
  Counting source(tensors);
  auto out = OutputFile::create(dir / "m.gguf").value();
  EXPECT_TRUE(write_gguf(out, keys, tensors, source).ok());
  EXPECT_TRUE(out.finish().ok());
  return ModelFiles::open(dir / "m.gguf");
}

// The keys with one changed, or one more.
Keys with(Keys keys, const GgufOutKey& other) {
  for (GgufOutKey& k : keys)
    if (k.name == other.name) return k = other, keys;
  keys.push_back(other);
  return keys;
}
Keys without(Keys keys, std::string_view name) {
  std::erase_if(keys, [&](const GgufOutKey& k) { return k.name == name; });
  return keys;
}

TEST(GgufFiles, MetadataAreAConfiguration) {
  TempDir dir;
  const auto files = open_with(dir, llama_keys(), llama_tensors());
  ASSERT_TRUE(files.ok()) << files.error().message;
  const ModelConfig config = load_model_config(**files).value();
  EXPECT_EQ(config.type, "llama");
  EXPECT_EQ(config.vocab_size, 5);
  EXPECT_EQ(config.n_layers, 1);
  EXPECT_EQ(config.n_kv_heads, 1);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.d_ff, 12);
  EXPECT_EQ(config.max_seqlen, 16);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.rope_theta, 1e4);
  EXPECT_TRUE(config.is_tied());
  auto tensors = llama_tensors();
  tensors.push_back({"output.weight", DType::kF32, {5, 8}});
  const Keys more = with(with(llama_keys(), {"llama.attention.sliding_window", uint32_t{7}}),
                         {"llama.rope.freq_base", 5e5F});
  const auto mistral = open_with(dir, more, tensors);
  const ModelConfig other = load_model_config(**mistral).value();
  EXPECT_EQ(other.type, "mistral");
  EXPECT_EQ(other.rope_theta, 5e5);
  EXPECT_FALSE(other.is_tied());
}

TEST(GgufFiles, WhatIsNotComputedIsRefusedByItsKey) {
  TempDir dir;
  struct Case {
    Keys keys;
    std::string_view word;
    Code code = Code::kInvalidArgument;
  };
  const Keys k = llama_keys();
  const Case cases[] = {
      {without(k, "llama.block_count"), "llama.block_count: it is missing"},
      {without(k, "llama.attention.layer_norm_rms_epsilon"), "layer_norm_rms_epsilon"},
      {with(k, {"llama.attention.head_count", uint32_t{0}}), "head_count"},
      {with(k, {"llama.block_count", std::string("1")}), "block_count: it is \"1\""},
      {with(k, {"llama.block_count", uint32_t{1u << 31}}), "num_hidden_layers"},
      {with(k, {"llama.context_length", uint32_t{0}}), "max_position_embeddings"},
      {with(k, {"llama.attention.layer_norm_rms_epsilon", std::nanf("")}), "rms_norm_eps"},
      {with(k, {"llama.rope.dimension_count", uint32_t{2}}), "rope.dimension_count",
       Code::kUnsupported},
      {with(k, {"llama.attention.value_length", uint32_t{8}}), "value_length", Code::kUnsupported},
      {with(k, {"llama.rope.scaling.type", std::string("spiral")}), "\"spiral\"",
       Code::kUnsupported},
      {with(k, {"llama.attention.causal", false}), "attention.causal: false", Code::kUnsupported},
      {with(k, {"llama.expert_group_count", uint32_t{4}}), "expert_group_count",
       Code::kUnsupported},
      {with(k, {"llama.something", 2.5F}), "llama.something: 2.5", Code::kUnsupported},
      {with(k, {"llama.attention.head_count_kv", std::vector<int32_t>{1, 2}}), "array of 2 i32",
       Code::kUnsupported}};
  for (const Case& c : cases) {
    const auto files = open_with(dir, c.keys, llama_tensors());
    ASSERT_TRUE(files.ok()) << files.error().message;
    expect_error(load_model_config(**files), c.code, {"m.gguf'", c.word});
  }
  expect_error(open_with(dir, with(k, {"general.architecture", std::string("mamba")}), {}),
               Code::kUnsupported, {"'mamba'", "gemma3, phi3"});
  expect_error(open_with(dir, with(k, {"general.type", std::string("adapter")}), {}),
               Code::kUnsupported, {"general.type", "adapter"});
  expect_error(open_with(dir, without(k, "general.architecture"), {}), Code::kInvalidArgument,
               {"general.architecture is missing"});
  EXPECT_TRUE(load_model_config(**open_with(dir, with(k, {"llama.expert_gating_func", uint32_t{0}}),
                                            llama_tensors()))
                  .ok());
}

std::vector<float> read(const ModelFiles& files, const std::string& name, const Box& box) {
  const ModelConfig config = load_model_config(files).value();
  std::vector<ModelWeights::Weight> all;
  const auto specs = model_weights(config).value();
  for (const WeightSpec& w : specs) {
    const TensorRef t = contiguous_ref(nullptr, w.type);
    all.push_back({w.name, {t.shape, t.shape + t.rank}});
  }
  const auto weights = ModelWeights::open(files.weights().value(), config, all);
  EXPECT_TRUE(weights.ok()) << weights.error().message;
  std::vector<float> values(static_cast<size_t>(box.numel()));
  const Status s = (*weights)->copy(
      name, box,
      contiguous_ref(values.data(), {DType::kF32, Shape(std::span<const int64_t>(box.extent))}));
  EXPECT_TRUE(s.ok()) << s.error().message;
  EXPECT_EQ((*weights)->stored_dtype(name), DType::kF32);
  return values;
}

TEST(GgufFiles, RowsOfQueriesAndKeysStandAsInTheModel) {
  TempDir dir;
  const auto files = open_with(dir, llama_keys(), llama_tensors()).value();
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  // A head's rows lie as 0, 2, 1, 3 of the model's: halves are turned in pairs.
  const int64_t order[] = {0, 2, 1, 3, 4, 6, 5, 7};
  const auto whole = read(*files, q, Box::whole(std::vector<int64_t>{8, 8}));
  for (size_t row = 0; row < 8; ++row)
    for (size_t i = 0; i < 8; ++i)
      EXPECT_EQ(whole[row * 8 + i], static_cast<float>(order[row] * 8) + static_cast<float>(i));
  const auto part = read(*files, q, {{5, 2}, {2, 3}});
  EXPECT_EQ(part, (std::vector<float>{50, 51, 52, 42, 43, 44}));
  EXPECT_EQ(read(*files, "model.layers.0.self_attn.v_proj.weight", {{1, 0}, {1, 2}}),
            (std::vector<float>{8, 9}));
}

TEST(GgufFiles, WeightsThatNobodyAsksForOrThatAreMissingAreNamed) {
  TempDir dir;
  auto tensors = llama_tensors();
  tensors.push_back({"blk.0.attn_q_norm.weight", DType::kF32, {4}});
  const auto extra = open_with(dir, llama_keys(), tensors).value();
  const ModelConfig config = load_model_config(*extra).value();
  std::vector<std::vector<float>> memory;
  const auto load = [&](const ModelFiles& files) {
    return load_model_weights(files, config, [&](const WeightSpec& w) -> Result<TensorRef> {
      memory.emplace_back(static_cast<size_t>(w.type.bytes() / 4));
      return contiguous_ref(memory.back().data(), {DType::kF32, w.type.shape});
    });
  };
  expect_error(load(*extra), Code::kInvalidArgument, {"m.gguf", "attn_q_norm.weight", "no place"});
  tensors = llama_tensors();
  tensors.pop_back();
  expect_error(load(*open_with(dir, llama_keys(), tensors).value()), Code::kInvalidArgument,
               {"mlp.down_proj.weight is missing"});
  tensors.push_back({"blk.0.ffn_down.weight", DType::kF32, {12, 8}});
  expect_error(load(*open_with(dir, llama_keys(), tensors).value()), Code::kInvalidArgument,
               {"mlp.down_proj.weight is f32"});
}

}  // namespace
}  // namespace tegula
