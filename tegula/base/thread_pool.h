// A fixed pool of threads that share out the indices of a loop.
//
// Results never depend on the number of threads: a chunk's work is a function of its index alone,
// and no chunk reads what another writes. Each thread begins with a run of neighbouring indices of
// its own, the same part of every loop, so that what one loop wrote is still in the cache of the
// core that needs it in the next; then it helps the others. Workers wait on a futex after a short
// spin, so an idle pool costs nothing to other processes.
#pragma once

#include <cstdint>
#include <type_traits>

namespace tegula {

// Those that this process may use.
int usable_cores();

class ThreadPool {
 public:
  // n_threads counts the caller; 0 means one per core that this process may use.
  explicit ThreadPool(int n_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const { return n_threads_; }

  // How many elements a task is to have where a kernel usually takes so many: in a pool of a test,
  // at most `largest`, so that small tensors reach more than one task. Never a matter of bits.
  int64_t grain(int64_t usual) const { return usual < largest_grain_ ? usual : largest_grain_; }
  void limit_grain(int64_t largest) { largest_grain_ = largest; }
  // The most indices that a loop had since the last call.
  int64_t take_most_indices() {
    const int64_t most = most_indices_;
    most_indices_ = 0;
    return most;
  }

  // Calls fn(i, thread) for every i in [0, n), in any order; thread in [0, n_threads()) says which
  // thread runs it, for per-thread scratch. Returns when all are done. Not reentrant: a call from
  // inside fn runs inline on the calling thread. Allocates nothing.
  template <class F>
  void parallel_for(int64_t n, F&& fn) {
    run(
        n, [](void* f, int64_t i, int t) { (*static_cast<std::remove_reference_t<F>*>(f))(i, t); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using Body = void (*)(void* fn, int64_t index, int thread);
  struct Workers;  // <thread> and <atomic> take longer to parse than a kernel to compile
  void run(int64_t n, Body body, void* fn);

  int n_threads_;
  bool busy_ = false;
  int64_t largest_grain_ = INT64_MAX, most_indices_ = 0;
  Workers* workers_;  // owned
};

}  // namespace tegula
