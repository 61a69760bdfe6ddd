#include "tools/rules/prove/evaluate.h"

#include <cmath>

#include "tegula/base/algorithm.h"

namespace tegula::superopt {

uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

int64_t Assignment::integer(const Poly& p) const {
  return p.evaluate([&](Symbol s) -> int64_t {
    const auto found = integers.find(s);
    return found == integers.end() ? 1 : found->second;
  });
}

double Assignment::most(const Poly& p) const {
  double sum = 0;
  for (const auto& [monomial, coefficient] : p.terms()) {
    double product = std::fabs(static_cast<double>(coefficient));
    for (const Symbol s : monomial) product *= std::fabs(static_cast<double>(integer(s)));
    sum += product;
  }
  return sum;
}

bool Assignment::holds(std::span<const Guard> where) const {
  for (const Guard& g : where)
    if (const int64_t v = most(g.p) < 1e18 ? integer(g.p) : -1; v < 0 || (g.is_zero && v != 0))
      return false;
  return true;
}

namespace {
// A polynomial in the form's indices with the sizes filled in: constant + Σ coefficient·index, or
// where indices multiply, the polynomial itself.
struct Affine {
  int64_t constant = 0;
  std::vector<int64_t> by;  // one an index
};

struct Compiling {
  const Assignment& at;
  std::vector<Symbol> indices;  // of the result, then of loops

  Affine affine(const Poly& p) const {
    Affine a{0, std::vector<int64_t>(indices.size())};
    for (const auto& [monomial, coefficient] : p.terms()) {
      int64_t value = coefficient;
      size_t index = indices.size();
      for (const Symbol s : monomial) {
        const auto found = std::find(indices.begin(), indices.end(), s);
        if (found == indices.end())
          value *= at.integer(s);
        else
          index = static_cast<size_t>(found - indices.begin());
      }
      (index == indices.size() ? a.constant : a.by[index]) += value;
    }
    return a;
  }
  static int64_t value(const Affine& a, const std::vector<int64_t>& i) {
    int64_t v = a.constant;
    for (size_t k = 0; k < i.size(); ++k) v += a.by[k] * i[k];
    return v;
  }
};

Residue residue_of(const Poly& p, const Assignment& at, std::span<const Symbol> indices,
                   const std::vector<int64_t>& i) {
  return p.evaluate([&](Symbol s) -> Residue {
    const auto found = std::find(indices.begin(), indices.end(), s);
    if (found != indices.end()) return Residue(i[static_cast<size_t>(found - indices.begin())]);
    if (const auto scalar = at.scalars.find(s); scalar != at.scalars.end()) return scalar->second;
    return Residue(at.integer(s));
  });
}

Result<Compiled::Piece> compile_piece(const Form::Piece& p, const Compiled& c,
                                      std::span<const std::vector<int64_t>> in,
                                      const Assignment& at, int64_t most) {
  Compiling compiling{at, {}};
  std::vector<int64_t> extents = c.shape;
  for (size_t d = 0; d < c.shape.size(); ++d) compiling.indices.push_back(out_index(d));
  int64_t n = c.n_elements;
  for (const Form::Loop& loop : p.loops) {
    compiling.indices.push_back(loop.symbol);
    extents.push_back(at.integer(loop.size));
    if (extents.back() < 0 || (n *= extents.back()) > most)
      return unsupported(cat("more than ", most, " rows"));
  }
  struct Place {
    std::vector<Affine> index;
    const std::vector<int64_t>* shape;
  };
  std::vector<Place> reads;
  std::vector<std::pair<Affine, bool>> guards;
  for (const Guard& g : p.guards) guards.emplace_back(compiling.affine(g.p), g.is_zero);
  Compiled::Piece piece;
  for (const Form::Read& r : p.reads) {
    piece.operands.push_back(r.operand);
    reads.push_back({{}, &in[static_cast<size_t>(r.operand)]});
    for (const Poly& i : r.index) reads.back().index.push_back(compiling.affine(i));
  }
  const bool is_one = p.coefficient == Poly(1);
  std::vector<int64_t> i(extents.size());
  std::vector<uint32_t> row(reads.size() + 1);
  for (int64_t k = 0; k < n; ++k) {
    int64_t rest = k, element = 0;
    for (size_t d = extents.size(); d-- > 0; rest /= extents[d]) i[d] = rest % extents[d];
    for (size_t d = 0; d < c.shape.size(); ++d) element = element * c.shape[d] + i[d];
    bool is_within = true;
    for (const auto& [a, is_zero] : guards) {
      const int64_t v = Compiling::value(a, i);
      is_within = is_within && v >= 0 && (!is_zero || v == 0);
    }
    row[0] = static_cast<uint32_t>(element);
    for (size_t r = 0; r < reads.size() && is_within; ++r) {
      int64_t offset = 0;
      for (size_t d = 0; d < reads[r].index.size(); ++d) {
        const int64_t v = Compiling::value(reads[r].index[d], i), extent = (*reads[r].shape)[d];
        is_within = is_within && v >= 0 && v < extent;
        offset = offset * extent + v;
      }
      row[r + 1] = static_cast<uint32_t>(offset);
    }
    if (!is_within) continue;
    piece.rows.insert(piece.rows.end(), row.begin(), row.end());
    if (!is_one) piece.coefficients.push_back(residue_of(p.coefficient, at, compiling.indices, i));
  }
  return piece;
}
}  // namespace

Result<Compiled> compile(const Form& form, std::span<const std::vector<int64_t>> in,
                         const Assignment& at, int64_t most) {
  Compiled c;
  c.function = form.function;
  c.n_elements = 1;
  for (const Poly& p : form.shape) {
    c.shape.push_back(at.integer(p));
    if (c.shape.back() < 0) return invalid_argument("an extent is negative");
    if ((c.n_elements *= c.shape.back()) > most)
      return unsupported(cat("more than ", most, " rows"));
  }
  for (const Form::Piece& p : form.pieces)
    c.pieces.push_back(TEGULA_TRY(compile_piece(p, c, in, at, most)));
  return c;
}

void run(const Compiled& c, std::span<const std::span<const Residue>> in, std::span<Residue> out) {
  const bool is_max = c.function == "max", is_function = !is_max && !c.function.empty();
  uint64_t seed = 0;
  for (const char letter : c.function) seed = mix(seed ^ static_cast<unsigned char>(letter));
  std::vector<bool> seen(is_max ? out.size() : 0);
  for (Residue& y : out) y = is_function ? Residue::of_bits(seed) : Residue();
  for (const Compiled::Piece& p : c.pieces) {
    const size_t width = p.operands.size() + 1;
    for (size_t k = 0, row = 0; k < p.rows.size(); k += width, ++row) {
      Residue product = p.coefficients.empty() ? Residue(1) : p.coefficients[row];
      for (size_t r = 1; r < width; ++r)
        product = product * in[static_cast<size_t>(p.operands[r - 1])][p.rows[k + r]];
      const size_t e = p.rows[k];
      if (is_function) {
        out[e] = Residue::of_bits(mix(out[e].value() ^ mix(product.value())));
      } else if (is_max) {
        out[e] = seen[e] ? std::max(out[e], product) : product;
        seen[e] = true;
      } else {
        out[e] = out[e] + product;
      }
    }
  }
}

Result<FieldTensor> evaluate(const Graph& graph, int node, const Assignment& at,
                             std::span<const FieldTensor> inputs) {
  const Node& n = graph.nodes[static_cast<size_t>(node)];
  if (n.kind == "input") return inputs[static_cast<size_t>(node)];
  std::vector<FieldTensor> operands;
  std::vector<Extents> extents;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<std::span<const Residue>> data;
  for (const int i : n.in) {
    operands.push_back(TEGULA_TRY(evaluate(graph, i, at, inputs)));
    extents.push_back(graph.nodes[static_cast<size_t>(i)].shape);
  }
  for (const FieldTensor& x : operands) shapes.push_back(x.shape), data.emplace_back(x.data);
  const Compiled c =
      TEGULA_TRY(compile(TEGULA_TRY(form_of(n.kind, {extents, n.attrs})), shapes, at));
  FieldTensor out{c.shape, std::vector<Residue>(static_cast<size_t>(c.n_elements))};
  run(c, data, out.data);
  return out;
}

}  // namespace tegula::superopt
