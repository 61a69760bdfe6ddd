// Programs that are right in part, found. [Wang et al. 2021, PET, section 4]
#include <map>
#include <optional>
#include <set>

#include "tegula/base/algorithm.h"
#include "tools/rules/pet/pet.h"
#include "tools/rules/prove/denote.h"

namespace tegula::superopt {

namespace {

constexpr int kMostOps = 3;  // besides the last layout
constexpr size_t kMostPrograms = 40'000;
constexpr size_t kMostMutants = 16;
constexpr int64_t kMostRows = 1 << 18;  // terms of an op at the sizes of the search
constexpr double kLeastShare = 0.25;    // of elements that are right there

// Values of sizes at which programs are told apart: the given ones as far as they are small.
std::optional<Assignment> small_sizes(const Rule& rule, const Assignment& given) {
  std::vector<Guard> needed = rule.where;
  for (const Guard& g : conditions(rule.graph, rule.left)) needed.push_back(g);
  for (uint64_t t = 0; t < 1000; ++t) {
    Assignment at = given;
    uint64_t seed = mix(t);
    for (auto& [symbol, value] : at.integers)
      if (value > 6) seed = mix(seed), value = 5 + static_cast<int64_t>(seed % 4);
    if (at.holds(needed)) return at;
  }
  return {};
}

std::vector<Poly> ones_order(size_t rank, size_t from, size_t into) {
  std::vector<Poly> order;
  for (size_t d = 0; d < rank; ++d) {
    if (d == from) continue;
    if (d == into) order.emplace_back(static_cast<int64_t>(from));
    order.emplace_back(static_cast<int64_t>(d));
  }
  return order;
}

class Enumeration {
 public:
  Enumeration(const Rule& rule, const Assignment& at) : rule_(rule), graph_(rule.graph), at_(at) {}

  Result<Mutants> run() {
    for (size_t k = 0; k < graph_.inputs.size(); ++k) {
      std::vector<int64_t> shape;
      for (const Poly& p : graph_.inputs[k].shape) shape.push_back(at_.integer(p));
      inputs_.push_back(random_inputs(std::move(shape), k));
      meet({static_cast<int>(k), 0, {}, false, inputs_.back().data});
    }
    wanted_ = TEGULA_TRY(evaluate(graph_, rule_.left, at_, inputs_)).data;
    find_templates(rule_.left);
    for (int ops = 1; ops <= kMostOps; ++ops) level(ops);
    std::stable_sort(found_.begin(), found_.end(),
                     [](const auto& a, const auto& b) { return a.share > b.share; });
    Mutants out;
    out.n_programs = n_programs_;
    for (const Found& f : found_) {
      if (out.rules.size() == kMostMutants) break;
      Rule r = rule_;
      r.graph = graph_, r.right = f.node;
      r.name = cat(rule_.name, "_", out.rules.size() + 1);
      out.rules.push_back(std::move(r));
    }
    return out;
  }

 private:
  struct Fold {  // a dim laid into another
    size_t from = 0, into = 0;
    Poly by;
  };
  struct Program {
    int node = 0, ops = 0;
    std::optional<Fold> fold;
    bool is_layout = false;  // the fold is its last op
    std::vector<Residue> data;
  };
  struct Template {
    std::string kind;
    KindAttrs attrs;
    size_t n_operands = 0;
  };
  struct Found {
    int node = 0;
    double share = 0;
  };

  static FieldTensor random_inputs(std::vector<int64_t> shape, size_t k) {
    size_t n = 1;
    for (const int64_t size : shape) n *= static_cast<size_t>(size);
    FieldTensor t{std::move(shape), std::vector<Residue>(n)};
    for (size_t i = 0; i < n; ++i) t.data[i] = Residue::of_bits(mix(mix(k + 1) ^ i));
    return t;
  }
  const Extents& shape(int node) const { return graph_.nodes[static_cast<size_t>(node)].shape; }

  // The ops of the program, each of which may stand anywhere; where it lays pieces in a row, others
  // may lie in a row along any dim.
  void find_templates(int node) {
    const Node& n = graph_.nodes[static_cast<size_t>(node)];
    if (n.kind == "input") return;
    for (const int x : n.in) find_templates(x);
    const auto is_same = [&](const Template& t) { return t.kind == n.kind && t.attrs == n.attrs; };
    if (std::any_of(templates_.begin(), templates_.end(), is_same)) return;
    if (n.kind != "concat") return templates_.push_back({n.kind, n.attrs, n.in.size()});
    for (size_t d = 0; d < n.shape.size(); ++d) {
      KindAttrs attrs;
      attrs.polys["dim"] = {Poly(static_cast<int64_t>(d))};
      if (std::none_of(templates_.begin(), templates_.end(),
                       [&](const Template& t) { return t.kind == "concat" && t.attrs == attrs; }))
        templates_.push_back({"concat", std::move(attrs), 2});
    }
  }

  void level(int ops) {
    const size_t n = programs_.size();
    for (size_t a = 0; a < n; ++a) {
      if (programs_[a].ops == ops - 1) {
        folds(a);
        for (const Template& t : templates_)
          if (t.n_operands == 1) apply(t, {a});
      }
      for (size_t b = 0; b < n; ++b)
        if (programs_[a].ops + programs_[b].ops == ops - 1)
          for (const Template& t : templates_)
            if (t.n_operands == 2) apply(t, {a, b});
    }
  }

  // [.., from, .., into, ..] as [.., 1, .., from·into, ..]: images of a batch beside one another,
  // an image's rows as one row.
  void folds(size_t a) {
    const Program p = programs_[a];
    if (p.fold) return;
    const Extents x = shape(p.node);
    for (size_t from = 0; from < x.size(); ++from)
      for (size_t into = 0; into < x.size(); ++into) {
        if (from == into || x[from] == Poly(1)) continue;
        Extents y = x;
        y[into] = x[from] * x[into], y[from] = Poly(1);
        const auto rows = moved(p.node, ones_order(x.size(), from, into));
        if (!rows.ok()) continue;
        const auto node = graph_.add("reshape", {*rows}, {{{"shape", y}}, {}});
        if (node.ok()) make(*node, p.ops + 1, Fold{from, into, x[from]}, true);
      }
  }
  Result<int> moved(int x, std::vector<Poly> order) {
    for (size_t d = 0; d < order.size(); ++d)
      if (order[d] != Poly(static_cast<int64_t>(d)))
        return graph_.add("permute", {x}, {{{"order", std::move(order)}}, {}});
    return x;
  }

  void apply(const Template& t, const std::vector<size_t>& operands) {
    if (n_programs_ > static_cast<int64_t>(kMostPrograms)) return;
    std::vector<int> in;
    std::optional<Fold> fold;
    int ops = 1;
    for (const size_t k : operands) {
      in.push_back(programs_[k].node), ops += programs_[k].ops;
      if (!fold) fold = programs_[k].fold;
    }
    KindAttrs attrs = t.attrs;
    if (const auto out = attrs.polys.find("out");
        out != attrs.polys.end() && fold && fold->into >= 2) {
      Poly& size = out->second[fold->into - 2];
      size = size * fold->by;
      if (fold->from >= 2) out->second[fold->from - 2] = 1;
    }
    if (const auto node = graph_.add(t.kind, std::move(in), std::move(attrs)); node.ok())
      make(*node, ops, fold);
  }

  // Evaluates the node; its operands have values, but for what a fold has in between.
  const std::vector<Residue>* value(int node) {
    if (const auto known = values_.find(node); known != values_.end()) return &known->second;
    const Node& n = graph_.nodes[static_cast<size_t>(node)];
    std::vector<Extents> extents;
    std::vector<std::vector<int64_t>> shapes;
    std::vector<std::span<const Residue>> data;
    for (const int x : n.in) {
      const auto* operand = value(x);
      if (operand == nullptr) return nullptr;
      data.emplace_back(*operand);
      extents.push_back(shape(x));
      shapes.emplace_back();
      for (const Poly& p : shape(x)) shapes.back().push_back(at_.integer(p));
    }
    const auto form = form_of(n.kind, {extents, n.attrs});
    if (!form.ok() || !form->function.empty()) return nullptr;
    const auto compiled = compile(*form, shapes, at_, kMostRows);
    if (!compiled.ok() || compiled->n_elements == 0) return nullptr;
    std::vector<Residue> out(static_cast<size_t>(compiled->n_elements));
    superopt::run(*compiled, data, out);
    return &(values_[node] = std::move(out));
  }

  void make(int node, int ops, const std::optional<Fold>& fold, bool is_layout = false) {
    if (!tried_.insert(node).second) return;
    ++n_programs_;
    if (const auto* data = value(node)) meet({node, ops, fold, is_layout, *data});
  }

  // Equal programs count once, the first.
  void meet(Program p) {
    values_[p.node] = p.data;
    uint64_t hash = 0;
    for (const Residue r : p.data) hash = mix(hash ^ r.value());
    std::string key = cat(hash);
    for (const Poly& size : shape(p.node)) key += cat(" ", size.text());
    if (!seen_.insert(std::move(key)).second) return;
    judge(p);
    programs_.push_back(std::move(p));
  }

  // How much of it is right, as it is or with a dim taken out of another again.
  void judge(const Program& p) {
    const Extents& x = shape(p.node);
    const Extents wanted = shape(rule_.left);
    if (x == wanted) return judge(p.node);
    if (x.size() != wanted.size() || p.is_layout) return;
    for (size_t from = 0; from < x.size(); ++from)
      for (size_t into = 0; into < x.size(); ++into) {
        if (from == into || x[from] != Poly(1)) continue;
        Extents y = x;
        y[from] = wanted[from], y[into] = wanted[into];
        if (y != wanted || x[into] != wanted[from] * wanted[into]) continue;
        const std::vector<Poly> order = ones_order(x.size(), from, into);
        Extents rows;
        std::vector<Poly> back(order.size());
        for (size_t d = 0; d < order.size(); ++d) {
          rows.push_back(wanted[static_cast<size_t>(order[d].constant())]);
          back[static_cast<size_t>(order[d].constant())] = Poly(static_cast<int64_t>(d));
        }
        const auto split = graph_.add("reshape", {p.node}, {{{"shape", rows}}, {}});
        if (!split.ok()) continue;
        if (const auto node = moved(*split, std::move(back)); node.ok()) judge(*node);
      }
  }
  void judge(int node) {
    const auto* data = value(node);
    if (node == rule_.left || data == nullptr || data->size() != wanted_.size()) return;
    size_t n = 0;
    uint64_t hash = 0;
    for (size_t i = 0; i < wanted_.size(); ++i) {
      n += (*data)[i] == wanted_[i];
      hash = mix(hash ^ (*data)[i].value());
    }
    if (n < wanted_.size() && !judged_.insert(hash).second) return;  // as wrong as another
    const double share = static_cast<double>(n) / static_cast<double>(wanted_.size());
    if (share >= kLeastShare) found_.push_back({node, share});
  }

  const Rule& rule_;
  Graph graph_;
  const Assignment& at_;
  std::vector<FieldTensor> inputs_;
  std::vector<Residue> wanted_;
  std::vector<Template> templates_;
  std::vector<Program> programs_;
  std::map<int, std::vector<Residue>> values_;
  std::set<int> tried_;
  std::set<std::string> seen_;
  std::set<uint64_t> judged_;
  std::vector<Found> found_;
  int64_t n_programs_ = 0;
};

}  // namespace

Result<std::vector<Rule>> programs_of(std::string_view text, std::string_view file) {
  std::string whole, left;
  const auto close = [&] {
    if (!left.empty()) whole += cat("right ", std::exchange(left, {}), "\n");
  };
  while (!text.empty()) {
    const size_t n = std::min(text.find('\n'), text.size());
    const std::string line(text.substr(0, n));
    text.remove_prefix(std::min(n + 1, text.size()));
    if (line.starts_with("rule ")) close();
    if (line.starts_with("left ")) left = line.substr(5, line.find('#') - 5);
    if (line.starts_with("right "))
      return invalid_argument(
          cat(file, ": has a right side, which --generate looks for: leave it out"));
    whole += line + "\n";
  }
  close();
  return parse_rules(whole, file);
}

Result<Mutants> mutants_of(const Rule& program, const Assignment& at) {
  const auto small = small_sizes(program, at);
  if (!small)
    return unsupported(cat("rule ", program.name, ": no sizes below 9 fit its conditions"));
  return Enumeration(program, *small).run();
}

}  // namespace tegula::superopt
