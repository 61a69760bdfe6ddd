#include "tegula/base/algorithm.h"
#include "tegula/ir/hash.h"
#include "tegula/ops/table.h"
#include "tegula/passes/superopt/matcher.h"
#include "tegula/passes/superopt/search.h"

namespace tegula::superopt {

std::string_view word_of(const KindAttrs& a, std::string_view name) {
  const auto at = a.words.find(name);
  return at == a.words.end() ? std::string_view() : std::string_view(at->second);
}

bool is_elementwise(std::string_view kind) {
  for (const std::string_view k : {"function", "add", "sub", "mul", "neg", "max", "scale"})
    if (k == kind) return true;
  return false;
}
bool has_dim(std::string_view kind) { return kind == "concat" || kind == "slice"; }

int dim_in(const View& view, int dim) {
  if (view.empty()) return dim;
  const std::vector<int>& dims = view[static_cast<size_t>(dim)];
  return dims.size() == 1 ? dims[0] : -1;
}

bool is_weight(const Function& f, ValueId v) {
  const tegula::Node* n = f.producer(v);
  for (; n && n->inputs.size() == 1 && (n->op->is_view || n->op == &cast_op); n = f.producer(v))
    v = n->inputs[0];
  return !n && f.params[f.values[v].index].role == Role::kWeight;
}

namespace {
constexpr std::string_view kMatrices = "m k, k n -> m n";
using Sides = std::array<const DimNames*, 3>;
Sides sides_of(const DotDims& d) { return {&d.a, &d.b, &d.out}; }

// In which of a, b and the result a factor stands, as bits.
unsigned where(const DotDims& d, std::string_view name) {
  return (d.a.has(name) ? 1u : 0u) | (d.b.has(name) ? 2u : 0u) | (d.out.has(name) ? 4u : 0u);
}
constexpr unsigned kBatch = 7;

// The factors of each such set, in the order in which they first appear.
std::array<DimNames, 8> factors_of(const DotDims& d) {
  std::array<DimNames, 8> all;
  for (const DimNames* side : sides_of(d))
    for (const std::string_view name : *side)
      if (DimNames& known = all[where(d, name)]; !known.has(name)) known.push_back(name);
  return all;
}
}  // namespace

std::optional<DotViews> dot_views(std::string_view rule_text, std::string_view node_text) {
  const auto rule = DotDims::parse(rule_text.empty() ? kMatrices : rule_text);
  const auto node = DotDims::parse(node_text);
  if (!rule.ok() || !node.ok()) return {};
  const auto wanted = factors_of(*rule), given = factors_of(*node);
  for (unsigned w = 0; w < wanted.size(); ++w)
    if (wanted[w].size() > 1 ? given[w].size() != wanted[w].size()
                             : wanted[w].empty() && !given[w].empty() && w != kBatch)
      return {};
  DotViews views;
  bool is_plain = true;
  View* const out[] = {&views.a, &views.b, &views.out};
  for (size_t side = 0; side < 3; ++side) {
    const DimNames &of_rule = *sides_of(*rule)[side], &of_node = *sides_of(*node)[side];
    const auto put = [&](const DimNames& names) {
      std::vector<int>& dims = out[side]->emplace_back();
      for (const std::string_view name : names)
        dims.push_back(
            static_cast<int>(std::find(of_node.begin(), of_node.end(), name) - of_node.begin()));
    };
    for (const std::string_view name : of_rule) {
      const unsigned w = where(*rule, name);
      DimNames group = given[w];
      if (wanted[w].size() > 1) {
        const auto at = std::find(wanted[w].begin(), wanted[w].end(), name) - wanted[w].begin();
        group = DimNames();
        group.push_back(given[w][static_cast<int>(at)]);
      }
      put(group);
      const std::vector<int>& dims = out[side]->back();
      is_plain &= dims.size() == 1 && dims[0] == static_cast<int>(out[side]->size()) - 1;
    }
    put(wanted[kBatch].empty() ? given[kBatch] : DimNames());
    is_plain &= out[side]->back().empty();
  }
  return is_plain ? DotViews() : views;
}

Matcher::Matcher(const Module& module, const Function& f, const Rule& rule, const Kinds* kinds)
    : module_(module), f_(f), rule_(rule), known_kinds_(kinds), sees_casts_(!keeps_order(rule)) {
  for (const auto* all : {&rule.sizes, &rule.integers})
    free_.insert(free_.end(), all->begin(), all->end());
}

const std::optional<KindOfNode>& Matcher::kind(NodeId n) {
  if (known_kinds_) return known_kinds_->of[n];
  const auto [at, is_new] = kinds_.try_emplace(n);
  if (is_new) at->second = kind_of(f_, f_.nodes[n]);
  return at->second;
}

namespace {
// By its op alone.
bool may_be(const Node& p, const tegula::Node& n) {
  return p.kind == "function" ? n.op->is_elementwise : n.op == op_of(p.kind);
}
}  // namespace

std::vector<Match> Matcher::run(size_t most) {
  most_ = most;
  const Node& left = pattern(rule_.left);
  if (left.kind == "input") return {};
  for (const tegula::Node& n : f_.nodes) {
    if (!may_be(left, n)) continue;
    State s;
    if (!value(rule_.left, n.output(), s, s.view, false)) continue;
    s.roots = {n.output()};
    finish(std::move(s));
  }
  if (left.kind == "concat") roots(State(), 0, 0);
  return std::move(found_);
}

// The concatenation's operands one after another, each later than the one before.
void Matcher::roots(State s, size_t k, size_t begin) {
  const Node& left = pattern(rule_.left);
  if (found_.size() >= most_) return;
  if (k == left.in.size()) {
    s.is_split = true;
    if (dim_in(s.view, static_cast<int>(left.attrs.poly("dim", 0).constant())) >= 0)
      finish(std::move(s));
    return;
  }
  const Node& p = pattern(left.in[k]);
  if (p.kind == "input") return;
  for (size_t n = begin; n < f_.nodes.size(); ++n) {
    if (!may_be(p, f_.nodes[n])) continue;
    if (found_.size() >= most_) return;
    if (clashes(p, f_.nodes[n], s)) continue;  // before anything is copied
    State next = s;
    if (!value(left.in[k], f_.nodes[n].output(), next, next.view, k > 0)) continue;
    if (k > 0 && f_.nodes[n].phase != f_.producer(s.roots[0])->phase) continue;
    next.roots.push_back(f_.nodes[n].output());
    roots(std::move(next), k + 1, n + 1);
  }
}

// Reads another value than one that is bound already.
bool Matcher::clashes(const Node& p, const tegula::Node& n, const State& s) const {
  if (n.op->is_commutative || n.inputs.size() != p.in.size()) return false;
  for (size_t k = 0; k < p.in.size(); ++k) {
    if (pattern(p.in[k]).kind != "input") continue;
    const auto at = s.inputs.find(rule_.graph.inputs[static_cast<size_t>(p.in[k])].name);
    if (at != s.inputs.end() && at->second.value != n.inputs[k]) return true;
  }
  return false;
}

const Poly* Matcher::bound(const State& s, Symbol symbol) const {
  for (const auto& [name, p] : s.symbols)
    if (name == symbol) return &p;
  return nullptr;
}

bool Matcher::unify(const Poly& p, const Poly& v, State& s) const {
  // Mostly a symbol alone.
  if (p.terms().size() == 1 && p.terms()[0].first.size() == 1 && p.terms()[0].second == 1) {
    const Symbol symbol = p.terms()[0].first[0];
    if (const Poly* known = bound(s, symbol)) return *known == v;
    if (std::find(free_.begin(), free_.end(), symbol) == free_.end()) return p == v;
    s.symbols.emplace_back(symbol, v);
    return true;
  }
  const Poly known = p.substitute(s.symbols);
  const Symbol* unknown = nullptr;
  int n_unknown = 0;
  for (const Symbol& x : free_)
    if (!bound(s, x) && known.has(x)) unknown = &x, ++n_unknown;
  if (n_unknown == 0) return known == v;
  if (n_unknown > 1 || !known.is_affine_in(*unknown)) return s.later.emplace_back(p, v), true;
  const Poly by = known.factor_of(*unknown);
  const auto value = divided(v - known + by * Poly(*unknown), by);
  if (!value) return !by.is_const() && (s.later.emplace_back(p, v), true);
  s.symbols.emplace_back(*unknown, *value);
  return true;
}
bool Matcher::unify(const std::vector<Poly>& p, const std::vector<Poly>& v, State& s) const {
  if (p.size() != v.size()) return false;
  for (size_t i = 0; i < p.size(); ++i)
    if (!unify(p[i], v[i], s)) return false;
  return true;
}

bool Matcher::attributes(const Node& p, const KindOfNode& k, const View& view, State& s) const {
  if (p.kind == "function") {
    const auto [at, is_new] = s.functions.try_emplace(std::string(word_of(p.attrs, "name")), k);
    return is_new || (at->second.attrs == k.attrs && same_attrs(at->second.rest, k.rest));
  }
  if (p.kind == "conv") {
    const auto [at, is_new] = s.rest.try_emplace(p.kind, k.rest);
    if (!is_new && !same_attrs(at->second, k.rest)) return false;
  } else if (k.rest.size() > 0) {
    return false;
  }
  for (const auto& [name, values] : k.attrs.polys) {
    if (p.attrs.has(name)) {
      std::vector<Poly> wanted = p.attrs.list(name);
      if (name == "dim" && has_dim(p.kind)) {
        wanted[0] = dim_in(view, static_cast<int>(wanted[0].constant()));
      }
      if (!unify(wanted, values, s)) return false;
      continue;
    }
    if (name == "out") continue;
    const bool is_step = std::string_view("stride dilation step groups").find(name) != name.npos;
    for (const Poly& v : values)
      if (v != Poly(is_step ? 1 : 0)) return false;
  }
  return true;
}

bool Matcher::input(const Input& input, ValueId v, State& s, View& view, bool is_known) const {
  const auto at = s.inputs.find(input.name);
  if (at != s.inputs.end()) {
    if (!is_known) view = at->second.view;
    return at->second.value == v && at->second.view == view;
  }
  if (!is_known) view.clear();
  s.inputs.emplace(input.name, Bound{v, view});
  const Shape& shape = f_.type(v).shape;
  if (view.empty()) return unify(input.shape, extents_of(shape), s);
  if (view.size() != input.shape.size() + 1) return false;
  for (size_t d = 0; d < input.shape.size(); ++d) {
    Poly size = 1;
    for (const int dim : view[d]) size = size * poly_of(shape[dim]);
    if (!unify(input.shape[d], size, s)) return false;
  }
  return true;
}

bool Matcher::product(const Node& p, const tegula::Node& n, const KindOfNode& k, State& s,
                      View& view, bool is_known) {
  const std::string rule_dims(word_of(p.attrs, "dims")), dims(word_of(k.attrs, "dims"));
  const auto [known, is_first] = dot_views_.try_emplace({rule_dims, dims});
  if (is_first) known->second = dot_views(rule_dims, dims);
  const auto& views = known->second;
  if (!views || (is_known && view != views->out)) return false;
  Attrs rest = k.rest;
  if (!views->a.empty()) rest.set("dims", dims);
  const auto [at, is_new] = s.rest.try_emplace(cat("dot ", rule_dims), std::move(rest));
  if (!is_new && !same_attrs(at->second, rest)) return false;
  view = views->out;
  View a = views->a, b = views->b;
  return value(p.in[0], n.inputs[0], s, a, true) && value(p.in[1], n.inputs[1], s, b, true);
}

bool Matcher::value(int pattern_node, ValueId v, State& s, View& view, bool is_known) {
  const Node& p = pattern(pattern_node);
  if (!is_float(f_.type(v).dtype)) return false;
  if (p.kind == "input")
    return input(rule_.graph.inputs[static_cast<size_t>(pattern_node)], v, s, view, is_known);
  const tegula::Node* n = f_.producer(v);
  while (sees_casts_ && n != nullptr && n->op == &cast_op && p.kind != "function" &&
         is_float(f_.type(n->inputs[0]).dtype))
    v = n->inputs[0], n = f_.producer(v);
  if (n == nullptr || n->inputs.size() != p.in.size() || !may_be(p, *n)) return false;
  const auto& k = kind(f_.values[v].node);
  if (!k || k->kind != p.kind) return false;
  const DType dtype = f_.type(p.kind == "dot" || p.kind == "conv" ? n->inputs[0] : v).dtype;
  for (const ValueId x : n->inputs)
    if (f_.type(x).dtype != dtype) return false;
  const auto fits = [&](bool is_swapped) {
    if (p.kind == "dot") return product(p, *n, *k, s, view, is_known);
    if (has_dim(p.kind))  // which dim it is its operands say
      return operands(p, *n, false, s, view, is_known) && attributes(p, *k, view, s);
    return attributes(p, *k, view, s) && operands(p, *n, is_swapped, s, view, is_known);
  };
  if (!n->op->is_commutative) return fits(false);
  const State before = s;
  const View view_before = view;
  if (fits(false)) return true;
  s = before, view = view_before;
  return fits(true);
}

// Inputs last: what computes says how it is seen.
bool Matcher::operands(const Node& p, const tegula::Node& n, bool is_swapped, State& s, View& view,
                       bool is_known) {
  if (!is_elementwise(p.kind) && !has_dim(p.kind)) {
    if (is_known && !view.empty()) return false;
    view.clear(), is_known = true;
  }
  for (const bool are_inputs : {false, true})
    for (size_t k = 0; k < p.in.size(); ++k) {
      if ((pattern(p.in[k]).kind == "input") != are_inputs) continue;
      if (!value(p.in[k], n.inputs[is_swapped ? 1 - k : k], s, view, is_known)) return false;
      is_known = true;
    }
  return true;
}

void Matcher::finish(State s) {
  if (found_.size() >= most_) return;
  const auto later = std::exchange(s.later, {});
  for (const auto& [p, v] : later)
    if (!unify(p, v, s) || !s.later.empty()) return;
  std::vector<std::pair<Symbol, Poly>> one_more;  // a symbol is 1 at least
  for (size_t k = 0; k < module_.symbols.size(); ++k) {
    const Symbol symbol("S", static_cast<int64_t>(k));
    one_more.emplace_back(symbol, Poly(symbol) + 1);
  }
  for (const Guard& g : rule_.where) {
    const Poly here = g.p.substitute(s.symbols).substitute(one_more);
    if (!here.is_exact() || (g.is_zero && !here.is_zero())) return;
    for (const auto& [monomial, coefficient] : here.terms())
      if (coefficient < 0) return;
  }
  found_.push_back(std::move(s));
}

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
    for (ValueId x : f.nodes[n].inputs)
      for (const tegula::Node* by = f.producer(x); by != nullptr; by = f.producer(x)) {
        if (const auto& kind = of[f.values[x].node]) pairs.emplace(of[n]->kind, kind->kind);
        if (by->op != &cast_op) break;
        x = by->inputs[0];
      }
  }
}

std::vector<Match> find_matches(const Module& module, const Function& f, const Kinds& kinds,
                                const Rule& rule, size_t most) {
  return Matcher(module, f, rule, &kinds).run(most);
}
std::vector<Match> find_matches(const Module& module, const Function& f, const Rule& rule,
                                size_t most) {
  return Matcher(module, f, rule).run(most);
}

}  // namespace tegula::superopt
