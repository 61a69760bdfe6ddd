#include "tegula/plan/comm_table.h"

#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/base/str.h"
#include "tegula/io/machine_file.h"

namespace tegula {

namespace {

constexpr MachineFile kFile = {.format = "tegula.comm",
                               .what = "table of collectives",
                               .remedy = "remove it, and measure anew with `tegula bench comm`"};

bool read_row(const Json& j, CommRow& r) {
  const auto take = [&]<class T>(std::string_view key, T& to) {
    const T* v = j.find_as<T>(key);
    if (v) to = *v;
    return v != nullptr;
  };
  const Json *seconds = j.find("seconds"), *fitted = j.find("fitted_seconds");
  if (!take("op", r.op) || !take("algorithm", r.algorithm) || !take("ranks", r.ranks) ||
      !take("bytes", r.bytes) || !take("chosen", r.chosen) ||
      !take("adds_on_the_way", r.adds_on_the_way) || !seconds || !fitted)
    return false;
  r.seconds = seconds->number(-1), r.fitted_seconds = fitted->number(-1);
  return r.ranks > 0 && r.bytes > 0 && r.seconds > 0 && r.fitted_seconds >= 0;
}

}  // namespace

std::string_view CommTable::choose(std::string_view op, int64_t ranks, int64_t bytes,
                                   bool may_add_on_the_way) const {
  const CommRow* best = nullptr;
  double nearest = 0;
  for (const CommRow& r : rows) {
    if (r.op != op || r.ranks != ranks || (r.adds_on_the_way && !may_add_on_the_way)) continue;
    const double far = std::abs(std::log2(static_cast<double>(r.bytes)) -
                                std::log2(static_cast<double>(std::max<int64_t>(bytes, 1))));
    if (best && (far > nearest || (far == nearest && r.seconds >= best->seconds))) continue;
    best = &r, nearest = far;
  }
  return best ? std::string_view(best->algorithm) : std::string_view();
}

std::string CommTable::path(const std::string& directory) const {
  return machine_file_path(directory, "comm", machine_);
}

Status CommTable::save(const std::string& directory) const {
  if (directory.empty()) return {};
  Json::Array list = json_list(rows, [](const CommRow& r) {
    return Json::object({{"op", r.op},
                         {"algorithm", r.algorithm},
                         {"ranks", r.ranks},
                         {"bytes", r.bytes},
                         {"seconds", r.seconds},
                         {"fitted_seconds", r.fitted_seconds},
                         {"chosen", r.chosen},
                         {"adds_on_the_way", r.adds_on_the_way}});
  });
  Json body = Json::object(
      {{"rows", std::move(list)},
       {"link", Json::object({{"alpha_s", link_s}, {"bytes_per_s", link_bytes_per_s}})}});
  return kFile.save(path(directory), machine_, std::move(body));
}

Status CommTable::load(const std::string& directory) {
  const std::string file_path = path(directory);
  const Json body = TEGULA_TRY(kFile.load(file_path, machine_));
  const Error malformed = kFile.refuse(file_path, "an entry is malformed");
  const Json* link = body.find("link");
  const auto* all = body.find_as<Json::Array>("rows");
  const Json* alpha = link ? link->find("alpha_s") : nullptr;
  const Json* rate = link ? link->find("bytes_per_s") : nullptr;
  if (!all || !alpha || !rate) return malformed;
  CommTable found(machine_);
  found.link_s = alpha->number(-1), found.link_bytes_per_s = rate->number(-1);
  if (!(found.link_s >= 0) || !(found.link_bytes_per_s >= 0)) return malformed;
  for (const Json& j : *all)
    if (!read_row(j, found.rows.emplace_back())) return malformed;
  *this = std::move(found);
  return {};
}

}  // namespace tegula
