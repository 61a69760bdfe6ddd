#include "tegula/plan/comm_table.h"

#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/base/str.h"
#include "tegula/io/file.h"
#include "tegula/io/json.h"
#include "tegula/io/sha256.h"

namespace tegula {

namespace {

constexpr std::string_view kFormat = "tegula.comm";
constexpr int64_t kVersion = 1;

bool read_row(const Json& j, CommRow& r) {
  const auto text = [&](std::string_view key, std::string& to) {
    const Json* v = j.find(key);
    const auto* s = v ? v->as<std::string>() : nullptr;
    if (s) to = *s;
    return s != nullptr;
  };
  const auto whole = [&](std::string_view key, int64_t& to) {
    const Json* v = j.find(key);
    const auto* n = v ? v->as<int64_t>() : nullptr;
    if (n) to = *n;
    return n && to > 0;
  };
  const Json *seconds = j.find("seconds"), *fitted = j.find("fitted_seconds");
  const Json *chosen = j.find("chosen"), *adds = j.find("adds_on_the_way");
  if (!text("op", r.op) || !text("algorithm", r.algorithm) || !whole("ranks", r.ranks) ||
      !whole("bytes", r.bytes) || !seconds || !fitted || !chosen || !chosen->as<bool>() || !adds ||
      !adds->as<bool>())
    return false;
  r.seconds = seconds->number(-1), r.fitted_seconds = fitted->number(-1);
  r.chosen = *chosen->as<bool>(), r.adds_on_the_way = *adds->as<bool>();
  return r.seconds > 0 && r.fitted_seconds >= 0;
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
  return join_path(directory, cat("comm-", sha256_hex(machine_).substr(0, 16), ".json"));
}

Status CommTable::save(const std::string& directory) const {
  if (directory.empty()) return {};
  Json::Array list;
  for (const CommRow& r : rows)
    list.push_back(Json::object({{"op", r.op},
                                 {"algorithm", r.algorithm},
                                 {"ranks", r.ranks},
                                 {"bytes", r.bytes},
                                 {"seconds", r.seconds},
                                 {"fitted_seconds", r.fitted_seconds},
                                 {"chosen", r.chosen},
                                 {"adds_on_the_way", r.adds_on_the_way}}));
  Json body = Json::object(
      {{"rows", std::move(list)},
       {"link", Json::object({{"alpha_s", link_s}, {"bytes_per_s", link_bytes_per_s}})}});
  const std::string hash = sha256_hex(body.dump());
  Json file = Json::object();
  file.set("format", kFormat), file.set("version", kVersion), file.set("machine", machine_);
  file.set("sha256", hash), file.set("body", std::move(body));
  TEGULA_TRY(make_directories(directory));
  return replace_file(path(directory), file.dump(1) + "\n");
}

Status CommTable::load(const std::string& directory) {
  const std::string file_path = path(directory);
  const std::string text = TEGULA_TRY(read_file(file_path));
  const Json file = TEGULA_TRY(Json::parse(text, file_path));
  const auto refuse = [&](std::string_view why) {
    return invalid_argument(
        cat(file_path, ": ", why, "; remove it, and measure anew with `tegula bench comm`"));
  };
  const auto is = [&](std::string_view key, const Json& value) {
    const Json* have = file.find(key);
    return have && *have == value;
  };
  const Json* body = file.find("body");
  if (!is("format", Json(kFormat)) || !body) return refuse("this is no table of collectives");
  if (!is("version", Json(kVersion))) return refuse("it has another version than this build's");
  if (!is("machine", Json(machine_))) return refuse("it is of another machine");
  if (!is("sha256", Json(sha256_hex(body->dump())))) return refuse("its text was altered");
  const Json *list = body->find("rows"), *link = body->find("link");
  const auto* all = list ? list->as<Json::Array>() : nullptr;
  const Json* alpha = link ? link->find("alpha_s") : nullptr;
  const Json* rate = link ? link->find("bytes_per_s") : nullptr;
  if (!all || !alpha || !rate) return refuse("an entry is malformed");
  CommTable found(machine_);
  found.link_s = alpha->number(-1), found.link_bytes_per_s = rate->number(-1);
  if (!(found.link_s >= 0) || !(found.link_bytes_per_s >= 0))
    return refuse("an entry is malformed");
  for (const Json& j : *all)
    if (!read_row(j, found.rows.emplace_back())) return refuse("an entry is malformed");
  *this = std::move(found);
  return {};
}

}  // namespace tegula
