#include "tegula/train/shared_save.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/text.h"
#include "tegula/ir/reference.h"
#include "tegula/models/checkpoint.h"
#include "tegula/train/step.h"

namespace tegula {

namespace {
std::vector<NamedTensor> named(const std::vector<std::pair<std::string, TensorRef>>& tensors) {
  std::vector<NamedTensor> out;
  for (const auto& [name, t] : tensors) out.push_back({name, t});
  return out;
}
std::vector<int64_t> without_first(const std::vector<int64_t>& v) {
  return {v.begin() + 1, v.end()};
}
}  // namespace

Result<SharedSave> SharedSave::plan(const TrainConfig& config,
                                    const std::vector<WeightSpec>& weights, const State& state) {
  SharedSave s;
  s.config_ = &config;
  std::vector<std::pair<std::string, TensorRef>> whole;
  std::byte nowhere;  // tensors of the plan have places in it, and no data
  for (const WeightSpec& w : weights) {
    whole.emplace_back(w.name, contiguous_ref(&nowhere, w.type));
    s.is_weight_.insert(w.name);
  }
  std::vector<NamedTensor> model = named(checkpoint_tensors(config.model, whole, s.zeros_));
  s.constants_.assign(model.end() - static_cast<int64_t>(s.zeros_.size()), model.end());
  s.model_ = TEGULA_TRY(SharedSafetensors::plan(model));
  std::vector<NamedTensor> tensors;
  for (const auto& [name, type] : state)
    if (!s.is_weight_.contains(name) && !is_sum_of_gradients(name))
      tensors.push_back({name, contiguous_ref(nullptr, type)});
  s.state_ = TEGULA_TRY(SharedSafetensors::plan(tensors));
  return s;
}

Result<std::string> SharedSave::begin(const TrainConfig& config, const FileLock& lock,
                                      int64_t step) {
  writer_.emplace(TEGULA_TRY(CheckpointWriter::begin(config.out, step, lock)));
  model_at_ = TEGULA_TRY(writer_->share(kModelFile, model_));
  state_at_ = TEGULA_TRY(writer_->share(kOptimizerFile, state_));
  auto out = TEGULA_TRY(model_.open(model_at_.path, model_at_.shown_path));
  for (const NamedTensor& t : constants_)
    TEGULA_TRY(out.write(t.name, Box::whole(shape_of(t.tensor)), t.tensor));
  TEGULA_TRY(out.finish());
  return cat(model_at_.path, '\n', model_at_.shown_path, '\n', state_at_.path, '\n',
             state_at_.shown_path);
}

void SharedSave::join(std::string_view begun) {
  for (std::string* at :
       {&model_at_.path, &model_at_.shown_path, &state_at_.path, &state_at_.shown_path}) {
    *at = take_until('\n', begun);
  }
}

// A weight may be several tensors of the file, one for each index of its first dim.
Status SharedSave::write_weight(SharedSafetensors::Writer& out, const std::string& name,
                                const TensorPart& part) const {
  const Box& box = part.box;
  const int64_t end = box.offset.empty() ? 0 : box.offset[0] + box.extent[0];
  const auto names = checkpoint_part_names(config_->model, name, end);
  if (names.size() == 1 && names[0] == name) return out.write(name, box, part.data);
  const Box rest{without_first(box.offset), without_first(box.extent)};
  for (int64_t e = box.offset[0]; e < end; ++e) {
    TensorRef one = part.data;
    one.data = part.data.as<std::byte>() +
               (e - box.offset[0]) * part.data.stride[0] * size_bytes(one.dtype);
    one.rank -= 1;
    for (int d = 0; d < one.rank; ++d)
      one.shape[d] = one.shape[d + 1], one.stride[d] = one.stride[d + 1];
    TEGULA_TRY(out.write(names[static_cast<size_t>(e)], rest, one));
  }
  return {};
}

Status SharedSave::write(const Store& store,
                         bool (*is_written)(const void* context, std::string_view name),
                         const void* context) const {
  auto model = TEGULA_TRY(model_.open(model_at_.path, model_at_.shown_path));
  auto state = TEGULA_TRY(state_.open(state_at_.path, state_at_.shown_path));
  for (const auto& [name, entry] : store) {
    if (is_sum_of_gradients(name) || !is_written(context, name)) continue;
    for (const TensorPart& part : entry.parts(entry.ref))
      if (is_weight_.contains(name))
        TEGULA_TRY(write_weight(model, name, part));
      else
        TEGULA_TRY(state.write(name, part.box, part.data));
  }
  TEGULA_TRY(model.finish());
  return state.finish();
}

Result<std::string> SharedSave::publish(const TrainConfig& config,
                                        const std::vector<TextFile>& texts,
                                        const DataHashes& hashes, int64_t step) {
  TEGULA_TRY(writer_->take(kModelFile));
  for (const auto& [name, text] : texts) TEGULA_TRY(writer_->add_file(name, text));
  TEGULA_TRY(writer_->take(kOptimizerFile));
  TEGULA_TRY(writer_->add_file(kTrainerStateFile, trainer_state(config, hashes, step)));
  return TEGULA_TRY(writer_->publish()).path;
}

}  // namespace tegula
