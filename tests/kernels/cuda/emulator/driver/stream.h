// Streams, events, and steps captured into graphs. Work runs when it is enqueued; while a stream is
// captured it is kept, with its arguments, and runs at each launch of the graph.
//
// As the driver does (CUDA C++ Programming Guide, CUDA Graphs, stream capture): what allocates,
// frees, loads, copies or waits is refused with kCaptureUnsupported during a capture that is not
// relaxed, and makes it fail at its end. A stream that waits for an event of a captured one joins
// it, and must be waited for in turn.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/kernels/cuda/emulator/driver/outcome.h"

namespace tegula::emulated {

using Work = std::function<Outcome()>;

struct Graph {
  std::vector<Work> steps;
};

struct Stream;

struct Capture {
  Graph graph;
  Stream* origin;
  int mode;  // 0 global, 1 this thread, 2 relaxed
  std::thread::id thread;
  bool is_broken = false;
  std::vector<Stream*> joined;  // beside the origin
};

struct Stream {
  std::shared_ptr<Capture> capture;
  int n_steps = 0, n_awaited = 0;  // of this capture; those that the origin is known to wait for
};

struct Event {
  std::shared_ptr<Capture> capture;  // of the stream it was recorded in, or null
  Stream* stream = nullptr;
  int n_steps = 0;  // that the stream had then
  int64_t done_ms = 0;
};

// A handle's; the null stream is one too.
Stream* stream_of(void* handle);

// A kernel, copy or fill takes a millisecond, and so does a graph's launch.
void take_ms(int64_t n);
int64_t ms_between(const Event& from, const Event& to);
Outcome enqueue(Stream* stream, Work work);
// kSuccess, or what an operation that a capture forbids returns; the capture is broken then.
Status check_not_captured();
Status wait_for_stream(Stream* stream);

Status begin_capture(Stream* stream, int mode);
Status end_capture(Stream* stream, Graph** graph);
int capture_status(Stream* stream);  // 0 none, 1 active, 2 broken
void record(Event* event, Stream* stream);
Status wait_for_event(Stream* stream, const Event* event);

}  // namespace tegula::emulated
