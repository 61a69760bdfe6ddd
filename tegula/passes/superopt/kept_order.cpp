#include "tegula/passes/superopt/kept_order.h"

#include <unordered_map>

#include "tegula/base/algorithm.h"
#include "tegula/cost/calls.h"
#include "tegula/ir/hash.h"
#include "tegula/ir/regions.h"
#include "tegula/ir/sum_shards.h"
#include "tegula/ops/table.h"
#include "tegula/passes/superopt/bridge.h"

namespace tegula::superopt {

namespace {

// Places among n: both ends, and others that n alone decides.
std::vector<int64_t> samples(int64_t n, int64_t most) {
  std::vector<int64_t> at;
  for (int64_t i = 0; i < std::min(n, most); ++i)
    at.push_back(n > most && i > 1 ? static_cast<int64_t>(mix(7, static_cast<uint64_t>(i)) >> 1) % n
                                   : i);
  if (n > most) at[1] = n - 1;
  return at;
}
constexpr int64_t kOfResults = 48, kOfOperands = 8, kOfTerms = 4;
constexpr size_t kMostElements = size_t{1} << 21;

// A hash of what each element is made of.
class Elements {
 public:
  explicit Elements(const Module& module) : module_(module), f_(module[0]) {
    for (size_t s = 0; s < module.symbols.size(); ++s)
      bounds_.emplace_back(Symbol("S", static_cast<int64_t>(s)), module.symbols[s].bound);
  }

  bool is_too_large() const { return known_.size() > kMostElements; }

  uint64_t of(ValueId v, int64_t flat) {
    const uint64_t key = static_cast<uint64_t>(flat) * f_.values.size() + v;
    if (const auto at = known_.find(key); at != known_.end()) return at->second;
    const uint64_t hash = is_too_large() ? 0 : make(v, flat);
    return known_[key] = hash;
  }

 private:
  using Bindings = std::vector<std::pair<Symbol, int64_t>>;
  struct Known {
    std::optional<KindOfNode> kind;  // none: opaque
    Form form;
  };

  static int64_t value(const Poly& p, const Bindings& at) {
    return p.evaluate([&](Symbol s) -> int64_t {
      for (size_t k = at.size(); k-- > 0;)
        if (at[k].first == s) return at[k].second;
      return 0;
    });
  }

  const Known& form(NodeId id) {
    if (const auto at = forms_.find(id); at != forms_.end()) return at->second;
    Known& known = forms_[id];
    const tegula::Node& n = f_.nodes[id];
    if (!n.op->is_elementwise) known.kind = kind_of(f_, n);
    if (!known.kind) return known;
    std::vector<Extents> in;
    for (const ValueId v : n.inputs) in.push_back(extents_of(f_.type(v).shape));
    auto made = form_of(known.kind->kind, {in, known.kind->attrs});
    made.ok() ? (void)(known.form = std::move(*made)) : known.kind.reset();
    return known;
  }

  uint64_t make(ValueId v, int64_t flat) {
    const Value& of_value = f_.values[v];
    if (of_value.node == kNone) return mix(mix(1, of_value.index), static_cast<uint64_t>(flat));
    const tegula::Node& n = f_.nodes[of_value.node];
    const Known& known = form(of_value.node);
    const auto dtype = static_cast<uint64_t>(of_value.type.dtype);
    if (known.kind) return summed(n, known, mix(dtype, tegula::hash_of(known.kind->rest)), flat);
    uint64_t hash = mix(mix(tegula::hash_of(n.op->name), tegula::hash_of(n.attrs)), dtype);
    std::vector<uint64_t> in;
    for (const ValueId x : n.inputs) in.push_back(n.op->is_elementwise ? of(x, flat) : whole(x));
    if (n.op->is_commutative) std::sort(in.begin(), in.end());
    if (!n.op->is_elementwise)
      hash = mix(mix(hash, v - n.first_output), static_cast<uint64_t>(flat));
    for (const FuncId region : n.regions)
      hash = mix(hash, tegula::hash_of(module_, module_[region]));
    for (const uint64_t x : in) hash = mix(hash, x);
    return hash;
  }

  // All of an operand that is read in a way that nobody tells.
  uint64_t whole(ValueId v) {
    uint64_t hash = tegula::hash_of(f_.type(v));
    for (const int64_t at : samples(f_.type(v).shape.numel(), kOfOperands))
      hash = mix(hash, of(v, at));
    return hash;
  }

  // Loops that equalities tie to the rest: t and u in "at = 12 t + u", the larger factor first.
  static bool solve(const Form::Piece& piece, Bindings& at) {
    for (const Guard& g : piece.guards) {
      if (!g.is_zero) continue;
      std::vector<std::pair<int64_t, const Form::Loop*>> tied;
      for (const Form::Loop& loop : piece.loops)
        if (g.p.has(loop.symbol)) tied.emplace_back(-value(g.p.factor_of(loop.symbol), at), &loop);
      std::stable_sort(tied.begin(), tied.end(),
                       [](const auto& a, const auto& b) { return a.first > b.first; });
      int64_t rest = value(g.p, at);  // those that are not bound yet count as 0
      for (const auto& [by, loop] : tied) {
        if (by <= 0 || rest < 0) return false;
        at.emplace_back(loop->symbol, rest / by);
        if (at.back().second >= value(loop->size, at)) return false;
        rest %= by;
      }
      if (rest != 0) return false;
    }
    return true;
  }
  static bool is_free(const Form::Piece& piece, const Form::Loop& loop) {
    return std::none_of(piece.guards.begin(), piece.guards.end(),
                        [&](const Guard& g) { return g.is_zero && g.p.has(loop.symbol); });
  }

  // A product of elements, in any order; none: outside, where a value is 0.
  std::optional<uint64_t> term(const tegula::Node& n, const Form::Piece& piece, Bindings at) {
    if (!solve(piece, at)) return {};
    for (const Guard& g : piece.guards)
      if (value(g.p, at) < 0) return {};
    std::vector<uint64_t> factors;
    for (const Form::Read& read : piece.reads) {
      const ValueId x = n.inputs[static_cast<size_t>(read.operand)];
      int64_t flat = 0;
      bool is_within = true;
      for (size_t d = 0; d < read.index.size(); ++d) {
        const int64_t i = value(read.index[d], at);
        const int64_t extent = f_.type(x).shape[static_cast<int>(d)].bound();
        is_within = is_within && i >= 0 && i < extent;
        flat = flat * extent + i;
      }
      if (!is_within && piece.reads.size() == 1) return {};
      factors.push_back(is_within ? of(x, flat) : kZero);
    }
    if (factors.size() == 1) return factors[0];
    std::sort(factors.begin(), factors.end());
    uint64_t hash = mix(2, static_cast<uint64_t>(piece.coefficient.constant()));
    for (const uint64_t x : factors) hash = mix(hash, x);
    return hash;
  }

  uint64_t summed(const tegula::Node& n, const Known& known, uint64_t how, int64_t flat) {
    Bindings at = bounds_;
    const Shape& shape = f_.type(n.output()).shape;
    for (int d = shape.rank(); d-- > 0; flat /= shape[d].bound())
      at.emplace_back(out_index(static_cast<size_t>(d)), flat % shape[d].bound());
    uint64_t hash = mix(tegula::hash_of(known.kind->kind), how);
    bool is_moved = known.form.function.empty();
    for (const Form::Piece& piece : known.form.pieces) {
      int64_t length = 1;
      std::vector<std::pair<Symbol, int64_t>> free;
      for (const Form::Loop& loop : piece.loops)
        if (is_free(piece, loop)) {
          free.emplace_back(loop.symbol, value(loop.size, at));
          length *= free.back().second;
        }
      is_moved = is_moved && free.empty() && piece.reads.size() == 1;
      hash = mix(hash, static_cast<uint64_t>(length));
      for (const int64_t k : samples(length, kOfTerms)) {
        Bindings here = at;
        int64_t rest = k;
        for (size_t l = free.size(); l-- > 0; rest /= free[l].second)
          here.emplace_back(free[l].first, rest % free[l].second);
        const auto made = term(n, piece, std::move(here));
        if (is_moved && made) return *made;
        hash = mix(hash, made.value_or(kZero));
      }
    }
    return is_moved ? kZero : hash;
  }

  static constexpr uint64_t kZero = 0x5eed;
  const Module& module_;
  const Function& f_;
  Bindings bounds_;
  std::map<NodeId, Known> forms_;
  std::unordered_map<uint64_t, uint64_t> known_;
};

// How many elements go into one of a result: all along factors that a result has not, and rows.
int64_t length_of(const OpCall& call) {
  const auto map = dim_map(call);
  int64_t summed = 1, whole = 1;
  if (!map.ok()) return 0;
  for (size_t f = 0; f < map->factors.size(); ++f) {
    const bool is_free = std::all_of(map->combine[f].begin(), map->combine[f].end(),
                                     [](Combine c) { return c == Combine::kFree; });
    if (!is_free) summed *= map->factors[f].size.bound();
    if (is_free && map->factors[f].whole) whole *= map->factors[f].size.bound();
  }
  return call.op == &dot_fused_op ? summed : summed * whole;
}

// `of_program`: the order of the kernel that runs the function as a part of its own.
void add_sums(const Module& module, const Function& f, const Planning& asked,
              const std::string_view* of_program, Sums& sums) {
  for (const tegula::Node& n : f.nodes) {
    if (n.op->is_view || n.op->is_elementwise || n.inputs.empty()) continue;
    const std::vector<Type> in = at_bounds(f.input_types(n)), out = at_bounds(f.output_types(n));
    const OpCall call{n.op, &n.attrs, in, out, &module, n.regions};
    const std::string_view order = of_program || has_bodies(*n.op) ? "" : asked.order_of(call);
    for (const FuncId region : n.regions)
      add_sums(module, module[region], asked, has_bodies(*n.op) ? nullptr : &order, sums);
    const int64_t length = n.op == &fused_op || has_bodies(*n.op) ? 1 : length_of(call);
    if (order == "exact" || length == 1) continue;
    std::string what = cat(n.op == &dot_fused_op ? dot_op.name : n.op->name, " of ", length, " ",
                           in[0].dtype, ", ", out[0].dtype);
    if (n.attrs.has("k_shards")) what += cat(", k_shards ", n.attrs.i("k_shards"));
    if (n.attrs.has(kSumShards)) what += cat(", sum_shards ", SumShards::of(n.attrs).outer);
    if (n.attrs.flag("accumulate")) what += ", in parts";
    sums[what][std::string(of_program ? *of_program : order)] += out[0].shape.numel();
  }
}
}  // namespace

Sums sums_of(const Module& module, const Function& f, const Planning& asked) {
  Sums sums;
  add_sums(module, f, asked, nullptr, sums);
  return sums;
}

std::string difference(const Sums& before, const Sums& after) {
  const auto orders = [](const Sums& all, const std::string& what) {
    std::string text;
    if (const auto at = all.find(what); at != all.end())
      for (const auto& [order, n] : at->second) text += cat(text.empty() ? "" : " and ", order);
    return text.empty() ? "none" : text;
  };
  for (const Sums* all : {&after, &before})
    for (const auto& [what, how] : *all) {
      if (how.contains("")) return cat(what, ": its kernel does not say in which order it sums");
      const std::string was = orders(before, what), is = orders(after, what);
      if (was != is) return cat(what, ": ", was, " before, ", is, " after");
      if (how.size() > 1 && before.at(what) != after.at(what))
        return cat(what, ": ", was, ", not as often as before");
    }
  return "";
}

std::string difference(const Module& before, const Module& after) {
  Elements a(before), b(after);
  const Function &f = before[0], &g = after[0];
  for (size_t r = 0; r < f.results.size(); ++r) {
    const ValueId x = f.results[r].value, y = g.results[r].value;
    for (const int64_t at : samples(f.type(x).shape.numel(), kOfResults))
      if (a.of(x, at) != b.of(y, at))
        return cat("result ", r, ", element ", at, " is made otherwise");
  }
  return a.is_too_large() || b.is_too_large() ? "it is too large to be followed" : "";
}

}  // namespace tegula::superopt
