// Grids of tasks (row, column), each of which comes after the one above it and the one to its left.
//
// A thread takes a grid that nobody has begun and does it row by row; where none is left it does
// what is ready in the others'. There are no barriers: of 16 cores some may be half as fast as
// others, and all end together nevertheless. Which thread does a task differs from run to run; what
// came before it does not.
#pragma once

#include <cstdint>

namespace tegula::kernel {

inline constexpr int64_t kMostGridColumns = 64;

// How the `blocks` of a grid's row fall into n columns of `wide` blocks: few enough that all
// threads find something to do, and so many, up to `most`, that a row, which a helper loads anew,
// costs little.
struct GridColumns {
  int64_t wide, n;
  GridColumns(int64_t grids, int64_t blocks, int64_t threads, int64_t most);
};

class GridTasks {
 public:
  // `place`: which of the threads' memory a grid has.
  struct Task {
    int64_t grid = 0, place = 0, row = 0, column = 0;
  };

  static int64_t state_ints(int64_t grids) { return grids * (kMostGridColumns + 1); }
  GridTasks(int32_t* states, int64_t grids, int64_t rows, int64_t columns);

  // A thread's part of all grids: run(task) for some tasks. Each place at most once at a time.
  template <class F>
  void work(int64_t place, const F& run) {
    work(
        place, [](const void* f, const Task& t) { (*static_cast<const F*>(f))(t); }, &run);
  }

 private:
  using Run = void (*)(const void* fn, const Task& task);

  void work(int64_t place, Run run, const void* fn);
  bool is_done(int64_t grid) const;
  bool take_next(int64_t first, Task& t);
  bool take(int64_t grid, int64_t column, Task& t);

  int32_t* const states_;
  const int64_t grids_, rows_, columns_;
  int64_t next_ = 0;  // a grid that nobody has begun; atomic
};

}  // namespace tegula::kernel
