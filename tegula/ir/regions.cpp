#include "tegula/ir/regions.h"

#include "tegula/base/sizes.h"

namespace tegula {

RegionLayout::RegionLayout(const RegionDef& def, const Attrs& attrs, size_t n_operands)
    : first(def.is_choice() ? 1 : 0),
      n_carry(def.carries.empty() ? 0 : static_cast<size_t>(attrs.i(def.carries))),
      n_xs(def.slices.empty() ? 0 : static_cast<size_t>(attrs.i(def.slices))),
      n_invariants(n_operands - first - n_carry - n_xs) {
  if (const AttrValue* v = def.saves.empty() ? nullptr : attrs.find(def.saves))
    saves = v->get<std::vector<int64_t>>();
}

int64_t region_rounds(const RegionDef& def, const Attrs& attrs, std::span<const int64_t> extents) {
  if (!def.length.empty()) return attrs.dims(def.length)[0].at(extents);
  return def.most_rounds.empty() ? 1 : attrs.i(def.most_rounds);
}

bool starts_in_place(const OpDef& op, const Attrs& attrs, size_t operand, size_t result) {
  return op.regions && !op.regions->carries.empty() && operand == result &&
         static_cast<int64_t>(operand) < attrs.i(op.regions->carries);
}

std::vector<Type> result_types(const Function& f) {
  std::vector<Type> types;
  for (const Output& r : f.results) types.push_back(f.type(r.value));
  return types;
}

Type slice_type(const Type& x) {
  Type t = x;
  t.shape.erase(0);
  return t;
}

Type stacked_type(Dim length, const Type& slice) {
  Type t = slice;
  t.shape.insert(0, length);
  return t;
}

DimMap whole_map(const OpCall& call, std::span<const Type> results) {
  DimMap m;
  auto dims = [&](const Shape& s) {
    std::vector<DimExpr> out;
    for (const Dim& d : s) {
      size_t f = 0;
      while (f < m.factors.size() && !(m.factors[f].size == d)) ++f;
      if (f == m.factors.size()) {
        m.add_factor(cat("n", f), d);
        m.factors.back().whole = true;
      }
      out.push_back({0, {{static_cast<uint8_t>(f), 1}}});
    }
    return out;
  };
  for (const Type& t : call.in) m.operands.push_back(dims(t.shape));
  for (const Type& t : results) {
    m.results.push_back(dims(t.shape));
    m.result_shapes.push_back(t.shape);
  }
  m.finish();
  return m;
}

namespace {

// One node's regions against its operands. Attributes are there, and of the right kind.
class Fitting {
 public:
  explicit Fitting(const OpCall& c) : c_(c), def_(*c.op->regions) {}

  Result<std::vector<Type>> run() {
    TEGULA_TRY(check_counts());
    TEGULA_TRY(find_takes());
    for (size_t r = 0; r < c_.regions.size(); ++r) TEGULA_TRY(check_takes(r));
    const size_t body = def_.body();
    std::vector<Type> out = result_types(c_.region(body));
    TEGULA_TRY(check_condition());
    TEGULA_TRY(check_branches(out));
    TEGULA_TRY(check_carries(out));
    if (!def_.length.empty()) TEGULA_TRY(stack(out));
    for (const Type& t : out) TEGULA_TRY(check_sizes(c_.op->name, t.shape));
    return out;
  }

 private:
  template <class... Parts>
  Error misfit(const Parts&... parts) const {
    return invalid_argument(cat(c_.op->name, ": ", parts...));
  }

  int64_t count(std::string_view attr) const { return attr.empty() ? 0 : c_.attrs->i(attr); }

  Status check_counts() {
    if (c_.regions.size() != def_.parts.size() || !c_.module)
      return misfit("needs ", def_.parts.size() == 1 ? "one region" : "two regions", ", has ",
                    c_.regions.size());
    n_carry_ = count(def_.carries), n_xs_ = count(def_.slices);
    const auto n = static_cast<int64_t>(c_.in.size());
    if (n_carry_ < 0 || n_xs_ < 0 || n_carry_ > n || n_xs_ > n - n_carry_) {
      if (def_.slices.empty()) return misfit(def_.carries, " ", n_carry_, " of ", n, " operands");
      return misfit(def_.carries, " ", n_carry_, " and ", def_.slices, " ", n_xs_, " of ", n,
                    " operands");
    }
    if (def_.is_choice() && (n == 0 || !(c_.in[0] == Type{DType::kBool, {}})))
      return misfit("the predicate must be bool[], is ",
                    n == 0 ? std::string("missing") : cat(c_.in[0]));
    if (const int64_t most = count(def_.most_rounds); most < 0)
      return misfit(def_.most_rounds, " is ", most, ", must be at least 0");
    if (!def_.length.empty()) {
      const auto& lengths = c_.attrs->dims(def_.length);
      if (lengths.size() != 1) return misfit(lengths.size(), " lengths, must be one");
      length_ = lengths[0];
    }
    return {};
  }

  // Finds what each region is given: operands, slices of them.
  Status find_takes() {
    const RegionLayout l(def_, *c_.attrs, c_.in.size());
    for (size_t i = l.first; i < c_.in.size(); ++i) {
      if (!l.is_x(i)) {
        takes_.push_back(c_.in[i]);
        continue;
      }
      if (c_.shape(i).rank() == 0 || !(c_.shape(i)[0] == length_))
        return misfit("x ", i - l.n_carry, " is ", c_.in[i], ", its dim 0 must be ", length_);
      takes_.push_back(slice_type(c_.in[i]));
    }
    return {};
  }

  Status check_takes(size_t region) const {
    const Function& f = c_.region(region);
    const std::string_view what = def_.parts.items[region].name;
    if (f.params.size() != takes_.size())
      return misfit(what, " ", f.name, " takes ", f.params.size(), " parameters, gets ",
                    takes_.size());
    for (size_t i = 0; i < takes_.size(); ++i)
      if (!(f.type(f.params[i].value) == takes_[i]))
        return misfit("parameter ", i, " (", f.params[i].name, ") of ", what, " is ",
                      f.type(f.params[i].value), ", gets ", takes_[i]);
    return {};
  }

  Status check_condition() const {
    if (def_.body() == 0) return {};
    const auto test = result_types(c_.region(0));
    return test.size() == 1 && test[0] == Type{DType::kBool, {}}
               ? Status()
               : misfit("the condition must give one bool[]");
  }

  Status check_branches(const std::vector<Type>& first) const {
    if (!def_.is_choice()) return {};
    const auto& names = def_.parts.items;
    const auto second = result_types(c_.region(1));
    if (first.size() != second.size())
      return misfit(names[0].name, " gives ", first.size(), " results, ", names[1].name, " ",
                    second.size());
    for (size_t i = 0; i < first.size(); ++i)
      if (!(first[i] == second[i]))
        return misfit("result ", i, " of ", names[0].name, " is ", first[i], ", of ", names[1].name,
                      " ", second[i]);
    return {};
  }

  Status check_carries(const std::vector<Type>& out) const {
    const auto n = static_cast<int64_t>(out.size());
    if (!def_.carries.empty() && (n < n_carry_ || (def_.length.empty() && n > n_carry_)))
      return misfit("the body gives ", n, " results for ", n_carry_, " carries");
    for (size_t i = 0; i < static_cast<size_t>(n_carry_); ++i)
      if (!(out[i] == takes_[i]))
        return misfit("carry ", i, " is ", takes_[i], ", the body makes it ", out[i]);
    return {};
  }

  // Behind the carries: ys of one slice a round, and the carries that are saved.
  Status stack(std::vector<Type>& out) const {
    for (auto i = static_cast<size_t>(n_carry_); i < out.size(); ++i) {
      if (out[i].shape.rank() == kMaxRank)
        return unsupported(cat(c_.op->name, ": y ", i - static_cast<size_t>(n_carry_),
                               " would have more than 8 dims"));
      out[i] = stacked_type(length_, out[i]);
    }
    for (int64_t s : RegionLayout(def_, *c_.attrs, c_.in.size()).saves) {
      if (s < 0 || s >= n_carry_) return misfit("saves carry ", s, " of ", n_carry_);
      const Type& carry = takes_[static_cast<size_t>(s)];
      if (carry.shape.rank() == kMaxRank)
        return unsupported(cat(c_.op->name, ": saved, carry ", s, " would have more than 8 dims"));
      out.push_back(stacked_type(length_, carry));
    }
    return {};
  }

  const OpCall& c_;
  const RegionDef& def_;
  int64_t n_carry_ = 0, n_xs_ = 0;
  Dim length_;
  std::vector<Type> takes_;
};

}  // namespace

Result<std::vector<Type>> region_results(const OpCall& call) { return Fitting(call).run(); }

}  // namespace tegula
