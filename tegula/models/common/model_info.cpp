#include "tegula/models/model_info.h"

#include "tegula/base/algorithm.h"
#include "tegula/io/gguf.h"
#include "tegula/models/checkpoint.h"
#include "tegula/models/decoder.h"

namespace tegula {
namespace {

void count_formats(const WeightFiles& weights, ModelInfo& info) {
  weights.for_each([&](std::string_view, const WeightFiles::Found& found) {
    const StoredTensor* s = found.stored;
    const TensorRef& t = s != nullptr ? s->rows : *found.tensor;
    std::string name(dtype_name(t.dtype));
    if (s != nullptr && s->format) {
      name = layout_of(*s->format).name;
      for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    }
    auto at = std::find_if(info.formats.begin(), info.formats.end(),
                           [&](const ModelInfo::Format& f) { return f.name == name; });
    if (at == info.formats.end()) at = info.formats.insert(at, {name});
    const int64_t n_bytes = t.numel() * size_bytes(t.dtype);
    ++at->n_tensors, at->n_values += found.tensor->numel(), at->n_bytes += n_bytes;
    info.weight_bytes += n_bytes;
  });
  std::sort(info.formats.begin(), info.formats.end(),
            [](const auto& a, const auto& b) { return a.n_bytes > b.n_bytes; });
}

}  // namespace

Result<ModelInfo> model_info(const ModelFiles& files) {
  ModelInfo info;
  info.path = files.path();
  const GgufFile* gguf = files.gguf();
  info.form = gguf == nullptr ? "directory" : cat("GGUF ", gguf->version());
  if (gguf != nullptr && gguf->n_shards() > 1) info.form += cat(", ", gguf->n_shards(), " files");
  info.config = TEGULA_TRY(load_model_config(files));
  WeightFiles stored = TEGULA_TRY(files.weights());
  const auto specs = TEGULA_TRY(stored_weights(stored, info.config));
  info.n_parameters = parameter_count(specs);
  std::vector<ModelWeights::Weight> asked;
  for (const WeightSpec& w : specs) {
    const TensorRef t = contiguous_ref(nullptr, w.type);
    asked.push_back({w.name, {t.shape, t.shape + t.rank}});
  }
  TEGULA_TRY(ModelWeights::open(std::move(stored), info.config, asked));
  count_formats(TEGULA_TRY(files.weights()), info);
  const ModelDef* model = TEGULA_TRY(find_model(info.config.type));
  if (has_setting(*model, setting::kHeads) && !model->sees_ahead)
    info.cache_bytes = info.config.n_layers * 2 * info.config.n_kv_heads * info.config.head_dim *
                       size_bytes(DType::kF32);
  if (info.cache_bytes > 0) info.window = widest_window(info.config);
  if (const auto tokenizer = files.tokenizer(); tokenizer.ok())
    info.tokenizer = tokenizer->kind(), info.n_tokens = tokenizer->vocab_size();
  else
    info.tokenizer = tokenizer.error().message;
  info.end_of_text = TEGULA_TRY(files.end_of_text());
  info.template_bytes = static_cast<int64_t>((TEGULA_TRY(files.chat_template())).text.size());
  return info;
}

}  // namespace tegula
