#include "tegula/comm/mover.h"

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

namespace tegula {

namespace {
constexpr int64_t kLook_ns = 50'000'000;  // for a failure, while something is awaited
}  // namespace

struct Mover::State {
  Segment& segment;
  Bell& bell;
  std::mutex mutex;
  std::condition_variable is_idle;
  std::vector<Transfer*> begun;    // since the thread has looked
  std::vector<Transfer*> running;  // the thread's own
  bool ends = false, drains = false;
  std::thread thread;

  explicit State(Segment& s) : segment(s), bell(s.bell(s.process())) {}

  void copy(const Fetch& f) {
    const auto* from = static_cast<const uint8_t*>(segment.at(f.offset));
    for (int64_t i = 0; i < f.count; ++i)
      std::memcpy(f.to + i * f.to_stride, from + i * f.stride, static_cast<size_t>(f.bytes));
  }

  // Begins what can be had. False: nothing has changed.
  bool start(Transfer& t) {
    if (!t.is_ready()) return false;
    t.is_begun_ = t.list(t.fetches_);
    if (!t.is_begun_) return false;
    t.asked_ = t.brought_.load();
    for (const Fetch& f : t.fetches_) {
      if (f.rank == t.taker || !segment.reach() || !segment.reach()->serves(f.rank)) {
        copy(f);
      } else {
        ++t.asked_;
        segment.reach()->fetch(f, t.brought_);
      }
    }
    return true;
  }

  bool finish(Transfer& t) {
    if (t.brought_.load() < t.asked_) return false;
    for (const Fetch& f : t.fetches_)
      if (f.rank != t.taker) segment.state(f.rank).sent_bytes.add(f.all_bytes());
    t.is_begun_ = false;
    t.is_there();
    t.done_.add_one(1);  // from here on it may be begun anew
    return true;
  }

  // What can be done now of all that is running. False: nothing.
  bool go_on() {
    bool has_changed = false;
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

  void run() {
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
      if (!go_on()) bell.wait(seen, running.empty() ? -1 : kLook_ns);
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

bool Mover::is_done(const Transfer& t) const { return t.done_.load() >= t.n_begun_; }

bool Mover::wait(const Transfer& t, const Waiter& who) const {
  return t.done_.wait_for(t.n_begun_, who);
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
