#include "tegula/comm/remote.h"

#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "tegula/base/algorithm.h"
#include "tegula/base/clock.h"
#include "tegula/comm/watch.h"

namespace tegula {

namespace {
constexpr double kSay_s = 0.1;             // how often a process says what its ranks do
constexpr double kSilent_s = 3;            // for so long: it has been stopped
constexpr double kGrace_s = 2;             // for the others, and the launcher, to end by themselves
constexpr uint32_t kManyBeats = 60;        // of a wait: 3 seconds
constexpr size_t kMostQueued = 1 << 20;    // of given bytes to one process
constexpr uint64_t kMostText = 256 << 20;  // of what is exchanged

// The words about a rank.
struct Said {
  uint64_t calls = 0;
  uint32_t is_waiting = 0, beats = 0;
  char call[sizeof RankState::call] = {};
};

// A host, and processes by number there: where two have the same, one can end the other.
struct Home {
  char host[64] = {};
  uint64_t numbers = 0;  // the name space of process numbers
  int64_t pid = 0;
};
Home own_home() {
  Home h;
  ::gethostname(h.host, sizeof h.host - 1);
  struct stat info {};
  if (::stat("/proc/self/ns/pid", &info) == 0) h.numbers = info.st_ino;
  h.pid = ::getpid();
  return h;
}

// Bytes that one process asked for, given piece by piece.
struct Order {
  uint64_t id = 0, offset = 0, bytes = 0, stride = 0, count = 0, given = 0;
  int64_t rank = 0;
};

struct Other {
  std::deque<Order> orders;
  std::string text;  // that has yet to end
  std::deque<std::string> texts;
  Tally n_texts;
  Home home;
  double heard_s = 0, lost_s = -1;
  bool has_said_bye = false;
  Counter is_lost;  // for other threads, too
  std::string why_lost;
};

// Bytes that were asked for and arrive.
struct Expected {
  Fetch fetch;
  Tally* brought = nullptr;
  uint64_t arrived = 0;
};
}  // namespace

struct Remote::State final : Wire::Sink {
  explicit State(Segment& s) : segment(s), all(static_cast<size_t>(s.n_processes())) {
    exit_code = 1;
  }

  Segment& segment;
  std::unique_ptr<Wire> wire;
  std::thread thread;
  Alarm alarm;
  Counter wire_bytes;

  std::mutex mutex;  // of all below it, up to the blank line
  std::vector<std::pair<int64_t, Frame>> to_send;
  std::map<uint64_t, Expected> expected;             // by id
  std::map<uint64_t, std::vector<uint64_t>> counts;  // of each rank of a group, by a tally's offset
  uint64_t n_fetches = 0;
  bool is_closing = false;

  // The thread's own, but for texts, which its owner takes under the mutex.
  std::vector<Other> all;
  uint64_t n_exchanges = 0;
  bool has_told_failure = false;
  double said_s = 0, looked_s = 0, failed_s = -1;
  int64_t lost_one = -1;  // the process whose loss was the failure
  Counter exit_code;
  Home home = own_home();

  void run();
  void send_all();
  void give_all();
  void give(int64_t to, Order& order);
  void say();
  void look();
  void lose(int64_t process, const std::string& how);
  bool is_over();
  void finish();

  void take(int64_t from, const Frame::Head& head, const uint8_t* body) override;
  void lost(int64_t process, const std::string& why) override;
  void take_add(int64_t from, const Frame::Head& head, const uint8_t* body);
  void take_get(int64_t from, const Frame::Head& head);
  void take_data(int64_t from, const Frame::Head& head, const uint8_t* body);
  void take_text(int64_t from, const Frame::Head& head, const uint8_t* body);
  void take_state(int64_t from, const Frame::Head& head, const uint8_t* body);
  void refuse(int64_t from, std::string_view what);
  void count(uint64_t at, size_t n, size_t index, uint64_t number);

  void put(int64_t to, Frame frame) {
    const std::lock_guard lock(mutex);
    to_send.emplace_back(to, std::move(frame));
  }
  void put_to_all(const Frame& frame) {
    for (int64_t p = 0; p < segment.n_processes(); ++p)
      if (p != segment.process()) put(p, frame);
  }
  Other& at(int64_t process) { return all[static_cast<size_t>(process)]; }
  // All processes of lower numbers: then this one speaks.
  bool are_lost_before() const {
    for (int64_t p = 0; p < segment.process(); ++p)
      if (all[static_cast<size_t>(p)].is_lost == 0) return false;
    return true;
  }
  bool is_gone(int64_t process) const {
    const Other& o = all[static_cast<size_t>(process)];
    return o.has_said_bye || o.is_lost != 0;
  }
  std::string name(int64_t process) {
    const Home& h = at(process).home;
    return cat(ranks_of(segment, process),
               h.pid > 0 ? cat(" (process ", h.pid, " on ", h.host, ")") : std::string());
  }
};

// Tallies of a group count how many of its ranks are further than the last one, over the rounds
// that all have made: so a rank that is a round ahead does not stand for one whose word is on its
// way.
void Remote::State::count(uint64_t at, size_t n, size_t index, uint64_t number) {
  std::vector<uint64_t>& of = counts[at];
  of.resize(n);
  of[index] = number;
  uint64_t least = of[0], ahead = 0;
  for (const uint64_t c : of) least = std::min(least, c);
  for (const uint64_t c : of) ahead += c > least;
  auto& tally = *reinterpret_cast<Tally*>(segment.flows() + at);
  tally.raise_to(least * n + ahead, n);
  segment.bell(segment.process()).ring();
}

Remote::Remote(Segment& segment) : segment_(segment), state_(std::make_unique<State>(segment)) {}

Status Remote::start(Result<std::unique_ptr<Wire>> (*open)(void* context), void* context) {
  Status opened;
  Tally is_open;
  uint32_t never = 0;
  state_->thread = std::thread([&] {
    State& s = *state_;
    auto wire = open(context);
    const bool ok = wire.ok();
    if (ok)
      s.wire = std::move(*wire);
    else
      opened = wire.error();
    is_open.add_one(1);
    if (ok) s.run();
  });
  is_open.wait_for(1, {&never, nullptr});
  return opened;
}

Remote::~Remote() { close(); }

void Remote::close() {
  State& s = *state_;
  if (!s.thread.joinable()) return;
  {
    const std::lock_guard lock(s.mutex);
    s.is_closing = true;
  }
  wake();
  s.thread.join();
}

void Remote::wake() { state_->alarm.ring(); }
int64_t Remote::wire_bytes() const { return state_->wire_bytes; }
void Remote::send(int64_t to, Frame frame) {
  state_->put(to, std::move(frame));
  wake();
}

void Remote::add(Tally& tally, const std::vector<int64_t>& group, size_t index, const void* shown,
                 int64_t bytes) {
  State& s = *state_;
  const auto at = static_cast<uint64_t>(reinterpret_cast<uint8_t*>(&tally) - segment_.flows());
  const auto shown_at =
      shown ? static_cast<uint64_t>(static_cast<const uint8_t*>(shown) - segment_.flows()) : 0;
  bool has_others = false;
  {
    const std::lock_guard lock(s.mutex);
    std::vector<uint64_t>& of = s.counts[at];
    of.resize(group.size());
    const uint64_t number = of[index] + 1;
    int64_t last = segment_.process();
    for (const int64_t r : group) {
      const int64_t process = r / segment_.n_own();
      if (process == segment_.process() || process == last) continue;
      last = process, has_others = true;
      s.to_send.emplace_back(process,
                             Frame(Frame::kAdd, {at, group.size(), index, number, shown_at}, shown,
                                   static_cast<size_t>(bytes)));
    }
    s.count(at, group.size(), index, number);
  }
  if (has_others) wake();
}

Result<std::vector<std::string>> Remote::exchange(std::string_view mine) {
  State& s = *state_;
  const int64_t n = segment_.n_processes();
  for (std::string_view left = mine;;) {
    const size_t bytes = std::min(left.size(), Frame::kMostBytes);
    s.put_to_all(Frame(Frame::kText, {left.size()}, left.data(), bytes));
    left.remove_prefix(bytes);
    if (left.empty()) break;
  }
  wake();
  ++s.n_exchanges;
  const Waiter who = segment_.waiter(segment_.first_rank());
  std::vector<std::string> texts(static_cast<size_t>(n));
  for (int64_t p = 0; p < n; ++p) {
    std::string& text = texts[static_cast<size_t>(p)];
    if (p == segment_.process()) {
      text = mine;
      continue;
    }
    if (!s.at(p).n_texts.wait_for(s.n_exchanges, who)) return io_error("another process failed");
    const std::lock_guard lock(s.mutex);
    text = std::move(s.at(p).texts.front());
    s.at(p).texts.pop_front();
  }
  return texts;
}

void Remote::fetch(const Fetch& f, Tally& brought) {
  State& s = *state_;
  if (f.all_bytes() == 0) {
    brought.add_one(1);
    segment_.bell(segment_.process()).ring();
    return;
  }
  {
    const std::lock_guard lock(s.mutex);
    const uint64_t id = ++s.n_fetches;
    s.expected[id] = {f, &brought, 0};
    s.to_send.emplace_back(
        f.rank / segment_.n_own(),
        Frame(Frame::kGet,
              {id, static_cast<uint64_t>(f.rank), f.offset, static_cast<uint64_t>(f.bytes),
               static_cast<uint64_t>(f.stride), static_cast<uint64_t>(f.count)}));
  }
  wake();
}

void Remote::forget() {
  const std::lock_guard lock(state_->mutex);
  state_->expected.clear();
}

void Remote::end_with(int exit_code) { state_->exit_code = exit_code; }

bool Remote::tells_failure() const { return state_->are_lost_before() && !segment_.has_launcher(); }

void Remote::State::run() {
  for (Other& o : all) o.heard_s = steady_seconds();
  do {
    send_all();
    give_all();
    bool is_busy = false;
    for (int64_t p = 0; p < segment.n_processes(); ++p)
      is_busy |= !at(p).orders.empty() && wire->queued_bytes(p) == 0;
    wire->step(*this, alarm, is_busy ? 0 : 100);
    wire_bytes = wire->sent_bytes();
    say();
    look();
  } while (!is_over());
  finish();
  wire.reset();
}

void Remote::State::send_all() {
  std::vector<std::pair<int64_t, Frame>> out;
  {
    const std::lock_guard lock(mutex);
    out.swap(to_send);
  }
  for (auto& [to, frame] : out)
    if (!is_gone(to) || frame.head.kind == Frame::kBye) wire->send(to, std::move(frame));
}

void Remote::State::give_all() {
  for (int64_t p = 0; p < segment.n_processes(); ++p) {
    Other& o = at(p);
    while (!o.orders.empty() && wire->queued_bytes(p) < kMostQueued) {
      give(p, o.orders.front());
      if (o.orders.empty()) break;
      if (o.orders.front().given == o.orders.front().bytes * o.orders.front().count)
        o.orders.pop_front();
    }
  }
}

// The next piece of it.
void Remote::State::give(int64_t to, Order& o) {
  const uint64_t total = o.bytes * o.count, begin = o.given;
  Frame frame(Frame::kData, {o.id, begin});
  frame.body.resize(static_cast<size_t>(std::min<uint64_t>(total - begin, Frame::kMostBytes)));
  frame.head.bytes = static_cast<uint32_t>(frame.body.size());
  const Area& area = *segment.area(o.rank);
  for (size_t done = 0; done < frame.body.size();) {
    const uint64_t run = o.given / o.bytes, inside = o.given % o.bytes;
    const auto n = std::min<uint64_t>(o.bytes - inside, frame.body.size() - done);
    if (!area.read(o.offset + run * o.stride + inside, n, frame.body.data() + done)) {
      // After a failure its memory goes while others still ask.
      if (!has_failed(segment.waiter(o.rank)))
        refuse(to, cat("it asks for ", o.count, " times ", o.bytes, " bytes at ", o.offset,
                       ", which rank ", o.rank, " does not hold"));
      at(to).orders.clear();
      return;
    }
    o.given += n, done += static_cast<size_t>(n);
  }
  // Where states are shared, whoever takes counts.
  if (!segment.has_launcher())
    segment.state(o.rank).sent_bytes.add(static_cast<int64_t>(frame.body.size()));
  wire->send(to, std::move(frame));
}

void Remote::State::take(int64_t from, const Frame::Head& head, const uint8_t* body) {
  at(from).heard_s = steady_seconds();
  switch (head.kind) {
    case Frame::kAdd:
      return take_add(from, head, body);
    case Frame::kGet:
      return take_get(from, head);
    case Frame::kData:
      return take_data(from, head, body);
    case Frame::kText:
      return take_text(from, head, body);
    case Frame::kState:
      return take_state(from, head, body);
    case Frame::kBye:
      at(from).has_said_bye = true;
      return;
    case Frame::kFail: {
      const uint64_t code = std::min<uint64_t>(head.words[1], static_cast<int>(Code::kInternal));
      const auto rank = static_cast<int64_t>(head.words[0]) - 1;
      const uint64_t gone = head.words[2];  // a process, and one
      if (gone > 0 && gone <= all.size()) at(static_cast<int64_t>(gone) - 1).is_lost = 1;
      segment.fail(rank < segment.n_ranks() ? rank : -1,
                   Error(static_cast<Code>(code),
                         std::string(reinterpret_cast<const char*>(body), head.bytes)));
      return;
    }
    default:
      return refuse(from, cat("it sent a frame of kind ", head.kind));
  }
}

void Remote::State::refuse(int64_t from, std::string_view what) {
  segment.fail(-1, internal_error(cat("process ", from, " does not keep to the frames: ", what,
                                      ": run one build on all hosts")));
}

void Remote::State::take_add(int64_t from, const Frame::Head& head, const uint8_t* body) {
  const auto& [at_tally, n, index, number, shown] =
      reinterpret_cast<const uint64_t(&)[5]>(head.words);
  const auto flow_bytes = static_cast<uint64_t>(segment.flow_bytes());
  const auto fits = [&](uint64_t where, uint64_t bytes) {
    return where <= flow_bytes && bytes <= flow_bytes - where && where % alignof(Tally) == 0;
  };
  if (!fits(at_tally, sizeof(Tally)) || !fits(shown, head.bytes) || index >= n ||
      n > static_cast<uint64_t>(segment.n_ranks()))
    return refuse(from, cat("it adds to a tally at ", at_tally, " and shows ", head.bytes,
                            " bytes at ", shown, " of ", flow_bytes));
  const std::lock_guard lock(mutex);
  const auto known = counts.find(at_tally);
  const bool is_known = known != counts.end() && !known->second.empty();
  if ((is_known && known->second.size() != n) ||
      number != (is_known ? known->second[static_cast<size_t>(index)] : 0) + 1)
    return refuse(from, cat("it adds the number ", number, " as rank ", index, " of ", n));
  std::memcpy(segment.flows() + shown, body, head.bytes);
  count(at_tally, static_cast<size_t>(n), static_cast<size_t>(index), number);
}

void Remote::State::take_get(int64_t from, const Frame::Head& head) {
  const auto& [id, rank, offset, bytes, stride, n] = head.words;
  uint64_t total = 0, last = 0;
  const bool is_bounded = bytes > 0 && n > 0 && !__builtin_mul_overflow(bytes, n, &total) &&
                          !__builtin_mul_overflow(stride, n - 1, &last) &&
                          !__builtin_add_overflow(last, offset, &last) &&
                          total <= static_cast<uint64_t>(segment.area_bytes());
  if (rank >= static_cast<uint64_t>(segment.n_ranks()) ||
      !segment.is_own(static_cast<int64_t>(rank)) || !is_bounded)
    return refuse(from,
                  cat("it asks rank ", rank, " for ", n, " times ", bytes, " bytes at ", offset));
  at(from).orders.push_back({id, offset, bytes, stride, n, 0, static_cast<int64_t>(rank)});
}

void Remote::State::take_data(int64_t from, const Frame::Head& head, const uint8_t* body) {
  const auto [id, position] = std::pair(head.words[0], head.words[1]);
  const std::lock_guard lock(mutex);
  const auto it = expected.find(id);
  // An answer to what was asked before a failure may come after it.
  if (it == expected.end()) {
    if (id == 0 || id > n_fetches) refuse(from, cat("it gives what nobody asked for (", id, ")"));
    return;
  }
  Expected& e = it->second;
  const auto bytes = static_cast<uint64_t>(e.fetch.bytes);
  const uint64_t total = bytes * static_cast<uint64_t>(e.fetch.count);
  if (e.fetch.rank / segment.n_own() != from || position != e.arrived ||
      head.bytes > total - e.arrived)
    return refuse(from, cat("it gives ", head.bytes, " bytes from ", position, " on where ",
                            e.arrived, " of ", total, " are there"));
  for (uint64_t done = 0; done < head.bytes;) {
    const uint64_t run = e.arrived / bytes, inside = e.arrived % bytes;
    const auto n = std::min<uint64_t>(bytes - inside, head.bytes - done);
    std::memcpy(e.fetch.to + static_cast<int64_t>(run) * e.fetch.to_stride + inside, body + done,
                static_cast<size_t>(n));
    e.arrived += n, done += n;
  }
  if (e.arrived < total) return;
  Tally* brought = e.brought;
  expected.erase(it);
  brought->add_one(1);
  segment.bell(segment.process()).ring();
}

void Remote::State::take_text(int64_t from, const Frame::Head& head, const uint8_t* body) {
  Other& o = at(from);
  const uint64_t left = head.words[0];
  if (left < head.bytes || left > kMostText || o.text.size() + left > kMostText ||
      (head.bytes < left && head.bytes < Frame::kMostBytes))
    return refuse(from, cat("it says ", head.bytes, " bytes of a text of ", left));
  o.text.append(reinterpret_cast<const char*>(body), head.bytes);
  if (head.bytes < left) return;
  bool is_one_too_many = false;
  {
    const std::lock_guard lock(mutex);
    // A process says its third only when it has had our second.
    is_one_too_many = o.texts.size() >= 2;
    if (!is_one_too_many) o.texts.push_back(std::move(o.text));
  }
  if (is_one_too_many) return refuse(from, "it says a third text before two were read");
  o.text.clear();
  o.n_texts.add_one(1);
}

void Remote::State::take_state(int64_t from, const Frame::Head& head, const uint8_t* body) {
  const auto n = static_cast<size_t>(segment.n_own());
  if (head.bytes != sizeof(Home) + n * sizeof(Said))
    return refuse(from, cat("it says ", head.bytes, " bytes of states"));
  Home& h = at(from).home;
  std::memcpy(&h, body, sizeof h);
  h.host[sizeof h.host - 1] = 0;
  // Who has a launcher on this host writes its states where all see them.
  if (segment.has_launcher()) return;
  for (size_t i = 0; i < n; ++i) {
    Said said;
    std::memcpy(&said, body + sizeof h + i * sizeof said, sizeof said);
    said.call[sizeof said.call - 1] = 0;
    RankState& s = segment.state(from * segment.n_own() + static_cast<int64_t>(i));
    std::memcpy(s.call, said.call, sizeof s.call);
    __atomic_store_n(&s.beats, said.beats, __ATOMIC_RELAXED);
    __atomic_store_n(&s.calls, said.calls, __ATOMIC_RELEASE);
    __atomic_store_n(&s.is_waiting, said.is_waiting, __ATOMIC_RELEASE);
  }
}

void Remote::State::lost(int64_t process, const std::string& why) {
  Other& o = at(process);
  o.why_lost = why;
  o.lost_s = steady_seconds();
  o.is_lost = 1;
}

// Tells what this process's ranks do; and once, that the run has failed.
void Remote::State::say() {
  const auto failed = segment.failure();
  if (failed && !has_told_failure) {
    has_told_failure = true, failed_s = steady_seconds();
    const std::string& text = failed->error.message;
    put_to_all(
        Frame(Frame::kFail,
              {static_cast<uint64_t>(failed->rank + 1), static_cast<uint64_t>(failed->error.code),
               static_cast<uint64_t>(lost_one + 1)},
              text.data(), std::min(text.size(), size_t{16} << 10)));
    said_s = 0;
  }
  // Nobody watches who has said goodbye.
  if (steady_seconds() < said_s + kSay_s || at(segment.process()).has_said_bye) return;
  said_s = steady_seconds();
  std::vector<uint8_t> body(sizeof(Home) + static_cast<size_t>(segment.n_own()) * sizeof(Said));
  std::memcpy(body.data(), &home, sizeof home);
  for (int64_t i = 0; i < segment.n_own(); ++i) {
    const RankState& s = segment.state(segment.first_rank() + i);
    Said said{__atomic_load_n(&s.calls, __ATOMIC_ACQUIRE),
              __atomic_load_n(&s.is_waiting, __ATOMIC_ACQUIRE),
              __atomic_load_n(&s.beats, __ATOMIC_RELAXED),
              {}};
    std::memcpy(said.call, s.call, sizeof said.call);
    std::memcpy(body.data() + sizeof home + static_cast<size_t>(i) * sizeof said, &said,
                sizeof said);
  }
  put_to_all(Frame(Frame::kState, {}, body.data(), body.size()));
}

void Remote::State::lose(int64_t process, const std::string& how) {
  lost_one = process;
  segment.fail(-1, Error(Code::kDevice,
                         cat(name(process), how, ", ", doing(segment, process * segment.n_own()))));
}

void Remote::State::look() {
  const double now = steady_seconds();
  // Whoever was stopped itself cannot say how long others were silent.
  if (looked_s > 0 && now > looked_s + 1)
    for (Other& o : all) o.heard_s = now;
  looked_s = now;
  if (failed_s >= 0 || segment.failure()) return;
  for (int64_t p = 0; p < segment.n_processes(); ++p) {
    if (p == segment.process()) continue;
    Other& o = at(p);
    if (o.has_said_bye) continue;
    // A launcher knows more of it, and says it.
    if (o.lost_s >= 0 && (!segment.has_launcher() || now > o.lost_s + kGrace_s))
      return lose(p, cat(" has ended without a word (", o.why_lost, ")"));
    if (!segment.has_launcher() && o.lost_s < 0 && now > o.heard_s + kSilent_s) {
      lost(p, "silent");
      return lose(p, cat(" has said nothing for ", kSilent_s,
                         " seconds: it is stopped, or its host is out of reach"));
    }
  }
  if (segment.has_launcher()) return;
  const auto has_ended = [](const void* state, int64_t process) {
    return static_cast<const State*>(state)->is_gone(process);
  };
  if (const auto stuck = deadlock(segment, kManyBeats, has_ended, this)) segment.fail(-1, *stuck);
}

bool Remote::State::is_over() {
  bool closes = false;
  {
    const std::lock_guard lock(mutex);
    closes = is_closing;
    if (closes && !at(segment.process()).has_said_bye) {
      at(segment.process()).has_said_bye = true;
      if (!has_failed(segment.waiter(segment.first_rank())))
        for (int64_t p = 0; p < segment.n_processes(); ++p)
          if (p != segment.process()) to_send.emplace_back(p, Frame(Frame::kBye, {}));
    }
    if (!closes || !to_send.empty()) return false;
  }
  bool is_waited_for = false;
  for (int64_t p = 0; p < segment.n_processes(); ++p)
    if (p != segment.process())
      is_waited_for |= !is_gone(p) || (wire->queued_bytes(p) > 0 && at(p).lost_s < 0);
  if (failed_s < 0) return !is_waited_for;
  // Who tells why has told it before it closes; the others leave it the time.
  if (segment.has_launcher()) return steady_seconds() > failed_s + 0.2;
  const bool tells = are_lost_before();
  return !is_waited_for ||
         (tells ? steady_seconds() > failed_s + 0.2 : steady_seconds() > failed_s + kGrace_s);
}

// Who is stopped does not see that all end.
void Remote::State::finish() {
  if (failed_s < 0 || segment.has_launcher()) return;
  // An engine that ends all does so with one exit code; a signal before would be another one.
  if (wire->end_all(static_cast<int>(exit_code))) return;
  for (int64_t p = 0; p < segment.n_processes(); ++p) {
    const Home& h = at(p).home;
    if (p != segment.process() && at(p).why_lost == "silent" && h.pid > 0 &&
        h.numbers == home.numbers && std::strcmp(h.host, home.host) == 0)
      ::kill(static_cast<pid_t>(h.pid), SIGKILL);
  }
}

}  // namespace tegula
