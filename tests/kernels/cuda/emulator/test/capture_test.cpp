// Streams that are captured: what is kept, replayed, and refused.
#include <dlfcn.h>

#include <functional>

#include "tests/kernels/cuda/emulator/test/kernel_text.h"

namespace tegula::cuda::testing {
namespace {

constexpr int kUnsupported = 900, kInvalidated = 901, kUnjoined = 904, kIsolation = 905,
              kImplicit = 906, kCapturedEvent = 907;
constexpr int kGlobal = 0, kRelaxed = 2;

// A call of the driver, by its name.
template <class... Args>
int call(const char* name, Args... args) {
  static void* library = ::dlopen(std::getenv("TEGULA_CUDA_DRIVER"), RTLD_NOW);
  auto* f = reinterpret_cast<int (*)(Args...)>(::dlsym(library, name));
  EXPECT_NE(f, nullptr) << name;
  return f == nullptr ? -1 : f(args...);
}

StreamHandle new_stream() {
  StreamHandle stream = nullptr;
  EXPECT_EQ(driver().stream_create(&stream, 0), 0);
  return stream;
}
void* new_event() {
  void* event = nullptr;
  EXPECT_EQ(driver().event_create(&event, 0), 0);
  return event;
}
int begin(StreamHandle stream, int mode = kGlobal) {
  return call("cuStreamBeginCapture_v2", stream, mode);
}
// The status of the end; the graph may be run.
int end(StreamHandle stream, void** runnable) {
  void* graph = nullptr;
  const int status = call("cuStreamEndCapture", stream, &graph);
  EXPECT_EQ(graph != nullptr, status == 0);
  if (status != 0) return status;
  EXPECT_EQ(call("cuGraphInstantiateWithFlags", runnable, graph, 0ULL), 0);
  EXPECT_EQ(call("cuGraphDestroy", graph), 0);
  return 0;
}
int capturing(StreamHandle stream) {
  int status = -1;
  EXPECT_EQ(call("cuStreamIsCapturing", stream, &status), 0);
  return status;
}

const KernelText& adds() {
  static const KernelText text(R"(
extern "C" __global__ void kernel(int* x, int y) { x[threadIdx.x] += y; })");
  return text;
}

class EmulatedCapture : public ::testing::Test {
 protected:
  void SetUp() override { adds(); }  // loaded before a capture begins
};

TEST_F(EmulatedCapture, KeepsStepsAndTheirArguments) {
  DeviceMemory<int> x(32), from(std::vector<int>(32, 100));
  const StreamHandle stream = new_stream();
  ASSERT_EQ(begin(stream), 0);
  EXPECT_EQ(capturing(stream), 1);
  ASSERT_EQ(call("cuMemcpyAsync", static_cast<void*>(x.data()),
                 static_cast<const void*>(from.data()), size_t{128}, stream),
            0);
  ASSERT_EQ(call("cuMemsetD8Async", static_cast<void*>(x.data()), static_cast<unsigned char>(0),
                 size_t{4}, stream),
            0);
  for (int y = 1; y <= 3; ++y) ASSERT_EQ(adds().launch({1, 32, 0, stream}, x.data(), y), 0);
  void* run = nullptr;
  ASSERT_EQ(end(stream, &run), 0);
  EXPECT_EQ(capturing(stream), 0);
  EXPECT_EQ(x.host(), std::vector<int>(32));  // nothing has run
  std::vector<int> want(32, 106);
  want[0] = 6;
  for (int replay = 0; replay < 2; ++replay) {
    ASSERT_EQ(adds().launch({1, 32, 0, stream}, x.data(), 50), 0);
    ASSERT_EQ(call("cuGraphLaunch", run, stream), 0);
    EXPECT_EQ(x.host(), want);
  }
  EXPECT_EQ(call("cuGraphExecDestroy", run), 0);
}

TEST_F(EmulatedCapture, AGraphInAGraph) {
  DeviceMemory<int> x(32);
  const StreamHandle stream = new_stream();
  void *inner = nullptr, *outer = nullptr;
  ASSERT_EQ(begin(stream), 0);
  ASSERT_EQ(adds().launch({1, 32, 0, stream}, x.data(), 1), 0);
  ASSERT_EQ(end(stream, &inner), 0);
  ASSERT_EQ(begin(stream), 0);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(call("cuGraphLaunch", inner, stream), 0);
  ASSERT_EQ(end(stream, &outer), 0);
  ASSERT_EQ(call("cuGraphExecDestroy", inner), 0);
  ASSERT_EQ(call("cuGraphLaunch", outer, stream), 0);
  EXPECT_EQ(x.host(), std::vector<int>(32, 2));
}

TEST_F(EmulatedCapture, RefusesWhatWaitsOrAllocates) {
  DeviceMemory<int> x(1);
  const StreamHandle stream = new_stream(), other = new_stream();
  void* event = new_event();
  void* data = nullptr;
  void* function = nullptr;
  int host = 0;
  const std::vector<std::pair<const char*, std::function<int()>>> calls = {
      {"allocate", [&] { return driver().allocate(&data, 16); }},
      {"free", [&] { return driver().release(x.data()); }},
      {"pinned", [&] { return call("cuMemHostAlloc", &data, size_t{16}, 0U); }},
      {"copy", [&] { return driver().copy(&host, x.data(), 4); }},
      {"fill", [&] { return driver().fill(x.data(), 0, 4); }},
      {"load", [&] { return driver().module_load(&function, ""); }},
      {"wait", [&] { return driver().stream_wait(stream); }},
      {"wait for another", [&] { return driver().stream_wait(other); }},
      {"wait for an event", [&] { return driver().event_wait(event); }},
  };
  for (const auto& [name, forbidden] : calls) {
    SCOPED_TRACE(name);
    void* run = nullptr;
    ASSERT_EQ(begin(stream), 0);
    EXPECT_EQ(forbidden(), kUnsupported);
    EXPECT_EQ(capturing(stream), 2);
    EXPECT_EQ(adds().launch({1, 1, 0, stream}, x.data(), 1), kInvalidated);
    EXPECT_EQ(end(stream, &run), kInvalidated);
    EXPECT_EQ(capturing(stream), 0);
  }
  EXPECT_EQ(x.host()[0], 0);
  ASSERT_EQ(adds().launch({1, 1, 0, stream}, x.data(), 1), 0);
  EXPECT_EQ(x.host()[0], 1);
  // A relaxed one lets allocate, but not wait for itself.
  void* run = nullptr;
  ASSERT_EQ(begin(stream, kRelaxed), 0);
  EXPECT_EQ(driver().allocate(&data, 16), 0);
  EXPECT_EQ(end(stream, &run), 0);
  EXPECT_EQ(driver().release(data), 0);
  ASSERT_EQ(begin(stream, kRelaxed), 0);
  EXPECT_EQ(driver().stream_wait(stream), kUnsupported);
  EXPECT_EQ(end(stream, &run), kInvalidated);
}

TEST_F(EmulatedCapture, TheNullStreamWouldWaitForAll) {
  DeviceMemory<int> x(1);
  const StreamHandle stream = new_stream();
  void* run = nullptr;
  EXPECT_NE(begin(nullptr), 0);
  ASSERT_EQ(begin(stream), 0);
  EXPECT_EQ(adds().launch({1, 1}, x.data(), 1), kImplicit);
  EXPECT_EQ(end(stream, &run), kInvalidated);
  EXPECT_EQ(x.host()[0], 0);
}

TEST_F(EmulatedCapture, StreamsJoinByEvents) {
  DeviceMemory<int> x(1);
  const StreamHandle stream = new_stream(), side = new_stream();
  void *forked = new_event(), *joined = new_event(), *run = nullptr;
  const auto wait = [](StreamHandle s, void* event) {
    return call("cuStreamWaitEvent", s, event, 0U);
  };
  ASSERT_EQ(begin(stream), 0);
  ASSERT_EQ(driver().event_record(forked, stream), 0);
  ASSERT_EQ(wait(side, forked), 0);
  EXPECT_EQ(capturing(side), 1);
  ASSERT_EQ(adds().launch({1, 1, 0, side}, x.data(), 10), 0);
  ASSERT_EQ(driver().event_record(joined, side), 0);
  EXPECT_EQ(driver().event_wait(joined), kCapturedEvent);
  ASSERT_EQ(wait(stream, joined), 0);
  ASSERT_EQ(adds().launch({1, 1, 0, stream}, x.data(), 1), 0);
  ASSERT_EQ(end(stream, &run), 0);
  EXPECT_EQ(capturing(side), 0);
  ASSERT_EQ(call("cuGraphLaunch", run, stream), 0);
  EXPECT_EQ(x.host()[0], 11);
  // Not waited for; and an event of no capture.
  ASSERT_EQ(begin(stream), 0);
  ASSERT_EQ(driver().event_record(forked, stream), 0);
  ASSERT_EQ(wait(side, forked), 0);
  ASSERT_EQ(adds().launch({1, 1, 0, side}, x.data(), 10), 0);
  EXPECT_EQ(end(stream, &run), kUnjoined);
  void* outside = new_event();
  ASSERT_EQ(driver().event_record(outside, side), 0);
  ASSERT_EQ(begin(stream), 0);
  EXPECT_EQ(wait(stream, outside), kIsolation);
  EXPECT_EQ(end(stream, &run), kInvalidated);
  EXPECT_EQ(x.host()[0], 11);
}

TEST_F(EmulatedCapture, AFailedStepFailsTheGraph) {
  const KernelText bad(R"(
extern "C" __global__ void kernel(int* x) { if (threadIdx.x == 0) __syncthreads(); x[0] = 1; })");
  DeviceMemory<int> x(1);
  const StreamHandle stream = new_stream();
  void* run = nullptr;
  ASSERT_EQ(begin(stream), 0);
  ASSERT_EQ(bad.launch({1, 32, 0, stream}, x.data()), 0);
  ASSERT_EQ(adds().launch({1, 1, 0, stream}, x.data(), 5), 0);
  ASSERT_EQ(end(stream, &run), 0);
  EXPECT_EQ(call("cuGraphLaunch", run, stream), 719);
  EXPECT_EQ(x.host()[0], 1);  // by the threads that did not wait; what follows did not run
}

}  // namespace
}  // namespace tegula::cuda::testing
