// tegula bench gemm --reads: what each rung of the matmul ladder reads, counted, beside its
// formula.
#include <cstdio>

#include "cli/command.h"
#include "tegula/io/json.h"
#include "tegula/kernels/cpu/common/dot_plan.h"
#include "tegula/kernels/cpu/common/dot_reads.h"
#include "tegula/kernels/cpu/common/ladder.h"
#include "tegula/runtime/probe.h"

namespace tegula::cli {

namespace {
constexpr int64_t kTaskM = 24, kMultiple = 96;

struct Rung {
  const char* kernel;
  const char* l1_formula;
  const char* memory_formula;
  int64_t l1, memory;
};
}  // namespace

Status print_reads(int64_t n, bool as_json) {
  if (n % kMultiple != 0 || n > 384)
    return invalid_argument(cat("--reads counts square matrices whose side is a multiple of ",
                                kMultiple, ", at most 384: ", n, " is not"));
  const int64_t cube = n * n * n, square = n * n, b1 = kernel::kLadderB1, v1 = kernel::kLadderV1;
  const Rung rungs[] = {
      {"dot_naive", "2n³", "n² + n³", 2 * cube, square + cube},
      {"dot_cache_tiled", "2n³ + n³/b1", "n² + n³/b1", 2 * cube + cube / b1, square + cube / b1},
      {"dot_register_tiled", "n³/v1 + n³/v2", "n² + n³/b1", cube / v1 + cube / 16,
       square + cube / b1},
      {"dot_packed", "n³/6 + n³/16 + n²", "2n² + n³/task_m", cube / 6 + cube / 16 + square,
       2 * square + cube / kTaskM}};
  Tuning tuning;  // of dot_packed: one block of k, columns whole
  tuning.knob[kernel::kDotTaskM] = kTaskM, tuning.knob[kernel::kDotTaskN] = static_cast<int32_t>(n);
  tuning.knob[kernel::kDotBlockK] = static_cast<int32_t>(n);
  const int64_t cache = square * 7 / 8;
  Json::Array rows;
  if (!as_json)
    std::printf(
        "n = %lld, a cache of %lld elements, b1 = %lld, v1 = %lld, v2 = 16, task_m = %lld\n",
        static_cast<long long>(n), static_cast<long long>(cache), static_cast<long long>(b1),
        static_cast<long long>(v1), static_cast<long long>(kTaskM));
  for (const Rung& r : rungs) {
    bool is_equal = false;
    const kernel::Reads c = kernel::count_reads(r.kernel, n, n, n, cache, tuning, &is_equal);
    const int64_t l1 = c.a + c.b + c.other, memory = c.far_a + c.far_b + c.far_other;
    if (as_json) {
      Json row = Json::object();
      row.set("kernel", r.kernel), row.set("l1_formula", r.l1_formula), row.set("l1_reads", r.l1);
      row.set("l1_counted", l1), row.set("memory_formula", r.memory_formula);
      row.set("memory_reads", r.memory), row.set("memory_counted", memory);
      row.set("is_equal", is_equal);
      rows.push_back(std::move(row));
    } else {
      std::printf("%-19s L1 %-18s %11lld, counted %11lld  memory %-16s %11lld, counted %11lld%s\n",
                  r.kernel, r.l1_formula, static_cast<long long>(r.l1), static_cast<long long>(l1),
                  r.memory_formula, static_cast<long long>(r.memory),
                  static_cast<long long>(memory), is_equal ? "" : "  BITS DIFFER");
    }
  }
  if (as_json) {
    Json out = Json::object();
    // One thread's roofs, for a plot of the rungs.
    ThreadPool pool(1);
    const CoreSpeed speed = probe_core(pool);
    out.set("peak_gflops", speed.flops_per_s / 1e9);
    out.set("l1_gbytes_per_s", speed.bytes_per_s[0] / 1e9);
    out.set("memory_gbytes_per_s", speed.bytes_per_s[CacheSizes::kLevels] / 1e9);
    out.set("n", n), out.set("cache_elements", cache), out.set("rungs", std::move(rows));
    print_line(out);
  }
  return {};
}

}  // namespace tegula::cli
