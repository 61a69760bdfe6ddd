#include "tegula/kernels/cuda/plugin/cuda_device.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/memory.h"
#include "tegula/kernels/cuda/plugin/cupti.h"
#include "tegula/kernels/cuda/plugin/persistent.h"

namespace tegula::cuda {

namespace {

// A stream of this kind and the driver's copies wait for each other.
constexpr unsigned kInOrderWithCopies = 0, kWithTiming = 0;

// A CUDA graph.
class PreparedGraph final : public Prepared {
 public:
  PreparedGraph(const Driver* driver, GraphExecHandle graph) : driver_(driver), graph_(graph) {}
  ~PreparedGraph() override { driver_->graph_exec_destroy(graph_); }
  Status enqueue(void* stream) const override {
    return driver_->check(driver_->graph_launch(graph_, stream), "cuGraphLaunch");
  }

 private:
  const Driver* driver_;
  GraphExecHandle graph_;
};

class CudaDevice final : public Device {
 public:
  static Result<std::unique_ptr<CudaDevice>> create();
  const Target& target() const override { return target_; }
  Result<void*> allocate(int64_t bytes) override {
    void* data = nullptr;
    const DriverStatus s = driver_->allocate(&data, static_cast<size_t>(bytes > 0 ? bytes : 1));
    if (s == kOutOfMemory)
      return out_of_memory(cat(target_.name, " has no ", bytes, " bytes left of ",
                               target_.memory_bytes, ": take a smaller shape or batch"));
    TEGULA_TRY(driver_->check(s, "cuMemAlloc"));
    return data;
  }
  void release(void* data) override {
    if (data != nullptr) driver_->release(data);
  }
  Status copy(void* to, const void* from, int64_t bytes) override {
    if (bytes == 0) return {};
    return driver_->check(driver_->copy(to, from, static_cast<size_t>(bytes)), "cuMemcpy");
  }
  Status fill(void* to, uint8_t value, int64_t bytes) override {
    if (bytes == 0) return {};
    TEGULA_TRY(driver_->check(driver_->fill(to, value, static_cast<size_t>(bytes)), "cuMemsetD8"));
    return driver_->check(driver_->stream_wait(nullptr), "cuMemsetD8");
  }
  Result<void*> allocate_pinned(int64_t bytes) override {
    void* data = nullptr;
    TEGULA_TRY(driver_->check(
        driver_->allocate_pinned(&data, static_cast<size_t>(bytes > 0 ? bytes : 1), 0),
        "cuMemHostAlloc"));
    return data;
  }
  void release_pinned(void* data) override {
    if (data != nullptr) driver_->release_pinned(data);
  }
  Status copy_later(void* to, const void* from, int64_t bytes) override {
    if (bytes == 0) return {};
    return driver_->check(driver_->copy_later(to, from, static_cast<size_t>(bytes), stream_),
                          "cuMemcpyAsync");
  }
  void* stream() override { return stream_; }
  Status wait() override { return driver_->check(driver_->stream_wait(stream_), "a kernel"); }
  Status begin_capture() override {
    return driver_->check(driver_->begin_capture(stream_, kOfThisThread), "cuStreamBeginCapture");
  }
  Result<std::unique_ptr<Prepared>> end_capture() override;
  Result<int64_t> free_bytes() override {
    size_t free = 0, total = 0;
    TEGULA_TRY(driver_->check(driver_->memory_info(&free, &total), "cuMemGetInfo"));
    return static_cast<int64_t>(free);
  }
  Status begin_trace() override {
    TEGULA_TRY(wait());
    return begin_activity();
  }
  Result<std::vector<DeviceSpan>> end_trace() override {
    TEGULA_TRY(wait());
    return end_activity();
  }
  Result<std::vector<WorkInOne>> put_in_one(std::span<const WorkInOrder> work,
                                            std::span<const MemoryRange> constant) override {
    return put_in_persistent_kernels(work, constant, target_);
  }
  Status mark(int which) override {
    return driver_->check(driver_->event_record(events_[which], stream_), "cuEventRecord");
  }
  Result<double> ms_between_marks() override {
    float ms = 0;
    TEGULA_TRY(driver_->check(driver_->event_wait(events_[1]), "a kernel"));
    TEGULA_TRY(
        driver_->check(driver_->event_ms(&ms, events_[0], events_[1]), "cuEventElapsedTime"));
    return static_cast<double>(ms);
  }

 private:
  static constexpr DriverStatus kOutOfMemory = 2;
  static constexpr int kOfThisThread = 1;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
  const Driver* driver_ = nullptr;
  Target target_;
  StreamHandle stream_ = nullptr;
  void* events_[2] = {};
};

Result<std::unique_ptr<Prepared>> CudaDevice::end_capture() {
  GraphHandle graph = nullptr;
  GraphExecHandle ready = nullptr;
  TEGULA_TRY(driver_->check(driver_->end_capture(stream_, &graph), "cuStreamEndCapture"));
  const Status made =
      driver_->check(driver_->graph_instantiate(&ready, graph, 0), "cuGraphInstantiate");
  driver_->graph_destroy(graph);
  TEGULA_TRY(Status(made));
  return std::unique_ptr<Prepared>(std::make_unique<PreparedGraph>(driver_, ready));
}

Result<Target> target_of(const Driver& d, int device) {
  const auto number = [device](DeviceAttribute which) { return device_attribute(which, device); };
  Target t;
  t.device = DeviceKind::kCuda;
  char name[256] = {};
  size_t bytes = 0;
  TEGULA_TRY(d.check(d.device_name(name, sizeof name, device), "cuDeviceGetName"));
  TEGULA_TRY(d.check(d.device_memory(&bytes, device), "cuDeviceTotalMem"));
  t.name = name, t.memory_bytes = static_cast<int64_t>(bytes);
  t.capability = 10 * TEGULA_TRY(number(DeviceAttribute::kCapabilityMajor)) +
                 TEGULA_TRY(number(DeviceAttribute::kCapabilityMinor));
  t.smem_bytes = max_smem_bytes(t.capability);
  t.multiprocessors = TEGULA_TRY(number(DeviceAttribute::kMultiprocessors));
  t.l2_bytes = TEGULA_TRY(number(DeviceAttribute::kL2Bytes));
  const double clock = 1e3 * TEGULA_TRY(number(DeviceAttribute::kClockKhz));
  // Operations of a multiprocessor in a clock: tensor cores on dense bf16, and 128 or 64 f32 lanes.
  const int tensor = t.capability >= 90 ? 4096 : t.capability == 80 ? 2048 : 1024;
  t.bf16_flops_per_s = clock * t.multiprocessors * tensor;
  t.f32_flops_per_s = clock * t.multiprocessors * (t.capability == 80 ? 128 : 256);
  t.bytes_per_s = 2e3 * TEGULA_TRY(number(DeviceAttribute::kMemoryClockKhz)) / 8 *
                  TEGULA_TRY(number(DeviceAttribute::kMemoryBusBits));
  return t;
}

Result<std::unique_ptr<CudaDevice>> CudaDevice::create() {
  auto out = std::make_unique<CudaDevice>();
  const Driver* d = out->driver_ = TEGULA_TRY(Driver::get());
  int device = 0;
  TEGULA_TRY(d->check(d->device(&device, 0), "cuDeviceGet"));
  out->target_ = TEGULA_TRY(target_of(*d, device));
  if (const int c = out->target_.capability; c < kOldestCapability)
    return Error{Code::kDevice,
                 cat("the device is too old: ", out->target_.name, " has compute capability ",
                     c / 10, ".", c % 10, ", the kernels need 8.0 or newer; run on the CPU")};
  void* context = nullptr;
  TEGULA_TRY(d->check(d->primary_context(&context, device), "cuDevicePrimaryCtxRetain"));
  TEGULA_TRY(d->check(d->set_context(context), "cuCtxSetCurrent"));
  TEGULA_TRY(d->check(d->stream_create(&out->stream_, kInOrderWithCopies), "cuStreamCreate"));
  for (void*& event : out->events_)
    TEGULA_TRY(d->check(d->event_create(&event, kWithTiming), "cuEventCreate"));
  return out;
}

const Result<std::unique_ptr<CudaDevice>>& the_device() {
  // Never destroyed: the driver goes before statics do.
  static const auto* device = new Result<std::unique_ptr<CudaDevice>>(CudaDevice::create());
  return *device;
}

}  // namespace

Result<Device*> open_cuda_device() {
  if (!the_device().ok()) return the_device().error();
  return static_cast<Device*>(the_device()->get());
}

std::string arch_of(int capability) { return cat("sm_", capability, capability >= 90 ? "a" : ""); }

Result<void*> zeroed_memory(int64_t bytes) {
  // Memory that was given before is in prepared launches: it is kept.
  static void* memory = nullptr;
  static int64_t size = 0;
  if (size < bytes) {
    Device* device = TEGULA_TRY(open_cuda_device());
    const int64_t wanted = std::max({bytes, 2 * size, int64_t{1} << 16});
    void* more = TEGULA_TRY(device->allocate(wanted));
    TEGULA_TRY(device->fill(more, 0, wanted));
    memory = more, size = wanted;
  }
  return memory;
}

}  // namespace tegula::cuda
