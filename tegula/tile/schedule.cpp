#include "tegula/tile/schedule.h"

#include "tegula/base/algorithm.h"

namespace tegula::tile {

namespace {

constexpr int kNever = -1;

class Scheduler {
 public:
  Scheduler(const Program& p, bool keep)
      : p_(p), code_(p.code), keep_(keep), extent_(extents_of(p)) {}

  Schedule run() {
    skip_copies();
    find_live();
    find_levels();
    place_shared();
    for (int level = 0; level <= last_phase_; ++level) {
      schedule_.phases.emplace_back();
      row_code(level);
      if (level <= last_body_) body(level);
    }
    find_last_uses();
    return std::move(schedule_);
  }

 private:
  const Instr& at(size_t v) const { return code_[v]; }
  bool is_store(size_t v) const { return at(v).op == Op::kStore; }
  bool is_reduction(size_t v) const { return op_info(at(v).op).kind == Kind::kReduce; }
  bool is_full(size_t v) const { return extent_[v] == Extent::kFull; }
  // Runs in a body: full values, reductions, stores of full outputs.
  bool in_body(size_t v) const { return is_full(v) || is_reduction(v); }
  bool is_cheap(size_t v) const {
    const Op op = at(v).op;
    return op == Op::kLoad || op == Op::kIota || op == Op::kIndex;
  }
  template <class F>
  void for_src(size_t v, F&& f) const {
    for (uint16_t s : at(v).src)
      if (s != kNoValue) f(s);
  }

  // A copy, or a cast to f32 within its class, has the bits of its source.
  void skip_copies() {
    std::vector<uint16_t> root(code_.size());
    for (size_t v = 0; v < code_.size(); ++v) {
      Instr& i = code_[v];
      for (uint16_t& s : i.src)
        if (s != kNoValue) s = root[s];
      const bool is_same = i.src[0] != kNoValue &&
                           ((i.op == Op::kCopy && i.imm == 0) || i.op == Op::kCast) &&
                           class_of(code_[i.src[0]].dtype) == class_of(i.dtype) &&
                           (i.dtype == DType::kF32 || i.dtype == code_[i.src[0]].dtype);
      root[v] = is_same ? i.src[0] : static_cast<uint16_t>(v);
    }
  }

  void find_live() {
    live_.assign(code_.size(), false);
    for (size_t v = code_.size(); v-- > 0;) {
      if (is_store(v)) live_[v] = true;
      if (live_[v]) for_src(v, [&](uint16_t s) { live_[s] = true; });
    }
    n_uses_.assign(code_.size(), 0);
    for (size_t v = 0; v < code_.size(); ++v) {
      if (!live_[v]) continue;
      for_src(v, [&](uint16_t s) { ++n_uses_[s]; });
      const bool is_column = is_store(v) && p_.outputs[at(v).imm].extent == Extent::kColumn;
      const int64_t f = is_column ? 1 : flops_of(at(v).op);
      (in_body(v)                   ? schedule_.full_flops
       : extent_[v] == Extent::kRow ? schedule_.row_flops
                                    : schedule_.uniform_flops) += f;
    }
  }

  // level_[v] is the phase whose body (full) or row code makes v; a reduction's *result* belongs to
  // the row code of the phase after its body.
  void find_levels() {
    const size_t n = code_.size();
    level_.assign(n, 0);
    for (size_t v = 0; v < n; ++v) {
      for_src(v, [&](uint16_t s) { level_[v] = std::max(level_[v], level_[s]); });
      if (is_reduction(v)) ++level_[v];
    }
    if (keep_) sink();
    for (size_t v = 0; v < n; ++v) {
      if (!live_[v]) continue;
      last_phase_ = std::max(last_phase_, level_[v]);
      if (in_body(v) && !is_cheap(v)) last_body_ = std::max(last_body_, body_of(v));
    }
    for (size_t v = 0; v < n; ++v)
      if (is_store(v) && is_full(v)) level_[v] = last_body_;
  }
  int body_of(size_t v) const { return is_reduction(v) ? level_[v] - 1 : level_[v]; }

  // Moves a value down to its first use, where its sources are there for nothing or kept anyway.
  void sink() {
    const size_t n = code_.size();
    int last = 0;
    for (size_t v = 0; v < n; ++v)
      if (live_[v] && in_body(v) && !is_cheap(v)) last = std::max(last, body_of(v));
    std::vector<int> first_use(n, last), last_use(n, kNever);
    for (size_t v = n; v-- > 0;) {
      if (!live_[v] || !in_body(v)) continue;
      const int made = is_store(v) ? last : body_of(v);
      if (is_full(v) && !is_store(v) && !is_cheap(v) && first_use[v] > made) {
        bool is_free = true;
        for_src(v, [&](uint16_t s) {
          if (is_full(s) && !is_cheap(s) && last_use[s] < first_use[v]) is_free = false;
        });
        if (is_free) level_[v] = first_use[v];
      }
      const int here = is_store(v) ? last : body_of(v);
      for_src(v, [&](uint16_t s) {
        first_use[s] = std::min(first_use[s], here);
        last_use[s] = std::max(last_use[s], here);
      });
    }
  }

  uint16_t new_slot(Home home, DType dtype) {
    Slot s{home, static_cast<uint8_t>(class_of(dtype) == Class::kF32 ? 4 : 8), 0};
    switch (home) {
      case Home::kUniform:
        s.offset = schedule_.n_uniform_slots++;
        break;
      case Home::kRow:
        s.offset = schedule_.n_row_slots++;
        break;
      case Home::kTile:
        s.offset = schedule_.tile_bytes, schedule_.tile_bytes += s.size_bytes;
        break;
      case Home::kLong:
        s.offset = schedule_.long_bytes, schedule_.long_bytes += s.size_bytes;
        break;
    }
    schedule_.slots.push_back(s);
    return static_cast<uint16_t>(schedule_.slots.size() - 1);
  }

  MicroOp micro(size_t v) const {
    const Instr& i = at(v);
    MicroOp m;
    m.op = i.op, m.dtype = i.dtype, m.extent = is_reduction(v) ? Extent::kFull : extent_[v];
    m.imm = i.imm, m.value = i.value, m.dst = is_store(v) ? kNoValue : slot_[v];
    for (int k = 0; k < 3; ++k)
      if (i.src[k] != kNoValue) set_source(m, k, i.src[k]);
    m.src_dtype = i.src[0] == kNoValue ? i.dtype : at(i.src[0]).dtype;
    // select's condition is a bool whatever the values are
    if (i.op == Op::kSelect) m.src_dtype = i.dtype;
    return m;
  }
  void set_source(MicroOp& m, int k, uint16_t value) const {
    m.src[k] = slot_[value], m.src_extent[k] = extent_[value];
  }

  // Uniform code, and slots for every uniform and row value: they are few and tiny.
  void place_shared() {
    slot_.assign(code_.size(), kNoValue);
    for (size_t v = 0; v < code_.size(); ++v) {
      if (!live_[v] || is_store(v) || is_full(v)) continue;
      slot_[v] = new_slot(extent_[v] == Extent::kRow ? Home::kRow : Home::kUniform, at(v).dtype);
      if (extent_[v] == Extent::kUniform) schedule_.uniform.push_back(micro(v));
    }
  }

  // A store of something narrower than its output goes through a copy that broadcasts.
  void store(size_t v, std::vector<MicroOp>& code) {
    MicroOp s = micro(v);
    const size_t value = at(v).src[0];
    if (extent_[value] != extent_[v]) {
      MicroOp copy;
      copy.op = Op::kCopy, copy.dtype = copy.src_dtype = at(value).dtype, copy.extent = extent_[v];
      copy.src[0] = slot_[value], copy.src_extent[0] = extent_[value];
      copy.dst = is_full(v) ? take(at(value).dtype) : new_slot(Home::kRow, at(value).dtype);
      code.push_back(copy);
      s.src[0] = copy.dst, s.src_extent[0] = extent_[v];
      code.push_back(s);
      if (is_full(v)) give(copy.dst);
      return;
    }
    code.push_back(s);
  }

  void row_code(int level) {
    Phase& phase = schedule_.phases.back();
    for (size_t v = 0; v < code_.size(); ++v) {
      if (!live_[v] || extent_[v] != Extent::kRow || is_reduction(v) || level_[v] != level)
        continue;
      if (is_store(v)) {
        store(v, phase.row);
      } else {
        phase.row.push_back(micro(v));
        phase.row_flops += flops_of(at(v).op);
      }
    }
  }

  // The values of one body, in order: each is listed after what it needs and as late as possible.
  void list(size_t v, int level, std::vector<uint16_t>& order) {
    if (listed_[v]) return;
    listed_[v] = true;
    list_sources_of(v, level, order);
    order.push_back(static_cast<uint16_t>(v));
  }
  void list_sources_of(size_t v, int level, std::vector<uint16_t>& order) {
    for_src(v, [&](uint16_t s) {
      if (is_full(s) && (!keep_ || is_cheap(s) || level_[s] == level)) list(s, level, order);
    });
  }

  uint16_t take(DType dtype) {
    auto& free = free_[class_of(dtype) == Class::kF32 ? 0 : 1];
    if (free.empty()) return new_slot(Home::kTile, dtype);
    const uint16_t s = free.back();
    free.pop_back();
    return s;
  }
  void give(uint16_t slot) {
    const Slot& s = schedule_.slots[slot];
    if (s.home == Home::kTile) free_[s.size_bytes == 4 ? 0 : 1].push_back(slot);
  }

  void body(int level) {
    const size_t n = code_.size();
    std::vector<uint16_t> order;
    listed_.assign(n, false);
    for (size_t v = 0; v < n; ++v) {
      if (!live_[v] || !in_body(v) || is_store(v) || is_cheap(v) || body_of(v) != level) continue;
      if (keep_ || is_reduction(v)) list(v, level, order);
    }
    if (level == last_body_) {
      // Every load before any store, which may overwrite what it reads.
      for (size_t v = 0; v < n; ++v)
        if (is_store(v) && is_full(v)) list_sources_of(v, level, order);
      for (size_t v = 0; v < n; ++v)
        if (is_store(v) && is_full(v)) list(v, level, order);
    }

    find_pairs(order);
    std::vector<int> last(n, kNever);
    std::vector<uint16_t> sources;
    for (size_t k = 0; k < order.size(); ++k) {
      list_sources(order[k], sources);
      for (uint16_t s : sources) last[s] = static_cast<int>(k);
    }
    Phase& phase = schedule_.phases.back();
    for (size_t k = 0; k < order.size(); ++k) {
      phase.body_flops += flops_of(at(order[k]).op);
      if (!is_first_[order[k]]) emit(order[k], level, static_cast<int>(k), last, phase.body);
    }
    // A value that crosses keeps its slot; all others start afresh in the next body.
    for (uint16_t& s : slot_)
      if (s != kNoValue && schedule_.slots[s].home == Home::kTile) s = kNoValue;
  }

  bool crosses(size_t v, int level) const {
    if (!keep_ || is_cheap(v)) return false;
    for (size_t u = v + 1; u < code_.size(); ++u) {
      if (!live_[u] || !in_body(u) || body_of(u) <= level) continue;
      for (uint16_t s : at(u).src)
        if (s == v) return true;
    }
    return false;
  }

  // Which instructions of a body run as pairs: partner_[v] is the first of the pair that v ends (or
  // the first of the two products that it joins; other_[v] is the second).
  void find_pairs(const std::vector<uint16_t>& order) {
    partner_.assign(code_.size(), kNoValue);
    other_ = partner_;
    is_first_.assign(code_.size(), false);
    std::vector<bool> here(code_.size(), false);
    const auto is_free = [&](uint16_t u) {
      return u != kNoValue && here[u] && n_uses_[u] == 1 && !is_first_[u] &&
             partner_[u] == kNoValue;
    };
    for (const uint16_t v : order) {
      here[v] = true;
      const uint16_t a = at(v).src[0], b = at(v).src[1];
      const bool is_sum = at(v).op == Op::kAdd || at(v).op == Op::kSub;
      if (is_sum && is_free(a) && is_free(b) && is_product(a) && is_product(b) &&
          at(v).dtype == DType::kF32) {
        partner_[v] = a, other_[v] = b, is_first_[a] = is_first_[b] = true;
        continue;
      }
      for (const uint16_t u : at(v).src) {
        if (!is_free(u) || !makes_pair(u, v)) continue;
        partner_[v] = u, is_first_[u] = true;
        break;
      }
    }
  }
  bool is_product(size_t u) const {
    return at(u).op == Op::kMul && at(u).dtype == DType::kF32 && is_full(u);
  }
  bool makes_pair(size_t u, size_t v) const {
    const Instr& first = at(u);
    const Instr& second = at(v);
    if (second.op == Op::kReduceSum && second.dtype == DType::kI64)
      return first.op == Op::kCast && at(first.src[0]).dtype == DType::kF32 && is_full(u);
    if (second.dtype != DType::kF32 || !is_full(u)) return false;
    if (second.op == Op::kSelect)
      return second.src[0] == u && op_info(first.op).kind == Kind::kCompare &&
             class_of(at(first.src[0]).dtype) == Class::kF32;
    if (first.dtype != DType::kF32) return false;
    if (second.op == Op::kReduceSum) return first.op == Op::kMul;
    if (second.op == Op::kReduceMax) return first.op == Op::kAbs;
    if (second.op == Op::kExp) return first.op == Op::kSub;
    if (second.op == Op::kMin) return first.op == Op::kMax;
    if (second.op == Op::kMax) return first.op == Op::kMin;
    const bool is_linear = first.op == Op::kAdd || first.op == Op::kSub || first.op == Op::kMul;
    return is_linear && (second.op == Op::kAdd || second.op == Op::kSub || second.op == Op::kMul ||
                         second.op == Op::kDiv);
  }

  // The values that v's loop reads: of all its instructions.
  void list_sources(size_t v, std::vector<uint16_t>& out) const {
    out.clear();
    for (const uint16_t first : {partner_[v], other_[v]})
      if (first != kNoValue) for_src(first, [&](uint16_t s) { out.push_back(s); });
    for_src(v, [&](uint16_t s) {
      if (s != partner_[v] && s != other_[v]) out.push_back(s);
    });
  }

  MicroOp pair(size_t v) const {
    const uint16_t first = partner_[v];
    MicroOp m = micro(v);
    const MicroOp head = micro(first);
    m.op = head.op, m.then = at(v).op, m.src_dtype = head.src_dtype;
    std::vector<uint16_t> sources;
    list_sources(v, sources);
    for (size_t k = 0; k < kMaxSources; ++k) m.src[k] = kNoValue;
    for (size_t k = 0; k < sources.size(); ++k) set_source(m, static_cast<int>(k), sources[k]);
    m.then_reversed = at(v).src[1] == first && at(v).op != Op::kSelect;
    m.is_two_products = other_[v] != kNoValue;
    return m;
  }

  void emit(size_t v, int level, int k, const std::vector<int>& last, std::vector<MicroOp>& code) {
    std::vector<uint16_t> sources;
    list_sources(v, sources);
    MicroOp m = partner_[v] != kNoValue ? pair(v) : micro(v);
    if (is_store(v)) store(v, code);
    // The result may take the register of a source that ends here: loops read before they write.
    for (size_t j = 0; j < sources.size(); ++j) {
      const uint16_t s = sources[j];
      const bool again = std::find(sources.begin(), sources.begin() + static_cast<int>(j), s) !=
                         sources.begin() + static_cast<int>(j);
      if (!again && is_full(s) && last[s] == k) give(slot_[s]);
    }
    if (is_store(v)) return;
    if (is_full(v))
      slot_[v] = crosses(v, level) ? new_slot(Home::kLong, at(v).dtype) : take(at(v).dtype);
    m.dst = slot_[v];
    const auto wider_first = [&m](int a, int b) {
      if (m.src_extent[a] >= m.src_extent[b]) return;
      std::swap(m.src[a], m.src[b]);
      std::swap(m.src_extent[a], m.src_extent[b]);
    };
    if (m.op == Op::kAdd || m.op == Op::kMul) wider_first(0, 1);
    if (m.is_two_products) wider_first(2, 3);
    if (is_reduction(v)) m.reduction = static_cast<int16_t>(schedule_.n_reductions++);
    note_memory(v, level, m);
    code.push_back(m);
  }

  // May the register be the memory of an operand? A load's, if no store reads it (an earlier store
  // of the tile may have overwritten it); a result's, if it is stored as it is.
  void note_memory(size_t v, int level, MicroOp& m) const {
    m.may_point = m.op == Op::kLoad;
    if (level != last_body_ || !is_full(v)) return;
    for (size_t u = v + 1; u < code_.size(); ++u) {
      if (!is_store(u) || at(u).src[0] != v || !is_full(u)) continue;
      const DType out = at(u).dtype;
      const bool is_plain = out == DType::kF32 || out == DType::kF64 || out == DType::kI64;
      if (m.op == Op::kLoad) {
        m.may_point = false;
      } else if (is_plain && m.early_output < 0 && schedule_.slots[m.dst].home == Home::kTile) {
        m.early_output = static_cast<int16_t>(at(u).imm);
      }
    }
  }

  void find_last_uses() {
    schedule_.last_use.assign(p_.inputs.size(), -1);
    if (last_body_ < 0) return;
    const auto& body = schedule_.phases[last_body_].body;
    std::vector<int> input_of(schedule_.slots.size(), -1);
    for (size_t k = 0; k < body.size(); ++k) {
      const MicroOp& m = body[k];
      const int here = static_cast<int>(k);
      for (uint16_t s : m.src) {
        if (s == kNoValue || input_of[s] < 0) continue;
        schedule_.last_use[input_of[s]] = here;
      }
      if (m.dst != kNoValue) input_of[m.dst] = m.op == Op::kLoad ? static_cast<int>(m.imm) : -1;
      if (m.op == Op::kLoad) schedule_.last_use[m.imm] = here;
    }
  }

  const Program& p_;
  std::vector<Instr> code_;  // its code, without copies
  const bool keep_;
  const std::vector<Extent> extent_;
  std::vector<bool> live_, listed_, is_first_;
  std::vector<int> level_;
  std::vector<uint16_t> slot_, partner_, other_;
  std::vector<int> n_uses_;
  std::vector<uint16_t> free_[2];
  int last_phase_ = 0, last_body_ = -1;
  Schedule schedule_;
};

}  // namespace

Schedule make_schedule(const Program& p, bool keep_across_phases) {
  return Scheduler(p, keep_across_phases).run();
}

}  // namespace tegula::tile
