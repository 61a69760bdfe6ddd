// Reach: how bytes come from ranks whose memory is not mapped here.
#pragma once

#include <cstdint>

namespace tegula {

struct Tally;  // comm/tally.h

// `count` runs of `bytes`, the first at `offset` (Segment::offset_of, at the rank that owns it) and
// each `stride` further, laid from `to` on, each `to_stride` further.
struct Fetch {
  int64_t rank = 0;
  uint64_t offset = 0;
  int64_t bytes = 0, stride = 0, count = 1;
  uint8_t* to = nullptr;
  int64_t to_stride = 0;
  int64_t all_bytes() const { return bytes * count; }
};

class Reach {
 public:
  virtual ~Reach() = default;
  // Is this rank's memory reached so?
  virtual bool serves(int64_t rank) const = 0;
  // Asks for it and returns. When all of it lies there: adds one to `brought` and rings the bell of
  // this process, from any thread.
  virtual void fetch(const Fetch& fetch, Tally& brought) = 0;
  // Nothing that was asked for is laid down any more.
  virtual void forget() = 0;
};

}  // namespace tegula
