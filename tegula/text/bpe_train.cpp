#include <unordered_map>

#include "tegula/base/algorithm.h"
#include "tegula/text/bpe.h"
#include "tegula/text/pretokenize.h"

namespace tegula {
namespace {

using Pair = std::pair<int32_t, int32_t>;
constexpr uint32_t kNone = UINT32_MAX;

struct PairHash {
  size_t operator()(const Pair& p) const {
    const uint64_t key =
        uint64_t{static_cast<uint32_t>(p.first)} << 32 | static_cast<uint32_t>(p.second);
    const uint64_t mixed = key * 0x9e3779b97f4a7c15;
    return mixed ^ mixed >> 32;
  }
};

// All distinct words laid end to end; each place is a token of a word, linked to its neighbours.
struct Place {
  int32_t id;  // -1 once merged into the place before
  uint32_t before = kNone, after = kNone;
  uint32_t word = 0;
};

struct PairStats {
  int64_t count = 0;                // over the whole text
  std::vector<uint32_t> positions;  // where it stood once; some may be stale
};

struct HeapEntry {
  int64_t count;
  Pair pair;
  // The heap's top: the largest count, then the smallest pair.
  bool operator<(const HeapEntry& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class Trainer {
 public:
  explicit Trainer(std::string_view text) {
    for (int b = 0; b < 256; ++b) {
      vocabulary_.tokens.emplace_back(1, static_cast<char>(b));
      ids_.emplace(vocabulary_.tokens.back(), b);
    }
    lay_out(text);
    for (uint32_t at = 0; at < places_.size(); ++at) count(at, +1);
    for (const auto& [pair, stats] : pairs_) heap_.push_back({stats.count, pair});
    std::make_heap(heap_.begin(), heap_.end());
    touched_ = {};
  }

  BpeVocabulary run(int64_t vocab_size) {
    while (static_cast<int64_t>(vocabulary_.tokens.size()) < vocab_size && !heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      const HeapEntry top = heap_.back();
      heap_.pop_back();
      const auto found = pairs_.find(top.pair);
      if (found == pairs_.end() || found->second.count != top.count) continue;  // stale
      if (top.count < 2) break;
      merge(top.pair);
    }
    return std::move(vocabulary_);
  }

 private:
  void lay_out(std::string_view text) {
    std::unordered_map<std::string_view, uint32_t> word_of;
    while (!text.empty()) {
      const std::string_view word = text.substr(0, first_word(text));
      text.remove_prefix(word.size());
      if (places_.size() + word.size() >= kNone) break;  // 4 GiB of distinct words are enough
      const auto [at, is_new] = word_of.emplace(word, static_cast<uint32_t>(counts_.size()));
      if (!is_new) {
        ++counts_[at->second];
        continue;
      }
      counts_.push_back(1);
      for (size_t i = 0; i < word.size(); ++i) {
        const auto here = static_cast<uint32_t>(places_.size());
        places_.push_back({static_cast<unsigned char>(word[i]), i > 0 ? here - 1 : kNone,
                           i + 1 < word.size() ? here + 1 : kNone, at->second});
      }
    }
  }

  // The pair that begins at `at`, if any, counts `sign` times its word's count more.
  void count(uint32_t at, int sign) {
    if (at == kNone || places_[at].after == kNone) return;
    const Pair pair{places_[at].id, places_[places_[at].after].id};
    PairStats& stats = pairs_[pair];
    stats.count += sign * counts_[places_[at].word];
    if (sign > 0) stats.positions.push_back(at);
    touched_.push_back(pair);
  }

  void merge(const Pair pair) {
    const std::string joined = vocabulary_.tokens[pair.first] + vocabulary_.tokens[pair.second];
    // "a"+"bc" and "ab"+"c" are one token: its name must stand in the vocabulary only once.
    const auto [entry, is_new] =
        ids_.emplace(joined, static_cast<int32_t>(vocabulary_.tokens.size()));
    const int32_t id = entry->second;
    if (is_new) vocabulary_.tokens.push_back(joined);
    vocabulary_.merges.push_back({pair.first, pair.second, id});

    std::vector<uint32_t> positions = std::move(pairs_[pair].positions);
    std::sort(positions.begin(), positions.end());
    for (uint32_t at : positions) {
      const uint32_t next = places_[at].after;
      if (places_[at].id != pair.first || next == kNone || places_[next].id != pair.second)
        continue;
      join(at, next, id);
    }
    pairs_.erase(pair);
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (const Pair& p : touched_) {
      const auto found = pairs_.find(p);
      if (found == pairs_.end()) continue;
      if (found->second.count <= 0) {
        pairs_.erase(found);
        continue;
      }
      heap_.push_back({found->second.count, p});
      std::push_heap(heap_.begin(), heap_.end());
    }
    touched_.clear();
  }

  void join(uint32_t at, uint32_t next, int32_t id) {
    count(places_[at].before, -1);
    count(at, -1);
    count(next, -1);
    places_[at].id = id;
    places_[at].after = places_[next].after;
    places_[next].id = -1;
    if (places_[at].after != kNone) places_[places_[at].after].before = at;
    count(places_[at].before, +1);
    count(at, +1);
  }

  BpeVocabulary vocabulary_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<Place> places_;
  std::vector<int64_t> counts_;  // of each word
  std::unordered_map<Pair, PairStats, PairHash> pairs_;
  std::vector<HeapEntry> heap_;
  std::vector<Pair> touched_;
};

}  // namespace

BpeVocabulary train_bpe(std::string_view text, int64_t vocab_size) {
  return Trainer(text).run(vocab_size);
}

}  // namespace tegula
