// Calibrations on disk: one file of a machine, written whole and renamed.

#include "tegula/base/algorithm.h"
#include "tegula/io/machine_file.h"
#include "tegula/planner/calibration.h"

namespace tegula::planner {

namespace {

constexpr MachineFile kFile = {.format = "tegula.calibration",
                               .version = 2,
                               .what = "calibration",
                               .remedy = "remove it to measure anew"};

Json numbers(const std::vector<double>& all) { return Json::Array(all.begin(), all.end()); }

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
  return machine_file_path(directory, "calibration", machine_);
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
  return kFile.save(path(directory), machine_, std::move(body));
}

Status Calibration::load(const std::string& directory) {
  const std::string file_path = path(directory);
  const Json body = TEGULA_TRY(kFile.load(file_path, machine_));
  const Error malformed = kFile.refuse(file_path, "an entry is malformed");
  const auto *names = body.find_as<Json::Array>("sets"), *list = body.find_as<Json::Array>("calls");
  Calibration found(machine_);
  const auto is_time = [](double s) { return s > 0; };
  if (!names || !list || !read(body.find("graphs_s"), found.wholes_) ||
      !std::all_of(found.wholes_.begin(), found.wholes_.end(), is_time))
    return malformed;
  for (const Json& j : *names)
    if (const auto* name = j.as<std::string>()) found.sets_.push_back(*name);
  for (const Json& j : *list) {
    MeasuredCall c;
    if (!read(j, found.wholes_.size(), c)) return malformed;
    found.calls_.push_back(std::move(c));
  }
  *this = std::move(found);
  finish();
  return {};
}

}  // namespace tegula::planner
