#include "tegula/text/unigram.h"

#include "tegula/base/algorithm.h"
#include "tegula/io/utf8.h"

namespace tegula {

PieceTree::PieceTree(std::span<const UnigramPiece> pieces) {
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < pieces.size(); ++i)
    if (!pieces[i].text.empty()) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return pieces[a].text < pieces[b].text; });
  struct Node {  // whose pieces are order[begin, end), alike in their first n_bytes
    size_t begin, end, n_bytes;
  };
  std::vector<Node> nodes = {{0, order.size(), 0}};
  bytes_.push_back(0);
  for (size_t n = 0; n < nodes.size(); ++n) {
    auto [begin, end, n_bytes] = nodes[n];
    first_.push_back(static_cast<uint32_t>(nodes.size()));
    int32_t piece = -1;
    for (; begin < end && pieces[order[begin]].text.size() == n_bytes; ++begin)
      piece = static_cast<int32_t>(order[begin]);  // of several the last
    pieces_.push_back(piece);
    while (begin < end) {
      const char byte = pieces[order[begin]].text[n_bytes];
      size_t stop = begin;
      while (stop < end && pieces[order[stop]].text[n_bytes] == byte) ++stop;
      nodes.push_back({begin, stop, n_bytes + 1});
      bytes_.push_back(static_cast<uint8_t>(byte));
      begin = stop;
    }
  }
  first_.push_back(static_cast<uint32_t>(nodes.size()));
}

uint32_t PieceTree::child(uint32_t node, char byte) const {
  const auto begin = bytes_.begin() + first_[node], end = bytes_.begin() + first_[node + 1];
  const auto at = std::lower_bound(begin, end, static_cast<uint8_t>(byte));
  if (at == end || *at != static_cast<uint8_t>(byte)) return kNone;
  return static_cast<uint32_t>(at - bytes_.begin());
}

UnigramEncoder::UnigramEncoder(std::span<const UnigramPiece> pieces, const Options& options)
    : tree_(pieces), options_(options) {
  for (const UnigramPiece& p : pieces) scores_.push_back(p.score), ids_.push_back(p.id);
}

Status UnigramEncoder::put_unknown(std::string_view text, std::vector<int32_t>& ids) const {
  const auto id_of = [&](char b) { return options_.bytes[static_cast<unsigned char>(b)]; };
  if (std::all_of(text.begin(), text.end(), [&](char b) { return id_of(b) >= 0; })) {
    for (const char b : text) ids.push_back(id_of(b));
    return {};
  }
  if (options_.unknown < 0)
    return invalid_argument(
        cat("the tokenizer has no token for '", text, "', nor one for what is unknown"));
  ids.push_back(options_.unknown);
  return {};
}

Status UnigramEncoder::encode(std::string_view text, Scratch& best,
                              std::vector<int32_t>& ids) const {
  constexpr size_t kNowhere = SIZE_MAX;
  constexpr double kPenalty = 10;
  best.assign(text.size() + 1, {0, kNowhere, -1});
  const auto reach = [&](size_t end, double score, size_t start, int32_t piece) {
    Step& s = best[end];
    if (options_.sums_f32) score = static_cast<float>(score);
    if (s.start == kNowhere || score > s.score) s = {score, start, piece};
  };
  double unknown = options_.smallest - kPenalty;
  if (options_.sums_f32) unknown = static_cast<float>(unknown);
  for (size_t start = 0; start < text.size();) {
    const double so_far = best[start].score;
    const size_t n = first_code_point(text.substr(start)).n_bytes;
    bool is_known = false;
    uint32_t node = 0;
    for (size_t end = start; end < text.size();) {
      node = tree_.child(node, text[end++]);
      if (node == PieceTree::kNone) break;
      const int32_t piece = tree_.piece(node);
      if (piece < 0) continue;
      reach(end, so_far + scores_[piece], start, piece);
      is_known = is_known || end - start == n;
    }
    if (!is_known) reach(start + n, so_far + unknown, start, -1);
    start += n;
  }
  const size_t from = ids.size();
  std::vector<Step> path;
  for (size_t end = text.size(); end > 0; end = best[end].start)
    path.push_back({static_cast<double>(end), best[end].start, best[end].piece});
  const auto id_of = [&](const Step& s) { return s.piece < 0 ? options_.unknown : ids_[s.piece]; };
  for (size_t i = path.size(); i > 0;) {
    const Step& s = path[--i];
    const bool is_last_of_run = i == 0 || id_of(path[i - 1]) != options_.unknown;
    if (s.piece >= 0 && (id_of(s) != options_.unknown || is_last_of_run)) {
      ids.push_back(id_of(s));
      continue;
    }
    while (i > 0 && id_of(path[i - 1]) == options_.unknown) --i;  // unknown ones in a row are one
    const size_t end = i > 0 ? path[i - 1].start : text.size();
    if (Status st = put_unknown(text.substr(s.start, end - s.start), ids); !st.ok()) {
      ids.resize(from);
      return st;
    }
  }
  return {};
}

}  // namespace tegula
