// How weights may be cut over ranks: parts that are disjoint and whole, with whole heads, and
// enough for a rank to compute its share of a layer without the others' parts.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "tegula/ir/interpret.h"
#include "tegula/models/init.h"
#include "tegula/models/model.h"
#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

// The part that one of n ranks holds of a weight: the ranges, in order, of one of its dims.
struct RankPart {
  int dim = -1;                                     // -1: every rank holds the whole
  std::vector<std::pair<int64_t, int64_t>> ranges;  // [begin, end)
};
// By the family's cuts, as one would do it by hand. Errors: units that n ranks cannot share evenly.
Result<RankPart> rank_part(const ModelConfig& config, const WeightSpec& weight, int64_t rank,
                           int64_t n_ranks) {
  const ModelDef* model = TEGULA_TRY(find_model(config.type));
  for (const Cut& cut : model->cuts) {
    if (!weight.name.ends_with(cut.name)) continue;
    const int64_t whole = weight.type.shape[cut.dim].bound();
    const int64_t extent = part_extent(config, cut, whole);
    const int64_t units = cut.units ? config.size(*cut.units) : extent;
    if (units % n_ranks != 0)
      return invalid_argument(cat("the ", units, " ", cut.units ? cut.units->name : "rows", " of ",
                                  weight.name, " cannot be shared evenly by ", n_ranks,
                                  " ranks: choose a number of ranks that divides them"));
    RankPart part{cut.dim, {}};
    int64_t begin = 0, here = whole - (cut.parts - 1) * extent;  // the first one's
    for (int64_t p = 0; p < cut.parts; ++p, begin += here, here = extent) {
      const int64_t share = here / n_ranks;
      part.ranges.emplace_back(begin + rank * share, begin + (rank + 1) * share);
    }
    return part;
  }
  return RankPart{};
}

ModelConfig small(const ModelDef& model) {
  ModelConfig m;
  m.type = model.name, m.vocab_size = 12, m.n_layers = 2, m.n_heads = 4, m.d_model = 16;
  m.d_ff = 24, m.max_seqlen = 8, m.n_experts = 4, m.capacity_factor = 0;
  if (has_setting(model, setting::kKvHeads)) m.n_kv_heads = 2, m.head_dim = 6;
  m.has_bias = has_setting(model, setting::kBias), m.tie_embeddings = false;
  EXPECT_TRUE(m.resolve().ok());
  return m;
}

TEST(Cuts, OfAllRanksAreTheWeight) {
  std::map<std::string, bool> is_used;
  for (const ModelDef* model : all_models()) {
    const ModelConfig m = small(*model);
    const auto weights = *model_weights(m);
    for (const Cut& cut : model->cuts)
      is_used[std::string(cut.name)] |= std::ranges::any_of(
          weights, [&](const WeightSpec& w) { return w.name.ends_with(cut.name); });
    for (const WeightSpec& w : weights)
      for (const int64_t n : {1, 2}) {
        std::vector<std::pair<int64_t, int64_t>> all;
        int dim = -1;
        for (int64_t rank = 0; rank < n; ++rank) {
          const auto part = rank_part(m, w, rank, n);
          ASSERT_TRUE(part.ok()) << part.error().message;
          dim = part->dim;
          all.insert(all.end(), part->ranges.begin(), part->ranges.end());
        }
        if (dim < 0) continue;
        std::ranges::sort(all);
        int64_t end = 0;
        for (const auto& [a, b] : all) {
          EXPECT_EQ(a, end) << model->name << " " << w.name;
          end = b;
        }
        EXPECT_EQ(end, w.type.shape[dim].bound()) << model->name << " " << w.name;
      }
  }
  for (const auto& [name, used] : is_used) EXPECT_TRUE(used) << "no family has a weight " << name;
}

TEST(Cuts, OfAFusedProjectionHaveWholeHeadsOfQueriesKeysAndValues) {
  ModelConfig m;
  m.type = "gpt2", m.vocab_size = 12, m.n_heads = 4, m.d_model = 12, m.has_bias = true;
  ASSERT_TRUE(m.resolve().ok());
  const auto weights = *model_weights(m);
  for (const char* name :
       {"transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_attn.bias"}) {
    const auto w = *std::ranges::find(weights, name, &WeightSpec::name);
    const auto part = *rank_part(m, w, 1, 4);
    EXPECT_EQ(part.dim, w.type.shape.rank() - 1);
    // Head 1 of 4, 3 wide, of the queries, the keys and the values, 12 wide each.
    const std::vector<std::pair<int64_t, int64_t>> heads = {{3, 6}, {15, 18}, {27, 30}};
    EXPECT_EQ(part.ranges, heads);
    expect_error(rank_part(m, w, 0, 3), Code::kInvalidArgument,
                 {"the 4 n_heads of transformer.h.0.attn.c_attn", "3 ranks"});
  }
}

TEST(Cuts, OfGroupedHeadsInOneWeightAreWholeHeadsOfEach) {
  ModelConfig m;
  m.type = "phi3", m.vocab_size = 12, m.n_heads = 6, m.n_kv_heads = 2, m.d_model = 12;
  m.head_dim = 4;
  ASSERT_TRUE(m.resolve().ok());
  const auto weights = *model_weights(m);
  const auto w =
      *std::ranges::find(weights, "model.layers.0.self_attn.qkv_proj.weight", &WeightSpec::name);
  // The second half of 6 heads of queries, 2 of keys and 2 of values, each 4 wide.
  const std::vector<std::pair<int64_t, int64_t>> heads = {{12, 24}, {28, 32}, {36, 40}};
  EXPECT_EQ(rank_part(m, w, 1, 2)->ranges, heads);
}

bool is_in(const RankPart& part, const Shape& shape, int64_t i) {
  if (part.dim < 0) return true;
  int64_t inner = 1;
  for (int d = part.dim + 1; d < shape.rank(); ++d) inner *= shape[d].bound();
  const int64_t at = i / inner % shape[part.dim].bound();
  return std::ranges::any_of(part.ranges,
                             [&](const auto& r) { return at >= r.first && at < r.second; });
}

// The output that a layer adds is a sum over ranks: o_proj and the like are cut along what they sum
// over. With these zeroed outside of a rank's part, nothing that the rank has not may matter.
bool ends_a_layer(std::string_view name) {
  return std::ranges::any_of(
      std::array{"c_proj.weight", "o_proj.weight", "down_proj.weight", "experts.w2.weight",
                 "attention.dense.weight", "dense_4h_to_h.weight", "output.dense.weight"},
      [&](const char* end) { return name.ends_with(end); });
}

std::vector<double> logits(const ModelDef& model, const ModelConfig& m, int64_t rank,
                           double garbage) {
  Module module;
  Builder b(module, "model");
  Context c(b, m);
  const Type ids = {DType::kI32, {1, m.max_seqlen}};
  b.result("logits", model_logits(c, model, b.param("tokens", ids)));
  std::vector<HostTensor> in(1, HostTensor(ids));
  for (int64_t i = 0; i < m.max_seqlen; ++i) in[0].put(i, i * i % m.vocab_size);
  for (const WeightSpec& w : c.weights()) {
    WeightSpec spec = w;
    spec.stddev = 0.5;
    HostTensor& x = in.emplace_back(w.type);
    init_weight(spec, 1, x.ref());
    if (w.name == model.names.table || w.name == model.names.head) continue;
    const RankPart part = *rank_part(m, w, rank, 2);
    for (int64_t i = 0; i < x.numel(); ++i)
      if (!is_in(part, w.type.shape, i)) x.put(i, ends_a_layer(w.name) ? 0 : x.at(i) + garbage);
  }
  const auto f = b.finish();
  EXPECT_TRUE(f.ok()) << f.error().to_string();
  const auto out = interpret(module, *f, in);
  EXPECT_TRUE(out.ok()) << out.error().to_string();
  return (*out)[0].values();
}

TEST(Cuts, AreAllThatARankNeedsForItsShareOfALayer) {
  int n_families = 0;
  for (const ModelDef* model : all_models()) {
    // Units of an LSTM, and wide layers with a sum behind each, need what the other ranks computed.
    if (!has_setting(*model, setting::kHeads) || model->cuts.empty()) continue;
    const ModelConfig m = small(*model);
    const auto whole = logits(*model, m, 0, 0);
    for (const int64_t rank : {0, 1})
      EXPECT_EQ(logits(*model, m, rank, 0), logits(*model, m, rank, 0.75)) << model->name;
    EXPECT_NE(whole, logits(*model, m, 1, 0)) << model->name;
    ++n_families;
  }
  EXPECT_GE(n_families, 16);
}

}  // namespace
}  // namespace tegula
