#include "tegula/kernels/cpu/common/grid_tasks.h"

#include <atomic>
#include <thread>

#include "tegula/base/algorithm.h"

namespace tegula::kernel {

namespace {
constexpr int64_t kStates = kMostGridColumns + 1;  // of a grid: its place, its columns
constexpr int64_t kSpins = 100;

// The state of a column: twice the rows that are done, and 1 while somebody is at the next one.
std::atomic_ref<int32_t> state(int32_t* states, int64_t grid, int64_t column) {
  return std::atomic_ref<int32_t>(states[grid * kStates + 1 + column]);
}
}  // namespace

GridColumns::GridColumns(int64_t grids, int64_t blocks, int64_t threads, int64_t most) {
  wide = threads == 1 ? blocks : std::clamp<int64_t>(blocks * grids / (2 * threads), 1, most);
  wide = std::max({wide, (blocks + kMostGridColumns - 1) / kMostGridColumns, int64_t{1}});
  n = std::max<int64_t>(1, (blocks + wide - 1) / wide);
}

GridTasks::GridTasks(int32_t* states, int64_t grids, int64_t rows, int64_t columns)
    : states_(states), grids_(grids), rows_(rows), columns_(columns) {
  for (int64_t g = 0; g < grids; ++g)
    for (int64_t c = 0; c < columns; ++c)
      state(states_, g, c).store(c == 0, std::memory_order_relaxed);
}

void GridTasks::work(int64_t place, Run run, const void* fn) {
  int64_t first = 0;  // all grids before it are done, and stay so
  for (;;) {
    const int64_t own = std::atomic_ref<int64_t>(next_).fetch_add(1, std::memory_order_relaxed);
    const bool has_own = own < grids_;
    if (has_own) {
      states_[own * kStates] = static_cast<int32_t>(place);
      state(states_, own, 0).store(0, std::memory_order_release);
    }
    Task t{.grid = has_own ? own : place % std::max<int64_t>(1, grids_), .column = columns_};
    for (int64_t spin = 0;;) {
      while (first < grids_ && is_done(first)) ++first;
      if (has_own ? is_done(own) : first == grids_) break;
      if (take_next(first, t)) {
        run(fn, t);
        state(states_, t.grid, t.column)
            .store(static_cast<int32_t>(2 * t.row + 2), std::memory_order_release);
        spin = 0;
      } else if (++spin > kSpins) {
        std::this_thread::yield();
      }
    }
    if (!has_own) return;
  }
}

bool GridTasks::is_done(int64_t grid) const {
  return state(states_, grid, columns_ - 1).load(std::memory_order_acquire) >= 2 * rows_;
}

// The task after t: in its row, if possible, else far to the right, where a long chain may end;
// of the grids that are begun and not known to be done, from `first` on, in t's, if it is one.
bool GridTasks::take_next(int64_t first, Task& t) {
  if (take(t.grid, t.column + 1, t)) return true;
  const int64_t begun = std::atomic_ref<int64_t>(next_).load(std::memory_order_relaxed);
  const int64_t open = std::min(begun, grids_) - first;
  const int64_t from = std::max(t.grid - first, int64_t{0});
  for (int64_t i = 0; i < open; ++i)
    for (int64_t c = columns_ - 1; c >= 0; --c)
      if (take(first + (from + i) % open, c, t)) return true;
  return false;
}

bool GridTasks::take(int64_t grid, int64_t column, Task& t) {
  if (column >= columns_) return false;
  int32_t now = state(states_, grid, column).load(std::memory_order_acquire);
  if (now % 2 != 0 || now >= 2 * rows_) return false;
  if (column > 0 && state(states_, grid, column - 1).load(std::memory_order_acquire) / 2 <= now / 2)
    return false;
  if (!state(states_, grid, column)
           .compare_exchange_strong(now, now + 1, std::memory_order_acq_rel))
    return false;
  t = {grid, states_[grid * kStates], now / 2, column};
  return true;
}

}  // namespace tegula::kernel
