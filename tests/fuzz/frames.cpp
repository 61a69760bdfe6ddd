// Bytes that another process sends (comm/wire.h), cut into frames and taken by a segment of four
// ranks in two processes: nothing is written or read but what it holds, and what does not fit ends
// the run.
#include <poll.h>

#include <atomic>
#include <cstring>

#include "tegula/base/algorithm.h"
#include "tegula/comm/remote.h"
#include "tests/fuzz/target.h"

namespace tegula::fuzz {

namespace {

struct Feed {
  std::string_view input;
  std::atomic<bool> may_begin{false}, has_ended{false};
  bool is_whole = false;
};

// Hands the input over as one process's words, then says that it is gone.
class FedWire final : public Wire {
 public:
  explicit FedWire(Feed& feed) : feed_(feed) {}
  void send(int64_t to, Frame frame) override {
    TEGULA_CHECK(to == 1 && Frame::can_be(frame.head) && frame.head.bytes == frame.body.size());
    sent_ += static_cast<int64_t>(frame.wire_bytes());
  }
  size_t queued_bytes(int64_t) const override { return 0; }
  int64_t sent_bytes() const override { return sent_; }
  bool end_all(int) override { return false; }
  void step(Sink& sink, const Alarm& alarm, int64_t) override {
    if (!feed_.may_begin) {
      pollfd poll{alarm.fd(), POLLIN, 0};
      ::poll(&poll, 1, 100);
      alarm.clear();
      return;
    }
    size_t room = 0;
    uint8_t* to = reader_.room(room);
    // A prime, so that frames end anywhere.
    const size_t n = std::min({room, feed_.input.size() - at_, size_t{997}});
    std::memcpy(to, feed_.input.data() + at_, n);
    reader_.added(n), at_ += n;
    Frame::Head head;
    const uint8_t* body = nullptr;
    while (reader_.next(head, body)) sink.take(1, head, body);
    if (n > 0 && !reader_.is_broken()) return;
    feed_.is_whole = !reader_.is_broken() && reader_.left() == 0;
    feed_.has_ended = true;
    sink.lost(1, "it has ended");
  }

 private:
  Feed& feed_;
  FrameReader reader_;
  size_t at_ = 0;
  int64_t sent_ = 0;
};

bool run(std::string_view input) {
  Feed feed;
  feed.input = input;
  uint8_t near[3][4096] = {};  // the middle one is asked for
  Tally brought;
  bool is_good = false;
  {
    auto segment = Segment::alone({4, 2, 1 << 14, 1 << 21, true}, 0);
    TEGULA_CHECK(segment.ok());
    Segment& s = **segment;
    std::memset(s.area(0)->take(5000), 7, 5000);
    const auto open = [](void* feed) {
      return Result<std::unique_ptr<Wire>>(std::make_unique<FedWire>(*static_cast<Feed*>(feed)));
    };
    TEGULA_CHECK(s.connect(open, &feed).ok());
    s.remote()->fetch({2, 4096, 100, 0, 1, near[1], 0}, brought);
    s.remote()->fetch({3, 4096, 8, 16, 64, near[1] + 1024, 32}, brought);
    feed.may_begin = true;
    s.remote()->wake();
    // The next word of a rank here, beside those that come.
    s.add(*reinterpret_cast<Tally*>(s.flows() + 64), {0, 2}, 0, nullptr, 0);
    while (!feed.has_ended) ::poll(nullptr, 0, 1);
    is_good = feed.is_whole;
    const auto failed = s.failure();
    // That it has gone without a word is no fault of its frames.
    is_good &= !failed || failed->error.message.find("keep to the frames") == std::string::npos;
  }
  for (const auto& around : {near[0], near[2]})
    TEGULA_CHECK(std::all_of(around, around + sizeof near[0], [](uint8_t b) { return b == 0; }));
  TEGULA_CHECK(brought.load() <= 2);
  return is_good;
}

}  // namespace

extern constinit const Target frames_target{"frames", run};

}  // namespace tegula::fuzz
