// The meaning of each kind, written down once more: the sum of its elements at an index.
#include <iterator>
#include <set>

#include "tegula/base/algorithm.h"
#include "tools/rules/check/sums.h"

namespace tegula::rulecheck {

namespace {
using Index = std::vector<Poly>;
using Sum = std::vector<Term>;

Sum times(const Sum& a, const Sum& b) {
  Sum all;
  for (const Term& x : a)
    for (const Term& y : b) {
      Term t = x;
      t.coefficient = x.coefficient * y.coefficient;
      t.bound.insert(t.bound.end(), y.bound.begin(), y.bound.end());
      t.guards.insert(t.guards.end(), y.guards.begin(), y.guards.end());
      t.factors.insert(t.factors.end(), y.factors.begin(), y.factors.end());
      all.push_back(std::move(t));
    }
  return all;
}
void append(Sum& all, const Sum& more) { all.insert(all.end(), more.begin(), more.end()); }

void within(std::vector<Fact>& guards, const Poly& i, const Poly& extent) {
  guards.push_back({i});
  guards.push_back({extent - 1 - i});
}

struct Meant {
  const Rule& rule;
  int64_t next = 0;

  Error bad(const Expression& e, std::string_view why) const {
    return invalid_argument(cat(e.head, ": ", why));
  }
  static Poly attr(const Expression& e, const Name& key, size_t k, int64_t otherwise) {
    const auto at = e.attrs.find(key);
    return at == e.attrs.end() || k >= at->second.size() ? Poly(otherwise) : at->second[k];
  }
  static std::vector<int64_t> whole(const Expression& e, const Name& key) {
    std::vector<int64_t> all;
    if (const auto at = e.attrs.find(key); at != e.attrs.end())
      for (const Poly& p : at->second) {
        const bool is_number =
            p.terms.empty() || (p.terms.size() == 1 && p.terms.begin()->first.empty());
        all.push_back(!is_number ? -1 : p.terms.empty() ? 0 : p.terms.begin()->second);
      }
    return all;
  }
  Name loop(Term& t) {
    t.bound.push_back(cat("r", next++));
    return t.bound.back();
  }

  // The letters of dot's dims, by side.
  static std::vector<std::vector<Name>> sides(const std::string& text) {
    std::vector<std::vector<Name>> all(1);
    Name current;
    for (const char c : text + " ") {
      const bool is_letter = c != ' ' && c != ',' && c != '-' && c != '>';
      if (is_letter) current += c;
      if (!is_letter && !current.empty()) all.back().push_back(std::exchange(current, {}));
      if (c == ',' || c == '>') all.emplace_back();
    }
    return all;
  }
  static std::string dims(const Expression& e) {
    const auto at = e.words.find("dims");
    return at == e.words.end() ? "m k, k n -> m n" : at->second;
  }

  // Attributes that the kind has not are refused: they would mean something to whoever wrote them.
  Status known(const Expression& e) const {
    static const std::map<Name, std::pair<int, std::set<Name>>, std::less<>> kKinds = {
        {"add", {2, {}}},
        {"sub", {2, {}}},
        {"mul", {2, {}}},
        {"max", {2, {}}},
        {"logical_and", {2, {}}},
        {"logical_or", {2, {}}},
        {"logical_not", {1, {}}},
        {"select", {3, {}}},
        {"dynamic_update_slice", {2, {"dim", "start"}}},
        {"neg", {1, {}}},
        {"scale", {1, {"by"}}},
        {"constant", {0, {"shape", "value"}}},
        {"iota", {0, {"shape", "dim"}}},
        {"broadcast", {1, {"shape"}}},
        {"reshape", {1, {"shape"}}},
        {"permute", {1, {"order"}}},
        {"concat", {-1, {"dim"}}},
        {"slice", {1, {"dim", "start", "size", "step"}}},
        {"pad", {1, {"dim", "lo", "hi", "interior", "value"}}},
        {"dot", {2, {"dims"}}},
        {"conv", {2, {"stride", "dilation", "input_dilation", "lo", "hi", "out", "groups"}}},
        {"pool_max", {1, {"kernel", "stride", "lo", "hi", "out"}}},
        {"pool_sum", {1, {"kernel", "stride", "lo", "hi", "out"}}},
        {"reduce_max", {1, {"dims", "keep"}}},
        {"reduce_sum", {1, {"dims", "keep"}}}};
    const auto at = kKinds.find(e.head);
    const bool has_none = e.attrs.empty() && e.words.empty();
    if (at == kKinds.end())
      return has_none && !e.operands.empty() ? Status() : bad(e, "is not known");
    const int n = at->second.first;
    if (n < 0 ? e.operands.empty() : e.operands.size() != static_cast<size_t>(n))
      return bad(e, "has another number of operands");
    for (const auto& [key, value] : e.attrs)
      if (!at->second.second.contains(key)) return bad(e, cat("no attribute ", key));
    for (const auto& [key, value] : e.words)
      if (e.head != "dot" || key != "dims") return bad(e, cat("no attribute ", key));
    return {};
  }

  Result<Index> shape(const Expression& e) const {
    if (!e.is_call) {
      const auto at = rule.inputs.find(e.head);
      return at == rule.inputs.end() ? Result<Index>(bad(e, "is no input")) : at->second;
    }
    if (!e.is_function) TEGULA_TRY(known(e));
    if (e.is_function && e.operands.empty()) return bad(e, "has no operand");
    std::vector<Index> in;
    for (const Expression& x : e.operands) in.push_back(TEGULA_TRY(shape(x)));
    const Name k = e.is_function ? "" : e.head;
    const std::vector<int64_t> dim = whole(e, "dim");
    const auto d = static_cast<size_t>(dim.size() == 1 ? dim[0] : -1);
    auto given = [&] { return e.attrs.contains("shape") ? e.attrs.at("shape") : Index{}; };
    if (k == "constant" || k == "broadcast" || k == "reshape") return given();
    if (k == "iota") return d < given().size() ? Result<Index>(given()) : bad(e, "dim");
    if (k == "concat" || k == "slice" || k == "pad") {
      Index y = in[0];
      if (d >= y.size()) return bad(e, "dim");
      if (k == "slice") y[d] = attr(e, "size", 0, 1);
      if (k == "pad")
        y[d] = (y[d] - 1) * (attr(e, "interior", 0, 0) + 1) + 1 + attr(e, "lo", 0, 0) +
               attr(e, "hi", 0, 0);
      for (size_t n = 1; n < in.size(); ++n) {
        for (size_t o = 0; o < y.size(); ++o)
          if (in[n].size() != y.size() || (o != d && !(in[n][o] == y[o]))) return bad(e, "shapes");
        y[d] = y[d] + in[n][d];
      }
      return y;
    }
    if (k == "dynamic_update_slice") {
      for (size_t n = 0; n < dim.size(); ++n)
        if (dim[n] < 0 || static_cast<size_t>(dim[n]) >= in[0].size() ||
            (n > 0 && dim[n] <= dim[n - 1]))
          return bad(e, "dim");
      if (dim.empty() || whole(e, "start").size() > dim.size()) return bad(e, "dim");
      for (size_t o = 0; o < in[0].size(); ++o)
        if (in[1].size() != in[0].size() ||
            (std::find(dim.begin(), dim.end(), static_cast<int64_t>(o)) == dim.end() &&
             !(in[0][o] == in[1][o])))
          return bad(e, "shapes");
      return in[0];
    }
    if (k == "permute") {
      Index y;
      std::vector<int64_t> order = whole(e, "order");
      for (const int64_t o : order)
        if (static_cast<size_t>(o) < in[0].size()) y.push_back(in[0][static_cast<size_t>(o)]);
      std::sort(order.begin(), order.end());
      for (size_t o = 0; o < order.size(); ++o)
        if (order[o] != static_cast<int64_t>(o)) return bad(e, "order");
      return y.size() == in[0].size() ? Result<Index>(y) : bad(e, "order");
    }
    if (k == "dot") {
      const auto names = sides(dims(e));
      std::map<Name, Poly> size;
      Index y;
      if (names.size() != 3) return bad(e, "dims");
      for (size_t s = 0; s < 2; ++s) {
        if (names[s].size() != in[s].size()) return bad(e, "ranks");
        for (size_t n = 0; n < names[s].size(); ++n)
          if (!(size.try_emplace(names[s][n], in[s][n]).first->second == in[s][n]))
            return bad(e, cat("two extents of ", names[s][n]));
      }
      for (const Name& n : names[2]) {
        if (!size.contains(n)) return bad(e, cat(n, " stands in the result alone"));
        y.push_back(size[n]);
      }
      return y;
    }
    if (k == "conv" || k == "pool_max" || k == "pool_sum") {
      const bool is_conv = k == "conv";
      const Index &x = in[0], w = is_conv ? in[1] : Index{};
      const size_t n_window = is_conv ? w.size() - 2 : whole(e, "kernel").size();
      if (x.size() < 3 || n_window + 2 != x.size() ||
          (is_conv && !(attr(e, "groups", 0, 1) * w[1] == x[1])))
        return bad(e, "shapes");
      if (is_conv) TEGULA_TRY(width_of_group(e, w[0]));
      Index y = {x[0], is_conv ? w[0] : x[1]};
      for (size_t s = 0; s + 2 < x.size(); ++s) {
        const Poly window = is_conv ? w[s + 2] : attr(e, "kernel", s, 1);
        const bool has_out = !(attr(e, "stride", s, 1) == Poly(1));
        if (has_out && (!e.attrs.contains("out") || s >= e.attrs.at("out").size()))
          return bad(e, "out");
        y.push_back(has_out ? attr(e, "out", s, 1) : span(e, x[s + 2], window, s) + 1);
      }
      return y;
    }
    if (k == "reduce_max" || k == "reduce_sum") {
      const std::vector<int64_t> over = whole(e, "dims");
      Index y;
      for (const int64_t o : over)
        if (static_cast<size_t>(o) >= in[0].size()) return bad(e, "dims");
      for (size_t n = 0; n < in[0].size(); ++n)
        if (std::find(over.begin(), over.end(), static_cast<int64_t>(n)) == over.end())
          y.push_back(in[0][n]);
        else if (attr(e, "keep", 0, 0) == Poly(1))
          y.emplace_back(1);
      return y;
    }
    for (const Index& x : in)
      if (!(x == in[0])) return bad(e, "its operands differ in shape");
    return in[0];
  }
  // w's first extent by the number of groups, which is one product and divides each of its terms.
  Result<Poly> width_of_group(const Expression& e, const Poly& all) const {
    const Poly groups = attr(e, "groups", 0, 1);
    if (groups.is_bad || groups.terms.size() != 1 || groups.terms.begin()->second < 1)
      return bad(e, "groups");
    const auto& [names, number] = *groups.terms.begin();
    Poly width;
    for (const auto& [product, c] : all.terms) {
      std::vector<Name> left;
      std::set_difference(product.begin(), product.end(), names.begin(), names.end(),
                          std::back_inserter(left));
      if (c % number != 0 || left.size() + names.size() != product.size()) return bad(e, "groups");
      width.add(left, c / number);
    }
    return width;
  }
  // The last place of a window within the padded x.
  static Poly span(const Expression& e, const Poly& x, const Poly& window, size_t s) {
    return (x - 1) * attr(e, "input_dilation", s, 1) + attr(e, "lo", s, 0) + attr(e, "hi", s, 0) -
           attr(e, "dilation", s, 1) * (window - 1);
  }

  // Extents are at least 1, slices and windows lie within.
  Result<std::vector<Fact>> needs(const Expression& e) const {
    std::vector<Fact> all;
    if (!e.is_call) return all;
    for (const Expression& x : e.operands)
      for (const Fact& f : TEGULA_TRY(needs(x)))
        if (std::find(all.begin(), all.end(), f) == all.end()) all.push_back(f);
    const Index y = TEGULA_TRY(shape(e));
    const Name k = e.is_function ? "" : e.head;
    if (k == "slice") {
      const auto d = static_cast<size_t>(whole(e, "dim")[0]);
      const Poly x = TEGULA_TRY(shape(e.operands[0]))[d], first = attr(e, "start", 0, 0);
      const Poly last = first + attr(e, "step", 0, 1) * (y[d] - 1);
      within(all, first, x);
      within(all, last, x);
    }
    if (k == "dynamic_update_slice") {
      const Index part = TEGULA_TRY(shape(e.operands[1]));
      size_t n = 0;
      for (const int64_t d : whole(e, "dim")) {
        const Poly start = attr(e, "start", n++, 0);
        all.push_back({start});
        all.push_back({y[static_cast<size_t>(d)] - start - part[static_cast<size_t>(d)]});
      }
    }
    if (k == "conv" || k == "pool_max" || k == "pool_sum") {
      const Index x = TEGULA_TRY(shape(e.operands[0])),
                  w = e.head == "conv" ? TEGULA_TRY(shape(e.operands[1])) : Index{};
      for (size_t s = 0; s + 2 < y.size(); ++s) {
        const Poly window = e.head == "conv" ? w[s + 2] : attr(e, "kernel", s, 1);
        all.push_back({span(e, x[s + 2], window, s) - attr(e, "stride", s, 1) * (y[s + 2] - 1)});
      }
    }
    for (const Poly& extent : y)
      if (const Fact f{extent - 1}; std::find(all.begin(), all.end(), f) == all.end())
        all.push_back(f);
    return all;
  }

  Result<Sum> operand(const Expression& e, size_t k, const Index& at) {
    Sum all = TEGULA_TRY(sum(e.operands[k], at));
    return all.size() <= 200 ? Result<Sum>(std::move(all)) : bad(e, "has more than 200 terms");
  }

  Result<Sum> sum(const Expression& e, const Index& i) {
    if (!e.is_call) return Sum{{1, {}, {}, {{e.head, i, {}}}}};
    const Index y = TEGULA_TRY(shape(e));
    const Name& k = e.head;
    std::vector<Fact> box;
    for (size_t d = 0; d < y.size(); ++d) within(box, i[d], y[d]);
    const Term boxed{1, {}, box, {}}, bare;
    Sum all;
    if (!e.is_function) {
      if (k == "add" || k == "sub" || k == "neg" || k == "scale") {
        const Poly second = k == "sub" ? -1 : 1;
        const Poly first = k == "neg" ? Poly(-1) : k == "scale" ? attr(e, "by", 0, 1) : Poly(1);
        for (size_t n = 0; n < e.operands.size(); ++n)
          append(all, times({{n == 0 ? first : second, {}, {}, {}}}, TEGULA_TRY(operand(e, n, i))));
        return all;
      }
      if (k == "logical_or" || k == "logical_not" || k == "select") return logical(e, i, boxed);
      if (k == "dynamic_update_slice") return updated(e, i, boxed);
      if (k == "mul" || k == "logical_and") {
        const Sum a = TEGULA_TRY(operand(e, 0, i));
        return times(a, TEGULA_TRY(operand(e, 1, i)));
      }
      if (k == "constant" || k == "iota") {
        Term t = boxed;
        t.coefficient =
            k == "iota" ? i[static_cast<size_t>(whole(e, "dim")[0])] : attr(e, "value", 0, 0);
        return Sum{t};
      }
      if (k == "concat") return concat(e, i);
      if (k == "slice" || k == "broadcast" || k == "permute") return moved(e, i, y, boxed);
      if (k == "pad") return pad(e, i, boxed);
      if (k == "reshape") return reshape(e, i, y, boxed);
      if (k == "dot") return dot(e, i);
      if (k == "conv") return conv(e, i, boxed);
      if (k == "reduce_sum" || k == "reduce_max" || k == "pool_sum" || k == "pool_max")
        return gathered(e, i, boxed);
    }
    Term t = boxed;  // a function of its operands, max among them
    t.factors.push_back({k, {}, {}});
    for (size_t n = 0; n < e.operands.size(); ++n)
      t.factors[0].parts.push_back({{}, {}, TEGULA_TRY(operand(e, n, i))});
    return Sum{t};
  }

  // Over 0 and 1: a + b − ab, 1 − a, pa + b − pb.
  Result<Sum> logical(const Expression& e, const Index& i, const Term& boxed) {
    auto product = [&](int64_t c, std::initializer_list<size_t> operands) -> Result<Sum> {
      Sum all = {{c, {}, {}, {}}};
      for (const size_t n : operands) all = times(all, TEGULA_TRY(operand(e, n, i)));
      return all;
    };
    if (e.head == "logical_not") {
      Sum all = {boxed};
      append(all, times({boxed}, TEGULA_TRY(product(-1, {0}))));
      return all;
    }
    const bool is_or = e.head == "logical_or";
    Sum all = TEGULA_TRY(is_or ? product(1, {0}) : product(1, {0, 1}));
    append(all, TEGULA_TRY(is_or ? product(1, {1}) : product(1, {2})));
    append(all, TEGULA_TRY(is_or ? product(-1, {0, 1}) : product(-1, {0, 2})));
    return all;
  }
  Result<Sum> updated(const Expression& e, const Index& i, const Term& boxed) {
    const std::vector<int64_t> dims = whole(e, "dim");
    const Index part = TEGULA_TRY(shape(e.operands[1]));
    Index at = i;
    for (size_t n = 0; n < dims.size(); ++n)
      at[static_cast<size_t>(dims[n])] = i[static_cast<size_t>(dims[n])] - attr(e, "start", n, 0);
    Sum all = times({boxed}, TEGULA_TRY(operand(e, 1, at)));
    Term inside = boxed;  // of the part so far: x is left before and behind it, dim by dim
    for (const int64_t dim : dims) {
      const auto d = static_cast<size_t>(dim);
      for (const Poly& outside : {Poly(-1) * at[d] - 1, at[d] - part[d]}) {
        Term t = inside;
        t.guards.push_back({outside});
        append(all, times({t}, TEGULA_TRY(operand(e, 0, i))));
      }
      within(inside.guards, at[d], part[d]);
    }
    return all;
  }
  Result<Sum> concat(const Expression& e, const Index& i) {
    const auto d = static_cast<size_t>(whole(e, "dim")[0]);
    Sum all;
    Poly before;
    for (size_t n = 0; n < e.operands.size(); ++n) {
      Index at = i;
      at[d] = i[d] - before;
      append(all, TEGULA_TRY(operand(e, n, at)));
      before = before + TEGULA_TRY(shape(e.operands[n]))[d];
    }
    return all;
  }
  Result<Sum> moved(const Expression& e, const Index& i, const Index& y, const Term& boxed) {
    const Index x = TEGULA_TRY(shape(e.operands[0]));
    Index at(x.size());
    if (e.head == "permute") {
      const auto order = whole(e, "order");
      for (size_t d = 0; d < order.size(); ++d) at[static_cast<size_t>(order[d])] = i[d];
      return operand(e, 0, at);
    }
    if (e.head == "slice") {
      const auto d = static_cast<size_t>(whole(e, "dim")[0]);
      at = i;
      at[d] = attr(e, "start", 0, 0) + attr(e, "step", 0, 1) * i[d];
    } else {
      if (x.size() > y.size()) return bad(e, "to fewer dims");
      for (size_t d = 0; d < x.size(); ++d) {
        const size_t own = d + y.size() - x.size();
        if (!(x[d] == y[own]) && !(x[d] == Poly(1))) return bad(e, "extents");
        if (x[d] == y[own]) at[d] = i[own];
      }
    }
    return times({boxed}, TEGULA_TRY(operand(e, 0, at)));
  }
  Result<Sum> pad(const Expression& e, const Index& i, const Term& boxed) {
    const auto d = static_cast<size_t>(whole(e, "dim")[0]);
    const Poly apart = attr(e, "interior", 0, 0) + 1, value = attr(e, "value", 0, 0),
               extent = TEGULA_TRY(shape(e.operands[0]))[d];
    auto place = [&](Term& t) {
      Poly at = i[d] - attr(e, "lo", 0, 0);
      if (apart == Poly(1)) return at;
      const Poly element = Poly::of(loop(t));
      t.guards.push_back({at - apart * element, true});
      return element;
    };
    Term t = boxed;
    Index at = i;
    at[d] = place(t);
    Sum all = times({t}, TEGULA_TRY(operand(e, 0, at)));
    if (value == Poly(0)) return all;
    Term everywhere = boxed, taken = boxed;
    everywhere.coefficient = value;
    taken.coefficient = Poly(-1) * value;
    within(taken.guards, place(taken), extent);
    return append(all, {everywhere, taken}), all;
  }
  // Runs of x's and y's dims of the same number of elements; in a run of several of x's the
  // elements' numbers agree.
  Result<Sum> reshape(const Expression& e, const Index& i, const Index& y, const Term& boxed) {
    const Index x = TEGULA_TRY(shape(e.operands[0]));
    auto product = [](const Index& all, size_t from, size_t n) {
      Poly p = 1;
      for (size_t d = from; d < from + n; ++d) p = p * all[d];
      return p;
    };
    if (!(product(x, 0, x.size()) == product(y, 0, y.size()))) return bad(e, "numbers of elements");
    Term t = boxed;
    Index at;
    for (size_t a = 0, b = 0; a < x.size() || b < y.size();) {
      size_t n = SIZE_MAX, m = 0;
      const size_t na = x.size() - a, nb = y.size() - b;
      if (na > 0 && nb > 0 && x[a] == y[b]) n = m = 1;
      if (na == 0) n = 0, m = 1;
      if (nb == 0) n = 1, m = 0;
      for (size_t total = 1; n == SIZE_MAX && total <= na + nb; ++total)
        for (size_t p = 0; n == SIZE_MAX && p <= total; ++p)
          if (p <= na && total - p <= nb && product(x, a, p) == product(y, b, total - p))
            n = p, m = total - p;
      if (n == SIZE_MAX) return bad(e, "no runs of dims agree");
      Poly number, own;
      for (size_t d = b; d < b + m; ++d) number = number * y[d] + i[d];
      for (size_t d = a; d < a + n && n > 1; ++d) {
        at.push_back(Poly::of(loop(t)));
        own = own * x[d] + at.back();
      }
      if (n > 1) t.guards.push_back({number - own, true});
      if (n == 1) at.push_back(number);
      a += n, b += m;
    }
    return times({t}, TEGULA_TRY(operand(e, 0, at)));
  }
  Result<Sum> dot(const Expression& e, const Index& i) {
    const auto names = sides(dims(e));
    std::map<Name, Poly> at;
    for (size_t n = 0; n < names[2].size(); ++n) at[names[2][n]] = i[n];
    Term t;
    Index in[2];
    for (size_t s = 0; s < 2; ++s)
      for (const Name& n : names[s]) {
        if (!at.contains(n)) at[n] = Poly::of(loop(t));
        in[s].push_back(at[n]);
      }
    const Sum a = times({t}, TEGULA_TRY(operand(e, 0, in[0])));
    return times(a, TEGULA_TRY(operand(e, 1, in[1])));
  }
  // Channel i1 of y is of the group in which it lies: few are told apart by the groups' numbers.
  Result<Sum> conv(const Expression& e, const Index& i, const Term& boxed) {
    const Poly groups = attr(e, "groups", 0, 1);
    const auto& [names, number] = *groups.terms.begin();
    if (!names.empty() || number > 16) return of_group(e, i, boxed, -1);
    Sum all;
    for (int64_t g = 0; g < number; ++g) append(all, TEGULA_TRY(of_group(e, i, boxed, g)));
    return all;
  }
  Result<Sum> of_group(const Expression& e, const Index& i, const Term& boxed, int64_t g) {
    Term t = boxed;
    const Poly channel = Poly::of(loop(t)), groups = attr(e, "groups", 0, 1);
    Index x = {i[0], channel}, w = {i[1], channel};
    for (size_t s = 0; s + 2 < i.size(); ++s) {
      w.push_back(Poly::of(loop(t)));
      Poly at = attr(e, "stride", s, 1) * i[s + 2] + attr(e, "dilation", s, 1) * w.back() -
                attr(e, "lo", s, 0);
      if (const Poly apart = attr(e, "input_dilation", s, 1); !(apart == Poly(1))) {
        const Poly element = Poly::of(loop(t));
        t.guards.push_back({at - apart * element, true});
        at = element;
      }
      x.push_back(at);
    }
    if (!(groups == Poly(1))) {
      const Index weights = TEGULA_TRY(shape(e.operands[1]));
      const Poly width = TEGULA_TRY(width_of_group(e, weights[0]));
      const Poly group = g >= 0 ? Poly(g) : Poly::of(loop(t));
      x[1] = group * weights[1] + channel;
      t.guards.push_back({i[1] - group * width});
      t.guards.push_back({(group + 1) * width - 1 - i[1]});
    }
    const Sum a = times({t}, TEGULA_TRY(operand(e, 0, x)));
    return times(a, TEGULA_TRY(operand(e, 1, w)));
  }
  // Sums and maxima, over whole dims or windows.
  Result<Sum> gathered(const Expression& e, const Index& i, const Term& boxed) {
    const bool is_max = e.head.ends_with("max"), is_pool = e.head.starts_with("pool");
    const Index x = TEGULA_TRY(shape(e.operands[0]));
    const std::vector<int64_t> over = whole(e, "dims");
    const bool keeps = attr(e, "keep", 0, 0) == Poly(1);
    Term t;
    Index at;
    for (size_t d = 0, own = 0; d < x.size(); ++d) {
      const bool is_over =
          is_pool ? d >= 2
                  : std::find(over.begin(), over.end(), static_cast<int64_t>(d)) != over.end();
      if (!is_over) {
        at.push_back(i[own++]);
        continue;
      }
      own += keeps && !is_pool;
      const Poly r = Poly::of(loop(t));
      if (!is_pool) {
        if (is_max) within(t.guards, r, x[d]);
        at.push_back(r);
        continue;
      }
      at.push_back(attr(e, "stride", d - 2, 1) * i[d] + r - attr(e, "lo", d - 2, 0));
      within(t.guards, r, attr(e, "kernel", d - 2, 1));
      if (is_max) within(t.guards, at.back(), x[d]);
    }
    Sum value = TEGULA_TRY(operand(e, 0, at));
    if (!is_max) return times({keeps || is_pool ? times({boxed}, {t})[0] : t}, value);
    Term whole = boxed;
    whole.factors.push_back({"max", {}, {{t.bound, t.guards, std::move(value)}}});
    return Sum{whole};
  }
};
}  // namespace

Result<Meaning> meaning_of(const Rule& rule, const Expression& e) {
  Meant meant{rule};
  Meaning m;
  m.shape = TEGULA_TRY(meant.shape(e));
  m.needs = TEGULA_TRY(meant.needs(e));
  Index i;
  for (size_t d = 0; d < m.shape.size(); ++d) i.push_back(Poly::of(cat("i", d)));
  m.sum = TEGULA_TRY(meant.sum(e, i));
  return m;
}

}  // namespace tegula::rulecheck
