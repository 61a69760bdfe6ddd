// Runner: a model's plans over one cache of pages, from tokens to logits.
//
// Who calls says in which pages a text's tokens lie (serve/schedule.h). Two plans share the weights
// and the cache. `read` takes the next tokens of some texts, packed
// into one row (prefill, in chunks); `decode` one token of each. What a text gets depends on its
// own tokens alone, bit by bit: not on its companions, the pages it has, nor how its tokens are cut
// into calls of one kind. Tokens that were given are read, those that were drawn are decoded: on
// processors with AMX the two differ in bf16 (docs/design.md, "Numeric order").
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/models/checkpoint.h"
#include "tegula/models/model.h"
#include "tegula/passes/pass.h"
#include "tegula/runtime/session.h"
#include "tegula/runtime/tuner.h"
#include "tegula/serve/schedule.h"

namespace tegula::superopt {
class RuleSet;
}

namespace tegula {

inline constexpr int64_t kPageSize = 64;  // of the cache: a block of keys, read where it lies
inline constexpr int64_t kWindowChunk = 512;

struct RunnerOptions {
  int threads = 0;           // 0: all
  Device* device = nullptr;  // where the model runs; null: on the CPU
  bool captures = true;      // a device's steps are one graph (runtime/device_steps.h)
  int64_t batch = 1;
  // Tokens that are read at once, at most; 0: the context, where layers have a window kWindowChunk;
  // all texts' without a cache.
  int64_t chunk = 0;
  bool caches = true;   // false: for a token all of its text is read again, as without a KV cache
  int64_t longest = 0;  // tokens that a text may reach, of which the cache has room; 0: the context
  DType dtype = DType::kF32;
  Mode mode = Mode::kExact;
  // Where weights lie in blocks, products are of activations in bytes, summed exactly; else of f32.
  bool quantises_activations = true;
  TuneOptions tune;
  double superopt_seconds = 0;  // CompileOptions
  std::shared_ptr<const superopt::RuleSet> rules;
  std::optional<DType> cache_dtype = {};  // of keys and values; none: dtype
  bool has_lse = false;                   // what log-probabilities need is computed, too
};

// A decoding function's shape: t tokens of n texts, one of each or some in a row.
struct DecodingShape {
  Dim tokens = 1, texts = 1;
  bool is_one_each = true;
  CachePages pages;
  int64_t pages_of_text = 0;  // at most; 0: those of the context
  int64_t ring_pages = 0;     // of layers with a window; 0: these have pages like the others
  bool finds_best = false;    // also the result best [n]: each row's largest logit
  bool has_lse = false;       // also the result lse [n]: log of the sum of exp of each row's logits
  const BlockFormats* formats = nullptr;  // of weights that lie in blocks; null: none does
};
// Adds it to the module; tokens, [n, 1] or [1, t], and the parameters that Decoding names -> logits
// [n, vocab].
// Weights and activations are `dtype`, and caches unless the pages say another.
Result<FuncId> build_decoding(Module& module, const ModelConfig& config, const std::string& name,
                              const DecodingShape& shape, DType dtype = DType::kF32);

// Pages that a text may have: of the tokens that it may reach, or of the context.
int64_t pages_of_text(const ModelConfig& config, const RunnerOptions& options);
// Tokens that are read at once; the ring in which layers with a window keep what they see and what
// a chunk adds, window + chunk - 1 tokens, unless that is the whole text. On a device there is
// none.
int64_t chunk_of(const ModelConfig& config, const RunnerOptions& options);
PageRing ring_of(const ModelConfig& config, const RunnerOptions& options);
// The bytes of the states that a decoding function carries, the cache above all.
Result<int64_t> cache_bytes(const ModelConfig& config, const RunnerOptions& options);

class Runner {
 public:
  // Maps the weights where they lie in their files (those of another dtype are copied), and makes
  // the plans.
  static Result<std::unique_ptr<Runner>> create(std::shared_ptr<const ModelFiles> files,
                                                const ModelConfig& config,
                                                const RunnerOptions& options);

  struct Piece {
    std::span<const int32_t> pages;      // that the text has, in order
    int64_t first = 0;                   // position of the first of these tokens
    std::span<const int32_t> tokens;     // behind those that the pages hold
    int64_t longest = 0;                 // tokens that the text may reach; 0: the context
    std::span<const int32_t> ring = {};  // pages that it has of layers with a window
  };
  // As many pieces as the batch holds, of different texts, and as many tokens as a chunk; a model
  // with a state reads one piece. logits(i) are those after piece i. If only the largest is wanted
  // and the runner finds it where the model runs, best(i) says which, and logits stay behind. What
  // the files hold is checked with the first tokens. Errors: tokens outside the vocabulary, past
  // the context or outside the pages; more than the plan has room for; files that were altered;
  // logits that are not finite (of a device that finds the largest: that one), with the op and the
  // place in the model where numbers stopped being finite.
  Status read(std::span<const Piece> pieces, bool wants_logits = true);
  // The same with one token each.
  Status decode(std::span<const Piece> pieces, bool wants_logits = true);
  std::span<const float> logits(size_t i) const;
  float lse(size_t i) const { return lse_[i]; }  // with has_lse, of the logits as they are
  bool finds_best() const { return rank_->device != nullptr; }
  int32_t best(size_t i) const { return best_[i]; }
  // In a step that failed since its logits are not finite: the piece; -1: it failed otherwise.
  int64_t bad_piece() const { return bad_piece_; }

  ScheduleLimits limits() const { return {options_.batch, options_.chunk, has_state_}; }
  // The most that weights, cache and plans have taken, where the model runs; mapped files are none.
  int64_t peak_bytes() const { return rank_->memory.peak_bytes(); }
  bool has_state() const { return has_state_; }
  // All pages of the cache.
  PagePool pages() const { return {n_pages(), kPageSize, ring_}; }
  // Whether some weights are computed on in the blocks that they lie in.
  bool has_blocks() const { return !formats_.empty(); }
  std::vector<std::string> notes;  // for people: what the tuner did

 private:
  Runner(std::shared_ptr<const ModelFiles> files, const ModelConfig& config,
         const RunnerOptions& options);
  void note_on(const BlockFormats& dequantised);
  Status make_plans();
  Result<std::unique_ptr<Session>> make_session(const char* name, bool is_one_each);
  int64_t n_pages() const { return options_.batch * pages_of_text_; }
  bool pads() const { return rank_->device && !options_.caches && !has_state_; }
  int64_t most_read() const { return options_.chunk + (pads() ? options_.batch * kPageSize : 0); }
  Status check(std::span<const Piece> pieces, int64_t most_tokens);
  Status run(Session& session, std::span<const Piece> pieces, bool wants_logits);
  void lay_out(std::span<const Piece> pieces, bool pads);
  Status check_logits(Session& session, std::span<const Piece> pieces, bool wants_logits);
  Error not_finite(Session& session, const Piece& piece);

  std::shared_ptr<const ModelFiles> files_;
  ModelConfig config_;
  RunnerOptions options_;
  int64_t pages_of_text_, short_context_;
  PageRing ring_;
  std::unique_ptr<Rank> rank_;
  Store store_;
  std::shared_ptr<ModelWeights> weights_;  // the store borrows from it
  BlockFormats formats_;                   // of those that are computed on as they lie
  bool is_checked_ = false;
  bool has_state_ = false;  // the model: a text at a time is read
  std::unique_ptr<Session> prefill_, decode_;
  // Parameters of both plans, as Decoding names them.
  std::vector<int32_t> tokens_, slots_, seqlens_k_, block_table_, cu_seqlens_q_, last_;
  std::vector<int32_t> ring_slots_, ring_table_;
  std::vector<int64_t> positions_;
  std::vector<int32_t> is_long_;
  std::vector<float> logits_, lse_;
  std::vector<int32_t> best_;
  std::vector<int64_t> extents_;  // of the last run
  int64_t bad_piece_ = -1;
};

}  // namespace tegula
