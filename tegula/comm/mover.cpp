#include "tegula/comm/mover.h"

#include <sys/prctl.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "tegula/base/algorithm.h"

namespace tegula {

namespace {
constexpr int64_t kLook_ns = 50'000'000;  // for a failure, while something is awaited

int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}
}  // namespace

struct Mover::State {
  Segment& segment;
  Bell& bell;
  std::mutex mutex;
  std::condition_variable is_idle;
  std::vector<Transfer*> begun;                            // since the thread has looked
  std::vector<Transfer*> running;                          // the thread's own
  std::map<std::pair<int64_t, int64_t>, int64_t> free_ns;  // a slowed link, from when on
  int64_t next_ns = 0;  // when the next message is through; 0: none is under way
  bool ends = false, drains = false;
  std::thread thread;

  explicit State(Segment& s) : segment(s), bell(s.bell(s.process())) {}

  void copy(const Fetch& f) const {
    const auto* from = static_cast<const uint8_t*>(segment.at(f.offset));
    for (int64_t i = 0; i < f.count; ++i)
      std::memcpy(f.to + i * f.to_stride, from + i * f.stride, static_cast<size_t>(f.bytes));
  }

  void bring(Transfer& t, const Fetch& f) {
    if (f.rank == t.taker || !segment.reach() || !segment.reach()->serves(f.rank)) return copy(f);
    ++t.asked_;
    segment.reach()->fetch(f, t.brought_);
  }

  // All that comes from one rank is one message. Until it is through nobody looks where it is laid,
  // so that it may lie there before.
  void queue(Transfer& t) {
    for (const Fetch& f : t.fetches_) {
      if (f.rank == t.taker) continue;
      auto m = std::find_if(t.messages_.begin(), t.messages_.end(),
                            [&](const auto& known) { return known.giver == f.rank; });
      if (m == t.messages_.end()) m = t.messages_.insert(m, {f.rank, 0});
      m->bytes += f.all_bytes();
    }
    for (const Transfer::Message& m : t.messages_) {
      const auto took = static_cast<int64_t>(1e9 * segment.link().seconds(m.bytes));
      int64_t& free = free_ns[{m.giver, t.taker}];
      free = std::max(free, t.ready_ns_) + took;
      t.due_ns_ = std::max(t.due_ns_, free);
      t.link_ns_ = std::max(t.link_ns_, took);
    }
  }

  // Begins what can be had. False: nothing has changed.
  bool start(Transfer& t) {
    if (!t.is_ready()) return false;
    t.is_begun_ = t.list(t.fetches_);
    if (!t.is_begun_) return false;
    t.asked_ = t.brought_.load();
    t.ready_ns_ = now_ns(), t.due_ns_ = t.link_ns_ = 0;
    t.messages_.clear();
    if (segment.link().is_slowed()) queue(t);
    for (const Fetch& f : t.fetches_) bring(t, f);
    return true;
  }

  // Is all of it through?
  bool is_through(const Transfer& t) {
    if (t.due_ns_ <= now_ns()) return true;
    if (next_ns == 0 || t.due_ns_ < next_ns) next_ns = t.due_ns_;
    return false;
  }

  bool finish(Transfer& t) {
    if (!is_through(t) || t.brought_.load() < t.asked_) return false;
    for (const Fetch& f : t.fetches_)
      if (f.rank != t.taker) segment.state(f.rank).sent_bytes.add(f.all_bytes());
    if (!segment.link().is_slowed()) t.link_ns_ = now_ns() - t.ready_ns_;
    t.is_begun_ = false;
    t.is_there();
    t.done_.add_one(1);  // from here on it may be begun anew
    return true;
  }

  // Does what can be done now of all that is running. False: nothing.
  bool go_on() {
    bool has_changed = false;
    next_ns = 0;
    for (size_t i = 0; i < running.size();) {
      Transfer& t = *running[i];
      if (!t.is_begun_) has_changed |= start(t);
      if (t.is_begun_ && finish(t)) {
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
        has_changed = true;
      } else {
        ++i;
      }
    }
    return has_changed;
  }

  int64_t most_sleep_ns() const {
    if (running.empty()) return -1;
    return next_ns == 0 ? kLook_ns : std::clamp<int64_t>(next_ns - now_ns(), 0, kLook_ns);
  }

  void run() {
    ::prctl(PR_SET_TIMERSLACK, 1);  // a message that is through is not let wait
    for (;;) {
      const uint32_t seen = bell.load();
      {
        const std::lock_guard lock(mutex);
        if (ends) return;
        running.insert(running.end(), begun.begin(), begun.end());
        begun.clear();
        if (drains || has_failed(segment.waiter(0))) {
          for (Transfer* t : running) t->is_begun_ = false;
          running.clear();
        }
        if (drains) {
          drains = false;
          is_idle.notify_all();
        }
      }
      if (!go_on()) bell.wait(seen, most_sleep_ns());
    }
  }
};

Mover::Mover(Segment& segment) : state_(std::make_unique<State>(segment)) {}

Mover::~Mover() {
  if (!state_->thread.joinable()) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ends = true;
  }
  state_->bell.ring();
  state_->thread.join();
}

void Mover::begin(Transfer& t) {
  ++t.n_begun_;
  {
    const std::lock_guard lock(state_->mutex);
    state_->begun.push_back(&t);
    if (!state_->thread.joinable()) state_->thread = std::thread([s = state_.get()] { s->run(); });
  }
  state_->bell.ring();
}

void Transfer::forget() {
  n_begun_ = done_.count = 0;
  is_begun_ = false;
}

bool Mover::wait(const Transfer& t, const Waiter& who, Use* use) const {
  const int64_t begin = now_ns();
  if (!t.done_.wait_for(t.n_begun_, who)) return false;
  if (!use) return true;
  ++use->times;
  use->link_s += 1e-9 * static_cast<double>(t.link_ns_);
  use->waited_s +=
      1e-9 * static_cast<double>(std::max<int64_t>(0, now_ns() - std::max(begin, t.ready_ns_)));
  return true;
}

void Mover::copy(const Fetch& f, int64_t taker) const {
  state_->copy(f);
  if (f.rank != taker) state_->segment.state(f.rank).sent_bytes.add(f.all_bytes());
}

void Mover::drain() {
  std::unique_lock lock(state_->mutex);
  if (!state_->thread.joinable()) return;
  state_->drains = true;
  state_->bell.ring();
  state_->is_idle.wait(lock, [&] { return !state_->drains; });
  if (Reach* reach = state_->segment.reach()) reach->forget();
}

}  // namespace tegula
