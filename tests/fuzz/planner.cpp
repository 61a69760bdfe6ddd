// The planner's questions, a line each: a cluster, what is fixed, a config.json. What is accepted
// is priced without a number that is not finite; and what is fixed stays fixed.
#include <cmath>

#include "tegula/planner/model_config.h"
#include "tegula/planner/search.h"
#include "tests/fuzz/target.h"

namespace tegula::fuzz {

namespace {

using namespace planner;  // NOLINT(google-build-using-namespace)

std::string_view next_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

bool run(std::string_view input) {
  const auto cluster = parse_cluster(next_line(input));
  const auto pins = parse_pins(next_line(input));
  const std::string path = scratch() + "/config.json";
  put(path, input);
  const auto preset = read_model(path);
  if (!cluster.ok() || !pins.ok() || !preset.ok()) return false;
  const auto params = count_params(preset->model);
  TEGULA_CHECK(params.ok() && params->total > 0 && params->active <= params->total);
  // A fuzzer's cluster of 2^20 devices would be priced all day.
  if (cluster->n_devices > 64 || preset->model.n_layers > 64) return true;
  Job job;
  job.seqlen = std::min<int64_t>(preset->seqlen, 1024);
  job.batch_tokens = job.seqlen * 16;
  if (pins->dtype) job.dtype = *pins->dtype;
  const auto found = search_layouts(preset->model, *params, *cluster, job, *pins);
  if (!found.ok()) return true;
  for (const StepPrice& p : found->best) {
    TEGULA_CHECK(std::isfinite(p.step_s()) && p.step_s() > 0 && p.peak_bytes() > 0);
    TEGULA_CHECK(check_layout(p.layout, preset->model, *cluster, job).ok());
    TEGULA_CHECK(!pins->tp || p.layout.tp == *pins->tp);
    TEGULA_CHECK(!pins->zero || p.layout.zero == *pins->zero);
  }
  return true;
}

}  // namespace

extern constinit const Target planner_target{"planner", run};

}  // namespace tegula::fuzz
