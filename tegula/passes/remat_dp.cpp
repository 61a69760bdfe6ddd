#include "tegula/passes/remat_dp.h"

#include "tegula/base/algorithm.h"

namespace tegula {

namespace {
struct State {
  int64_t kept = -1;  // -1: not reached
  double seconds = 0;
  int option = -1;    // that led here …
  int from_bin = -1;  // … from this state of its first segment
};
}  // namespace

std::optional<std::vector<int>> choose_remat(std::span<const RematOption> options, int n_segments,
                                             int64_t budget_bytes, int n_bins) {
  if (budget_bytes < 0) return std::nullopt;
  const auto n = static_cast<size_t>(n_segments), bins = static_cast<size_t>(n_bins);
  const double per_byte = static_cast<double>(n_bins - 1) / static_cast<double>(budget_bytes + 1);
  std::vector<State> states((n + 1) * bins);
  states[0].kept = 0;
  std::vector<int> order(options.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return options[a].end < options[b].end; });
  for (int i : order) {
    const RematOption& o = options[i];
    const State* from = &states[static_cast<size_t>(o.begin) * bins];
    State* to = &states[static_cast<size_t>(o.end) * bins];
    for (size_t b = 0; b < bins; ++b) {
      if (from[b].kept < 0) continue;
      const int64_t kept = from[b].kept + o.kept_bytes;
      if (kept + o.working_bytes > budget_bytes) continue;
      const double seconds = from[b].seconds + o.seconds;
      State& s = to[static_cast<size_t>(static_cast<double>(kept) * per_byte)];
      if (s.kept < 0 || seconds < s.seconds || (seconds == s.seconds && kept < s.kept))
        s = {kept, seconds, i, static_cast<int>(b)};
    }
  }
  const State* best = nullptr;
  for (size_t b = 0; b < bins; ++b) {
    const State& s = states[n * bins + b];
    if (s.kept >= 0 && (!best || s.seconds < best->seconds)) best = &s;
  }
  if (!best) return std::nullopt;
  std::vector<int> chosen;
  for (const State* s = best; s->option >= 0;) {
    chosen.push_back(s->option);
    const RematOption& o = options[s->option];
    s = &states[static_cast<size_t>(o.begin) * bins + static_cast<size_t>(s->from_bin)];
  }
  std::reverse(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace tegula
