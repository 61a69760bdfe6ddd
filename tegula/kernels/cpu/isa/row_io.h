// Rows of any dtype and strides, seen as contiguous f32.
#pragma once

#include "tegula/kernels/cpu/common/rows.h"
#include "tegula/kernels/cpu/common/workspace.h"
#include "tegula/kernels/cpu/isa/vecmath.h"

namespace tegula::kernel::TEGULA_ISA_NS {

class RowIo {
 public:
  explicit RowIo(const TensorRef& t)
      : t_(t), length_(row_length(t)), stride_(t.stride[t.rank - 1]) {
    for (int d = 0; d + 1 < t.rank; ++d) {
      Factor f;
      f.extent = t.shape[d], f.stride[kA] = t.stride[d];
      lead_.add(f);
    }
    is_direct_ = t.dtype == DType::kF32 && (stride_ == 1 || length_ == 1);
  }
  int64_t length() const { return length_; }
  int64_t count() const { return lead_.count; }

  // Elements [from, from + n) of a row: where they lie, or converted into buf.
  const float* read(int64_t row, int64_t from, int64_t n, float* buf) const {
    const int64_t at = lead_.offset(row, kA) + from * stride_;
    if (is_direct_) return t_.as<const float>() + at;
    switch (t_.dtype) {
      case DType::kBF16:
        convert_in(t_.as<const bf16>() + at, n, buf);
        break;
      case DType::kF16:
        convert_in(t_.as<const f16>() + at, n, buf);
        break;
      default:
        convert_in(t_.as<const float>() + at, n, buf);
        break;
    }
    return buf;
  }
  const float* read(int64_t row, float* buf) const { return read(row, 0, length_, buf); }
  // Where to put elements from `from` on; written() then converts them from buf where need be.
  float* target(int64_t row, int64_t from, float* buf) const {
    return is_direct_ ? t_.as<float>() + lead_.offset(row, kA) + from : buf;
  }
  void written(int64_t row, int64_t from, int64_t n, const float* buf) const {
    if (is_direct_) return;
    const int64_t at = lead_.offset(row, kA) + from * stride_;
    switch (t_.dtype) {
      case DType::kBF16:
        return convert_out(buf, n, t_.as<bf16>() + at);
      case DType::kF16:
        return convert_out(buf, n, t_.as<f16>() + at);
      default:
        return convert_out(buf, n, t_.as<float>() + at);
    }
  }

 private:
  template <class T>
  void convert_in(const T* p, int64_t n, float* buf) const {
    int64_t j = 0;
    if (stride_ == 1)
      for (; j + kLanes <= n; j += kLanes) store(buf + j, load(p + j));
    for (; j < n; ++j) buf[j] = static_cast<float>(p[j * stride_]);
  }
  template <class T>
  void convert_out(const float* buf, int64_t n, T* p) const {
    int64_t j = 0;
    if (stride_ == 1)
      for (; j + kLanes <= n; j += kLanes) store(p + j, load(buf + j));
    for (; j < n; ++j) p[j * stride_] = T(buf[j]);
  }
  TensorRef t_;
  Loops lead_;
  int64_t length_, stride_;
  bool is_direct_;
};

// A tensor of one value per row: mean, rstd, a log-sum.
class RowScalars {
 public:
  explicit RowScalars(const TensorRef& t) : t_(t) {
    for (int d = 0; d < t.rank; ++d) {
      Factor f;
      f.extent = t.shape[d], f.stride[kA] = t.stride[d];
      lead_.add(f);
    }
  }
  float& operator[](int64_t row) const { return t_.as<float>()[lead_.offset(row, kA)]; }

 private:
  TensorRef t_;
  Loops lead_;
};

// Calls fn(first, last, scratch) for runs of rows, in parallel; scratch: kRowBuffers rows.
template <class F>
static void for_row_runs(const KernelCall& call, int64_t rows, int64_t length, F&& fn) {
  constexpr int64_t kRunElements = 8192;  // worth waking a thread for
  const int64_t run = call.pool->grain(kRunElements) / (length + 1) + 1,
                width = round_up(length, 16);
  auto* scratch = static_cast<float*>(call.workspace) + 2 * width;
  claim_workspace(call, 4 * width * (2 + kRowBuffers * call.pool->n_threads()));
  call.pool->parallel_for(ceil_div(rows, run), [&](int64_t i, int thread) {
    const int64_t last = (i + 1) * run < rows ? (i + 1) * run : rows;
    fn(i * run, last, scratch + thread * kRowBuffers * width);
  });
}

// fn(j, n) for runs of 16 elements; n may be past 16.
template <class F>
TEGULA_VEC void for_16(int64_t length, F&& fn) {
  for (int64_t j = 0; j < length; j += 16) fn(j, length - j);
}

// A sum over a row in order "lane16": part(from, n) gives that of n elements, at most kSumPart
// blocks of 16.
template <class F>
TEGULA_VEC Row16 sum_16(int64_t length, F&& part) {
  constexpr int64_t kPart = 16 * kSumPart;
  LongSum total = long_sum();
  for (int64_t from = 0;; from += kPart) {
    Row16 sum = part(from, length - from < kPart ? length - from : kPart);
    if (from + kPart >= length) return from == 0 ? sum : rounded(total, sum);
    take(total, sum);
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
