// A wire of MPI's messages. MPI has no way to wait for a message and sleep, so it is asked again
// and again, with pauses that grow while nothing comes.
#include <mpi.h>
#include <poll.h>

#include <cstring>
#include <list>

#include "tegula/base/algorithm.h"
#include "tegula/comm/greeting.h"
#include "tegula/comm/mpi.h"

namespace tegula {

namespace {

constexpr int kTag = 54;
constexpr int64_t kShort_us = 20, kLong_us = 500;

std::string text_of(int error) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int n = 0;
  MPI_Error_string(error, text, &n);
  return std::string(text, static_cast<size_t>(n));
}

class MpiWire final : public Wire {
 public:
  explicit MpiWire(int64_t n_processes) : queued_(static_cast<size_t>(n_processes)) {}
  ~MpiWire() override {
    if (comm_ == MPI_COMM_NULL) return;  // there is no MPI
    MPI_Comm_free(&comm_);
    MPI_Finalize();
  }

  Status meet(int64_t process);

  void send(int64_t to, Frame frame) override {
    Sent& s = sent_.emplace_back();
    s.to = to, s.bytes.resize(frame.wire_bytes());
    std::memcpy(s.bytes.data(), &frame.head, sizeof frame.head);
    std::copy(frame.body.begin(), frame.body.end(), s.bytes.begin() + sizeof frame.head);
    const int error = MPI_Isend(s.bytes.data(), static_cast<int>(s.bytes.size()), MPI_BYTE,
                                static_cast<int>(to), kTag, comm_, &s.request);
    if (error != MPI_SUCCESS) failed_ = {to, text_of(error)};
    queued_[static_cast<size_t>(to)] += s.bytes.size();
    all_sent_ += static_cast<int64_t>(s.bytes.size());
  }
  size_t queued_bytes(int64_t to) const override { return queued_[static_cast<size_t>(to)]; }
  void step(Sink& sink, const Alarm& alarm, int64_t most_ms) override;
  int64_t sent_bytes() const override { return all_sent_; }
  bool end_all(int code) override {
    MPI_Abort(MPI_COMM_WORLD, code);
    return true;
  }

 private:
  struct Sent {
    int64_t to = 0;
    std::vector<uint8_t> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  bool forget_sent();
  bool take_one(Sink& sink);

  MPI_Comm comm_ = MPI_COMM_NULL;
  std::list<Sent> sent_;  // that MPI has yet to send: their bytes stay where they are
  std::vector<size_t> queued_;
  std::vector<uint8_t> buffer_;
  std::pair<int64_t, std::string> failed_{-1, ""};
  int64_t all_sent_ = 0, pause_us_ = kShort_us;
};

Status MpiWire::meet(int64_t process) {
  const auto n = static_cast<int64_t>(queued_.size());
  int provided = 0, size = 0, rank = 0;
  if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
      error != MPI_SUCCESS)
    return io_error(cat("MPI does not begin: ", text_of(error)));
  MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Comm_size(comm_, &size), MPI_Comm_rank(comm_, &rank);
  if (size != n || rank != process)
    return invalid_argument(cat("MPI sees ", size, " processes where ", n,
                                " were started, so whoever started them and this Open MPI do not ",
                                "know one another: type mpirun -n ", n, ", srun --mpi=pmix, or ",
                                "--transport tcp with TEGULA_COMM_ADDRESS"));
  if (provided < MPI_THREAD_FUNNELED)
    return unsupported("this MPI knows no threads: build it with MPI_THREAD_FUNNELED");
  const Greeting own = greeting_of(n, process, 0);
  std::vector<Greeting> all(queued_.size());
  if (const int error =
          MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, comm_);
      error != MPI_SUCCESS)
    return io_error(cat("the processes do not meet by MPI: ", text_of(error)));
  for (int64_t p = 0; p < n; ++p) {
    if (p == process) continue;
    const std::string where = cat("MPI rank ", p);
    TEGULA_TRY(check_version(all[static_cast<size_t>(p)], where));
    TEGULA_TRY(check_run(own, all[static_cast<size_t>(p)], where));
  }
  return {};
}

// Whether there were any.
bool MpiWire::forget_sent() {
  bool some = false;
  for (auto s = sent_.begin(); s != sent_.end();) {
    int is_done = 0;
    if (const int error = MPI_Test(&s->request, &is_done, MPI_STATUS_IGNORE); error != MPI_SUCCESS)
      failed_ = {s->to, text_of(error)}, is_done = 1;
    if (!is_done) {
      ++s;
      continue;
    }
    queued_[static_cast<size_t>(s->to)] -= s->bytes.size();
    s = sent_.erase(s), some = true;
  }
  return some;
}

bool MpiWire::take_one(Sink& sink) {
  int is_there = 0, bytes = 0;
  MPI_Status status{};
  if (MPI_Iprobe(MPI_ANY_SOURCE, kTag, comm_, &is_there, &status) != MPI_SUCCESS || !is_there)
    return false;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  const auto size = static_cast<size_t>(bytes);
  Frame::Head head;
  const bool fits = size >= sizeof head && size <= sizeof head + Frame::kMostBytes;
  buffer_.resize(sizeof head + Frame::kMostBytes);
  // MPI cuts off what is longer.
  MPI_Recv(buffer_.data(), static_cast<int>(buffer_.size()), MPI_BYTE, status.MPI_SOURCE, kTag,
           comm_, MPI_STATUS_IGNORE);
  std::memcpy(&head, buffer_.data(), sizeof head);
  if (!fits || !Frame::can_be(head) || size != sizeof head + head.bytes)
    sink.lost(status.MPI_SOURCE, "it sent what is no frame");
  else
    sink.take(status.MPI_SOURCE, head, buffer_.data() + sizeof head);
  return true;
}

void MpiWire::step(Sink& sink, const Alarm& alarm, int64_t most_ms) {
  for (int64_t left_us = most_ms * 1000;;) {
    bool is_busy = forget_sent();
    while (take_one(sink)) is_busy = true;
    if (failed_.first >= 0) sink.lost(failed_.first, failed_.second), failed_.first = -1;
    if (is_busy) pause_us_ = kShort_us;
    if (is_busy || left_us <= 0) return;
    pollfd poll{alarm.fd(), POLLIN, 0};
    const int64_t pause_us = std::min(pause_us_, left_us);
    const timespec pause{0, pause_us * 1000};
    if (::ppoll(&poll, 1, &pause, nullptr) > 0) {
      alarm.clear(), pause_us_ = kShort_us;
      return;
    }
    left_us -= pause_us;
    pause_us_ = std::min(pause_us_ * 3 / 2, kLong_us);
  }
}

Result<std::unique_ptr<Wire>> open(int64_t n_processes, int64_t process) {
  auto wire = std::make_unique<MpiWire>(n_processes);
  TEGULA_TRY(wire->meet(process));
  return std::unique_ptr<Wire>(std::move(wire));
}

constexpr MpiPlugin kPlugin = {kMpiAbi, open};

}  // namespace

extern "C" __attribute__((visibility("default"))) const MpiPlugin* tegula_mpi_plugin() {
  return &kPlugin;
}

}  // namespace tegula
