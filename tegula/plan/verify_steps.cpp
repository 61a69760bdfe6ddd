// The rules of verify_plan that look at one step: its launch, its regions, its tensors' strides.
#include <array>

#include "tegula/base/algorithm.h"
#include "tegula/ir/interpret.h"
#include "tegula/ir/regions.h"
#include "tegula/plan/regions.h"
#include "tegula/plan/verify_parts.h"
#include "tegula/tile/program.h"

namespace tegula::verify {

Error broken(const Plan& plan, std::string_view rule, const std::string& what) {
  return internal_error(cat("plan ", plan.name, " breaks ", rule, ": ", what));
}

std::string step_name(const Plan& plan, size_t i) {
  return cat("step ", i, " (", plan.steps[i].op->name, ")");
}

std::optional<Bytes> reach(const PlanTensor& t) {
  constexpr int64_t kHuge = int64_t{1} << 48;
  __int128 low = t.byte_offset, high = t.byte_offset + size_bytes(t.type.dtype);
  bool is_empty = false;
  for (int d = 0; d < t.type.shape.rank(); ++d) {
    const int64_t n = t.type.shape[d].bound();
    if (n < 0 || n > kHuge || t.stride[d] > kHuge || t.stride[d] < -kHuge) return std::nullopt;
    is_empty |= n == 0;
    const __int128 span = static_cast<__int128>(n - 1) * t.stride[d] * size_bytes(t.type.dtype);
    (span < 0 ? low : high) += span;
  }
  if (is_empty) return Bytes{};
  if (low < INT64_MIN / 2 || high > INT64_MAX / 2) return std::nullopt;
  return Bytes{static_cast<int64_t>(low), static_cast<int64_t>(high)};
}

namespace {

// A run without gaps, and the dims that repeat it with gaps between.
struct Scattered {
  int64_t run_bytes = 0;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride in bytes, extent
};

Scattered scattered(const PlanTensor& t) {
  const int64_t size = size_bytes(t.type.dtype);
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (int d = 0; d < t.type.shape.rank(); ++d)
    if (const int64_t n = t.type.shape[d].bound(); n > 1 && t.stride[d] != 0)
      dims.emplace_back(std::abs(t.stride[d]) * size, n);
  std::sort(dims.begin(), dims.end());
  Scattered s{size, {}};
  for (const auto& [stride, n] : dims) {
    if (s.dims.empty() && stride <= s.run_bytes)
      s.run_bytes += stride * (n - 1);
    else
      s.dims.emplace_back(stride, n);
  }
  return s;
}

}  // namespace

int64_t count_runs(const PlanTensor& t) {
  if (reach(t).value_or(Bytes{}).is_empty()) return 0;
  int64_t runs = 1;
  for (const auto& [stride, n] : scattered(t).dims)
    runs = n > kMostRuns / runs ? kMostRuns + 1 : runs * n;
  return runs;
}

std::vector<Bytes> runs_of(const PlanTensor& t) {
  const Bytes all = reach(t).value_or(Bytes{});
  if (all.is_empty()) return {};
  const Scattered s = scattered(t);
  std::vector<Bytes> runs = {{all.begin, all.begin + s.run_bytes}};
  for (const auto& [stride, n] : s.dims) {
    const size_t one = runs.size();
    for (int64_t i = 1; i < n; ++i)
      for (size_t r = 0; r < one; ++r)
        runs.push_back({runs[r].begin + i * stride, runs[r].end + i * stride});
  }
  std::sort(runs.begin(), runs.end(), [](Bytes a, Bytes b) { return a.begin < b.begin; });
  return runs;
}

namespace {

std::vector<Type> types_of(const std::vector<PlanTensor>& tensors) {
  std::vector<Type> types;
  for (const PlanTensor& t : tensors) types.push_back(t.type);
  return types;
}

}  // namespace

Status check_launch(const Plan& plan, size_t i) {
  const Step& s = plan.steps[i];
  auto error = [&](const std::string& what) {
    return broken(plan, "M7 kernels", cat(step_name(plan, i), ": ", what));
  };
  if (has_bodies(*s.op)) return s.kernel ? error("a kernel for control flow") : Status{};
  if (!s.regions.empty()) return error("has regions, but is no control flow");
  if (s.op->regions) {
    if (!s.program || !s.program->resident) return error("has no tile program");
  } else {
    const auto in = types_of(s.in), out = types_of(s.out);
    auto want = infer({s.op, &s.attrs, in, {}, plan.module.get(), {}});
    if (!want.ok()) return error(want.error().message);
    if (*want != out) return error("its results have other types than its operands give");
  }
  if (s.kernel && s.order != s.kernel->order)
    return error(cat("kernel ", s.kernel->name, " sums in order ", s.kernel->order,
                     ", the step's is ", s.order.empty() ? "missing" : s.order));
  if (!s.kernel) {
    if (plan.target.device != DeviceKind::kCpu) return {};  // a host step
    if (s.op->regions || !s.op->reference.f32) return error("has neither kernel nor reference");
    return {};
  }
  if (s.kernel->op != s.op->name || s.kernel->device != plan.target.device ||
      s.kernel->min_isa > plan.target.isa)
    return error(cat("kernel ", s.kernel->name, " is one of ", s.kernel->op, " for ",
                     isa_name(s.kernel->min_isa), ", the plan is for ", to_string(plan.target)));
  if (!s.kernel->tuning && !(s.tuning == Tuning{}))
    return error(cat("a tuning for kernel ", s.kernel->name, ", which has nothing to tune"));
  const int64_t have = s.workspace < 0 ? 0 : plan.slots[static_cast<size_t>(s.workspace)].bytes;
  for (const auto& extents : some_extents(plan.symbols, plan.least)) {
    const auto in = refs_at(s.in, extents), out = refs_at(s.out, extents);
    if (are_empty(out)) continue;
    const Attrs attrs = attrs_at(s.attrs, extents);
    const KernelQuery q{&attrs, in, out, s.program.get(), &plan.target, s.tuning};
    if (s.kernel->supports && !s.kernel->supports(q))
      return error(cat("kernel ", s.kernel->name, " does not support it at extents ", extents));
    const int64_t need = s.kernel->workspace_bytes ? s.kernel->workspace_bytes(q) : 0;
    if (need > have)
      return error(cat("kernel ", s.kernel->name, " needs a workspace of ", need,
                       " bytes at extents ", extents, ", it has ", have));
  }
  return {};
}

namespace {

PlanTensor row_of(PlanTensor t) {
  t.type.shape.erase(0);
  std::copy_n(t.stride + 1, kMaxRank - 1, t.stride);
  return t;
}

bool is_shown_as(const PlanTensor& a, const PlanTensor& b) {
  if (!(a.type == b.type)) return false;
  for (int d = 0; d < a.type.shape.rank(); ++d)
    if (a.stride[d] != b.stride[d] && a.type.shape[d].bound() > 1) return false;
  return true;
}

// The slots that the interpreter binds to the parameters of one region, and where its results go.
struct Binding {
  std::vector<PlanTensor> params;
  std::vector<size_t> homes;  // per result: a parameter
};

// The bindings of one step's regions, from what its op declares. Attributes may be anything.
class Binder {
 public:
  explicit Binder(const Step& s) : s_(s), def_(*s.op->regions) {}

  // Null: the step's operands, results and attributes do not fit each other.
  std::optional<std::vector<Binding>> run() {
    if (s_.regions.size() != def_.parts.size() || !read_attrs() || !take_params()) return {};
    std::vector<Binding> all;
    for (const RegionPart& part : def_.parts) {
      auto b = part.role == RegionRole::kCondition ? condition() : body();
      if (!b) return {};
      all.push_back(std::move(*b));
    }
    return all;
  }

 private:
  bool read_count(std::string_view name, size_t most, size_t* n) const {
    if (name.empty()) return true;
    const AttrValue* v = s_.attrs.find(name);
    const int64_t* count = v ? v->get_if<int64_t>() : nullptr;
    if (!count || *count < 0 || static_cast<uint64_t>(*count) > most) return false;
    *n = static_cast<size_t>(*count);
    return true;
  }

  bool read_attrs() {
    size_t rounds = 0;
    first_ = def_.is_choice() ? 1 : 0;
    if (s_.in.size() < first_ || (first_ && !(s_.in[0].type == Type{DType::kBool, {}})) ||
        !read_count(def_.carries, std::min(s_.in.size(), s_.out.size()), &n_carry_) ||
        !read_count(def_.slices, s_.in.size() - n_carry_, &n_xs_) ||
        !read_count(def_.most_rounds, INT64_MAX, &rounds))
      return false;
    if (def_.length.empty()) return def_.carries.empty() || s_.out.size() == n_carry_;
    const AttrValue *length = s_.attrs.find(def_.length), *saves = s_.attrs.find(def_.saves);
    const auto* lengths = length ? length->get_if<std::vector<Dim>>() : nullptr;
    if (!lengths || lengths->size() != 1) return false;
    length_ = (*lengths)[0];
    if (saves) {
      if (!saves->holds<std::vector<int64_t>>()) return false;
      saves_ = saves->get<std::vector<int64_t>>();
    }
    return saves_.size() <= s_.out.size() - n_carry_;
  }

  bool is_stacked(const PlanTensor& t) const {
    return t.type.shape.rank() > 0 && t.type.shape[0] == length_;
  }

  bool take_params() {
    for (size_t i = first_; i < s_.in.size(); ++i) {
      const size_t k = i - first_;
      if (k < n_carry_) {
        if (!(s_.in[i].type == s_.out[k].type)) return false;
        params_.push_back(s_.out[k]);
      } else if (k < n_carry_ + n_xs_) {
        if (!is_stacked(s_.in[i])) return false;
        params_.push_back(row_of(s_.in[i]));
      } else {
        params_.push_back(s_.in[i]);
      }
    }
    return true;
  }

  std::optional<Binding> condition() const {
    Binding b{params_, {params_.size()}};
    b.params.emplace_back().type.dtype = DType::kBool;
    return b;
  }

  std::optional<Binding> body() const {
    Binding b{params_, {}};
    for (size_t i = 0; i < n_carry_; ++i) b.homes.push_back(i);
    const size_t n_results = s_.out.size() - saves_.size();
    for (size_t i = n_carry_; i < n_results; ++i) {
      if (!def_.length.empty() && !is_stacked(s_.out[i])) return {};
      b.homes.push_back(b.params.size());
      b.params.push_back(def_.length.empty() ? s_.out[i] : row_of(s_.out[i]));
    }
    for (size_t i = n_results; i < s_.out.size(); ++i) {
      const int64_t from = saves_[i - n_results];
      if (from < 0 || static_cast<size_t>(from) >= n_carry_ || !is_stacked(s_.out[i]) ||
          !(row_of(s_.out[i]).type == s_.out[static_cast<size_t>(from)].type))
        return {};
    }
    return b;
  }

  const Step& s_;
  const RegionDef& def_;
  size_t first_ = 0, n_carry_ = 0, n_xs_ = 0;
  Dim length_;
  std::vector<int64_t> saves_;
  std::vector<PlanTensor> params_;
};

}  // namespace

Status check_regions(const Plan& plan, size_t i) {
  const Step& s = plan.steps[i];
  if (!has_bodies(*s.op)) return {};
  auto error = [&](const std::string& what) {
    return broken(plan, "M10 regions", cat(step_name(plan, i), ": ", what));
  };
  const auto bound = Binder(s).run();
  if (!bound) return error("its attributes, operands and results do not fit each other");
  for (size_t r = 0; r < s.regions.size(); ++r) {
    const Plan& sub = *s.regions[r];
    const Binding& b = (*bound)[r];
    if (sub.params.size() != b.params.size() || sub.results.size() != b.homes.size())
      return error(cat("region ", sub.name, " takes ", sub.params.size(), " tensors and gives ",
                       sub.results.size(), ", not ", b.params.size(), " and ", b.homes.size()));
    bool same_symbols = sub.symbols.size() == plan.symbols.size();
    for (size_t k = 0; same_symbols && k < sub.symbols.size(); ++k)
      same_symbols = sub.symbols[k].bound == plan.symbols[k].bound;
    same_symbols &= sub.least.size() == plan.least.size();
    for (size_t k = 0; same_symbols && k < sub.least.size(); ++k)
      same_symbols = sub.least[k].extent <= plan.least[k].extent;
    if (!same_symbols || !(sub.target == plan.target))
      return error(cat("region ", sub.name, " has other symbols or threads than its plan"));
    TEGULA_TRY(check_plan(sub, true));
    for (size_t p = 0; p < b.params.size(); ++p)
      if (!is_shown_as(sub.params[p].tensor, b.params[p]))
        return error(cat("parameter ", sub.params[p].name, " of region ", sub.name, " is ",
                         sub.params[p].tensor.type, ", bound to ", b.params[p].type,
                         ", or their strides differ"));
    for (size_t k = 0; k < b.homes.size(); ++k) {
      const PlanTensor &have = sub.results[k].tensor, &home = sub.params[b.homes[k]].tensor;
      if (have.slot != home.slot || have.byte_offset != 0 || !is_shown_as(have, home))
        return error(cat("result ", sub.results[k].name, " of region ", sub.name,
                         " does not lie in parameter ", sub.params[b.homes[k]].name));
    }
    const int64_t have = s.workspace < 0 ? 0 : plan.slots[static_cast<size_t>(s.workspace)].bytes;
    if (have < kRegionArena + sub.arena_bytes)
      return error(cat("its workspace has ", have, " bytes, region ", sub.name, " needs ",
                       kRegionArena + sub.arena_bytes));
  }
  return {};
}

namespace {

using Index = std::array<int64_t, kMaxRank>;

int64_t linear(const Index& index, const Shape& shape) {
  int64_t n = 0;
  for (int d = 0; d < shape.rank(); ++d) n = n * shape[d].bound() + index[static_cast<size_t>(d)];
  return n;
}

Index unlinear(int64_t n, const Shape& shape) {
  Index index{};
  for (int d = shape.rank(); d-- > 0;) {
    const int64_t size = shape[d].bound();
    index[static_cast<size_t>(d)] = n % size, n /= size;
  }
  return index;
}

// The element of the operand that a view's result shows at an index, by the op's definition.
Index seen_through(const DimMap& map, size_t result, const Shape& to, const Shape& from,
                   bool is_reshape, const Index& index) {
  if (is_reshape) return unlinear(linear(index, to), from);
  std::vector<int64_t> factor(map.factors.size(), 0);
  for (size_t d = 0; d < map.results[result].size(); ++d) {
    int64_t rest = index[d];
    for (const DimTerm& t : map.results[result][d].terms)
      factor[t.factor] = rest / t.coeff.bound(), rest %= t.coeff.bound();
  }
  Index out{};
  const auto& operand = map.operands[result < map.operands.size() ? result : 0];
  for (size_t d = 0; d < operand.size(); ++d) {
    out[d] = operand[d].offset;
    for (const DimTerm& t : operand[d].terms) out[d] += t.coeff.bound() * factor[t.factor];
  }
  return out;
}

// A chain of views from a value to the one whose bytes it shows.
struct Link {
  DimMap map;
  size_t result = 0;
  Shape to, from;
  bool is_reshape = false;
};

Result<std::vector<Link>> chain(const Module& module, const Function& f, ValueId v, ValueId holds) {
  std::vector<Link> links;
  while (v != holds) {
    const Node* n = v < f.values.size() ? f.producer(v) : nullptr;
    if (!n || !n->op->is_view) return internal_error(cat("value ", v, " is no view"));
    const auto in = f.input_types(*n), out = f.output_types(*n);
    Link link;
    link.result = v - n->first_output;
    link.map = TEGULA_TRY(dim_map({n->op, &n->attrs, in, out, &module, n->regions}));
    for (const DimExpr& e : link.map.results[link.result]) link.is_reshape |= e.is_window;
    v = n->inputs[n->inputs.size() > 1 ? link.result : 0];
    link.to = f.type(n->output(static_cast<uint32_t>(link.result))).shape,
    link.from = f.type(v).shape;
    links.push_back(std::move(link));
  }
  return links;
}

// The dims that differ when dims are permuted, or have one index, or one element for all.
std::vector<std::pair<int64_t, int64_t>> moving_dims(const Shape& shape, const int64_t* stride) {
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (int d = 0; d < shape.rank(); ++d)
    if (shape[d].bound() > 1 && stride[d] != 0) dims.emplace_back(stride[d], shape[d].bound());
  std::sort(dims.begin(), dims.end());
  return dims;
}

// The strides of `whole` where what lies there has the same dims but for some of one element.
bool strides_of_same_dims(const PlanTensor& layout, const Shape& whole, int64_t* strides) {
  int at = 0;
  const auto skip_ones = [&] {
    while (at < layout.type.shape.rank() && layout.type.shape[at].bound() == 1) ++at;
  };
  for (int d = 0; d < whole.rank(); ++d) {
    strides[d] = 0;
    if (whole[d].bound() == 1) continue;
    skip_ones();
    if (at == layout.type.shape.rank() || !(layout.type.shape[at] == whole[d])) return false;
    strides[d] = layout.stride[at++];
  }
  skip_ones();
  return at == layout.type.shape.rank();
}

}  // namespace

Status check_strides(const Plan& plan, const PlanTensor& t, int64_t t_at, const PlanTensor& layout,
                     int64_t layout_at, const std::string& who) {
  if (!plan.module) return {};
  const Function& f = (*plan.module)[plan.function];
  const Type &seen = f.type(t.value), &whole = f.type(t.holds);
  if (seen.shape.numel() == 0) return {};
  auto error = [&](const std::string& what) {
    return broken(plan, "M9 strides", cat(who, ", value ", t.value, ": ", what));
  };
  // A fused step shows a tensor in its own iteration space.
  int64_t held[kMaxRank];
  std::copy_n(layout.stride, kMaxRank, held);
  if (!(layout.type == whole) && !strides_of_same_dims(layout, whole.shape, held)) {
    int64_t next = 1;
    for (int d = whole.shape.rank(); d-- > 0; next *= whole.shape[d].bound()) held[d] = next;
    if (moving_dims(layout.type.shape, layout.stride) != moving_dims(whole.shape, held))
      return error(cat("value ", t.holds, " was not written as a whole"));
  }
  auto links = chain(*plan.module, f, t.value, t.holds);
  if (!links.ok()) return error(links.error().message);
  auto element = [&](Index index) {
    for (const Link& l : *links)
      index = seen_through(l.map, l.result, l.to, l.from, l.is_reshape, index);
    int64_t at = 0;
    for (int d = 0; d < whole.shape.rank(); ++d) at += index[static_cast<size_t>(d)] * held[d];
    return at;
  };
  const int rank = seen.shape.rank();
  const int64_t first = element({});
  int64_t want[kMaxRank] = {}, last = first;
  Index corner{};
  for (int d = 0; d < rank; ++d) {
    const auto at = static_cast<size_t>(d);
    if (seen.shape[d].bound() == 1) continue;
    Index unit{};
    unit[at] = 1;
    want[d] = element(unit) - first;
    corner[at] = seen.shape[d].bound() - 1;
    last += corner[at] * want[d];
  }
  if (element(corner) != last) return error("no strides show it there: it should be a copy");
  const int64_t size = size_bytes(whole.dtype);
  if (t_at + t.byte_offset != layout_at + layout.byte_offset + first * size)
    return error(cat("begins at byte ", t_at + t.byte_offset, ", should at ",
                     layout_at + layout.byte_offset + first * size));
  bool agrees = moving_dims(t.type.shape, t.stride) == moving_dims(seen.shape, want);
  if (t.type == seen)
    for (int d = 0; d < rank; ++d) agrees &= seen.shape[d].bound() == 1 || t.stride[d] == want[d];
  if (!agrees)
    return error(cat("has strides ", std::vector<int64_t>(t.stride, t.stride + t.type.shape.rank()),
                     " of ", t.type, ", should have ", std::vector<int64_t>(want, want + rank),
                     " of ", seen));
  return {};
}

}  // namespace tegula::verify
