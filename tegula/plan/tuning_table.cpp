#include "tegula/plan/tuning_table.h"

#include "tegula/base/text.h"
#include "tegula/io/file.h"
#include "tegula/io/machine_file.h"

namespace tegula {

namespace {

constexpr MachineFile kFile = {.format = "tegula.tunings",
                               .what = "table of tunings",
                               .remedy = "it is ignored and will be replaced",
                               .body = "calls"};

std::string to_text(const AttrValue& value) {
  if (const auto* b = value.get_if<bool>()) return *b ? "true" : "false";
  if (const auto* i = value.get_if<int64_t>()) return cat(*i);
  if (const auto* f = value.get_if<double>()) return cat(*f);
  if (const auto* s = value.get_if<std::string>()) return cat("'", *s, "'");
  if (const auto* t = value.get_if<DType>()) return cat(*t);
  if (const auto* ints = value.get_if<std::vector<int64_t>>()) return joined(*ints, ",");
  return joined(value.get<std::vector<Dim>>(), ",", [](const Dim& d) { return d.bound(); });
}

std::string to_text(const TensorRef& t) {
  std::string out = cat(t.dtype, "[");
  for (int d = 0; d < t.rank; ++d) out += cat(d ? " " : "", t.shape[d], ":", t.stride[d]);
  return out + "]";
}

Json to_json(const std::string& key, const TunedCall& c) {
  // Set one by one: initialiser lists of Json trip a warning of GCC 12.
  Json::Array knobs(std::begin(c.tuning.knob), std::end(c.tuning.knob));
  Json out = Json::object();
  out.set("key", key), out.set("tuning", std::move(knobs)), out.set("is_full", c.is_full);
  out.set("trials", c.trials), out.set("points", c.points);
  out.set("ms", c.ms), out.set("default_ms", c.default_ms);
  return out;
}

// False where the entry is not one.
bool from_json(const Json& j, std::string& key, TunedCall& c) {
  const auto* name = j.find_as<std::string>("key");
  const auto* list = j.find_as<Json::Array>("tuning");
  const Json* is_full = j.find("is_full");
  if (!name || !list || list->size() != Tuning::kKnobs || !is_full) return false;
  key = *name;
  for (size_t i = 0; i < Tuning::kKnobs; ++i) {
    const auto* v = (*list)[i].as<int64_t>();
    if (!v || *v < 0 || *v > INT32_MAX) return false;
    c.tuning.knob[i] = static_cast<int32_t>(*v);
  }
  const auto number = [&](const char* field) {
    const Json* v = j.find(field);
    return v ? v->number(0) : 0;
  };
  const auto count = [&](const char* field, int& to) {
    const auto* n = j.find_as<int64_t>(field);
    const bool is_count = n && *n >= 0 && *n <= INT32_MAX;
    if (is_count) to = static_cast<int>(*n);
    return is_count || !j.find(field);
  };
  c.is_full = *is_full == Json(true);
  c.ms = number("ms"), c.default_ms = number("default_ms");
  return count("trials", c.trials) && count("points", c.points);
}

}  // namespace

std::string tuning_key(const KernelDef& kernel, const KernelQuery& query) {
  std::string key = cat(kernel.name, " x", query.target->n_threads);
  for (const auto& [name, value] : *query.attrs) key += cat(" ", name, "=", to_text(value));
  for (const TensorRef& t : query.in) key += cat(" ", to_text(t));
  key += " ->";
  for (const TensorRef& t : query.out) key += cat(" ", to_text(t));
  return key;
}

TuningTable::TuningTable(const std::string& directory, std::string machine)
    : machine_(std::move(machine)) {
  if (directory.empty()) return;
  path_ = machine_file_path(directory, "tunings", machine_);
  if (!path_exists(path_)) return;
  if (const Status st = read(calls_); !st.ok()) warning_ = st.error().message;
}

Status TuningTable::read(std::map<std::string, TunedCall>& calls) const {
  const Json body = TEGULA_TRY(kFile.load(path_, machine_));
  const auto* list = body.as<Json::Array>();
  if (!list) return kFile.refuse(path_, "this is no table of tunings");
  std::map<std::string, TunedCall> found;
  for (const Json& j : *list) {
    std::string key;
    TunedCall call;
    if (!from_json(j, key, call)) return kFile.refuse(path_, "an entry is malformed");
    found[key] = call;
  }
  calls = std::move(found);
  return {};
}

const TunedCall* TuningTable::find(const std::string& key) const {
  const auto it = calls_.find(key);
  return it == calls_.end() ? nullptr : &it->second;
}

void TuningTable::put(const std::string& key, const TunedCall& call) { calls_[key] = call; }

Status TuningTable::save() {
  if (path_.empty()) return {};
  std::map<std::string, TunedCall> others;
  // Ours win; a file that cannot be read is replaced.
  if (path_exists(path_) && read(others).ok()) calls_.merge(others);
  Json::Array list;
  for (const auto& [key, call] : calls_) list.emplace_back(to_json(key, call));
  return kFile.save(path_, machine_, Json(std::move(list)));
}

}  // namespace tegula
