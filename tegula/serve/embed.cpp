#include "tegula/serve/embed.h"

#include "tegula/base/algorithm.h"
#include "tegula/models/rotary.h"
#include "tegula/ops/math.h"
#include "tegula/runtime/compile.h"
#include "tegula/serve/map_weights.h"

namespace tegula {

struct Embedder::Text {
  size_t place = 0;  // among those asked for
  std::vector<int32_t> ids;
};

Result<std::unique_ptr<Embedder>> Embedder::open(const std::string& path) {
  std::unique_ptr<Embedder> e(new Embedder());
  e->files_ = TEGULA_TRY(ModelFiles::open(path, Check::kAllButTensors));
  e->config_ = TEGULA_TRY(load_model_config(*e->files_));
  std::string note;
  e->tokenizer_ =
      std::make_unique<Tokenizer>(TEGULA_TRY(load_model_tokenizer(*e->files_, e->config_, note)));
  if (!note.empty()) e->notes.push_back(std::move(note));
  e->pooling = TEGULA_TRY(read_pooling(*e->files_, e->config_.d_model));
  return e;
}

int64_t Embedder::most_tokens() const {
  const int64_t context = config_.max_seqlen;
  return pooling.most_tokens > 0 ? std::min(pooling.most_tokens, context) : context;
}

bool Embedder::sees_ahead() const { return (*find_model(config_.type))->sees_ahead; }

// 64, 128, 256, …, at most what the model sees (of an encoder in whole pages, with room behind it).
int64_t Embedder::row_of(size_t n_tokens) const {
  int64_t row = Context::kRowPage;
  while (row < static_cast<int64_t>(n_tokens)) row *= 2;
  return sees_ahead() ? row : std::min(row, config_.max_seqlen);
}

// tokens i32 [batch, length], lengths i32 [batch] -> hidden f32 [batch, length, d].
Result<FuncId> Embedder::build(Module& module, int64_t length) const {
  const ModelDef& model = *TEGULA_TRY(find_model(config_.type));
  Builder b(module, "embed");
  Context c(b, config_);
  c.dtype = options_.dtype, c.formats = &formats_;
  const Var tokens = b.param("tokens", {DType::kI32, {options_.batch, length}});
  if (model.sees_ahead) c.lengths = b.param("lengths", {DType::kI32, {options_.batch}});
  b.result("hidden", cast(model.hidden(c, tokens), DType::kF32));
  return b.finish_into_module();
}

Status Embedder::prepare(const EmbedOptions& options) {
  options_ = options;
  rank_ = std::make_unique<Rank>(options.threads);
  store_ = std::make_unique<Store>(*rank_);
  weights_ = TEGULA_TRY(map_weights(*files_, config_, options.dtype, *rank_, *store_, formats_));
  TEGULA_TRY(files_->verify_weights());
  TEGULA_TRY(weights_->check(rank_->pool));
  const int64_t row = row_of(static_cast<size_t>(most_tokens()));
  tokens_.resize(static_cast<size_t>(options.batch * row));
  lengths_.resize(static_cast<size_t>(options.batch));
  return {};
}

Result<Session*> Embedder::session_of(int64_t length) {
  std::unique_ptr<Session>& session = sessions_[length];
  if (session) return session.get();
  CompileOptions options;
  options.plan.target = Target::this_cpu(rank_->pool.n_threads());
  options.passes.pass.is_inference = true;
  options.passes.pass.mode = Mode::kExact;
  auto module = std::make_shared<Module>();
  const FuncId f = TEGULA_TRY(build(*module, length));
  session = TEGULA_TRY(Session::create(TEGULA_TRY(compile(module, f, options)).plan, *rank_));
  TEGULA_TRY(session->bind_store(*store_));
  TEGULA_TRY(session->bind_input("tokens", tokens_.data()));
  if (sees_ahead()) TEGULA_TRY(session->bind_input("lengths", lengths_.data()));
  if (std::string note = note_on_rotary(config_, length); !note.empty())
    notes.push_back(std::move(note));
  return session.get();
}

Result<std::vector<Embedder::Text>> Embedder::tokens_of(std::span<const std::string> texts,
                                                        std::span<Embedding> out) const {
  std::vector<Text> all;
  const auto most = static_cast<size_t>(most_tokens());
  for (size_t i = 0; i < texts.size(); ++i) {
    auto ids = TEGULA_TRY(tokenizer_->encode(pooling.prompt + texts[i]));
    if (ids.empty())
      return invalid_argument(cat("text ", i + 1, " of ", texts.size(), " is empty: it has no ",
                                  "token, of which its vector would be made"));
    out[i].tokens = static_cast<int64_t>(ids.size());
    if (ids.size() > most) {
      const auto inner = tokenizer_->inner(ids);
      const auto n_behind =
          static_cast<size_t>(ids.data() + ids.size() - (inner.data() + inner.size()));
      out[i].left_out = static_cast<int64_t>(ids.size() - most);
      ids.erase(ids.end() - static_cast<std::ptrdiff_t>(n_behind + ids.size() - most),
                ids.end() - static_cast<std::ptrdiff_t>(n_behind));
    }
    all.push_back({i, std::move(ids)});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Text& a, const Text& b) { return a.ids.size() > b.ids.size(); });
  return all;
}

Status Embedder::run(std::span<const Text> texts, std::span<Embedding> out) {
  const int64_t length = row_of(texts[0].ids.size());
  Session* const session = TEGULA_TRY(session_of(length));
  const auto n = static_cast<size_t>(length);
  std::fill(tokens_.begin(), tokens_.end(), 0), std::fill(lengths_.begin(), lengths_.end(), 1);
  for (size_t i = 0; i < texts.size(); ++i) {
    std::copy(texts[i].ids.begin(), texts[i].ids.end(),
              tokens_.begin() + static_cast<std::ptrdiff_t>(i * n));
    lengths_[i] = static_cast<int32_t>(texts[i].ids.size());
  }
  TEGULA_TRY(session->run());
  const TensorRef hidden = TEGULA_TRY(session->fetch("hidden"));
  const auto width = static_cast<size_t>(config_.d_model);
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::span x(hidden.as<float>() + i * n * width, texts[i].ids.size() * width);
    Embedding& e = out[texts[i].place];
    e.vector = pooling.apply(x, config_.d_model);
    for (const float v : e.vector)
      if (!(v - v == 0))
        return invalid_argument(cat("the vector of text ", texts[i].place + 1, " is not finite"));
  }
  return {};
}

Result<std::vector<Embedder::Embedding>> Embedder::embed(std::span<const std::string> texts) {
  std::vector<Embedding> out(texts.size());
  const std::vector<Text> all = TEGULA_TRY(tokens_of(texts, out));
  for (size_t at = 0; at < all.size();) {
    size_t end = at + 1;
    while (end < all.size() && end - at < static_cast<size_t>(options_.batch) &&
           row_of(all[end].ids.size()) == row_of(all[at].ids.size()))
      ++end;
    TEGULA_TRY(run(std::span(all).subspan(at, end - at), out));
    at = end;
  }
  return out;
}

}  // namespace tegula
