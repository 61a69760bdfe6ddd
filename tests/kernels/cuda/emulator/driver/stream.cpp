#include "tests/kernels/cuda/emulator/driver/stream.h"

#include <algorithm>
#include <atomic>
#include <mutex>

namespace tegula::emulated {

namespace {

constexpr int kThreadLocal = 1, kRelaxed = 2;

std::recursive_mutex mutex;
std::vector<std::weak_ptr<Capture>> captures;  // that have begun

Stream null_stream;
std::atomic<int64_t> done_ms;

Status broken(Capture& c, Status status) {
  c.is_broken = true;
  return status;
}

}  // namespace

Stream* stream_of(void* handle) {
  return handle == nullptr ? &null_stream : static_cast<Stream*>(handle);
}

Status check_not_captured() {
  const std::lock_guard lock(mutex);
  Status status = kSuccess;
  for (const auto& weak : captures) {
    const auto c = weak.lock();
    if (c == nullptr || c->mode == kRelaxed) continue;
    if (c->mode == kThreadLocal && c->thread != std::this_thread::get_id()) continue;
    status = broken(*c, kCaptureUnsupported);
  }
  return status;
}

void take_ms(int64_t n) { done_ms += n; }

int64_t ms_between(const Event& from, const Event& to) { return 1 + to.done_ms - from.done_ms; }

Outcome enqueue(Stream* stream, Work work) {
  std::unique_lock lock(mutex);
  if (stream == &null_stream) {  // it would wait for all other streams
    for (const auto& weak : captures)
      if (const auto c = weak.lock()) return {broken(*c, kCaptureImplicit), ""};
  }
  if (stream->capture == nullptr) {
    lock.unlock();
    take_ms(1);
    return work();
  }
  Capture& c = *stream->capture;
  if (c.is_broken) return {kCaptureInvalidated, ""};
  c.graph.steps.push_back(std::move(work));
  ++stream->n_steps;
  return {};
}

Status wait_for_stream(Stream* stream) {
  const std::lock_guard lock(mutex);
  if (stream->capture != nullptr) return broken(*stream->capture, kCaptureUnsupported);
  return check_not_captured();
}

Status begin_capture(Stream* stream, int mode) {
  const std::lock_guard lock(mutex);
  if (mode < 0 || mode > kRelaxed) return kInvalidValue;
  if (stream == &null_stream) return kCaptureUnsupported;
  if (stream->capture != nullptr) return kIllegalState;
  stream->capture = std::make_shared<Capture>(
      Capture{.graph = {}, .origin = stream, .mode = mode, .thread = std::this_thread::get_id()});
  stream->n_steps = stream->n_awaited = 0;
  captures.push_back(stream->capture);
  return kSuccess;
}

Status end_capture(Stream* stream, Graph** graph) {
  const std::lock_guard lock(mutex);
  *graph = nullptr;
  const std::shared_ptr<Capture> c = stream->capture;
  if (c == nullptr) return kIllegalState;
  if (c->origin != stream) return broken(*c, kCaptureUnmatched);
  bool is_joined = true;
  for (Stream* s : c->joined) {
    is_joined &= s->n_awaited == s->n_steps;
    s->capture = nullptr;
  }
  stream->capture = nullptr;
  std::erase_if(captures, [&c](const auto& weak) {
    const auto other = weak.lock();
    return other == nullptr || other == c;
  });
  if (c->is_broken) return kCaptureInvalidated;
  if (!is_joined) return kCaptureUnjoined;
  *graph = new Graph(std::move(c->graph));
  return kSuccess;
}

int capture_status(Stream* stream) {
  const std::lock_guard lock(mutex);
  return stream->capture == nullptr ? 0 : stream->capture->is_broken ? 2 : 1;
}

void record(Event* event, Stream* stream) {
  const std::lock_guard lock(mutex);
  *event = {stream->capture, stream, stream->n_steps, done_ms};
}

Status wait_for_event(Stream* stream, const Event* event) {
  const std::lock_guard lock(mutex);
  if (event->capture == nullptr)
    return stream->capture == nullptr ? kSuccess : broken(*stream->capture, kCaptureIsolation);
  if (event->stream->capture != event->capture) return kCapturedEvent;  // it has ended
  if (stream->capture == nullptr) {
    stream->capture = event->capture;
    stream->n_steps = stream->n_awaited = 0;
    event->capture->joined.push_back(stream);
    return kSuccess;
  }
  if (stream->capture != event->capture) {
    broken(*stream->capture, kCaptureMerge);
    return broken(*event->capture, kCaptureMerge);
  }
  // Only the origin's waits count: a stream that another joined stream awaits is joined if that
  // one has done nothing since that the origin does not await.
  if (stream == stream->capture->origin)
    event->stream->n_awaited = std::max(event->stream->n_awaited, event->n_steps);
  return kSuccess;
}

}  // namespace tegula::emulated
