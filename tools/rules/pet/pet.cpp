#include "tools/rules/pet/pet.h"

#include <map>
#include <set>

#include "tegula/base/algorithm.h"
#include "tools/rules/prove/denote.h"

namespace tegula::superopt {

namespace {

constexpr int64_t kMostBoxes = 1 << 16;
// The most of one size, offset or step, and of a value's elements: indices and their sums then stay
// far below 2^63.
constexpr double kMostSize = 1 << 30, kMostElements = 1LL << 40;

// Do all numbers of the node fit?
Status check_numbers(const Graph& g, int node, const Assignment& at) {
  const Node& n = g.nodes[static_cast<size_t>(node)];
  for (const int x : n.in) TEGULA_TRY(check_numbers(g, x, at));
  const auto fits = [&](const Poly& p, std::string_view what) -> Status {
    if (p.is_exact() && at.most(p) <= kMostSize) return {};
    return unsupported(cat(n.kind, ": ", what, " ", p.text(),
                           " is too large at these sizes: a number "
                           "is at most ",
                           static_cast<int64_t>(kMostSize)));
  };
  double n_elements = 1;
  for (const Poly& p : n.shape)
    TEGULA_TRY(fits(p, "the extent")), n_elements *= std::max(1.0, at.most(p));
  if (n_elements > kMostElements)
    return unsupported(cat(n.kind, ": ", n_elements, " elements are too many: at most ",
                           static_cast<int64_t>(kMostElements)));
  for (const auto& [name, list] : n.attrs.polys)
    for (const Poly& p : list)
      if (std::none_of(at.scalars.begin(), at.scalars.end(),
                       [&](const auto& s) { return p.has(s.first); }))
        TEGULA_TRY(fits(p, name));
  return {};
}

Result<Form> form_at(const Graph& g, const Node& n) {
  std::vector<Extents> in;
  for (const int x : n.in) in.push_back(g.nodes[static_cast<size_t>(x)].shape);
  return form_of(n.kind, {in, n.attrs});
}

std::vector<int64_t> shape_at(const Node& n, const Assignment& at) {
  std::vector<int64_t> shape;
  for (const Poly& p : n.shape) shape.push_back(at.integer(p));
  return shape;
}

// Where along each dim of a node something begins or ends.
using Cuts = std::vector<std::set<int64_t>>;

// c + Σ by·index, over the result's indices and the loops.
struct Affine {
  int64_t constant = 0;
  std::vector<std::pair<size_t, int64_t>> of_result;  // dim, by
  std::vector<std::pair<int64_t, int64_t>> of_loops;  // size, by
};

int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 && (a < 0) == (b < 0)); }

class Cutter {
 public:
  Cutter(const Graph& graph, const Assignment& at) : graph_(graph), at_(at) {}

  Result<Cuts> of(int node) {
    const Node& n = graph_.nodes[static_cast<size_t>(node)];
    const std::vector<int64_t> shape = shape_at(n, at_);
    if (n.kind == "input") return Cuts(shape.size());
    if (const auto known = known_.find(node); known != known_.end()) return known->second;
    const Form form = TEGULA_TRY(form_at(graph_, n));
    if (!form.function.empty() || n.kind == "iota")
      return unsupported(cat(n.kind, " is no sum of products, of which boxes are"));
    std::vector<Cuts> in;
    for (const int x : n.in) in.push_back(TEGULA_TRY(of(x)));
    cuts_ = Cuts(shape.size()), shape_ = shape;
    for (const Form::Piece& piece : form.pieces) {
      for (const Guard& g : piece.guards) guard(piece, g, in);
      for (const Form::Read& read : piece.reads)
        for (size_t d = 0; d < read.index.size(); ++d) {
          std::set<int64_t> begins = in[static_cast<size_t>(read.operand)][d];
          begins.insert(0);
          begins.insert(shape_at(operand(n, read.operand), at_)[d]);
          for (const int64_t q : begins) cut(affine(piece, read.index[d]), q);
        }
    }
    return known_[node] = cuts_;
  }

 private:
  const Node& operand(const Node& n, int k) const {
    return graph_.nodes[static_cast<size_t>(n.in[static_cast<size_t>(k)])];
  }

  Affine affine(const Form::Piece& piece, const Poly& p) const {
    Affine a;
    const auto by = [&](Symbol s) { return at_.integer(p.factor_of(s)); };
    Poly rest = p;
    for (size_t d = 0; d < shape_.size(); ++d)
      if (p.has(out_index(d))) {
        a.of_result.emplace_back(d, by(out_index(d)));
        rest = rest.substitute(out_index(d), 0);
      }
    for (const Form::Loop& loop : piece.loops)
      if (p.has(loop.symbol)) {
        a.of_loops.emplace_back(at_.integer(loop.size), by(loop.symbol));
        rest = rest.substitute(loop.symbol, 0);
      }
    a.constant = at_.integer(rest);
    return a;
  }

  void cut_at(size_t dim, int64_t i) {
    if (i > 0 && i < shape_[dim]) cuts_[dim].insert(i);
  }
  void cut_all(size_t dim) {
    for (int64_t i = 1; i < shape_[dim] && i <= kMostBoxes; ++i) cuts_[dim].insert(i);
  }

  // Where "a ≥ q" begins or ends to hold, for any of the loops' values.
  void cut(const Affine& a, int64_t q) {
    if (a.of_result.empty()) return;
    std::set<int64_t> offsets = {a.constant};
    for (const auto& [size, by] : a.of_loops) {
      std::set<int64_t> more;
      for (const int64_t o : offsets)
        for (int64_t l = 0; l < size && more.size() <= 4096; ++l) more.insert(o + by * l);
      offsets = std::move(more);
      if (offsets.size() > 4096) break;
    }
    const auto& [d, by] = a.of_result[0];
    const bool is_pair = a.of_result.size() == 2;
    const auto major = is_pair && a.of_result[1].second > by ? a.of_result[1] : a.of_result[0];
    const auto minor = is_pair && a.of_result[1].second > by ? a.of_result[0] : a.of_result.back();
    const bool nests =
        is_pair && minor.second > 0 && major.second >= minor.second * shape_[minor.first];
    if (offsets.size() > 4096 || a.of_result.size() > 2 || (is_pair && !nests)) {
      for (const auto& [dim, factor] : a.of_result) cut_all(dim);
      return;
    }
    for (const int64_t o : offsets) {
      if (!is_pair) {  // by·i ≥ q − o
        cut_at(d, by > 0 ? ceil_div(q - o, by) : -ceil_div(q - o, -by) + 1);
        continue;
      }
      const int64_t u = -ceil_div(-(q - o), major.second);
      cut_at(major.first, u), cut_at(major.first, u + 1);
      cut_at(minor.first, ceil_div(q - o - major.second * u, minor.second));
    }
  }

  // An equality i = size·l0 + l1 + c gives each l0 a run of its own, which l1's reads cut alike.
  void guard(const Form::Piece& piece, const Guard& g, const std::vector<Cuts>& in) {
    const Affine a = affine(piece, g.p);
    if (!g.is_zero) return cut(a, 0);
    const bool is_split = a.of_result.size() == 1 && a.of_result[0].second == 1 &&
                          a.of_loops.size() == 2 && a.of_loops[1].second == -1 &&
                          a.of_loops[0].second == -a.of_loops[1].first;
    if (!is_split) return cut(a, 0), cut(a, 1);
    const auto [n_runs, run] = std::pair(a.of_loops[0].first, a.of_loops[1].first);
    std::set<int64_t> within = {0};
    for (const Form::Read& read : piece.reads)
      for (size_t d = 0; d < read.index.size(); ++d)
        for (const Form::Loop& loop : piece.loops)
          if (read.index[d] == Poly(loop.symbol) && g.p.factor_of(loop.symbol) == Poly(-1))
            for (const int64_t q : in[static_cast<size_t>(read.operand)][d]) within.insert(q);
    for (int64_t r = 0; r <= n_runs; ++r)
      for (const int64_t q : within) cut_at(a.of_result[0].first, r * run + q - a.constant);
  }

  const Graph& graph_;
  const Assignment& at_;
  std::map<int, Cuts> known_;
  Cuts cuts_;
  std::vector<int64_t> shape_;
};

// One element after another, each when it is needed.
class Values {
 public:
  Values(const Graph& graph, const Assignment& at, uint64_t seed)
      : graph_(graph), at_(at), seed_(seed) {}

  Residue value(int node, const std::vector<int64_t>& index) {
    const Node& n = graph_.nodes[static_cast<size_t>(node)];
    if (!known_.contains(node)) {
      known_[node].shape = shape_at(n, at_);
      if (n.kind != "input")
        if (auto form = form_at(graph_, n); form.ok()) known_[node].form = std::move(*form);
    }
    Known& k = known_[node];
    uint64_t number = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      if (index[d] < 0 || index[d] >= k.shape[d]) return Residue();
      number = number * static_cast<uint64_t>(k.shape[d]) + static_cast<uint64_t>(index[d]);
    }
    if (n.kind == "input")
      return Residue::of_bits(mix(mix(seed_ + static_cast<uint64_t>(node)) ^ number));
    if (const auto found = k.values.find(number); found != k.values.end()) return found->second;
    Residue sum;
    for (const Form::Piece& p : k.form.pieces) sum = sum + piece(n, p, index);
    return known_[node].values[number] = sum;
  }

 private:
  struct Known {
    std::vector<int64_t> shape;
    Form form;
    std::map<uint64_t, Residue> values;
  };

  Residue piece(const Node& n, const Form::Piece& p, const std::vector<int64_t>& index) {
    Assignment here = at_;
    for (size_t d = 0; d < index.size(); ++d) here.integers[out_index(d)] = index[d];
    return loops(n, p, 0, here);
  }
  Residue loops(const Node& n, const Form::Piece& p, size_t k, Assignment& here) {
    if (k < p.loops.size()) {
      Residue sum;
      const int64_t size = at_.integer(p.loops[k].size);
      for (int64_t i = 0; i < size; ++i) {
        here.integers[p.loops[k].symbol] = i;
        sum = sum + loops(n, p, k + 1, here);
      }
      return sum;
    }
    if (!here.holds(p.guards)) return Residue();
    Residue product = p.coefficient.evaluate([&](Symbol s) -> Residue {
      const auto scalar = at_.scalars.find(s);
      return scalar != at_.scalars.end() ? scalar->second : Residue(here.integer(s));
    });
    for (const Form::Read& read : p.reads) {
      std::vector<int64_t> at;
      for (const Poly& e : read.index) at.push_back(here.integer(e));
      product = product * value(n.in[static_cast<size_t>(read.operand)], at);
    }
    return product;
  }

  const Graph& graph_;
  const Assignment& at_;
  uint64_t seed_;
  std::map<int, Known> known_;
};

// Neighbours become one, dim by dim.
std::vector<Box> merged(std::vector<Box> boxes, size_t rank) {
  for (size_t d = rank; d-- > 0;) {
    const auto others = [&](const Box& b) {
      Box o = b;
      o.lo[d] = o.hi[d] = 0;
      return std::pair(o.lo, o.hi);
    };
    std::sort(boxes.begin(), boxes.end(), [&](const Box& a, const Box& b) {
      return std::pair(others(a), a.lo[d]) < std::pair(others(b), b.lo[d]);
    });
    std::vector<Box> out;
    for (Box& b : boxes)
      if (!out.empty() && others(out.back()) == others(b) && out.back().hi[d] == b.lo[d])
        out.back().hi[d] = b.hi[d];
      else
        out.push_back(std::move(b));
    boxes = std::move(out);
  }
  return boxes;
}

}  // namespace

int64_t Box::n_elements() const {
  int64_t n = 1;
  for (size_t d = 0; d < lo.size(); ++d) n *= hi[d] - lo[d];
  return n;
}

Result<Partial> compare(const Rule& rule, const Assignment& at, uint64_t seed) {
  const auto node = [&](int n) -> const Node& { return rule.graph.nodes[static_cast<size_t>(n)]; };
  Partial out;
  for (const int side : {rule.left, rule.right}) TEGULA_TRY(check_numbers(rule.graph, side, at));
  out.shape = shape_at(node(rule.left), at);
  if (shape_at(node(rule.right), at) != out.shape)
    return invalid_argument(
        cat(rule.name, ": left is ", out.shape, ", right ", shape_at(node(rule.right), at)));
  std::vector<Guard> needed = conditions(rule.graph, rule.left);
  for (const Guard& g : conditions(rule.graph, rule.right)) needed.push_back(g);
  for (const Guard& g : needed)
    if (!at.holds(std::span(&g, 1)))
      return invalid_argument(cat(rule.name, ": an op needs ", g.text(), " at these sizes"));
  const size_t rank = out.shape.size();
  Cuts cuts(rank);
  Cutter cutter(rule.graph, at);
  for (const int side : {rule.left, rule.right}) {
    const Cuts own = TEGULA_TRY(cutter.of(side));
    for (size_t d = 0; d < rank; ++d) cuts[d].insert(own[d].begin(), own[d].end());
  }
  std::vector<Box> boxes = {{std::vector<int64_t>(rank, 0), out.shape}};
  for (size_t d = 0; d < rank; ++d) {
    if ((static_cast<int64_t>(boxes.size()) * (static_cast<int64_t>(cuts[d].size()) + 1)) >
        kMostBoxes)
      return unsupported(cat(rule.name, ": more than ", kMostBoxes, " boxes: take smaller sizes"));
    std::vector<Box> next;
    for (Box b : boxes) {
      for (const int64_t c : cuts[d]) {
        next.push_back(b);
        next.back().hi[d] = b.lo[d] = c;
      }
      next.push_back(std::move(b));
    }
    boxes = std::move(next);
  }
  Values values(rule.graph, at, seed);
  std::vector<Box> wrong;
  for (const Box& b : boxes) {
    if (b.n_elements() == 0) continue;
    ++out.n_boxes;
    bool is_right = true;
    for (size_t step = 0; step <= rank && is_right; ++step) {
      std::vector<int64_t> at_corner = b.lo;
      if (step > 0 && ++at_corner[step - 1] == b.hi[step - 1]) continue;
      ++out.positions_tested;
      is_right = values.value(rule.left, at_corner) == values.value(rule.right, at_corner);
    }
    if (!is_right) wrong.push_back(b);
  }
  out.wrong = merged(std::move(wrong), rank);
  return out;
}

int64_t work_of(const Graph& graph, int node, const Assignment& at) {
  std::set<int> seen;
  std::vector<int> open = {node};
  double work = 0;
  while (!open.empty()) {
    const int n = open.back();
    open.pop_back();
    if (!seen.insert(n).second) continue;
    const Node& of = graph.nodes[static_cast<size_t>(n)];
    open.insert(open.end(), of.in.begin(), of.in.end());
    const auto form = of.kind == "input" ? Result<Form>(Form()) : form_at(graph, of);
    if (!form.ok()) continue;
    for (const Form::Piece& p : form->pieces) {
      if (p.reads.size() < 2) continue;
      double terms = 1;
      for (const int64_t size : shape_at(of, at)) terms *= static_cast<double>(size);
      for (const Form::Loop& loop : p.loops) terms *= static_cast<double>(at.integer(loop.size));
      work += terms;
    }
  }
  return static_cast<int64_t>(std::min(work, 9e18));
}

}  // namespace tegula::superopt
