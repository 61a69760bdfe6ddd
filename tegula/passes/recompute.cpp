// A value that is cheaper to compute twice than to keep is computed again by the backward part,
// without any budget of memory: SwiGLU's silu(g), say, of which the backward part reads g anyway.
//
// A value of the forward part that only elementwise ops and row reductions read would not leave
// their fused loop, if the backward part did not read it: it is written and read again for that
// alone. Computed again where it is read, from values that are kept in any case, it becomes part of
// the backward part's loop. Saved are the bytes of one write, and of the read what the inputs do
// not take that the reader has not yet; paid are the operations, once for each reader:
//
//   chosen where (written + read − read instead) / bytes_per_s > operations / elementwise_per_s
//
// with the target's rates (cost/price.h), and only where what waits for the backward part is more
// than the target's caches hold: else no byte costs what memory takes. The values that are computed
// from live as long as before; or one of them that the forward part writes anyway, and that is no
// larger, waits in its place: a norm's operand for its normalised rows. The same ops run on the
// same values: bits stay. With a budget, or --checkpoint, remat decides instead.
#include <map>

#include "tegula/base/range.h"
#include "tegula/cost/price.h"
#include "tegula/ir/builder.h"
#include "tegula/ops/table.h"
#include "tegula/passes/lower_tile.h"
#include "tegula/passes/pass.h"

namespace tegula {

namespace {

constexpr size_t kMostNodes = 8;  // of the forward part, to compute one value again
constexpr int64_t kSmall = 64;    // so much smaller, a value may wait beside what takes a place

class Recompute {
 public:
  Recompute(Module& module, Function& f, const PassOptions& options)
      : module_(module), f_(f), target_(*options.target), marks_(f.values.size(), 0) {
    for (const Output& r : f.results) marks_[r.value] = kKept | kFixed;
    for (const Param& p : f.params) marks_[p.value] = kKept | kFixed;
    int64_t waiting = 0;
    for (const Node& n : f.nodes) {
      if (n.phase == Phase::kForward) continue;
      const uint8_t reader = is_fusible(n) ? kWanted : kFixed;
      for (ValueId v : n.inputs) waiting += keep(v), marks_[v] |= reader;
    }
    if (waiting <= cached_bytes(target_) || !find_readers()) return;
    find_written();
    for (const Node& n : f.nodes)
      if (is_candidate(n)) consider(n.output(), options.recomputed);
  }

  bool has_work() const { return !cones_.empty(); }

  Result<Function> run() {
    Rewriter rw(module_, f_);
    for (Node& n : f_.nodes) {
      std::vector<std::pair<ValueId, Var>> first;
      if (n.phase != Phase::kForward)
        for (ValueId v : n.inputs)
          if (marks_[v] & kAgain) {
            first.emplace_back(v, rw.at(v));
            rw.bind(v, again(rw, v, n.phase));
          }
      rw.take(n);
      for (auto it = first.rbegin(); it != first.rend(); ++it) rw.bind(it->first, it->second);
    }
    return rw.finish();
  }

 private:
  enum Mark : uint8_t {
    kKept = 1,    // the backward part has it anyway
    kFixed = 2,   // a parameter or result, or read in the backward part by what is no fused loop
    kWanted = 4,  // the backward part reads it in a fused loop
    kAgain = 8,   // chosen: the backward part computes it again
  };

  // Notes that the backward part reads v, and whatever it is a view of: new bytes that wait for it.
  int64_t keep(ValueId v) {
    const Node* n = f_.producer(v);
    if (marks_[v] & kKept || n == nullptr || n->phase != Phase::kForward) return 0;
    marks_[v] |= kKept;
    return n->op->is_view ? keep(n->inputs[0]) : f_.type(v).bytes();
  }

  bool is_candidate(const Node& n) const {
    return is_cheap(n) && (marks_[n.output()] & (kWanted | kFixed)) == kWanted;
  }
  // The readers of candidates; false: there are none.
  bool find_readers() {
    for (const Node& n : f_.nodes)
      if (is_candidate(n)) readers_.try_emplace(n.output());
    if (readers_.empty()) return false;
    for (const Node& n : f_.nodes)
      for (ValueId v : n.inputs)
        if (const NodeId maker = f_.values[v].node; maker != kNone && is_candidate(f_.nodes[maker]))
          if (auto& list = readers_[v]; list.empty() || list.back() != &n) list.push_back(&n);
    return true;
  }
  void find_written() {
    uint32_t n_heavy = 0;
    std::vector<uint32_t> up_to(f_.nodes.size());  // of those in no loop
    is_written_.resize(f_.values.size());
    for (NodeId id = 0; id < f_.nodes.size(); ++id) {
      const Node& n = f_.nodes[id];
      n_heavy += tile_role(f_, n) == TileRole::kNone && !n.op->is_view;
      up_to[id] = n_heavy;
      if (n.phase != Phase::kForward) continue;
      for (ValueId v : n.inputs)
        if (const NodeId maker = f_.values[v].node; maker != kNone && n_heavy > up_to[maker])
          is_written_[v] = 1;
    }
  }

  // A node of the forward part that a fused loop takes in.
  bool is_cheap(const Node& n) const {
    return n.phase == Phase::kForward && tile_role(f_, n) == TileRole::kElementwise;
  }
  bool is_fusible(const Node& n) const {
    const TileRole role = tile_role(f_, n);
    return role == TileRole::kElementwise || role == TileRole::kReduction;
  }
  // The value that a body reads v from: spread over rows it is no larger.
  ValueId base(ValueId v) const {
    for (const Node* n = f_.producer(v); n && tile_role(f_, *n) == TileRole::kView;
         n = f_.producer(v))
      v = n->inputs[0];
    return v;
  }
  // Costs nothing to read: made anew everywhere, or of one element.
  bool is_free(ValueId v) const {
    v = base(v);
    const NodeId n = f_.values[v].node;
    return f_.type(v).shape.numel() <= 1 ||
           (n != kNone && tile_role(f_, f_.nodes[n]) == TileRole::kSource);
  }
  // Bytes that a reader takes: a widened value waits as narrow as it was (widen_again).
  int64_t read_bytes(ValueId v) const {
    v = base(v);
    const Node* n = f_.producer(v);
    const bool is_cast = n != nullptr && n->op == &cast_op && n->phase == Phase::kForward;
    return is_cast ? std::min(f_.type(v).bytes(), f_.type(n->inputs[0]).bytes())
                   : f_.type(v).bytes();
  }

  // The work of computing a value again, and what it reads: values that are kept in any case.
  struct Cone {
    std::vector<NodeId> nodes;
    std::vector<ValueId> inputs;
    std::vector<ValueId> instead;  // those that wait in its place
    int64_t bytes = 0, room = 0;   // its own; what they may still have
  };
  // Adds what v takes; false: too much, or from values that are not kept.
  bool collect(ValueId v, Cone& cone) const {
    const NodeId n = f_.values[v].node;
    if (contains(cone.nodes, n)) return true;
    if (!is_cheap(f_.nodes[n]) || cone.nodes.size() == kMostNodes) return false;
    cone.nodes.push_back(n);
    for (ValueId u : f_.nodes[n].inputs) {
      if (contains(cone.inputs, u)) continue;
      if (is_free(u) || (marks_[base(u)] & (kKept | kAgain)) == kKept) {
        cone.inputs.push_back(u);
        continue;
      }
      const Cone before = cone;
      if (f_.values[u].node != kNone && collect(u, cone)) continue;
      cone = before;
      if (!waits_instead(base(u), cone)) return false;
      cone.inputs.push_back(u);
    }
    return true;
  }
  bool waits_instead(ValueId u, Cone& cone) const {
    const Node* n = f_.producer(u);
    const int64_t bytes = f_.type(u).bytes();
    if (n == nullptr || n->phase != Phase::kForward || n->op->is_view || marks_[u] != 0 ||
        bytes > cone.room || !(bytes * kSmall <= cone.bytes || is_written_[u] != 0))
      return false;
    cone.room -= bytes;
    cone.instead.push_back(u);
    return true;
  }

  void consider(ValueId v, std::vector<Recomputed>* list) {
    int64_t n_readers = 0;
    bool vanishes = true;
    for (const Node* n : readers_[v]) {
      vanishes &= is_fusible(*n);
      n_readers += n->phase != Phase::kForward;
    }
    const int64_t bytes = f_.type(v).bytes();
    Cone cone;
    cone.bytes = bytes, cone.room = bytes + bytes / kSmall;
    if (is_free(v) || !collect(v, cone)) return;
    std::sort(cone.nodes.begin(), cone.nodes.end());
    int64_t saved = bytes * (n_readers + vanishes), operations = 0;
    for (ValueId u : cone.inputs)
      if (!is_free(u) && !is_read_with(u, v)) saved -= read_bytes(u);
    for (NodeId n : cone.nodes) {
      const auto in = f_.input_types(f_.nodes[n]), out = f_.output_types(f_.nodes[n]);
      operations += flops_of({f_.nodes[n].op, &f_.nodes[n].attrs, in, out, &module_, {}});
    }
    const double saved_s = static_cast<double>(saved) / bytes_per_s(target_);
    const double paid_s = static_cast<double>(operations) / elementwise_flops_per_s(target_);
    if (saved_s <= paid_s) return;
    const Node& maker = *f_.producer(v);
    if (list)
      list->push_back({module_.scopes[maker.origin.scope], maker.op->name, bytes, saved_s, paid_s});
    for (NodeId n : cone.nodes) cones_[v].push_back(f_.nodes[n]);
    marks_[v] |= kAgain;
    for (ValueId u : cone.instead) keep(u);
  }

  // Does a node of the backward part that reads v read u, too?
  bool is_read_with(ValueId u, ValueId v) const {
    for (const Node* n : readers_.at(v))
      if (n->phase != Phase::kForward && contains(n->inputs, u)) return true;
    return false;
  }

  // Computes v before the node that is written next, once for all that read it in its phase: they
  // become one loop with it.
  Var again(Rewriter& rw, ValueId v, Phase phase) {
    Var& made = made_[{v, phase}];
    if (made.valid()) return made;
    std::vector<std::pair<ValueId, Var>> first;
    for (Node node : cones_.at(v)) {
      node.phase = phase;
      first.emplace_back(node.output(), rw.at(node.output()));
      rw.clone(node);
    }
    made = rw.at(v);
    for (const auto& [u, var] : first) rw.bind(u, var);
    return made;
  }

  Module& module_;
  Function& f_;
  const Target& target_;
  std::vector<uint8_t> marks_;  // per value, of Mark
  // Per value: the forward part writes it, whatever waits, since something there reads it behind a
  // node that is in no loop.
  std::vector<uint8_t> is_written_;
  std::map<ValueId, std::vector<const Node*>> readers_;  // of candidates
  std::map<ValueId, std::vector<Node>> cones_;           // what computes a chosen value again
  std::map<std::pair<ValueId, Phase>, Var> made_;
};

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  if (options.remat != Remat::kNone || options.memory_bytes > 0) return false;
  const bool has_backward =
      any_of(f.nodes, [](const Node& n) { return n.phase == Phase::kBackward; });
  if (!has_backward) return false;
  Recompute pass(module, f, options);
  return rewrite_if_any(pass, f);
}

}  // namespace

extern const PassDef recompute_pass = {
    .name = "recompute",
    .doc = "computes again what takes less time than keeping it",
    .phase = PassPhase::kMemory,
    .needs = kIsUnfused,
    .run = run,
};

}  // namespace tegula
