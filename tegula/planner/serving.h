// Serving: prefill and decoding of a model on groups of devices that each hold one copy of it.
// [Pope et al. 2022; Chen 2022; Fu 2024]
//
// A copy lies on n devices. Its products are partitioned in one of three families, by Pope et al.
// 2022, section 3.2, with T tokens at a time, h = d_model, f the hidden width:
//   1-D weight stationary     n over the hidden width: all-reduce of T·h behind attention and
//                             behind the feed-forward layer
//   2-D weight stationary     x·y = n over h and the hidden width: gathers and reductions of T·h/x
//                             over y and of T·f/y over x
//   weight gathered over g    a layer's weights are gathered over g of the n devices, which take
//                             T/g tokens each; the other n/g are 1-D weight stationary
// Attention is cut by heads (keys and values of fewer heads than devices are copied) or by
// sequences (batch; two all-to-alls, each device keeps the cache of its own: section 3.3).
// seconds = Σ over layers of max(operations, bytes) + collectives, as work.h has them; a decoding
// step reads all weights and the caches of the batch.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tegula/cost/work.h"
#include "tegula/planner/layout.h"

namespace tegula::planner {

enum class Partition : uint8_t { kStationary1d, kStationary2d, kGathered };
std::string_view partition_name(Partition p);

// Bytes that weights and caches may take: the rest is the driver's and the collectives'.
inline double served_bytes(const Accelerator& device) { return 0.95 * device.memory_bytes; }

struct ServeJob {
  int64_t prompt = 0, output = 0;  // tokens
  int64_t batch = 0;               // sequences of a copy; 0: whatever gives most tokens a second
  Number dtype = Number::kBf16;    // of weights, activations and caches
};

// How the devices of one copy share one kind of step.
struct ServeLayout {
  Partition partition = Partition::kStationary1d;
  int64_t n = 1;       // devices of the copy
  int64_t x = 1;       // 2-D: parts of d_model; n/x of the hidden width
  int64_t gather = 1;  // weight gathered: over so many
  bool attention_by_batch = false;
};

struct StepSeconds {
  ServeLayout layout;
  Seconds seconds;  // of the work
  double comm = 0;
  double products = 0;   // FLOPs of products, of one device
  double attention = 0;  // those of attention, 4 · keys · width a token and layer
  double total() const { return seconds.total() + comm; }
  std::string_view bound_by() const;  // compute, memory, network, launch
};

struct ServePrice {
  int64_t n = 1, copies = 1, batch = 1;
  StepSeconds prefill;  // of one prompt: the time to the first token
  StepSeconds decode;   // of one token of every sequence of the batch, at the mean length
  double weight_bytes = 0, kv_bytes = 0;  // of one device
  double peak_bytes() const { return weight_bytes + kv_bytes; }
  // Sequences a second of one copy that prefills and decodes in turns.
  double sequences_per_s = 0;
  // A request's time there: by Little's law, batch / sequences_per_s.
  double request_s = 0;
  double tokens_per_s = 0;                // that come out, of all copies
  double dollars_per_million_tokens = 0;  // that come out; 0: no price known
};

// In the message of an error where no group of devices holds what is asked.
inline constexpr std::string_view kDoesNotFit = " does not fit on ";

struct ServeAnswer {
  std::vector<ServePrice> best;        // most tokens a second first, one for every n
  std::optional<ServePrice> quickest;  // least time between tokens at batch 1
  double kv_bytes_per_sequence = 0;    // of prompt and output
  int64_t max_batch = 0;               // of the first of `best`: sequences that its memory holds
  double compute_bound_batch = 0;      // from which on decoding's products are bound by compute
  double context_switch_s = 0;         // a sequence's cache to host memory and another one back
  double weights_bytes = 0;            // of one copy
};

// Errors: prompt and output together are longer than the model takes; no group of devices holds
// the weights and one sequence (with the arithmetic).
Result<ServeAnswer> plan_serving(const ModelSpec& model, const ParamCount& params,
                                 const ClusterSpec& cluster, const ServeJob& job);

// One step of `tokens` tokens of each of `batch` sequences that see `keys` keys on average.
StepSeconds serve_step(const ModelSpec& model, const ClusterSpec& cluster, const ServeJob& job,
                       const ServeLayout& layout, double batch, double tokens, double keys);
// The batch from which on a product of a weight is bound by compute: peak · bytes / (2 ·
// bandwidth), times E/K with experts. 312 TFLOP/s, 1.5 TB/s and 2 bytes give the 208 of Chen 2022.
double compute_bound_batch(const ModelSpec& model, double flops_per_s, double bytes_per_s,
                           double weight_bytes);

}  // namespace tegula::planner
