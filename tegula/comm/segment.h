// Segment: the memory in which the ranks of a run meet, in one process or in several.
//
//   [ page of the run | texts | states of ranks | flows | area of rank 0 | area of rank 1 | … ]
//
// For processes it is one memory file without a name. Each maps all of it at an address of its own,
// so what one shows another is an offset. A process writes the areas of its own ranks; those of
// others it can only read; what nobody has taken of an area nobody may touch. It is as large as
// could ever be needed, and takes only what is touched. For threads of one process (of_threads)
// there are no areas, and an offset is a pointer.
//
// For processes that share no memory (is_apart) each has a segment of its own with the same
// layout, so that an offset names the same place everywhere; who has a launcher on this host shares
// the page and the states of ranks with it. A Remote (comm/remote.h) repeats elsewhere what is
// added to tallies and shown in flows; areas of others hold nothing.
//
// Errors: out_of_memory where it cannot be mapped (`ulimit -v`), internal for a file of another
// build.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/base/result.h"
#include "tegula/comm/link.h"
#include "tegula/comm/tally.h"

namespace tegula {

// One rank's memory that others can read. One thread at a time takes and gives back.
class Area {
 public:
  // Zeros from a page's beginning on (of 2 MiB and more: a huge page's), with pages on both sides
  // that nobody may touch. Null: there is no room.
  void* take(int64_t bytes);
  void give_back(void* data, int64_t bytes);
  // Copies what lies at an offset of the segment, from any thread. False: it is not all in what
  // was taken at once.
  bool read(uint64_t offset, uint64_t bytes, uint8_t* to) const;

 private:
  friend class Segment;
  struct Taken;
  int fd_ = -1;
  uint8_t* file_ = nullptr;  // where the segment is mapped
  int64_t begin_ = 0, end_ = 0, at_ = 0;
  std::shared_ptr<Taken> taken_;
};

class Reach;   // comm/reach.h
class Remote;  // comm/remote.h
class Wire;    // comm/wire.h

class Segment {
 public:
  struct Size {
    int64_t n_ranks = 1, n_processes = 1;
    int64_t flow_bytes = 0;  // for what ranks meet in
    int64_t area_bytes = 0;  // of each rank
    bool is_apart = false;   // processes share no memory
  };
  // The launcher's, which maps no area.
  static Result<std::unique_ptr<Segment>> create(const Size& size);
  // For process number `process`, from the descriptor that it inherited. Its ranks are n_ranks /
  // n_processes in a row.
  static Result<std::unique_ptr<Segment>> attach(int fd, int64_t process);
  // The same without a launcher; processes are apart.
  static Result<std::unique_ptr<Segment>> alone(const Size& size, int64_t process);
  static std::unique_ptr<Segment> of_threads(int64_t n_ranks, int64_t flow_bytes);
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  int fd() const { return fd_; }
  int64_t n_ranks() const { return size_.n_ranks; }
  int64_t n_processes() const { return size_.n_processes; }
  int64_t process() const { return process_; }
  int64_t first_rank() const { return process_ * n_own(); }
  int64_t n_own() const { return size_.n_ranks / size_.n_processes; }
  bool is_own(int64_t rank) const { return rank / n_own() == process_; }
  bool is_apart() const { return size_.is_apart; }
  bool has_launcher() const { return fd_ >= 0; }
  // Whether this process can read that rank's area.
  bool sees(int64_t rank) const { return !is_apart() || is_own(rank); }
  // For processes that are apart, before they meet: open(context) makes the wire between them, in
  // the thread that goes on with it.
  Status connect(Result<std::unique_ptr<Wire>> (*open)(void* context), void* context);
  Remote* remote() const { return remote_.get(); }

  RankState& state(int64_t rank);
  const RankState& state(int64_t rank) const { return const_cast<Segment*>(this)->state(rank); }
  // The call that a rank begins now, for whoever watches.
  void note_call(int64_t rank, std::string_view op, std::string_view axis, std::string_view plan,
                 size_t step);
  // A process's bell: it rings when a rank has posted or shown what one of its own may wait for.
  Bell& bell(int64_t process) const;
  void ring_for(int64_t rank) const { bell(rank / n_own()).ring(); }
  uint8_t* flows();
  // One more in a tally of the flows, by rank number `index` of a group of ranks that wait for it;
  // they see what lies in [shown, shown + bytes) of the flows before that.
  void add(Tally& tally, const std::vector<int64_t>& group, size_t index, const void* shown,
           int64_t bytes);
  int64_t flow_bytes() const { return size_.flow_bytes; }
  int64_t area_bytes() const { return size_.area_bytes; }
  // Null: of threads.
  Area* area(int64_t rank);

  // How bytes come from ranks whose areas are not mapped here, remote() or what a test has set;
  // null: all are mapped.
  Reach* reach() const;
  // Links between ranks that are slowed on purpose: then nothing is read where it lies.
  const LinkSpeed& link() const { return link_; }
  void slow(const LinkSpeed& link) { link_ = link; }
  // All that others show is brought (comm/mover.h), never read where it lies.
  bool brings() const { return reach() || link_.is_slowed(); }
  void set_reach(Reach* reach) { reach_ = reach; }

  // An address of this process's own as an offset, and back. Null stays null.
  uint64_t offset_of(const void* p) const;
  void* at(uint64_t offset) const;
  // Whether others see what lies there: the areas of this process's ranks do.
  bool can_show(const void* p) const;

  // The first failure of a run is kept; all that wait for somebody go on with an error. `rank` < 0:
  // no rank's in particular.
  void fail(int64_t rank, const Error& error);
  struct Failed {
    int64_t rank = -1;
    Error error;
  };
  std::optional<Failed> failure() const;
  Waiter waiter(int64_t rank);
  // Nobody runs: forgets failures, and that anybody met.
  void reset();

  // Every process's words, by process. All call it. Error: somebody failed.
  Result<std::vector<std::string>> exchange(std::string_view mine);

  // The last step that this run has saved, -1: none; for whoever starts it anew.
  void note_saved(int64_t step);
  int64_t saved_step() const;

 private:
  struct Page;
  struct Mailbox;
  Segment() = default;
  static Size layout(Size size);
  Page& page() const;
  Mailbox& mailbox(int64_t process) const;
  Status map(bool with_areas);
  Status map_apart();
  void make_areas();
  void mark_waiting(uint32_t is_waiting);

  int fd_ = -1;
  Size size_;
  int64_t process_ = 0;
  uint8_t* base_ = nullptr;
  uint64_t exchanges_ = 0;  // how often this process passed the page's tally
  int64_t mapped_bytes_ = 0, states_at_ = 0, flows_at_ = 0, areas_at_ = 0;
  std::vector<Area> areas_;         // of own ranks
  std::unique_ptr<Remote> remote_;  // of processes that are apart
  Reach* reach_ = nullptr;
  LinkSpeed link_;
};

}  // namespace tegula
