#include "tegula/train/rank_run.h"

namespace tegula {

Result<WholeStore> whole_store(const RankRuns& ranks, bool has_values) {
  if (ranks.size() == 1 && !ranks[0]->rank.device)
    return WholeStore{nullptr, nullptr, &ranks[0]->store};
  WholeStore whole{std::make_unique<Rank>(1), nullptr, nullptr};
  whole.copy = std::make_unique<Store>(*whole.rank);
  whole.store = whole.copy.get();
  std::vector<const Store*> parts;
  for (const auto& r : ranks) parts.push_back(&r->store);
  for (const NamedTensor& t : TEGULA_TRY(joined(parts))) {
    const std::span<const int64_t> shape(t.tensor.shape, static_cast<size_t>(t.tensor.rank));
    const TensorRef to = TEGULA_TRY(whole.store->get(t.name, {t.tensor.dtype, Shape(shape)}));
    if (!has_values) continue;
    for (const auto& r : ranks) {
      if (!r->store.find(t.name).data) continue;
      TEGULA_TRY(r->store.read(t.name, to));
      if (t.parts.empty()) break;  // it has it whole
    }
  }
  return whole;
}

Status give_out(const WholeStore& whole, const RankRuns& ranks) {
  if (!whole.copy) return {};
  for (const auto& r : ranks)
    for (const auto& [name, entry] : *whole.store) TEGULA_TRY(r->store.fill(name, entry.ref));
  return {};
}

}  // namespace tegula
