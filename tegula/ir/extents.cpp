#include "tegula/ir/extents.h"

#include <set>

#include "tegula/ir/interpret.h"
#include "tegula/ir/opdef.h"

namespace tegula {

namespace {

class Search {
 public:
  explicit Search(const Module& module) : module_(module), least_(module.symbols.size()) {
    for (const Symbol& s : module.symbols) extents_.push_back(s.bound);
  }

  Status run(const Function& f) {
    for (const Value& v : f.values) TEGULA_TRY(sizes(f, v));
    for (const Node& n : f.nodes) {
      for (FuncId r : n.regions)
        if (seen_.insert(r).second) TEGULA_TRY(run(module_[r]));
      // Elementwise operands agree in every dim, at every extent. What a region op asks of its
      // regions' types is a matter of symbols, not of extents.
      if (n.op->is_elementwise || !n.regions.empty()) continue;
      TEGULA_TRY(node(f, n));
    }
    return {};
  }
  std::vector<LeastExtent> take() && { return std::move(least_); }

 private:
  void raise(size_t symbol, int64_t extent, std::string why) {
    if (extent > least_[symbol].extent) least_[symbol] = {extent, std::move(why)};
  }

  // scale·s + offset ≥ 0.
  Status sizes(const Function& f, const Value& v) {
    for (const Dim& d : v.type.shape) {
      if (d.is_const()) continue;
      const std::string what =
          cat(f.name, ": a value of type ", to_string(v.type, module_.symbols));
      if (d.scale < 0)
        return unsupported(cat(what, " has a dim that grows as ", module_.symbols[d.symbol].name,
                               " shrinks: memory is laid out at its bound"));
      if (d.offset < 0)
        raise(static_cast<size_t>(d.symbol), (-d.offset + d.scale - 1) / d.scale,
              cat(what, " would have a negative dim"));
    }
    return {};
  }

  void find_symbols(const Shape& s) {
    for (const Dim& d : s)
      if (!d.is_const()) used_.insert(static_cast<size_t>(d.symbol));
  }

  Status node(const Function& f, const Node& n) {
    used_.clear();
    for (ValueId v : n.inputs) find_symbols(f.type(v).shape);
    for (uint32_t i = 0; i < n.n_outputs; ++i) find_symbols(f.type(n.output(i)).shape);
    for (const auto& [name, value] : n.attrs)
      if (const auto* dims = value.get_if<std::vector<Dim>>())
        for (const Dim& d : *dims)
          if (!d.is_const()) used_.insert(static_cast<size_t>(d.symbol));
    for (const size_t s : used_) {
      const int64_t bound = extents_[s];
      std::string why;
      const auto holds = [&](int64_t extent) {
        extents_[s] = extent;
        std::string message = complaint(f, n);
        extents_[s] = bound;
        const bool is_well = message.empty();
        if (!is_well) why = std::move(message);
        return is_well;
      };
      // An op may take an extent of 0 and refuse small ones.
      int64_t low = -1, high = bound;  // breaks at low, holds at high
      for (const int64_t e : {least_[s].extent, int64_t{1}, bound / 2, bound - 1})
        if (e >= least_[s].extent && e > low && e < bound && !holds(e)) low = e;
      if (low < 0) continue;
      if (!holds(bound)) return invalid_argument(cat(f.name, ": ", why), n.origin.loc);
      while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        (holds(middle) ? high : low) = middle;
      }
      holds(low);
      raise(s, high, cat(f.name, ": ", why));
    }
    return {};
  }

  // The complaint of a node about its types at the extents; empty: nothing.
  std::string complaint(const Function& f, const Node& n) const {
    std::vector<Type> in, out;
    for (ValueId v : n.inputs) in.push_back({f.type(v).dtype, f.type(v).shape.at(extents_)});
    for (uint32_t i = 0; i < n.n_outputs; ++i) {
      const Type& t = f.type(n.output(i));
      out.push_back({t.dtype, t.shape.at(extents_)});
    }
    for (const auto* types : {&in, &out})
      for (const Type& t : *types)
        for (const Dim& d : t.shape)
          if (d.bound() < 0) return cat(n.op->name, ": a dim of ", t, " is negative");
    const Attrs attrs = attrs_at(n.attrs, extents_);
    const auto inferred = infer({n.op, &attrs, in, {}, &module_, n.regions});
    if (!inferred.ok()) return inferred.error().message;
    for (size_t i = 0; i < out.size(); ++i)
      if (!((*inferred)[i] == out[i]))
        return cat(n.op->name, ": gives ", (*inferred)[i], ", not ", out[i]);
    return "";
  }

  const Module& module_;
  std::vector<LeastExtent> least_;
  std::vector<int64_t> extents_;
  std::set<FuncId> seen_;
  std::set<size_t> used_;
};

}  // namespace

Result<std::vector<LeastExtent>> least_extents(const Module& module, const Function& f) {
  if (module.symbols.empty()) return std::vector<LeastExtent>();
  Search search(module);
  TEGULA_TRY(search.run(f));
  return std::move(search).take();
}

Status check_extents(std::span<const Symbol> symbols, std::span<const LeastExtent> least,
                     std::span<const int64_t> extents) {
  for (size_t i = 0; i < symbols.size(); ++i) {
    const int64_t low = i < least.size() ? least[i].extent : 0;
    if (extents[i] >= low && extents[i] <= symbols[i].bound) continue;
    std::string why;
    if (extents[i] >= 0 && extents[i] < low) why = cat(": below ", low, ", ", least[i].why);
    return invalid_argument(cat("extent ", extents[i], " of ", symbols[i].name, " is outside [",
                                low, ", ", symbols[i].bound, "]", why));
  }
  return {};
}

}  // namespace tegula
