// The options of `tegula bench`'s measuring, whatever the device.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cli/train_flags.h"
#include "tegula/base/memory.h"
#include "tegula/comm/segment.h"
#include "tegula/io/json.h"
#include "tegula/models/model.h"
#include "tegula/plan/plan.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/measure.h"

namespace tegula::cli {

struct BenchOptions {
  std::string shape, dtype = "f32", cache_dtype, pass = "fwd", device = "cpu", kernel, tune = "off",
                     tune_cache, with, weights = "as the operands", epilogue, only;
  int64_t kv_heads = 0, seqlen_k = 0, window = -1;
  bool is_causal = false, is_cold = false, is_sustained = false, is_along_k = false,
       is_along_m = false, is_reads = false, is_deterministic = false, json = false, by_op = false;
  int threads = 0, repeats = 9;
  int64_t vocab_size = 50257, texts = 1;
  TrainFlags train, generate;
};

// A piece of work to time: a function, the operations people count for it, and how to name it.
struct BenchWork {
  std::shared_ptr<Module> module = std::make_shared<Module>();
  FuncId function = kNone;
  std::string op;     // what it is of, and what --kernel is for
  double flops = 0;   // by the usual formula: products only, a causal square halves; 0: counted
  double tokens = 0;  // of a step; 0: not a step
  int64_t integers_below = 1;
  std::vector<WeightSpec> weights;  // begin as a model's do; others are uniform in [-1, 1)
  std::map<std::string, std::vector<int64_t>> given;  // values of i32 operands
  double bytes = 0;  // least that it reads and writes; 0: the plan's
  std::string what;
};

// The numbers of `text`, n of them from 1, as `names` calls them: M,N,K.
Result<std::vector<int64_t>> shape_numbers(const std::string& text, size_t n, const char* names);
DType dtype_of(const BenchOptions& o);
// `kind` is attention, decode, gemm, train or generate; the last two set how they are compiled.
Result<BenchWork> bench_work(std::string_view kind, const BenchOptions& o, CompileOptions& compile);

// The works of `tegula bench ops`: all, or --only one; and their names.
Result<std::vector<BenchWork>> op_works(const BenchOptions& o);
std::vector<std::string> op_bench_names();

// Names of a plan's kernels, each once; and by commas.
std::vector<std::string> kernels_of(const Plan& plan);
std::string by_commas(const std::vector<std::string>& names);

// The times of a work on the CPU.
struct BenchTimes {
  std::string what;
  std::vector<std::string> kernels;
  Measured measured;
  double flops = 0, bytes = 0;

  double gflops() const { return flops / measured.ms_median / 1e6; }
  double gbytes_per_s() const { return bytes / measured.ms_median / 1e6; }
  double share_of_peak() const { return 1e9 * gflops() / measured.peak_flops_per_s; }
  double share_of_reads() const { return 1e9 * gbytes_per_s() / measured.read_bytes_per_s; }
  // Joins the times of both in turn, beside the best that either measured.
  void add(const BenchTimes& other);
  void print() const;  // all but `what`, for people
  Json json() const;
};

// A work compiled and timed, and all that is needed to look closer.
struct BenchRun {
  Measurement measurement;
  BenchTimes times;
};
Result<BenchRun> time_work(const BenchWork& work, const BenchOptions& o, CompileOptions with,
                           Rank& rank);

// Unsupported unless a step is of that kernel; an empty name is any.
Status check_kernel(const Plan& plan, const std::string& kernel);
// Prints what the compiler has to say, and whether a step's --blockwise changed nothing.
Status print_notes(const Compiled& compiled, const CompileOptions& with, const BenchOptions& o);

// Weights and state as a run begins, so that nothing grows without bound or becomes NaN (which has
// slower ways of its own). False: it is not one of them.
bool set_value(const BenchWork& work, std::string_view param, const TensorRef& value);
// Plans the function for the GPU, times it and prints what `tegula bench` prints. `model`: how one
// is compiled; null: a lone op.
Status bench_on_cuda(const BenchWork& work, const BenchOptions& options,
                     const CompileOptions* model);

// The exit code of a command that runs itself as several processes, a rank of `axis` each: `rank`'s
// in these, and launch()'s in who starts them.
int run_processes(const MeshAxis& axis, bool is_tcp,
                  const std::function<Result<int>(Segment&)>& rank);

// Adds `tegula bench comm`.
void add_bench_comm(const Command& bench, int& exit_code);
// Adds `tegula bench graph`.
void add_bench_graph(const Command& bench, int& exit_code);
// {"rules": [{"name", "times", "order"}], …}: what --superopt found.
Json json_of(const superopt::Found& found);
void print_lines(const std::vector<std::string>& lines);
// Adds `tegula bench pipeline`.
void add_bench_pipeline(const Command& bench, int& exit_code);

}  // namespace tegula::cli
