// The architectures of GGUF files: which family each is, and what its tensors are called.
//
// A row of the table is an architecture. Settings have one table for all (gguf_config.cpp).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tegula/io/gguf.h"
#include "tegula/io/stored_tensor.h"
#include "tegula/models/model.h"

namespace tegula {

// How the file has a tensor, other than the model.
enum class GgufChange : uint8_t {
  kNone,
  kQueryPairs,  // rows of a head: the pairs that RoPE turns stand together, not half a head apart
  kKeyPairs,
  kByPart,      // rows of q, k and v: part by part, not head by head
  kPlusOne,     // w + 1
  kTransposed,  // a matrix; a bias is as it is
};

// Without ".weight" and ".bias", which both may have.
struct GgufName {
  std::string_view gguf, model;
  GgufChange change = GgufChange::kNone;
};

struct GgufArchitecture {
  std::string_view name, model_type;
  // If two have one name, the one whose key is there.
  std::string_view told_by = {};
  std::span<const GgufName> whole, layer;  // "blk.3." before the latter
  std::string_view layers = "model.layers.";
  bool has_layer_norm = false;  // its epsilon is attention.layer_norm_epsilon
  // Settings that llama.cpp takes where no key says them: "norm_topk_prob=false".
  std::string_view fixed = {};
  // A setting of which llama.cpp reads nothing in this architecture.
  std::string_view unread = {};
  // Files have a head even where it is the table of tokens again.
  bool has_head = false;
};

std::span<const GgufArchitecture> gguf_architectures();
// Errors: kUnsupported, with the known ones.
Result<const GgufArchitecture*> gguf_architecture_of(const GgufFile& file);
Result<const GgufArchitecture*> gguf_architecture_of(const ModelConfig& config);

struct GgufPlace {
  std::string name;  // in the other one's words; "": it has none
  GgufChange change = GgufChange::kNone;
};
// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight", and back.
GgufPlace model_place(const GgufArchitecture& a, std::string_view gguf);
GgufPlace gguf_place(const GgufArchitecture& a, std::string_view model);

// Whether its head is the table again, bit for bit.
bool has_head_of_table(const GgufFile& file, const GgufArchitecture& a);

// How rows of a weight of so many heads lie in the file; plain, where they do not fit.
RowOrder gguf_row_order(GgufChange change, int64_t n_rows, const ModelConfig& config);

// config.json of what the metadata say. Errors: kUnsupported for a key of the architecture that
// nobody reads and that may change mathematics, kInvalidArgument for one that is missing or wrong.
Result<std::string> gguf_config_json(const GgufFile& file, const GgufArchitecture& a);

}  // namespace tegula
