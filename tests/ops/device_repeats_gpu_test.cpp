// Every kernel of the CUDA plug-in that promises the same bits in every run, at sizes that fill a
// GPU: 100 more runs give those of the first. Skipped where no GPU can be used.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tegula/kernels/registry.h"
#include "tegula/ops/table.h"
#include "tests/ops/checks.h"

namespace tegula::testing {
namespace {

constexpr int kRuns = 100;
constexpr int64_t kRows = 2048, kHeads = 16;

// Causal attention with heads of `d`, forward or backward; or a product of rows of 16 · d.
Sample large_sample(std::string_view op, DType t, int64_t d) {
  Sample s;
  s.name = cat(t, ", ", d);
  if (op == "dot") {
    s.in = {{{t, {kRows, kHeads * d}}}, {{t, {kHeads * d, kRows}}}};
    s.attrs = Attrs{{"dims", std::string("m k, k n -> m n")}};
    return s;
  }
  const SampleInput rows = {{t, {1, kRows, kHeads, d}}};
  s.in = {rows, rows, rows};
  if (op == "attention_bwd")  // of scores below 1
    s.in.insert(s.in.end(), {rows, {{DType::kF32, {1, kHeads, kRows}}, 1, 3}, rows});
  s.attrs.set("scale", 1 / std::sqrt(static_cast<double>(d)));
  s.attrs.set("is_causal", true);
  return s;
}

// Tensors in a device's memory.
class Buffers {
 public:
  explicit Buffers(Device& device) : device_(device) {}
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers() {
    for (void* data : all_) device_.release(data);
  }
  void* add(int64_t bytes) { return all_.emplace_back(device_.allocate(bytes).value()); }

 private:
  Device& device_;
  std::vector<void*> all_;
};

// How many of kRuns gave the bits of the first (is_launch_only: none is made); -1: the kernel does
// not take the call.
int count_repeats(const Case& c, const KernelDef& kernel, Device& device) {
  std::vector<HostTensor> results;
  std::vector<TensorRef> in = c.refs(), out;
  for (const Type& t : c.out) results.emplace_back(t), out.push_back(results.back().ref());
  const KernelQuery query{
      .attrs = &c.sample.attrs, .in = in, .out = out, .target = &device.target()};
  if (!kernel.supports(query)) return -1;

  Buffers buffers(device);
  for (TensorRef& t : in) {
    const int64_t bytes = t.numel() * size_bytes(t.dtype);
    void* data = buffers.add(bytes);
    device.copy(data, t.data, bytes).value();
    t.data = data;
  }
  std::vector<std::vector<std::byte>> first, again;
  for (TensorRef& t : out) {
    const int64_t bytes = t.numel() * size_bytes(t.dtype);
    first.emplace_back(static_cast<size_t>(bytes)), again.push_back(first.back());
    t.data = buffers.add(bytes);
  }
  Counters counters;
  DeviceCall call;
  call.attrs = &c.sample.attrs, call.in = in, call.out = out;
  call.counters = &counters, call.target = &device.target();
  if (kernel.workspace_bytes != nullptr)
    call.workspace = buffers.add(kernel.workspace_bytes(query));
  const auto ready = launch_of(kernel)->prepare(call);
  EXPECT_TRUE(ready.ok()) << kernel.name << ": " << ready.error().message;
  if (!ready.ok()) return -1;
  int same = 0;
  for (int run = 0; run <= (is_launch_only() ? 0 : kRuns); ++run) {
    const Status queued = (*ready)->enqueue(device.stream());
    EXPECT_TRUE(queued.ok()) << kernel.name << ": " << queued.error().message;
    if (!queued.ok()) return same;
    device.wait().value();
    auto& bits = run == 0 ? first : again;
    for (size_t r = 0; r < out.size(); ++r)
      device.copy(bits[r].data(), out[r].data, static_cast<int64_t>(bits[r].size())).value();
    same += static_cast<int>(run > 0 && bits == first);
  }
  return same;
}

class DeviceRepeats : public ::testing::TestWithParam<int> {};

TEST_P(DeviceRepeats, AHundredRunsGiveTheSameBits) {
  const auto opened = open_device();
  if (!opened.ok()) GTEST_SKIP() << opened.error().message;
  const char* only = std::getenv("TEGULA_TEST_KERNEL");  // kernels whose name has this
  for (const std::string_view op : {"attention", "attention_bwd", "dot"})
    for (const DType t : {DType::kBF16, DType::kF32}) {
      const Case c = make_case(*find_op(op), large_sample(op, t, GetParam()), 1);
      for (const KernelDef* kernel : all_kernels()) {
        // Rungs that are kept for reading take too long.
        if (kernel->device != DeviceKind::kCuda || kernel->op != op || kernel->priority < 0 ||
            !kernel->repeats_bits)
          continue;
        if (only != nullptr && kernel->name.find(only) == std::string_view::npos) continue;
        const int same = count_repeats(c, *kernel, **opened);
        if (same < 0 || is_launch_only()) continue;
        std::printf("%s, %s: %d of %d runs have the bits of the first\n",
                    std::string(kernel->name).c_str(), c.sample.name.c_str(), same, kRuns);
        EXPECT_EQ(same, kRuns) << kernel->name << ", " << c.sample.name;
      }
    }
  if (is_launch_only()) GTEST_SKIP() << kLaunchOnly;
}
INSTANTIATE_TEST_SUITE_P(HeadDims, DeviceRepeats, ::testing::Values(64, 96, 128, 192, 256));

}  // namespace
}  // namespace tegula::testing
