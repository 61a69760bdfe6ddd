#include "tegula/train/deal.h"

#include "tegula/base/position_runs.h"
#include "tegula/base/range.h"

namespace tegula {

namespace {
int64_t ranks_of_cp(const TrainConfig& c) {
  const int cp = c.mesh.find("cp");
  return cp < 0 ? 1 : c.mesh.axes[static_cast<size_t>(cp)].size;
}
}  // namespace

std::string why_not_dealt(const TrainConfig& c) {
  const int64_t n = ranks_of_cp(c), s = c.row_length();
  if (n == 1 || c.ring == "contiguous") return {};
  if (c.mode == "exact") return "mode exact sums over a row in order";
  if (c.model.dropout > 0) return "dropout goes by a token's place";
  if (const auto model = find_model(c.model.type); model.ok()) {
    if ((*model)->sees_ahead) return "each token sees all, so that all ranks have as much to do";
    if ((*model)->has_state) return cat(c.model.type, " carries a state from token to token");
    if (any_of((*model)->fields, [](const Field& f) { return f.setting == &setting::kExperts; }))
      return "experts have room for tokens by their place";
  }
  if (c.ring == "zigzag" && s % (2 * n) != 0)
    return cat("a zigzag over ", n, " ranks has ", 2 * n, " equal pieces, and --seqlen is ", s);
  return {};
}

std::vector<int64_t> dealt_order(const TrainConfig& c) {
  const int64_t n = ranks_of_cp(c), s = c.row_length();
  if (n == 1 || c.ring == "contiguous" || !why_not_dealt(c).empty()) return {};
  std::vector<int64_t> order;
  for (int64_t r = 0; r < n; ++r) {
    if (c.ring == "striped") {
      order.insert(order.end(), {r, n, s / n});
      continue;
    }
    const int64_t piece = s / (2 * n);
    order.insert(order.end(), {r * piece, 1, piece, s - (r + 1) * piece, 1, piece});
  }
  return order;
}

void deal(std::span<const int64_t> order, std::vector<int32_t>& rows) {
  if (order.empty()) return;
  const PositionRuns runs = PositionRuns::of(order);
  const int64_t s = runs.count();
  std::vector<int32_t> dealt(rows.size());
  for (size_t row = 0; row < rows.size(); row += static_cast<size_t>(s))
    for (int64_t i = 0; i < s; ++i)
      dealt[row + static_cast<size_t>(i)] = rows[row + static_cast<size_t>(runs.at(i))];
  rows.swap(dealt);
}

}  // namespace tegula
