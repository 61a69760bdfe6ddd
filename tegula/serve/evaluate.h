// evaluate: what a model makes of tokens: perplexity, and how far it is from another model.
//
//   nll = Σ −log p(token | those before it in its window), one ascending sum in f64 over the tokens
//   perplexity = exp(nll / tokens)
//   KL(reference || model) = Σ_v p(v) (log p(v) − log q(v)), of each token, in f64
//
// A row longer than the context is cut into windows: each begins `stride` tokens after the one
// before it and predicts what that one has not, so that every token but a row's first is predicted
// once, by context − stride tokens before it at least (in a first window, by all there are).
// LongRoPE's angles are those of a text as long as the window. Bits depend neither on threads nor
// on how many windows are computed at once.
// Errors: rows without two tokens; ids outside the vocabulary; windows longer than a context;
// another vocabulary, or other tokens, of what is compared with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tegula/passes/pass.h"
#include "tegula/text/token_rows.h"

namespace tegula {

struct EvaluateOptions {
  int threads = 0;
  int64_t context = 0;  // of a window; 0: the model's
  int64_t stride = 0;   // 0: the context
  int64_t batch = 1;    // windows at once
  DType dtype = DType::kF32;
  Mode mode = Mode::kExact;
  bool quantises_activations = false;  // of the model, not of what it is compared with
  std::string against;      // a model, or X.safetensors, logits of an evaluation; "": none
  std::string logits_path;  // where logits go, as safetensors: "logits" f32 [tokens, vocab_size],
                            // "tokens" i32 [tokens], those predicted; "": nowhere
};

struct Divergence {
  double mean = 0, largest = 0;
  int64_t largest_at = 0;  // which of the predicted tokens, from 0
  int64_t same_best = 0;   // tokens for which both find the same one likeliest
};

struct Evaluation {
  int64_t tokens = 0;  // predicted
  int64_t windows = 0, context = 0, stride = 0;
  double nll = 0;  // of all, in nats
  std::vector<float> losses;
  std::optional<Divergence> divergence;
  std::string note;  // for people: LongRoPE's choice; "": there is none
  double perplexity() const;
};

Result<Evaluation> evaluate(const std::string& model, const TokenRows& rows,
                            const EvaluateOptions& options);

// KL(p || q) of two tokens' logits.
double divergence_of(std::span<const float> p, std::span<const float> q);

}  // namespace tegula
