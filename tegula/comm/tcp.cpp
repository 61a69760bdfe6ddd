#include "tegula/comm/tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <deque>

#include "tegula/base/clock.h"
#include "tegula/comm/greeting.h"

namespace tegula {

namespace {

constexpr double kGreeting_s = 3;  // for what a process says at once
constexpr size_t kMostAddress = 256;

void pause_ms(long ms) {
  const timespec t{0, ms * 1'000'000};
  ::nanosleep(&t, nullptr);
}

// Closed where it ends.
struct Socket {
  int fd = -1;
  Socket() = default;
  explicit Socket(int f) : fd(f) {}
  Socket(Socket&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
  Socket& operator=(Socket&& other) noexcept { return std::swap(fd, other.fd), *this; }
  ~Socket() {
    if (fd >= 0) ::close(fd);
  }
};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  std::string text(bool with_port = true) {
    char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
    ::getnameinfo(get(), size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV);
    return with_port ? cat(host, ':', port) : std::string(host);
  }
};

SocketAddress own_address(int fd) {
  SocketAddress a;
  ::getsockname(fd, a.get(), &a.size);
  return a;
}

SocketAddress peer_address(int fd) {
  SocketAddress a;
  ::getpeername(fd, a.get(), &a.size);
  return a;
}

// fn(address) of each that the name stands for, until one is taken; its error.
template <class F>
int try_each(const std::string& address, int flags, std::string& why, F fn) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC, hints.ai_socktype = SOCK_STREAM, hints.ai_flags = flags;
  addrinfo* all = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &all);
  if (failed != 0) {
    why = ::gai_strerror(failed);
    return -1;
  }
  int fd = -1;
  for (const addrinfo* a = all; a && fd < 0; a = a->ai_next) {
    fd = ::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && !fn(fd, a)) {
      why = std::strerror(errno);
      ::close(fd), fd = -1;
    } else if (fd < 0) {
      why = std::strerror(errno);
    }
  }
  ::freeaddrinfo(all);
  return fd;
}

// All of it; false: closed or failed.
bool say(int fd, const void* data, size_t bytes) {
  const auto* p = static_cast<const uint8_t*>(data);
  while (bytes > 0) {
    const ssize_t n = ::send(fd, p, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n, bytes -= static_cast<size_t>(n);
  }
  return true;
}
bool hear(int fd, void* data, size_t bytes, double until_s) {
  auto* p = static_cast<uint8_t*>(data);
  while (bytes > 0) {
    pollfd poll{fd, POLLIN, 0};
    const double left = until_s - steady_seconds();
    if (left <= 0) return false;
    const int ready = ::poll(&poll, 1, static_cast<int>(left * 1e3) + 1);
    if (ready < 0 && errno != EINTR) return false;
    if (ready <= 0) continue;
    const ssize_t n = ::recv(fd, p, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n, bytes -= static_cast<size_t>(n);
  }
  return true;
}

// A connection: what was read of it and has yet to be sent.
struct Connection {
  Socket socket;
  std::string where;
  FrameReader reader;
  std::deque<Frame> queue;
  size_t queued = 0, sent_of_first = 0;
  bool takes_nothing = false;  // the other end is closed; what it said before can still be read
};

class TcpWire final : public Wire {
 public:
  explicit TcpWire(TcpMeeting how) : how_(std::move(how)) {}

  Status meet();

  void send(int64_t to, Frame frame) override {
    Connection& c = at(to);
    if (c.socket.fd < 0 || c.takes_nothing) return;
    c.queued += frame.wire_bytes();
    c.queue.push_back(std::move(frame));
  }
  size_t queued_bytes(int64_t to) const override { return all_[static_cast<size_t>(to)].queued; }
  void step(Sink& sink, const Alarm& alarm, int64_t most_ms) override;
  int64_t sent_bytes() const override { return __atomic_load_n(&sent_, __ATOMIC_RELAXED); }
  bool end_all(int) override { return false; }

 private:
  struct Other {
    Socket socket;
    Greeting greeting;
    std::string where;
  };
  Connection& at(int64_t process) { return all_[static_cast<size_t>(process)]; }
  // has_key: it proved to be of this run, whatever the error is.
  Result<Other> greet(Socket socket, const std::string& where, int64_t expected, bool& has_key);
  Result<Socket> reach(const std::string& address);
  Status accept_all(int64_t first);
  Status tell_addresses();
  Status meet_first();
  void keep(int64_t process, Other other);
  void flush(Sink& sink, int64_t process);
  void take_all(Sink& sink, int64_t process);
  void lose(Sink& sink, int64_t process, const std::string& why);
  std::string missing(int64_t first) const;

  TcpMeeting how_;
  double until_s_ = 0;
  std::vector<Connection> all_;
  std::vector<std::string> addresses_;
  std::string refused_;  // the last one that was no process of this run
  int64_t sent_ = 0;
};

// Both speak at once, so that neither waits for the other.
Result<TcpWire::Other> TcpWire::greet(Socket socket, const std::string& where, int64_t expected,
                                      bool& has_key) {
  has_key = false;
  const Greeting own = greeting_of(how_.n_processes, how_.process, how_.listener.port());
  // Who connects may stand behind others that say nothing; who accepts holds them up.
  const double until_s = expected >= 0 ? until_s_ : steady_seconds() + kGreeting_s;
  Greeting other;
  if (!say(socket.fd, &own, sizeof own) || !hear(socket.fd, &other, sizeof other, until_s))
    return io_error(cat("whoever is at ", where, " closed the connection or said nothing in ",
                        "time: is it a process of this run?"));
  TEGULA_TRY(check_version(other, where));
  const Proof mine = proof_of(how_.key, own, other), expect = proof_of(how_.key, other, own);
  Proof its{};
  if (!say(socket.fd, &mine, sizeof mine) || !hear(socket.fd, &its, sizeof its, until_s))
    return io_error(cat("process ", other.process, " (", where,
                        ") closed the connection before it ",
                        "proved that it has the key of this run: its own words say why"));
  // One's own words sent back prove nothing.
  if (!are_equal(its, expect) || std::memcmp(own.nonce, other.nonce, sizeof own.nonce) == 0)
    return invalid_argument(cat("process ", other.process, " (", where, ") has another key: set ",
                                "TEGULA_COMM_KEY to the same secret for all processes of a run"));
  has_key = true;
  TEGULA_TRY(check_run(own, other, where));
  if (expected >= 0 && other.process != expected)
    return invalid_argument(cat("process ", other.process, " answers at ", where, ", where ",
                                expected, " should: give each run an address of its own"));
  return Other{std::move(socket), other, where};
}

// The first process may have yet to begin.
Result<Socket> TcpWire::reach(const std::string& address) {
  std::string why;
  do {
    const int fd = try_each(address, 0, why, [](int s, const addrinfo* a) {
      const timeval most{10, 0};
      ::setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
      return ::connect(s, a->ai_addr, a->ai_addrlen) == 0;
    });
    if (fd >= 0) return Socket(fd);
    pause_ms(50);
  } while (steady_seconds() < until_s_);
  return io_error(cat("process ", how_.process, " cannot reach ", address, " (", why, ") within ",
                      how_.patience_s, " seconds: is the first process there, does a firewall ",
                      "stand between, is TEGULA_COMM_ADDRESS (--address) an address of its host?"));
}

std::string TcpWire::missing(int64_t first) const {
  std::string names;
  int64_t n = 0;
  for (int64_t p = first; p < how_.n_processes; ++p)
    if (all_[static_cast<size_t>(p)].socket.fd < 0 && p != how_.process && ++n <= 8)
      names += cat(names.empty() ? "" : ", ", p);
  return n > 8 ? cat(names, " and ", n - 8, " more") : names;
}

void TcpWire::keep(int64_t process, Other other) {
  Connection& c = at(process);
  c.where = other.where;
  c.socket = std::move(other.socket);
}

// Accepts the processes from `first` on. Who has no key of the run is turned away, and the others
// are waited for; one that has the key and is of another build ends the run.
Status TcpWire::accept_all(int64_t first) {
  while (!missing(first).empty()) {
    const double left = until_s_ - steady_seconds();
    pollfd poll{how_.listener.fd(), POLLIN, 0};
    if (left <= 0)
      return io_error(cat("process ", how_.process, " waits at ", how_.listener.address(), " for ",
                          missing(first), " of ", how_.n_processes, " processes, and ",
                          how_.patience_s, " seconds are over: start all, and give them this ",
                          "address (TEGULA_COMM_ADDRESS)",
                          refused_.empty() ? "" : cat("; turned away: ", refused_)));
    if (::poll(&poll, 1, static_cast<int>(left * 1e3) + 1) <= 0) continue;
    Socket socket(::accept4(how_.listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.fd < 0) continue;
    const std::string where = peer_address(socket.fd).text();
    bool has_key = false;
    auto other = greet(std::move(socket), where, -1, has_key);
    if (!other.ok()) {
      refused_ = other.error().message;
      if (has_key) return std::move(other).error();
      continue;
    }
    const int64_t process = other->greeting.process;
    if (process < first || at(process).socket.fd >= 0)
      return invalid_argument(cat("two processes say that they are number ", process, " (", where,
                                  "): give each its own number"));
    if (how_.process == 0)
      addresses_[static_cast<size_t>(process)] =
          cat(peer_address(other->socket.fd).text(false), ':', other->greeting.port);
    keep(process, std::move(*other));
  }
  return {};
}

// Each line is as long as any, so that its length needs no word.
Status TcpWire::tell_addresses() {
  std::string table(kMostAddress * all_.size(), '\0');
  for (size_t p = 0; p < all_.size(); ++p)
    addresses_[p].copy(table.data() + p * kMostAddress, kMostAddress - 1);
  for (int64_t p = 1; p < how_.n_processes; ++p)
    if (!say(at(p).socket.fd, table.data(), table.size()))
      return io_error(cat("process ", p, " (", at(p).where, ") closed its connection"));
  return {};
}

Status TcpWire::meet_first() {
  Socket socket = TEGULA_TRY(reach(how_.address));
  // Where the first process sees this one, the others can.
  const std::string here = own_address(socket.fd).text(false);
  how_.listener = TEGULA_TRY(
      Listener::at(here.find(':') == std::string::npos ? here + ":0" : cat('[', here, "]:0")));
  bool has_key = false;
  keep(0, TEGULA_TRY(greet(std::move(socket), how_.address, 0, has_key)));
  std::string table(kMostAddress * all_.size(), '\0');
  if (!hear(at(0).socket.fd, table.data(), table.size(), until_s_ + kGreeting_s))
    return io_error(cat("the first process (", how_.address,
                        ") ended before all were there: its own words say why"));
  for (size_t p = 0; p < all_.size(); ++p)
    addresses_[p] = std::string(table.c_str() + p * kMostAddress);
  return {};
}

Status TcpWire::meet() {
  TEGULA_TRY(check_address(how_.address));
  all_.resize(static_cast<size_t>(how_.n_processes));
  addresses_.resize(all_.size());
  until_s_ = steady_seconds() + how_.patience_s;
  if (how_.process == 0) {
    if (how_.listener.fd() < 0) how_.listener = TEGULA_TRY(Listener::at(how_.address));
    TEGULA_TRY(accept_all(1));
    TEGULA_TRY(tell_addresses());
  } else {
    TEGULA_TRY(meet_first());
    for (int64_t p = 1; p < how_.process; ++p) {
      const std::string& address = addresses_[static_cast<size_t>(p)];
      TEGULA_TRY(check_address(address));
      bool has_key = false;
      keep(p, TEGULA_TRY(greet(TEGULA_TRY(reach(address)), address, p, has_key)));
    }
    TEGULA_TRY(accept_all(how_.process + 1));
  }
  how_.listener = Listener();
  for (const Connection& c : all_) {
    if (c.socket.fd < 0) continue;
    const int on = 1;
    ::setsockopt(c.socket.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const int flags = ::fcntl(c.socket.fd, F_GETFL);
    ::fcntl(c.socket.fd, F_SETFL, flags | O_NONBLOCK);
  }
  return {};
}

// As much as the system takes. Whoever has closed may have said why, which is read first.
void TcpWire::flush(Sink& sink, int64_t process) {
  Connection& c = at(process);
  while (!c.queue.empty()) {
    const Frame& f = c.queue.front();
    const size_t head = sizeof f.head;
    iovec parts[2];
    int n = 0;
    if (c.sent_of_first < head)
      parts[n++] = {const_cast<char*>(reinterpret_cast<const char*>(&f.head)) + c.sent_of_first,
                    head - c.sent_of_first};
    const size_t of_body = c.sent_of_first > head ? c.sent_of_first - head : 0;
    if (of_body < f.body.size())
      parts[n++] = {const_cast<uint8_t*>(f.body.data()) + of_body, f.body.size() - of_body};
    msghdr message{};
    message.msg_iov = parts, message.msg_iovlen = static_cast<size_t>(n);
    const ssize_t sent = ::sendmsg(c.socket.fd, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent < 0 && errno != EPIPE && errno != ECONNRESET)
      return lose(sink, process, cat("nothing can be sent to it: ", std::strerror(errno)));
    if (sent < 0) {
      c.takes_nothing = true, c.queue.clear(), c.queued = c.sent_of_first = 0;
      return;
    }
    __atomic_add_fetch(&sent_, sent, __ATOMIC_RELAXED);
    c.sent_of_first += static_cast<size_t>(sent), c.queued -= static_cast<size_t>(sent);
    if (c.sent_of_first < f.wire_bytes()) continue;
    c.queue.pop_front(), c.sent_of_first = 0;
  }
}

void TcpWire::lose(Sink& sink, int64_t process, const std::string& why) {
  Connection& c = at(process);
  c.socket = Socket(), c.queue.clear(), c.queued = c.sent_of_first = 0;
  sink.lost(process, why);
}

void TcpWire::take_all(Sink& sink, int64_t process) {
  Connection& c = at(process);
  for (;;) {
    size_t room = 0;
    uint8_t* to = c.reader.room(room);
    const ssize_t n = ::recv(c.socket.fd, to, room, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) {
      const char* how = n == 0 ? "its connection closed" : std::strerror(errno);
      return lose(sink, process, cat(how, c.reader.left() > 0 ? " amid a frame" : ""));
    }
    c.reader.added(static_cast<size_t>(n));
    Frame::Head head;
    const uint8_t* body = nullptr;
    while (c.reader.next(head, body)) {
      sink.take(process, head, body);
      if (c.socket.fd < 0) return;
    }
    if (c.reader.is_broken()) return lose(sink, process, "it sent what is no frame");
    // Others have their turn.
    if (static_cast<size_t>(n) < room) return;
  }
}

void TcpWire::step(Sink& sink, const Alarm& alarm, int64_t most_ms) {
  std::vector<pollfd> polls = {{alarm.fd(), POLLIN, 0}};
  std::vector<int64_t> who = {-1};
  for (int64_t p = 0; p < how_.n_processes; ++p) {
    Connection& c = at(p);
    if (c.socket.fd < 0) continue;
    flush(sink, p);
    if (c.socket.fd < 0) continue;
    const short out = c.queue.empty() ? 0 : POLLOUT;
    polls.push_back({c.socket.fd, static_cast<short>(POLLIN | out), 0});
    who.push_back(p);
  }
  if (::poll(polls.data(), polls.size(), static_cast<int>(most_ms)) <= 0) return;
  if (polls[0].revents) alarm.clear();
  for (size_t i = 1; i < polls.size(); ++i) {
    Connection& c = at(who[i]);
    if (polls[i].revents & POLLOUT) flush(sink, who[i]);
    if (polls[i].revents & (POLLIN | POLLERR | POLLHUP) && c.socket.fd >= 0) take_all(sink, who[i]);
  }
}

}  // namespace

Listener::~Listener() {
  if (fd_ >= 0) ::close(fd_);
}

Result<Listener> Listener::at(const std::string& address) {
  TEGULA_TRY(check_address(address));
  std::string why;
  const int fd = try_each(address, AI_PASSIVE, why, [](int s, const addrinfo* a) {
    const int on = 1;
    ::setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return ::bind(s, a->ai_addr, a->ai_addrlen) == 0 && ::listen(s, SOMAXCONN) == 0;
  });
  if (fd < 0)
    return io_error(cat("cannot listen at ", address, ": ", why,
                        ": give an address of this host and a port that is free, or port 0 "
                        "(--address 127.0.0.1:0)"));
  return Listener(fd);
}

std::string Listener::address() const { return own_address(fd_).text(); }
uint32_t Listener::port() const {
  if (fd_ < 0) return 0;
  const std::string text = address();
  return static_cast<uint32_t>(std::strtoul(text.c_str() + text.rfind(':') + 1, nullptr, 10));
}

Status check_address(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  const bool is_number = !port.empty() && port.size() <= 5 &&
                         port.find_first_not_of("0123456789") == std::string::npos;
  if (colon != 0 && is_number && std::stoi(port) < 65536) return {};
  return invalid_argument(
      cat("the address '", address, "' is no host and port: write 127.0.0.1:29400"));
}

Result<std::unique_ptr<Wire>> meet_by_tcp(TcpMeeting how) {
  auto wire = std::make_unique<TcpWire>(std::move(how));
  TEGULA_TRY(wire->meet());
  return std::unique_ptr<Wire>(std::move(wire));
}

}  // namespace tegula
