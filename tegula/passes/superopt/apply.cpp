#include "tegula/ops/math.h"
#include "tegula/passes/edit.h"
#include "tegula/passes/superopt/matcher.h"

namespace tegula::superopt {

namespace {

// Writes the function anew: first in which order, then the nodes. A right side stands as soon as
// all that it reads is there, at the first root at the earliest, or where it is needed.
class Applier {
 public:
  // takes: f's attributes, if there is an order.
  Applier(Module& module, const Function& f, const Rule& rule, std::span<const Match> all,
          Function* takes)
      : f_(f),
        rule_(rule),
        all_(all),
        takes_(takes),
        rw_(module, f),
        of_(f.nodes.size(), kNone),
        state_(f.nodes.size() + all.size(), kAhead) {
    for (uint32_t k = 0; k < all.size(); ++k) {
      for (const ValueId root : all[k].roots) of_[f.values[root].node] = k;
      for (const NodeId n : all[k].inner) state_[n] = kDone;
    }
  }

  bool find_order();
  Result<Function> run() {
    for (const uint32_t at : order_) {
      if (at < f_.nodes.size())
        copy(at);
      else if (!right(all_[at - f_.nodes.size()]))
        return internal_error(cat("rule ", rule_.name, " cannot be applied to ", f_.name));
    }
    Function out = TEGULA_TRY(rw_.finish());
    remove_dead_nodes(out);
    return out;
  }

 private:
  enum : uint8_t { kAhead, kOpen, kDone, kCopied };

  // The match whose root it is, or itself.
  uint32_t part_of(NodeId n) const {
    return of_[n] == kNone ? n : static_cast<uint32_t>(f_.nodes.size()) + of_[n];
  }
  // Is it so for all values that the match reads, its roots apart?
  template <class F>
  bool all_reads(const Match& m, F&& is_there) const {
    for (const auto& [name, bound] : m.inputs)
      if (!is_there(bound.value)) return false;
    for (const auto& part : m.more)
      for (const auto& [name, v] : part)
        if (!is_there(v)) return false;
    return true;
  }

  bool need(ValueId v) { return f_.values[v].node == kNone || place(part_of(f_.values[v].node)); }
  bool place(uint32_t at) {
    if (state_[at] != kAhead) return state_[at] == kDone;
    state_[at] = kOpen;
    if (at >= f_.nodes.size()) {
      if (!all_reads(all_[at - f_.nodes.size()], [&](ValueId v) { return need(v); })) return false;
    } else {
      for (const ValueId v : f_.nodes[at].inputs)
        if (!need(v)) return false;
    }
    state_[at] = kDone;
    order_.push_back(at);
    return true;
  }

  void copy(NodeId n) {
    if (std::exchange(state_[n], kCopied) != kCopied)
      takes_ ? rw_.take(takes_->nodes[n]) : rw_.clone(f_.nodes[n]);
  }

  bool right(const Match& m) {
    m_ = &m;
    emitted_.clear();
    Builder& b = rw_.builder();
    b.set_origin(f_.producer(m.roots[0])->origin);
    b.set_phase(f_.producer(m.roots[0])->phase);
    auto y = emit(rule_.right);
    if (!y || y->second != m.view) return false;
    if (!m.is_split) {
      const Type& type = f_.type(m.roots[0]);
      if (y->first.dtype() != type.dtype && is_float(y->first.dtype()))
        y->first = cast(y->first, type.dtype);  // one that the rule did not see
      return y->first.type() == type && (rw_.bind(m.roots[0], y->first), true);
    }
    const Node& left = rule_.graph.nodes[static_cast<size_t>(rule_.left)];
    const int dim = dim_in(m.view, static_cast<int>(left.attrs.poly("dim", 0).constant()));
    Poly at = 0;
    for (const ValueId root : m.roots) {
      const Type& type = f_.type(root);
      const Poly size = poly_of(type.shape[dim]);
      KindOfNode slice{"slice", {}, {}};
      slice.attrs.polys = {{"dim", {dim}}, {"start", {at}}, {"size", {size}}};
      b.set_origin(f_.producer(root)->origin);
      const auto part = emit_kind(b, slice, std::span(&y->first, 1), type);
      if (!part.ok() || !(part->type() == type)) return false;
      rw_.bind(root, *part);
      at += size;
    }
    return true;
  }

  using Seen = std::pair<Var, View>;
  std::optional<Seen> emit(int pattern_node) {
    if (const auto at = emitted_.find(pattern_node); at != emitted_.end()) return at->second;
    const Node& p = rule_.graph.nodes[static_cast<size_t>(pattern_node)];
    if (p.kind == "input") {
      const auto at = m_->inputs.find(input_name(pattern_node));
      if (at == m_->inputs.end()) return {};
      return Seen{rw_.at(at->second.value), at->second.view};
    }
    std::vector<Var> in;
    std::vector<View> views;
    for (const int x : p.in) {
      auto v = emit(x);
      if (!v) return {};
      in.push_back(v->first), views.push_back(std::move(v->second));
    }
    if (p.kind == "concat")
      for (const auto& part : m_->more) in.push_back(rw_.at(part.at(input_name(p.in[1]))));
    KindOfNode call{p.kind, p.attrs, {}};
    auto view = attributes(p, views, call);
    if (!view) return {};
    const auto there = m_->there.find(pattern_node);
    Var y;
    if (there != m_->there.end()) {
      copy(f_.values[there->second].node);
      y = rw_.at(there->second);
    } else {
      auto made = emit_kind(rw_.builder(), call, in, f_.type(m_->roots[0]));
      if (!made.ok()) return {};
      y = *made;
    }
    return emitted_[pattern_node] = Seen{y, std::move(*view)};
  }
  const std::string& input_name(int pattern_node) const {
    return rule_.graph.inputs[static_cast<size_t>(pattern_node)].name;
  }

  // The call's attributes with what was bound, and how its result is seen; none: operands are seen
  // in a way that it cannot take.
  std::optional<View> attributes(const Node& p, std::span<const View> in, KindOfNode& call) const {
    if (p.kind == "function") {
      call = m_->functions.at(p.attrs.words.at("name"));
    } else {
      for (auto& [name, list] : call.attrs.polys)
        for (Poly& value : list) value = value.substitute(m_->symbols);
    }
    if (p.kind == "dot") {
      const std::string rule_dims(word_of(p.attrs, "dims"));
      auto at = m_->rest.find(cat("dot ", rule_dims));
      const bool is_other = at == m_->rest.end();  // than those at left
      if (is_other) at = m_->rest.lower_bound("dot ");
      if (at == m_->rest.end() || (is_other && at->second.has("dims"))) return {};
      call.rest = at->second;
      if (const AttrValue* dims = call.rest.find("dims")) {
        call.attrs.words["dims"] = dims->get<std::string>();
        call.rest.erase("dims");
        auto views = dot_views(rule_dims, call.attrs.words["dims"]);
        if (in[0] != views->a || in[1] != views->b) return {};
        return std::move(views->out);
      }
    } else if (const auto at = m_->rest.find(p.kind); at != m_->rest.end()) {
      call.rest = at->second;
    }
    View view = in.empty() ? View() : in[0];
    for (const View& other : in)
      if (other != view) return {};
    if (view.empty() || is_elementwise(p.kind)) return view;
    if (!has_dim(p.kind)) return {};
    const int dim = dim_in(view, static_cast<int>(call.attrs.poly("dim", 0).constant()));
    if (dim < 0) return {};
    call.attrs.polys["dim"] = {dim};
    return view;
  }

  const Function& f_;
  const Rule& rule_;
  const std::span<const Match> all_;
  Function* const takes_;
  Rewriter rw_;
  std::vector<uint32_t> of_;    // per node: the match of which it is a root
  std::vector<uint8_t> state_;  // of nodes, then matches
  std::vector<uint32_t> order_;
  const Match* m_ = nullptr;  // that is written
  std::map<int, Seen> emitted_;
};

bool Applier::find_order() {
  std::vector<uint32_t> waiting;
  const auto is_ready = [&](uint32_t at) {
    return all_reads(all_[at - f_.nodes.size()], [&](ValueId v) {
      const NodeId n = f_.values[v].node;
      return n == kNone || state_[part_of(n)] == kDone || is_weight(f_, v);
    });
  };
  for (NodeId n = 0; n < f_.nodes.size(); ++n) {
    const uint32_t at = part_of(n);
    if (at != n && state_[at] == kAhead && !is_ready(at)) {
      waiting.push_back(at);
      continue;
    }
    if (!place(at)) return false;
    while (!waiting.empty() && (state_[waiting.back()] == kDone || is_ready(waiting.back()))) {
      if (!place(waiting.back())) return false;
      waiting.pop_back();
    }
  }
  for (const uint32_t at : waiting)
    if (!place(at)) return false;
  return true;
}

}  // namespace

std::optional<Function> apply(Module& module, const Function& f, const Rule& rule, const Match& m) {
  Applier a(module, f, rule, std::span(&m, 1), nullptr);
  if (!a.find_order()) return {};
  auto out = a.run();
  if (!out.ok()) return {};
  return std::move(*out);
}

Result<bool> apply_all(Module& module, Function& f, const Rule& rule, std::span<const Match> all) {
  Applier a(module, f, rule, all, &f);
  if (!a.find_order()) return false;
  Function out = TEGULA_TRY(a.run());
  f = std::move(out);
  return true;
}

}  // namespace tegula::superopt
