#include "tools/rules/generate/generate.h"

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>
#include <unordered_map>

#include "tegula/base/algorithm.h"
#include "tools/rules/generate/instances.h"
#include "tools/rules/prove/evaluate.h"

namespace tegula::superopt {

namespace {
double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

constexpr int kMostOps = 4;
constexpr size_t kCopies = 3;  // of inputs: by one alone, max is often where it is by chance

std::pair<size_t, std::string> order_of(const Graph& g, int root) {
  size_t ops = 0;
  for (const int n : nodes_of(g, root)) ops += g.nodes[static_cast<size_t>(n)].kind != "input";
  return {ops, g.text(root)};
}

// An op on programs.
struct Op {
  int choice = -1;  // of the world's choices; −1: an input
  std::array<int, 2> in = {-1, -1};
  uint8_t inputs = 0;          // a bit each
  bool is_elementwise = true;  // and everything in it
  uint8_t tree_ops = 0;        // ops where nothing is shared, at most 255
};
class Enumeration;
struct Candidate {
  const Enumeration* from = nullptr;
  Op left, right;
  // Small programs first, and of these the general ones, with many inputs of many sizes: what is a
  // case of a rule comes after it.
  std::array<int, 4> order() const;
};
// A program that something can be built on. Its ops are the numbers of programs, itself the last.
struct Program {
  Op op;
  int shape = 0;
  std::array<int, kMostOps> ops = {-1, -1, -1, -1};
  int n_ops = 0;
  std::vector<Residue> data;
};

struct Step {  // a choice on operands of given shapes, compiled
  int choice = 0, shape = 0;
  bool is_commutative = false, is_elementwise = false;
  Compiled compiled;
};

template <class T, class F>
void keep_if(std::vector<T>& all, F&& keep) {
  all.erase(std::remove_if(all.begin(), all.end(), [&](const T& x) { return !keep(x); }),
            all.end());
}

// Leaves the world's names that neither side has out of the rule, and conditions on them.
void keep_used(Rule& r) {
  std::vector<Symbol> used;
  std::vector<std::string> functions;
  for (const Node& n : r.graph.nodes) {
    std::vector<Poly> all = n.shape;
    for (const auto& [name, polys] : n.attrs.polys)
      all.insert(all.end(), polys.begin(), polys.end());
    for (const Poly& p : all)
      for (const Symbol s : p.symbols()) used.push_back(s);
    if (n.kind == "function") functions.push_back(n.attrs.words.find("name")->second);
  }
  const auto is_used = [&](Symbol s) {
    return std::find(used.begin(), used.end(), s) != used.end();
  };
  for (auto* all : {&r.sizes, &r.integers, &r.scalars}) keep_if(*all, is_used);
  std::sort(functions.begin(), functions.end());
  functions.erase(std::unique(functions.begin(), functions.end()), functions.end());
  r.functions = std::move(functions);
  keep_if(r.where, [&](const Guard& g) {
    const std::vector<Symbol> all = g.p.symbols();
    return std::all_of(all.begin(), all.end(), is_used);
  });
}

class Enumeration {
 public:
  explicit Enumeration(const World& world) : world_(world) {
    const std::string text = cat("rule world\n", world.header, "left x\nright x\n");
    base_ = (*parse_rules(text, "world"))[0];
    for (std::string_view rest = world.extents; !rest.empty();) {
      const size_t eq = rest.find('='), end = std::min(rest.find(' '), rest.size());
      at_.integers[Symbol(rest.substr(0, eq))] = rest[eq + 1] - '0';
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    for (const Symbol s : base_.scalars) at_.scalars[s] = Residue::of_bits(mix(s.word()));
  }

  void run() {
    for (size_t k = 0; k < base_.graph.inputs.size(); ++k) {
      Program p;
      p.shape = shape_id(base_.graph.inputs[k].shape);
      p.op.inputs = static_cast<uint8_t>(1u << k);
      std::vector<int64_t> extents = concrete_[static_cast<size_t>(p.shape)];
      extents.push_back(kCopies);
      out_ = random_tensor(extents, mix(k + 77)).data;
      by_fingerprint_[fingerprint(p.shape, out_)] = static_cast<int>(all_.size());
      all_.push_back(p.op);
      p.data = out_;
      programs_.push_back(std::move(p));
    }
    // Broadcasts and reshapes may go to the shapes of inputs and of what one op makes of two.
    for (size_t x = 0; x < programs_.size(); ++x)
      for (size_t y = 0; y < programs_.size(); ++y) steps(programs_[x].shape, programs_[y].shape);
    known_ = shapes_;
    for (int ops = 1; ops <= world_.most_ops; ++ops) level(ops);
    by_fingerprint_.clear(), all_.clear(), all_.shrink_to_fit();
  }
  int64_t n_graphs() const { return n_graphs_; }
  int n_sizes() const { return static_cast<int>(base_.sizes.size()); }
  std::vector<Candidate>& candidates() { return candidates_; }

  Rule rule_of(Op left, Op right) const {
    if ((left.inputs & right.inputs) != right.inputs)
      std::swap(left, right);  // left has all inputs
    Rule r = base_;
    r.graph = {};
    std::vector<int> input(base_.graph.inputs.size(), -1);
    for (size_t k = 0; k < input.size(); ++k)
      if (left.inputs >> k & 1) {
        input[k] = static_cast<int>(r.graph.inputs.size());
        r.graph.add_input(base_.graph.inputs[k].name, base_.graph.inputs[k].shape);
      }
    r.left = build(r.graph, left, input), r.right = build(r.graph, right, input);
    keep_used(r);
    return r;
  }

 private:
  int shape_id(const Extents& shape) {
    const auto at = std::find(shapes_.begin(), shapes_.end(), shape);
    if (at != shapes_.end()) return static_cast<int>(at - shapes_.begin());
    std::vector<int64_t> extents;
    for (const Poly& p : shape) extents.push_back(at_.integer(p));
    shapes_.push_back(shape), concrete_.push_back(std::move(extents));
    return static_cast<int>(shapes_.size()) - 1;
  }
  static uint64_t fingerprint(int shape, const std::vector<Residue>& data) {
    uint64_t h = mix(static_cast<uint64_t>(shape));
    for (const Residue r : data) h = mix(h ^ r.value());
    return h;
  }

  // Steps from operands of these shapes, compiled when first asked for.
  const std::vector<Step>& steps(int x, int y) {
    const auto key = std::pair(x, y);
    const auto [at, is_new] = steps_.try_emplace(key);
    if (!is_new) return at->second;
    const Extents sx = shapes_[static_cast<size_t>(x)];
    std::vector<Extents> in = {sx};
    if (y >= 0) in.push_back(shapes_[static_cast<size_t>(y)]);
    std::vector<std::vector<int64_t>> extents = {concrete_[static_cast<size_t>(x)]};
    if (y >= 0) extents.push_back(concrete_[static_cast<size_t>(y)]);
    for (Choice& c : y < 0 ? choices(world_, sx, known_) : choices(world_, sx, in[1])) {
      const auto form = form_of(c.kind, {in, c.attrs});
      if (!form.ok()) continue;
      auto compiled = compile(*form, extents, at_, 20'000);
      if (!compiled.ok() || compiled->n_elements == 0 || compiled->n_elements > 400) continue;
      Step s;
      s.shape = shape_id(form->shape);
      s.is_commutative = c.is_commutative;
      s.is_elementwise = c.kind == "function" || c.kind == "scale" || c.kind == "add" ||
                         c.kind == "mul" || c.kind == "max";
      s.compiled = std::move(*compiled);
      s.choice = static_cast<int>(choices_.size());
      choices_.push_back(std::move(c));
      at->second.push_back(std::move(s));
    }
    return at->second;
  }

  static int merge_ops(const Program& a, const Program& b, std::array<int, kMostOps>& out) {
    int i = 0, j = 0, n = 0;
    while (i < a.n_ops || j < b.n_ops) {
      const int x = i < a.n_ops ? a.ops[static_cast<size_t>(i)] : INT32_MAX,
                y = j < b.n_ops ? b.ops[static_cast<size_t>(j)] : INT32_MAX;
      if (n == kMostOps) return kMostOps + 1;
      out[static_cast<size_t>(n++)] = std::min(x, y);
      i += x <= y, j += y <= x;
    }
    return n;
  }

  // All programs of that many ops, over programs that are nobody's longer equal.
  void level(int ops) {
    const int n = static_cast<int>(programs_.size());
    std::vector<std::vector<int>> by_ops(static_cast<size_t>(ops));
    std::unordered_map<int, std::vector<int>> with;  // programs by the ops in them
    for (int k = 0; k < n; ++k) {
      const Program& p = programs_[static_cast<size_t>(k)];
      by_ops[static_cast<size_t>(p.n_ops)].push_back(k);
      for (int o = 0; o < p.n_ops; ++o) with[p.ops[static_cast<size_t>(o)]].push_back(k);
    }
    for (const int x : by_ops[static_cast<size_t>(ops - 1)]) apply(x, -1);
    for (size_t a = 0; a < static_cast<size_t>(ops); ++a)
      for (const int x : by_ops[a]) {
        std::vector<int> partners;
        for (size_t b = 0; b <= a; ++b)
          if (static_cast<int>(a + b) == ops - 1)  // nothing in common
            partners.insert(partners.end(), by_ops[b].begin(), by_ops[b].end());
        for (int o = 0; o < programs_[static_cast<size_t>(x)].n_ops; ++o)  // something in common
          for (const int y : with[programs_[static_cast<size_t>(x)].ops[static_cast<size_t>(o)]])
            partners.push_back(y);
        std::sort(partners.begin(), partners.end());
        partners.erase(std::unique(partners.begin(), partners.end()), partners.end());
        std::array<int, kMostOps> both;
        for (const int y : partners) {
          const Program &p = programs_[static_cast<size_t>(x)],
                        &q = programs_[static_cast<size_t>(y)];
          if (q.n_ops > p.n_ops || (q.n_ops == p.n_ops && y > x)) continue;
          if (merge_ops(p, q, both) == ops - 1) apply(x, y);
        }
      }
  }

  const std::string& kind_of(int program) const {
    static const std::string kNone;
    const int c = programs_[static_cast<size_t>(program)].op.choice;
    return c < 0 ? kNone : choices_[static_cast<size_t>(c)].kind;
  }
  // Left out: what elementwise identities alone make of another program: sums and products are
  // grouped to the left in descending order, and scaled last.
  bool is_regrouped(const Step& s, int x, int y) const {
    const std::string& kind = choices_[static_cast<size_t>(s.choice)].kind;
    const auto child = [&](int p, size_t k) { return programs_[static_cast<size_t>(p)].op.in[k]; };
    if (kind == "scale") return kind_of(x) == "scale";
    if (!s.is_commutative) return false;
    if (x == y && kind != "mul") return true;
    if (kind == "mul" && (kind_of(x) == "scale" || kind_of(y) == "scale")) return true;
    if (kind == "add" && kind_of(x) == "scale" && kind_of(y) == "scale") return true;
    if (kind == "add" && kind_of(x) == "mul" && kind_of(y) == "mul")
      for (const size_t i : {0u, 1u})
        for (const size_t j : {0u, 1u})
          if (child(x, i) == child(y, j)) return true;
    const bool in_x = kind_of(x) == kind, in_y = kind_of(y) == kind;
    return (in_x && in_y) || (in_x && child(x, 1) < y) || (in_y && child(y, 1) < x);
  }

  void apply(int x, int y) {
    apply_in_order(x, y);
    if (y >= 0 && y != x) apply_in_order(y, x, true);
  }
  void apply_in_order(int x, int y, bool is_exchanged = false) {
    const int sx = programs_[static_cast<size_t>(x)].shape,
              sy = y < 0 ? -1 : programs_[static_cast<size_t>(y)].shape;
    for (const Step& s : steps(sx, sy)) {
      if (is_exchanged && s.is_commutative) continue;
      if (is_regrouped(s, x, y)) continue;
      const Program& p = programs_[static_cast<size_t>(x)];
      const Program& q = programs_[static_cast<size_t>(y < 0 ? x : y)];
      const size_t n = static_cast<size_t>(s.compiled.n_elements);
      const size_t np = p.data.size() / kCopies, nq = q.data.size() / kCopies;
      out_.resize(n * kCopies);
      for (size_t k = 0; k < kCopies; ++k) {
        const std::span<const Residue> in[] = {{p.data.data() + k * np, np},
                                               {q.data.data() + k * nq, nq}};
        superopt::run(s.compiled, in, {out_.data() + k * n, n});
      }
      ++n_graphs_;
      Program made;
      made.shape = s.shape;
      made.op = {
          s.choice,
          {x, y},
          static_cast<uint8_t>(p.op.inputs | q.op.inputs),
          s.is_elementwise && p.op.is_elementwise && q.op.is_elementwise,
          static_cast<uint8_t>(std::min(255, 1 + p.op.tree_ops + (y < 0 ? 0 : q.op.tree_ops)))};
      made.n_ops = merge_ops(p, q, made.ops) + 1;
      meet(std::move(made));
    }
  }
  // Equal to an older program, it is a candidate and nothing is built on it; else it is new.
  void meet(Program made) {
    const auto [at, is_new] =
        by_fingerprint_.try_emplace(fingerprint(made.shape, out_), static_cast<int>(all_.size()));
    if (is_new) {
      all_.push_back(made.op);
      if (made.n_ops == world_.most_ops) return;
      made.data = out_;
      made.ops[static_cast<size_t>(made.n_ops - 1)] = static_cast<int>(programs_.size());
      programs_.push_back(std::move(made));
      return;
    }
    const Op& old = all_[static_cast<size_t>(at->second)];
    // Elementwise alone is fusion's; where neither side has all inputs, neither can be made.
    const uint8_t both = old.inputs & made.op.inputs;
    if ((old.is_elementwise && made.op.is_elementwise) ||
        (both != old.inputs && both != made.op.inputs))
      return;
    candidates_.push_back({this, made.op, old});
  }

  int build(Graph& g, const Op& op, const std::vector<int>& input) const {
    if (op.choice < 0) {
      size_t k = 0;
      while (!(op.inputs >> k & 1)) ++k;
      return input[k];
    }
    std::vector<int> in;
    for (const int i : op.in)
      if (i >= 0) in.push_back(build(g, programs_[static_cast<size_t>(i)].op, input));
    const Choice& c = choices_[static_cast<size_t>(op.choice)];
    return *g.add(c.kind, std::move(in), c.attrs);
  }

  const World& world_;
  Rule base_;
  Assignment at_;
  std::vector<Extents> shapes_, known_;
  std::vector<std::vector<int64_t>> concrete_;
  std::vector<Choice> choices_;
  std::map<std::pair<int, int>, std::vector<Step>> steps_;
  std::vector<Program> programs_;
  std::vector<Op> all_;  // the longest, too
  std::unordered_map<uint64_t, int> by_fingerprint_;
  std::vector<Candidate> candidates_;
  std::vector<Residue> out_;
  int64_t n_graphs_ = 0;
};
std::array<int, 4> Candidate::order() const {
  const auto [less, more] = std::minmax(left.tree_ops, right.tree_ops);
  return {more, less, -std::popcount(static_cast<unsigned>(left.inputs | right.inputs)),
          -from->n_sizes()};
}

// Calls f(k) for each k < n on that many threads.
template <class F>
void for_all(size_t n, int n_threads, F&& f) {
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  auto work = [&] {
    for (size_t k = next++; k < n; k = next++) f(k);
  };
  for (int t = 1; t < n_threads; ++t) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
}

// "concat_dot__dot_concat_2": the kinds of both sides, numbered where several have them.
std::string name_of(const Rule& r, std::map<std::string, int>& taken) {
  std::string name;
  for (const int side : {r.left, r.right}) {
    if (side == r.right) name += "__";
    std::string kinds;
    const std::vector<int> nodes = nodes_of(r.graph, side);
    for (auto n = nodes.rbegin(); n != nodes.rend(); ++n)
      if (const Node& node = r.graph.nodes[static_cast<size_t>(*n)]; node.kind != "input")
        kinds += (kinds.empty() ? "" : "_") +
                 (node.kind == "function" ? node.attrs.words.find("name")->second : node.kind);
    name += kinds.empty() ? "x" : kinds;
  }
  const int n = ++taken[name];
  return n == 1 ? name : cat(name, "_", n);
}

bool is_implied(Rule& r, const Rewrites& by) {
  const int longer = order_of(r.graph, r.left) < order_of(r.graph, r.right) ? r.right : r.left;
  return by.imply(r.graph, longer, r.left + r.right - longer, r.where);
}
}  // namespace

void Rewrites::add(Rule rule) {
  for (const bool from_left : {true, false}) {
    const Node& head = rule.graph.nodes[static_cast<size_t>(from_left ? rule.left : rule.right)];
    if (head.kind != "input") by_head_[head.kind].emplace_back(rules_.size(), from_left);
  }
  rules_.push_back(std::move(rule));
}

bool Rewrites::imply(Graph& graph, int root, int other, std::span<const Guard> facts) const {
  const auto own = order_of(graph, root);
  for (const int n : nodes_of(graph, root)) {
    const auto heads = by_head_.find(graph.nodes[static_cast<size_t>(n)].kind);
    if (heads == by_head_.end()) continue;
    for (const auto& [k, from_left] : heads->second) {
      const Rule& r = rules_[k];
      for (const Instance& m : instances_of(r, from_left ? r.left : r.right, graph, n, facts)) {
        const auto by = instantiate(r, from_left ? r.right : r.left, m, graph);
        if (!by.ok()) continue;
        const auto whole = replaced(graph, root, n, *by);
        if (whole.ok() && (*whole == other || order_of(graph, *whole) < own)) return true;
      }
    }
  }
  return false;
}

std::string Counts::text() const {
  const auto seconds = [](double ms) { return std::round(ms / 100) / 10; };
  return cat(graphs, " graphs in ", seconds(generate_ms), " s, ", candidates, " candidates, ",
             survivors, " survivors, ", proven, " proven in ", seconds(prove_ms), " s");
}

std::string Generated::text() const {
  std::string all;
  for (const Rule& r : rules) all += r.text() + "\n";
  return all;
}

Generated generate_rules(int n_threads) {
  Generated g;
  const double start = now_ms();
  std::vector<std::unique_ptr<Enumeration>> worlds;
  for (const World& w : all_worlds()) worlds.push_back(std::make_unique<Enumeration>(w));
  for_all(worlds.size(), n_threads, [&](size_t k) { worlds[k]->run(); });
  std::vector<Candidate> all;
  for (const auto& w : worlds) {
    g.counts.graphs += w->n_graphs();
    all.insert(all.end(), w->candidates().begin(), w->candidates().end());
    w->candidates() = {};
  }
  g.counts.candidates = static_cast<int64_t>(all.size());
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.order() < b.order(); });
  g.counts.generate_ms = now_ms() - start;
  // A wave is of one size: first what the smaller rules imply goes, in parallel, then one by one.
  Rewrites found;
  std::map<std::string, int> names;
  for (size_t from = 0, to = 0; from < all.size(); from = to) {
    if (all[from].order()[0] > 4 || all[from].order()[1] > 3) break;
    while (to < all.size() && all[to].order()[0] == all[from].order()[0] &&
           all[to].order()[1] == all[from].order()[1])
      ++to;
    std::vector<uint8_t> is_open(to - from);
    for_all(to - from, n_threads, [&](size_t k) {
      Rule r = all[from + k].from->rule_of(all[from + k].left, all[from + k].right);
      is_open[k] = !is_implied(r, found);
    });
    for (size_t k = 0; k < is_open.size(); ++k) {
      if (!is_open[k]) continue;
      Rule r = all[from + k].from->rule_of(all[from + k].left, all[from + k].right);
      if (is_implied(r, found) || is_refuted(r, 4, 5)) continue;
      ++g.counts.survivors;
      Proof proof = prove(r);
      if (!proof.is_proven) continue;
      r.proof = std::move(proof.steps), r.has_proof = true;
      r.notes["class"] = class_of(r);
      r.name = name_of(r, names);
      found.add(std::move(r));
    }
  }
  g.counts.proven = static_cast<int64_t>(found.rules().size());
  g.counts.prove_ms = now_ms() - start - g.counts.generate_ms;
  g.rules.assign(found.rules().begin(), found.rules().end());
  return g;
}

}  // namespace tegula::superopt
