#include "tegula/models/gguf_files.h"

#include "tegula/io/json.h"
#include "tegula/io/weight_files.h"
#include "tegula/models/checkpoint.h"
#include "tegula/models/common/gguf_architectures.h"
#include "tegula/text/gguf_tokenizer.h"

namespace tegula {
namespace {

constexpr std::string_view kTemplate = "tokenizer.chat_template";

// It is in config.json, not among the weights.
bool is_of_config(std::string_view name) {
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" ||
         name == "rope_factors_short.weight" || name.ends_with(".attn_rot_embd.weight");
}

TensorRef reshaped(const TensorRef& t, DType dtype, std::span<const int64_t> shape) {
  return contiguous_ref(t.data, {dtype, Shape(shape)});
}

Result<StoredTensor> stored(const GgufTensor& t, const std::string& path, const GgufPlace& place,
                            const ModelConfig& config) {
  StoredTensor s;
  s.name = place.name.empty() ? std::string(t.name) : place.name;
  s.path = path, s.format = t.format;
  std::vector<int64_t> shape = t.shape;
  // transformers has a matrix of one row.
  if (shape.size() == 1 && s.name.ends_with(".shared_expert_gate.weight"))
    shape.insert(shape.begin(), 1);
  const DType dtype = t.format ? DType::kF32 : t.bytes.dtype;
  s.tensor = reshaped(t.bytes, dtype, shape);
  const bool is_plain = !t.format && place.change == GgufChange::kNone;
  if (is_plain || !(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16)) {
    if (is_plain) return s;
    return unsupported(cat("'", path, "': tensor ", t.name, " is ", dtype,
                           ": tegula reads it as F32, F16, BF16 or blocks"));
  }
  s.tensor.data = nullptr;
  const bool is_order = place.change == GgufChange::kQueryPairs ||
                        place.change == GgufChange::kKeyPairs ||
                        place.change == GgufChange::kByPart;
  const int64_t last = t.bytes.shape[t.bytes.rank - 1];
  const bool is_list = shape.size() == 1 && is_order;  // a bias: every value is a row
  const int64_t rows[] = {is_list ? last : t.bytes.numel() / last, is_list ? 1 : last};
  s.rows = reshaped(t.bytes, t.bytes.dtype, rows);
  if (is_order) s.order = gguf_row_order(place.change, rows[0], config);
  if (place.change == GgufChange::kPlusOne) s.less = 1;
  if (place.change == GgufChange::kTransposed && shape.size() == 2) {
    s.is_transposed = true;
    std::swap(shape[0], shape[1]);
    s.tensor = reshaped({}, dtype, shape);
  }
  return s;
}

}  // namespace

Result<std::shared_ptr<const GgufFiles>> GgufFiles::open(const std::string& path) {
  auto file = std::make_shared<const GgufFile>(TEGULA_TRY(GgufFile::open(path)));
  TEGULA_TRY(gguf_architecture_of(*file));
  return std::shared_ptr<const GgufFiles>(new GgufFiles(std::move(file)));
}

Result<TextFile> GgufFiles::config() const {
  const GgufArchitecture* a = TEGULA_TRY(gguf_architecture_of(*file_));
  return TextFile{path(), TEGULA_TRY(gguf_config_json(*file_, *a))};
}

Result<WeightFiles> GgufFiles::weights() const {
  const GgufArchitecture* a = TEGULA_TRY(gguf_architecture_of(*file_));
  const ModelConfig config = TEGULA_TRY(load_model_config(*this));
  std::vector<StoredTensor> tensors;
  for (size_t i = 0; i < file_->tensors().size(); ++i) {
    const GgufTensor& t = file_->tensors()[i];
    if (is_of_config(t.name)) continue;
    if (t.name == "output.weight" && has_head_of_table(*file_, *a)) continue;
    tensors.push_back(TEGULA_TRY(stored(t, file_->path_of(i), model_place(*a, t.name), config)));
  }
  return WeightFiles(path(), std::move(tensors), file_);
}

Result<Tokenizer> GgufFiles::tokenizer() const {
  return Tokenizer::from_json(TEGULA_TRY(tokenizer_json_of(*file_)), path());
}

Result<TextFile> GgufFiles::generation() const {
  return TextFile{path(), generation_of(*file_).dump(2) + "\n"};
}

Result<TextFile> GgufFiles::chat_template() const {
  const GgufValue* value = file_->find(kTemplate);
  if (value == nullptr) return TextFile{path(), ""};
  if (const auto text = value->text()) return TextFile{path(), std::string(*text)};
  return invalid_argument(
      cat("'", path(), "': key ", kTemplate, " is ", value->shown(), ", not a string"));
}

Result<TextFile> GgufFiles::special_tokens() const {
  return TextFile{path(), gguf_special_tokens(*file_).dump()};
}

Result<std::vector<TextFile>> GgufFiles::companions() const {
  std::vector<TextFile> all;
  const ModelConfig config = TEGULA_TRY(load_model_config(*this));
  const bool insists = TEGULA_TRY(find_model(config.type))->hf_has_tokenizer;
  if (const std::string kind = gguf_tokenizer_kind(*file_); !kind.empty() && kind != "none")
    for (auto& [name, text] : TEGULA_TRY(tokenizer()).files(insists)) {
      if (name == "tokenizer_config.json") {
        Json said = TEGULA_TRY(Json::parse(text, name));
        const Json special = gguf_special_tokens(*file_);
        for (const Json::Member& m : *special.as<Json::Object>()) said.set(m.key, m.value);
        text = said.dump(2) + "\n";
      }
      all.push_back({name, std::move(text)});
    }
  all.push_back({"generation_config.json", TEGULA_TRY(generation()).text});
  if (TextFile chat = TEGULA_TRY(chat_template()); !chat.text.empty())
    all.push_back({"chat_template.jinja", std::move(chat.text)});
  return all;
}

}  // namespace tegula
