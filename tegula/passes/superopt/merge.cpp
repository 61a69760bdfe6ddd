#include "tegula/passes/superopt/merge.h"

#include "tegula/base/algorithm.h"
#include "tegula/ops/table.h"
#include "tegula/passes/superopt/blocks.h"
#include "tegula/passes/superopt/matcher.h"

namespace tegula::superopt {

extern const char* const kNamedRules;

Rule named_rule(std::string_view name) {
  const std::string_view all = kNamedRules;
  const size_t begin = all.find(cat("rule ", name, "\n"));
  TEGULA_CHECK(begin != std::string_view::npos, "no rule is named ", name);
  auto rules = parse_rules(all.substr(begin, all.find("\nrule ", begin) - begin), "named.rules");
  TEGULA_CHECK(rules.ok(), rules.ok() ? "" : rules.error().message);
  return std::move(rules->front());
}

namespace {

// Sets of parts, as large as there are.
class Merges {
 public:
  Merges(const Module& module, const Function& f, const Rule& rule)
      : f_(f),
        rule_(rule),
        matcher_(module, f, rule),
        users_(f),
        left_(matcher_.pattern(rule.left)),
        right_(matcher_.pattern(rule.right)),
        is_sum_(left_.kind == "add"),
        part_op_(op_of(right_.kind)),
        is_taken_(f.nodes.size(), 0) {}

  std::vector<Match> run() {
    TEGULA_CHECK(is_one_part(), "rule ", rule_.name, " merges nothing");
    const OpDef* first = is_sum_ ? &add_op : part_op_;
    if (is_sum_) uses_ = f_.use_counts();
    // Sums go from the outermost on, products from the first.
    for (NodeId k = 0; k < f_.nodes.size(); ++k) {
      const NodeId n = is_sum_ ? static_cast<NodeId>(f_.nodes.size()) - 1 - k : k;
      if (f_.nodes[n].op == first && !is_taken_[n]) is_sum_ ? add_up(n) : split(n);
    }
    return std::move(found_);
  }

 private:
  // An operand of the parts: one value, or one of each, which the right side concatenates.
  struct Operand {
    int first = 0, second = 0, joined = 0;  // nodes of the rule
    bool is_shared() const { return first == second; }
  };

  // Both parts are one kind's calls, and so is the right side.
  bool is_one_part() {
    if (rule_.where.size() > rule_.sizes.size() || left_.in.size() != 2) return false;
    const Node &a = matcher_.pattern(left_.in[0]), &b = matcher_.pattern(left_.in[1]);
    for (const Node* n : {&a, &b})
      if (n->kind == "input" || n->kind != right_.kind || !(n->attrs == right_.attrs)) return false;
    for (size_t k = 0; k < right_.in.size(); ++k) {
      const Operand o{a.in[k], b.in[k], right_.in[k]};
      const Node& joined = matcher_.pattern(o.joined);
      for (const int x : {o.first, o.second})
        if (matcher_.pattern(x).kind != "input") return false;
      if (o.is_shared()
              ? o.joined != o.first
              : joined.kind != "concat" || joined.in != std::vector<int>{o.first, o.second})
        return false;
      if (o.is_shared()) shared_ = k;
      operands_.push_back(o);
    }
    return is_sum_ || (left_.kind == "concat" && shared_ < operands_.size());
  }

  ValueId operand(NodeId n, size_t k) const { return f_.nodes[n].inputs[k]; }
  bool is_alike(NodeId n, NodeId m) const {
    const tegula::Node &a = f_.nodes[n], &b = f_.nodes[m];
    return a.op == b.op && a.phase == b.phase && a.attrs == b.attrs;
  }
  bool is_new(NodeId n, const std::vector<NodeId>& parts) const {
    for (size_t k = 0; k < operands_.size(); ++k)
      for (const NodeId m : parts)
        if (!operands_[k].is_shared() && operand(m, k) == operand(n, k)) return false;
    return true;
  }
  // Are all values that would be concatenated there at any time?
  bool has_weights(NodeId n) const {
    for (size_t k = 0; k < operands_.size(); ++k)
      if (!operands_[k].is_shared() && !is_weight(f_, operand(n, k))) return false;
    return true;
  }
  void split(NodeId n) {
    const bool are_weights = has_weights(n);
    std::vector<NodeId> parts = {n};
    for (const NodeId m : users_.of(operand(n, shared_)))
      if (m > n && is_alike(n, m) && !is_taken_[m] && operand(m, shared_) == operand(n, shared_) &&
          is_new(m, parts) && has_weights(m) == are_weights)
        parts.push_back(m);
    match(std::move(parts), kNone);
  }

  // The parts that v adds up, each read here alone, the last first: long sums have theirs at left;
  // and all nodes on the way.
  bool gather(ValueId v, bool is_root, std::vector<NodeId>& parts,
              std::vector<NodeId>& inner) const {
    const tegula::Node* n = f_.producer(v);
    for (; n && n->op == &cast_op && uses_[v] == 1; n = f_.producer(v)) {
      inner.push_back(f_.values[v].node);
      v = n->inputs[0];
    }
    if (!n || (!is_root && uses_[v] != 1)) return false;
    const NodeId id = f_.values[v].node;
    if (!is_root) inner.push_back(id);
    if (n->op == &add_op)
      return gather(n->inputs[1], false, parts, inner) && gather(n->inputs[0], false, parts, inner);
    if (n->op != part_op_ || !(parts.empty() || is_alike(parts[0], id)) || !is_new(id, parts))
      return false;
    parts.push_back(id);
    return true;
  }
  void add_up(NodeId n) {
    std::vector<NodeId> parts, inner;
    if (!gather(f_.nodes[n].output(), true, parts, inner)) return;
    std::reverse(parts.begin(), parts.end());
    if (!match(std::move(parts), n)) return;
    for (const NodeId i : inner) is_taken_[i] = 1;
    found_.back().inner = std::move(inner);
  }

  // A concatenation of the k-th operands, in any order: the parts then stand in its order.
  ValueId find_joined(std::vector<NodeId>& parts, size_t k, bool may_sort) const {
    for (const NodeId u : users_.of(operand(parts[0], k))) {
      const tegula::Node& n = f_.nodes[u];
      if (n.op != &concat_op || n.inputs.size() != parts.size()) continue;
      std::vector<NodeId> sorted;
      for (const ValueId v : n.inputs)
        for (const NodeId part : parts)
          if (operand(part, k) == v) sorted.push_back(part);
      if (sorted.size() != parts.size() || (sorted != parts && !may_sort)) continue;
      parts = std::move(sorted);
      return n.output();
    }
    return kNone;
  }

  bool match(std::vector<NodeId> parts, NodeId sum) {
    if (parts.size() < 2) return false;
    bool is_joined = false;
    for (size_t k = 0; k < operands_.size() && !is_joined; ++k)
      is_joined = !operands_[k].is_shared() && find_joined(parts, k, true) != kNone;
    if (sum == kNone && !is_joined && !has_weights(parts[0])) return false;
    // The others are as the first but for what is joined.
    State s;
    if (!matcher_.value(left_.in[0], f_.nodes[parts[0]].output(), s, s.view, false)) return false;
    s.is_split = sum == kNone;
    if (!joins(parts, s) || !pays(parts, s)) return false;
    for (const NodeId n : parts) is_taken_[n] = 1;
    if (s.is_split)
      for (const NodeId n : parts) s.roots.push_back(f_.nodes[n].output());
    else
      s.roots = {f_.nodes[sum].output()};
    found_.push_back(std::move(s));
    return true;
  }
  const std::string& name(int input) const {
    return rule_.graph.inputs[static_cast<size_t>(input)].name;
  }
  static int dim(const Node& concat, const View& view) {
    return dim_in(view, static_cast<int>(concat.attrs.poly("dim", 0).constant()));
  }

  // Every concatenation has one dim, of a known size, in which alone its operands differ.
  bool joins(std::vector<NodeId>& parts, State& s) const {
    s.more.resize(parts.size() - 2);
    if (s.is_split && dim(left_, s.view) < 0) return false;
    for (size_t k = 0; k < operands_.size(); ++k) {
      const Operand& o = operands_[k];
      if (o.is_shared()) continue;
      const Bound& first = s.inputs.at(name(o.first));
      const int d = dim(matcher_.pattern(o.joined), first.view);
      if (d < 0) return false;
      for (size_t i = 0; i < parts.size(); ++i) {
        const ValueId v = operand(parts[i], k);
        Type like = f_.type(first.value);
        const Dim size = f_.type(v).shape[d];
        like.shape[d] = size;
        if (!size.is_const() || size.offset < 1 || !(f_.type(v) == like)) return false;
        if (i > 1) s.more[i - 2][name(o.second)] = v;
      }
      s.inputs[name(o.second)] = {operand(parts[1], k), first.view};
      const ValueId there = find_joined(parts, k, false);
      if (there != kNone && f_.producer(there)->attrs.i("dim") == d) s.there[o.joined] = there;
    }
    return true;
  }

  // Bytes that are read and written no more, against those that concatenations move. At as many
  // a sum is taken, whose parts need not be kept.
  bool pays(const std::vector<NodeId>& parts, const State& s) const {
    const auto others = static_cast<int64_t>(parts.size() - 1);
    int64_t spared = 0;
    if (is_sum_) spared += 2 * others * f_.type(f_.nodes[parts[0]].output()).bytes();
    for (size_t k = 0; k < operands_.size(); ++k) {
      const Operand& o = operands_[k];
      if (o.is_shared()) {
        spared += others * f_.type(operand(parts[0], k)).bytes();
        continue;
      }
      const auto there = s.there.find(o.joined);
      for (const NodeId n : parts) {
        if (there == s.there.end()) spared -= 2 * f_.type(operand(n, k)).bytes();
        if (is_sum_ || is_weight(f_, operand(n, k))) continue;
        // It waits for the concatenation, which nothing that reads it may come before.
        if (there == s.there.end()) return false;
        for (const NodeId user : users_.of(f_.nodes[n].output()))
          if (user < f_.values[there->second].node) return false;
      }
    }
    return is_sum_ ? spared >= 0 : spared > 0;
  }

  const Function& f_;
  const Rule& rule_;
  Matcher matcher_;
  const Users users_;
  const Node &left_, &right_;
  const bool is_sum_;
  const OpDef* const part_op_;
  std::vector<Operand> operands_;
  size_t shared_ = SIZE_MAX;  // an operand that is
  std::vector<uint8_t> is_taken_;
  std::vector<uint32_t> uses_;
  std::vector<Match> found_;
};

}  // namespace

Result<bool> merge(Module& module, Function& f, const Rule& rule) {
  const std::vector<Match> found = Merges(module, f, rule).run();
  if (found.empty()) return false;
  return apply_all(module, f, rule, found);
}

}  // namespace tegula::superopt
