// The driver's calls on streams, events and graphs.
#include "tests/kernels/cuda/emulator/driver/stream.h"

using namespace tegula::emulated;

// NOLINTBEGIN(readability-identifier-naming): the names that callers look up
#define TEGULA_EXPORT extern "C" __attribute__((visibility("default"))) int

TEGULA_EXPORT cuStreamCreate(void** stream, unsigned) {
  *stream = new Stream();
  return kSuccess;
}
TEGULA_EXPORT cuStreamSynchronize(void* stream) {
  if (const Status lost = check_not_lost(); lost != kSuccess) return lost;
  return wait_for_stream(stream_of(stream));
}
TEGULA_EXPORT cuStreamWaitEvent(void* stream, void* event, unsigned) {
  return wait_for_event(stream_of(stream), static_cast<const Event*>(event));
}

TEGULA_EXPORT cuEventCreate(void** event, unsigned) {
  *event = new Event();
  return kSuccess;
}
TEGULA_EXPORT cuEventRecord(void* event, void* stream) {
  record(static_cast<Event*>(event), stream_of(stream));
  return kSuccess;
}
TEGULA_EXPORT cuEventSynchronize(void* event) {
  if (static_cast<const Event*>(event)->capture != nullptr) return kCapturedEvent;
  return check_not_captured();
}
TEGULA_EXPORT cuEventElapsedTime(float* ms, void* from, void* to) {
  if (static_cast<const Event*>(from)->capture != nullptr ||
      static_cast<const Event*>(to)->capture != nullptr)
    return kCapturedEvent;
  *ms = static_cast<float>(
      ms_between(*static_cast<const Event*>(from), *static_cast<const Event*>(to)));
  return kSuccess;
}

TEGULA_EXPORT cuStreamBeginCapture_v2(void* stream, int mode) {
  return begin_capture(stream_of(stream), mode);
}
TEGULA_EXPORT cuStreamIsCapturing(void* stream, int* status) {
  *status = capture_status(stream_of(stream));
  return kSuccess;
}
TEGULA_EXPORT cuStreamEndCapture(void* stream, void** graph) {
  Graph* captured = nullptr;
  const Status status = end_capture(stream_of(stream), &captured);
  *graph = captured;
  return status;
}
TEGULA_EXPORT cuGraphInstantiateWithFlags(void** runnable, void* graph, unsigned long long) {
  if (graph == nullptr) return kInvalidValue;
  *runnable = new Graph(*static_cast<const Graph*>(graph));
  return kSuccess;
}
TEGULA_EXPORT cuGraphLaunch(void* runnable, void* stream) {
  if (runnable == nullptr) return kInvalidValue;
  if (const Status lost = check_not_lost(true); lost != kSuccess) return lost;
  // A copy: a graph captured into another outlives its handle.
  return told(enqueue(stream_of(stream), [graph = *static_cast<const Graph*>(runnable)] {
    take_ms(static_cast<int64_t>(graph.steps.size()));
    for (const Work& step : graph.steps)
      if (Outcome o = step(); o.status != kSuccess) return o;
    return Outcome();
  }));
}
TEGULA_EXPORT cuGraphExecDestroy(void* runnable) {
  delete static_cast<Graph*>(runnable);
  return kSuccess;
}
TEGULA_EXPORT cuGraphDestroy(void* graph) {
  delete static_cast<Graph*>(graph);
  return kSuccess;
}
// NOLINTEND(readability-identifier-naming)
