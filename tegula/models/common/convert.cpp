#include "tegula/models/convert.h"

#include <map>

#include "tegula/base/range.h"
#include "tegula/io/checkpoint.h"
#include "tegula/io/gguf_writer.h"
#include "tegula/io/json.h"
#include "tegula/models/checkpoint.h"
#include "tegula/models/common/gguf_metadata.h"
#include "tegula/models/common/names.h"
#include "tegula/models/gguf_files.h"
#include "tegula/text/gguf_tokenizer.h"

namespace tegula {
namespace {

constexpr std::string_view kTokenizerModel = "tokenizer.ggml.model";

// A model's weights, one at a time.
class Weights {
 public:
  static Result<Weights> open(const ModelFiles& files, const ModelConfig& config,
                              std::optional<DType> dtype);
  const std::vector<WeightSpec>& specs() const { return specs_; }
  // As it is stored, or as asked for.
  DType dtype(const WeightSpec& w) const { return dtype_.value_or(weights_->stored_dtype(w.name)); }
  // All of it, or a part of several along its first dim, in that dtype.
  Result<std::vector<std::byte>> read(const WeightSpec& w, DType dtype, int64_t part = 0,
                                      int64_t n_parts = 1) const;
  bool is_rounded(const WeightSpec& w, DType to) const {
    const DType from = weights_->stored_dtype(w.name);
    return from != to && to != DType::kF64 && !(to == DType::kF32 && from != DType::kF64);
  }

 private:
  std::vector<WeightSpec> specs_;
  std::shared_ptr<ModelWeights> weights_;
  std::optional<DType> dtype_;
};

std::vector<int64_t> shape_of(const WeightSpec& w) {
  const TensorRef t = contiguous_ref(nullptr, w.type);
  return {t.shape, t.shape + t.rank};
}

Result<Weights> Weights::open(const ModelFiles& files, const ModelConfig& config,
                              std::optional<DType> dtype) {
  Weights w;
  w.dtype_ = dtype;
  WeightFiles stored = TEGULA_TRY(files.weights());
  w.specs_ = TEGULA_TRY(stored_weights(stored, config));
  std::vector<ModelWeights::Weight> all;
  for (const WeightSpec& spec : w.specs_) all.push_back({spec.name, shape_of(spec)});
  TEGULA_TRY(files.verify_weights());
  w.weights_ = TEGULA_TRY(ModelWeights::open(std::move(stored), config, all));
  return w;
}

Result<std::vector<std::byte>> Weights::read(const WeightSpec& w, DType dtype, int64_t part,
                                             int64_t n_parts) const {
  Box box = Box::whole(shape_of(w));
  if (n_parts > 1) box.offset[0] = part, box.extent[0] = 1;
  const Type type{dtype, Shape(std::span<const int64_t>(box.extent))};
  std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
  TEGULA_TRY(weights_->copy(w.name, box, contiguous_ref(bytes.data(), type)));
  return bytes;
}

std::string note_on_rounding(int64_t n_rounded, size_t n_all) {
  return cat(n_rounded, " of ", n_all, " weights are rounded to a dtype with fewer bits");
}

class GgufOut : public TensorSource {
 public:
  GgufOut(const Weights& weights, const ModelConfig& config, const GgufArchitecture& a)
      : weights_(weights), config_(config), a_(a) {}
  Status add(const GgufMetadata& metadata);
  const std::vector<GgufOutTensor>& tensors() const { return tensors_; }
  Status write(std::string_view name, OutputFile& out) override;
  int64_t n_inexact = 0;  // values of norms that w + 1 rounds
  int64_t n_rounded = 0;  // weights

 private:
  struct Item {
    const WeightSpec* weight = nullptr;
    GgufChange change = GgufChange::kNone;
    std::vector<float> values;  // without a weight
  };
  Status write_rows(const WeightSpec& w, DType dtype, GgufChange change,
                    std::span<const std::byte> bytes, OutputFile& out) const;
  const Weights& weights_;
  const ModelConfig& config_;
  const GgufArchitecture& a_;
  std::vector<GgufOutTensor> tensors_;
  std::map<std::string, Item, std::less<>> items_;
};

Status GgufOut::add(const GgufMetadata& metadata) {
  for (const GgufMetadata::List& list : metadata.tensors) {
    tensors_.push_back({list.name, DType::kF32, {static_cast<int64_t>(list.values.size())}});
    items_[list.name] = {nullptr, GgufChange::kNone, list.values};
  }
  for (const WeightSpec& w : weights_.specs()) {
    const GgufPlace place = gguf_place(a_, w.name);
    if (place.name.empty())
      return unsupported(cat("the weight ", w.name, " has no name in GGUF's ", a_.name));
    std::vector<int64_t> shape = shape_of(w);
    const bool is_router = place.name.find(".ffn_gate_inp") != std::string::npos;
    const bool is_f32 = shape.size() == 1 || is_router || place.name == "position_embd.weight";
    if (is_router && shape.size() == 2 && shape[0] == 1) shape.erase(shape.begin());
    if (place.change == GgufChange::kTransposed) std::swap(shape[0], shape[1]);
    const DType dtype = is_f32 ? DType::kF32 : weights_.dtype(w);
    tensors_.push_back({place.name, dtype, shape});
    items_[place.name] = {&w, place.change, {}};
    n_rounded += weights_.is_rounded(w, dtype);
    if (place.name == "token_embd.weight" && a_.has_head && config_.is_tied()) {
      tensors_.push_back({"output.weight", dtype, shape});
      items_["output.weight"] = items_[place.name];
    }
    const bool has_zeros = !config_.has_bias && any_word(names_of(config_).biased, [&](auto part) {
      return w.name.find(part) != w.name.npos;
    });
    if (has_zeros) {
      const std::string bias = cat(place.name.substr(0, place.name.rfind('.')), ".bias");
      const int64_t n = place.change == GgufChange::kTransposed ? shape[0] : shape.back();
      tensors_.push_back({bias, DType::kF32, {n}});
      items_[bias] = {nullptr, GgufChange::kNone, std::vector<float>(static_cast<size_t>(n))};
    }
  }
  return {};
}

// Rows in the file's order.
Status GgufOut::write_rows(const WeightSpec& w, DType dtype, GgufChange change,
                           std::span<const std::byte> bytes, OutputFile& out) const {
  const std::vector<int64_t> shape = shape_of(w);
  const auto n = static_cast<size_t>(shape.size() == 1 ? 1 : shape.back());
  const size_t row_bytes = n * static_cast<size_t>(size_bytes(dtype));
  const auto n_rows = static_cast<int64_t>(bytes.size() / row_bytes);
  const RowOrder order = gguf_row_order(change, n_rows, config_);
  std::vector<int64_t> from(static_cast<size_t>(n_rows));
  for (int64_t i = 0; i < n_rows; ++i) from[static_cast<size_t>(order.in_file(i))] = i;
  for (const int64_t i : from)
    TEGULA_TRY(out.write(bytes.data() + static_cast<size_t>(i) * row_bytes, row_bytes));
  return {};
}

Status GgufOut::write(std::string_view name, OutputFile& out) {
  const Item& item = items_.find(name)->second;
  if (item.weight == nullptr)
    return out.write(item.values.data(), item.values.size() * sizeof(float));
  const WeightSpec& w = *item.weight;
  DType dtype = DType::kF32;
  for (const GgufOutTensor& t : tensors_)
    if (t.name == name) dtype = t.dtype;
  std::vector<std::byte> bytes = TEGULA_TRY(weights_.read(w, dtype));
  if (item.change == GgufChange::kPlusOne) {
    auto* values = reinterpret_cast<float*>(bytes.data());
    for (size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
      const float was = values[i];
      values[i] += 1;
      n_inexact += values[i] - 1 != was;
    }
  } else if (item.change == GgufChange::kTransposed && shape_of(w).size() == 2) {
    const auto rows = static_cast<size_t>(shape_of(w)[0]);
    const auto columns = static_cast<size_t>(shape_of(w)[1]);
    const auto width = static_cast<size_t>(size_bytes(dtype));
    std::vector<std::byte> turned(bytes.size());
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j)
        std::copy_n(bytes.data() + (i * columns + j) * width, width,
                    turned.data() + (j * rows + i) * width);
    bytes = std::move(turned);
  } else if (item.change != GgufChange::kNone) {
    return write_rows(w, dtype, item.change, bytes, out);
  }
  return out.write(bytes.data(), bytes.size());
}

uint32_t file_type(DType dtype) {
  return dtype == DType::kF16 ? 1 : dtype == DType::kBF16 ? 32 : 0;
}

std::string last_name(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return std::string(path.substr(path.rfind('/') + 1));
}

Result<std::vector<GgufOutKey>> tokenizer_keys(const ModelFiles& files, const ModelConfig& config,
                                               std::vector<std::string>& notes) {
  const auto tokenizer = files.tokenizer();
  if (!tokenizer.ok() && tokenizer.error().code == Code::kIo) {
    notes.push_back(cat("there is no tokenizer: ", tokenizer.error().message));
    return std::vector<GgufOutKey>{{std::string(kTokenizerModel), std::string("none")}};
  }
  const auto [name, json] = (TEGULA_TRY(tokenizer)).files()[0];
  if (name != "tokenizer.json")
    return unsupported(cat("'", files.path(), "' has its tokenizer in ", name, ", of which tegula ",
                           "makes no GGUF: let transformers write a tokenizer.json, with ",
                           "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"));
  auto keys = TEGULA_TRY(gguf_keys_of(TEGULA_TRY(Json::parse(json, files.path())), files.path(),
                                      config.vocab_size, notes));
  constexpr const char* kEnds[] = {"eos_token_id", "eot_token_id", "eom_token_id"};
  const auto ends = TEGULA_TRY(files.end_of_text());
  for (size_t i = 0; i < ends.size(); ++i) {
    if (i < std::size(kEnds))
      keys.push_back({cat("tokenizer.ggml.", kEnds[i]), static_cast<uint32_t>(ends[i])});
    else
      notes.push_back(cat("the id ", ends[i], " ends a text, too, and GGUF names three"));
  }
  const TextFile generation = TEGULA_TRY(files.generation());
  const Json said = TEGULA_TRY(Json::parse(generation.text, generation.path));
  const Json* begin = said.find("bos_token_id");
  const auto* bos = begin != nullptr ? begin->as<int64_t>() : nullptr;
  const bool has_bos =
      any_of(keys, [](const GgufOutKey& k) { return k.name == "tokenizer.ggml.bos_token_id"; });
  if (bos != nullptr && !has_bos && *bos >= 0 && *bos < config.vocab_size)
    keys.push_back({"tokenizer.ggml.bos_token_id", static_cast<uint32_t>(*bos)});
  const TextFile named = TEGULA_TRY(files.special_tokens());
  const Json special = TEGULA_TRY(Json::parse(named.text, named.path));
  for (const auto& [token, key] : {std::pair{"unk_token", "tokenizer.ggml.unknown_token_id"},
                                   {"pad_token", "tokenizer.ggml.padding_token_id"}}) {
    const Json* text = special.find(token);
    if (text == nullptr || text->as<std::string>() == nullptr) continue;
    const auto ids = TEGULA_TRY(tokenizer->encode(*text->as<std::string>(), false));
    if (ids.size() == 1) keys.push_back({key, static_cast<uint32_t>(ids[0])});
  }
  const TextFile chat = TEGULA_TRY(files.chat_template());
  if (!chat.text.empty()) keys.push_back({"tokenizer.chat_template", chat.text});
  return keys;
}

Result<Converted> to_gguf(const ModelFiles& files, const std::string& path,
                          std::optional<DType> dtype) {
  Converted done;
  const ModelConfig config = TEGULA_TRY(load_model_config(files));
  const GgufArchitecture* a = TEGULA_TRY(gguf_architecture_of(config));
  const Weights weights = TEGULA_TRY(Weights::open(files, config, dtype));
  GgufMetadata metadata = TEGULA_TRY(gguf_metadata(config, *a, done.notes));
  metadata.keys.push_back({"general.name", last_name(files.path())});
  const DType most = weights.dtype(weights.specs()[0]);
  metadata.keys.push_back({"general.file_type", file_type(most)});
  for (GgufOutKey& key : TEGULA_TRY(tokenizer_keys(files, config, done.notes)))
    metadata.keys.push_back(std::move(key));
  GgufOut source(weights, config, *a);
  TEGULA_TRY(source.add(metadata));
  Unpublished made(path);
  OutputFile out = TEGULA_TRY(OutputFile::create(made.temporary(), path));
  TEGULA_TRY(write_gguf(out, metadata.keys, source.tensors(), source));
  done.n_bytes = (TEGULA_TRY(out.finish())).n_bytes;
  done.n_tensors = static_cast<int64_t>(source.tensors().size());
  const auto written = TEGULA_TRY(GgufFiles::open(made.temporary()));
  ModelConfig meant = config;
  if (!names_of(config).biased.empty()) meant.has_bias = true;  // zeros, where there were none
  TEGULA_TRY(check_gguf_config(meant, TEGULA_TRY(load_model_config(*written)), *a));
  if (written->gguf()->find(kTokenizerModel)->text() != "none")
    static_cast<void>(TEGULA_TRY(written->tokenizer()));
  if (source.n_rounded > 0)
    done.notes.push_back(note_on_rounding(source.n_rounded, weights.specs().size()));
  if (source.n_inexact > 0)
    done.notes.push_back(cat(source.n_inexact,
                             " weights of norms change in their last bits, since ",
                             "the file has them as w + 1"));
  TEGULA_TRY(made.publish());
  return done;
}

// The tensors of model.safetensors, of which some are parts of a weight.
class SafetensorsOut : public TensorSource {
 public:
  explicit SafetensorsOut(const Weights& weights) : weights_(weights) {}
  void add(const ModelConfig& config);
  const std::vector<NamedTensor>& tensors() const { return tensors_; }
  Status write(std::string_view name, OutputFile& out) override;
  int64_t n_rounded = 0;

 private:
  struct Item {
    const WeightSpec* weight;  // null: zeros
    int64_t part, n_parts;
    TensorRef type;
  };
  const Weights& weights_;
  std::vector<NamedTensor> tensors_;
  std::map<std::string, Item, std::less<>> items_;
};

void SafetensorsOut::add(const ModelConfig& config) {
  const auto put = [&](const std::string& name, const TensorRef& t, const WeightSpec* w,
                       int64_t part, int64_t n_parts) {
    tensors_.push_back({name, t});
    tensors_.back().tensor.data = nullptr;
    items_[name] = {w, part, n_parts, t};
  };
  for (const WeightSpec& w : weights_.specs()) {
    const TensorRef whole = contiguous_ref(nullptr, {weights_.dtype(w), w.type.shape});
    n_rounded += weights_.is_rounded(w, whole.dtype);
    std::vector<std::vector<float>> zeros;
    const auto all = checkpoint_tensors(config, {{w.name, whole}}, zeros);
    const size_t n = all.size() - zeros.size();
    for (size_t i = 0; i < n; ++i)
      put(all[i].first, all[i].second, &w, static_cast<int64_t>(i), static_cast<int64_t>(n));
    for (size_t i = n; i < all.size(); ++i) put(all[i].first, all[i].second, nullptr, 0, 1);
  }
}

Status SafetensorsOut::write(std::string_view name, OutputFile& out) {
  const Item& item = items_.find(name)->second;
  const auto n = static_cast<size_t>(item.type.numel() * size_bytes(item.type.dtype));
  if (item.weight == nullptr) return out.write(std::string(n, '\0'));
  const auto bytes =
      TEGULA_TRY(weights_.read(*item.weight, item.type.dtype, item.part, item.n_parts));
  return out.write(bytes.data(), bytes.size());
}

Status write_text(const std::string& directory, const TextFile& file) {
  return write_file(join_path(directory, file.path), file.text);
}

Result<Converted> to_directory(const ModelFiles& files, const std::string& path,
                               std::optional<DType> dtype) {
  Converted done;
  const ModelConfig config = TEGULA_TRY(load_model_config(files));
  const Weights weights = TEGULA_TRY(Weights::open(files, config, dtype));
  SafetensorsOut source(weights);
  source.add(config);
  Unpublished made(path);
  TEGULA_TRY(make_directories(made.temporary()));
  const DType most = weights.dtype(weights.specs()[0]);
  const TextFile base = TEGULA_TRY(files.config());
  Json json = TEGULA_TRY(Json::parse(base.text, base.path));
  if (json.find("dtype") == nullptr && json.find("torch_dtype") == nullptr)
    json.set("torch_dtype", "float32");  // so that there is one to change
  const std::string text = TEGULA_TRY(derived_config_json(config, most, {base.path, json.dump()}));
  TEGULA_TRY(write_text(made.temporary(), {std::string(kConfigFile), text}));
  for (const TextFile& each : TEGULA_TRY(files.companions()))
    TEGULA_TRY(write_text(made.temporary(), each));
  OutputFile out = TEGULA_TRY(
      OutputFile::create(join_path(made.temporary(), kModelFile), join_path(path, kModelFile)));
  TEGULA_TRY(write_safetensors(out, source.tensors(), default_metadata(), &source));
  done.n_bytes = (TEGULA_TRY(out.finish())).n_bytes;
  done.n_tensors = static_cast<int64_t>(source.tensors().size());
  TEGULA_TRY(sync_directory(made.temporary()));
  if (source.n_rounded > 0)
    done.notes.push_back(note_on_rounding(source.n_rounded, weights.specs().size()));
  TEGULA_TRY(made.publish());
  return done;
}

}  // namespace

Result<Converted> convert_model(const ModelFiles& from, const std::string& path,
                                std::optional<DType> dtype) {
  if (path_exists(path))
    return invalid_argument(cat("'", path, "' is there already: remove it, or choose another"));
  return path.ends_with(".gguf") ? to_gguf(from, path, dtype) : to_directory(from, path, dtype);
}

}  // namespace tegula
