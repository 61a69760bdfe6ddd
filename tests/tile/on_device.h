// Runs tile programs by the kernel of a device.
#pragma once

#include "tegula/kernels/device.h"
#include "tegula/kernels/registry.h"
#include "tests/tile/harness.h"

namespace tegula::tile {

// The device's copy of a tensor's memory, its guards included.
struct OnDevice {
  Device* device;
  Tensor* host;
  char* data = nullptr;
  OnDevice(Device* d, Tensor& t) : device(d), host(&t) {
    data = static_cast<char*>(device->allocate(static_cast<int64_t>(t.bytes().size())).value());
    EXPECT_TRUE(device->copy(data, t.bytes().data(), static_cast<int64_t>(t.bytes().size())).ok());
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { device->release(data); }
  TensorRef ref() const {
    TensorRef r = host->ref();
    r.data = data + (static_cast<char*>(r.data) - host->bytes().data());
    return r;
  }
  void fetch() {
    EXPECT_TRUE(
        device->copy(host->bytes().data(), data, static_cast<int64_t>(host->bytes().size())).ok());
  }
};

inline const KernelDef* kernel_of(std::string_view name) {
  for (const KernelDef* k : all_kernels())
    if (k->name == name) return k;
  return nullptr;
}

// Output k lies on input lies_on[k], if there is one of that number.
inline void run_device(const Program& p, std::vector<Tensor>& in, std::vector<Tensor>& out,
                       const std::vector<size_t>& lies_on, Counts* counts = nullptr) {
  Device* device = open_device().value();
  const KernelDef* kernel = kernel_of("fused_cuda");
  ASSERT_NE(kernel, nullptr);
  std::vector<std::unique_ptr<OnDevice>> held;
  std::vector<TensorRef> in_refs, out_refs;
  for (Tensor& t : in) {
    held.push_back(std::make_unique<OnDevice>(device, t));
    in_refs.push_back(held.back()->ref());
  }
  for (size_t k = 0; k < out.size(); ++k) {
    held.push_back(std::make_unique<OnDevice>(device, out[k]));
    out_refs.push_back(lies_on[k] < in.size() ? in_refs[lies_on[k]] : held.back()->ref());
  }
  KernelQuery query;
  query.in = in_refs, query.out = out_refs, query.program = &p, query.target = &device->target();
  ASSERT_TRUE(kernel->supports(query)) << kernel->check(query).error().message;
  Counters counters;
  DeviceCall call;
  call.in = in_refs, call.out = out_refs, call.program = &p, call.counters = &counters;
  call.target = &device->target();
  const int64_t bytes = kernel->workspace_bytes(query);
  if (bytes > 0) call.workspace = device->allocate(bytes).value();
  const KernelLaunch* launch = launch_of(*kernel);
  ASSERT_NE(launch, nullptr);
  const auto ready = launch->prepare(call);
  ASSERT_TRUE(ready.ok()) << ready.error().message << "\n" << to_text(p);
  Status status = (*ready)->enqueue(device->stream());
  ASSERT_TRUE(status.ok()) << status.error().message << "\n" << to_text(p);
  status = device->wait();
  ASSERT_TRUE(status.ok()) << status.error().message << "\n" << to_text(p);
  if (bytes > 0) device->release(call.workspace);
  for (auto& h : held) h->fetch();
  if (counts) *counts = {counters.math_flops, counters.executed_flops};
}

class TileDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto device = open_device(); !device.ok()) GTEST_SKIP() << device.error().message;
  }
};

}  // namespace tegula::tile
