// How a trainer saves: alone, or each rank its share.
#include "tegula/runtime/finite_hunt.h"
#include "tegula/train/ranks.h"
#include "tegula/train/shared_save.h"
#include "tegula/train/trainer.h"

namespace tegula {

std::string Trainer::what_is_kept() const {
  return config_.out.empty()
             ? "nothing was saved (no --out)"
             : cat("the last good checkpoint in ", config_.out, " is kept, if one was saved");
}

Error Trainer::weight_not_finite(const std::string& name) const {
  return invalid_argument(cat("after step ", step_, " the weight ", name,
                              " is not finite, and is not saved; ", what_is_kept(),
                              ". Lower --lr, lengthen --warmup or set --grad-clip"));
}

Status Trainer::save() {
  if (config_.out.empty()) return {};
  if (is_alone()) {
    const HostStore whole = TEGULA_TRY(host_store(*ranks_[0]));
    for (const WeightSpec& w : functions_.weights)
      if (!are_finite(whole.store->find(w.name))) return weight_not_finite(w.name);
    saved_ = TEGULA_TRY(
        save_checkpoint(config_, *lock_, texts_, functions_.weights, *whole.store, hashes_, step_));
  } else {
    TEGULA_TRY(save_shares());
  }
  saved_step_ = step_;
  group_.segment().note_saved(step_);
  return {};
}

// The sharding of a weight or state, whichever plan has it.
const Sharding& Trainer::sharding_of_state(std::string_view name) const {
  const Sharding* s = nullptr;
  for (const CompiledRanks& c : plans_)
    if (!s) s = sharding_of(c, name);
  TEGULA_CHECK(s != nullptr, "no plan has ", name);
  return *s;
}

// The bytes that all ranks together hold besides weights.
SharedSave::State Trainer::state_of_all() const {
  SharedSave::State state;
  if (is_staged())
    for (const auto& [name, value] : stages_->values)
      if (value.role != Role::kInput) state[name] = value.type;
  for (const auto& [name, entry] : ranks_[0]->store) state[name] = {entry.type.dtype, entry.shape};
  return state;
}

std::set<std::string, std::less<>> Trainer::state_elsewhere() const {
  std::set<std::string, std::less<>> names;
  if (is_staged())
    for (const auto& [name, value] : stages_->values) names.insert(name);
  return names;
}

// Every rank writes its own part of the files; nobody gathers anything.
Status Trainer::save_shares() {
  Segment& segment = group_.segment();
  std::string bad;  // the number of the first weight that is not finite
  for (size_t i = 0; i < functions_.weights.size() && bad.empty(); ++i)
    for (const auto& run : ranks_)
      if (const TensorRef w = run->store.find(functions_.weights[i].name); w.data && !are_finite(w))
        bad = cat(i);
  for (const std::string& one : TEGULA_TRY(segment.exchange(bad)))
    if (!one.empty()) {
      const auto i = static_cast<size_t>(std::strtoull(one.c_str(), nullptr, 10));
      return weight_not_finite(functions_.weights[i].name);
    }
  auto files = TEGULA_TRY(SharedSave::plan(config_, functions_.weights, state_of_all()));
  const std::string begun =
      is_speaker() ? TEGULA_TRY(files.begin(config_, *lock_, step_)) : std::string();
  const std::string known = TEGULA_TRY(segment.exchange(begun))[0];
  if (!is_speaker()) files.join(known);
  struct Who {
    const Trainer* trainer;
    int64_t rank;
  };
  TEGULA_TRY(group_.run([&](int64_t r) {
    const Who who{this, r};
    const auto is_written = [](const void* context, std::string_view name) {
      const Who& w = *static_cast<const Who*>(context);
      if (w.trainer->is_staged()) return w.trainer->stages_->is_writer(name, w.rank);
      return is_writer(w.trainer->plans_[kStep], w.trainer->sharding_of_state(name), w.rank);
    };
    return files.write(run_of(r).store, is_written, &who);
  }));
  TEGULA_TRY(segment.exchange(""));  // all have written
  const std::string published =
      is_speaker() ? TEGULA_TRY(files.publish(config_, texts_, hashes_, step_)) : std::string();
  saved_ = TEGULA_TRY(segment.exchange(published))[0];
  return {};
}

}  // namespace tegula
