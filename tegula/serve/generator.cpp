#include "tegula/serve/generator.h"

#include <map>

#include "tegula/base/clock.h"
#include "tegula/base/range.h"
#include "tegula/models/rotary.h"
#include "tegula/serve/stop_texts.h"
#include "tegula/text/detokenizer.h"

namespace tegula {

namespace {

Error empty_prompt() {
  return invalid_argument("the prompt is empty: give at least one character, e.g. --prompt ' '");
}

Error too_long(int64_t n_tokens, int64_t context) {
  return invalid_argument(cat("the prompt has ", n_tokens, " tokens and the model's context is ",
                              context, ": shorten it, or give --overflow slide, which leaves out ",
                              "its beginning"));
}
}  // namespace

// A text that is being made.
struct Generator::Text {
  const TextRequest* request;
  GenerateStats* stats;
  std::vector<int32_t> all;  // the prompt, and what came
  StopTexts stops;
  Detokenizer detokenizer;
  CachedText cached = {};      // of an arrival: what the turn before has left
  int64_t first = 0;           // of `all`: what the cache begins with
  int64_t n_cached = 0;        // tokens
  bool is_read_again = false;  // from `first` on: the cache is full, or there is none
  bool is_done = false;
  int64_t longest = 0;  // tokens that it may reach
  TokensBefore before = {};
};

// Texts that are made together: those that have begun, by their place among the requests.
struct Generator::Made {
  std::span<const TextRequest> requests;
  std::span<GenerateStats> stats;
  BatchStats& all;
  std::map<int64_t, Text> texts = {};
  std::vector<ScheduledText> arrivals = {};  // of them, those that the batch has not taken yet
  size_t n_begun = 0;
};

Result<std::unique_ptr<Generator>> Generator::load(const std::string& path,
                                                   const RunnerOptions& options) {
  auto g = TEGULA_TRY(open(path, options.dtype));
  TEGULA_TRY(g->prepare(options));
  return g;
}

Result<std::unique_ptr<Generator>> Generator::open(const std::string& path, DType dtype) {
  const Stopwatch watch;
  std::unique_ptr<Generator> g(new Generator());
  g->files_ = TEGULA_TRY(ModelFiles::open(path, Check::kAllButTensors));
  g->config_ = TEGULA_TRY(load_model_config(*g->files_));
  TEGULA_TRY(check_predicts(*TEGULA_TRY(find_model(g->config_.type)), "generate"));
  TEGULA_TRY(g->set_dtype(dtype));
  std::string note;
  g->tokenizer_ =
      std::make_unique<Tokenizer>(TEGULA_TRY(load_model_tokenizer(*g->files_, g->config_, note)));
  if (!note.empty()) g->notes.push_back(std::move(note));
  g->end_of_text_ = TEGULA_TRY(g->files_->end_of_text());
  g->load_ms_ = watch.ms();
  return g;
}

Status Generator::set_dtype(DType dtype) {
  const ModelDef* model = TEGULA_TRY(find_model(config_.type));
  if (dtype != DType::kF32 && !model->f32_only.empty())
    return unsupported(cat(model->f32_only, ": leave out --dtype ", dtype));
  dtype_ = dtype;
  return {};
}

Result<bool> Generator::is_quantised() const {
  bool is = false;
  TEGULA_TRY(files_->weights()).for_each([&](std::string_view, const WeightFiles::Found& found) {
    is = is || (found.stored != nullptr && found.stored->format);
  });
  return is;
}

RunnerOptions Generator::completed(const RunnerOptions& options) const {
  RunnerOptions o = options;
  o.dtype = dtype_;
  if (o.longest == 0) o.longest = longest();
  return o;
}

Result<int64_t> Generator::cache_bytes(const RunnerOptions& options) const {
  return tegula::cache_bytes(config_, completed(options));
}

Status Generator::prepare(const RunnerOptions& options) {
  const Stopwatch watch;
  const RunnerOptions o = completed(options);
  caches_ = o.caches;
  const int64_t shortest = shortest_ > 0 ? shortest_ : config_.max_seqlen;
  if (is_long(shortest) != is_long(longest())) notes.push_back(note_on_rotary(config_, shortest));
  if (std::string note = note_on_rotary(config_, longest()); !note.empty())
    notes.push_back(std::move(note));
  runner_ = TEGULA_TRY(Runner::create(files_, config_, o));
  schedule_ = {runner_->pages(), {}};
  notes.insert(notes.end(), runner_->notes.begin(), runner_->notes.end());
  load_ms_ += watch.ms();
  return {};
}

Status Generator::feed(std::span<const int32_t> tokens) {
  const bool reads = tokens.size() > 1;
  for (size_t done = 0; done < tokens.size();) {
    const auto chunk = static_cast<size_t>(runner_->limits().chunk);
    const auto part = tokens.subspan(done, std::min(chunk, tokens.size() - done));
    const int64_t first = by_hand_.n_tokens, n = first + static_cast<int64_t>(part.size());
    TEGULA_TRY(schedule_.pages.grow(by_hand_, n));
    const Runner::Piece piece[] = {{by_hand_.pages, first, part, 0, by_hand_.ring}};
    TEGULA_TRY(reads ? runner_->read(piece) : runner_->decode(piece));
    by_hand_.n_tokens = n, done += part.size();
  }
  return {};
}

bool Generator::is_end_of_text(int32_t token, const GenerateEnd& end) const {
  const auto has = [&](const auto& ids) { return contains(ids, token); };
  return end.at_end_of_text && (has(end_of_text_) || has(end.at_tokens));
}

bool Generator::is_long(int64_t longest) const {
  const int64_t n = short_context(config_);
  return n > 0 && longest > n;
}

int64_t Generator::longest(int64_t n_prompt, int64_t max_tokens) const {
  return std::min(config_.max_seqlen, n_prompt + std::min(max_tokens, config_.max_seqlen));
}

Result<std::string> Generator::check(std::string_view prompt, int64_t max_tokens,
                                     Overflow overflow) {
  return check(TEGULA_TRY(tokenizer_->encode(prompt)), max_tokens, overflow);
}

Result<std::string> Generator::check(std::span<const int32_t> prompt, int64_t max_tokens,
                                     Overflow overflow) {
  const auto n = static_cast<int64_t>(prompt.size());
  if (n == 0) return empty_prompt();
  const int64_t context = config_.max_seqlen;
  const int64_t most = longest(n, max_tokens);
  longest_ = std::max(longest_, most);
  shortest_ = shortest_ == 0 ? most : std::min(shortest_, most);
  // The last token is never read.
  if (n + max_tokens - 1 <= context) return std::string();
  if (overflow == Overflow::kStop) {
    if (n > context) return too_long(n, context);
    return cat("the prompt has ", n, " tokens and the model's context ", context, ": at most ",
               context - n + 1, " of the ", max_tokens, " new ones fit");
  }
  return cat("the prompt has ", n, " tokens and ", max_tokens,
             " new ones are asked for, but the model's context is ", context,
             n > context ? ": the beginning of the prompt is left out, and" : ":",
             " whenever it is full the older half is forgotten (--overflow stop ends there)");
}

Result<Generator::Text> Generator::begin(const TextRequest& request, GenerateStats& stats,
                                         const GenerateEnd& end) {
  std::vector<int32_t> ids(request.ids.begin(), request.ids.end());
  if (ids.empty()) ids = TEGULA_TRY(tokenizer_->encode(request.prompt));
  Text t{&request, &stats, std::move(ids), StopTexts(request.stop ? request.stop : &end.stop),
         Detokenizer(*tokenizer_, request.is_turn)};
  if (t.all.empty()) return empty_prompt();
  stats = {.prompt_tokens = static_cast<int64_t>(t.all.size())};
  t.longest = longest(stats.prompt_tokens, request.max_tokens);
  stats.load_ms = load_ms_;
  // A prompt longer than the context: its end counts.
  const auto room = static_cast<size_t>(config_.max_seqlen);
  if (t.all.size() > room && end.overflow == Overflow::kStop)
    return too_long(stats.prompt_tokens, config_.max_seqlen);
  t.first = static_cast<int64_t>(t.all.size() - std::min(t.all.size(), room));
  // By LongRoPE's other list every key is another.
  const bool has_its_angles = is_long(t.longest) == is_long(kept_longest_);
  if (request.is_turn && t.first == 0 && has_its_angles) keep_beginning(t);
  forget();
  stats.kept_tokens = t.n_cached;
  return t;
}

// Keeps the tokens that this turn has in common with the one before. Its last token is read, since
// what follows is drawn from its logits. A state has no beginning: it is kept whole, or not; nor is
// what layers with a window have forgotten.
void Generator::keep_beginning(Text& t) {
  const size_t most = std::min(kept_tokens_.size(), t.all.size() - 1);
  const auto differ = std::mismatch(
      kept_tokens_.begin(), kept_tokens_.begin() + static_cast<ptrdiff_t>(most), t.all.begin());
  const auto n = differ.first - kept_tokens_.begin();
  if (runner_->has_state() && static_cast<size_t>(n) != kept_tokens_.size()) return;
  if (!schedule_.pages.holds(kept_, n)) return;
  schedule_.pages.shrink(kept_, n);
  t.cached = std::exchange(kept_, {}), t.n_cached = n;
}

void Generator::forget() {
  kept_tokens_.clear();
  schedule_.pages.give_back(kept_);
}

ScheduledText Generator::arrival(const Text& t, int64_t id) const {
  const int64_t n = static_cast<int64_t>(t.all.size()) - t.first;
  const int64_t room = config_.max_seqlen;
  // The last token is never read.
  const int64_t most = n + std::clamp<int64_t>(t.request->max_tokens, 1, room) - 1;
  return {.id = id,
          .n_unread = n - t.cached.n_tokens,
          .most_tokens = std::min(most, room),
          .cached = t.cached};
}

// Whether a text's logits are looked at, and not only the largest.
static bool wants_logits(const TextRequest& r) {
  return r.sampler.temperature > 0 || r.sampler.adjusts() || r.scores != nullptr;
}

int32_t Generator::choose(Text& t, size_t piece) {
  const TextRequest& r = *t.request;
  if (runner_->finds_best() && !wants_logits(r)) return runner_->best(piece);
  const auto position = static_cast<uint64_t>(t.stats->new_tokens);
  const std::span<const float> logits = runner_->logits(piece);
  if (r.sampler.adjusts()) t.before.follow(t.all, static_cast<size_t>(t.stats->prompt_tokens));
  const int32_t token = sample(logits, r.sampler, position, t.before);
  if (r.scores == nullptr) return token;
  const auto score = [&](int32_t id) { return logits[id] - runner_->lse(piece); };
  TokenScore& scored = r.scores->emplace_back(TokenScore{token, score(token), {}});
  // The first of equal logits.
  for (int32_t id = 0; r.n_best > 0 && id < static_cast<int32_t>(logits.size()); ++id) {
    auto& best = scored.best;
    if (static_cast<int64_t>(best.size()) == r.n_best) {
      if (score(id) <= best.back().second) continue;
      best.pop_back();
    }
    const auto is_larger = [](const auto& a, const auto& b) { return a.second > b.second; };
    const std::pair<int32_t, float> one{id, score(id)};
    best.insert(std::upper_bound(best.begin(), best.end(), one, is_larger), one);
  }
  return token;
}

// Draws the next token, or ends the text.
void Generator::take_token(Text& t, size_t piece_of_step, const GenerateEnd& end) {
  t.is_done = true;
  if (t.stats->new_tokens == t.request->max_tokens) return;
  const int32_t token = choose(t, piece_of_step);
  if (is_end_of_text(token, end)) {
    t.stats->ended = Ended::kEndOfText;
    return;
  }
  t.all.push_back(token);
  ++t.stats->new_tokens;
  const bool is_said = !t.request->is_turn || !tokenizer_->is_special(token);
  const std::string_view piece = t.stops.add(is_said ? t.detokenizer.add(token) : "");
  if (!piece.empty()) t.request->emit(t.request->context, piece);
  if (t.stops.is_found()) {
    t.stats->ended = Ended::kStopText;
    return;
  }
  if (t.stats->new_tokens == t.request->max_tokens) return;
  if (end.is_enough && end.is_enough()) {
    t.stats->ended = Ended::kEnough;
    return;
  }
  t.is_done = false;
  place_token(t, end);
}

// Where the token that was drawn goes: behind the others, or, when the context is full, behind its
// second half, which is read again.
void Generator::place_token(Text& t, const GenerateEnd& end) {
  t.is_read_again = !caches_;
  if (t.n_cached < config_.max_seqlen) return;
  if (end.overflow == Overflow::kSlide) {
    const int64_t half = std::max<int64_t>(config_.max_seqlen / 2, 1);
    t.first = static_cast<int64_t>(t.all.size()) - half;
    t.is_read_again = true;
  } else {
    t.stats->ended = Ended::kContext;
    t.is_done = true;
  }
}

// Begins as many texts as the batch may have places for.
Status Generator::admit(Made& made, const GenerateEnd& end) {
  const auto places = static_cast<size_t>(runner_->limits().batch);
  while (made.n_begun < made.requests.size() && made.texts.size() < places) {
    const size_t i = made.n_begun++;
    Text t = TEGULA_TRY(begin(made.requests[i], made.stats[i], end));
    made.arrivals.push_back(arrival(t, static_cast<int64_t>(i)));
    made.texts.emplace(static_cast<int64_t>(i), std::move(t));
  }
  return {};
}

// Runs a step, and draws a token of each text that has read all it knows.
Status Generator::take_step(Made& made, const ScheduledStep& step, const GenerateEnd& end) {
  const Stopwatch watch;
  std::vector<Runner::Piece> pieces;
  bool decodes = !step.reads, draws = false;
  for (const auto& p : step.pieces) {
    const Text& t = made.texts.at(p.id);
    draws = draws || wants_logits(*t.request);
    const auto from = static_cast<size_t>(t.first + p.first);
    const CachedText& cached = schedule_.find(p.id)->cached;
    pieces.push_back({cached.pages, p.first,
                      std::span(t.all).subspan(from, static_cast<size_t>(p.n_tokens)), t.longest,
                      cached.ring});
    decodes = decodes || (!caches_ && t.stats->new_tokens > 0);
  }
  Status ran = step.reads ? runner_->read(pieces, draws) : runner_->decode(pieces, draws);
  if (!ran.ok()) {
    Error e = std::move(ran).error();
    const int64_t bad = runner_->bad_piece();
    if (bad >= 0 && made.requests.size() > 1)
      e.message =
          cat("text ", step.pieces[bad].id + 1, " of ", made.requests.size(), ": ", e.message);
    return e;
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto& p = step.pieces[i];
    Text& t = made.texts.at(p.id);
    t.n_cached = p.first + p.n_tokens;
    if (p.is_last) take_token(t, i, end);
  }
  (decodes ? made.all.decode_ms : made.all.prefill_ms) += watch.ms();
  made.all.decode_steps += decodes ? 1 : 0;
  return {};
}

// Texts that are done go, and those whose context is full begin anew.
void Generator::leave(Made& made) {
  for (auto& [id, t] : made.texts) {
    if (t.is_read_again) {
      schedule_.read_again(id, static_cast<int64_t>(t.all.size()) - t.first);
      t.is_read_again = false;
    }
    if (!t.is_done) continue;
    if (!t.stops.is_found()) {
      std::string rest(t.stops.add(t.detokenizer.rest()));
      rest += t.stops.rest();
      if (!rest.empty()) t.request->emit(t.request->context, rest);
    }
    if (t.request->is_turn && t.first == 0 && caches_) {
      kept_tokens_.assign(t.all.begin(), t.all.begin() + t.n_cached);
      kept_ = std::exchange(schedule_.find(id)->cached, {});
      kept_longest_ = t.longest;
    }
    t.stats->prefill_ms = made.all.prefill_ms, t.stats->decode_ms = made.all.decode_ms;
    schedule_.end(id);
  }
  std::erase_if(made.texts, [](const auto& t) { return t.second.is_done; });
}

Status Generator::generate(std::span<const TextRequest> requests, std::span<GenerateStats> stats,
                           BatchStats& all, const GenerateEnd& end) {
  all.load_ms = load_ms_;
  Made made{requests, stats, all};
  const auto run = [&]() -> Status {
    for (;;) {
      TEGULA_TRY(admit(made, end));
      ScheduledStep step =
          TEGULA_TRY(next_step(std::move(schedule_), made.arrivals, runner_->limits()));
      schedule_ = std::move(step.after);
      made.arrivals.erase(made.arrivals.begin(), made.arrivals.begin() + step.n_admitted);
      if (step.pieces.empty()) return {};
      TEGULA_TRY(take_step(made, step, end));
      leave(made);
    }
  };
  const Status st = run();
  // After an error the next texts find all pages free.
  if (!st.ok()) schedule_ = {runner_->pages(), {}}, by_hand_ = {}, kept_ = {}, kept_tokens_ = {};
  return st;
}

Status Generator::generate(const TextRequest& request, GenerateStats& stats,
                           const GenerateEnd& end) {
  BatchStats all;
  return generate({&request, 1}, {&stats, 1}, all, end);
}

}  // namespace tegula
