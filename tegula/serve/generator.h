// Generator: texts from a trained model, some at a time, token by token.
//
// Texts share each step of decoding. One that ends leaves its place to the next. Each has the bits,
// and draws the random numbers, that it has alone.
#pragma once

#include <string>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/serve/runner.h"
#include "tegula/serve/sampler.h"
#include "tegula/text/tokenizer.h"

namespace tegula {

// The choice for when the context is full: the older half is forgotten, or generation ends.
enum class Overflow : uint8_t { kSlide, kStop };

// When to end before max_tokens.
struct GenerateEnd {
  Overflow overflow = Overflow::kSlide;
  std::vector<std::string> stop;  // texts that end it; they and what follows are left out
  bool at_end_of_text = true;     // at a token that the model's files call its end; left out too
  bool (*is_enough)() = nullptr;  // asked after each token; null: never
  std::vector<int32_t> at_tokens = {};  // further tokens that end it as the end of text does
};

enum class Ended : uint8_t { kMaxTokens, kStopText, kEndOfText, kContext, kEnough };

struct GenerateStats {
  int64_t prompt_tokens = 0, new_tokens = 0;
  int64_t kept_tokens = 0;  // of the prompt, which the cache held
  double load_ms = 0, prefill_ms = 0, decode_ms = 0;
  Ended ended = Ended::kMaxTokens;
};

// A token that was chosen, and the likeliest, by log-probability: logit - lse in f32, lse the op's
// over the model's own logits, in the order of the run's kernel. Equal ones stand by id.
struct TokenScore {
  int32_t token = 0;
  float log_probability = 0;
  std::vector<std::pair<int32_t, float>> best;
};

// A text to be made. emit(context, piece) is called for every token's text, in UTF-8, but holds
// back what is a part of a character and what may turn out to be the beginning of a stop text.
struct TextRequest {
  std::string_view prompt;
  int64_t max_tokens = 0;
  SamplerConfig sampler;
  void (*emit)(void* context, std::string_view piece) = nullptr;
  void* context = nullptr;
  std::span<const int32_t> ids = {};               // the prompt as ids; then `prompt` is not read
  const std::vector<std::string>* stop = nullptr;  // instead of GenerateEnd's
  // A turn of a chat: special tokens are no part of what is said, and what the cache holds of it
  // stays for the next turn, of which only that is read which does not begin alike. It has the bits
  // of one that is read anew, but where reading and decoding have other bits (serve/runner.h).
  bool is_turn = false;
  int64_t n_best = 0;                         // of `scores`
  std::vector<TokenScore>* scores = nullptr;  // gets one a token, if RunnerOptions has has_lse
};

// Figures of texts made together; prefill_ms and decode_ms are those of all. Without a cache
// reading for later tokens is decoding.
struct BatchStats {
  double load_ms = 0, prefill_ms = 0, decode_ms = 0;
  int64_t decode_steps = 0;  // in which each text that goes on gets a token
};

class Generator {
 public:
  // Loads ModelFiles; weights are rounded to `dtype`. Error: missing or altered files are named.
  static Result<std::unique_ptr<Generator>> load(const std::string& path,
                                                 const RunnerOptions& options);
  // The same in two steps: what is small (configuration and tokenizer), enough to check a request;
  // then plans, and the weights where they lie in their files: those of another dtype are copied.
  // The content of the files is read and checked with the first tokens.
  static Result<std::unique_ptr<Generator>> open(const std::string& path,
                                                 DType dtype = DType::kF32);
  // Another dtype than open() was given; before prepare(). Error: the family is of f32 alone.
  Status set_dtype(DType dtype);
  DType dtype() const { return dtype_; }
  // Whether the files hold weights in blocks.
  Result<bool> is_quantised() const;
  Status prepare(const RunnerOptions& options);
  // Tokens that a text may reach, of those asked about before prepare(); without any, the
  // context's.
  int64_t longest() const { return longest_ > 0 ? longest_ : config_.max_seqlen; }
  // The bytes that prepare() will take for the cache.
  Result<int64_t> cache_bytes(const RunnerOptions& options) const;
  // Tells what a request will meet: an error if nothing can come of it; a line for people if the
  // context will not hold it; else "".
  // The longest text that was asked about before prepare() decides what the cache holds; without
  // any, the context does. A text's LongRoPE angles are by the tokens that it may reach itself:
  // prepare() notes them for the shortest and the longest one that was asked about.
  Result<std::string> check(std::string_view prompt, int64_t max_tokens, Overflow overflow);
  Result<std::string> check(std::span<const int32_t> prompt, int64_t max_tokens, Overflow overflow);

  // Makes the texts, as many at once as the batch holds, in their order; stats has one entry each.
  // When a context is full and slides, its second half is read in again and generation goes on; of
  // a prompt that is longer, the end counts.
  Status generate(std::span<const TextRequest> requests, std::span<GenerateStats> stats,
                  BatchStats& all, const GenerateEnd& end = {});
  // One text.
  Status generate(const TextRequest& request, GenerateStats& stats, const GenerateEnd& end = {});
  // By hand: forget everything; go on with these tokens; the logits of the last one.
  void reset() { schedule_.pages.give_back(by_hand_); }
  Status feed(std::span<const int32_t> tokens);
  std::span<const float> logits() const { return runner_->logits(0); }

  // Forgets the tokens that turns have left in the cache.
  void forget();

  const ModelConfig& config() const { return config_; }
  const ModelFiles& files() const { return *files_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  int64_t peak_bytes() const { return runner_->peak_bytes(); }
  // Whether some weights are computed on in the blocks that they lie in.
  bool has_blocks() const { return runner_->has_blocks(); }
  std::vector<std::string> notes;  // for people: what the tuner did

 private:
  struct Text;
  struct Made;
  RunnerOptions completed(const RunnerOptions& options) const;
  Result<Text> begin(const TextRequest& request, GenerateStats& stats, const GenerateEnd& end);
  ScheduledText arrival(const Text& text, int64_t id) const;
  int64_t longest(int64_t n_prompt, int64_t max_tokens) const;
  bool is_long(int64_t longest) const;  // of it LongRoPE's long list is
  Status admit(Made& made, const GenerateEnd& end);
  Status take_step(Made& made, const ScheduledStep& step, const GenerateEnd& end);
  void leave(Made& made);
  void keep_beginning(Text& text);
  int32_t choose(Text& text, size_t piece_of_step);
  void take_token(Text& text, size_t piece_of_step, const GenerateEnd& end);
  void place_token(Text& text, const GenerateEnd& end);
  bool is_end_of_text(int32_t token, const GenerateEnd& end) const;

  std::shared_ptr<const ModelFiles> files_;
  std::vector<int64_t> end_of_text_;  // tokens
  ModelConfig config_;
  DType dtype_ = DType::kF32;           // of the weights, whatever the file has
  int64_t shortest_ = 0, longest_ = 0;  // tokens that texts may reach, of those asked about
  bool caches_ = true;                  // else what was read is forgotten after each token
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Runner> runner_;
  BatchSchedule schedule_;  // the cache's pages, and texts under way
  CachedText by_hand_;
  std::vector<int32_t> kept_tokens_;  // of the turn before, and
  CachedText kept_;                   // where the cache has them
  int64_t kept_longest_ = 0;          // tokens that it might reach
  double load_ms_ = 0;
};

}  // namespace tegula
