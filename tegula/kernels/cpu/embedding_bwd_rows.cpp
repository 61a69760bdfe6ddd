// Rows of a gradient, added to the rows of the table they came from, in the order of positions.
// Threads share the columns, so that the order never changes.

#include "tegula/base/algorithm.h"
#include "tegula/base/half.h"
#include "tegula/kernels/cpu/common/dot_plan.h"
#include "tegula/kernels/cpu/common/embedding.h"
#include "tegula/kernels/cpu/common/workspace.h"

namespace tegula::kernel {

namespace {
constexpr int64_t kColumns = 64;  // of one task
constexpr int64_t kClearedFloats = 1 << 16;

bool is_float32_like(DType t) { return t == DType::kF32 || t == DType::kBF16 || t == DType::kF16; }

// In the order of memory: a table is large, and few of its rows are asked for.
void clear(const KernelCall& call, const TensorRef& table) {
  const int64_t rows = table.shape[0], n = table.shape[1];
  const int64_t run =
      std::max<int64_t>(1, call.pool->grain(kClearedFloats) / std::max<int64_t>(1, n));
  call.pool->parallel_for(ceil_div(rows, run), [&](int64_t i, int) {
    for (int64_t row = i * run; row < std::min(rows, (i + 1) * run); ++row) {
      float* out = table.as<float>() + row * table.stride[0];
      if (table.stride[1] == 1) {
        std::fill_n(out, n, 0.0F);
      } else {
        for (int64_t j = 0; j < n; ++j) out[j * table.stride[1]] = 0;
      }
    }
  });
}

template <class T>
void add_row(float* __restrict sum, int64_t sum_stride, const T* __restrict g, int64_t stride,
             int64_t n) {
  int64_t j = 0;
  if (sum_stride == 1 && stride == 1)
    for (; j + 16 <= n; j += 16)
      for (int l = 0; l < 16; ++l) sum[j + l] += static_cast<float>(g[j + l]);
  for (; j < n; ++j) sum[j * sum_stride] += static_cast<float>(g[j * stride]);
}

template <class T>
void run(const KernelCall& call) {
  const TensorRef &grad = call.in[0], &table = call.out[0];
  const Lookup at(call.in[1], grad, table.shape[0]);
  const int64_t n = table.shape[1], rows = table.shape[0], stride = grad.stride[grad.rank - 1];
  const int64_t columns = std::min(n, kColumns), run = call.pool->grain(kColumns);
  auto* scratch = static_cast<float*>(call.workspace);
  if (!std::is_same_v<T, float>) claim_workspace(call, 4 * call.pool->n_threads() * rows * columns);
  if constexpr (std::is_same_v<T, float>) clear(call, table);
  call.pool->parallel_for(ceil_div(n, run), [&](int64_t task, int thread) {
    const int64_t first = task * run, count = std::min(run, n - first);
    // Sums in f32, rounded once: in the table itself where that is f32.
    T* out = table.as<T>() + first * table.stride[1];
    float* sums = scratch + thread * rows * columns;
    int64_t row_stride = count, stride_n = 1;
    if constexpr (std::is_same_v<T, float>) {
      sums = out, row_stride = table.stride[0], stride_n = table.stride[1];
    } else {
      std::fill_n(sums, rows * count, 0.0F);
    }
    for (int64_t i = 0; i < at.positions.count; ++i) {
      const int64_t row = at.row(i);
      if (row < 0) continue;
      const T* g = grad.as<const T>() + at.positions.offset(i, kB) + first * stride;
      add_row(sums + row * row_stride, stride_n, g, stride, count);
    }
    if constexpr (!std::is_same_v<T, float>)
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t j = 0; j < count; ++j)
          out[row * table.stride[0] + j * table.stride[1]] = T(sums[row * count + j]);
    call.counters->add(at.positions.count * count, at.positions.count * count);
  });
}
}  // namespace

extern constinit const KernelDef embedding_bwd_rows{
    .name = "embedding_bwd_rows",
    .op = "embedding_bwd",
    .order = "row_chain",
    .doc = "rows are added in the order of positions; threads over columns",
    .priority = 100,
    .supports =
        [](const KernelQuery& q) {
          return is_float32_like(q.in[0].dtype) && q.in[0].dtype == q.out[0].dtype &&
                 ids_supported(q.in[1], q.in[0]) && q.out[0].rank == 2;
        },
    .workspace_bytes =
        [](const KernelQuery& q) {
          if (q.out[0].dtype == DType::kF32) return int64_t{0};
          return 4 * q.target->n_threads * q.out[0].shape[0] *
                 std::min(q.out[0].shape[1], kColumns);
        },
    .launch =
        [](const KernelCall& call) {
          switch (call.in[0].dtype) {
            case DType::kF32:
              return run<float>(call);
            case DType::kBF16:
              return run<bf16>(call);
            case DType::kF16:
              return run<f16>(call);
            default:
              return;
          }
        },
};

}  // namespace tegula::kernel
