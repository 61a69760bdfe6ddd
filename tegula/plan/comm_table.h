// CommTable: what collectives took between processes of this machine, by algorithm and size, and
// which is chosen: `tegula bench comm` measures and keeps it, plans read it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/result.h"

namespace tegula {

struct CommRow {
  std::string op, algorithm;
  int64_t ranks = 0, bytes = 0;  // of the whole tensor
  double seconds = 0, fitted_seconds = 0;
  bool chosen = false;           // the fastest that was measured at this size
  bool adds_on_the_way = false;  // a sum then has the algorithm's order
};

class CommTable {
 public:
  explicit CommTable(std::string machine) : machine_(std::move(machine)) {}

  std::vector<CommRow> rows;
  double link_s = 0, link_bytes_per_s = 0;  // a link from one rank to another; 0: not measured

  // The algorithm that was fastest at the measured size next to this one, of those that may be
  // taken. Empty: nothing was measured for so many ranks.
  std::string_view choose(std::string_view op, int64_t ranks, int64_t bytes,
                          bool may_add_on_the_way) const;

  // $DIRECTORY/comm-HASH.json. Errors of reading: cut, altered, of another version or machine; what
  // to do. What an op had before for so many ranks is replaced.
  std::string path(const std::string& directory) const;
  Status save(const std::string& directory) const;
  Status load(const std::string& directory);

 private:
  std::string machine_;
};

}  // namespace tegula
