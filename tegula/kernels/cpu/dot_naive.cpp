// The definition of a contraction's order, one output at a time; every other rung must give its
// bits. Also the fallback: any dtype, any strides.
#include "tegula/kernels/cpu/common/dot_chain.h"
#include "tegula/kernels/cpu/isa/vecmath.h"

namespace tegula::kernel {

namespace {
double activate(double x, Activation f) { return f == Activation::kRelu && x < 0 ? 0 : x; }
uint64_t activate(uint64_t x, Activation) { return x; }
float activate(float x, Activation f) {
  float lanes[portable::kLanes] = {};
  const portable::Vf v = portable::set1(x);
  switch (f) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      portable::store(lanes, portable::relu(v));
      break;
    case Activation::kGelu:
      portable::store(lanes, portable::gelu(v));
      break;
    case Activation::kSilu:
      portable::store(lanes, portable::silu(v));
      break;
  }
  return lanes[0];
}

template <class In, class Out>
void run(const KernelCall& call, const Contraction& c) {
  const In* a = call.in[0].as<const In>();
  const In* b = call.in[1].as<const In>();
  const Out* third = c.has_bias || c.accumulates ? call.in[2].as<const Out>() : nullptr;
  Out* out = call.out[0].as<Out>();
  call.pool->parallel_for(c.batch.count * c.m.count, [&](int64_t row, int) {
    const int64_t ib = row / c.m.count, im = row % c.m.count;
    for (int64_t in = 0; in < c.n.count; ++in) {
      const auto at = [&](Operand o) {
        return c.batch.offset(ib, o) + c.m.offset(im, o) + c.n.offset(in, o);
      };
      Wide<In> s[8];
      for (int64_t i = 0; i < c.k_shards; ++i)
        s[i] = shard_sum(c, a + at(kA), b + at(kB), i,
                         c.accumulates ? static_cast<Wide<In>>(third[at(kBias)]) : Wide<In>{});
      for (int64_t w = 1; w < c.k_shards; w *= 2)
        for (int64_t i = 0; i < c.k_shards; i += 2 * w) s[i] = s[i] + s[i + w];
      Out y = static_cast<Out>(s[0]);
      if (c.has_scale)
        y = static_cast<Out>(static_cast<Wide<In>>(y) * static_cast<Wide<In>>(c.scale));
      if (c.has_bias)
        y = static_cast<Out>(static_cast<Wide<In>>(y) + static_cast<Wide<In>>(third[at(kBias)]));
      if (c.activation != Activation::kNone)
        y = static_cast<Out>(activate(static_cast<Wide<In>>(y), c.activation));
      out[at(kOut)] = y;
    }
    const int64_t flops = c.n.count * (2 * c.k.count + c.epilogue_flops());
    call.counters->add(flops, flops);
  });
}

using Run = void (*)(const KernelCall&, const Contraction&);

template <class In>
Run float_runner(DType out) {
  switch (out) {
    case DType::kF32:
      return run<In, float>;
    case DType::kBF16:
      return run<In, bf16>;
    case DType::kF16:
      return run<In, f16>;
    default:
      return nullptr;
  }
}

Run runner(DType in, DType out) {
  switch (in) {
    case DType::kF64:
      return out == DType::kF64 ? run<double, double> : nullptr;
    case DType::kF32:
      return float_runner<float>(out);
    case DType::kBF16:
      return float_runner<bf16>(out);
    case DType::kF16:
      return float_runner<f16>(out);
    case DType::kI64:
      return out == DType::kI64 ? run<int64_t, int64_t> : nullptr;
    case DType::kI32:
      return out == DType::kI32 ? run<int32_t, int32_t> : nullptr;
    case DType::kI8:
      return out == DType::kI32 ? run<int8_t, int32_t> : nullptr;
    case DType::kU8:
      return out == DType::kI32 ? run<uint8_t, int32_t> : nullptr;
    case DType::kBool:
    case DType::kF8E4M3:
      return nullptr;
  }
  return nullptr;
}

bool supports(const KernelQuery& q) {
  const auto c = parse_contraction(*q.attrs, q.in, q.out);
  if (!c.ok() || q.in[1].dtype != c->in_dtype || !runner(c->in_dtype, c->out_dtype)) return false;
  if (c->has_bias && q.in[2].dtype != c->out_dtype) return false;
  if (c->has_scale && !is_float(c->out_dtype)) return false;
  if (c->accumulates && q.in[2].dtype != c->out_dtype) return false;
  const bool f64 = c->in_dtype == DType::kF64;
  return c->activation == Activation::kNone ||
         (is_float(c->in_dtype) && (!f64 || c->activation == Activation::kRelu));
}

void launch(const KernelCall& call) {
  const auto c = parse_contraction(*call.attrs, call.in, call.out);
  TEGULA_CHECK(c.ok(), c.ok() ? "" : c.error().message);
  runner(c->in_dtype, c->out_dtype)(call, *c);
}
}  // namespace

extern constinit const KernelDef dot_naive{
    .name = "dot_naive",
    .op = "dot",
    .order = "fma_chain",
    .doc = "one output at a time; defines the order, and serves every dtype and stride",
    .priority = -10,
    .supports = supports,
    .launch = launch,
};

}  // namespace tegula::kernel
