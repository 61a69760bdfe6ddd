#include "tegula/serve/generator.h"

#include <algorithm>
#include <chrono>

#include "tegula/io/checkpoint.h"
#include "tegula/models/checkpoint.h"
#include "tegula/ops/math.h"
#include "tegula/runtime/compile.h"

namespace tegula {

namespace {
using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point t) {
  return std::chrono::duration<double, std::milli>(Clock::now() - t).count();
}
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
  const auto start = Clock::now();
  const std::string directory = TEGULA_TRY(resolve_model_directory(path));
  std::unique_ptr<Generator> g(new Generator());
  g->config_ = TEGULA_TRY(load_model_config(directory));
  g->dtype_ = dtype;
  if (dtype != DType::kF32 && g->config_.type == "moe")
    return unsupported(
        cat("a mixture of experts generates in f32 alone, its gates' arithmetic is f32: ",
            "leave out --dtype ", dtype));
  std::string note;
  g->tokenizer_ =
      std::make_unique<Tokenizer>(TEGULA_TRY(load_model_tokenizer(directory, g->config_, note)));
  if (!note.empty()) g->notes.push_back(std::move(note));
  auto st = load_model_weights(directory, g->config_, [&](const WeightSpec& w) {
    return g->store_.get(w.name, {dtype, w.type.shape});
  });
  if (!st.ok()) return std::move(st).error();
  g->pool_ = std::make_unique<ThreadPool>(threads);
  st = g->compile_plans(tune);
  if (!st.ok()) return std::move(st).error();
  g->load_ms_ = ms_since(start);
  return g;
}

Status Generator::compile_plans(const TuneOptions& tune) {
  CompileOptions options;
  options.tune = tune;
  options.plan.n_threads = pool_->n_threads();
  options.passes.pass.is_inference = true;
  auto make = [&](const char* name, bool one) -> Result<std::unique_ptr<Session>> {
    auto module = std::make_shared<Module>();
    const Dim n = one ? Dim(1) : module->add_symbol("n_new", config_.max_seqlen);
    const Dim length = module->add_symbol("length", config_.max_seqlen);
    const FuncId f = TEGULA_TRY(build_decoding(*module, config_, name, n, length, dtype_));
    const Compiled c = TEGULA_TRY(compile(module, f, options));
    notes.insert(notes.end(), c.notes.begin(), c.notes.end());
    auto s = TEGULA_TRY(Session::create(c.plan, pool_.get()));
    auto st = s->bind_store(store_);
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

Status Generator::generate(std::string_view prompt, int64_t max_tokens,
                           const SamplerConfig& sampler, void (*emit)(void*, std::string_view),
                           void* context, GenerateStats& stats) {
  std::vector<int32_t> all = TEGULA_TRY(tokenizer_->encode(prompt));
  if (all.empty())
    return invalid_argument("the prompt is empty: give at least one character, e.g. --prompt ' '");
  stats.load_ms = load_ms_;
  stats.prompt_tokens = static_cast<int64_t>(all.size());
  auto start = Clock::now();
  reset();
  // A prompt longer than the context: its end counts.
  const auto room = static_cast<size_t>(config_.max_seqlen);
  const size_t skip = all.size() > room ? all.size() - room : 0;
  auto st = feed(std::span(all).subspan(skip));
  if (!st.ok()) return st;
  stats.prefill_ms = ms_since(start);
  start = Clock::now();
  for (int64_t i = 0; i < max_tokens; ++i) {
    all.push_back(sample(logits_, sampler, static_cast<uint64_t>(i)));
    emit(context, tokenizer_->token(all.back()));
    ++stats.new_tokens;
    if (i + 1 == max_tokens) break;
    if (position_ == config_.max_seqlen) {
      reset();
      const size_t keep = std::max<size_t>(room / 2, 1);
      st = feed(std::span(all).subspan(all.size() - keep));
    } else {
      st = feed(std::span(all).last(1));
    }
    if (!st.ok()) return st;
  }
  stats.decode_ms = ms_since(start);
  return {};
}

}  // namespace tegula
