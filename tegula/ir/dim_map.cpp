#include "tegula/ir/dim_map.h"

#include <map>
#include <mutex>

#include "tegula/base/memory.h"

namespace tegula {

DimMap::DimMap() = default;
DimMap::DimMap(const DimMap& other) = default;
DimMap::DimMap(DimMap&& other) noexcept = default;
DimMap& DimMap::operator=(const DimMap& other) = default;
DimMap& DimMap::operator=(DimMap&& other) noexcept = default;
DimMap::~DimMap() = default;

int DimMap::find(std::string_view name) const {
  for (size_t i = 0; i < factors.size(); ++i)
    if (factors[i].name == name) return static_cast<int>(i);
  return -1;
}

int DimMap::add_factor(std::string name, Dim size) {
  factors.push_back({std::move(name), size});
  return static_cast<int>(factors.size()) - 1;
}

void DimMap::finish(Combine contracted) {
  combine.assign(factors.size(), std::vector<Combine>(results.size(), contracted));
  for (size_t r = 0; r < results.size(); ++r)
    for (const DimExpr& e : results[r])
      for (const DimTerm& t : e.terms) combine[t.factor][r] = Combine::kFree;
  for (size_t f = 0; f < factors.size(); ++f)
    if (factors[f].whole) combine[f].assign(results.size(), Combine::kNever);
}

namespace {

// A parsed operand: dims, each a list of names (one for a plain dim, several for a product).
using Names = std::vector<std::string>;
struct Spec {
  std::vector<std::vector<Names>> operands, results;
  std::vector<std::string> operand_names;
};

std::vector<Names> parse_dims(std::string_view s) {
  std::vector<Names> dims;
  bool in_group = false;
  for (size_t i = 0; i < s.size();) {
    const char c = s[i];
    if (c == ' ') {
      ++i;
    } else if (c == '(') {
      in_group = true, dims.emplace_back(), ++i;
    } else if (c == ')') {
      in_group = false, ++i;
    } else {
      size_t j = i;
      while (j < s.size() && s[j] != ' ' && s[j] != '(' && s[j] != ')') ++j;
      std::string name(s.substr(i, j - i));
      if (in_group) {
        dims.back().push_back(std::move(name));
      } else {
        dims.push_back({std::move(name)});
      }
      i = j;
    }
  }
  return dims;
}

void parse_side(std::string_view s, std::vector<std::vector<Names>>& out,
                std::vector<std::string>* names) {
  size_t begin = 0;
  while (begin <= s.size()) {
    size_t end = s.find(',', begin);
    if (end == std::string_view::npos) end = s.size();
    std::string_view part = s.substr(begin, end - begin);
    std::string name;
    if (const size_t colon = part.find(':'); colon != std::string_view::npos) {
      for (char c : part.substr(0, colon))
        if (c != ' ') name += c;
      part = part.substr(colon + 1);
    }
    out.push_back(parse_dims(part));
    if (names) names->push_back(std::move(name));
    begin = end + 1;
  }
}

// Specs are parsed once: an op's short form is a constant string and a dot's few strings repeat.
const Spec& parsed(std::string_view text) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Spec>, std::less<>> cache;
  const std::lock_guard lock(mutex);
  auto it = cache.find(text);
  if (it == cache.end()) {
    auto spec = std::make_unique<Spec>();
    const size_t arrow = text.find("->");
    parse_side(text.substr(0, arrow), spec->operands, &spec->operand_names);
    parse_side(text.substr(arrow + 2), spec->results, nullptr);
    it = cache.emplace(std::string(text), std::move(spec)).first;
  }
  return *it->second;
}

bool is_ellipsis(const Names& n) { return n.size() == 1 && n[0] == "..."; }

struct Solver {
  std::string_view op;
  const Spec& spec;
  std::span<const Type> in;
  DimMap map;
  std::vector<int> solved_by;  // operand that fixed a factor's size, -2: given
  int ellipsis_rank = -1;
  int ellipsis_operand = -1;

  std::string operand_name(int k) const {
    const auto& n = spec.operand_names[static_cast<size_t>(k)];
    return n.empty() ? cat("operand ", k) : n;
  }

  int factor(const std::string& name) {
    int f = map.find(name);
    if (f < 0) {
      f = map.add_factor(name, Dim(-1));
      solved_by.push_back(-1);
    }
    return f;
  }
  bool is_solved(int f) const { return solved_by[static_cast<size_t>(f)] != -1; }

  Status fix(int f, Dim size, int operand) {
    Factor& fac = map.factors[static_cast<size_t>(f)];
    if (!is_solved(f)) {
      fac.size = size;
      solved_by[static_cast<size_t>(f)] = operand;
      return {};
    }
    if (fac.size == size) return {};
    const int by = solved_by[static_cast<size_t>(f)];
    return invalid_argument(cat(op, ": ", operand_name(operand), " has ", fac.name, "=", size, ", ",
                                by < 0 ? "expected" : operand_name(by), by < 0 ? "" : " has", " ",
                                fac.name, "=", fac.size));
  }

  // The names of operand k's dims with "..." replaced by "...0", "...1", and so on.
  Result<std::vector<Names>> expand(const std::vector<Names>& dims, int rank, int k) {
    std::vector<Names> out;
    for (const Names& n : dims) {
      if (!is_ellipsis(n)) {
        out.push_back(n);
        continue;
      }
      const int need = static_cast<int>(dims.size()) - 1;
      if (k >= 0) {
        const int extra = rank - need;
        if (extra < 0)
          return invalid_argument(cat(op, ": ", operand_name(k), " needs at least ", need,
                                      " dims, has ", rank, " ", in[static_cast<size_t>(k)]));
        if (ellipsis_rank < 0) ellipsis_rank = extra, ellipsis_operand = k;
        if (extra != ellipsis_rank)
          return invalid_argument(cat(op, ": ", operand_name(k), " has ", extra, " leading dims, ",
                                      operand_name(ellipsis_operand), " has ", ellipsis_rank));
      }
      for (int i = 0; i < std::max(ellipsis_rank, 0); ++i) out.push_back({cat("...", i)});
    }
    if (k >= 0 && static_cast<int>(out.size()) != rank)
      return invalid_argument(cat(op, ": ", operand_name(k), " must have ", out.size(),
                                  " dims, has ", rank, " ", in[static_cast<size_t>(k)]));
    return out;
  }

  DimExpr expr(const Names& names) {
    DimExpr e;
    if (names.size() == 1 && names[0] == "1") return e;
    for (const std::string& n : names) e.terms.push_back({static_cast<uint8_t>(factor(n)), 1});
    return e;
  }

  Status coefficients(std::vector<std::vector<DimExpr>>& side) {
    for (auto& dims : side)
      for (DimExpr& e : dims) {
        Dim coeff = 1;
        for (size_t t = e.terms.size(); t-- > 0;) {
          e.terms[t].coeff = coeff;
          if (t > 0) coeff = TEGULA_TRY(mul(coeff, map.factors[e.terms[t].factor].size));
        }
      }
    return {};
  }

  Status solve() {
    const size_t n = in.size();
    if (n > spec.operands.size())
      return invalid_argument(cat(op, ": takes ", spec.operands.size(), " operands, got ", n));
    for (size_t k = 0; k < n; ++k) {
      const Shape& s = in[k].shape;
      const auto dims = TEGULA_TRY(expand(spec.operands[k], s.rank(), static_cast<int>(k)));
      map.operands.emplace_back();
      for (const Names& d : dims) map.operands[k].push_back(expr(d));
    }
    // Plain dims fix their factor; then products with one unknown; two rounds reach every spec.
    for (size_t k = 0; k < n; ++k)
      for (int d = 0; d < in[k].shape.rank(); ++d) {
        const auto& e = map.operands[k][static_cast<size_t>(d)];
        const Dim size = in[k].shape[d];
        if (e.terms.size() == 1) {
          auto st = fix(e.terms[0].factor, size, static_cast<int>(k));
          if (!st.ok()) return st;
        } else if (e.terms.empty() && !(size == Dim(1))) {
          return invalid_argument(cat(op, ": dim ", d, " of ", operand_name(static_cast<int>(k)),
                                      " must be 1, is ", size));
        }
      }
    for (int round = 0; round < 2; ++round)
      for (size_t k = 0; k < n; ++k)
        for (int d = 0; d < in[k].shape.rank(); ++d) {
          auto st = solve_product(map.operands[k][static_cast<size_t>(d)], in[k].shape[d],
                                  static_cast<int>(k), round == 1);
          if (!st.ok()) return st;
        }
    for (const auto& dims : spec.results) {
      const auto names = TEGULA_TRY(expand(dims, 0, -1));
      map.results.emplace_back();
      Shape shape;
      for (const Names& d : names) {
        map.results.back().push_back(expr(d));
        Dim size = 1;
        for (const DimTerm& t : map.results.back().back().terms) {
          if (!is_solved(t.factor))
            return invalid_argument(
                cat(op, ": the size of ", map.factors[t.factor].name, " is not known"));
          size = TEGULA_TRY(mul(size, map.factors[t.factor].size));
        }
        if (shape.rank() == kMaxRank)
          return unsupported(cat(op, ": a result would have more than 8 dims"));
        shape.push_back(size);
      }
      map.result_shapes.push_back(shape);
    }
    auto st = coefficients(map.operands);
    if (st.ok()) st = coefficients(map.results);
    return st;
  }

  Status solve_product(const DimExpr& e, Dim size, int operand, bool final_round) {
    if (e.terms.size() < 2) return {};
    Dim known = 1;
    int unknown = -1;
    for (const DimTerm& t : e.terms) {
      if (is_solved(t.factor)) {
        known = TEGULA_TRY(mul(known, map.factors[t.factor].size));
      } else if (unknown < 0) {
        unknown = t.factor;
      } else {
        return {};
      }
    }
    if (unknown >= 0) {
      auto q = div_exact(size, known);
      if (!q.ok())
        return invalid_argument(cat(op, ": ", operand_name(operand), " has a dim of ", size,
                                    " that is not a multiple of ", known));
      return fix(unknown, *q, operand);
    }
    if (final_round && !(known == size))
      return invalid_argument(
          cat(op, ": ", operand_name(operand), " has a dim of ", size, ", expected ", known));
    return {};
  }
};

}  // namespace

Result<DimMap> solve_dims(std::string_view op, std::string_view spec_text, std::span<const Type> in,
                          std::span<const NamedDim> known) {
  if (spec_text.find("->") == spec_text.npos)
    return invalid_argument(cat(op, ": dims \"", spec_text, "\" have no ->"));
  Solver s{op, parsed(spec_text), in, {}, {}};
  for (const NamedDim& k : known) TEGULA_TRY(s.fix(s.factor(std::string(k.name)), k.size, -2));
  TEGULA_TRY(s.solve());
  s.map.finish();
  return std::move(s.map);
}

}  // namespace tegula
