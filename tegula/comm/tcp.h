// A wire of TCP connections: one between every two processes.
//
// All meet at one address, where the first process listens; it tells each where the others listen,
// and of two the later connects to the earlier. On one host they stay on its loopback.
#pragma once

#include "tegula/base/memory.h"
#include "tegula/comm/wire.h"

namespace tegula {

// A socket that listens; closed where it ends.
class Listener {
 public:
  Listener() = default;
  explicit Listener(int fd) : fd_(fd) {}
  ~Listener();
  Listener(Listener&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Listener& operator=(Listener&& other) noexcept { return std::swap(fd_, other.fd_), *this; }
  // "host:port"; port 0: any that is free. Errors name the address, and what to do.
  static Result<Listener> at(const std::string& address);
  int fd() const { return fd_; }
  // "127.0.0.1:41234"
  std::string address() const;
  uint32_t port() const;

 private:
  int fd_ = -1;
};

struct TcpMeeting {
  int64_t n_processes = 1, process = 0;
  std::string address;  // of the first process
  std::string key;      // the run's secret
  Listener listener;    // of the first process, if it has one already
  double patience_s = 30;
};

// Meets all others. Errors say who is missing or refused, and what to do.
Result<std::unique_ptr<Wire>> meet_by_tcp(TcpMeeting how);

// A number from 1 to 65535 behind the last colon.
Status check_address(const std::string& address);

}  // namespace tegula
