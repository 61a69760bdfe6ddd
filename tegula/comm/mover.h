// Mover: the thread of a process that brings bytes from other ranks while its ranks compute.
//
//   struct Batch : Transfer { … };          // what to bring, once it can be had
//   mover.begin(batch);                     // returns at once
//   if (!mover.wait(batch, waiter)) …       // a rank failed, and nothing of it may be touched
//
// The thread sleeps unless there is something to bring; the process's bell (segment.h) wakes it
// when a rank has posted. Where memory is shared it copies; what another engine carries comes
// through its Reach. Where links are slowed (link.h), what one rank gives another in a transfer is
// a message that queues on their link and lies there when it is through. A rank's bytes count as
// sent by it when they are laid down here.
#pragma once

#include <span>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/comm/reach.h"
#include "tegula/comm/segment.h"

namespace tegula {

// A Transfer is brought together. One object serves again and again, one time after the other; it
// lives until it has been waited for or the mover is drained.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // The rank that takes.
  int64_t taker = 0;
  // After a failure, when the mover is drained: as if it had never been begun.
  void forget();

 protected:
  friend class Mover;
  // These are called by the mover's thread alone. Can it be had? Asked again when the bell rings.
  virtual bool is_ready() = 0;
  // Asked once, when it can; valid until it is there. False: it cannot be had any more, and the run
  // has failed.
  virtual bool list(std::span<const Fetch>& fetches) = 0;
  // All of it lies there.
  virtual void is_there() = 0;

 private:
  uint64_t n_begun_ = 0;  // how often
  Tally done_;
  bool is_begun_ = false;
  std::span<const Fetch> fetches_;
  Tally brought_;  // by an engine
  uint64_t asked_ = 0;
  struct Message {  // on a slowed link
    int64_t giver = 0, bytes = 0;
  };
  std::vector<Message> messages_;
  int64_t ready_ns_ = 0, due_ns_ = 0, link_ns_ = 0;
};

class Mover {
 public:
  explicit Mover(Segment& segment);
  ~Mover();
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  void begin(Transfer& transfer);
  // Seconds that a transfer's links took, and how much of that somebody waited for them.
  struct Use {
    double link_s = 0, waited_s = 0;
    int64_t times = 0;
  };
  // False: a rank failed. Adds to `use`, if given.
  bool wait(const Transfer& transfer, const Waiter& who, Use* use = nullptr) const;
  // At once, in this thread: of memory that is shared.
  void copy(const Fetch& fetch, int64_t taker) const;
  // Nothing is brought any more, and the thread holds no transfer.
  void drain();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tegula
