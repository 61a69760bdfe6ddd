#include "tegula/plan/memory.h"

#include <iterator>
#include <numeric>

#include "tegula/base/algorithm.h"
#include "tegula/plan/placed_by_time.h"

namespace tegula {

namespace {

int64_t rounded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// The smallest gap that fits among those placed with an overlapping lifetime; ties: lowest. They
// are sorted by offset, so that gaps are found in one walk.
int64_t best_gap(const std::vector<Placed>& placed, const Lifetime& b, int64_t need) {
  int64_t top = 0, best = -1, best_size = INT64_MAX;
  for (const Placed& p : placed) {
    if (p.last < b.first || b.last < p.first) continue;
    if (p.begin > top) {
      const int64_t gap = p.begin - top;
      if (gap == need) return top;
      if (gap > need && gap < best_size) best = top, best_size = gap;
    }
    top = std::max(top, p.end);
  }
  return best >= 0 ? best : top;
}

// From so many buffers on that is faster than a walk over all.
constexpr size_t kManyBuffers = 1000;
// For more, one order is enough: it has come within .2 % of the bound.
constexpr size_t kVeryManyBuffers = 8192;

Layout place_many(std::span<const Lifetime> buffers, const std::vector<uint32_t>& order) {
  Layout layout;
  layout.offsets.assign(buffers.size(), 0);
  int n_steps = 1;
  for (const Lifetime& b : buffers) n_steps = std::max(n_steps, b.last + 1);
  PlacedByTime placed(n_steps);
  for (uint32_t i : order) {
    const int64_t need = rounded(buffers[i].bytes);
    if (need == 0) continue;
    const int64_t at = placed.place(buffers[i], need);
    layout.offsets[i] = at;
    layout.bytes = std::max(layout.bytes, at + need);
  }
  return layout;
}

Layout place(std::span<const Lifetime> buffers, const std::vector<uint32_t>& order) {
  if (buffers.size() >= kManyBuffers) return place_many(buffers, order);
  Layout layout;
  layout.offsets.assign(buffers.size(), 0);
  std::vector<Placed> placed;
  placed.reserve(buffers.size());
  for (uint32_t i : order) {
    const int64_t need = rounded(buffers[i].bytes);
    if (need == 0) continue;
    const int64_t at = best_gap(placed, buffers[i], need);
    layout.offsets[i] = at;
    layout.bytes = std::max(layout.bytes, at + need);
    const Placed p{at, at + need, buffers[i].first, buffers[i].last};
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), p,
                         [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
        p);
  }
  return layout;
}

// Whoever lies at the top gets a place before all others; repeated while it does not hurt.
void raise_peaks(std::span<const Lifetime> buffers, int64_t bound, Layout& best,
                 std::vector<uint32_t>& order) {
  const auto n = static_cast<int64_t>(buffers.size());
  const int64_t rounds = std::clamp<int64_t>(3'000'000 / (n * n + 1), 2, 100);
  for (int64_t r = 0; r < rounds && best.bytes > bound; ++r) {
    std::vector<uint32_t> next;
    const auto is_at_top = [&](uint32_t i) {
      return buffers[i].bytes > 0 && best.offsets[i] + rounded(buffers[i].bytes) == best.bytes;
    };
    std::copy_if(order.begin(), order.end(), std::back_inserter(next), is_at_top);
    std::remove_copy_if(order.begin(), order.end(), std::back_inserter(next), is_at_top);
    Layout l = place(buffers, next);
    if (l.bytes > best.bytes) {
      // A step up now and then leaves a local optimum; the best stays.
      order = std::move(next);
      continue;
    }
    order = std::move(next), best = std::move(l);
  }
}

// Depth-first over placement orders, each buffer at its lowest feasible offset; pruned by the best
// found. For the few buffers of an inference chain or a small model only.
struct Search {
  std::span<const Lifetime> buffers;
  Layout best;
  int64_t bound;
  int64_t visits = 0;
  std::vector<int64_t> offsets;
  std::vector<bool> used;

  void go(size_t depth, int64_t top) {
    if (best.bytes <= bound || ++visits > 20000) return;
    if (depth == buffers.size()) {
      if (top < best.bytes) best.bytes = top, best.offsets = offsets;
      return;
    }
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (used[i]) continue;
      int64_t at = 0;
      bool moved = true;
      while (moved) {
        moved = false;
        for (size_t j = 0; j < buffers.size(); ++j) {
          if (!used[j] || buffers[j].last < buffers[i].first || buffers[i].last < buffers[j].first)
            continue;
          const int64_t end = offsets[j] + rounded(buffers[j].bytes);
          if (at < end && offsets[j] < at + rounded(buffers[i].bytes)) at = end, moved = true;
        }
      }
      const int64_t end = at + rounded(buffers[i].bytes);
      if (std::max(top, end) >= best.bytes) continue;
      used[i] = true, offsets[i] = at;
      go(depth + 1, std::max(top, end));
      used[i] = false;
    }
  }
};

}  // namespace

int64_t live_lower_bound(std::span<const Lifetime> buffers) {
  int last = 0;
  for (const Lifetime& b : buffers) last = std::max(last, b.last);
  std::vector<int64_t> delta(static_cast<size_t>(last) + 2, 0);
  for (const Lifetime& b : buffers) {
    delta[static_cast<size_t>(b.first)] += rounded(b.bytes);
    delta[static_cast<size_t>(b.last) + 1] -= rounded(b.bytes);
  }
  int64_t live = 0, bound = 0;
  for (int64_t d : delta) bound = std::max(bound, live += d);
  return bound;
}

Layout plan_offsets_by_size(std::span<const Lifetime> buffers) {
  Layout layout;
  layout.offsets.assign(buffers.size(), 0);
  layout.lower_bound = live_lower_bound(buffers);
  std::vector<uint32_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const int64_t x = rounded(buffers[a].bytes), y = rounded(buffers[b].bytes);
    return x != y ? x > y : buffers[a].first < buffers[b].first;
  });
  // Places of one size by when they become free, soonest first.
  using Place = std::pair<int, int64_t>;  // the last step that uses it, offset
  const auto later = [](const Place& a, const Place& b) { return a.first > b.first; };
  std::vector<Place> places;
  int64_t size = -1;
  for (uint32_t i : order) {
    const int64_t need = rounded(buffers[i].bytes);
    if (need == 0) continue;
    if (need != size) places.clear(), size = need;
    int64_t at = layout.bytes;
    if (!places.empty() && places.front().first < buffers[i].first) {
      at = places.front().second;
      std::pop_heap(places.begin(), places.end(), later);
      places.pop_back();
    } else {
      layout.bytes += need;
    }
    layout.offsets[i] = at;
    places.emplace_back(buffers[i].last, at);
    std::push_heap(places.begin(), places.end(), later);
  }
  return layout;
}

Layout plan_offsets(std::span<const Lifetime> buffers) {
  const int64_t bound = live_lower_bound(buffers);
  std::vector<uint32_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0u);
  auto span = [&](uint32_t i) { return int64_t{buffers[i].last} - buffers[i].first + 1; };
  Layout best;
  best.bytes = INT64_MAX;
  std::vector<uint32_t> best_order;
  auto attempt = [&](auto&& before) {
    if (best.bytes <= bound) return;
    std::stable_sort(order.begin(), order.end(), before);
    Layout l = place(buffers, order);
    if (l.bytes < best.bytes) best = std::move(l), best_order = order;
  };
  attempt([&](uint32_t a, uint32_t b) { return buffers[a].bytes > buffers[b].bytes; });
  if (buffers.size() >= kVeryManyBuffers) {
    best.lower_bound = bound;
    return best;
  }
  attempt([&](uint32_t a, uint32_t b) {
    return buffers[a].bytes * span(a) > buffers[b].bytes * span(b);
  });
  attempt([&](uint32_t a, uint32_t b) { return buffers[a].first < buffers[b].first; });
  attempt([&](uint32_t a, uint32_t b) { return span(a) > span(b); });
  raise_peaks(buffers, bound, best, best_order);
  if (best.bytes > bound && buffers.size() <= 40) {
    Search s{buffers,
             best,
             bound,
             0,
             std::vector<int64_t>(buffers.size(), 0),
             std::vector<bool>(buffers.size(), false)};
    s.go(0, 0);
    best = std::move(s.best);
  }
  best.lower_bound = bound;
  return best;
}

}  // namespace tegula
