#include "tegula/text/bpe.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/result.h"

namespace tegula {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

size_t mix(uint64_t key) {
  key *= 0x9e3779b97f4a7c15;
  return key ^ key >> 32;
}

// Of the merges that could be applied the heap gives the earliest learnt, then the leftmost.
bool comes_later(const BpeEncoder::Candidate& a, const BpeEncoder::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

constexpr uint32_t kNone = UINT32_MAX;

}  // namespace

BpeEncoder::BpeEncoder(std::span<const BpeMerge> merges) {
  if (merges.empty()) return;
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

void BpeEncoder::merge(std::span<const int32_t> word, Scratch& scratch,
                       std::vector<int32_t>& out) const {
  TEGULA_CHECK(word.size() < kNone, "a word of 4 GiB");
  if (slots_.empty() || word.size() < 2) {
    out.insert(out.end(), word.begin(), word.end());
    return;
  }
  // The word is a doubly linked list; id -1 once merged away.
  auto& [nodes, heap] = scratch;
  nodes.resize(word.size());
  for (uint32_t i = 0; i < nodes.size(); ++i) nodes[i] = {word[i], i - 1, i + 1};
  nodes.back().after = kNone;

  heap.clear();
  const auto consider = [&](uint32_t position) {
    const uint32_t next = position == kNone ? kNone : nodes[position].after;
    if (next == kNone) return false;
    const Slot* slot = find(nodes[position].id, nodes[next].id);
    if (slot == nullptr) return false;
    heap.push_back({slot->rank, position, nodes[position].id, nodes[next].id, slot->id});
    return true;
  };
  for (uint32_t i = 0; i < nodes.size(); ++i) consider(i);
  std::make_heap(heap.begin(), heap.end(), comes_later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    const Candidate c = heap.back();
    heap.pop_back();
    Node& node = nodes[c.position];
    if (node.id != c.left || node.after == kNone || nodes[node.after].id != c.right) continue;
    Node& gone = nodes[node.after];
    node.id = c.id;
    node.after = gone.after;
    gone.id = -1;
    if (node.after != kNone) nodes[node.after].before = c.position;
    if (consider(node.before)) std::push_heap(heap.begin(), heap.end(), comes_later);
    if (consider(c.position)) std::push_heap(heap.begin(), heap.end(), comes_later);
  }
  for (uint32_t i = 0; i != kNone; i = nodes[i].after) out.push_back(nodes[i].id);
}

}  // namespace tegula
