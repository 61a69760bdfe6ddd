// LaunchList: launches and fills put down with their arguments, to be enqueued as often as wanted.
#pragma once

#include <vector>

#include "tegula/kernels/cuda/driver.h"

namespace tegula::cuda {

class LaunchList {
 public:
  void add(FunctionHandle f, const Grid& grid, const char* what,
           std::span<const LaunchArgument> arguments);
  void add_fill(void* to, uint8_t value, int64_t bytes);
  void append(const LaunchList& more);
  // In the order in which they were added; after an error the rest is left out.
  Status enqueue(StreamHandle stream) const;
  size_t size() const { return entries_.size(); }
  // A kernel's launch: its grid and where its first argument lies.
  const Grid& grid(size_t i) const { return entries_[i].grid; }
  const void* argument(size_t i) const { return &lines_[arguments_[entries_[i].first]]; }

 private:
  static constexpr size_t kMostArguments = 16;
  struct Entry {
    FunctionHandle function = nullptr;  // null: a fill
    Grid grid;
    const char* what = nullptr;
    size_t first = 0, n = 0;  // of arguments_
    void* to = nullptr;
    uint8_t value = 0;
    int64_t bytes = 0;
  };
  struct alignas(64) Line {  // tensor maps are aligned so
    unsigned char bytes[64];
  };
  std::vector<Entry> entries_;
  std::vector<size_t> arguments_;  // the first line of each
  std::vector<Line> lines_;
};

}  // namespace tegula::cuda
