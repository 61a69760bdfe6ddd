// ModelSpec: what a language model costs depends on these numbers alone. Parameters are counted
// from them; for a family with a ModelDef the same count comes from its graph (model_config.h) and
// the two must agree.
//
// A decoder's parameters, with h = d_model, a query heads and k key/value heads of d, feed-forward
// width f of which n_ff_matrices matrices exist (2, gated 3), E experts and K of them a token:
//   attention  h·a·d + 2·h·k·d + a·d·h   (+ biases, + h·a·d for relative positions)
//   ff         n_ff_matrices·h·f (+ biases), E times with a router h·E
//   norms      norms_per_layer·h, twice that with biases
// Layers with experts and without may be mixed: a price takes each layer for the mean of both.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tegula/base/result.h"
#include "tegula/models/decoder_sizes.h"

namespace tegula::planner {

enum class ModelKind : uint8_t { kDecoder, kLstm, kMlp };

struct ModelSpec : DecoderSizes {
  std::string name;    // a preset's, or a path
  std::string family;  // the ModelDef that executes it; empty: it is only counted and priced
  ModelKind kind = ModelKind::kDecoder;
  bool has_known_saves = true;  // built_saves.h knows what its layers keep for their gradients

  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

// Parameters by place. `expert` is one expert of one layer; a dense feed-forward layer is the only
// expert, with no router.
struct ParamCount {
  int64_t embedding = 0, positions = 0;  // the token table; positions and its norm
  int64_t attention = 0, router = 0, expert = 0, norms = 0;  // of one layer
  int64_t shared = 0, dense = 0;     // beside experts; in their place, in n_dense_layers
  int64_t final_norm = 0, head = 0;  // head 0: tied
  int64_t layer = 0, active_layer = 0, total = 0, active = 0;
};

// Errors: sizes that are not positive, or whose product passes 2^62, by name and number.
Result<ParamCount> count_params(const ModelSpec& model);

// Bytes of keys and values that a token leaves behind in all layers, 2·L·k·d·bytes. 0 for models
// without attention.
double kv_bytes_per_token(const ModelSpec& model, double bytes_per_element);
// The cache of so many tokens: layers with a window keep what it sees.
double cache_bytes(const ModelSpec& model, double bytes_per_element, double tokens);

// Weights of the products of one layer's attention.
double attention_weights(const ModelSpec& model);
// Error: a layer of another kind than these prices know, by the key that says so.
Status check_plain(const ModelSpec& model, std::string_view what);

}  // namespace tegula::planner
