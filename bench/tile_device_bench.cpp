// Tile programs of training steps on a GPU: microseconds, and bytes of operands a second beside a
// plain cast, which does nothing but read and write.
//
// Each line is the best of 5 times 20 launches, after 3 that warm up; operands are those of GPT-2
// 124M, or of the width named, and fall out of the L2 cache where they are larger than it.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "tegula/kernels/device.h"
#include "tegula/kernels/registry.h"
#include "tegula/tile/builder.h"

namespace tegula::tile {
namespace {

constexpr DType F = DType::kF32, B = DType::kBF16;
constexpr int kLaunches = 20;

template <class T>
T must(Result<T> r) {
  if (r.ok()) return std::move(r).value();
  std::fprintf(stderr, "%s\n", r.error().message.c_str());
  std::exit(1);
}
void must(const Status& s) {
  if (s.ok()) return;
  std::fprintf(stderr, "%s\n", s.error().message.c_str());
  std::exit(1);
}

class Bench {
 public:
  Bench() : device_(must(open_device())) {
    for (const KernelDef* k : all_kernels())
      if (k->name == "fused_cuda") kernel_ = k;
  }

  // Full operands are rows × n; across: of a tensor n × rows, transposed.
  void run(const char* name, const Program& p, int64_t rows, int64_t n, bool across = false) {
    std::vector<TensorRef> in, out;
    std::vector<void*> held;
    int64_t bytes = 0;
    const auto operand = [&](const Operand& o) {
      TensorRef r;
      r.dtype = o.dtype, r.rank = o.extent == Extent::kUniform ? 0 : 2;
      r.shape[0] = rows, r.shape[1] = o.extent == Extent::kFull ? n : 1;
      r.stride[0] = across ? 1 : r.shape[1], r.stride[1] = across ? rows : 1;
      const int64_t size = r.numel() * size_bytes(o.dtype);
      held.push_back(r.data = must(device_->allocate(size)));
      must(device_->fill(r.data, 0, size));
      bytes += size;
      return r;
    };
    for (const Operand& o : p.inputs) in.push_back(operand(o));
    for (const Operand& o : p.outputs) out.push_back(operand(o));
    const double us = best_us(p, in, out);
    std::printf("%-22s %7lld x %-7lld %9.1f us %8.0f GB/s\n", name, static_cast<long long>(rows),
                static_cast<long long>(n), us, static_cast<double>(bytes) / us / 1e3);
    for (void* data : held) device_->release(data);
  }

 private:
  double best_us(const Program& p, const std::vector<TensorRef>& in,
                 const std::vector<TensorRef>& out) {
    Counters counters;
    DeviceCall call;
    call.in = in, call.out = out, call.program = &p, call.counters = &counters;
    call.target = &device_->target();
    const std::unique_ptr<Prepared> ready = must(launch_of(*kernel_)->prepare(call));
    for (int i = 0; i < 3; ++i) must(ready->enqueue(device_->stream()));
    must(device_->wait());
    double best = 1e30;
    for (int k = 0; k < 5; ++k) {
      must(device_->mark(0));
      for (int i = 0; i < kLaunches; ++i) must(ready->enqueue(device_->stream()));
      must(device_->mark(1));
      best = std::min(best, must(device_->ms_between_marks()) * 1e3 / kLaunches);
    }
    return best;
  }

  Device* device_;
  const KernelDef* kernel_ = nullptr;
};

Program cast() {
  Builder b(2);
  b.store(b.output(B), b.cast(b.load(b.input(F)), B));
  return must(b.finish());
}
Program gelu() {
  Builder b(2);
  b.store(b.output(B), b.cast(b.unary(Op::kGelu, b.cast(b.load(b.input(B)), F)), B));
  return must(b.finish());
}
Program dropout() {
  Builder b(2);
  const Reg x = b.load(b.input(F)), seed = b.load(b.input(DType::kI64, Extent::kUniform));
  const Reg is_kept = b.binary(Op::kGe, b.random_uniform(seed, 3), b.constant(.1, F));
  b.store(b.output(F), b.select(is_kept, x * (1 / .9), b.constant(0, F)));
  return must(b.finish());
}
Program adamw() {
  Builder b(2);
  const Reg g = b.load(b.input(F)), m = b.load(b.input(F)), v = b.load(b.input(F));
  const Reg w = b.load(b.input(F)), lr = b.load(b.input(F, Extent::kUniform));
  const Reg m2 = b.fma(g - m, b.constant(.1, F), m), v2 = b.fma(g * g - v, b.constant(.05, F), v);
  b.store(b.output(F), w - lr * (m2 / (sqrt(v2) + 1e-8) + w * .1));
  b.store(b.output(F), m2);
  b.store(b.output(F), v2);
  return must(b.finish());
}
Program softmax() {
  Builder b(2, 1);
  const Reg x = b.load(b.input(F)), e = exp(x - b.reduce(Op::kReduceMax, x));
  b.store(b.output(F), e / b.reduce(Op::kReduceSum, e));
  return must(b.finish());
}
Program norm(int64_t n) {
  Builder b(2, 1);
  const double share = 1.0 / static_cast<double>(n);
  const Reg x = b.cast(b.load(b.input(B)), F) + b.load(b.input(F));
  const Reg d = x - b.reduce(Op::kReduceSum, x) * share;
  const Reg rstd = rsqrt(b.reduce(Op::kReduceSum, d * d) * share + 1e-5);
  b.store(b.output(F), x);
  b.store(b.output(B), b.cast(d * rstd, B));
  b.store(b.output(F, Extent::kRow), rstd);
  return must(b.finish());
}
Program norm_bwd(int64_t n) {
  Builder b(2, 1);
  const double share = 1.0 / static_cast<double>(n);
  const Reg g = b.cast(b.load(b.input(B)), F), x = b.load(b.input(F)), more = b.load(b.input(F));
  const Reg rstd = b.load(b.input(F, Extent::kRow));
  const Reg xh = (x - b.reduce(Op::kReduceSum, x) * share) * rstd;
  const Reg a = b.reduce(Op::kReduceSum, g) * share, c = b.reduce(Op::kReduceSum, g * xh) * share;
  const Reg dx = more + (g - a - xh * c) * rstd;
  b.store(b.output(F), dx);
  b.store(b.output(B), b.cast(dx, B));
  return must(b.finish());
}
Program squares() {
  Builder b(2, 1);
  const Reg x = b.load(b.input(F));
  b.store(b.output(F, Extent::kRow), b.reduce(Op::kReduceSum, x * x));
  return must(b.finish());
}

void run() {
  Bench bench;
  bench.run("cast", cast(), 50257, 768);
  bench.run("gelu", gelu(), 8192, 3072);
  bench.run("dropout", dropout(), 8192, 768);
  bench.run("adamw", adamw(), 50257, 768);
  for (const int64_t n : {768, 1024, 1600, 2048, 4096, 8192}) {
    bench.run("norm + residual", norm(n), 8192, n);
    bench.run("its gradient", norm_bwd(n), 8192, n);
    bench.run("softmax", softmax(), 8192, n);
  }
  bench.run("softmax", softmax(), 1024, 50257);
  bench.run("squares of rows", squares(), 50257, 768);
  for (const int64_t n : {768, 8192, 50257}) bench.run("squares, one row", squares(), 1, n);
  bench.run("squares of columns", squares(), 768, 8192, true);
}

}  // namespace
}  // namespace tegula::tile

int main() { tegula::tile::run(); }
