#include "tools/rules/prove/denote.h"

#include "tegula/base/algorithm.h"

namespace tegula::superopt {

Symbol result_index(size_t dim) { return Symbol("i", static_cast<int64_t>(dim)); }

namespace {
using Substitution = std::vector<std::pair<Symbol, Poly>>;

// Each term of `sum` times each of `by`, row-major.
Value product(const Value& sum, const Value& by) {
  Value all;
  for (const Term& a : sum)
    for (const Term& b : by) {
      Term t = a;
      t.coefficient = a.coefficient * b.coefficient;
      t.bound.insert(t.bound.end(), b.bound.begin(), b.bound.end());
      t.guards.insert(t.guards.end(), b.guards.begin(), b.guards.end());
      t.factors.insert(t.factors.end(), b.factors.begin(), b.factors.end());
      all.push_back(std::move(t));
    }
  return all;
}

std::vector<Guard> box(std::span<const Poly> index, const Extents& shape) {
  std::vector<Guard> guards;
  for (size_t d = 0; d < shape.size(); ++d) {
    guards.push_back({index[d]});
    guards.push_back({shape[d] - 1 - index[d]});
  }
  return guards;
}

struct Denoting {
  const Graph& graph;
  int64_t& next;

  // Names the piece's loops, and reads its operands; the guards of the loops' domain come apart.
  Value piece(const Node& node, const Form::Piece& p, Substitution by, Branch& domain) const {
    for (const Form::Loop& loop : p.loops) {
      const Symbol fresh("r", next++);
      domain.bound.push_back(fresh);
      by.emplace_back(loop.symbol, fresh);
    }
    for (const Guard& g : p.guards) domain.guards.push_back({g.p.substitute(by), g.is_zero});
    Value value = {{p.coefficient.substitute(by), {}, {}, {}}};
    for (const Form::Read& read : p.reads) {
      std::vector<Poly> at;
      for (const Poly& i : read.index) at.push_back(i.substitute(by));
      value = product(value, denote(graph, node.in[static_cast<size_t>(read.operand)], at, next));
    }
    return value;
  }

  Value node(int n, std::span<const Poly> index) const {
    const Node& node = graph.nodes[static_cast<size_t>(n)];
    if (node.kind == "input")
      return {
          {1, {}, {}, {{node.attrs.words.find("name")->second, {index.begin(), index.end()}, {}}}}};
    std::vector<Extents> shapes;
    for (const int i : node.in) shapes.push_back(graph.nodes[static_cast<size_t>(i)].shape);
    const Form form = *form_of(node.kind, {shapes, node.attrs});
    Substitution by;
    for (size_t d = 0; d < index.size(); ++d) by.emplace_back(out_index(d), index[d]);
    const bool is_function = !form.function.empty();
    Term whole;
    if (is_function || form.is_boxed) whole.guards = box(index, form.shape);
    Factor function{form.function, {}, {}};
    Value sum;
    for (const Form::Piece& p : form.pieces) {
      Branch domain;
      Value value = piece(node, p, by, domain);
      if (is_function) {
        domain.value = std::move(value);
        function.branches.push_back(std::move(domain));
        continue;
      }
      Term outside = whole;
      outside.bound = std::move(domain.bound);
      outside.guards.insert(outside.guards.end(), domain.guards.begin(), domain.guards.end());
      for (Term& t : product({outside}, value)) sum.push_back(std::move(t));
    }
    if (!is_function) return sum;
    whole.factors.push_back(std::move(function));
    return {whole};
  }
};
}  // namespace

Value denote(const Graph& graph, int node, std::span<const Poly> index, int64_t& next) {
  return Denoting{graph, next}.node(node, index);
}

Value denote(const Graph& graph, int node) {
  std::vector<Poly> index;
  for (size_t d = 0; d < graph.nodes[static_cast<size_t>(node)].shape.size(); ++d)
    index.emplace_back(result_index(d));
  int64_t next = 0;
  return denote(graph, node, index, next);
}

double n_terms(const Graph& graph, int node) {
  const Node& n = graph.nodes[static_cast<size_t>(node)];
  if (n.kind == "input") return 1;
  std::vector<Extents> shapes;
  std::vector<double> counts;
  for (const int i : n.in) {
    shapes.push_back(graph.nodes[static_cast<size_t>(i)].shape);
    counts.push_back(n_terms(graph, i));
  }
  const Form form = *form_of(n.kind, {shapes, n.attrs});
  double all = 0;
  for (const Form::Piece& p : form.pieces) {
    double product = 1;
    for (const Form::Read& r : p.reads) product *= counts[static_cast<size_t>(r.operand)];
    all += product;
  }
  return all;
}

std::vector<Guard> conditions(const Graph& graph, int node) {
  const Node& n = graph.nodes[static_cast<size_t>(node)];
  std::vector<Guard> all;
  if (n.kind == "input") return all;
  for (const int i : n.in)
    for (Guard& g : conditions(graph, i))
      if (std::find(all.begin(), all.end(), g) == all.end()) all.push_back(std::move(g));
  if (n.kind == "slice") {
    const auto dim = static_cast<size_t>(n.attrs.integers("dim")[0]);
    const Poly extent = graph.nodes[static_cast<size_t>(n.in[0])].shape[dim];
    const Poly first = n.attrs.poly("start", 0);
    const Poly last = first + n.attrs.poly("step", 1) * (n.shape[dim] - 1);
    for (const Poly& p : {first, extent - 1 - first, last, extent - 1 - last}) all.push_back({p});
  }
  if (n.kind == "dynamic_update_slice") {
    const std::vector<Poly> starts = n.attrs.list("start");
    const std::vector<int64_t> dims = n.attrs.integers("dim");
    for (size_t k = 0; k < dims.size(); ++k) {
      const auto dim = static_cast<size_t>(dims[k]);
      const Poly start = k < starts.size() ? starts[k] : Poly(0);
      all.push_back({start});
      all.push_back({n.shape[dim] - start - graph.nodes[static_cast<size_t>(n.in[1])].shape[dim]});
    }
  }
  if (n.kind == "conv" || n.kind.starts_with("pool")) {
    // Windows lie within the padded x, also where the result's extents are given.
    const Extents& x = graph.nodes[static_cast<size_t>(n.in[0])].shape;
    for (size_t d = 0; d + 2 < n.shape.size(); ++d) {
      auto attr = [&](std::string_view name, int64_t otherwise) {
        const auto list = n.attrs.list(name);
        return d < list.size() ? list[d] : Poly(otherwise);
      };
      const Poly window = n.kind == "conv" ? graph.nodes[static_cast<size_t>(n.in[1])].shape[d + 2]
                                           : attr("kernel", 1);
      all.push_back({(x[d + 2] - 1) * attr("input_dilation", 1) + attr("lo", 0) + attr("hi", 0) -
                     attr("dilation", 1) * (window - 1) -
                     attr("stride", 1) * (n.shape[d + 2] - 1)});
    }
  }
  for (const Poly& size : n.shape)
    if (const Guard g{size - 1}; std::find(all.begin(), all.end(), g) == all.end())
      all.push_back(g);
  return all;
}

void append_facts(const Term& term, const Graph& graph, std::vector<Guard>& facts) {
  facts.insert(facts.end(), term.guards.begin(), term.guards.end());
  for (const Factor& f : term.factors) {
    if (!f.is_input()) continue;
    for (const Input& input : graph.inputs)
      if (input.name == f.name)
        for (Guard& g : box(f.index, input.shape)) facts.push_back(std::move(g));
  }
}

void substitute(Branch& branch, Symbol symbol, const Poly& by) {
  for (Guard& g : branch.guards) g.p = g.p.substitute(symbol, by);
  for (Term& t : branch.value) substitute(t, symbol, by);
}

void substitute(Term& term, Symbol symbol, const Poly& by) {
  term.coefficient = term.coefficient.substitute(symbol, by);
  for (Guard& g : term.guards) g.p = g.p.substitute(symbol, by);
  for (Factor& f : term.factors) {
    for (Poly& i : f.index) i = i.substitute(symbol, by);
    for (Branch& b : f.branches) substitute(b, symbol, by);
  }
}

std::string text_of(const Factor& f) {
  std::string out = f.name + (f.is_input() ? "[" : "(");
  std::string_view comma = "";
  for (const Poly& i : f.index) out += cat(comma, i.text()), comma = ",";
  for (const Branch& b : f.branches) {
    out += comma, comma = "; ";
    for (const Symbol s : b.bound) out += s.name() + " ";
    for (const Guard& g : b.guards) out += cat("[", g.text(), "] ");
    for (size_t k = 0; k < b.value.size(); ++k) out += (k > 0 ? " + " : "") + text_of(b.value[k]);
  }
  return out + (f.is_input() ? "]" : ")");
}

std::string text_of(const Term& t) {
  std::string out = cat("(", t.coefficient.text(), ")");
  for (const Symbol s : t.bound) out += " sum " + s.name();
  for (const Guard& g : t.guards) out += cat(" [", g.text(), "]");
  for (const Factor& f : t.factors) out += " * " + text_of(f);
  return out;
}

}  // namespace tegula::superopt
