// The outer loops of a contraction on panels: what is packed at once, and its tasks.
#pragma once

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/contraction.h"
#include "tegula/kernels/cpu/common/dot_plan.h"
#include "tegula/kernels/kernel.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// The panels at hand: batches [batch0, batch0 + batch), rows [m0, m0 + m), columns [n0, n0 + n).
struct Held {
  int64_t batch0, batch, m0, m, n0, n;
};
struct Task {
  int64_t batch, m0, m, n0, n;    // relative to Held
  int64_t part = 0, n_parts = 1;  // of those in turn that have these rows
};

template <class Blocks, class F>
static void for_each_held(const Contraction& c, const Blocks& blocks, F f) {
  Held h{};
  for (h.batch0 = 0; h.batch0 < c.batch.count; h.batch0 += blocks.batch) {
    h.batch = std::min(blocks.batch, c.batch.count - h.batch0);
    for (h.m0 = 0; h.m0 < c.m.count; h.m0 += blocks.m) {
      h.m = std::min(blocks.m, c.m.count - h.m0);
      for (h.n0 = 0; h.n0 < c.n.count; h.n0 += blocks.n) {
        h.n = std::min(blocks.n, c.n.count - h.n0);
        f(h);
      }
    }
  }
}

// Part i of n of `extent`, cut at multiples of a strip into parts that differ by one strip at most.
static inline void cut_evenly(int64_t extent, int64_t strip, int64_t i, int64_t n, int64_t* begin,
                              int64_t* count) {
  const int64_t strips = ceil_div(extent, strip);
  *begin = i * strips / n * strip;
  *count = std::min((i + 1) * strips / n * strip, extent) - *begin;
}

// Task i; neighbours lie along rows of the output, or along columns.
template <class Blocks>
static Task task_at(const Held& h, const Blocks& blocks, bool along_rows, int64_t i) {
  const int64_t m_tasks = blocks.m_tasks(h.m), n_tasks = blocks.n_tasks(h.n);
  Task t;
  t.batch = i / (m_tasks * n_tasks);
  const int64_t at = i % (m_tasks * n_tasks);
  const int64_t m_at = along_rows ? at / n_tasks : at % m_tasks;
  const int64_t n_at = along_rows ? at % n_tasks : at / m_tasks;
  cut_evenly(h.m, blocks.strip_m, m_at, m_tasks, &t.m0, &t.m);
  cut_evenly(h.n, blocks.strip_n, n_at, n_tasks, &t.n0, &t.n);
  return t;
}

// Calls f(task, thread) on the pool.
template <class Blocks, class F>
static void for_each_task(ThreadPool& pool, const Held& h, const Blocks& blocks, bool along_rows,
                          F f) {
  const int64_t tasks = h.batch * blocks.m_tasks(h.m) * blocks.n_tasks(h.n);
  pool.parallel_for(tasks,
                    [&](int64_t i, int thread) { f(task_at(h, blocks, along_rows, i), thread); });
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
