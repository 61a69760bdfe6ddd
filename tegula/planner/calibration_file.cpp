// Calibrations on disk: one file of a machine, written whole and renamed.

#include "tegula/base/algorithm.h"
#include "tegula/io/file.h"
#include "tegula/io/json.h"
#include "tegula/io/sha256.h"
#include "tegula/planner/calibration.h"

namespace tegula::planner {

namespace {

constexpr std::string_view kFormat = "tegula.calibration";
constexpr int64_t kVersion = 2;

Json numbers(const std::vector<double>& all) {
  Json::Array list;
  for (const double v : all) list.emplace_back(v);
  return Json(std::move(list));
}

bool read(const Json* j, std::vector<double>& to) {
  const auto* list = j ? j->as<Json::Array>() : nullptr;
  if (!list) return false;
  for (const Json& v : *list) {
    if (!v.is_number()) return false;
    to.push_back(v.number(0));
  }
  return true;
}

bool read(const Json& j, size_t n_graphs, MeasuredCall& c) {
  const Json *kind = j.find("kind"), *kernel = j.find("kernel"), *graph = j.find("graph");
  const Json *nominal = j.find("nominal_s"), *seconds = j.find("seconds");
  if (!kind || !kind->as<std::string>() || !kernel || !kernel->as<std::string>()) return false;
  const auto* g = graph ? graph->as<int64_t>() : nullptr;
  if (!g || *g < 0 || *g >= static_cast<int64_t>(n_graphs) || !nominal || !seconds) return false;
  c.kind = *kind->as<std::string>(), c.kernel = *kernel->as<std::string>();
  c.graph = static_cast<int>(*g);
  const Json* times = j.find("times");
  c.nominal_s = nominal->number(0), c.seconds = seconds->number(-1);
  c.times = times ? times->number(0) : 0;
  return c.nominal_s > 0 && c.seconds >= 0 && c.times > 0 && read(j.find("extents"), c.extents);
}

}  // namespace

std::string Calibration::path(const std::string& directory) const {
  return join_path(directory, cat("calibration-", sha256_hex(machine_).substr(0, 16), ".json"));
}

Status Calibration::save(const std::string& directory) const {
  if (directory.empty()) return {};
  Json::Array calls, sets;
  for (const std::string& s : sets_) sets.emplace_back(s);
  for (const MeasuredCall& c : calls_) {
    Json j = Json::object();
    j.set("kind", c.kind), j.set("kernel", c.kernel), j.set("graph", c.graph),
        j.set("times", c.times);
    j.set("extents", numbers(c.extents));
    j.set("nominal_s", c.nominal_s), j.set("seconds", c.seconds);
    calls.push_back(std::move(j));
  }
  Json body = Json::object();
  body.set("sets", std::move(sets)), body.set("graphs_s", numbers(wholes_));
  body.set("calls", std::move(calls));
  const std::string hash = sha256_hex(body.dump());
  Json file = Json::object();
  file.set("format", kFormat), file.set("version", kVersion), file.set("machine", machine_);
  file.set("sha256", hash), file.set("body", std::move(body));
  TEGULA_TRY(make_directories(directory));
  return replace_file(path(directory), file.dump(1) + "\n");
}

Status Calibration::load(const std::string& directory) {
  const std::string file_path = path(directory);
  const std::string text = TEGULA_TRY(read_file(file_path));
  const Json file = TEGULA_TRY(Json::parse(text, file_path));
  const auto refuse = [&](std::string_view why) {
    return invalid_argument(cat(file_path, ": ", why, "; remove it to measure anew"));
  };
  const auto is = [&](std::string_view key, const Json& value) {
    const Json* have = file.find(key);
    return have && *have == value;
  };
  const Json* body = file.find("body");
  if (!is("format", Json(kFormat)) || !body) return refuse("this is no calibration");
  if (!is("version", Json(kVersion))) return refuse("it has another version than this build's");
  if (!is("machine", Json(machine_))) return refuse("it is of another machine");
  if (!is("sha256", Json(sha256_hex(body->dump())))) return refuse("its text was altered");
  const Json *sets = body->find("sets"), *calls = body->find("calls");
  const auto* names = sets ? sets->as<Json::Array>() : nullptr;
  const auto* list = calls ? calls->as<Json::Array>() : nullptr;
  Calibration found(machine_);
  const auto is_time = [](double s) { return s > 0; };
  if (!names || !list || !read(body->find("graphs_s"), found.wholes_) ||
      !std::all_of(found.wholes_.begin(), found.wholes_.end(), is_time))
    return refuse("an entry is malformed");
  for (const Json& j : *names)
    if (const auto* name = j.as<std::string>()) found.sets_.push_back(*name);
  for (const Json& j : *list) {
    MeasuredCall c;
    if (!read(j, found.wholes_.size(), c)) return refuse("an entry is malformed");
    found.calls_.push_back(std::move(c));
  }
  *this = std::move(found);
  finish();
  return {};
}

}  // namespace tegula::planner
