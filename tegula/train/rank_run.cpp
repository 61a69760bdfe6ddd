#include "tegula/train/rank_run.h"

namespace tegula {

std::vector<Store*> stores_of(const RankRuns& ranks) {
  std::vector<Store*> stores;
  for (const auto& r : ranks) stores.push_back(&r->store);
  return stores;
}

Result<HostStore> host_store(const RankRun& alone) {
  if (!alone.rank.device) return HostStore{nullptr, nullptr, &alone.store};
  HostStore host{std::make_unique<Rank>(1), nullptr, nullptr};
  host.copy = std::make_unique<Store>(*host.rank);
  host.store = host.copy.get();
  for (const auto& [name, entry] : alone.store) {
    const TensorRef to = TEGULA_TRY(host.copy->get(name, {entry.type.dtype, entry.shape}));
    TEGULA_TRY(alone.store.read(name, to));
  }
  return host;
}

}  // namespace tegula
