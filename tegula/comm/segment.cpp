#include "tegula/comm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include "tegula/base/algorithm.h"
#include "tegula/base/round.h"
#include "tegula/comm/remote.h"

namespace tegula {

namespace {
constexpr int64_t kPage = 4096, kHugePage = 2 << 20;
constexpr uint64_t kMagic = 0x32746e656d676573;  // changes with the layout
}  // namespace

struct Segment::Page {
  uint64_t magic = 0;
  Size size;
  uint32_t failed = 0;  // whom all look at that wait
  uint32_t is_failure_taken = 0, is_failure_written = 0;
  int32_t code = 0;
  int64_t failed_rank = -1;
  uint64_t n_text = 0;
  int64_t saved_step_plus_one = 0;
  Tally exchange;
  char text[16 << 10];
};

// A process's words; a long text goes in pieces.
struct Segment::Mailbox {
  Bell bell;
  uint64_t n_left = 0;  // of the text, with this piece
  char piece[(32 << 10) - 2 * sizeof(uint64_t)];
};

// Bytes by where they begin, as asked for.
struct Area::Taken {
  mutable std::mutex mutex;
  std::map<int64_t, int64_t> all;
};

void* Area::take(int64_t bytes) {
  const int64_t size = round_up(std::max<int64_t>(bytes, 1), kPage);
  const int64_t from = round_up(at_ + kPage, bytes >= kHugePage ? kHugePage : kPage);
  if (size > end_ - kPage || from > end_ - kPage - size) return nullptr;
  if (::mprotect(file_ + from, static_cast<size_t>(size), PROT_READ | PROT_WRITE) != 0)
    return nullptr;
  if (bytes >= kHugePage) ::madvise(file_ + from, static_cast<size_t>(size), MADV_HUGEPAGE);
  at_ = from + size;
  const std::lock_guard lock(taken_->mutex);
  taken_->all[from] = size;
  return file_ + from;
}

void Area::give_back(void* data, int64_t bytes) {
  const int64_t from = static_cast<uint8_t*>(data) - file_;
  const int64_t size = round_up(std::max<int64_t>(bytes, 1), kPage);
  {
    const std::lock_guard lock(taken_->mutex);
    taken_->all.erase(from);
  }
  // Nobody else has a hold on these pages; taken again, they are zeros.
  if (fd_ < 0) ::madvise(data, static_cast<size_t>(size), MADV_DONTNEED);
  ::mprotect(data, static_cast<size_t>(size), PROT_NONE);
  if (fd_ >= 0) ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, size);
  if (from + size == at_) at_ = from;
}

bool Area::read(uint64_t offset, uint64_t bytes, uint8_t* to) const {
  if (offset >= static_cast<uint64_t>(end_)) return false;
  const std::lock_guard lock(taken_->mutex);
  auto it = taken_->all.upper_bound(static_cast<int64_t>(offset));
  if (it == taken_->all.begin()) return false;
  --it;
  const auto size = static_cast<uint64_t>(it->second);
  const uint64_t inside = offset - static_cast<uint64_t>(it->first);
  if (inside > size || bytes > size - inside) return false;
  std::memcpy(to, file_ + offset, static_cast<size_t>(bytes));
  return true;
}

Segment::Size Segment::layout(Size size) {
  // Half of what a process may address, whatever the machine has; the thread sanitizer leaves less.
#ifdef __SANITIZE_THREAD__
  constexpr int64_t kMostAddresses = int64_t{1} << 38;
#else
  constexpr int64_t kMostAddresses = int64_t{1} << 46;
#endif
  size.area_bytes = round_up(std::min(size.area_bytes, kMostAddresses / size.n_ranks), kHugePage);
  return size;
}

Status Segment::map(bool with_areas) {
  states_at_ = round_up(static_cast<int64_t>(sizeof(Page)), kPage) +
               size_.n_processes * static_cast<int64_t>(sizeof(Mailbox));
  flows_at_ = round_up(states_at_ + size_.n_ranks * static_cast<int64_t>(sizeof(RankState)), kPage);
  areas_at_ = round_up(flows_at_ + size_.flow_bytes, kHugePage);
  mapped_bytes_ = areas_at_ + (with_areas ? size_.n_ranks * size_.area_bytes : 0);
  const bool is_file = fd_ >= 0 && !(size_.is_apart && with_areas);
  const int flags = is_file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* p = ::mmap(nullptr, static_cast<size_t>(mapped_bytes_), PROT_READ | PROT_WRITE,
                   flags | MAP_NORESERVE, is_file ? fd_ : -1, 0);
  if (p == MAP_FAILED)
    return out_of_memory(cat("cannot map ", mapped_bytes_, " bytes of addresses for ",
                             size_.n_ranks, " ranks (", std::strerror(errno),
                             "): raise the limit (ulimit -v unlimited), or leave out --processes"));
  base_ = static_cast<uint8_t*>(p);
  if (!with_areas) return {};
  if (size_.is_apart) return map_apart();
  ::mprotect(base_ + areas_at_, static_cast<size_t>(mapped_bytes_ - areas_at_), PROT_READ);
  make_areas();
  return {};
}

// The launcher's page and states, if it has a launcher, and memory of its own behind them.
Status Segment::map_apart() {
  ::mprotect(base_ + areas_at_, static_cast<size_t>(mapped_bytes_ - areas_at_), PROT_NONE);
  if (fd_ >= 0 && ::mmap(base_, static_cast<size_t>(flows_at_), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_FIXED, fd_, 0) == MAP_FAILED)
    return out_of_memory(
        cat("cannot map the launcher's ", flows_at_, " bytes: ", std::strerror(errno)));
  make_areas();
  return {};
}

void Segment::make_areas() {
  const int64_t begin = areas_at_ + first_rank() * size_.area_bytes;
  ::mprotect(base_ + begin, static_cast<size_t>(n_own() * size_.area_bytes), PROT_NONE);
  for (int64_t r = 0; r < n_own(); ++r) {
    Area& a = areas_.emplace_back();
    a.fd_ = size_.is_apart ? -1 : fd_, a.file_ = base_, a.taken_ = std::make_shared<Area::Taken>();
    a.begin_ = a.at_ = begin + r * size_.area_bytes, a.end_ = a.begin_ + size_.area_bytes;
  }
}

Result<std::unique_ptr<Segment>> Segment::create(const Size& size) {
  std::unique_ptr<Segment> s(new Segment);
  s->size_ = layout(size);
  s->process_ = -1;
  s->fd_ = ::memfd_create("tegula", MFD_CLOEXEC);
  const auto failed = [&](std::string_view what) {
    return out_of_memory(cat("cannot ", what, " memory for ", size.n_ranks, " ranks in ",
                             size.n_processes, " processes: ", std::strerror(errno),
                             " (limits: ulimit -n, ulimit -f)"));
  };
  if (s->fd_ < 0) return failed("make");
  TEGULA_TRY(s->map(false));
  if (::ftruncate(s->fd_, s->areas_at_ + s->size_.n_ranks * s->size_.area_bytes) != 0)
    return failed("size");
  s->page().size = s->size_;
  s->page().magic = kMagic;
  return s;
}

Result<std::unique_ptr<Segment>> Segment::attach(int fd, int64_t process) {
  std::unique_ptr<Segment> s(new Segment);
  s->fd_ = fd, s->process_ = process;
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  struct {
    uint64_t magic = 0;
    Size size;
  } head;
  const bool is_read = ::pread(fd, &head, sizeof head, 0) == static_cast<ssize_t>(sizeof head);
  if (!is_read || head.magic != kMagic || process < 0 || process >= head.size.n_processes)
    return internal_error("the launcher of this process is another build of tegula: start it anew");
  s->size_ = head.size;
  TEGULA_TRY(s->map(true));
  return s;
}

Result<std::unique_ptr<Segment>> Segment::alone(const Size& size, int64_t process) {
  std::unique_ptr<Segment> s(new Segment);
  s->size_ = layout(size), s->process_ = process;
  TEGULA_CHECK(size.is_apart, "processes without a launcher share no memory");
  TEGULA_TRY(s->map(true));
  return s;
}

Status Segment::connect(Result<std::unique_ptr<Wire>> (*open)(void*), void* context) {
  remote_ = std::make_unique<Remote>(*this);
  return remote_->start(open, context);
}

std::unique_ptr<Segment> Segment::of_threads(int64_t n_ranks, int64_t flow_bytes) {
  std::unique_ptr<Segment> s(new Segment);
  s->size_ = {n_ranks, 1, flow_bytes, 0};
  const Status mapped = s->map(false);
  TEGULA_CHECK(mapped.ok(), mapped.ok() ? "" : mapped.error().message);
  return s;
}

Segment::~Segment() {
  if (remote_) remote_->close();  // its thread still reads remote_
  remote_.reset();
  if (base_) ::munmap(base_, static_cast<size_t>(mapped_bytes_));
  if (fd_ >= 0) ::close(fd_);
}

Segment::Page& Segment::page() const { return *reinterpret_cast<Page*>(base_); }

Segment::Mailbox& Segment::mailbox(int64_t process) const {
  return *(reinterpret_cast<Mailbox*>(base_ + round_up(static_cast<int64_t>(sizeof(Page)), kPage)) +
           process);
}

RankState& Segment::state(int64_t rank) {
  return *(reinterpret_cast<RankState*>(base_ + states_at_) + rank);
}

void Segment::note_call(int64_t rank, std::string_view op, std::string_view axis,
                        std::string_view plan, size_t step) {
  RankState& s = state(rank);
  std::snprintf(s.call, sizeof s.call, "%.*s over %.*s (step %zu of %.*s)",
                static_cast<int>(op.size()), op.data(), static_cast<int>(axis.size()), axis.data(),
                step, static_cast<int>(plan.size()), plan.data());
  __atomic_add_fetch(&s.calls, 1, __ATOMIC_RELEASE);
}

Bell& Segment::bell(int64_t process) const { return mailbox(process).bell; }

uint8_t* Segment::flows() { return base_ + flows_at_; }

Reach* Segment::reach() const { return reach_ ? reach_ : remote_.get(); }

void Segment::add(Tally& tally, const std::vector<int64_t>& group, size_t index, const void* shown,
                  int64_t bytes) {
  remote_ ? remote_->add(tally, group, index, shown, bytes) : tally.add_one(group.size());
}

Area* Segment::area(int64_t rank) {
  return areas_.empty() ? nullptr : &areas_[static_cast<size_t>(rank - first_rank())];
}

uint64_t Segment::offset_of(const void* p) const {
  if (areas_.empty() || !p) return reinterpret_cast<uintptr_t>(p);
  return static_cast<uint64_t>(static_cast<const uint8_t*>(p) - base_);
}
void* Segment::at(uint64_t offset) const {
  return areas_.empty() || offset == 0 ? reinterpret_cast<void*>(offset) : base_ + offset;
}
bool Segment::can_show(const void* p) const {
  if (areas_.empty() || !p) return true;
  const int64_t at = static_cast<const uint8_t*>(p) - base_;
  return at >= areas_.front().begin_ && at < areas_.back().end_;
}

void Segment::fail(int64_t rank, const Error& error) {
  Page& p = page();
  if (__atomic_exchange_n(&p.is_failure_taken, 1, __ATOMIC_ACQ_REL) == 0) {
    p.failed_rank = rank, p.code = static_cast<int32_t>(error.code);
    p.n_text = std::min(error.message.size(), sizeof p.text);
    std::memcpy(p.text, error.message.data(), p.n_text);
    __atomic_store_n(&p.is_failure_written, 1, __ATOMIC_RELEASE);
  }
  __atomic_store_n(&p.failed, 1, __ATOMIC_RELEASE);
  if (remote_) remote_->wake();
}

std::optional<Segment::Failed> Segment::failure() const {
  const Page& p = page();
  if (__atomic_load_n(&p.is_failure_written, __ATOMIC_ACQUIRE) == 0) return std::nullopt;
  return Failed{p.failed_rank, Error(static_cast<Code>(p.code), std::string(p.text, p.n_text))};
}

Waiter Segment::waiter(int64_t rank) { return {&page().failed, &state(rank)}; }

void Segment::reset() {
  Page& p = page();
  p.failed = p.is_failure_taken = p.is_failure_written = 0;
}

// All of its ranks are seen as waiting, though one thread stands for them.
void Segment::mark_waiting(uint32_t is_waiting) {
  for (int64_t r = first_rank() + 1; r < first_rank() + n_own(); ++r) {
    __atomic_store_n(&state(r).beats, UINT32_MAX, __ATOMIC_RELAXED);
    __atomic_store_n(&state(r).is_waiting, is_waiting, __ATOMIC_RELEASE);
  }
}

Result<std::vector<std::string>> Segment::exchange(std::string_view mine) {
  std::vector<std::string> all(static_cast<size_t>(size_.n_processes));
  if (size_.n_processes == 1) {
    all[0] = mine;
    return all;
  }
  if (remote_) {
    mark_waiting(1);
    auto got = remote_->exchange(mine);
    mark_waiting(0);
    return got;
  }
  const auto pass = [&] {
    mark_waiting(1);
    const auto n = static_cast<uint64_t>(size_.n_processes);
    page().exchange.add_one(n);
    const bool ok = page().exchange.wait_for(++exchanges_ * n, waiter(first_rank()));
    mark_waiting(0);
    return ok;
  };
  for (bool is_more = true; is_more;) {
    Mailbox& own = mailbox(process_);
    own.n_left = mine.size();
    const size_t n = std::min(mine.size(), sizeof own.piece);
    std::memcpy(own.piece, mine.data(), n);
    mine.remove_prefix(n);
    if (!pass()) return io_error("another process failed");
    is_more = false;
    for (size_t i = 0; i < all.size(); ++i) {
      const Mailbox& m = mailbox(static_cast<int64_t>(i));
      all[i].append(m.piece, std::min<size_t>(m.n_left, sizeof m.piece));
      is_more |= m.n_left > sizeof m.piece;
    }
    if (!pass()) return io_error("another process failed");
  }
  return all;
}

void Segment::note_saved(int64_t step) {
  __atomic_store_n(&page().saved_step_plus_one, step + 1, __ATOMIC_RELEASE);
}
int64_t Segment::saved_step() const {
  return __atomic_load_n(&page().saved_step_plus_one, __ATOMIC_ACQUIRE) - 1;
}

}  // namespace tegula
