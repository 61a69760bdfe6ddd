#include "tegula/io/bpe.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/result.h"

namespace tegula {
namespace {

// Beyond this many distinct words in one call a word is encoded each time it comes.
constexpr size_t kMaxCachedWords = size_t{1} << 20;

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

size_t mix(uint64_t key) {
  key *= 0x9e3779b97f4a7c15;
  return key ^ key >> 32;
}

// A merge that could be applied at `position`; the heap gives the earliest learnt, then leftmost.
struct Candidate {
  int32_t rank;
  uint32_t position;
  int32_t left, right, id;
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

// A token of the word, in a doubly linked list; id -1 once merged away.
struct Node {
  int32_t id;
  uint32_t before, after;
};
constexpr uint32_t kNone = UINT32_MAX;

}  // namespace

BpeEncoder::BpeEncoder(std::span<const BpeMerge> merges, const std::array<int32_t, 256>& byte_ids,
                       FirstWord cut)
    : byte_ids_(byte_ids), cut_(cut) {
  size_t n_slots = 16;
  while (n_slots < merges.size() * 2) n_slots *= 2;
  slots_.resize(n_slots);
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t key = pair_key(merges[rank].left, merges[rank].right);
    size_t at = mix(key) & (n_slots - 1);
    while (slots_[at].pair != UINT64_MAX && slots_[at].pair != key) at = (at + 1) & (n_slots - 1);
    // A pair that is listed twice has the rank of its last line, as in other readers.
    slots_[at] = {key, static_cast<int32_t>(rank), merges[rank].id};
  }
}

const BpeEncoder::Slot* BpeEncoder::find(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  for (size_t at = mix(key) & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].pair == key) return &slots_[at];
    if (slots_[at].pair == UINT64_MAX) return nullptr;
  }
}

void BpeEncoder::encode_word(std::string_view word, std::vector<int32_t>& out) const {
  TEGULA_CHECK(word.size() < kNone, "a word of 4 GiB");
  if (!whole_.empty())
    if (const auto at = whole_.find(std::string(word)); at != whole_.end()) {
      out.push_back(at->second);
      return;
    }
  std::vector<Node> nodes(word.size());
  for (uint32_t i = 0; i < nodes.size(); ++i)
    nodes[i] = {byte_ids_[static_cast<unsigned char>(word[i])], i - 1, i + 1};
  if (nodes.empty()) return;
  nodes.back().after = kNone;

  std::vector<Candidate> heap;
  const auto consider = [&](uint32_t position) {
    const uint32_t next = position == kNone ? kNone : nodes[position].after;
    if (next == kNone) return false;
    const Slot* slot = find(nodes[position].id, nodes[next].id);
    if (slot == nullptr) return false;
    heap.push_back({slot->rank, position, nodes[position].id, nodes[next].id, slot->id});
    return true;
  };
  for (uint32_t i = 0; i < nodes.size(); ++i) consider(i);
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate c = heap.back();
    heap.pop_back();
    Node& node = nodes[c.position];
    if (node.id != c.left || node.after == kNone || nodes[node.after].id != c.right) continue;
    Node& gone = nodes[node.after];
    node.id = c.id;
    node.after = gone.after;
    gone.id = -1;
    if (node.after != kNone) nodes[node.after].before = c.position;
    if (consider(node.before)) std::push_heap(heap.begin(), heap.end());
    if (consider(c.position)) std::push_heap(heap.begin(), heap.end());
  }
  for (uint32_t i = 0; i != kNone; i = nodes[i].after) out.push_back(nodes[i].id);
}

void BpeEncoder::encode(std::string_view text, std::vector<int32_t>& out) const {
  struct Span {
    size_t begin, n;
  };
  // A word's ids are copied from its first appearance in the output.
  std::unordered_map<std::string_view, Span> cache;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, cut_(text));
    text.remove_prefix(word.size());
    if (const auto hit = cache.find(word); hit != cache.end()) {
      for (size_t i = 0; i < hit->second.n; ++i) out.push_back(out[hit->second.begin + i]);
      continue;
    }
    const size_t begin = out.size();
    encode_word(word, out);
    if (cache.size() < kMaxCachedWords) cache.emplace(word, Span{begin, out.size() - begin});
  }
}

}  // namespace tegula
