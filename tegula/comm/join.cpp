#include "tegula/comm/join.h"

#include <cstdlib>

#include "tegula/comm/greeting.h"

namespace tegula {

Status meet_apart(Segment& segment, Listener listener) {
  const char *address = std::getenv(kAddressVariable), *key = std::getenv(kKeyVariable);
  if (!address || !*address)
    return invalid_argument(cat("processes meet over TCP at an address, and none is said: set ",
                                kAddressVariable, " to a host and port of the first process ",
                                "(node01:29400) for all"));
  if (!key || !*key)
    return invalid_argument(cat("processes that meet at ", address, " know one another by a key, ",
                                "and none is said: set ", kKeyVariable,
                                " to one secret for all (openssl rand -hex 16)"));
  TcpMeeting how{segment.n_processes(), segment.process(), address, key, std::move(listener)};
  ::unsetenv(kKeyVariable);
  return segment.connect(
      [](void* context) { return meet_by_tcp(std::move(*static_cast<TcpMeeting*>(context))); },
      &how);
}

}  // namespace tegula
