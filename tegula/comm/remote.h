// Remote: the thread of a process that shares no memory with the others. What its ranks add to
// tallies and show in flows it repeats in the segments of the group's processes; it brings bytes of
// others' areas and gives them its own; texts, the first failure and the states of ranks go this
// way, too.
//
// It sleeps in its wire unless there is something to do. Whatever arrives is checked against what
// this segment has: a frame that asks for more ends the run with the name of who sent it. Without a
// launcher it is also the watch: a process that ends without a word or is silent for 3 seconds is
// named with its call.
#pragma once

#include <string>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/comm/reach.h"
#include "tegula/comm/segment.h"
#include "tegula/comm/wire.h"

namespace tegula {

class Remote final : public Reach {
 public:
  explicit Remote(Segment& segment);
  ~Remote() override;
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;

  // Says goodbye, and waits until all have; done once. Its thread still reads the segment
  // meanwhile.
  void close();
  // Segment::connect.
  Status start(Result<std::unique_ptr<Wire>> (*open)(void* context), void* context);
  // Segment::add and Segment::exchange.
  void add(Tally& tally, const std::vector<int64_t>& group, size_t index, const void* shown,
           int64_t bytes);
  Result<std::vector<std::string>> exchange(std::string_view mine);

  bool serves(int64_t rank) const override { return !segment_.is_own(rank); }
  void fetch(const Fetch& fetch, Tally& brought) override;
  void forget() override;

  void wake();
  // Without a launcher: is this the process that tells why the run has failed?
  bool tells_failure() const;
  // The code with which all end after a failure, where the wire can end them.
  void end_with(int exit_code);
  // All that was sent, whatever for.
  int64_t wire_bytes() const;
  // Sends a frame of the caller's; for tests.
  void send(int64_t to, Frame frame);

 private:
  struct State;
  Segment& segment_;
  std::unique_ptr<State> state_;
};

}  // namespace tegula
