#include "tegula/kernels/cuda/launch_list.h"

#include <cstring>

#include "tegula/base/round.h"

namespace tegula::cuda {

void LaunchList::add(FunctionHandle f, const Grid& grid, const char* what,
                     std::span<const LaunchArgument> arguments) {
  TEGULA_CHECK(arguments.size() <= kMostArguments, what, ": ", arguments.size(), " arguments");
  Entry e;
  e.function = f, e.grid = grid, e.what = what;
  e.first = arguments_.size(), e.n = arguments.size();
  for (const LaunchArgument& a : arguments) {
    const size_t line = lines_.size();
    arguments_.push_back(line);
    lines_.resize(line + ceil_div(a.bytes, sizeof(Line)));
    std::memcpy(&lines_[line], a.data, a.bytes);
  }
  entries_.push_back(e);
}

void LaunchList::add_fill(void* to, uint8_t value, int64_t bytes) {
  Entry e;
  e.to = to, e.value = value, e.bytes = bytes;
  entries_.push_back(e);
}

void LaunchList::append(const LaunchList& more) {
  const size_t first_argument = arguments_.size(), first_line = lines_.size();
  for (Entry e : more.entries_) {
    e.first += first_argument;
    entries_.push_back(e);
  }
  for (const size_t line : more.arguments_) arguments_.push_back(first_line + line);
  lines_.insert(lines_.end(), more.lines_.begin(), more.lines_.end());
}

Status LaunchList::enqueue(StreamHandle stream) const {
  const Driver* d = TEGULA_TRY(Driver::get());
  for (const Entry& e : entries_) {
    if (e.function == nullptr) {
      TEGULA_TRY(d->start_fill(e.to, e.value, e.bytes, stream));
      continue;
    }
    LaunchArgument arguments[kMostArguments];
    for (size_t i = 0; i < e.n; ++i) arguments[i] = {&lines_[arguments_[e.first + i]], 0};
    TEGULA_TRY(d->start_with(e.function, e.grid, stream, e.what, {arguments, e.n}));
  }
  return {};
}

}  // namespace tegula::cuda
