// LinkSpeed: how fast a link from one rank to another is, where it is slowed on purpose.
//
// A message of b bytes occupies its link for latency_s + b / bytes_per_s; each directed pair of
// ranks has one, on which messages queue. So what a network would do to a run is tried on one
// machine, and what is hidden beside kernels is measured.
#pragma once

#include <cstdint>

#include "tegula/base/result.h"

namespace tegula {

struct LinkSpeed {
  double latency_s = 0;
  double bytes_per_s = 0;  // 0: as fast as it is
  bool is_slowed() const { return latency_s > 0 || bytes_per_s > 0; }
  double seconds(int64_t bytes) const {
    return latency_s + (bytes_per_s > 0 ? static_cast<double>(bytes) / bytes_per_s : 0);
  }
};

// TEGULA_COMM_GB_PER_S (1e9 bytes a second) and TEGULA_COMM_LATENCY_US. Error: no number, or one
// that is not above 0 (a latency may be 0).
Result<LinkSpeed> link_speed_of_environment();

}  // namespace tegula
