#include "tegula/kernels/cuda/tile_phases.h"

#include "tegula/base/algorithm.h"

namespace tegula::cuda {

namespace {

using tile::Extent;
using tile::Instr;
using tile::Kind;
using tile::kNoValue;
using tile::Op;
using tile::op_info;

int words(const Instr& i) { return tile::class_of(i.dtype) == tile::Class::kF32 ? 1 : 2; }
bool is_reduction(const Instr& i) { return op_info(i.op).kind == Kind::kReduce; }

// The cost of a machine instruction, within a factor of 2: it bounds what is unrolled.
int work_of(const Instr& i) {
  const bool is_f32 = tile::class_of(i.dtype) == tile::Class::kF32;
  if (i.op == Op::kRandomUniform) return 60;
  if (i.op >= Op::kExp2 && i.op <= Op::kErfc) return 120;
  if (i.op >= Op::kPow && i.op <= Op::kHypot) return 120;
  if (i.op == Op::kDiv || (i.op >= Op::kSqrt && i.op <= Op::kReciprocal)) return is_f32 ? 12 : 30;
  if (i.op >= Op::kExp && i.op <= Op::kSilu) return is_f32 ? 24 : 60;
  return is_f32 ? 1 : 2;
}

class Phaser {
 public:
  Phaser(const tile::Program& p, bool keep, bool early)
      : p_(p), keep_(keep), early_(early), extent_(tile::extents_of(p)), level_(p.code.size(), 0) {}

  TilePhases run() {
    find_live();
    const int n_phases = find_levels();
    out_.phases.resize(static_cast<size_t>(n_phases));
    place_rows();
    made_.assign(p_.code.size(), -1);
    for (int l = 0; l < n_phases; ++l) place_body(l);
    find_kept();
    return std::move(out_);
  }

 private:
  const Instr& at(size_t v) const { return p_.code[v]; }
  bool is_full(size_t v) const { return extent_[v] == Extent::kFull; }

  void find_live() {
    live_.assign(p_.code.size(), false);
    for (size_t v = p_.code.size(); v-- > 0;) {
      if (at(v).op == Op::kStore) live_[v] = true;
      if (live_[v])
        for (const uint16_t s : at(v).src)
          if (s != kNoValue) live_[s] = true;
    }
  }

  int find_levels() {
    int last = 0;
    for (size_t v = 0; v < p_.code.size(); ++v) {
      for (const uint16_t s : at(v).src)
        if (s != kNoValue) level_[v] = std::max(level_[v], level_[s]);
      if (!live_[v]) continue;
      if (is_reduction(at(v))) store_phase_ = std::max(store_phase_, level_[v]++);
      if (at(v).op == Op::kStore && is_full(v)) store_phase_ = std::max(store_phase_, level_[v]);
      last = std::max(last, level_[v]);
    }
    return last + 1;
  }

  void place_rows() {
    for (size_t v = 0; v < p_.code.size(); ++v) {
      if (!live_[v]) continue;
      const auto number = static_cast<uint16_t>(v);
      if (is_reduction(at(v))) {
        out_.phases[static_cast<size_t>(level_[v]) - 1].reduced.push_back(number);
      } else if (at(v).op == Op::kStore) {
        TilePhase& last = out_.phases[static_cast<size_t>(store_phase_)];
        const Extent to = p_.outputs[static_cast<size_t>(at(v).imm)].extent;
        auto& list = to == Extent::kColumn ? last.sums : is_full(v) ? last.stores : out_.row_stores;
        list.push_back(number);
      } else if (!is_full(v)) {
        out_.phases[static_cast<size_t>(level_[v])].row.push_back(number);
      }
    }
  }

  void place_body(int l) {
    TilePhase& phase = out_.phases[static_cast<size_t>(l)];
    std::vector<bool> needed(p_.code.size(), false), read = needed;
    for (const auto* list : {&phase.reduced, &phase.stores, &phase.sums})
      for (const uint16_t v : *list) needed[at(v).src[0]] = true;
    if (early_ && l == 0)
      for (size_t v = 0; v < p_.code.size(); ++v)
        needed[v] = needed[v] || (live_[v] && at(v).op == Op::kLoad);
    for (size_t v = p_.code.size(); v-- > 0;) {
      if (!needed[v] || !is_full(v)) continue;
      if (keep_ && made_[v] >= 0) {
        read[v] = true;
        continue;
      }
      for (const uint16_t s : at(v).src)
        if (s != kNoValue) needed[s] = true;
    }
    for (size_t v = 0; v < p_.code.size(); ++v) {
      if (!needed[v] || !is_full(v)) continue;
      const auto number = static_cast<uint16_t>(v);
      (read[v] ? phase.read : phase.body).push_back(number);
      if (!read[v]) out_.work += work_of(at(v));
      if (!read[v]) made_[v] = l;
    }
    out_.work += static_cast<int>(phase.reduced.size() + phase.sums.size());
    out_.live_words = std::max(out_.live_words, most_live(phase));
  }

  // Most words that live at once within a body, its sums among them.
  int most_live(const TilePhase& phase) const {
    std::vector<size_t> last(p_.code.size(), 0);
    for (const uint16_t v : phase.body)
      for (const uint16_t s : at(v).src)
        if (s != kNoValue) last[s] = std::max<size_t>(last[s], v);
    for (const uint16_t v : phase.stores) last[at(v).src[0]] = p_.code.size();
    int live = 0, most = 0;
    std::vector<uint16_t> open;
    for (const auto* list : {&phase.read, &phase.body})
      for (const uint16_t v : *list) {
        live += words(at(v));
        open.push_back(v);
        most = std::max(most, live);
        std::erase_if(open, [&](uint16_t o) {
          const bool is_over = last[o] <= v;
          if (is_over) live -= words(at(o));
          return is_over;
        });
      }
    return most;
  }

  void find_kept() {
    std::vector<int> last_read(p_.code.size(), -1);
    for (size_t l = 0; l < out_.phases.size(); ++l)
      for (const uint16_t v : out_.phases[l].read) last_read[v] = static_cast<int>(l);
    for (size_t v = 0; v < p_.code.size(); ++v)
      if (last_read[v] >= 0) out_.kept.push_back(static_cast<uint16_t>(v));
    for (int l = 0; l < static_cast<int>(out_.phases.size()); ++l) {
      int here = 0;
      for (const uint16_t v : out_.kept)
        if (made_[v] <= l && last_read[v] > l) here += words(at(v));
      out_.kept_words = std::max(out_.kept_words, here);
    }
  }

  const tile::Program& p_;
  const bool keep_, early_;
  const std::vector<Extent> extent_;
  std::vector<int> level_;  // of the phase that can make it
  std::vector<bool> live_;
  std::vector<int> made_;  // by which phase; -1: none yet
  int store_phase_ = 0;
  TilePhases out_;
};

}  // namespace

TilePhases tile_phases(const tile::Program& p, bool keep, bool early) {
  return Phaser(p, keep, early).run();
}

}  // namespace tegula::cuda
