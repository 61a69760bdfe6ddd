// One question to the planner and its answer: what `tegula plan MODEL` asks and prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tegula/io/json.h"
#include "tegula/planner/device_sheet.h"
#include "tegula/planner/live_table.h"
#include "tegula/planner/model_presets.h"
#include "tegula/planner/other_kinds.h"
#include "tegula/planner/search.h"
#include "tegula/planner/serving.h"

namespace tegula::planner {

struct Question {
  std::string model;               // a preset, a config.json, a folder
  std::string gpus;                // "64xH100"; empty: the model alone
  std::string fix;                 // parse_pins
  std::vector<int64_t> stages_at;  // the layers that stages begin with; empty: not said
  std::string dtype = "bf16";
  bool has_dtype = false;                // it was said, and may not differ from what `fix` says
  int64_t seqlen = 0, batch_tokens = 0;  // 0: the model's own
  double tokens_total = 0;               // of a run; 0: not asked
  double budget = 0;                     // FLOPs; 0: not asked
  bool built = false;                    // Job::is_built
  bool prefers_built = false;            // that where it can be, else by the book
  std::string optimizer = "adam";
  std::string framework;                // find_framework; empty: none in particular
  bool serve = false;                   // serving, not training
  int64_t prompt = 1024, output = 256;  // of a request
  int64_t serve_batch = 0;              // ServeJob's
  std::vector<DeviceSheet> devices;     // the user's own
  std::vector<Accelerator> machines;    // measured ones
  // Fits the constants of `gpus`' device to a file of timed calls (tools/microbenchmarks), for
  // products of a dtype; what is said of it: file, source, laws, missing, rows_of_other_dtypes.
  std::string microbenchmarks;
  Result<Json> (*fit)(const std::string& file, Number dtype, Accelerator& device) = nullptr;
  std::string compare;                    // accelerators, by commas, beside that of `gpus`
  bool is_trial = false;                  // of effects_of: without intervals and without notes
  std::shared_ptr<const LiveTable> live;  // Job's, to begin with
  LivePlans* plans = nullptr;             // with `built`: the best layouts' memory by liveness
};

// The best of one accelerator, as many as asked for.
struct Compared {
  ClusterSpec cluster;
  std::optional<StepPrice> train;
  std::optional<ServePrice> serve;
  std::string why_not;  // where neither is there
};

struct Interval {
  double low = 0, high = 0;
};

struct Answer {
  ModelPreset preset;
  ParamCount params;
  TokenFlops flops;  // of a token at job.seqlen
  Job job;
  Pins pins;
  std::optional<ClusterSpec> cluster;
  std::optional<Json> measured;  // what the device's constants are from
  int64_t n_idle = 0;  // devices beside those of `cluster` that nothing runs on, and that cost
  SearchResult found;
  std::vector<Interval> intervals;                   // seconds of found.best, with kFast and kSlow
  std::vector<std::string> notes;                    // what was assumed, or is out of the ordinary
  std::string why_not_served;                        // with --serve, where nothing fits
  std::vector<std::string> without_effect, untried;  // Effects
  double tokens_total = 0, budget = 0;
  ServeJob serve_job;
  std::optional<ServeAnswer> serve;
  std::vector<Compared> compared;
  OtherCluster other;  // an accelerator of another kind, and its price; then no cluster
  OtherPrice other_price;

  bool fits() const { return !cluster || serve || (!found.best.empty() && why_not_served.empty()); }
};

// For a family with a ModelDef the parameters of its graph are counted, too; they must agree.
Result<Answer> answer(const Question& question);

// MFU and HFU: FLOPs of the model, and of the hardware with what is computed again, over the step's
// seconds and the dense peak of the dtype. [Chowdhery et al. 2022, appendix B]
double mfu(const Answer& a, const StepPrice& p);
double hfu(const Answer& a, const StepPrice& p);
// The same of the keys alone that a query sees: at long contexts a causal kernel does half of what
// the convention counts, and MFU passes 100 %.
double mfu_of_seen_keys(const Answer& a, const StepPrice& p);

// Why nothing fits, with the arithmetic of the smallest layout and the nearest that would fit: more
// devices of the kind.
std::string why_nothing_fits(const Answer& a);

}  // namespace tegula::planner
