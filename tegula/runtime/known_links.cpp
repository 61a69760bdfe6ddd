#include "tegula/runtime/known_links.h"

#include <map>
#include <mutex>

#include "tegula/base/str.h"
#include "tegula/comm/link.h"
#include "tegula/io/file.h"
#include "tegula/runtime/probe.h"

namespace tegula {

std::string links_name() {
  const auto link = link_speed_of_environment();
  if (!link.ok() || !link->is_slowed()) return machine_name();
  return cat(machine_name(), ", links slowed to ", link->latency_s, " s and ", link->bytes_per_s,
             " bytes a second");
}

const CommTable* known_comm_table(const TuneOptions& options, std::string* warning) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<CommTable>> known;  // null: not to be had
  const std::string directory = tuning_directory(options);
  if (directory.empty()) return nullptr;
  const std::lock_guard lock(mutex);
  const auto [it, is_new] = known.try_emplace(directory);
  if (!is_new) return it->second.get();
  CommTable table(links_name());
  if (!path_exists(table.path(directory))) return nullptr;
  const Status st = table.load(directory);
  if (st.ok())
    it->second = std::make_unique<CommTable>(std::move(table));
  else if (warning)
    *warning = st.error().message;
  return it->second.get();
}

}  // namespace tegula
