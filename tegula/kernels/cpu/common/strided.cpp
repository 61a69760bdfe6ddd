#include "tegula/kernels/cpu/common/strided.h"

#include <cstring>

#include "tegula/base/algorithm.h"

namespace tegula::kernel {

namespace {

// Both tensors' dims, merged where strides nest in both: few loops, long rows.
struct Walk {
  int rank = 0;
  int64_t n[kMaxRank], a[kMaxRank], b[kMaxRank];

  Walk(const TensorRef& from, const TensorRef& to) {
    for (int d = 0; d < to.rank; ++d) {
      if (to.shape[d] == 1) continue;
      if (rank && a[rank - 1] == from.stride[d] * to.shape[d] &&
          b[rank - 1] == to.stride[d] * to.shape[d]) {
        n[rank - 1] *= to.shape[d], a[rank - 1] = from.stride[d], b[rank - 1] = to.stride[d];
        continue;
      }
      n[rank] = to.shape[d], a[rank] = from.stride[d], b[rank] = to.stride[d];
      ++rank;
    }
    if (!rank) n[0] = 1, a[0] = 0, b[0] = 0, rank = 1;
  }
};

template <class T>
void copy_rows(const TensorRef& from, const TensorRef& to, ThreadPool& pool) {
  const Walk w(from, to);
  const int last = w.rank - 1;
  int64_t rows = 1;
  for (int d = 0; d < last; ++d) rows *= w.n[d];
  // A single long row is cut; many short ones are taken together.
  const int64_t chunk = pool.grain(16384);
  const int64_t per_row = rows == 1 ? (w.n[last] + chunk - 1) / chunk : 1;
  const int64_t per_task = std::max<int64_t>(1, chunk / std::max<int64_t>(w.n[last], 1));
  const int64_t tasks = rows == 1 ? per_row : (rows + per_task - 1) / per_task;
  auto row = [&](const T* x, T* y, int64_t n) {
    if (w.a[last] == 1 && w.b[last] == 1) {
      std::memcpy(y, x, static_cast<size_t>(n) * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) y[i * w.b[last]] = x[i * w.a[last]];
    }
  };
  pool.parallel_for(tasks, [&](int64_t task, int) {
    if (rows == 1) {
      const int64_t begin = task * chunk, n = std::min(chunk, w.n[last] - begin);
      row(from.as<T>() + begin * w.a[last], to.as<T>() + begin * w.b[last], n);
      return;
    }
    const int64_t end = std::min(rows, (task + 1) * per_task);
    for (int64_t r = task * per_task; r < end; ++r) {
      int64_t rest = r, x = 0, y = 0;
      for (int d = last - 1; d >= 0; --d) {
        const int64_t i = rest % w.n[d];
        rest /= w.n[d];
        x += i * w.a[d], y += i * w.b[d];
      }
      row(from.as<T>() + x, to.as<T>() + y, w.n[last]);
    }
  });
}

}  // namespace

void move_strided(const TensorRef& from, const TensorRef& to, ThreadPool& pool) {
  if (to.numel() == 0) return;
  switch (size_bytes(to.dtype)) {
    case 1:
      return copy_rows<uint8_t>(from, to, pool);
    case 2:
      return copy_rows<uint16_t>(from, to, pool);
    case 4:
      return copy_rows<uint32_t>(from, to, pool);
    default:
      return copy_rows<uint64_t>(from, to, pool);
  }
}

TensorRef part_of(const TensorRef& t, int dim, int64_t start, int64_t size, int64_t step) {
  TensorRef part = t;
  part.data = static_cast<char*>(t.data) + start * t.stride[dim] * size_bytes(t.dtype);
  part.shape[dim] = size;
  part.stride[dim] = step * t.stride[dim];
  return part;
}

void fill_strided(const void* value, const TensorRef& to, ThreadPool& pool) {
  TensorRef one = to;
  one.data = const_cast<void*>(value);
  for (int64_t& s : one.stride) s = 0;
  move_strided(one, to, pool);
}

}  // namespace tegula::kernel
