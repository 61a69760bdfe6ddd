#include "tegula/plan/placed_by_time.h"

#include "tegula/base/algorithm.h"

namespace tegula {

PlacedByTime::Window::Window(const Lifetime& b, int block)
    : first(b.first / block),
      last(b.last / block),
      full_from((b.first + block - 1) / block),
      full_to(std::max((b.last + 1) / block, full_from)) {}

PlacedByTime::PlacedByTime(int n_steps) : block_(std::max(32, n_steps / 256)) {
  while (leaves_ < n_steps / block_ + 1) leaves_ *= 2;
  any_.resize(static_cast<size_t>(2 * leaves_)), throughout_.resize(any_.size());
  partly_.resize(static_cast<size_t>(leaves_));
}

int64_t PlacedByTime::place(const Lifetime& b, int64_t need) {
  const Window w(b, block_);
  if (!(w == window_) || need < need_) {
    window_ = w, need_ = need;
    find_gaps();
  }
  some_.clear();
  if (!w.covers(w.first)) find_partly(w.first, b);
  const auto middle = static_cast<std::ptrdiff_t>(some_.size());
  if (w.last != w.first && !w.covers(w.last)) find_partly(w.last, b);
  std::inplace_merge(some_.begin(), some_.begin() + middle, some_.end());
  const int64_t at = smallest_gap(need);
  add({1, 0, leaves_}, {at, at + need, b.first, b.last});
  // Then it is in no list of parts, from which the next in this window would know it.
  if (w.covers(w.first) && w.covers(w.last)) window_ = {};
  return at;
}

void PlacedByTime::add_run(Runs& runs, int64_t begin, int64_t end) {
  const auto first = std::partition_point(runs.begin(), runs.end(),
                                          [&](const auto& r) { return r.second < begin; });
  auto last = first;
  for (; last != runs.end() && last->first <= end; ++last)
    begin = std::min(begin, last->first), end = std::max(end, last->second);
  if (first == last) {
    runs.insert(first, {begin, end});
    return;
  }
  *first = {begin, end};
  runs.erase(first + 1, last);
}

// Takes runs out of the gaps, and gaps that are then too small.
void PlacedByTime::cut_gaps(const Runs& taken) {
  cut_.clear();
  const bool is_few = gaps_.size() * 8 < taken.size();
  auto run = taken.begin();
  for (const auto& gap : gaps_) {
    const auto is_below = [&](const auto& r) { return r.second <= gap.first; };
    if (is_few)
      run = std::partition_point(run, taken.end(), is_below);
    else
      while (run != taken.end() && is_below(*run)) ++run;
    int64_t top = gap.first;
    for (; run != taken.end() && run->first < gap.second; ++run) {
      if (run->first - top >= need_) cut_.emplace_back(top, run->first);
      top = run->second;
    }
    if (gap.second - top >= need_) cut_.emplace_back(top, gap.second);
    if (run != taken.begin()) --run;  // it may reach into the next gap
  }
  gaps_.swap(cut_);
}

// The window is that of p's life.
void PlacedByTime::add(const Node& node, const Placed& p) {
  if (node.to <= window_.first || window_.last < node.from) return;
  add_run(any_[node.at], p.begin, p.end);
  if (window_.full_from <= node.from && node.to <= window_.full_to) {
    add_run(throughout_[node.at], p.begin, p.end);
  } else if (node.is_block()) {
    std::vector<Placed>& list = partly_[static_cast<size_t>(node.from)];
    const auto is_lower = [](const Placed& a, const Placed& b) { return a.begin < b.begin; };
    list.insert(std::upper_bound(list.begin(), list.end(), p, is_lower), p);
  } else {
    add(node.left(), p), add(node.right(), p);
  }
}

void PlacedByTime::find_gaps() {
  taken_.clear();
  find({1, 0, leaves_});
  // The fewest runs first: they leave the fewest gaps.
  std::sort(taken_.begin(), taken_.end(),
            [](const Runs* a, const Runs* b) { return a->size() < b->size(); });
  gaps_.assign(1, {0, INT64_MAX});
  for (const Runs* runs : taken_) cut_gaps(*runs);
}

// Notes what is taken throughout the window's ends and at any time between.
void PlacedByTime::find(const Node& node) {
  if (node.to <= window_.first || window_.last < node.from) return;
  if (window_.full_from <= node.from && node.to <= window_.full_to) {
    taken_.push_back(&any_[node.at]);
  } else if (node.is_block()) {
    taken_.push_back(&throughout_[node.at]);
  } else {
    hand_down(node);
    find(node.left()), find(node.right());
  }
}

// Few are put in one by one, many in one pass over both.
void PlacedByTime::add_runs(Runs& runs, const Runs& more) {
  if (more.size() * 8 < runs.size()) {
    for (const auto& [begin, end] : more) add_run(runs, begin, end);
    return;
  }
  cut_.resize(runs.size() + more.size());
  std::merge(runs.begin(), runs.end(), more.begin(), more.end(), cut_.begin());
  runs.clear();
  for (const auto& run : cut_) {
    if (runs.empty() || runs.back().second < run.first)
      runs.push_back(run);
    else
      runs.back().second = std::max(runs.back().second, run.second);
  }
}

void PlacedByTime::hand_down(const Node& node) {
  Runs& runs = throughout_[node.at];
  if (runs.empty()) return;
  for (const size_t child : {node.left().at, node.right().at})
    add_runs(any_[child], runs), add_runs(throughout_[child], runs);
  runs.clear();
}

void PlacedByTime::find_partly(int block, const Lifetime& b) {
  for (const Placed& p : partly_[static_cast<size_t>(block)])
    if (p.first <= b.last && b.first <= p.last) some_.emplace_back(p.begin, p.end);
}

// The smallest of the gaps, less what lives with the buffer in a part of a block.
int64_t PlacedByTime::smallest_gap(int64_t need) {
  int64_t at = 0;
  uint64_t best = UINT64_MAX;  // what is left over: of a gap that is too small, a very large number
  const auto meet = [&](int64_t begin, int64_t end) {
    const auto rest = static_cast<uint64_t>(end - begin - need);
    if (rest < best) best = rest, at = begin;
  };
  some_.emplace_back(INT64_MAX, INT64_MAX);
  auto run = some_.begin();
  for (const auto& [begin, end] : gaps_) {
    int64_t top = begin;
    if (run->first < end) {
      while (run->second <= begin) ++run;
      for (auto r = run; r->first < end; ++r) {
        meet(top, r->first);
        top = std::max(top, r->second);
      }
    }
    meet(top, end);
  }
  return at;
}

}  // namespace tegula
