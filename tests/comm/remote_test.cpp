// Processes that share no memory, over TCP on this host's loopback.
#include "tegula/comm/remote.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "tegula/base/algorithm.h"
#include "tegula/comm/greeting.h"
#include "tegula/comm/join.h"

namespace tegula {
namespace {

constexpr int64_t kArea = 16 << 20, kFlows = 1 << 16;

Status meet(Segment& s, const std::string& address, Listener listener,
            const std::string& key = "a key", double patience_s = 20) {
  TcpMeeting how{s.n_processes(), s.process(), address, key, std::move(listener), patience_s};
  return s.connect(
      [](void* context) { return meet_by_tcp(std::move(*static_cast<TcpMeeting*>(context))); },
      &how);
}

// Runs fn(segment) in a process for each; how each ended (wait status).
template <class F>
std::vector<int> apart(int64_t n_ranks, int64_t n_processes, F fn) {
  auto listener = Listener::at("127.0.0.1:0");
  EXPECT_TRUE(listener.ok()) << listener.error().to_string();
  const std::string address = listener->address();
  std::vector<pid_t> pids;
  for (int64_t p = 0; p < n_processes; ++p) {
    pids.push_back(::fork());
    if (pids.back() != 0) continue;
    int code = 99;
    {
      auto s = Segment::alone({n_ranks, n_processes, kFlows, kArea, true}, p);
      const Status met =
          s.ok() ? meet(**s, address, p == 0 ? std::move(*listener) : Listener()) : s.error();
      if (met.ok())
        code = fn(**s);
      else
        std::fprintf(stderr, "%s\n", met.error().to_string().c_str());
    }
    ::_exit(code);
  }
  *listener = Listener();
  std::vector<int> ended;
  for (const pid_t pid : pids) ::waitpid(pid, &ended.emplace_back(), 0);
  return ended;
}

void expect_all_zero(const std::vector<int>& ended) {
  for (size_t p = 0; p < ended.size(); ++p) EXPECT_EQ(ended[p], 0) << "process " << p;
}

TEST(Remote, TextsReachAllProcesses) {
  const auto text = [](int64_t process, int round) {
    const size_t lengths[] = {0, 5, 700'000, Frame::kMostBytes};
    return std::string(lengths[(static_cast<size_t>(process) + static_cast<size_t>(round)) % 4],
                       static_cast<char>('a' + process));
  };
  expect_all_zero(apart(6, 3, [&](Segment& s) {
    for (int round = 0; round < 50; ++round) {
      const auto all = s.exchange(text(s.process(), round));
      if (!all.ok() || all->size() != 3) return 1;
      for (int64_t p = 0; p < 3; ++p)
        if ((*all)[static_cast<size_t>(p)] != text(p, round)) return 2;
    }
    return 0;
  }));
}

// Two groups of ranks across processes with two ranks each; some are late. What each shows in a
// round is what all of its group see in that round.
TEST(Remote, GroupsMeetAndSeeWhatIsShown) {
  constexpr int kRounds = 300;
  expect_all_zero(apart(4, 2, [&](Segment& s) {
    std::atomic<int> wrong{0};
    const auto run = [&](int64_t rank) {
      const std::vector<std::vector<int64_t>> groups = {{0, 1, 2, 3}, {rank % 2, rank % 2 + 2}};
      for (uint64_t round = 1; round <= kRounds; ++round)
        for (size_t g = 0; g < 2; ++g) {
          const std::vector<int64_t>& group = groups[g];
          const size_t index =
              static_cast<size_t>(std::find(group.begin(), group.end(), rank) - group.begin());
          uint8_t* board = s.flows() + (g == 0 ? 0 : 1024 * (1 + rank % 2));
          auto& tally = *reinterpret_cast<Tally*>(board);
          auto* slots = reinterpret_cast<uint64_t*>(board + 64);
          slots[index] = 1000 * round + static_cast<uint64_t>(rank);
          if ((round + static_cast<uint64_t>(rank)) % 37 == 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          s.add(tally, group, index, &slots[index], sizeof(uint64_t));
          if (!tally.wait_for((2 * round - 1) * group.size(), s.waiter(rank))) ++wrong;
          for (size_t i = 0; i < group.size(); ++i)
            wrong += slots[i] != 1000 * round + static_cast<uint64_t>(group[i]);
          s.add(tally, group, index, nullptr, 0);
          if (!tally.wait_for(2 * round * group.size(), s.waiter(rank))) ++wrong;
        }
    };
    std::thread other(run, s.first_rank() + 1);
    run(s.first_rank());
    other.join();
    return wrong == 0 ? 0 : 1;
  }));
}

TEST(Remote, BytesComeInRuns) {
  expect_all_zero(apart(3, 3, [&](Segment& s) {
    const int64_t n = 3'000'000, own = s.first_rank();
    auto* data = static_cast<uint8_t*>(s.area(own)->take(n));
    for (int64_t i = 0; i < n; ++i) data[i] = static_cast<uint8_t>(i * 7 + own);
    const auto all = s.exchange(cat(s.offset_of(data)));
    if (!all.ok()) return 1;
    Tally brought;
    std::vector<std::vector<uint8_t>> got(6, std::vector<uint8_t>(static_cast<size_t>(n)));
    uint64_t asked = 0;
    for (int64_t r = 0; r < 3; ++r) {
      if (r == own) continue;
      const uint64_t at = std::stoull((*all)[static_cast<size_t>(r)]);
      const auto i = static_cast<size_t>(r) * 2;
      // As a whole; nothing; and every third of short runs, laid side by side.
      s.remote()->fetch({r, at, n, 0, 1, got[i].data(), 0}, brought), ++asked;
      s.remote()->fetch({r, at, 0, 0, 1, nullptr, 0}, brought), ++asked;
      s.remote()->fetch({r, at + 1, 5, 15, n / 15, got[i + 1].data(), 5}, brought), ++asked;
    }
    if (!brought.wait_for(asked, s.waiter(own))) return 2;
    for (int64_t r = 0; r < 3; ++r) {
      if (r == own) continue;
      const auto at = static_cast<size_t>(r) * 2;
      for (int64_t i = 0; i < n; ++i)
        if (got[at][static_cast<size_t>(i)] != static_cast<uint8_t>(i * 7 + r)) return 3;
      for (int64_t i = 0; i < n / 15 * 5; ++i)
        if (got[at + 1][static_cast<size_t>(i)] !=
            static_cast<uint8_t>((1 + i / 5 * 15 + i % 5) * 7 + r))
          return 4;
    }
    // Nobody's memory goes before all have read it. Each gave it to both others.
    if (!s.exchange("").ok()) return 5;
    return s.state(own).sent_bytes == 2 * (n + n / 15 * 5) ? 0 : 6;
  }));
}

// The fate of one of three is named by the others with what it did, within 5 seconds.
TEST(Remote, WhoDiesOrStopsIsNamedWithItsCall) {
  for (const int sent : {SIGKILL, SIGSTOP}) {
    const auto start = std::chrono::steady_clock::now();
    const auto ended = apart(3, 3, [&](Segment& s) {
      s.note_call(s.first_rank(), "all_reduce", "dp", "train_step", 7);
      if (!s.exchange("").ok()) return 1;
      if (s.process() == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(800));
        ::raise(sent);
      }
      if (s.exchange("").ok()) return 2;
      const auto failed = s.failure();
      const std::string& m = failed->error.message;
      const char* how = sent == SIGKILL ? "has ended without a word" : "has said nothing for 3 sec";
      if (m.find("rank 1 (process ") == m.npos || m.find(how) == m.npos ||
          m.find("call 1, all_reduce over dp (step 7 of train_step)") == m.npos) {
        std::fprintf(stderr, "%s\n", m.c_str());
        return 3;
      }
      return s.remote()->tells_failure() == (s.process() == 0) ? 0 : 4;
    });
    EXPECT_EQ(ended[0], 0);
    EXPECT_EQ(ended[2], 0);
    // Who cannot end by itself is ended.
    EXPECT_TRUE(WIFSIGNALED(ended[1]) && WTERMSIG(ended[1]) == SIGKILL);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(9));
  }
}

TEST(Remote, AFailureReachesAllThatWait) {
  expect_all_zero(apart(4, 2, [&](Segment& s) {
    if (s.process() == 0) {
      s.fail(1, out_of_memory("no room"));
      return 0;
    }
    auto& tally = *reinterpret_cast<Tally*>(s.flows());
    s.add(tally, {1, 3}, 1, nullptr, 0);
    if (tally.wait_for(2, s.waiter(3))) return 3;
    const auto failed = s.failure();
    return failed->rank == 1 && failed->error.code == Code::kOutOfMemory &&
                   failed->error.message == "no room"
               ? 0
               : 4;
  }));
}

// Frames that ask for what is not there, one a process, since each ends the run.
TEST(Remote, FramesOutOfBoundsAreRefusedWithTheSender) {
  constexpr uint64_t kFar = uint64_t{1} << 62, kNone = ~uint64_t{0};
  const Frame frames[] = {Frame(Frame::kAdd, {kFlows - 4, 2, 0, 1, 0}),
                          Frame(Frame::kAdd, {kNone - 7, 2, 0, 1, 0}),
                          Frame(Frame::kAdd, {4, 2, 0, 1, 0}),
                          Frame(Frame::kAdd, {0, 2, 2, 1, 0}),
                          Frame(Frame::kAdd, {0, 9, 0, 1, 0}),
                          Frame(Frame::kAdd, {0, 2, 0, 5, 0}),
                          Frame(Frame::kAdd, {0, 2, 0, 1, kFlows - 8}, "too long for it", 16),
                          Frame(Frame::kGet, {1, 0, 4096, 8, 8, 1}),
                          Frame(Frame::kGet, {1, 7, 4096, 8, 8, 1}),
                          Frame(Frame::kGet, {1, 1, 4096, kFar, 8, 4}),
                          Frame(Frame::kGet, {1, 1, 4096, 8, kFar, 4}),
                          Frame(Frame::kGet, {1, 1, 4096, 0, 8, 4}),
                          Frame(Frame::kGet, {1, 1, kNone, 8, 8, 2}),
                          Frame(Frame::kGet, {1, 1, 4096, 8, 0, kArea}),
                          Frame(Frame::kGet, {1, 1, 4096, 8, 8, 1}),
                          Frame(Frame::kData, {1, 0}, "unasked", 7),
                          Frame(Frame::kText, {3}, "four", 4),
                          Frame(Frame::kText, {kFar}, "four", 4),
                          Frame(Frame::kText, {9}, "four", 4),
                          Frame(Frame::kState, {}, "short", 5)};
  for (size_t i = 0; i < std::size(frames); ++i)
    expect_all_zero(apart(2, 2, [&](Segment& s) {
      // The frame may come right behind the text, and fail the exchange that read that.
      if (!s.exchange("").ok() && !s.failure()) return 2;
      if (s.process() == 0) {
        s.remote()->send(1, frames[i]);
        return s.exchange("").ok() ? 1 : 0;
      }
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
      while (!s.failure() && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const auto failed = s.failure();
      if (!failed) std::fprintf(stderr, "frame %zu was taken\n", i);
      if (!failed) return 3;
      const bool is_named = failed->error.message.find("process 0 does not keep") == 0;
      if (!is_named) std::fprintf(stderr, "%zu: %s\n", i, failed->error.message.c_str());
      return is_named ? 0 : 4;
    }));
}

TEST(Frames, AreCutFromAnyPieces) {
  std::string stream;
  for (size_t i = 0; i < 40; ++i) {
    const std::string body(i * 911 % 5000, static_cast<char>('a' + i % 26));
    const Frame f(Frame::kText, {i}, body.data(), body.size());
    stream.append(reinterpret_cast<const char*>(&f.head), sizeof f.head).append(body);
  }
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{57}, size_t{4096}, stream.size()}) {
    FrameReader reader;
    uint64_t n = 0;
    for (size_t at = 0; at < stream.size();) {
      size_t room = 0;
      uint8_t* to = reader.room(room);
      const size_t take = std::min({piece, room, stream.size() - at});
      std::memcpy(to, stream.data() + at, take);
      reader.added(take), at += take;
      Frame::Head head;
      const uint8_t* body = nullptr;
      while (reader.next(head, body)) {
        EXPECT_EQ(head.words[0], n);
        EXPECT_EQ(head.bytes, n * 911 % 5000);
        if (head.bytes > 0) EXPECT_EQ(body[head.bytes - 1], 'a' + n % 26);
        ++n;
      }
    }
    EXPECT_EQ(n, 40U);
    EXPECT_EQ(reader.left(), 0U);
  }
  for (const auto& [kind, bytes] : {std::pair{0U, 0U}, {99U, 0U}, {1U, 0x40001U}, {1U, ~0U}}) {
    FrameReader reader;
    size_t room = 0;
    Frame::Head head{kind, bytes, {}};
    std::memcpy(reader.room(room), &head, sizeof head);
    reader.added(sizeof head);
    const uint8_t* body = nullptr;
    EXPECT_FALSE(reader.next(head, body));
    EXPECT_TRUE(reader.is_broken());
    reader.room(room);
    EXPECT_EQ(room, 0U);
  }
}

TEST(Greeting, SaysWhatDiffers) {
  const Greeting a = greeting_of(4, 1, 99);
  Greeting b = greeting_of(4, 2, 98);
  EXPECT_NE(std::memcmp(a.nonce, b.nonce, sizeof a.nonce), 0);
  EXPECT_TRUE(check_version(b, "here").ok());
  EXPECT_TRUE(check_run(a, b, "here").ok());
  const auto differs = [&](auto change, std::string_view why) {
    Greeting other = b;
    change(other);
    Status st = check_version(other, "host:9");
    if (st.ok()) st = check_run(a, other, "host:9");
    ASSERT_FALSE(st.ok()) << why;
    EXPECT_NE(st.error().message.find(why), std::string::npos) << st.error().message;
    EXPECT_NE(st.error().message.find("host:9"), std::string::npos) << st.error().message;
  };
  differs([](Greeting& g) { g.magic = 7; }, "no process of tegula");
  differs([](Greeting& g) { g.version += 1; }, "speaks version 2");
  differs([](Greeting& g) { g.build += 1; }, "another build");
  differs([](Greeting& g) { g.n_processes = 8; }, "one of 8 processes, this one of 4");
  differs([](Greeting& g) { g.process = 1; }, "number 1");
  differs([](Greeting& g) { g.process = 4; }, "number 4");
  // RFC 4231, test case 2, has another message; what counts here is that each part counts.
  const Proof proof = proof_of("key", a, b);
  EXPECT_TRUE(are_equal(proof, proof_of("key", a, b)));
  EXPECT_FALSE(are_equal(proof, proof_of("kez", a, b)));
  EXPECT_FALSE(are_equal(proof, proof_of("key", b, a)));
  EXPECT_FALSE(
      are_equal(proof_of(std::string(100, 'k'), a, b), proof_of(std::string(64, 'k'), a, b)));
}

// Process 0 of two, in a thread; what the other one is told, and what it is told.
struct Refused {
  std::string first, other;
};
Refused meet_with(const std::string& key, double patience_s) {
  auto listener = Listener::at("127.0.0.1:0");
  const std::string address = listener->address();
  Refused r;
  std::thread other([&] {
    TcpMeeting how{2, 1, address, key, {}, 1};
    const auto met = meet_by_tcp(std::move(how));
    if (!met.ok()) r.other = met.error().message;
  });
  TcpMeeting how{2, 0, address, "right", std::move(*listener), patience_s};
  const auto met = meet_by_tcp(std::move(how));
  if (!met.ok()) r.first = met.error().message;
  other.join();
  return r;
}

TEST(Tcp, AnotherKeyIsTurnedAwayAndTheOthersAreWaitedFor) {
  EXPECT_EQ(meet_with("right", 10).first, "");
  const Refused r = meet_with("wrong", 1);
  EXPECT_NE(r.other.find("process 0"), std::string::npos) << r.other;
  EXPECT_NE(r.other.find("another key: set TEGULA_COMM_KEY"), std::string::npos) << r.other;
  EXPECT_NE(r.first.find("for 1 of 2 processes, and 1 seconds are over"), std::string::npos)
      << r.first;
  EXPECT_NE(r.first.find("turned away: process 1"), std::string::npos) << r.first;
}

TEST(Tcp, WhoIsNotThereIsNamedWithItsAddress) {
  std::string address;
  {
    const auto gone = Listener::at("127.0.0.1:0");
    address = gone->address();
  }
  TcpMeeting how{2, 1, address, "key", {}, 0.2};
  const auto met = meet_by_tcp(std::move(how));
  ASSERT_FALSE(met.ok());
  EXPECT_NE(met.error().message.find(cat("cannot reach ", address)), std::string::npos)
      << met.error().message;
  const auto taken = Listener::at("127.0.0.1:0");
  const auto again = Listener::at(taken->address());
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().message.find("cannot listen at 127.0.0.1:"), std::string::npos);
  for (const char* bad : {"", "host", ":99", "host:", "host:x1", "host:65536", "host:123456"})
    EXPECT_FALSE(check_address(bad).ok()) << bad;
}

TEST(Tcp, StrangersAreTurnedAway) {
  auto listener = Listener::at("127.0.0.1:0");
  const std::string address = listener->address();
  std::thread strangers([&] {
    const auto connected = [&] {
      sockaddr_storage storage{};
      socklen_t size = sizeof storage;
      ::getsockname(listener->fd(), reinterpret_cast<sockaddr*>(&storage), &size);
      const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
      EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&storage), size), 0);
      return fd;
    };
    const int shuts = connected();
    ::close(shuts);
    const int talks = connected();
    const std::string words = "GET / HTTP/1.1\r\nHost: " + std::string(200, 'x') + "\r\n\r\n";
    EXPECT_GT(::send(talks, words.data(), words.size(), MSG_NOSIGNAL), 0);
    TcpMeeting how{2, 1, address, "right", {}, 10};
    const auto met = meet_by_tcp(std::move(how));
    EXPECT_TRUE(met.ok()) << met.error().message;
    ::close(talks);
  });
  Listener own(::dup(listener->fd()));
  TcpMeeting how{2, 0, address, "right", std::move(own), 15};
  const auto met = meet_by_tcp(std::move(how));
  EXPECT_TRUE(met.ok()) << met.error().message;
  strangers.join();
}

// Process 1 of two by hand, with what it says after it has met process 0.
class ByHand {
 public:
  ByHand(const Listener& at, uint64_t other_build) {
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    ::getsockname(at.fd(), reinterpret_cast<sockaddr*>(&storage), &size);
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&storage), size), 0);
    Greeting own = greeting_of(2, 1, 1), other;
    own.build += other_build;
    say(&own, sizeof own);
    EXPECT_TRUE(hear(&other, sizeof other));
    const Proof proof = proof_of("a key", own, other);
    say(proof.data(), proof.size());
    Proof its;
    EXPECT_TRUE(hear(its.data(), its.size()));
    EXPECT_TRUE(are_equal(its, proof_of("a key", other, own)));
    std::vector<uint8_t> table(2 * 256);
    if (other_build == 0) EXPECT_TRUE(hear(table.data(), table.size()));
  }
  ~ByHand() { ::close(fd_); }
  void say(const void* data, size_t n) const {
    EXPECT_EQ(::send(fd_, data, n, MSG_NOSIGNAL), static_cast<ssize_t>(n));
  }
  bool hear(void* data, size_t n) const {
    return ::recv(fd_, data, n, MSG_WAITALL) == static_cast<ssize_t>(n);
  }

 private:
  int fd_ = -1;
};

TEST(Tcp, AStreamThatEndsAmidAFrameOrIsNoneIsNamed) {
  const Frame whole(Frame::kText, {5}, "hello", 5);
  Frame broken(Frame::kText, {5});
  broken.head.bytes = 0x7fffffff;
  for (const auto& [frame, bytes, why] :
       {std::tuple{&whole, sizeof(Frame::Head) - 9, " amid a frame"},
        {&broken, sizeof(Frame::Head), "it sent what is no frame"}}) {
    auto listener = Listener::at("127.0.0.1:0");
    const std::string address = listener->address();
    Listener own(::dup(listener->fd()));
    auto s = Segment::alone({2, 2, kFlows, kArea, true}, 0);
    ASSERT_TRUE(s.ok());
    std::thread other([&] {
      const ByHand hand(*listener, 0);
      hand.say(&frame->head, bytes);
    });
    EXPECT_TRUE(meet(**s, address, std::move(own)).ok());
    EXPECT_FALSE((*s)->exchange("").ok());
    EXPECT_NE((*s)->failure()->error.message.find(why), std::string::npos)
        << (*s)->failure()->error.message;
    EXPECT_NE((*s)->failure()->error.message.find("rank 1"), std::string::npos);
    other.join();
  }
}

TEST(Tcp, AnotherBuildWithTheKeyEndsTheRunAtOnce) {
  auto listener = Listener::at("127.0.0.1:0");
  Listener own(::dup(listener->fd()));
  std::thread other([&] { ByHand(*listener, 1); });
  TcpMeeting how{2, 0, listener->address(), "a key", std::move(own), 20};
  const auto met = meet_by_tcp(std::move(how));
  ASSERT_FALSE(met.ok());
  EXPECT_NE(met.error().message.find("process 1 (127.0.0.1:"), std::string::npos);
  EXPECT_NE(met.error().message.find("is another build of tegula"), std::string::npos)
      << met.error().message;
  other.join();
}

// Sets variables for as long as it lives; those of a real world are gone meanwhile.
struct Environment {
  std::vector<std::pair<std::string, std::string>> before;
  explicit Environment(std::vector<std::pair<const char*, const char*>> set) {
    for (const char* name :
         {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "PMI_RANK", "SLURM_NTASKS",
          "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NODELIST"}) {
      if (const char* was = std::getenv(name)) before.emplace_back(name, was);
      ::unsetenv(name);
    }
    for (const auto& [name, value] : set) ::setenv(name, value, 1);
    names = std::move(set);
  }
  ~Environment() {
    for (const auto& [name, value] : names) ::unsetenv(name);
    for (const auto& [name, value] : before) ::setenv(name.c_str(), value.c_str(), 1);
  }
  std::vector<std::pair<const char*, const char*>> names;
};

TEST(World, IsWhatMpirunAndSrunSay) {
  const auto said = [](std::vector<std::pair<const char*, const char*>> set) {
    const Environment e(std::move(set));
    const auto w = world();
    return w ? cat(w->starter, ' ', w->process, " of ", w->n_processes, ' ', w->first_host)
             : std::string("nobody");
  };
  EXPECT_EQ(said({}), "nobody");
  EXPECT_EQ(said({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}}), "mpirun 3 of 4 ");
  EXPECT_EQ(said({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}), "nobody");
  EXPECT_EQ(said({{"OMPI_COMM_WORLD_SIZE", "4"}}), "nobody");
  EXPECT_EQ(said({{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}}), "mpirun 0 of 2 ");
  EXPECT_EQ(
      said({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "5"}, {"SLURM_STEP_NODELIST", "a[03-07,9],b"}}),
      "srun 5 of 8 a03");
  EXPECT_EQ(said({{"SLURM_NTASKS", "8"},
                  {"SLURM_STEP_NUM_TASKS", "2"},
                  {"SLURM_PROCID", "1"},
                  {"SLURM_STEP_NODELIST", "host1,host2"}}),
            "srun 1 of 2 host1");
  // A script of sbatch is no step.
  EXPECT_EQ(said({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}), "nobody");
}

}  // namespace
}  // namespace tegula
