// Generator: text from a trained model, token by token.
//
// Two plans share the weights and what earlier calls left (a KV cache, a recurrent state): prefill
// (any number of new tokens, a bounded symbol) and decode (one). Both go on at `position`; keys and
// values are appended to the donated cache in place.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tegula/io/tokenizer.h"
#include "tegula/models/checkpoint.h"
#include "tegula/models/model.h"
#include "tegula/runtime/session.h"
#include "tegula/runtime/tuner.h"
#include "tegula/serve/sampler.h"

namespace tegula {

// What happens when the context is full: the older half is forgotten, or generation ends.
enum class Overflow : uint8_t { kSlide, kStop };

// When to end before max_tokens.
struct GenerateEnd {
  Overflow overflow = Overflow::kSlide;
  std::vector<std::string> stop;  // texts that end it; they and what follows are left out
  bool at_end_of_text = true;     // at a token that the model's files call its end; left out too
  bool (*is_enough)() = nullptr;  // asked after each token; null: never
};

enum class Ended : uint8_t { kMaxTokens, kStopText, kEndOfText, kContext, kEnough };

struct GenerateStats {
  int64_t prompt_tokens = 0, new_tokens = 0;
  double load_ms = 0, prefill_ms = 0, decode_ms = 0;
  Ended ended = Ended::kMaxTokens;
};

// Adds the function that decodes: new tokens [1, n_new] after `position` cached ones, `length`
// known then -> logits of the last. Weights, activations and caches are `dtype`.
Result<FuncId> build_decoding(Module& module, const ModelConfig& config, const std::string& name,
                              Dim n_new, Dim length, DType dtype = DType::kF32);

class Generator {
 public:
  // A directory in Hugging Face form; weights are rounded to `dtype`. Error: missing or altered
  // files are named.
  static Result<std::unique_ptr<Generator>> load(const std::string& directory, int threads,
                                                 const TuneOptions& tune = {},
                                                 DType dtype = DType::kF32);
  // The same in two steps: what is small (configuration and tokenizer), enough to check a request;
  // then plans, and the weights where they lie in their files: those of another dtype are copied.
  // What the files hold is read and checked with the first tokens.
  static Result<std::unique_ptr<Generator>> open(const std::string& directory,
                                                 DType dtype = DType::kF32);
  Status prepare(int threads, const TuneOptions& tune = {});
  // What a request will meet: an error if nothing can come of it; a line for people if the context
  // will not hold it; else "".
  Result<std::string> check(std::string_view prompt, int64_t max_tokens, Overflow overflow) const;

  // Calls emit(context, piece) for every token's bytes, but holds back what may turn out to be the
  // beginning of a stop text. When the context is full and slides, its second half is read in again
  // and generation goes on; of a prompt that is longer, the end counts.
  Status generate(std::string_view prompt, int64_t max_tokens, const SamplerConfig& sampler,
                  void (*emit)(void* context, std::string_view piece), void* context,
                  GenerateStats& stats, const GenerateEnd& end = {});
  // By hand: forget everything; go on with these tokens; the logits of the last one.
  void reset() { position_ = 0; }
  Status feed(std::span<const int32_t> tokens);
  std::span<const float> logits() const { return logits_; }

  const ModelConfig& config() const { return config_; }
  std::vector<std::string> notes;  // for people: what the tuner did

 private:
  Status map_weights();
  Status compile_plans(const TuneOptions& tune);

  bool is_end_of_text(int32_t token) const;

  std::string directory_;
  std::vector<int64_t> end_of_text_;  // tokens
  ModelConfig config_;
  DType dtype_ = DType::kF32;  // of the weights, whatever the file has
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Rank> rank_;
  std::unique_ptr<Store> store_;
  std::shared_ptr<ModelWeights> weights_;  // the store borrows from it
  bool is_checked_ = false;
  std::unique_ptr<Session> prefill_, decode_;
  std::vector<int32_t> tokens_;
  std::vector<float> logits_;
  int64_t position_ = 0;
  double load_ms_ = 0;
};

}  // namespace tegula
