// Wire: frames between the processes of a run that share no memory.
//
// A frame is a head of 56 bytes and a body of at most 256 KiB. Those from one process to another
// arrive whole and in order; what has another length is refused before memory is taken for it. One
// thread (comm/remote.h) makes, calls and ends a wire. It sleeps where there is nothing to do.
//
// Engines: TCP (comm/tcp.h), and MPI, a plug-in (comm/mpi.h).
#pragma once

#include <string>
#include <vector>

#include "tegula/base/result.h"

namespace tegula {

struct Frame {
  enum Kind : uint32_t { kAdd = 1, kGet, kData, kText, kFail, kState, kBye };
  struct Head {
    uint32_t kind = 0;
    uint32_t bytes = 0;  // of the body
    uint64_t words[6] = {};
  };
  static constexpr size_t kMostBytes = 256 << 10;  // of a body

  Head head;
  std::vector<uint8_t> body;

  Frame() = default;
  Frame(Kind kind, std::initializer_list<uint64_t> words, const void* body = nullptr,
        size_t bytes = 0);
  size_t wire_bytes() const { return sizeof(Head) + body.size(); }
  // No frame has another kind, or a longer body.
  static bool can_be(const Head& head) {
    return head.kind >= kAdd && head.kind <= kBye && head.bytes <= kMostBytes;
  }
};

// Cuts a stream of bytes into frames.
class FrameReader {
 public:
  FrameReader();
  // Where the next bytes belong, and how many: at least one, unless it is broken.
  uint8_t* room(size_t& bytes);
  void added(size_t bytes) { end_ += bytes; }
  // The next whole frame; its body lies there until room() is called again.
  bool next(Frame::Head& head, const uint8_t*& body);
  // No frame begins so: nothing is read any more.
  bool is_broken() const { return is_broken_; }
  // Bytes of a frame that has yet to end.
  size_t left() const { return end_ - begin_; }

 private:
  std::vector<uint8_t> buffer_;
  size_t begin_ = 0, end_ = 0;
  bool is_broken_ = false;
};

// An eventfd: any thread wakes who sleeps in poll() by it.
class Alarm {
 public:
  Alarm();
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  int fd() const { return fd_; }
  void ring() const;
  void clear() const;

 private:
  int fd_ = -1;
};

class Wire {
 public:
  // Whoever gets what arrives.
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual void take(int64_t from, const Frame::Head& head, const uint8_t* body) = 0;
    // Nothing comes from there any more, and nothing arrives.
    virtual void lost(int64_t process, const std::string& why) = 0;
  };
  virtual ~Wire() = default;
  // Puts it in the queue to a process. Never waits.
  virtual void send(int64_t to, Frame frame) = 0;
  // The bytes in that queue.
  virtual size_t queued_bytes(int64_t to) const = 0;
  // Sends and takes what can be; sleeps until there is something, the alarm rings or the time is
  // over.
  virtual void step(Sink& sink, const Alarm& alarm, int64_t most_ms) = 0;
  // All that was sent, with heads and what meets at the beginning.
  virtual int64_t sent_bytes() const = 0;
  // Ends all processes at once, those that do not listen, too. False: this engine cannot.
  virtual bool end_all(int code) = 0;
};

}  // namespace tegula
