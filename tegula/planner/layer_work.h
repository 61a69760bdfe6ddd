// The work of one rank in one layer, in the embedding and in the head for one micro-batch, and what
// it saves for the backward part.
//
// For a decoder with T tokens a rank, h = d_model, tp ranks over heads and feed-forward width, e
// bytes an element (FLOPs are the same for every e):
//   products   q, k, v: [T h]·[h (a+2k)d/tp];  out: [T a·d/tp]·[a·d/tp h];  ff up, gate: [T h]·
//              [h f/tp];  down: [T f/tp]·[f/tp h]; each once again for either gradient
//   attention  4·T·keys·a·d/tp, keys = (s+1)/2 for causal flash attention (fewer with a window), s
//              for naive; backward 2.5 and 2 times that: flash attention forms its scores again
//   rows       norms with the residual sum, turned q and k, activation: bytes only
// Saved tensors with dropout and naive attention are Korthikanti et al. 2022's, section 4.1:
//   T·h·(34 + 5·a·s/h) bytes a layer; with tp (10 + 24/tp + 5·a·s/(h·tp)); with sp all over tp.
#pragma once

#include "tegula/cost/work.h"
#include "tegula/planner/layout.h"

namespace tegula::planner {

// Naive attention whose ops are kernels of their own: bytes of a score that are read and written,
// and kept, its ops, and whether its products are those of f32.
struct NaiveScores {
  double forward = 0, backward = 0, kept = 0, ops = 0;
  bool in_f32 = false;
};
const NaiveScores* scores_of(Naive naive);  // null: kFused

struct RankShape {
  double batch = 1;   // sequences of a micro-batch; of a slice of its tokens a part of that
  double seqlen = 0;  // whole, over all cp ranks
  double cp = 1, tp = 1, ep = 1;
  bool sp = false;
  bool flash = true;
  AttentionKernel kernel = AttentionKernel::kDefault;
  Naive naive = Naive::kFused;
  double uneven = 1;     // causal flash attention of the rank that sees most, in averages
  double kv_copies = 1;  // of a key/value head, where cp turns more ranks than there are into heads
  double element_bytes = 2;              // of activations
  double stream_bytes = 2;               // of the residual stream, which goes from layer to layer
  bool is_built = false;                 // Job's
  const Framework* framework = nullptr;  // Job's
  Loss loss = Loss::kFused;
  double weight_bytes = 2;  // as products read them

  double tokens() const { return batch * seqlen / cp; }
  // By how much what lies outside of tensor-parallel regions is cut.
  double outside() const { return sp ? tp : 1; }
};
RankShape rank_shape(const Layout& layout, const ModelSpec& model, const Job& job);

struct Saved {
  std::string_view name;
  double bytes = 0;
  bool is_core = false;    // naive attention's scores
  bool is_cheap = false;   // norms' and activations' results: made again from their inputs
  double by_products = 0;  // bytes where every other product is kept
};

struct LayerWork {
  std::vector<Work> forward, input_backward, weight_backward;
  std::vector<Work> core, again;  // of forward: attention; every other product
  std::vector<Saved> saved;
};

LayerWork layer_work(const ModelSpec& model, const RankShape& shape);
LayerWork embedding_work(const ModelSpec& model, const RankShape& shape);
LayerWork head_work(const ModelSpec& model, const RankShape& shape);

// Bytes that a layer keeps of one micro-batch.
double saved_bytes(const LayerWork& work, Remat remat, Selective selective);
// The work that recomputation does again, of layers that do any.
std::vector<Work> work_again(const LayerWork& work, Remat remat, Selective selective);
// The bytes of the layer's input alone.
double input_bytes(const ModelSpec& model, const RankShape& shape);

// Keys that a query sees on average, and over how many attention is formally taken (PaLM's and
// Megatron's convention: s, or the window).
double keys_seen(const ModelSpec& model, double seqlen, bool is_window_layer);
double keys_formal(const ModelSpec& model, double seqlen);

// FLOPs of one token, by the convention that counts products and attention over all keys: 2 a
// weight of a product (K experts, router, head; no table look-up) + 4·keys·a·d·L. Training is three
// times that. [Chowdhery et al. 2022, appendix B]
struct TokenFlops {
  double layers = 0, attention = 0, head = 0;  // forward; layers without attention
  double causal_attention = 0;                 // of the keys that a query sees
  double forward() const { return layers + attention + head; }
  double train() const { return 3 * forward(); }
};
TokenFlops token_flops(const ModelSpec& model, double seqlen);

}  // namespace tegula::planner
