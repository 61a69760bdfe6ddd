#include "tegula/train/checkpoint.h"

#include <cstring>
#include <set>

#include "tegula/io/checkpoint.h"
#include "tegula/io/json.h"
#include "tegula/ir/reference.h"
#include "tegula/models/checkpoint.h"

namespace tegula {

namespace {

// What must be the same for a resumed run to be the run that was stopped. What may_change is for
// the user to change in the course of a run.
Json run_json(const TrainConfig& c, const std::string& data_sha256, int64_t step) {
  const OptimizerConfig& o = c.optimizer;
  Json run = Json::object({{"step", step},
                           {"seed", std::to_string(c.seed)},
                           {"batch", c.batch},
                           {"accumulate", c.accumulate},
                           {"seqlen", c.model.max_seqlen},
                           {"optimizer", o.name},
                           {"beta1", o.beta1},
                           {"beta2", o.beta2},
                           {"weight_decay", o.weight_decay},
                           {"grad_clip", o.clip},
                           {"lr", c.lr},
                           {"min_lr", c.min_lr},
                           {"warmup", c.warmup},
                           {"dtype", c.dtype},
                           {"mode", c.mode},
                           {"blockwise", c.blockwise != "off"},
                           {"data_sha256", data_sha256}});
  if (c.model.type == "moe") {
    run.set("capacity_factor", c.model.capacity_factor);
    run.set("balance_loss", c.model.balance_loss);
  }
  return run;
}

bool may_change(std::string_view key) {
  for (std::string_view k :
       {"lr", "min_lr", "warmup", "weight_decay", "grad_clip", "beta1", "beta2", "data_sha256"})
    if (key == k) return true;
  return false;
}

std::vector<NamedTensor> named(const std::vector<std::pair<std::string, TensorRef>>& tensors) {
  std::vector<NamedTensor> out;
  for (const auto& [name, t] : tensors) out.push_back({name, t});
  return out;
}

}  // namespace

Status save_checkpoint(const TrainConfig& config, const Tokenizer& tokenizer,
                       const std::vector<WeightSpec>& weights, const Store& store,
                       const std::string& data_sha256, int64_t step) {
  CheckpointWriter writer = TEGULA_TRY(CheckpointWriter::begin(config.out, step));
  std::vector<std::pair<std::string, TensorRef>> model, state;
  std::set<std::string> is_weight;
  for (const WeightSpec& w : weights) {
    model.emplace_back(w.name, store.find(w.name));
    is_weight.insert(w.name);
  }
  for (const auto& [name, entry] : store)
    if (!is_weight.contains(name)) state.emplace_back(name, entry.ref);
  std::vector<std::vector<float>> zeros;
  zeros.reserve(2 * weights.size());
  auto st = writer.add_tensors(kModelFile, named(checkpoint_tensors(config.model, model, zeros)));
  if (st.ok()) st = writer.add_file(kConfigFile, model_config_json(config.model, DType::kF32));
  for (const auto& [name, text] : tokenizer.files())
    if (st.ok()) st = writer.add_file(name, text);
  if (st.ok()) st = writer.add_tensors(kOptimizerFile, named(state));
  if (st.ok())
    st = writer.add_file(kTrainerStateFile, run_json(config, data_sha256, step).dump(1) + "\n");
  if (!st.ok()) return st;
  const auto published = writer.publish();
  if (!published.ok()) return published.error();
  return {};
}

Result<int64_t> load_training_state(const TrainConfig& config, const std::string& directory,
                                    const std::string& data_sha256, Store& store,
                                    std::vector<std::string>& notes) {
  const std::string path = directory + "/" + std::string(kTrainerStateFile);
  const Json saved = TEGULA_TRY(Json::parse(TEGULA_TRY(read_file(path)), path));
  const Json* step = saved.find("step");
  if (!step || !step->as<int64_t>()) return invalid_argument(path + ": has no step");
  const Json wanted = run_json(config, data_sha256, *step->as<int64_t>());
  for (const auto& [key, value] : *wanted.as<Json::Object>()) {
    const Json* had = saved.find(key);
    if (had && *had == value) continue;
    const std::string difference = cat("the run in ", config.out, " had ", key, " ",
                                       had ? had->dump() : "unset", ", now it is ", value.dump());
    if (!may_change(key))
      return invalid_argument(
          cat("--resume: ", difference, ": give the same flags, or train anew in another --out"));
    notes.push_back("resumed with a difference: " + difference);
  }
  std::vector<std::pair<std::string, TensorRef>> weights;
  for (const WeightSpec& w : TEGULA_TRY(model_weights(config.model)))
    weights.emplace_back(w.name, store.find(w.name));
  auto st = read_weights(directory, weights);
  if (!st.ok()) return std::move(st).error();
  const auto file =
      TEGULA_TRY(SafetensorsFile::open(directory + "/" + std::string(kOptimizerFile)));
  for (const NamedTensor& t : file.tensors()) {
    const TensorRef to = store.find(t.name);
    if (!to.data || to.numel() != t.tensor.numel() || to.dtype != t.tensor.dtype)
      return invalid_argument(
          cat(file.path(), ": tensor ", t.name, " does not belong to this run"));
    std::memcpy(to.data, t.tensor.data, static_cast<size_t>(to.numel() * size_bytes(to.dtype)));
  }
  return *step->as<int64_t>();
}

}  // namespace tegula
