#include "tegula/serve/generator.h"

#include <algorithm>
#include <chrono>

#include "tegula/io/checkpoint.h"
#include "tegula/io/file.h"
#include "tegula/io/json.h"
#include "tegula/models/checkpoint.h"
#include "tegula/ops/math.h"
#include "tegula/runtime/compile.h"

namespace tegula {

namespace {
using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point t) {
  return std::chrono::duration<double, std::milli>(Clock::now() - t).count();
}

Error empty_prompt() {
  return invalid_argument("the prompt is empty: give at least one character, e.g. --prompt ' '");
}

Error too_long(int64_t n_tokens, int64_t context) {
  return invalid_argument(cat("the prompt has ", n_tokens, " tokens and the model's context is ",
                              context, ": shorten it, or give --overflow slide, which leaves out ",
                              "its beginning"));
}

// The ids that `generation_config.json`, or else `config.json`, calls the end of a text: one
// number, a list of them, or none.
Result<std::vector<int64_t>> end_of_text(const std::string& directory) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string path = join_path(directory, name);
    if (!path_exists(path)) continue;
    const Json json = TEGULA_TRY(Json::parse(TEGULA_TRY(read_file(path)), path));
    const Json* ids = json.find("eos_token_id");
    if (ids == nullptr || ids->is_null()) continue;
    if (const auto* id = ids->as<int64_t>()) return std::vector<int64_t>{*id};
    std::vector<int64_t> all;
    const auto* list = ids->as<Json::Array>();
    for (const Json& each : list ? *list : Json::Array{Json()}) {
      const auto* id = each.as<int64_t>();
      if (id == nullptr)
        return invalid_argument(
            cat(path, ": eos_token_id is ", ids->dump(), ", neither an id nor a list of ids"));
      all.push_back(*id);
    }
    return all;
  }
  return std::vector<int64_t>{};
}

// Text on its way out: the part that may be the beginning of a stop text waits.
class StopTexts {
 public:
  explicit StopTexts(const std::vector<std::string>& stops) : stops_(stops) {}

  // What may be written once `piece` is there; valid until the next call.
  std::string_view add(std::string_view piece) {
    waiting_.erase(0, n_written_);
    waiting_ += piece;
    size_t at = waiting_.npos, held = 0;
    for (const std::string& stop : stops_) {
      at = std::min(at, waiting_.find(stop));
      for (size_t n = std::min(stop.size() - 1, waiting_.size()); n > held; --n)
        if (waiting_.ends_with(std::string_view(stop).substr(0, n))) held = n;
    }
    is_found_ = at != waiting_.npos;
    n_written_ = is_found_ ? at : waiting_.size() - held;
    if (is_found_) waiting_.resize(at);
    return std::string_view(waiting_).substr(0, n_written_);
  }
  bool is_found() const { return is_found_; }
  std::string_view rest() const { return std::string_view(waiting_).substr(n_written_); }

 private:
  const std::vector<std::string>& stops_;
  std::string waiting_;
  size_t n_written_ = 0;  // of waiting_
  bool is_found_ = false;
};
}  // namespace

Result<FuncId> build_decoding(Module& module, const ModelConfig& config, const std::string& name,
                              Dim n_new, Dim length, DType dtype) {
  const ModelDef* model = TEGULA_TRY(find_model(config.type));
  Builder b(module, name);
  Context c(b, config);
  c.dtype = dtype;
  const Var tokens = b.param("tokens", {DType::kI32, {1, n_new}});
  const Decoding decoding{b.param("position", {DType::kI64, {}}), length};
  c.decoding = &decoding;
  b.result("logits", model_last_logits(c, *model, tokens));
  return b.finish_into_module();
}

Result<std::unique_ptr<Generator>> Generator::load(const std::string& path, int threads,
                                                   const TuneOptions& tune, DType dtype) {
  auto g = TEGULA_TRY(open(path, dtype));
  TEGULA_TRY(g->prepare(threads, tune));
  return g;
}

Result<std::unique_ptr<Generator>> Generator::open(const std::string& path, DType dtype) {
  const auto start = Clock::now();
  std::unique_ptr<Generator> g(new Generator());
  g->directory_ = TEGULA_TRY(resolve_model_directory(path, Check::kAllButTensors));
  g->config_ = TEGULA_TRY(load_model_config(g->directory_));
  g->dtype_ = dtype;
  const ModelDef* model = TEGULA_TRY(find_model(g->config_.type));
  if (dtype != DType::kF32 && !model->f32_only.empty())
    return unsupported(cat(model->f32_only, ": leave out --dtype ", dtype));
  std::string note;
  g->tokenizer_ = std::make_unique<Tokenizer>(
      TEGULA_TRY(load_model_tokenizer(g->directory_, g->config_, note)));
  if (!note.empty()) g->notes.push_back(std::move(note));
  g->end_of_text_ = TEGULA_TRY(end_of_text(g->directory_));
  g->load_ms_ = ms_since(start);
  return g;
}

Status Generator::map_weights() {
  std::vector<ModelWeights::Weight> weights;
  const auto specs = TEGULA_TRY(model_weights(config_));
  for (const WeightSpec& w : specs) {
    const TensorRef t = contiguous_ref(nullptr, w.type);
    weights.push_back({w.name, {t.shape, t.shape + t.rank}});
  }
  weights_ = TEGULA_TRY(ModelWeights::open(directory_, config_, weights));
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto& [name, shape] = weights[i];
    const Type type{dtype_, specs[i].type.shape};
    const Box box = Box::whole(shape);
    if (const TensorRef t = weights_->mapped(name, box, dtype_); t.data != nullptr)
      TEGULA_TRY(store_->borrow(name, type, box, t.data, weights_));
    else
      TEGULA_TRY(weights_->copy(name, box, TEGULA_TRY(store_->get(name, type))));
  }
  return {};
}

Status Generator::prepare(int threads, const TuneOptions& tune) {
  const auto start = Clock::now();
  rank_ = std::make_unique<Rank>(threads);
  store_ = std::make_unique<Store>(*rank_);
  TEGULA_TRY(map_weights());
  TEGULA_TRY(compile_plans(tune));
  load_ms_ += ms_since(start);
  return {};
}

Status Generator::compile_plans(const TuneOptions& tune) {
  CompileOptions options;
  options.tune = tune;
  options.plan.target = Target::this_cpu(rank_->pool.n_threads());
  options.passes.pass.is_inference = true;
  auto make = [&](const char* name, bool one) -> Result<std::unique_ptr<Session>> {
    auto module = std::make_shared<Module>();
    const Dim n = one ? Dim(1) : module->add_symbol("n_new", config_.max_seqlen);
    const Dim length = module->add_symbol("length", config_.max_seqlen);
    const FuncId f = TEGULA_TRY(build_decoding(*module, config_, name, n, length, dtype_));
    const Compiled c = TEGULA_TRY(compile(module, f, options));
    notes.insert(notes.end(), c.notes.begin(), c.notes.end());
    auto s = TEGULA_TRY(Session::create(c.plan, *rank_));
    auto st = s->bind_store(*store_);
    if (!st.ok()) return std::move(st).error();
    st = s->bind("position", &position_);
    if (!st.ok()) return std::move(st).error();
    return s;
  };
  prefill_ = TEGULA_TRY(make("prefill", false));
  decode_ = TEGULA_TRY(make("decode", true));
  tokens_.resize(static_cast<size_t>(config_.max_seqlen));
  logits_.resize(static_cast<size_t>(config_.vocab_size));
  for (Session* s : {prefill_.get(), decode_.get()}) {
    auto st = s->bind("tokens", tokens_.data());
    if (!st.ok()) return st;
  }
  return {};
}

Status Generator::feed(std::span<const int32_t> tokens) {
  const auto n = static_cast<int64_t>(tokens.size());
  if (n == 0 || position_ + n > config_.max_seqlen)
    return invalid_argument(
        cat(n, " tokens after ", position_, " do not fit the context of ", config_.max_seqlen));
  for (const int32_t id : tokens)
    if (id < 0 || id >= config_.vocab_size)
      return invalid_argument(cat("token ", id, " is not in the vocabulary of ", config_.vocab_size,
                                  " that the model has"));
  if (!is_checked_) {
    TEGULA_TRY(verify_model_tensors(directory_));
    TEGULA_TRY(weights_->check(rank_->pool));
    is_checked_ = true;
  }
  std::copy(tokens.begin(), tokens.end(), tokens_.begin());
  Session& s = n == 1 ? *decode_ : *prefill_;
  const int64_t length = position_ + n;
  const int64_t both[] = {n, length};
  auto st = s.run(n == 1 ? std::span<const int64_t>(&length, 1) : std::span<const int64_t>(both));
  if (!st.ok()) return st;
  const auto* row = s.result("logits").as<float>();
  std::copy(row, row + config_.vocab_size, logits_.begin());
  position_ += n;
  return {};
}

bool Generator::is_end_of_text(int32_t token) const {
  return std::find(end_of_text_.begin(), end_of_text_.end(), token) != end_of_text_.end();
}

Result<std::string> Generator::check(std::string_view prompt, int64_t max_tokens,
                                     Overflow overflow) const {
  const auto n = static_cast<int64_t>(TEGULA_TRY(tokenizer_->encode(prompt)).size());
  if (n == 0) return empty_prompt();
  const int64_t context = config_.max_seqlen;
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

Status Generator::generate(std::string_view prompt, int64_t max_tokens,
                           const SamplerConfig& sampler, void (*emit)(void*, std::string_view),
                           void* context, GenerateStats& stats, const GenerateEnd& end) {
  std::vector<int32_t> all = TEGULA_TRY(tokenizer_->encode(prompt));
  if (all.empty()) return empty_prompt();
  stats.load_ms = load_ms_;
  stats.prompt_tokens = static_cast<int64_t>(all.size());
  auto start = Clock::now();
  reset();
  // A prompt longer than the context: its end counts.
  const auto room = static_cast<size_t>(config_.max_seqlen);
  const size_t skip = all.size() > room ? all.size() - room : 0;
  if (skip > 0 && end.overflow == Overflow::kStop)
    return too_long(stats.prompt_tokens, config_.max_seqlen);
  TEGULA_TRY(feed(std::span(all).subspan(skip)));
  stats.prefill_ms = ms_since(start);
  start = Clock::now();
  StopTexts stops(end.stop);
  for (int64_t i = 0; i < max_tokens; ++i) {
    const int32_t token = sample(logits_, sampler, static_cast<uint64_t>(i));
    if (end.at_end_of_text && is_end_of_text(token)) {
      stats.ended = Ended::kEndOfText;
      break;
    }
    all.push_back(token);
    ++stats.new_tokens;
    if (const std::string_view piece = stops.add(tokenizer_->token(token)); !piece.empty())
      emit(context, piece);
    if (stops.is_found()) {
      stats.ended = Ended::kStopText;
      break;
    }
    if (i + 1 == max_tokens) break;
    if (end.is_enough && end.is_enough()) {
      stats.ended = Ended::kEnough;
      break;
    }
    if (position_ < config_.max_seqlen) {
      TEGULA_TRY(feed(std::span(all).last(1)));
    } else if (end.overflow == Overflow::kSlide) {
      reset();
      TEGULA_TRY(feed(std::span(all).last(std::max<size_t>(room / 2, 1))));
    } else {
      stats.ended = Ended::kContext;
      break;
    }
  }
  if (const std::string_view rest = stops.rest(); !rest.empty()) emit(context, rest);
  stats.decode_ms = ms_since(start);
  return {};
}

}  // namespace tegula
