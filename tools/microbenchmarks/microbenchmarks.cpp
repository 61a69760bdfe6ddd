#include "tools/microbenchmarks/microbenchmarks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>

#include "tegula/base/amounts.h"
#include "tegula/base/text.h"
#include "tegula/cost/collective.h"
#include "tegula/cost/work.h"
#include "tegula/io/file.h"
#include "tegula/io/json.h"

namespace tegula::planner {

namespace {

constexpr std::string_view kNumbers[] = {"f64", "f32", "tf32", "bf16", "fp8", "int8"};
constexpr auto kKernels = std::span(kKernelNames).subspan(1);  // from kFlash1 on
constexpr std::string_view kConstantNames[kHostConstants + 1] = {
    "op",         "module",        "autocast_module",
    "recomputed", "sharded_once",  "sharded_twice",
    "parameter",  "ddp_parameter", "clock"};
constexpr std::string_view kMasks[] = {"none", "causal"}, kWays[] = {"forward", "backward"};

// Keys that are no whole numbers: one of some texts, which counts as its index, or any number.
constexpr struct {
  std::string_view name;
  std::span<const std::string_view> texts = {};
} kKeys[] = {
    {"dtype", kNumbers},      {"kernel", kKernels},     {"mask", kMasks}, {"direction", kWays},
    {"op", kCollectiveNames}, {"what", kConstantNames}, {"seconds"},      {"value"}};

enum Kind { kCopies, kProducts, kAttention, kCollectives, kConstants, kKinds };
constexpr struct {
  std::string_view name, keys;
} kSections[kKinds] = {
    {"copies", "bytes,seconds"},
    {"products", "dtype,m,n,k,seconds"},
    {"attention", "kernel,dtype,batch,heads,seqlen,head_dim,mask,direction,seconds"},
    {"collectives", "op,ranks,at_once,bytes,seconds"},
    {"constants", "what,value"}};

struct Row {
  Kind kind;
  double seconds = 0, size = 0;  // size: rows of a law go by it, and by every second one
  size_t index = 0;              // of its op, or constant
  Number dtype = Number::kBf16;
  RankSpan group;
  Work work;
};

// `v`: by key; what is not there is 0.
Row row_of(Kind kind, std::map<std::string, double> v) {
  Row r{kind, v["seconds"] + v["value"], v["bytes"], static_cast<size_t>(v["op"] + v["what"])};
  r.dtype = static_cast<Number>(v["dtype"]);
  r.group = {static_cast<int64_t>(v["ranks"]), static_cast<int64_t>(v["at_once"])};
  Work& w = r.work;
  if (kind == kCopies) w.bytes = r.size;
  if (kind == kProducts) w = matmul_work("", v["m"], v["n"], v["k"], bytes_of(r.dtype));
  if (kind == kAttention) {
    const double rows = v["batch"] * v["heads"] * v["seqlen"], is_backward = v["direction"];
    w.unit = is_backward > 0 ? Unit::kAttentionBackward : Unit::kAttention;
    w.kernel = static_cast<AttentionKernel>(1 + v["kernel"]);
    w.seqlen = v["seqlen"], w.head_dim = w.k = v["head_dim"];
    w.flops = rows * 4 * w.seqlen * w.head_dim / (1 + v["mask"]) * (1 + 1.5 * is_backward);
    w.bytes = rows * 4 * w.head_dim * bytes_of(r.dtype) * (1 + is_backward);
  }
  if (w.flops > 0) r.size = w.flops;
  return r;
}

Result<double> read_value(const Json& row, std::string_view name) {
  const Json* v = row.find(name);
  if (!v) return invalid_argument(cat("has no ", name));
  const auto key = std::ranges::find_if(kKeys, [&](const auto& k) { return k.name == name; });
  const bool is_whole = key == std::end(kKeys), is_number = is_whole || key->texts.empty();
  const double x = v->number(-1);
  if (is_number && x > 0 && x < 1e18 && (!is_whole || x == std::floor(x))) return x;
  const std::string* text = v->as<std::string>();
  if (!is_number && text)
    if (const auto at = std::ranges::find(key->texts, *text); at != key->texts.end())
      return static_cast<double>(at - key->texts.begin());
  return invalid_argument(cat("has ", name, " = ", v->dump(), ": must be ",
                              is_whole    ? "a whole number above 0"
                              : is_number ? "a number above 0"
                                          : "one of " + joined(key->texts)));
}

Status check_keys(const Json& object, const std::vector<std::string>& known) {
  const auto* members = object.as<Json::Object>();
  if (!members) return invalid_argument("is no object");
  for (const Json::Member& m : *members)
    if (std::ranges::find(known, m.key) == known.end())
      return invalid_argument(
          cat("has '", m.key, "', which nothing reads; its keys are ", joined(known)));
  return {};
}

// No call takes less: operations at the peak, bytes at the bandwidth, of which a switch that adds
// halves what a rank sends. A time in another unit is off by 1,000 or more.
Status check_row(const Row& r, const Accelerator& a) {
  if (r.kind == kConstants && kConstantNames[r.index] == "clock" && r.seconds > 1)
    return invalid_argument("clock is a share of the full one: at most 1");
  if (r.kind == kCopies && r.size <= a.l2_bytes)
    return invalid_argument(cat("bytes = ", r.size, ": a cache holds ", a.l2_bytes, ", give more"));
  if (r.kind == kCollectives && r.group.size < 2)
    return invalid_argument("ranks = 1: a collective has 2 or more");
  double least = 0;
  if (r.kind == kCollectives)
    least = bytes_sent(static_cast<Collective>(r.index), r.size, r.group.size) / 2 /
            link_of({a, 1}, r.group).bytes_per_s;
  else if (r.kind != kConstants)
    least = r.kind == kCopies ? r.size / a.memory_bytes_per_s : r.size / a.peak(r.dtype);
  constexpr double kMostTimes = 1000, kMostShort = .01;  // of what is at peaks; of what is short
  const double most = std::max(kMostShort, kMostTimes * least);
  if (r.seconds >= least && (least == 0 || r.seconds <= most)) return {};
  return invalid_argument(cat("seconds = ", r.seconds, ": ", a.name, " at its peaks takes ", least,
                              ", and more than ", most,
                              " is not believed; are they seconds, to the call's end?"));
}

Result<Row> read_row(const Json& json, Kind kind, const Accelerator& a) {
  const std::vector<std::string> names = split(kSections[kind].keys, ',');
  TEGULA_TRY(check_keys(json, names));
  std::map<std::string, double> values;
  for (const std::string& name : names) values[name] = TEGULA_TRY(read_value(json, name));
  Row r = row_of(kind, std::move(values));
  TEGULA_TRY(check_row(r, a));
  return r;
}

std::string text_of(const Json& json, std::string_view key) {
  const Json* v = json.find(key);
  const auto* text = v ? v->as<std::string>() : nullptr;
  return text ? *text : "";
}

// "NVIDIA H200" is h200, and "NVIDIA GeForce RTX 4090" rtx4090.
bool is_device(std::string_view name, const Accelerator& a) {
  for (const std::string_view maker : {"NVIDIA ", "AMD Instinct ", "GeForce ", "Tesla "})
    if (name.starts_with(maker)) name.remove_prefix(maker.size());
  const Accelerator* row = find_preset(name);
  return is_same_name(row ? row->name : name, a.name) || is_same_name(name, a.name);
}

Result<std::vector<Row>> read_rows(const Json& json, const Accelerator& a) {
  std::vector<std::string> keys = {"format", "version", "device", "source"};
  for (const auto& s : kSections) keys.emplace_back(s.name);
  TEGULA_TRY(check_keys(json, keys));
  const std::string format = text_of(json, "format"), device = text_of(json, "device");
  const Json* version = json.find("version");
  if (format != "tegula.microbenchmarks" || !version || version->number(0) != 1)
    return invalid_argument(cat("is '", format, "' of version ", version ? version->dump() : "none",
                                ", not tegula.microbenchmarks of 1 (bench/microbenchmarks.py)"));
  if (!is_device(device, a))
    return invalid_argument(cat("is of '", device, "', and the cluster's device is ", a.name,
                                ": plan for that one, or set \"device\" to ", a.name,
                                " in the file if it is the same"));
  std::vector<Row> rows;
  for (int kind = 0; kind < kKinds; ++kind) {
    const std::string_view name = kSections[kind].name;
    const Json* section = json.find(name);
    const auto* list = section ? section->as<Json::Array>() : nullptr;
    if (section && (!list || list->empty()))
      return invalid_argument(cat(name, " must be a list of rows; without any leave it out"));
    for (size_t i = 0; list && i < list->size(); ++i) {
      auto row = read_row((*list)[i], static_cast<Kind>(kind), a);
      if (!row.ok()) return invalid_argument(cat(name, "[", i, "] ", row.error().message));
      rows.push_back(*row);
    }
  }
  if (rows.empty()) return invalid_argument("has no rows: nothing to plan by");
  return rows;
}

// The parts of an interval's ends that laws have a say in.
constexpr double Efficiency::*kParts[] = {&Efficiency::memory,    &Efficiency::products,
                                          &Efficiency::attention, &Efficiency::inside,
                                          &Efficiency::between,   &Efficiency::host};
enum Part { kMemory, kProduct, kOfAttention, kInside, kBetween, kHost };

struct Constant {
  std::string_view name;
  double* at = nullptr;
  double begin = 0;  // where the search begins that knows nothing; 0: at the least of the rows
};
struct Law {
  std::string name;
  Part part;
  std::vector<Constant> constants;
  std::vector<Row> rows = {};
};

// The law of a row, its constants those of `a`.
Law law_of(const Row& r, Accelerator& a) {
  Sustained& s = a.sustained;
  if (r.kind == kCopies) return {"copies", kMemory, {{"memory", &s.memory, .9}}};
  if (r.kind == kProducts)
    return {"products", kProduct, {{"product", &s.product, .75}, {"k_half", &s.k_half, 100}}};
  if (r.kind == kConstants) {
    const std::string_view name = kConstantNames[r.index];
    if (name == "clock") return {"clock", kProduct, {{name, &s.clock}}};
    return {cat("host ", name), kHost, {{name, &s.host[r.index]}}};
  }
  if (r.kind == kCollectives) {
    const bool is_inside = is_in_node({a, 1}, r.group);
    LinkShare& link = (is_inside ? s.inside : s.between)[r.index];
    return {cat(kCollectiveNames[r.index], is_inside ? " within a node" : " between nodes"),
            is_inside ? kInside : kBetween,
            {{"share", &link.share, .8}, {"message_s", &link.message_s}}};
  }
  AttentionCurves& curves = s.attention[static_cast<size_t>(r.work.kernel)];
  const bool is_backward = r.work.unit == Unit::kAttentionBackward;
  Curve& curve = curves.of(r.work.head_dim)[is_backward];
  curves.is_known = true;
  return {cat("attention ", kernel_name(r.work.kernel), " ", kWays[is_backward], ", heads ",
              r.work.head_dim > kNarrowHead ? "over " : "up to ", kNarrowHead),
          kOfAttention,
          {{"most", &curve.most, .5}, {"half", &curve.half, 500}}};
}

double error_of(const Law& law, const Row& r, const ClusterSpec& c) {
  double seconds = 0;
  if (r.kind == kCollectives)
    seconds = seconds_of(c, static_cast<Collective>(r.index), r.size, r.group, kExpected, 1);
  else if (r.kind == kConstants)
    seconds = *law.constants[0].at;
  else
    seconds = price(r.work, c.device, kExpected, r.dtype).seconds;
  return seconds / r.seconds - 1;
}

// Least squares of the errors over the logarithms of a law's one or two constants: the best of some
// steps of Gauss and Newton's.
void search(const Law& law, const ClusterSpec& c, size_t every) {
  constexpr double kStep = 1e-6, kSmall = 1e-30;
  double *first = law.constants[0].at, *second = law.constants.back().at;
  double best = HUGE_VAL, kept[2] = {*first, *second};
  for (int round = 0; round < 60; ++round) {
    double squares = 0, a = kSmall, b = 0, d = kSmall, x = 0, y = 0;  // [a b; b d] · step = [x y]
    for (size_t i = 0; i < law.rows.size(); i += every) {
      const double e = error_of(law, law.rows[i], c);
      const auto slope = [&](double* at) {
        const double before = *at;
        *at *= 1 + kStep;
        const double moved = error_of(law, law.rows[i], c);
        *at = before;
        return (moved - e) / kStep;
      };
      const double u = slope(first), v = first == second ? 0 : slope(second);
      squares += e * e, a += u * u, b += u * v, d += v * v, x -= u * e, y -= v * e;
    }
    if (squares < best) best = squares, kept[0] = *first, kept[1] = *second;
    const double det = a * d - b * b;
    *first *= std::exp(std::clamp((x * d - y * b) / det, -1.0, 1.0));
    if (first != second) *second *= std::exp(std::clamp((y * a - x * b) / det, -1.0, 1.0));
  }
  *first = kept[0], *second = kept[1];
}

Status check_enough(const Law& law) {
  constexpr size_t kRows = 4, kSizes = 3;
  std::set<double> sizes;  // the variable of the law's curve
  for (const Row& r : law.rows)
    sizes.insert(r.kind == kAttention ? r.work.seqlen : r.kind == kProducts ? r.work.k : r.size);
  if (law.constants.size() == 1 || (law.rows.size() >= kRows && sizes.size() >= kSizes)) return {};
  return invalid_argument(cat(law.name, ": ", law.rows.size(), " rows of ", sizes.size(),
                              " sizes are too few for two constants: give ", kRows,
                              " rows of at least ", kSizes,
                              " sizes (lengths, shared dimensions k), or leave these out"));
}

// The error that nine of ten are at most.
double residual_of(std::vector<double> errors) {
  if (errors.empty()) return -1;
  std::sort(errors.begin(), errors.end());
  return errors[(9 * errors.size() + 9) / 10 - 1];
}

double rounded(double x) { return std::strtod(printed("%.4g", x).c_str(), nullptr); }

// Sets the law's constants; what it is off on the rows that judge it.
std::vector<double> fit(Law& law, const ClusterSpec& c) {
  std::vector<double> errors;
  double least = HUGE_VAL;
  for (const Row& r : law.rows) least = std::min(least, r.seconds);
  for (const Constant& k : law.constants)
    if (*k.at == 0 || k.begin == 0) *k.at = k.begin > 0 ? k.begin : least;
  std::stable_sort(law.rows.begin(), law.rows.end(),
                   [](const Row& x, const Row& y) { return x.size < y.size; });
  search(law, c, 2);
  for (size_t i = 1; i < law.rows.size(); i += 2)
    errors.push_back(std::abs(error_of(law, law.rows[i], c)));
  search(law, c, 1);
  return errors;
}

Result<Json::Array> fit(const std::vector<Row>& rows, Accelerator& device) {
  ClusterSpec c{device, 1};
  std::vector<Law> laws;
  for (const Row& r : rows) {
    Law law = law_of(r, c.device);
    auto same = std::ranges::find_if(laws, [&](const Law& l) { return l.name == law.name; });
    if (same == laws.end()) same = laws.insert(same, std::move(law));
    same->rows.push_back(r);
  }
  Json::Array fitted;
  std::vector<double> errors[std::size(kParts)];
  for (Law& law : laws) {
    TEGULA_TRY(check_enough(law));
    const std::vector<double> off = fit(law, c);
    errors[law.part].insert(errors[law.part].end(), off.begin(), off.end());
    const double residual = residual_of(off);
    Json j = Json::object({{"law", law.name}, {"rows", law.rows.size()}});
    for (const Constant& k : law.constants) j.set(k.name, rounded(*k.at));
    j.set("residual", residual < 0 ? Json() : rounded(residual));
    fitted.push_back(std::move(j));
    if (law.name == "products") c.device.sustained.is_known = true;
    if (law.name == "products") c.device.matmul_shares.clear();
  }
  Sustained& s = c.device.sustained;
  for (size_t part = 0; part < std::size(kParts); ++part) {
    const double r = residual_of(errors[part]);
    if (r < 0) continue;
    // The slow end of the host has more seconds, not a lesser share.
    s.fast.*kParts[part] = part == kHost ? 1 / (1 + r) : 1 + r;
    s.slow.*kParts[part] = part == kHost ? 1 + r : 1 / (1 + r);
  }
  device = std::move(c.device);
  return fitted;
}

}  // namespace

Result<Json> apply_microbenchmarks(const std::string& file, Number dtype, Accelerator& a) {
  const Json json = TEGULA_TRY(Json::parse(TEGULA_TRY(read_file(file)), file));
  auto rows = read_rows(json, a);
  if (!rows.ok()) return named(file, rows.error());
  const auto n_unused =
      std::erase_if(*rows, [&](const Row& r) { return r.kind == kProducts && r.dtype != dtype; });
  Json::Array missing;
  for (int kind = 0; kind < kKinds; ++kind)
    if (std::ranges::none_of(*rows, [&](const Row& r) { return r.kind == kind; }))
      missing.emplace_back(kSections[kind].name);
  auto laws = fit(*rows, a);
  if (!laws.ok()) return named(file, laws.error());
  return Json::object({{"file", file},
                       {"source", text_of(json, "source")},
                       {"laws", std::move(*laws)},
                       {"missing", std::move(missing)},
                       {"rows_of_other_dtypes", n_unused}});
}

}  // namespace tegula::planner
