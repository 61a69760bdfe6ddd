#include "tegula/train/checkpoint.h"

#include <set>

#include "tegula/base/algorithm.h"
#include "tegula/io/checkpoint.h"
#include "tegula/io/json.h"
#include "tegula/ir/reference.h"
#include "tegula/models/checkpoint.h"
#include "tegula/models/init.h"
#include "tegula/train/step.h"

namespace tegula {

namespace {

// Which sums mode exact makes: 3 sums micro-batches in groups, and each use of a weight apart; 2
// has shards in all sums over the batch; before it was saved, 1 had them in long products alone.
constexpr int64_t kExactSums = 3;

// The settings that must be the same for a resumed run to be the run that was stopped. What
// may_change is for the user to change in the course of a run.
Json run_json(const TrainConfig& c, const DataHashes& hashes, int64_t step) {
  const OptimizerConfig& o = c.optimizer;
  Json run = Json::object({{"step", step},
                           {"seed", std::to_string(c.seed)},
                           {"batch", c.batch},
                           {"accumulate", c.accumulate},
                           {"seqlen", c.row_length()},
                           {"optimizer", o.name},
                           {"beta1", o.beta1},
                           {"beta2", o.beta2},
                           {"weight_decay", o.weight_decay},
                           {"grad_clip", o.clip},
                           {"lr", c.lr},
                           {"min_lr", c.min_lr},
                           {"warmup", c.warmup},
                           {"lr_decay_steps", decay_steps(c)},
                           {"dropout", c.model.dropout},
                           {"tokenizer", c.tokenizer},
                           {"dtype", c.dtype},
                           {"mode", c.mode},
                           {"blockwise", c.blockwise != "off"},
                           {"data_sha256", hashes.text},
                           {"batches_sha256", hashes.batches}});
  if (c.mode == "exact") run.set("exact_sums", kExactSums);
  if (c.dtype == "f16") run.set("loss_scale_every", c.loss_scale_every);
  if (const auto model = find_model(c.model.type); model.ok())
    for (const Field& f : (*model)->fields)
      if (f.setting->is_of_training)
        run.set(f.setting->name, setting_json(c.model.get(*f.setting)));
  return run;
}

struct MayChange {
  std::string_view key, hint;
};
constexpr MayChange kMayChange[] = {
    {"lr", ""},
    {"min_lr", ""},
    {"warmup", ""},
    {"lr_decay_steps",
     " (that is --steps, unless given): the learning rate jumps to the new curve"},
    {"weight_decay", ""},
    {"grad_clip", ""},
    {"beta1", ""},
    {"beta2", ""},
    {"loss_scale_every", ""},
    {"dropout", ""},
    {"tokenizer", ""},
    {"data_sha256", ""},
    {"batches_sha256", ""}};

const MayChange* may_change(std::string_view key) {
  for (const MayChange& m : kMayChange)
    if (key == m.key) return &m;
  return nullptr;
}

Result<bool> has_same_weights(const ModelConfig& a, const ModelConfig& b) {
  const auto of_a = TEGULA_TRY(model_weights(a)), of_b = TEGULA_TRY(model_weights(b));
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(),
                    [](const WeightSpec& x, const WeightSpec& y) {
                      return x.name == y.name && x.type == y.type;
                    });
}

// The state that a run saved of itself beside the model; null: no run did.
Json state_of(const ModelFiles& files) {
  const std::string path = join_path(files.path(), kTrainerStateFile);
  const auto text = read_file(path);
  auto state = text.ok() ? Json::parse(*text, path) : Result<Json>(text.error());
  return state.ok() ? std::move(*state) : Json();
}

// How sums are made stays as it was, unless it was said otherwise, which is refused later.
Status take_mode(const Json& state, TrainConfig& config, std::string_view whose) {
  const auto* mode = state.find_as<std::string>("mode");
  if (!mode) return {};
  if (!config.was_said("mode")) config.mode = *mode;
  const Json* sums = state.find("exact_sums");
  if (*mode != "exact" || (sums && *sums == Json(kExactSums))) return {};
  return unsupported(
      cat("--resume: ", whose,
          " was trained by a version whose mode exact summed in another order, and "
          "would not go on with its bits: start from its weights, with --init-from"));
}

// A new run may see and read more or less than the model did: rows are at most the context, and a
// table of positions keeps its size.
Status take_context(bool is_said, std::string_view whose, ModelConfig& saved, TrainConfig& config,
                    std::vector<std::string>& notes) {
  const int64_t had = saved.max_seqlen;
  if (is_said && config.seqlen > config.model.max_seqlen)
    return invalid_argument(cat("--seqlen ", config.seqlen, " is more than --context ",
                                config.model.max_seqlen,
                                ", which the model can see: make one of them the other's size"));
  ModelConfig wanted = saved;
  wanted.max_seqlen = is_said ? config.model.max_seqlen : std::max(had, config.seqlen);
  if (wanted.max_seqlen != had && !TEGULA_TRY(has_same_weights(saved, wanted)))
    return invalid_argument(cat(
        "--init-from: ", whose, " has a weight for each of the ", had, " positions of its context",
        is_said ? cat(", and --context ", wanted.max_seqlen, " would be others: leave it out")
                : cat(": --seqlen ", config.seqlen, " is more; give at most ", had)));
  if (wanted.max_seqlen != had && !is_said)
    notes.push_back(cat("--seqlen ", config.seqlen, " is more than the context of ", whose, ", ",
                        had, ", which becomes ", wanted.max_seqlen));
  if (config.seqlen == 0) config.seqlen = wanted.max_seqlen;
  saved = wanted;
  return {};
}

std::vector<NamedTensor> named(const std::vector<std::pair<std::string, TensorRef>>& tensors) {
  std::vector<NamedTensor> out;
  for (const auto& [name, t] : tensors) out.push_back({name, t});
  return out;
}

}  // namespace

std::string trainer_state(const TrainConfig& config, const DataHashes& hashes, int64_t step) {
  return run_json(config, hashes, step).dump(1) + "\n";
}

std::vector<std::pair<std::string, std::string>> run_settings(const TrainConfig& config,
                                                              const DataHashes& hashes) {
  std::vector<std::pair<std::string, std::string>> all;
  const Json run = run_json(config, hashes, 0);
  for (const auto& [key, value] : *run.as<Json::Object>()) all.emplace_back(key, value.dump());
  return all;
}

Status take_model_of(const ModelFiles& files, TrainConfig& config,
                     std::vector<std::string>& notes) {
  ModelConfig saved = TEGULA_TRY(load_model_config(files));
  const Json state = state_of(files);
  const ModelDef& model = *TEGULA_TRY(find_model(saved.type));
  for (const Field& f : model.fields)  // what config.json has no key for
    if (const Json* value = state.find(f.setting->name); value && f.keys.empty())
      saved.set(*f.setting, value->number(saved.number(*f.setting)));
  const auto was_said = [&](std::string_view flag) { return config.was_said(flag); };
  const std::string whose =
      config.resume ? cat("the run in ", config.out) : cat("the model in ", config.init_from);
  const auto refuse = [&](std::string_view flag, const Json& had, const Json& now) {
    return invalid_argument(
        cat(config.resume ? "--resume: " : "--init-from: ", whose, " has ", flag, " ", had.dump(),
            ", not ", now.dump(), ": its model comes from the checkpoint. Leave out --", flag,
            config.resume ? ", or train anew in another --out" : ", or start from random weights"));
  };
  const ModelConfig plain;
  if (config.model.type != saved.type && (was_said("model") || config.model.type != plain.type))
    return refuse("model", saved.type, config.model.type);
  for (const Setting* setting : all_settings()) {
    const Setting& o = *setting;
    if (o.flag.empty() || !has_setting(model, o)) continue;
    if (o.flag == setting::kDropout.flag) continue;                    // dropout is the run's
    if (o.flag == setting::kContext.flag && !config.resume) continue;  // below
    const Json wanted = setting_json(config.model.get(o)), had = setting_json(saved.get(o));
    const bool is_said = was_said(o.flag) || !(wanted == setting_json(plain.get(o)));
    if (!is_said || wanted == had) continue;
    // A 0 stands for what follows from the others.
    ModelConfig derived = saved;
    if (o.type == SettingType::kSize) derived.set(o, int64_t{0});
    if (!(wanted == Json(0) && derived.resolve().ok() && setting_json(derived.get(o)) == had))
      return refuse(o.flag, had, wanted);
  }
  if (config.resume) {
    const auto* had = state.find_as<int64_t>("seqlen");
    const int64_t seqlen = had ? *had : saved.max_seqlen;
    if (config.seqlen > 0 && config.seqlen != seqlen)
      return refuse("seqlen", seqlen, config.seqlen);
    config.seqlen = seqlen;
  } else {
    const bool is_said = was_said("context") || config.model.max_seqlen != plain.max_seqlen;
    TEGULA_TRY(take_context(is_said, whose, saved, config, notes));
  }
  saved.dropout = config.model.dropout;
  config.model = saved;
  if (config.resume) TEGULA_TRY(take_mode(state, config, whose));
  const auto* name = state.find_as<std::string>("tokenizer");
  const std::string tokenizer = name ? *name : "";
  if (config.tokenizer != tokenizer && !tokenizer.empty() &&
      (was_said("tokenizer") || config.tokenizer != TrainConfig().tokenizer))
    notes.push_back(cat("--tokenizer ", config.tokenizer, " is not used: ", whose,
                        " goes on with its own, ", tokenizer));
  config.tokenizer = tokenizer;
  return {};
}

Result<std::vector<TextFile>> model_texts(const TrainConfig& config, const Tokenizer& tokenizer,
                                          const ModelFiles* from) {
  std::vector<TextFile> texts;
  if (from == nullptr) {
    texts.push_back({std::string(kConfigFile), model_config_json(config.model, DType::kF32)});
    const bool insists = TEGULA_TRY(find_model(config.model.type))->hf_has_tokenizer;
    for (auto& [name, text] : tokenizer.files(insists)) texts.push_back({name, text});
    return texts;
  }
  // Dropout is the run's, and the model's only where it was said.
  ModelConfig model = config.model;
  if (!config.was_said(setting::kDropout.flag) && model.dropout == 0)
    model.dropout = TEGULA_TRY(load_model_config(*from)).dropout;
  texts = TEGULA_TRY(from->companions());
  TextFile base = TEGULA_TRY(from->config());
  // Its head is saved, too, where the model that it came from may have none.
  if (const ModelDef& def = *TEGULA_TRY(find_model(model.type)); !def.names.optional.empty()) {
    Json json = TEGULA_TRY(Json::parse(base.text, base.path));
    json.set("architectures", Json::Array{def.hf_class});
    base.text = json.dump(2) + "\n";
  }
  texts.push_back(
      {std::string(kConfigFile), TEGULA_TRY(derived_config_json(model, DType::kF32, base))});
  return texts;
}

Result<std::string> save_checkpoint(const TrainConfig& config, const FileLock& lock,
                                    const std::vector<TextFile>& texts,
                                    const std::vector<WeightSpec>& weights, const Store& store,
                                    const DataHashes& hashes, int64_t step) {
  CheckpointWriter writer = TEGULA_TRY(CheckpointWriter::begin(config.out, step, lock));
  std::vector<std::pair<std::string, TensorRef>> model, state;
  std::set<std::string> is_weight;
  for (const WeightSpec& w : weights) {
    model.emplace_back(w.name, store.find(w.name));
    is_weight.insert(w.name);
  }
  for (const auto& [name, entry] : store)
    if (!is_weight.contains(name) && !is_sum_of_gradients(name))
      state.emplace_back(name, entry.ref);
  std::vector<std::vector<float>> zeros;
  zeros.reserve(2 * weights.size());
  auto st = writer.add_tensors(kModelFile, named(checkpoint_tensors(config.model, model, zeros)));
  for (const auto& [name, text] : texts)
    if (st.ok()) st = writer.add_file(name, text);
  if (st.ok()) st = writer.add_tensors(kOptimizerFile, named(state));
  if (st.ok()) st = writer.add_file(kTrainerStateFile, trainer_state(config, hashes, step));
  if (!st.ok()) return std::move(st).error();
  return TEGULA_TRY(writer.publish()).path;
}

namespace {

// Box by box: nobody holds a whole weight that is shared out.
Status load_weights(const TrainConfig& config, WeightFiles files,
                    const std::vector<WeightSpec>& specs, std::span<Store* const> stores) {
  std::vector<ModelWeights::Weight> weights;
  for (const WeightSpec& w : specs) {
    const TensorRef whole = contiguous_ref(nullptr, w.type);
    weights.push_back({w.name, {whole.shape, whole.shape + whole.rank}});
  }
  const auto opened = TEGULA_TRY(ModelWeights::open(std::move(files), config.model, weights));
  struct From {
    const ModelWeights* weights;
    const std::string* name;
  };
  for (const auto& w : weights)
    for (Store* store : stores) {
      if (!store->has(w.name)) continue;  // another rank's stage has it
      From from{opened.get(), &w.name};
      const auto read = [](void* context, const Box& box, const TensorRef& to) {
        const From& f = *static_cast<From*>(context);
        return f.weights->copy(*f.name, box, to);
      };
      TEGULA_TRY(store->fill_boxes(w.name, read, &from));
    }
  return {};
}

// One weight after the other, of which each store takes its share.
Status init_weights(const WeightSpec& w, uint64_t seed, std::span<Store* const> stores,
                    ThreadPool& pool) {
  std::vector<uint8_t> values(static_cast<size_t>(w.type.bytes()));
  const TensorRef whole = contiguous_ref(values.data(), w.type);
  init_weight(w, seed, whole, &pool);
  for (Store* store : stores)
    if (store->has(w.name)) TEGULA_TRY(store->fill(w.name, whole));
  return {};
}

}  // namespace

Status start_weights(const TrainConfig& config, const ModelFiles* from,
                     const std::vector<WeightSpec>& weights, std::span<Store* const> stores,
                     ThreadPool& pool, std::vector<std::string>& notes) {
  std::set<std::string> is_stored;
  if (from != nullptr) {
    WeightFiles files = TEGULA_TRY(from->weights());
    const std::vector<WeightSpec> stored = TEGULA_TRY(stored_weights(files, config.model));
    for (const WeightSpec& w : stored) is_stored.insert(w.name);
    TEGULA_TRY(load_weights(config, std::move(files), stored, stores));
  }
  std::string random;
  for (const WeightSpec& w : weights) {
    if (is_stored.contains(w.name)) continue;
    TEGULA_TRY(init_weights(w, config.seed, stores, pool));
    random += cat(random.empty() ? "" : ", ", w.name);
  }
  if (from != nullptr && !random.empty())
    notes.push_back(cat("--init-from: the model in ", config.init_from,
                        " has no head to find masked tokens: it starts from random weights (",
                        random, ")"));
  return {};
}

Result<int64_t> load_training_state(const TrainConfig& config, const ModelFiles& files,
                                    const DataHashes& hashes, std::span<Store* const> stores,
                                    std::vector<std::string>& notes,
                                    const std::set<std::string, std::less<>>& elsewhere) {
  const std::string path = join_path(files.path(), kTrainerStateFile);
  const Json saved = TEGULA_TRY(Json::parse(TEGULA_TRY(read_file(path)), path));
  const auto* step = saved.find_as<int64_t>("step");
  if (!step) return invalid_argument(path + ": has no step");
  const Json wanted = run_json(config, hashes, *step);
  for (const auto& [key, value] : *wanted.as<Json::Object>()) {
    const Json* had = saved.find(key);
    const MayChange* change = may_change(key);
    // Skips what an older version did not save, or the name of a tokenizer that only it knew.
    if (had ? *had == value : change != nullptr) continue;
    const std::string difference = cat("the run in ", config.out, " had ", key, " ",
                                       had ? had->dump() : "unset", ", now it is ", value.dump());
    if (change == nullptr)
      return invalid_argument(
          cat("--resume: ", difference, ": give the same flags, or train anew in another --out"));
    notes.push_back(cat("resumed with a difference: ", difference, change->hint));
  }
  TEGULA_TRY(load_weights(config, TEGULA_TRY(files.weights()),
                          TEGULA_TRY(model_weights(config.model)), stores));
  std::set<std::string> is_weight;
  for (const WeightSpec& w : TEGULA_TRY(model_weights(config.model))) is_weight.insert(w.name);
  const auto file = TEGULA_TRY(SafetensorsFile::open(join_path(files.path(), kOptimizerFile)));
  for (Store* store : stores) {
    for (const NamedTensor& t : file.tensors()) {
      if (is_sum_of_gradients(t.name)) continue;  // zero; earlier versions saved it
      if (!store->has(t.name) && elsewhere.contains(t.name)) continue;
      if (const Status st = store->fill(t.name, t.tensor); !st.ok())
        return invalid_argument(cat(file.path(), ": tensor ", t.name,
                                    " does not belong to this run: ", st.error().message));
    }
    for (const auto& [name, entry] : *store)
      if (!is_weight.contains(name) && !is_sum_of_gradients(name) && !file.find(name))
        return invalid_argument(cat(file.path(), ": tensor ", name, " of the run is missing"));
  }
  return *step;
}

}  // namespace tegula
