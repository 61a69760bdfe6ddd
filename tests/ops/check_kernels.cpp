// Every kernel of the op against the op's reference.
//
// Bound: error ≤ 2 × (error of the naive reference of the same precision) + floor, as the largest
// over a result. The floor is what one rounding in another place costs: a result of magnitude M has
// spacing eps(dtype)·M, so a kernel that rounds its last operation differently is off by that much
// where the naive one happened to be exact. Integers have no floor: they must be equal. In a result
// of a few elements the naive reference may be exact by luck: its error is the worst of eight draws
// of the operands, each relative to the result's magnitude.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "tests/common/device_count.h"
#include "tests/kernels/strided.h"
#include "tests/ops/checks.h"

namespace tegula::testing {

namespace {

// Row-major, but rows of narrow floats begin at multiples of 16 bytes, as a device's plan lays
// them.
constexpr uint32_t kPaddedLayout = 4;
Tensor make_tensor(const Type& type, std::vector<int64_t> sizes, uint32_t layout, Rng& rng,
                   bool is_input) {
  if (layout == 0) return Tensor(type.dtype, std::move(sizes));
  if (layout != kPaddedLayout) return Tensor(type.dtype, std::move(sizes), rng, is_input);
  const int64_t unit = 16 / size_bytes(type.dtype);
  if (!is_float(type.dtype) || unit < 8 || sizes.size() < 2)
    return Tensor(type.dtype, std::move(sizes));
  return Tensor::padded(type.dtype, std::move(sizes), unit);
}

// The case with its floats in another dtype, and its operands in memory of any layout.
struct Variant {
  std::string name;
  DType narrow = DType::kF32;  // instead of f32
  std::vector<Type> in, out;
  std::vector<Tensor> operands;
  bool is_strided = false, mixed = false;

  std::vector<TensorRef> refs() const {
    std::vector<TensorRef> r;
    for (const Tensor& t : operands) r.push_back(t.ref());
    return r;
  }
};

std::vector<int64_t> sizes_of(const Type& t) {
  std::vector<int64_t> s;
  for (const Dim& d : t.shape) s.push_back(d.bound());
  return s;
}

// Layout 0 is row-major; others are drawn. `mixed`: only operands that are alike get the dtype.
// False: the op does not take it, or all are alike.
bool make_variant(const Case& c, DType narrow, uint32_t layout, Variant& v, bool mixed = false) {
  bool is_mixed = false;
  for (size_t k = 0; k < c.in.size(); ++k) {
    const bool is_f32 = c.in[k].dtype == DType::kF32, stays = mixed && !is_alike(*c.op, k);
    v.in.push_back({is_f32 && !stays ? narrow : c.in[k].dtype, c.in[k].shape});
    is_mixed |= is_f32 && stays;
  }
  if (mixed && (!is_mixed || narrow == DType::kF32)) return false;
  OpCall call = c.call();
  call.in = v.in, call.out = {};
  auto out = infer(call);
  if (!out.ok()) return false;
  v.out = std::move(*out);
  v.narrow = narrow, v.mixed = mixed;
  v.name = cat(narrow, mixed ? " and f32" : "", layout ? cat(", layout ", layout) : "");
  v.is_strided = layout != 0;
  Rng rng(layout + 1000 * static_cast<uint32_t>(c.seed));
  for (size_t k = 0; k < c.in.size(); ++k) {
    v.operands.push_back(
        make_tensor(v.in[k], sizes_of(v.in[k]), layout, rng, is_float(v.in[k].dtype)));
    for (int64_t i = 0; i < c.values[k].numel(); ++i) v.operands[k].put(i, c.values[k].at(i));
  }
  return true;
}

struct Outputs {
  std::vector<Tensor> tensors;
  std::vector<TensorRef> refs;
  Outputs(const Variant& v, uint32_t layout) {
    Rng rng(layout + 7);
    for (const Type& t : v.out) tensors.push_back(make_tensor(t, sizes_of(t), layout, rng, false));
    for (const Tensor& t : tensors) refs.push_back(t.ref());
  }
};

bool same_bits(const TensorRef& a, const TensorRef& b) {
  const HostTensor x = copy_of(a), y = copy_of(b);
  return x.bytes == y.bytes;
}

// Error of the naive reference over the magnitude of result r.
double naive_error_of(const Case& c, const Variant& v, size_t r, Arithmetic naive_arithmetic) {
  OpCall call = c.call();
  call.in = v.in, call.out = v.out;
  auto exact = evaluate(call, v.refs(), Arithmetic::kOracle);
  auto naive = evaluate(call, v.refs(), naive_arithmetic);
  if (!exact.ok() || !naive.ok()) return 0;
  const double magnitude = max_abs((*exact)[r]);
  return magnitude > 0 ? largest_error((*naive)[r], (*exact)[r]) / magnitude : 0;
}
double naive_error_of_draws(const Case& c, const Variant& like, size_t r, Arithmetic naive) {
  double worst = 0;
  for (uint64_t draw = 1; draw <= 8; ++draw) {
    const Case other = make_case(*c.op, c.sample, c.seed + 100 * draw);
    Variant v;
    if (make_variant(other, like.narrow, 0, v, like.mixed))
      worst = std::max(worst, naive_error_of(other, v, r, naive));
  }
  return worst;
}

std::map<std::string_view, int64_t>& tasks_by_kernel() {
  static std::map<std::string_view, int64_t> tasks;
  return tasks;
}
void note_tasks(const KernelDef& kernel, int64_t tasks) {
  int64_t& most = tasks_by_kernel()[kernel.name];
  most = std::max(most, tasks);
}

// How far rounding each logit to 16 bits moves a cross-entropy: a share of the larger of 1 and its
// magnitude: e^logit and lse by as much as the logit.
double slack_of(const KernelDef& kernel, const Variant& v) {
  if (kernel.order != "narrow_logits" && kernel.order != "narrow_exponentials") return 0;
  double most = 0;
  const std::vector<TensorRef> in = v.refs();
  const HostTensor x = copy_of(in[0]), w = copy_of(in[1]);
  const int64_t d = in[0].shape[in[0].rank - 1];
  for (int64_t i = 0; i < in[0].numel() / std::max<int64_t>(d, 1); ++i)
    for (int64_t j = 0; j < in[1].shape[0]; ++j) {
      double logit = 0;
      for (int64_t e = 0; e < d; ++e) logit += x.at(i * d + e) * w.at(j * d + e);
      most = std::max(most, std::abs(logit));
    }
  return epsilon(in[0].dtype) * most;
}

// AMX's tiles take 16 bits: a softmax's weights are rounded as the operands are, also where a part
// of the keys has its results in f32. The log-sum-exp is summed of weights that are not.
DType rounded_like(const KernelDef& kernel, const Variant& v, size_t r) {
  const bool is_lse = v.out.size() == 2 && r == 1;
  const bool in_tiles = kernel.min_isa == Isa::kAmx && v.in[0].dtype == DType::kBF16;
  return in_tiles && (kernel.op == "attention" || kernel.op == "attention_bwd") && !is_lse
             ? DType::kBF16
             : v.out[r].dtype;
}

std::string check_values(const Case& c, const KernelDef& kernel, const Variant& v,
                         const Outputs& got, Arithmetic naive = Arithmetic::kNaive,
                         double slack = 0) {
  OpCall call = c.call();
  call.in = v.in, call.out = v.out;
  auto exact = evaluate(call, v.refs(), Arithmetic::kOracle);
  if (!exact.ok()) return exact.error().message;
  for (size_t r = 0; r < v.out.size(); ++r) {
    const HostTensor y = copy_of(got.refs[r]);
    const double error = largest_error(y, (*exact)[r]), magnitude = max_abs((*exact)[r]);
    const double floor =
        epsilon(rounded_like(kernel, v, r)) * magnitude + slack * std::max(1., magnitude);
    double naive_error = naive_error_of(c, v, r, naive) * magnitude;
    if (!(error <= 2 * naive_error + floor) && is_float(v.out[r].dtype))
      naive_error = std::max(naive_error, naive_error_of_draws(c, v, r, naive) * magnitude);
    if (!(error <= 2 * naive_error + floor))
      return cat("result ", r, ": error ", error, ", naive ", naive_error, ", floor ", floor, ": ",
                 difference(y, (*exact)[r], 0));
  }
  return "";
}

// In place: a result over the operand that it may overwrite gives the same bits.
std::string check_in_place(const Case& c, const KernelDef& kernel, const Variant& v,
                           const Outputs& want) {
  for (size_t k = 0; k < v.in.size(); ++k)
    for (size_t r = 0; r < v.out.size(); ++r) {
      bool may = c.op->is_elementwise;
      for (const auto& alias : c.op->aliases)
        may |= alias[0] == static_cast<int>(k) && alias[1] == static_cast<int>(r);
      if (!may || !(v.in[k] == v.out[r])) continue;
      Variant again;
      if (!make_variant(c, v.in[k].dtype, 0, again)) continue;
      Outputs out(again, 0);
      std::vector<TensorRef> refs = out.refs;
      refs[r] = again.operands[k].ref();
      const auto in = again.refs();
      if (!kernel.supports(KernelQuery{&c.sample.attrs, in, refs})) continue;
      run_kernel(kernel, c.sample.attrs, in, refs, 1);
      if (!same_bits(refs[r], want.refs[r]))
        return cat("result ", r, " in place of operand ", k, " differs from elsewhere");
    }
  return "";
}

// The op's, or at most those where values decide.
std::string check_flops(const Case& c, const Variant& v, int64_t counted) {
  OpCall call = c.call();
  call.in = v.in, call.out = v.out;
  const int64_t planned = flops_of(call);
  const bool is_bound = !c.sample.cost_bound.empty();
  if (is_bound ? counted <= planned : counted == planned) return "";
  return cat("counted ", counted, " FLOPs, planned ", planned);
}

std::string check_variant(const Case& c, const KernelDef& kernel, const Variant& v, uint32_t layout,
                          int& n_checked) {
  Outputs out(v, layout), other(v, layout);
  const auto in = v.refs();
  if (!kernel.supports(KernelQuery{&c.sample.attrs, in, out.refs})) return "";
  ++n_checked;
  const RunCounters count = run_kernel(kernel, c.sample.attrs, in, out.refs, 1);
  if (auto why = check_values(c, kernel, v, out); !why.empty()) return why;
  if (auto why = check_flops(c, v, count.math_flops); !why.empty()) return why;
  // Three threads, and more tasks than they: what only the first task does right is seen here.
  note_tasks(kernel,
             run_kernel_in(pool_of_small_tasks(3), kernel, c.sample.attrs, in, other.refs).tasks);
  for (size_t r = 0; r < v.out.size(); ++r)
    if (!same_bits(out.refs[r], other.refs[r]))
      return cat("result ", r, " differs between 1 thread and 3 with small tasks");
  return layout == 0 ? check_in_place(c, kernel, v, out) : "";
}

// A tensor's bytes in a device's memory, between borders of a pattern.
class OnDevice {
 public:
  OnDevice(Device& device, const Tensor& host) : device_(device), host_(host) {
    const std::span<const std::byte> bytes = host.memory();
    image_.assign(bytes.size() + 2 * kBorder_bytes, std::byte{0xa5});
    std::copy(bytes.begin(), bytes.end(), image_.begin() + kBorder_bytes);
    base_ = static_cast<std::byte*>(device.allocate(size()).value());
    device.copy(base_, image_.data(), size()).value();
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { device_.release(base_); }
  TensorRef ref() const {
    TensorRef r = host_.ref();
    r.data = base_ + kBorder_bytes + (r.as<std::byte>() - host_.memory().data());
    return r;
  }
  // Back to the host; false: the borders are not what they were.
  bool fetch() {
    std::vector<std::byte> back(image_.size());
    device_.copy(back.data(), base_, size()).value();
    const std::span<std::byte> bytes = const_cast<Tensor&>(host_).memory();
    const auto inside = back.begin() + kBorder_bytes;
    std::copy(inside, inside + static_cast<ptrdiff_t>(bytes.size()), bytes.begin());
    return std::equal(back.begin(), inside, image_.begin()) &&
           std::equal(back.end() - kBorder_bytes, back.end(), image_.end() - kBorder_bytes);
  }

 private:
  static constexpr ptrdiff_t kBorder_bytes = 1024;
  int64_t size() const { return static_cast<int64_t>(image_.size()); }
  Device& device_;
  const Tensor& host_;
  std::vector<std::byte> image_;
  std::byte* base_ = nullptr;
};

// FLOPs of a launch: as its host says, and as the kernels counted, -1 where they do not.
struct DeviceFlops {
  int64_t launched = 0, counted = -1;
};

// Launches into `out`, whose memory begins as NaN.
std::string run_on_device(const Case& c, const KernelDef& kernel, const Variant& v, Outputs& out,
                          Device& device, DeviceFlops& flops) {
  std::vector<std::unique_ptr<OnDevice>> in_memory, out_memory;
  std::vector<TensorRef> in, results;
  for (const Tensor& t : v.operands) {
    in_memory.push_back(std::make_unique<OnDevice>(device, t));
    in.push_back(in_memory.back()->ref());
  }
  for (Tensor& t : out.tensors) {
    std::fill(t.memory().begin(), t.memory().end(), std::byte{0xff});
    out_memory.push_back(std::make_unique<OnDevice>(device, t));
    results.push_back(out_memory.back()->ref());
  }
  const KernelQuery query{
      .attrs = &c.sample.attrs, .in = in, .out = results, .target = &device.target()};
  if (!kernel.supports(query)) return "supported without data, but not with it";
  const int64_t bytes = kernel.workspace_bytes ? kernel.workspace_bytes(query) : 0;
  void* workspace = device.allocate(bytes).value();
  device.fill(workspace, 0xff, bytes).value();
  Counters counters;
  DeviceCall call;
  call.attrs = &c.sample.attrs, call.in = in, call.out = results, call.workspace = workspace;
  call.counters = &counters, call.target = &device.target();
  const auto ready = launch_of(kernel)->prepare(call);
  if (!ready.ok()) return ready.error().message;
  static const CountedFlops count = device_counter();
  if (count != nullptr) count();
  if (const Status queued = (*ready)->enqueue(device.stream()); !queued.ok())
    return queued.error().message;
  if (const Status done = device.wait(); !done.ok()) return done.error().message;
  flops.launched = counters.math_flops;
  if (count != nullptr && (flops.counted = count()) < 0) return "the kernels' count cannot be read";
  device.release(workspace);
  for (const auto& t : in_memory)
    if (!t->fetch()) return "an operand's border was written";
  for (const auto& t : out_memory)
    if (!t->fetch()) return "written past the end of a result";
  return "";
}

std::string check_variant_on_device(const Case& c, const KernelDef& kernel, const Variant& v,
                                    uint32_t layout, Device& device, bool repeats_bits,
                                    int& n_checked) {
  Outputs out(v, layout);
  const std::vector<TensorRef> in = v.refs();
  if (!kernel.supports(
          {.attrs = &c.sample.attrs, .in = in, .out = out.refs, .target = &device.target()}))
    return "";
  ++n_checked;
  DeviceFlops flops;
  if (auto why = run_on_device(c, kernel, v, out, device, flops); !why.empty()) return why;
  if (auto why = check_flops(c, v, flops.launched); !why.empty()) return why;
  if (is_launch_only()) return "";
  if (flops.counted >= 0)
    if (auto why = check_flops(c, v, flops.counted); !why.empty()) return cat("the kernels ", why);
  if (auto why = check_values(c, kernel, v, out, Arithmetic::kTensorCores, slack_of(kernel, v));
      !why.empty())
    return why;
  if (!repeats_bits) return "";
  Outputs again(v, layout);
  if (auto why = run_on_device(c, kernel, v, again, device, flops); !why.empty()) return why;
  for (size_t r = 0; r < v.out.size(); ++r)
    if (!same_bits(out.refs[r], again.refs[r]))
      return cat("result ", r, " has other bits in the next run");
  return "";
}

}  // namespace

bool is_launch_only() { return std::getenv("TEGULA_TEST_LAUNCH_ONLY") != nullptr; }

Verdict check_kernel_on_device(const Case& c, const KernelDef& kernel, Device& device,
                               bool repeats_bits, int& n_checked) {
  const int before = n_checked;
  for (DType narrow : {DType::kF32, DType::kBF16, DType::kF16})
    for (const bool mixed : {false, true})
      for (uint32_t layout = 0; layout <= kPaddedLayout; ++layout) {
        Variant v;
        if (!make_variant(c, narrow, layout, v, mixed)) continue;
        const auto why =
            check_variant_on_device(c, kernel, v, layout, device, repeats_bits, n_checked);
        if (!why.empty()) return fail(cat(kernel.name, " (", v.name, "): ", why));
      }
  return n_checked > before ? pass() : skip("the kernel does not support it");
}

int64_t most_tasks_of(const KernelDef& kernel) { return tasks_by_kernel()[kernel.name]; }

Verdict check_kernel(const Case& c, const KernelDef& kernel) {
  int n_checked = 0;
  for (DType narrow : {DType::kF32, DType::kBF16, DType::kF16})
    for (const bool mixed : {false, true})
      for (uint32_t layout = 0; layout < 4; ++layout) {
        Variant v;
        if (!make_variant(c, narrow, layout, v, mixed)) continue;
        const auto why = check_variant(c, kernel, v, layout, n_checked);
        if (!why.empty()) return fail(cat(kernel.name, " (", v.name, "): ", why));
      }
  return n_checked ? pass() : skip("no kernel supports it");
}

Verdict check_kernels(const Case& c) {
  if (c.op->name == "fused") return skip("needs a tile program: tests/passes runs it");
  Verdict all = skip("no kernel");
  for (const KernelDef* kernel : all_kernels()) {
    if (kernel->op != c.op->name || kernel->device != DeviceKind::kCpu) continue;
    if (kernel->min_isa > machine_isa()) {
      if (all.kind == Verdict::kSkip) all.why = "this machine lacks the instruction set";
      continue;
    }
    const Verdict v = check_kernel(c, *kernel);
    if (v.kind == Verdict::kFail) return v;
    if (all.kind == Verdict::kSkip) all = v;
  }
  return all;
}

}  // namespace tegula::testing
