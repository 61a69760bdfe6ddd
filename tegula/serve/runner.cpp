#include "tegula/serve/runner.h"

#include <set>

#include "tegula/base/algorithm.h"
#include "tegula/base/block_format.h"
#include "tegula/base/round.h"
#include "tegula/base/text.h"
#include "tegula/models/decoder.h"
#include "tegula/models/last_logits.h"
#include "tegula/models/rotary.h"
#include "tegula/ops/math.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/finite_hunt.h"
#include "tegula/serve/map_weights.h"

namespace tegula {

Result<FuncId> build_decoding(Module& module, const ModelConfig& config, const std::string& name,
                              const DecodingShape& shape, DType dtype) {
  const ModelDef* model = TEGULA_TRY(find_model(config.type));
  Builder b(module, name);
  Context c(b, config);
  c.dtype = dtype, c.formats = shape.formats;
  int64_t pages = shape.pages_of_text;
  if (pages == 0) pages = (config.max_seqlen + shape.pages.size - 1) / shape.pages.size;
  const auto ints = [&](const char* of, const Shape& s) { return b.param(of, {DType::kI32, s}); };
  const Shape row = shape.is_one_each ? Shape{shape.tokens, 1} : Shape{1, shape.tokens};
  const Var tokens = ints("tokens", row);
  Decoding d{shape.pages};
  d.ring = shape.pages, d.ring.count = shape.ring_pages;
  d.positions = b.param("positions", {DType::kI64, row});
  d.slots = ints("slots", {shape.tokens});
  d.seqlens_k = ints("seqlens_k", {shape.texts});
  d.block_table = ints("block_table", {shape.texts, pages});
  if (shape.ring_pages > 0) {
    d.ring_slots = ints("ring_slots", {shape.tokens});
    d.ring_table = ints("ring_table", {shape.texts, pages});
  }
  if (short_context(config) > 0) d.is_long = ints("is_long", row);
  if (!shape.is_one_each) {
    d.cu_seqlens_q = ints("cu_seqlens_q", {TEGULA_TRY(add(shape.texts, Dim(1)))});
    d.last = ints("last", {shape.texts});
  }
  c.decoding = &d;
  const auto [logits, lse] = last_logits(c, *model, tokens, shape.has_lse);
  b.result("logits", logits);
  if (shape.has_lse) b.result("lse", lse);
  if (shape.finds_best) {
    b.result("best", argmax(logits, 1, false));
    b.result("top", reduce_max(logits, {1}));
  }
  return b.finish_into_module();
}

Runner::Runner(std::shared_ptr<const ModelFiles> files, const ModelConfig& config,
               const RunnerOptions& options)
    : files_(std::move(files)),
      config_(config),
      options_(options),
      pages_of_text_(pages_of_text(config, options)),
      short_context_(short_context(config)),
      ring_(ring_of(config, options)),
      rank_(options.device ? std::make_unique<Rank>(*options.device)
                           : std::make_unique<Rank>(options.threads)),
      store_(*rank_) {
  options_.chunk = chunk_of(config, options);
  const auto t = static_cast<size_t>(std::max(most_read(), options_.batch));
  const auto n = static_cast<size_t>(options_.batch);
  tokens_.resize(t), slots_.resize(t), positions_.resize(t), is_long_.resize(t);
  seqlens_k_.resize(n), last_.resize(n), cu_seqlens_q_.resize(n + 1);
  block_table_.resize(n * static_cast<size_t>(pages_of_text_));
  if (ring_.pages > 0) ring_slots_.resize(t), ring_table_.resize(block_table_.size());
  logits_.resize(n * static_cast<size_t>(config.vocab_size));
  best_.resize(n), lse_.resize(n);
}

// On a device kernels may cut keys by the bound: there all texts have the context's.
int64_t pages_of_text(const ModelConfig& config, const RunnerOptions& options) {
  const bool is_less = options.longest > 0 && options.device == nullptr;
  const int64_t most = is_less ? std::min(options.longest, config.max_seqlen) : config.max_seqlen;
  return (most + kPageSize - 1) / kPageSize;
}

// A window saves memory of a long text only if the text is read in chunks.
int64_t chunk_of(const ModelConfig& config, const RunnerOptions& options) {
  if (options.chunk > 0) return options.chunk;
  const int64_t all = std::min(pages_of_text(config, options) * kPageSize, config.max_seqlen);
  if (!options.caches) return all * options.batch;
  const int64_t window = options.device == nullptr ? widest_window(config) : 0;
  return window > 0 && window + kWindowChunk < all ? kWindowChunk : all;
}

PageRing ring_of(const ModelConfig& config, const RunnerOptions& options) {
  const int64_t window = widest_window(config), all = pages_of_text(config, options);
  if (window == 0 || options.device != nullptr || !options.caches) return {};
  const int64_t chunk = std::min(chunk_of(config, options), config.max_seqlen);
  const int64_t pages = (window + chunk - 1 + kPageSize - 1) / kPageSize;
  if (pages >= all) return {};
  return {window, pages, pages * options.batch};
}

Result<int64_t> cache_bytes(const ModelConfig& config, const RunnerOptions& options) {
  Module module;
  const int64_t pages = pages_of_text(config, options) * options.batch;
  const DecodingShape shape{.pages = {pages, kPageSize, options.cache_dtype},
                            .ring_pages = ring_of(config, options).count};
  const FuncId f = TEGULA_TRY(build_decoding(module, config, "decode", shape, options.dtype));
  int64_t bytes = 0;
  for (const Param& p : module[f].params)
    if (p.role == Role::kState) bytes += module[f].type(p.value).bytes();
  return bytes;
}

Result<std::unique_ptr<Runner>> Runner::create(std::shared_ptr<const ModelFiles> files,
                                               const ModelConfig& config,
                                               const RunnerOptions& options) {
  std::unique_ptr<Runner> r(new Runner(std::move(files), config, options));
  BlockFormats dequantised;
  r->weights_ = TEGULA_TRY(map_weights(*r->files_, config, options.dtype, *r->rank_, r->store_,
                                       r->formats_, &dequantised));
  if (options.device != nullptr || options.dtype != DType::kF32) r->note_on(dequantised);
  TEGULA_TRY(r->make_plans());
  return r;
}

void Runner::note_on(const BlockFormats& dequantised) {
  std::set<std::string_view> names;
  for (const auto& [weight, format] : dequantised) names.insert(layout_of(format).name);
  if (!names.empty())
    notes.push_back(cat(dequantised.size(), " weights in blocks (", joined(names),
                        ") are dequantised to ", options_.dtype));
}

Result<std::unique_ptr<Session>> Runner::make_session(const char* name, bool is_one_each) {
  CompileOptions options;
  options.tune = options_.tune, options.superopt_seconds = options_.superopt_seconds;
  options.rules = options_.rules;
  options.plan.target =
      rank_->device ? rank_->device->target() : Target::this_cpu(rank_->pool.n_threads());
  options.passes.pass.is_inference = true;
  options.passes.pass.quantises_rows = options_.quantises_activations;
  // A GPU's orders are a text's own without shards.
  options.passes.pass.mode = rank_->device ? Mode::kFast : options_.mode;
  auto module = std::make_shared<Module>();
  const int64_t batch = options_.batch;
  DecodingShape shape{
      .is_one_each = is_one_each,
      .pages = {n_pages(), kPageSize, options_.cache_dtype, rank_->device != nullptr},
      .pages_of_text = pages_of_text_,
      .ring_pages = ring_.count,
      .finds_best = finds_best(),
      .has_lse = options_.has_lse,
      .formats = &formats_};
  if (batch > 1 && (is_one_each || !has_state_)) shape.texts = module->add_symbol("texts", batch);
  shape.tokens = is_one_each ? shape.texts : module->add_symbol("n_new", most_read());
  const FuncId f = TEGULA_TRY(build_decoding(*module, config_, name, shape, options_.dtype));
  const Compiled c = TEGULA_TRY(compile(module, f, options));
  notes.insert(notes.end(), c.notes.begin(), c.notes.end());
  auto s = TEGULA_TRY(Session::create(c.plan, *rank_));
  s->capture(options_.captures);
  TEGULA_TRY(s->bind_store(store_));
  const std::pair<const char*, void*> parameters[] = {{"tokens", tokens_.data()},
                                                      {"positions", positions_.data()},
                                                      {"slots", slots_.data()},
                                                      {"seqlens_k", seqlens_k_.data()},
                                                      {"cu_seqlens_q", cu_seqlens_q_.data()},
                                                      {"last", last_.data()},
                                                      {"block_table", block_table_.data()}};
  for (const auto& [parameter, data] : parameters)
    if (!is_one_each || (data != cu_seqlens_q_.data() && data != last_.data()))
      TEGULA_TRY(s->bind_input(parameter, data));
  if (short_context_ > 0) TEGULA_TRY(s->bind_input("is_long", is_long_.data()));
  if (ring_.pages > 0) {
    TEGULA_TRY(s->bind_input("ring_slots", ring_slots_.data()));
    TEGULA_TRY(s->bind_input("ring_table", ring_table_.data()));
  }
  return s;
}

Status Runner::make_plans() {
  has_state_ = TEGULA_TRY(find_model(config_.type))->has_state;
  prefill_ = TEGULA_TRY(make_session("prefill", false));
  decode_ = TEGULA_TRY(make_session("decode", true));
  return {};
}

Status Runner::check(std::span<const Piece> pieces, int64_t most_tokens) {
  int64_t all = 0;
  for (const Piece& p : pieces) {
    const auto n = static_cast<int64_t>(p.tokens.size());
    all += n;
    if (n == 0 || p.first + n > config_.max_seqlen)
      return invalid_argument(
          cat(n, " tokens after ", p.first, " do not fit the context of ", config_.max_seqlen));
    const auto room = static_cast<int64_t>(p.pages.size()) * kPageSize;
    if (p.first + n > room)
      return invalid_argument(cat(n, " tokens after ", p.first, " do not fit ", p.pages.size(),
                                  " pages of ", kPageSize));
    const int64_t in_ring = std::min(ring_.pages, (p.first + n + kPageSize - 1) / kPageSize);
    if (static_cast<int64_t>(p.ring.size()) < in_ring)
      return invalid_argument(cat(p.first + n, " tokens need ", in_ring,
                                  " pages of layers with a window, and have ", p.ring.size()));
    const auto are_pages = [](std::span<const int32_t> some, int64_t all) -> Status {
      for (const int32_t page : some)
        if (page < 0 || page >= all)
          return invalid_argument(cat("page ", page, " is not one of the cache's ", all));
      return {};
    };
    TEGULA_TRY(are_pages(p.pages, n_pages()));
    TEGULA_TRY(are_pages(p.ring, ring_.count));
    for (const int32_t id : p.tokens)
      if (id < 0 || id >= config_.vocab_size)
        return invalid_argument(cat("token ", id, " is not in the vocabulary of ",
                                    config_.vocab_size, " that the model has"));
  }
  if (static_cast<int64_t>(pieces.size()) > options_.batch || all > most_tokens)
    return invalid_argument(cat(pieces.size(), " texts with ", all, " tokens: there is room for ",
                                options_.batch, " with ", most_tokens));
  if (is_checked_) return {};
  TEGULA_TRY(files_->verify_weights());
  TEGULA_TRY(weights_->check(rank_->pool));
  is_checked_ = true;
  return {};
}

// The plans' parameters for the pieces. A padded one goes on to its last page's end, with tokens
// that none of those asked for sees: so a device's steps are made ready, and captured, once a page
// and not once a token.
void Runner::lay_out(std::span<const Piece> pieces, bool pads) {
  constexpr auto kSize = static_cast<int32_t>(kPageSize);
  const auto ring_page = [&](std::span<const int32_t> ring, int64_t page) {
    return ring[static_cast<size_t>(page % ring_.pages)];
  };
  size_t t = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto& [pages, first, tokens, longest, ring] = pieces[i];
    const bool is_long = longest == 0 || longest > short_context_;
    const size_t begin = t;
    cu_seqlens_q_[i] = static_cast<int32_t>(t);
    int64_t at = first;
    for (const int32_t token : tokens) {
      const auto page = pages[static_cast<size_t>(at / kPageSize)];
      const auto row = static_cast<int32_t>(at % kPageSize);
      if (ring_.pages > 0) ring_slots_[t] = ring_page(ring, at / kPageSize) * kSize + row;
      tokens_[t] = token, positions_[t] = at;
      slots_[t++] = page * kSize + row;
      ++at;
    }
    last_[i] = static_cast<int32_t>(t) - 1;
    for (const int64_t end = pads ? std::min(round_up(at, kPageSize), config_.max_seqlen) : at;
         at < end; ++at, ++t)
      tokens_[t] = 0, positions_[t] = at, slots_[t] = slots_[t - 1] + 1;
    std::fill(is_long_.begin() + static_cast<int64_t>(begin),
              is_long_.begin() + static_cast<int64_t>(t), is_long ? 1 : 0);
    seqlens_k_[i] = static_cast<int32_t>(at);
    const auto row = block_table_.begin() + static_cast<int64_t>(i) * pages_of_text_;
    const auto n = std::min(static_cast<int64_t>(pages.size()), pages_of_text_);
    std::fill_n(std::copy_n(pages.begin(), n, row), pages_of_text_ - n, 0);
    for (int64_t j = 0; ring_.pages > 0 && j < pages_of_text_; ++j)
      ring_table_[i * static_cast<size_t>(pages_of_text_) + static_cast<size_t>(j)] =
          j * kPageSize < at ? ring_page(ring, j) : 0;
  }
  cu_seqlens_q_[pieces.size()] = static_cast<int32_t>(t);
}

Status Runner::run(Session& session, std::span<const Piece> pieces, bool wants_logits) {
  const bool reads = &session == prefill_.get();
  lay_out(pieces, reads && pads());
  const auto n = static_cast<int64_t>(pieces.size());
  extents_.clear(), bad_piece_ = -1;
  if (options_.batch > 1 && !(reads && has_state_)) extents_.push_back(n);
  if (reads) extents_.push_back(cu_seqlens_q_[pieces.size()]);
  TEGULA_TRY(session.run(extents_));
  if (wants_logits || !finds_best()) {
    const auto* rows = TEGULA_TRY(session.fetch("logits")).as<float>();
    std::copy_n(rows, n * config_.vocab_size, logits_.begin());
  }
  if (options_.has_lse) std::copy_n(TEGULA_TRY(session.fetch("lse")).as<float>(), n, lse_.begin());
  if (finds_best()) std::copy_n(TEGULA_TRY(session.fetch("best")).as<int32_t>(), n, best_.begin());
  return check_logits(session, pieces, wants_logits);
}

Status Runner::check_logits(Session& session, std::span<const Piece> pieces, bool wants_logits) {
  const bool are_here = wants_logits || !finds_best();
  // A NaN is the largest of its row, as it is for argmax.
  const float* top = are_here ? nullptr : TEGULA_TRY(session.fetch("top")).as<float>();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Type row{DType::kF32, {are_here ? config_.vocab_size : 1}};
    const float* numbers = are_here ? logits(i).data() : top + i;
    if (are_finite(contiguous_ref(const_cast<float*>(numbers), row))) continue;
    bad_piece_ = static_cast<int64_t>(i);
    return not_finite(session, pieces[i]);
  }
  return {};
}

// The step is run once more, and looked at: it writes what it wrote.
Error Runner::not_finite(Session& session, const Piece& piece) {
  const DType dtype = options_.dtype;
  NotFinite fault;
  {
    FiniteHunt hunt(session);
    (void)session.run(extents_);
    fault = hunt.found();
  }
  std::string message =
      cat("the logits after token ", piece.first + static_cast<int64_t>(piece.tokens.size()),
          " of the text are not finite");
  if (fault.is_found()) message += cat(": ", fault.text());
  if (dtype == DType::kF16)
    message += "; f16 ends at 65504, and bf16 and f32 reach 3.4e38: --dtype bf16 or --dtype f32";
  else if (!fault.weight.empty())
    message += cat("; it is so in '", files_->path(), "': get it anew");
  else
    message += cat("; no --dtype reaches further than ", dtype,
                   ": the weights have grown too large, as in a training that diverged");
  return invalid_argument(message);
}

std::span<const float> Runner::logits(size_t i) const {
  const auto v = static_cast<size_t>(config_.vocab_size);
  return std::span(logits_).subspan(i * v, v);
}

Status Runner::decode(std::span<const Piece> pieces, bool wants_logits) {
  for (const Piece& p : pieces)
    if (p.tokens.size() != 1)
      return invalid_argument(cat("a text decodes one token, not ", p.tokens.size()));
  TEGULA_TRY(check(pieces, options_.batch));
  return run(*decode_, pieces, wants_logits);
}

Status Runner::read(std::span<const Piece> pieces, bool wants_logits) {
  if (has_state_ && pieces.size() > 1)
    return invalid_argument(cat(pieces.size(), " texts at once: this model reads one"));
  TEGULA_TRY(check(pieces, options_.chunk));
  return run(*prefill_, pieces, wants_logits);
}

}  // namespace tegula
