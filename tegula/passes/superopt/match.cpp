#include "tegula/passes/superopt/match.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/dot_dims.h"
#include "tegula/ir/hash.h"
#include "tegula/passes/edit.h"

namespace tegula::superopt {

namespace {

// Factors by their first appearance: "b m k, k n -> b m n" and "x y z, z w -> x y w" are one.
std::string canonical_dims(std::string_view text) {
  const auto dims = DotDims::parse(text.empty() ? "m k, k n -> m n" : text);
  if (!dims.ok()) return "";
  std::vector<std::string_view> seen;
  std::string out;
  for (const DimNames* side : {&dims->a, &dims->b, &dims->out}) {
    for (const std::string_view name : *side) {
      const auto at = std::find(seen.begin(), seen.end(), name);
      out += cat(at - seen.begin(), " ");
      if (at == seen.end()) seen.push_back(name);
    }
    out += ",";
  }
  return out;
}

std::string word_of(const KindAttrs& a, std::string_view name) {
  const auto at = a.words.find(name);
  return at == a.words.end() ? "" : at->second;
}

struct State : Match {
  std::vector<std::pair<Poly, Poly>> later;  // pattern, value
};

class Matcher {
 public:
  Matcher(const Module& module, const Function& f, const Kinds& kinds, const Rule& rule)
      : module_(module), f_(f), rule_(rule), kinds_(kinds.of) {
    for (const auto* all : {&rule.sizes, &rule.integers})
      free_.insert(free_.end(), all->begin(), all->end());
  }

  std::vector<Match> run(size_t most) {
    most_ = most;
    const Node& left = pattern(rule_.left);
    if (left.kind == "input") return {};
    for (size_t n = 0; n < f_.nodes.size(); ++n) {
      if (!kinds_[n] || kinds_[n]->kind != left.kind) continue;
      State s;
      if (!value(rule_.left, f_.nodes[n].output(), s)) continue;
      s.roots = {f_.nodes[n].output()};
      finish(std::move(s));
    }
    if (left.kind == "concat") roots(State(), 0, 0);
    return std::move(found_);
  }

 private:
  const Node& pattern(int n) const { return rule_.graph.nodes[static_cast<size_t>(n)]; }

  // The concatenation's operands one after another, each later than the one before.
  void roots(State s, size_t k, size_t begin) {
    const Node& left = pattern(rule_.left);
    if (found_.size() >= most_) return;
    if (k == left.in.size()) {
      s.is_split = true;
      return finish(std::move(s));
    }
    if (pattern(left.in[k]).kind == "input") return;
    for (size_t n = begin; n < f_.nodes.size(); ++n) {
      if (!kinds_[n] || kinds_[n]->kind != pattern(left.in[k]).kind) continue;
      if (found_.size() >= most_) return;
      if (clashes(pattern(left.in[k]), f_.nodes[n], s)) continue;  // before anything is copied
      State next = s;
      if (!value(left.in[k], f_.nodes[n].output(), next)) continue;
      if (k > 0 && f_.nodes[n].phase != f_.producer(s.roots[0])->phase) continue;
      next.roots.push_back(f_.nodes[n].output());
      roots(std::move(next), k + 1, n + 1);
    }
  }

  // Reads another value than one that is bound already.
  bool clashes(const Node& p, const tegula::Node& n, const State& s) const {
    if (n.op->is_commutative || n.inputs.size() != p.in.size()) return false;
    for (size_t k = 0; k < p.in.size(); ++k) {
      if (pattern(p.in[k]).kind != "input") continue;
      const auto at = s.inputs.find(rule_.graph.inputs[static_cast<size_t>(p.in[k])].name);
      if (at != s.inputs.end() && at->second != n.inputs[k]) return true;
    }
    return false;
  }

  bool is_bound(const State& s, Symbol symbol) const {
    for (const auto& [name, p] : s.symbols)
      if (name == symbol) return true;
    return false;
  }

  bool unify(const Poly& p, const Poly& v, State& s) const {
    const Poly known = p.substitute(s.symbols);
    const Symbol* unknown = nullptr;
    int n_unknown = 0;
    for (const Symbol& x : free_)
      if (!is_bound(s, x) && known.has(x)) unknown = &x, ++n_unknown;
    if (n_unknown == 0) return known == v;
    if (n_unknown > 1 || !known.is_affine_in(*unknown)) return s.later.emplace_back(p, v), true;
    const Poly by = known.factor_of(*unknown);
    if (by != Poly(1) && by != Poly(-1)) return s.later.emplace_back(p, v), true;
    s.symbols.emplace_back(*unknown, by * (v - known + by * Poly(*unknown)));
    return true;
  }
  bool unify(const std::vector<Poly>& p, const std::vector<Poly>& v, State& s) const {
    if (p.size() != v.size()) return false;
    for (size_t i = 0; i < p.size(); ++i)
      if (!unify(p[i], v[i], s)) return false;
    return true;
  }

  bool attributes(const Node& p, const KindOfNode& k, State& s) const {
    if (p.kind == "function") {
      const auto [at, is_new] = s.functions.try_emplace(word_of(p.attrs, "name"), k);
      return is_new || (at->second.attrs == k.attrs && same_attrs(at->second.rest, k.rest));
    }
    if (p.kind == "dot" || p.kind == "conv") {
      const auto [at, is_new] = s.rest.try_emplace(p.kind, k.rest);
      if (!is_new && !same_attrs(at->second, k.rest)) return false;
    } else if (k.rest.size() > 0) {
      return false;
    }
    if (canonical_dims(word_of(p.attrs, "dims")) != canonical_dims(word_of(k.attrs, "dims")))
      return false;
    for (const auto& [name, values] : k.attrs.polys) {
      if (p.attrs.has(name)) {
        if (!unify(p.attrs.list(name), values, s)) return false;
        continue;
      }
      if (name == "out") continue;
      const bool is_step = name == "stride" || name == "dilation" || name == "step";
      for (const Poly& v : values)
        if (v != Poly(is_step ? 1 : 0)) return false;
    }
    return true;
  }

  bool value(int pattern_node, ValueId v, State& s) const {
    const Node& p = pattern(pattern_node);
    const Type& type = f_.type(v);
    if (!is_float(type.dtype)) return false;
    if (p.kind == "input") {
      const Input& input = rule_.graph.inputs[static_cast<size_t>(pattern_node)];
      const auto [at, is_new] = s.inputs.try_emplace(input.name, v);
      return is_new ? unify(input.shape, extents_of(type.shape), s) : at->second == v;
    }
    const tegula::Node* n = f_.producer(v);
    if (n == nullptr || n->inputs.size() != p.in.size()) return false;
    const auto& kind = kinds_[f_.values[v].node];
    if (!kind || kind->kind != p.kind || !attributes(p, *kind, s)) return false;
    for (const ValueId x : n->inputs)
      if (f_.type(x).dtype != type.dtype) return false;
    const State before = s;
    if (operands(p, *n, false, s)) return true;
    s = before;
    return n->op->is_commutative && operands(p, *n, true, s);
  }
  bool operands(const Node& p, const tegula::Node& n, bool is_swapped, State& s) const {
    for (size_t k = 0; k < p.in.size(); ++k)
      if (!value(p.in[k], n.inputs[is_swapped ? 1 - k : k], s)) return false;
    return true;
  }

  void finish(State s) {
    if (found_.size() >= most_) return;
    const auto later = std::exchange(s.later, {});
    for (const auto& [p, v] : later)
      if (!unify(p, v, s) || !s.later.empty()) return;
    std::vector<Guard> sizes;
    for (size_t k = 0; k < module_.symbols.size(); ++k)
      sizes.push_back({Poly(Symbol("S", static_cast<int64_t>(k))) - 1});
    for (const Guard& g : rule_.where) {
      const Guard here{g.p.substitute(s.symbols), g.is_zero};
      if (here.p.is_const() ? here.p.constant() < 0 || (g.is_zero && here.p.constant() != 0)
                            : derive(sizes, here).empty())
        return;
    }
    found_.push_back(std::move(s));
  }

  const Module& module_;
  const Function& f_;
  const Rule& rule_;
  std::vector<Symbol> free_;
  const std::vector<std::optional<KindOfNode>>& kinds_;
  std::vector<Match> found_;
  size_t most_ = 0;
};

// Writes the function anew, every node when it is first needed, and the right side at the first
// root.
class Applier {
 public:
  Applier(Module& module, const Function& f, const Rule& rule, const Match& m)
      : f_(f), rule_(rule), m_(m), rw_(module, f), is_open_(f.nodes.size(), 0) {}

  std::optional<Function> run() {
    for (NodeId n = 0; n < f_.nodes.size(); ++n)
      if (!node(n)) return {};
    auto out = rw_.finish();
    if (!out.ok()) return {};
    remove_dead_nodes(*out);
    return std::move(*out);
  }

 private:
  bool is_root(NodeId n) const {
    for (const ValueId r : m_.roots)
      if (f_.values[r].node == n) return true;
    return false;
  }
  bool need(ValueId v) { return rw_.has(v) || node(f_.values[v].node); }
  bool node(NodeId n) {
    const tegula::Node& of = f_.nodes[n];
    if (rw_.has(of.first_output)) return true;
    const bool is_ours = is_root(n);
    const NodeId mark = is_ours ? f_.values[m_.roots[0]].node : n;
    if (is_open_[mark]) return false;
    is_open_[mark] = 1;
    if (is_ours) return right();
    for (const ValueId v : of.inputs)
      if (!need(v)) return false;
    rw_.clone(of);
    return true;
  }

  bool right() {
    for (const auto& [name, v] : m_.inputs)
      if (!need(v)) return false;
    Builder& b = rw_.builder();
    const tegula::Node& first = *f_.producer(m_.roots[0]);
    b.set_origin(first.origin);
    b.set_phase(first.phase);
    const auto y = emit(rule_.right);
    if (!y) return false;
    if (!m_.is_split) return y->type() == f_.type(m_.roots[0]) && (rw_.bind(m_.roots[0], *y), true);
    const Node& left = rule_.graph.nodes[static_cast<size_t>(rule_.left)];
    const Poly dim = left.attrs.poly("dim", 0);
    Poly at = 0;
    for (const ValueId root : m_.roots) {
      const Type& type = f_.type(root);
      const Poly size = poly_of(type.shape[static_cast<int>(dim.constant())]);
      KindOfNode slice{"slice", {}, {}};
      slice.attrs.polys = {{"dim", {dim}}, {"start", {at}}, {"size", {size}}};
      const auto part = emit_kind(b, slice, std::span(&*y, 1), type);
      if (!part.ok() || !(part->type() == type)) return false;
      rw_.bind(root, *part);
      at += size;
    }
    return true;
  }

  std::optional<Var> emit(int pattern_node) {
    if (const auto at = emitted_.find(pattern_node); at != emitted_.end()) return at->second;
    const Node& p = rule_.graph.nodes[static_cast<size_t>(pattern_node)];
    if (p.kind == "input") {
      const auto at = m_.inputs.find(rule_.graph.inputs[static_cast<size_t>(pattern_node)].name);
      if (at == m_.inputs.end()) return {};
      return rw_.at(at->second);
    }
    std::vector<Var> in;
    for (const int x : p.in) {
      const auto v = emit(x);
      if (!v) return {};
      in.push_back(*v);
    }
    KindOfNode call{p.kind, p.attrs, {}};
    if (p.kind == "function") {
      call = m_.functions.at(p.attrs.words.at("name"));
    } else {
      for (auto& [name, list] : call.attrs.polys)
        for (Poly& value : list) value = value.substitute(m_.symbols);
      if (const auto at = m_.rest.find(p.kind); at != m_.rest.end()) call.rest = at->second;
    }
    const auto y = emit_kind(rw_.builder(), call, in, f_.type(m_.roots[0]));
    if (!y.ok()) return {};
    return emitted_[pattern_node] = *y;
  }

  const Function& f_;
  const Rule& rule_;
  const Match& m_;
  Rewriter rw_;
  std::vector<uint8_t> is_open_;
  std::map<int, Var> emitted_;
};

}  // namespace

std::string Match::key() const {
  std::string text = is_split ? "split" : "";
  for (const auto& [symbol, p] : symbols) text += cat(" ", symbol.name(), "=", p.text());
  for (const auto& [name, call] : functions) text += cat(" ", word_of(call.attrs, "name"));
  return text;
}

Kinds::Kinds(const Function& f) : of(f.nodes.size()) {
  for (size_t n = 0; n < f.nodes.size(); ++n) {
    of[n] = kind_of(f, f.nodes[n]);
    if (!of[n]) continue;
    pairs.emplace(of[n]->kind, "");
    for (const ValueId x : f.nodes[n].inputs)
      if (f.producer(x) != nullptr && of[f.values[x].node])
        pairs.emplace(of[n]->kind, of[f.values[x].node]->kind);
  }
}

std::vector<Match> find_matches(const Module& module, const Function& f, const Kinds& kinds,
                                const Rule& rule, size_t most) {
  return Matcher(module, f, kinds, rule).run(most);
}
std::vector<Match> find_matches(const Module& module, const Function& f, const Rule& rule,
                                size_t most) {
  return find_matches(module, f, Kinds(f), rule, most);
}

std::optional<Function> apply(Module& module, const Function& f, const Rule& rule, const Match& m) {
  return Applier(module, f, rule, m).run();
}

}  // namespace tegula::superopt
