#include "cli/by_op.h"

#include <array>
#include <cstdio>
#include <map>

#include "tegula/base/algorithm.h"
#include "tegula/base/str.h"
#include "tegula/ir/opdef.h"
#include "tegula/plan/places.h"

namespace tegula::cli {

namespace {
constexpr int kRuns = 2;

struct Time {
  double seconds = 0, flops = 0;
  int64_t launches = 0, bytes = 0;
};

std::string shapes_of(const Step& s) {
  std::string out;
  const auto add = [&](const PlanTensor& t) { out += cat(out.empty() ? "" : " ", t.type); };
  for (size_t i = 0; i < s.in.size() && i < 3; ++i) add(s.in[i]);
  out += " ->";
  if (!s.out.empty()) add(s.out[0]);
  return out;
}
}  // namespace

Result<Json> times_by_op(Measurement& m) {
  return times_by_op(m.session().plan(), TEGULA_TRY(m.time_steps(kRuns)));
}

Json times_by_op(const Plan& plan, const std::vector<StepStats>& stats) {
  constexpr const char* kPhases[] = {"forward", "backward", "update"};
  const auto& steps = plan.steps;
  std::map<std::array<std::string, 5>, Time> times;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& s = steps[i];
    Time& t = times[{place_in_layers(s.scope), kPhases[static_cast<size_t>(s.phase)],
                     std::string(s.op->name), std::string(s.kernel ? s.kernel->name : "reference"),
                     shapes_of(s)}];
    t.seconds += stats[i].seconds, t.flops += stats[i].math_flops, t.bytes += s.bytes;
    t.launches += stats[i].launches;
  }
  std::vector<std::pair<double, Json>> rows;
  for (const auto& [key, t] : times) {
    const auto& [scope, phase, op, kernel, shapes] = key;
    // A step that became part of another's launch has no time of its own.
    const auto rate = [&, seconds = t.seconds](double n) {
      return seconds > 0 ? n / seconds / 1e9 : 0;
    };
    rows.emplace_back(t.seconds,
                      Json::object({{"scope", scope},
                                    {"phase", phase},
                                    {"op", op},
                                    {"kernel", kernel},
                                    {"shapes", shapes},
                                    {"launches", t.launches},
                                    {"ms", 1e3 * t.seconds},
                                    {"gflops", rate(t.flops)},
                                    {"gbytes_per_s", rate(static_cast<double>(t.bytes))}}));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  return json_list(rows, [](const auto& row) { return row.second; });
}

void print_by_op(const Json& ops) {
  const auto& rows = *ops.as<Json::Array>();
  const auto text = [](const Json& row, const char* key) {
    return row.find(key)->as<std::string>()->c_str();
  };
  struct Place {
    std::string name;
    double ms = 0;
  };
  std::vector<Place> places;
  double total = 0;
  for (const Json& row : rows) {
    const std::string name = text(row, "scope");
    auto place =
        std::find_if(places.begin(), places.end(), [&](const Place& p) { return p.name == name; });
    if (place == places.end()) place = places.insert(places.end(), {name});
    place->ms += row.find("ms")->number(0), total += row.find("ms")->number(0);
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const Place& a, const Place& b) { return a.ms > b.ms; });
  std::printf("      ms launches  GFLOP/s     GB/s  phase    kernel and shapes\n");
  for (const Place& place : places) {
    std::printf("%8.3f %s: %.1f %%\n", place.ms, place.name.c_str(),
                total > 0 ? 100 * place.ms / total : 0.0);
    for (const Json& row : rows)
      if (text(row, "scope") == place.name)
        std::printf("%8.3f %8lld %8.1f %8.1f  %-8s %s %s\n", row.find("ms")->number(0),
                    static_cast<long long>(*row.find("launches")->as<int64_t>()),
                    row.find("gflops")->number(0), row.find("gbytes_per_s")->number(0),
                    text(row, "phase"), text(row, "kernel"), text(row, "shapes"));
  }
}

}  // namespace tegula::cli
