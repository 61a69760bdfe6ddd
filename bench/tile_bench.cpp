// The interpreter of tile programs beside loops that the compiler makes of the same formulas.
//
// Each line runs both in turn on one thread and prints the best of each (of 15), so that noise on a
// shared machine touches both. The compiled loops have their shapes and constants built in and the
// whole of -O3 -march=native -fno-trapping-math (see CMakeLists.txt); multiply-add does not
// contract on either side.
#include <time.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <vector>

#include "tegula/kernels/kernel.h"
#include "tegula/tile/builder.h"

namespace tegula::tile {
namespace {

constexpr DType F = DType::kF32;
using Floats = std::vector<float>;

TensorRef ref(void* data, std::vector<int64_t> shape, DType dtype = F) {
  Type t;
  t.dtype = dtype, t.shape = Shape(std::span<const int64_t>(shape));
  return contiguous_ref(data, t);
}

// A program with its operands, ready to launch.
class Launch {
 public:
  Launch(Result<Program> p, std::vector<TensorRef> in, std::vector<TensorRef> out)
      : program_(std::move(p).value()), in_(std::move(in)), out_(std::move(out)), pool_(1) {
    for (const KernelDef* k : all_kernels())
      if (k->name == "fused") kernel_ = k;
    KernelQuery q;
    q.in = in_, q.out = out_, q.program = &program_;
    workspace_.resize(static_cast<size_t>(kernel_->workspace_bytes(q)) + 64);
    const auto at = reinterpret_cast<uintptr_t>(workspace_.data());
    call_.in = in_, call_.out = out_, call_.program = &program_;
    call_.workspace = workspace_.data() + (64 - at % 64) % 64;
    call_.pool = &pool_, call_.counters = &counters_;
  }
  void operator()() { kernel_->launch(call_); }

 private:
  Program program_;
  std::vector<TensorRef> in_, out_;
  std::vector<char> workspace_;
  ThreadPool pool_;
  Counters counters_;
  const KernelDef* kernel_ = nullptr;
  KernelCall call_;
};

double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

template <class A, class B>
void compare(const char* name, double elements, double bytes, A&& tile, B&& compiled) {
  tile(), compiled();
  double t = cpu_seconds();
  tile();
  const int n = std::max(1, static_cast<int>(2e-3 / std::max(cpu_seconds() - t, 1e-7)));
  double best[2] = {1e9, 1e9};
  const auto time = [&](auto&& f, double& seconds) {
    t = cpu_seconds();
    for (int i = 0; i < n; ++i) f();
    seconds = std::min(seconds, (cpu_seconds() - t) / n);
  };
  for (int k = 0; k < 15; ++k) time(tile, best[0]), time(compiled, best[1]);
  std::printf("%-28s %8.3f ns/element %6.1f GB/s   compiled %8.3f   ratio %.2f\n", name,
              best[0] / elements * 1e9, bytes / best[0] * 1e-9, best[1] / elements * 1e9,
              best[0] / best[1]);
}

#define COMPILED __attribute__((noinline))

// Bias, gelu with tanh as a rational function, dropout with given random numbers: 25 operations.
Result<Program> chain() {
  Builder b(2);
  const Reg x = b.load(b.input(F)) + b.load(b.input(F));
  const Reg random = b.load(b.input(F));
  const auto c = [&](double v) { return b.constant(v, F); };
  Reg u = x * ((x * x) * 0.0356774081 + 0.7978845608);
  u = b.binary(Op::kMin, b.binary(Op::kMax, u, c(-4.97)), c(4.97));
  const Reg t = u * u;
  const Reg p = ((t * 1.0 + 378.0) * t + 17325.0) * t + 135135.0;
  const Reg q = ((t * 28.0 + 3150.0) * t + 62370.0) * t + 135135.0;
  const Reg y = (x * 0.5) * (u * p / q + 1.0);
  b.store(b.output(F), b.select(b.binary(Op::kGe, random, c(0.1)), y * (1 / 0.9), c(0)));
  return b.finish();
}
COMPILED void chain(const float* a, const float* bias, const float* random, float* __restrict out,
                    int64_t rows, int64_t d) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < d; ++j) {
      const float x = a[i * d + j] + bias[j];
      float u = x * ((x * x) * 0.0356774081f + 0.7978845608f);
      u = u > -4.97f ? u : -4.97f;
      u = u < 4.97f ? u : 4.97f;
      const float t = u * u;
      const float p = ((t * 1.0f + 378.0f) * t + 17325.0f) * t + 135135.0f;
      const float q = ((t * 28.0f + 3150.0f) * t + 62370.0f) * t + 135135.0f;
      const float y = (x * 0.5f) * (u * p / q + 1.0f) * (1 / 0.9f);
      out[i * d + j] = random[i * d + j] >= 0.1f ? y : 0.0f;
    }
}

Result<Program> add() {
  Builder b(1);
  b.store(b.output(F), b.load(b.input(F)) + b.load(b.input(F)));
  return b.finish();
}
COMPILED void add(const float* a, const float* b, float* __restrict out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

Result<Program> adamw() {
  Builder b(1);
  const Reg p = b.load(b.input(F)), g = b.load(b.input(F));
  Reg m = b.load(b.input(F)), v = b.load(b.input(F));
  m = m * 0.9 + g * 0.1;
  v = v * 0.99 + (g * g) * 0.01;
  const Reg step = (m * 1.1) / (sqrt(v * 1.2) + 1e-8);
  b.store(b.output(F), p * 0.9999 - step * 1e-3);
  b.store(b.output(F), m);
  b.store(b.output(F), v);
  return b.finish();
}
COMPILED void adamw(float* __restrict p, const float* __restrict g, float* __restrict m,
                    float* __restrict v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    m[i] = m[i] * 0.9f + g[i] * 0.1f;
    v[i] = v[i] * 0.99f + (g[i] * g[i]) * 0.01f;
    const float step = (m[i] * 1.1f) / (__builtin_sqrtf(v[i] * 1.2f) + 1e-8f);
    p[i] = p[i] * 0.9999f - step * 1e-3f;
  }
}

Result<Program> layer_norm(int64_t d) {
  Builder b(2, 1);
  const Reg x = b.load(b.input(F)), w = b.load(b.input(F)), bias = b.load(b.input(F));
  const double r = 1.0 / static_cast<double>(d);
  const Reg centred = x - b.reduce(Op::kReduceSum, x) * r;
  const Reg rstd = rsqrt(b.reduce(Op::kReduceSum, centred * centred) * r + 1e-5);
  b.store(b.output(F), centred * rstd * w + bias);
  return b.finish();
}
COMPILED void layer_norm(const float* x, const float* w, const float* bias, float* __restrict y,
                         int64_t rows, int64_t d) {
  for (int64_t i = 0; i < rows; ++i, x += d, y += d) {
    float lane[16] = {}, mean = 0, var = 0;
    for (int64_t j = 0; j < d; j += 16)
      for (int k = 0; k < 16; ++k) lane[k] += x[j + k];
    for (const float l : lane) mean += l;
    mean *= 1.0f / static_cast<float>(d);
    for (float& l : lane) l = 0;
    for (int64_t j = 0; j < d; j += 16)
      for (int k = 0; k < 16; ++k) lane[k] += (x[j + k] - mean) * (x[j + k] - mean);
    for (const float l : lane) var += l;
    const float rstd = 1 / __builtin_sqrtf(var * (1.0f / static_cast<float>(d)) + 1e-5f);
    for (int64_t j = 0; j < d; ++j) y[j] = (x[j] - mean) * rstd * w[j] + bias[j];
  }
}

Result<Program> softmax() {
  Builder b(2, 1);
  const Reg x = b.load(b.input(F));
  const Reg e = exp(x - b.reduce(Op::kReduceMax, x));
  b.store(b.output(F), e / b.reduce(Op::kReduceSum, e));
  return b.finish();
}
// The same polynomial as ours, without its care at the ends of the range.
inline float quick_exp(float t) {
  const float n = __builtin_rintf(t * 1.44269504f);
  const float r = (t - n * 0.693359375f) + n * 2.12194440e-4f;
  float q = 0.00138f * r + 0.00837f;
  q = (q * r + 0.0416f) * r + 0.1666f;
  q = q * r + 0.5f;
  return ((r * r) * q + r + 1.0f) * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}
COMPILED void softmax(const float* x, float* __restrict y, int64_t rows, int64_t d) {
  for (int64_t i = 0; i < rows; ++i, x += d, y += d) {
    float lane[16], top = -INFINITY, sum = 0;
    for (float& l : lane) l = -INFINITY;
    for (int64_t j = 0; j < d; j += 16)
      for (int k = 0; k < 16; ++k) lane[k] = lane[k] > x[j + k] ? lane[k] : x[j + k];
    for (float& l : lane) top = top > l ? top : l, l = 0;
    for (int64_t j = 0; j < d; j += 16)
      for (int k = 0; k < 16; ++k) lane[k] += y[j + k] = quick_exp(x[j + k] - top);
    for (const float l : lane) sum += l;
    for (int64_t j = 0; j < d; ++j) y[j] = y[j] / sum;
  }
}

void elementwise(const char* where, int64_t n) {
  const int64_t d = 768, rows = n / d;
  n = rows * d;
  const auto count = static_cast<size_t>(n);
  Floats a(count), random(count), out(count), out2(count), bias(static_cast<size_t>(d), 0.1f);
  for (size_t i = 0; i < count; ++i)
    a[i] = std::sin(static_cast<float>(i)) * 3,
    random[i] = static_cast<float>(i * 7919 % 1000) / 1000;
  TensorRef bias_ref = ref(bias.data(), {rows, d});
  bias_ref.stride[0] = 0;
  const double m = static_cast<double>(n);
  std::printf("%s\n", where);
  Launch run_chain(chain(), {ref(a.data(), {rows, d}), bias_ref, ref(random.data(), {rows, d})},
                   {ref(out.data(), {rows, d})});
  compare("bias, gelu, dropout (25 ops)", m, 12 * m, run_chain,
          [&] { chain(a.data(), bias.data(), random.data(), out2.data(), rows, d); });
  Launch run_add(add(), {ref(a.data(), {n}), ref(random.data(), {n})}, {ref(out.data(), {n})});
  compare("add", m, 12 * m, run_add, [&] { add(a.data(), random.data(), out2.data(), n); });
  Floats p(count), g(a), m1(count), v(count);
  const std::vector<TensorRef> state = {ref(p.data(), {n}), ref(m1.data(), {n}),
                                        ref(v.data(), {n})};
  Launch run_adamw(adamw(), {state[0], ref(g.data(), {n}), state[1], state[2]}, state);
  compare("AdamW, in place", m, 28 * m, run_adamw,
          [&] { adamw(p.data(), g.data(), m1.data(), v.data(), n); });
}

void rows_of(int64_t d) {
  const int64_t rows = std::max<int64_t>((1 << 18) / d, 4), n = rows * d;
  const auto count = static_cast<size_t>(n);
  Floats x(count), y(count), y2(count), w(static_cast<size_t>(d), 1.1f), bias(w);
  for (size_t i = 0; i < count; ++i) x[i] = std::sin(static_cast<float>(i)) * 3;
  TensorRef w_ref = ref(w.data(), {rows, d}), bias_ref = ref(bias.data(), {rows, d});
  w_ref.stride[0] = bias_ref.stride[0] = 0;
  const double m = static_cast<double>(n);
  Launch norm(layer_norm(d), {ref(x.data(), {rows, d}), w_ref, bias_ref},
              {ref(y.data(), {rows, d})});
  compare(cat("layer_norm ", d).c_str(), m, 8 * m, norm,
          [&] { layer_norm(x.data(), w.data(), bias.data(), y2.data(), rows, d); });
  Launch soft(softmax(), {ref(x.data(), {rows, d})}, {ref(y.data(), {rows, d})});
  compare(cat("softmax ", d).c_str(), m, 8 * m, soft,
          [&] { softmax(x.data(), y2.data(), rows, d); });
}

}  // namespace
}  // namespace tegula::tile

int main() {
  using namespace tegula::tile;
  elementwise("in L2 (32 Ki elements)", 1 << 15);
  elementwise("in memory (4 Mi elements)", 1 << 22);
  std::printf("rows (256 Ki elements)\n");
  for (const int64_t d : {64, 256, 768, 1024, 4096, 40000}) rows_of(d);
  return 0;
}
