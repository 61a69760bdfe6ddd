// Many small launches of one kernel become one: of the updates of a model's parameters, say. And a
// launch may begin with the one before it, products with the norm of what they read, and end with
// the one after it, products with the gate of what they make.
#include <unordered_map>

#include "tegula/runtime/device_steps.h"

namespace tegula {

namespace {

constexpr size_t kMostBetween = 1024;  // steps looked at for each

bool may_change_places(const StepTouched& a, const StepTouched& b) {
  return !a.is_all && !b.is_all && !a.is_ordered_with(b);
}

// Whether b may do what a does in each of its blocks.
bool may_begin_with(const StepTouched& b, const StepTouched& a) {
  return !a.is_all && !b.is_all && !meet(a.read, a.written) && !meet(a.read, b.written) &&
         !meet(a.written, b.written);
}

// Whether each block of a may do with what it has made what b does with that.
bool may_end_with(const StepTouched& a, const StepTouched& b) {
  return !a.is_all && !b.is_all && !meet(b.written, a.read);
}

}  // namespace

// Weights and inputs that no step of the plan writes.
std::vector<MemoryRange> DeviceSteps::constants() const {
  std::vector<MemoryRange> all;
  for (size_t i = 0; i < steps_.size(); ++i)
    for (size_t k = 0; k < steps_[i].in.size(); ++k) {
      const Slot& slot = plan_.slots[static_cast<size_t>(plan_.steps[i].in[k].slot)];
      if (slot.kind != SlotKind::kParam) continue;
      const Plan::Port& p = plan_.params[static_cast<size_t>(slot.param)];
      if ((p.role == Role::kWeight || p.role == Role::kInput) && p.donated_to < 0)
        all.push_back(bytes_of(steps_[i].in[k]));
    }
  return all;
}

// Finds what the device does better as one launch than as several in a row.
Status DeviceSteps::put_in_one(std::vector<StepTouched>& touched,
                               std::span<const MemoryRange> constant) {
  std::vector<WorkInOrder> work;
  std::vector<size_t> step;
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].is_empty || (on_device_[i] && launches(i) == 0)) continue;
    const bool is_single = ready_[i].launches.size() == 1 && !touched[i].is_all;
    // Whatever ran before the first may write anything.
    const Prepared* prepared = is_single && !work.empty() ? ready_[i].launches[0].get() : nullptr;
    work.push_back({prepared, &touched[i]});
    step.push_back(i);
  }
  for (WorkInOne& one : TEGULA_TRY(device_.put_in_one(work, constant))) {
    const size_t first = step[one.first];
    in_one_.emplace_back(step.begin() + static_cast<std::ptrdiff_t>(one.first),
                         step.begin() + static_cast<std::ptrdiff_t>(one.first + one.n));
    for (size_t k = 1; k < one.n; ++k) {
      const size_t i = step[one.first + k];
      ready_[i].launches.clear();
      touched[first].add(touched[i]);
    }
    ready_[first].launches[0] = std::move(one.prepared);
  }
  return {};
}

Result<std::vector<DeviceSteps::Share>> DeviceSteps::shares() const {
  std::vector<Share> all(steps_.size());
  for (const std::vector<size_t>& steps : in_one_) {
    const std::vector<double> of = TEGULA_TRY(ready_[steps[0]].launches[0]->shares());
    for (size_t k = 0; k < of.size(); ++k) all[steps[k]] = {static_cast<int>(steps[0]), of[k]};
  }
  return all;
}

Status DeviceSteps::join_launches() {
  std::vector<StepTouched> touched(steps_.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    const BoundStep& b = steps_[i];
    StepTouched& t = touched[i];
    if (b.is_empty || (on_device_[i] && launches(i) == 0)) continue;  // a concat in place, say
    const Step& step = plan_.steps[i];
    t.is_all = !on_device_[i] || !step.kernel || step.starts >= 0 || step.ends >= 0;
    for (const TensorRef& x : b.in) t.read.push_back(bytes_of(x));
    for (const TensorRef& x : b.out) t.written.push_back(bytes_of(x));
    if (const int slot = step.workspace; slot >= 0) {
      const auto begin = reinterpret_cast<uintptr_t>(b.workspace);
      const auto n = static_cast<uintptr_t>(plan_.slots[static_cast<size_t>(slot)].bytes);
      t.written.push_back({begin, begin + n});
    }
  }
  std::unordered_map<const void*, size_t> first;  // of each kind, the step that others may join
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (ready_[i].launches.size() != 1) continue;
    const void* kind = ready_[i].launches[0]->kind();
    if (kind == nullptr) continue;
    const auto [at, is_new] = first.try_emplace(kind, i);
    if (is_new) continue;
    const size_t j = at->second;
    bool may = i - j <= kMostBetween;
    for (size_t k = i; may && k-- > j;) may = may_change_places(touched[i], touched[k]);
    if (may && ready_[j].launches[0]->take(*ready_[i].launches[0])) {
      ready_[i].launches.clear();
      touched[j].add(touched[i]);
    } else {
      at->second = i;
    }
  }
  const std::vector<MemoryRange> constant = constants();
  TEGULA_TRY(put_in_one(touched, constant));
  size_t before = steps_.size();
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].is_empty || (on_device_[i] && launches(i) == 0)) continue;
    const bool are_single =
        before < i && ready_[before].launches.size() == 1 && ready_[i].launches.size() == 1;
    if (are_single && may_end_with(touched[before], touched[i]) &&
        TEGULA_TRY(ready_[before].launches[0]->end_with(*ready_[i].launches[0]))) {
      ready_[i].launches.clear();
      touched[before].add(touched[i]);
      continue;
    }
    if (are_single && may_begin_with(touched[i], touched[before]) &&
        TEGULA_TRY(ready_[i].launches[0]->begin_with(*ready_[before].launches[0])))
      ready_[before].launches.clear(), touched[i].add(touched[before]);
    before = i;
  }
  // Whatever ran before the first launch may write anything; it has ended when the second begins.
  bool is_first = true;
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].is_empty || (on_device_[i] && launches(i) == 0)) continue;
    for (const auto& launch : ready_[i].launches)
      TEGULA_TRY(launch->settle(is_first ? std::span<const MemoryRange>() : constant));
    is_first = false;
  }
  return {};
}

}  // namespace tegula
