// The mover brings what can be had, when it can be had, and holds nothing after a failure.
#include "tegula/comm/mover.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>

namespace tegula {
namespace {

struct Batch : Transfer {
  std::vector<Fetch> fetches;
  std::atomic<bool> is_allowed{true};
  std::atomic<int> n_there{0};
  bool is_ready() override { return is_allowed; }
  bool list(std::span<const Fetch>& all) override {
    all = fetches;
    return true;
  }
  void is_there() override { ++n_there; }
};

Fetch fetch_of(const Segment& s, int64_t rank, const uint8_t* from, int64_t bytes, uint8_t* to) {
  return {.rank = rank, .offset = s.offset_of(from), .bytes = bytes, .to = to};
}

TEST(Mover, LaysRunsWhereTheyBelongAndCountsThem) {
  const auto segment = Segment::of_threads(2, 0);
  Mover mover(*segment);
  std::vector<uint8_t> from(100), to(100, 255);
  std::iota(from.begin(), from.end(), uint8_t{0});
  Batch batch;
  batch.taker = 0;
  batch.fetches.push_back(fetch_of(*segment, 1, from.data() + 1, 3, to.data()));
  batch.fetches[0].stride = 10, batch.fetches[0].count = 4, batch.fetches[0].to_stride = 5;
  batch.fetches.push_back(fetch_of(*segment, 0, from.data() + 90, 2, to.data() + 50));
  for (int again = 1; again <= 100; ++again) {
    std::fill(to.begin(), to.end(), uint8_t{255});
    mover.begin(batch);
    ASSERT_TRUE(mover.wait(batch, segment->waiter(0)));
    ASSERT_EQ(batch.n_there, again);
    for (size_t i = 0; i < 100; ++i) {
      const size_t run = i / 5, in = i % 5;
      const bool is_own = i == 50 || i == 51;
      const size_t want = is_own ? i + 40 : run < 4 && in < 3 ? 1 + run * 10 + in : 255;
      ASSERT_EQ(to[i], want) << i;
    }
    EXPECT_EQ(segment->state(1).sent_bytes, 12 * again);  // what is a rank's own is not sent
    EXPECT_EQ(segment->state(0).sent_bytes, 0);
  }
}

TEST(Mover, WaitsForTheBellWithoutHoldingUpOthers) {
  const auto segment = Segment::of_threads(2, 0);
  Mover mover(*segment);
  uint8_t from = 7, late = 0, early = 0;
  Batch waits, goes;
  waits.is_allowed = false;
  waits.fetches.push_back(fetch_of(*segment, 1, &from, 1, &late));
  goes.fetches.push_back(fetch_of(*segment, 1, &from, 1, &early));
  mover.begin(waits);
  mover.begin(goes);
  ASSERT_TRUE(mover.wait(goes, segment->waiter(0)));
  EXPECT_EQ(early, 7);
  EXPECT_EQ(late, 0);
  std::thread poster([&] {
    waits.is_allowed = true;
    segment->ring_for(0);
  });
  ASSERT_TRUE(mover.wait(waits, segment->waiter(0)));
  poster.join();
  EXPECT_EQ(late, 7);
}

TEST(Mover, AfterAFailureNobodyWaitsAndNothingIsHeld) {
  const auto segment = Segment::of_threads(2, 0);
  Mover mover(*segment);
  uint8_t from = 7, to = 0;
  for (int again = 0; again < 20; ++again) {
    Batch never;
    never.is_allowed = false;
    never.fetches.push_back(fetch_of(*segment, 1, &from, 1, &to));
    mover.begin(never);
    segment->fail(1, io_error("out of sorts"));
    EXPECT_FALSE(mover.wait(never, segment->waiter(0)));
    mover.drain();
    never.is_allowed = true;
    segment->reset();
    segment->ring_for(0);  // nobody has it any more
    never.forget();
    mover.begin(never);
    EXPECT_TRUE(mover.wait(never, segment->waiter(0)));
    EXPECT_EQ(never.n_there, 1);
  }
}

// An engine that carries bytes by itself, some time later.
struct Late : Reach {
  Segment* segment = nullptr;
  std::vector<std::thread> threads;
  bool serves(int64_t rank) const override { return rank == 1; }
  void fetch(const Fetch& f, Tally& brought) override {
    threads.emplace_back([this, f, &brought] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      for (int64_t i = 0; i < f.count; ++i) f.to[i * f.to_stride] = static_cast<uint8_t>(f.offset);
      brought.add_one(1);
      segment->bell(0).ring();
    });
  }
  void forget() override {}
  ~Late() override {
    for (auto& t : threads) t.join();
  }
};

TEST(Mover, AnEngineBringsWhatIsNotMapped) {
  const auto segment = Segment::of_threads(3, 0);
  Late late;
  late.segment = segment.get();
  segment->set_reach(&late);
  Mover mover(*segment);
  uint8_t from = 7, to[3] = {};
  Batch batch;
  batch.fetches.push_back({.rank = 1, .offset = 42, .bytes = 1, .to = &to[0]});
  batch.fetches.push_back(fetch_of(*segment, 2, &from, 1, &to[1]));
  batch.fetches.push_back({.rank = 1, .offset = 43, .bytes = 1, .to = &to[2]});
  for (int again = 0; again < 20; ++again) {
    std::fill_n(to, 3, uint8_t{0});
    mover.begin(batch);
    ASSERT_TRUE(mover.wait(batch, segment->waiter(0)));
    EXPECT_EQ(to[0], 42);
    EXPECT_EQ(to[1], 7);
    EXPECT_EQ(to[2], 43);
  }
}

}  // namespace
}  // namespace tegula
