// Many small launches of one kernel become one: of the updates of a model's parameters, say.
#include <algorithm>
#include <unordered_map>

#include "tegula/runtime/device_steps.h"

namespace tegula {

namespace {

constexpr size_t kMostBetween = 1024;  // steps looked at for each

struct Bytes {
  uintptr_t begin = 0, end = 0;
};

// From the first byte of a tensor to its last.
Bytes bytes_of(const TensorRef& t) {
  const auto begin = reinterpret_cast<uintptr_t>(t.data);
  int64_t last = 0;
  for (int d = 0; d < t.rank; ++d) {
    if (t.shape[d] == 0) return {begin, begin};
    last += (t.shape[d] - 1) * t.stride[d];
  }
  return {begin, begin + static_cast<uintptr_t>((last + 1) * size_bytes(t.dtype))};
}

struct Touched {
  bool is_all = false;  // it cannot be told
  std::vector<Bytes> read, written;
};

bool meet(const std::vector<Bytes>& a, const std::vector<Bytes>& b) {
  return std::any_of(a.begin(), a.end(), [&](const Bytes& x) {
    return std::any_of(b.begin(), b.end(),
                       [&](const Bytes& y) { return x.begin < y.end && y.begin < x.end; });
  });
}

bool may_change_places(const Touched& a, const Touched& b) {
  return !a.is_all && !b.is_all && !meet(a.written, b.written) && !meet(a.written, b.read) &&
         !meet(a.read, b.written);
}

}  // namespace

void DeviceSteps::join_alike() {
  std::vector<Touched> touched(steps_.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    const BoundStep& b = steps_[i];
    Touched& t = touched[i];
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
    if (may && ready_[j].launches[0]->take(*ready_[i].launches[0]))
      ready_[i].launches.clear();
    else
      at->second = i;
  }
}

}  // namespace tegula
