// Processes are forked here; launched ones are tested by tests/cli/processes_test.py and, where no
// command reaches it, by this binary running itself (launch_test.cpp).
#include "tegula/comm/segment.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>

#include "tegula/runtime/rank.h"
#include "tegula/runtime/rank_group.h"

namespace tegula {
namespace {

// Runs fn(segment) in a process for each of size.n_processes; how each ended (wait status).
template <class F>
std::vector<int> in_processes(const Segment::Size& size, F fn) {
  auto made = Segment::create(size);
  EXPECT_TRUE(made.ok()) << made.error().to_string();
  std::vector<pid_t> pids;
  for (int64_t p = 0; p < size.n_processes; ++p) {
    pids.push_back(::fork());
    if (pids.back() == 0) {
      auto own = Segment::attach(::dup((*made)->fd()), p);
      ::_exit(own.ok() ? fn(**own) : 99);
    }
  }
  std::vector<int> ended;
  for (const pid_t pid : pids) ::waitpid(pid, &ended.emplace_back(), 0);
  return ended;
}

void expect_all_zero(const std::vector<int>& ended) {
  for (size_t p = 0; p < ended.size(); ++p) EXPECT_EQ(ended[p], 0) << "process " << p;
}

constexpr int64_t kArea = 64 << 20;

TEST(Tally, EverybodyIsThereBeforeAnybodyGoesOn) {
  constexpr int kThreads = 5, kRounds = 400;
  Tally tally;
  uint32_t failed = 0;
  std::vector<int64_t> at(kThreads);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      uint64_t passed = 0;
      const auto pass = [&] {
        tally.add_one(kThreads);
        return tally.wait_for(++passed * kThreads, {&failed, nullptr});
      };
      for (int64_t round = 1; round <= kRounds; ++round) {
        at[t] = round;
        if (!pass()) ++wrong;
        for (const int64_t other : at) wrong += other != round;
        if (!pass()) ++wrong;
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Tally, WhoWaitsIsSeenAndGoesOnWhenSomebodyFailed) {
  Tally tally;
  uint32_t failed = 0;
  RankState state;
  std::thread waits([&] { EXPECT_FALSE(tally.wait_for(2, {&failed, &state})); });
  while (__atomic_load_n(&state.beats, __ATOMIC_RELAXED) < 3) std::this_thread::yield();
  EXPECT_EQ(__atomic_load_n(&state.is_waiting, __ATOMIC_RELAXED), 1U);
  __atomic_store_n(&failed, 1, __ATOMIC_RELEASE);
  waits.join();
  EXPECT_EQ(state.is_waiting, 0U);
}

// Texts have any length: they go in pieces of 32 KiB.
TEST(Segment, TextsReachAllProcesses) {
  const auto text = [](int64_t process, int round) {
    const size_t lengths[] = {0, 5, 40'000, 100'003};
    return std::string(lengths[(static_cast<size_t>(process) + static_cast<size_t>(round)) % 4],
                       static_cast<char>('a' + process));
  };
  expect_all_zero(in_processes({6, 3, 0, kArea}, [&](Segment& s) {
    for (int round = 0; round < 50; ++round) {
      const auto all = s.exchange(text(s.process(), round));
      if (!all.ok() || all->size() != 3) return 1;
      for (int64_t p = 0; p < 3; ++p)
        if ((*all)[static_cast<size_t>(p)] != text(p, round)) return 2;
    }
    return s.first_rank() == 2 * s.process() && s.n_own() == 2 ? 0 : 3;
  }));
}

TEST(Segment, MemoryIsZeroBetweenGuardsAndTakenAgain) {
  expect_all_zero(in_processes({1, 1, 0, kArea}, [](Segment& s) {
    Area& area = *s.area(0);
    for (int round = 0; round < 3; ++round)
      for (const int64_t bytes : {int64_t{1}, int64_t{5000}, int64_t{3} << 20}) {
        auto* p = static_cast<uint8_t*>(area.take(bytes));
        if (!p || !s.can_show(p) || s.at(s.offset_of(p)) != p) return 1;
        for (int64_t i = 0; i < bytes; ++i)
          if (p[i] != 0) return 2;
        std::memset(p, 7, static_cast<size_t>(bytes));
        area.give_back(p, bytes);
      }
    if (area.take(kArea + 1) != nullptr) return 3;
    int there = 0;
    return s.can_show(&there) ? 4 : 0;
  }));
}

// This process reads what the other one wrote; writing there ends the process, and so does
// what lies before a region.
TEST(Segment, OthersReadAndDoNotWrite) {
  for (const int what : {0, 1, 2}) {
    const auto ended = in_processes({2, 2, 0, kArea}, [&](Segment& s) {
      ::signal(SIGSEGV, SIG_DFL);
      auto* own = static_cast<uint8_t*>(s.area(s.first_rank())->take(10));
      own[3] = static_cast<uint8_t>(s.process() + 1);
      const auto all = s.exchange(cat(s.offset_of(own)));
      if (!all.ok()) return 1;
      auto* other = static_cast<uint8_t*>(
          s.at(std::strtoull((*all)[1 - static_cast<size_t>(s.process())].c_str(), nullptr, 10)));
      if (other[3] != 2 - s.process()) return 2;
      if (!s.exchange("").ok()) return 3;
      volatile uint8_t* at = what == 1 ? other : own - 1;
      if (what > 0) *at = 5;
      return 0;
    });
    for (const int status : ended)
      EXPECT_TRUE(what == 0 ? status == 0 : status != 0) << what << ' ' << status;
  }
}

TEST(Segment, TheFirstFailureIsKeptAndEndsAllWaits) {
  expect_all_zero(in_processes({3, 3, 0, kArea}, [](Segment& s) {
    if (s.process() == 2) {
      s.fail(2, invalid_argument(std::string(20'000, 'x')));
      s.fail(1, io_error("later"));
    } else if (s.exchange("").ok()) {
      return 1;
    }
    const auto failed = s.failure();
    if (!failed || failed->rank != 2 || failed->error.code != Code::kInvalidArgument) return 2;
    return failed->error.message.starts_with("xxx") && s.saved_step() == -1 ? 0 : 3;
  }));
}

TEST(RankGroup, RanksOfProcessesReadOneAnothersMemory) {
  const Mesh mesh = *mesh_from_text("dp=2,tp=2");
  for (const int64_t n : {2, 4})
    expect_all_zero(in_processes({4, n, RankGroup::flow_bytes(mesh), kArea}, [&](Segment& s) {
      RankGroup group(mesh, s);
      std::vector<std::unique_ptr<Rank>> ranks;
      for (int64_t r = s.first_rank(); r < s.first_rank() + s.n_own(); ++r)
        group.join(*ranks.emplace_back(std::make_unique<Rank>(1)), r);
      const Status st = group.run([&](int64_t r) -> Status {
        Rank& rank = *ranks[static_cast<size_t>(r - s.first_rank())];
        const Region region = TEGULA_TRY(Region::allocate(rank.memory, 4));
        const TensorRef own = contiguous_ref(region.data(), {DType::kI32, {}});
        for (int32_t round = 0; round < 100; ++round)
          for (size_t a = 0; a < 2; ++a) {
            const std::string& axis = mesh.axes[a].name;
            own.as<int32_t>()[0] = static_cast<int32_t>(r) + 10 * round;
            rank.peers->begin("test", axis, "plan", 7);
            const auto met = rank.peers->meet(axis, own, {});
            if (met.all.size() != 2) return io_error("alone");
            for (size_t i = 0; i < 2; ++i) {
              if (met.all[i].in.as<int32_t>()[0] != mesh.group(r, a)[i] + 10 * round)
                return internal_error("another value");
              met.all[i].sent_bytes->add(1);
            }
            if (!rank.peers->meet(axis)) return io_error("alone");
          }
        return {};
      });
      if (!st.ok() || !s.exchange("").ok()) return 1;
      for (int64_t r = 0; r < 4; ++r)
        if (group.sent_bytes(r) != 400) return 2;
      return 0;
    }));
}

TEST(RankGroup, ADifferentCallIsNamedOnBothSides) {
  const Mesh mesh = *mesh_from_text("dp=3");
  RankGroup group(mesh);
  float x[4] = {};
  for (const bool differs_in_shape : {false, true}) {
    const Status st = group.run([&](int64_t r) -> Status {
      const bool is_other = r == 2;
      group.peers(r).begin(is_other && !differs_in_shape ? "all_gather" : "all_reduce", "dp",
                           "train_step", static_cast<size_t>(10 + r));
      const TensorRef t = contiguous_ref(x, {DType::kF32, {is_other && differs_in_shape ? 3 : 4}});
      if (group.peers(r).meet("dp", t, t).all.empty()) return io_error("somebody failed");
      return {};
    });
    ASSERT_FALSE(st.ok());
    const std::string& m = st.error().message;
    EXPECT_NE(m.find("do not do the same"), m.npos) << m;
    EXPECT_NE(m.find("over dp (step 12 of train_step)"), m.npos) << m;
    EXPECT_NE(m.find(differs_in_shape ? "of 3 f32" : "all_gather"), m.npos) << m;
    EXPECT_NE(m.find("all_reduce over dp (step 1"), m.npos) << m;
  }
}

// Memory that nobody else can see is a fault of the trainer's, found where it is shown.
TEST(RankGroup, MemoryOfAProcessAloneIsNotShown) {
  const Mesh mesh = *mesh_from_text("dp=2");
  const auto ended = in_processes({2, 2, RankGroup::flow_bytes(mesh), kArea}, [&](Segment& s) {
    RankGroup group(mesh, s);
    (void)::freopen("/dev/null", "w", stderr);
    int32_t own = 0;
    const TensorRef t = contiguous_ref(&own, {DType::kI32, {}});
    group.peers(s.first_rank()).meet("dp", t, {});
    return 0;
  });
  for (const int status : ended) EXPECT_TRUE(WIFSIGNALED(status)) << status;
}

}  // namespace
}  // namespace tegula
