// Mixed precision: contractions read bf16 and keep f32 sums; everything else stays f32.
//
// An op declared Precision::kLow (dot, attention, the head of the loss) that has a kernel for the
// low dtype gets its f32 operands cast to it. A product with a weight also rounds its result, and
// the result with its bias, so that activations and their gradients take half the memory; sums over
// the batch (gradients of weights) and scores on their way to a softmax stay f32. Norms,
// elementwise arithmetic, losses and the update read casts back to f32, which `fuse` makes free.
// Weights and state stay f32 and are cast once, for the forward and the backward part alike.
// [Micikevicius et al. 2018, 3.1]
//
// Bodies of loops, branches and called functions are done with the function that holds them: a
// weight of theirs is one of the function's, and what a body would only cast, in every round, is
// given to it cast. Carries stay f32.
//
// This pass changes bits: results are those of the rounded operands.
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "tegula/base/algorithm.h"
#include "tegula/ir/builder.h"
#include "tegula/ir/regions.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/edit.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/plain_dot.h"
#include "tegula/passes/precision.h"

namespace tegula {

namespace {

// Regions of a node as they were rewritten for operands of its kind.
struct Lowered {
  std::vector<FuncId> regions;     // empty: nothing in them is lowered
  std::vector<uint8_t> takes_low;  // per operand of the node: it must be given in the low dtype
};
// Nodes may share regions: by the regions, and of which operands these are given weights, and
// values that are rounded already.
using RegionsKey = std::tuple<std::vector<FuncId>, std::vector<uint8_t>, std::vector<uint8_t>>;
using KnownRegions = std::map<RegionsKey, Lowered>;

class Autocast {
 public:
  // is_weight: per parameter, of a region; null: the function's roles say it.
  Autocast(Module& module, const Function& f, const PassOptions& options,
           const std::vector<uint8_t>* is_weight, KnownRegions& known_regions)
      : module_(module),
        f_(f),
        options_(options),
        low_(options.compute_dtype),
        rw_(module, f),
        is_kept_(f.values.size(), 0),
        known_regions_(known_regions) {
    for (const Node& n : f.nodes)
      for (ValueId v : n.inputs)
        if (n.op->precision != Precision::kHigh) is_kept_[v] = 1;
    for (size_t i = 0; i < f.params.size(); ++i)
      is_weight_.push_back(is_weight ? (*is_weight)[i] : f.params[i].role == Role::kWeight);
  }

  Result<bool> run(Function& out) {
    bool changed = false;
    for (const Node& n : f_.nodes) {
      if (has_bodies(*n.op)) {
        changed |= TEGULA_TRY(take_regions(n));
      } else if (const auto attrs = lowered_attrs(n)) {
        changed = true;
        lower(n, *attrs);
      } else {
        rw_.clone(n);
        if (is_biased_product(n) || joins_rounded(n)) {
          const Var y = rw_.at(n.output());
          rw_.bind(n.output(), cast(lowered(y), DType::kF32, n.origin.loc));
        }
      }
    }
    if (!changed) return false;
    out = TEGULA_TRY(rw_.finish());
    remove_dead_nodes(out);
    return true;
  }

 private:
  bool is_lowered(const Node& n, size_t i) const {
    return f_.type(n.inputs[i]).dtype == DType::kF32 && is_low_operand(*n.op, i);
  }

  // A weight, or one that is only laid out in another way.
  bool is_weight(ValueId v) const {
    while (const Node* p = f_.producer(v)) {
      if ((!p->op->is_view && p->op != &copy_op) || p->inputs.size() != 1) return false;
      v = p->inputs[0];
    }
    return is_weight_[f_.values[v].index] != 0;
  }
  bool reads_weight(const Node& n) const {
    return std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return is_weight(v); }) ||
           (n.op == &dot_op && reads_weights_side_by_side(n));
  }
  // Along a dim that the result has: it is several products with a weight.
  bool reads_weights_side_by_side(const Node& n) const {
    const Node* p = f_.producer(n.inputs[1]);
    if (!p || p->op != &concat_op) return false;
    const DotDims dims = dims_of(n);
    return dims.out.has(dims.b[static_cast<int>(p->attrs.i("dim"))]) &&
           std::all_of(p->inputs.begin(), p->inputs.end(), [&](ValueId v) { return is_weight(v); });
  }

  // The attributes of the node in the low dtype; none: it stays. A dot's result is rounded, too, if
  // it is a product with a weight, unless it is only on its way to an op that wants f32; and where
  // the target has no kernel that leaves it in f32.
  std::optional<Attrs> lowered_attrs(const Node& n) const {
    if (n.op->precision != Precision::kLow || n.phase == Phase::kUpdate || n.inputs.empty() ||
        f_.type(n.inputs[0]).dtype != DType::kF32)
      return {};
    if (n.op == &dot_op && !(reads_weight(n) && is_kept_[n.output()])) {
      Attrs attrs = n.attrs;
      attrs.set("out", DType::kF32);
      if (has_kernel(n, attrs)) return attrs;
    }
    if (!has_kernel(n, n.attrs)) return {};
    return n.attrs;
  }

  // The sum of a rounded product and a weight: it takes the product's place and is rounded as well.
  bool is_biased_product(const Node& n) {
    if (n.op != &add_op || n.phase == Phase::kUpdate || !is_kept_[n.output()]) return false;
    for (size_t k = 0; k < 2; ++k) {
      const Node* product = f_.producer(n.inputs[k]);
      if (product && product->op == &dot_op && is_rounded(rw_.at(n.inputs[k])) &&
          is_weight(n.inputs[1 - k]))
        return true;
    }
    return false;
  }

  // An op that puts rounded values together reads and writes them as they are.
  bool joins_rounded(const Node& n) {
    return (n.op == &concat_op || n.op == &pad_op) && is_rounded(rw_.at(n.output()));
  }

  // Asks for a kernel of the node with lowered operands.
  bool has_kernel(const Node& n, const Attrs& attrs) const {
    const auto in = lowered_types(*n.op, f_.input_types(n), low_);
    OpCall call{n.op, &attrs, in, {}, &module_, n.regions};
    const auto out = infer(call);
    if (!out.ok()) return false;
    call.out = *out;
    return options_.asked().has_kernel(call);
  }

  void lower(const Node& n, const Attrs& attrs) {
    Builder& b = rw_.builder();
    b.set_origin(n.origin);
    b.set_phase(n.phase);
    std::vector<Var> in;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      const Var x = rw_.at(n.inputs[i]);
      in.push_back(is_lowered(n, i) ? lowered(x) : x);
    }
    const auto out = b.emit_n(*n.op, attrs, in, n.regions, n.origin.loc);
    for (uint32_t i = 0; i < n.n_outputs && !b.failed(); ++i)
      rw_.bind(n.output(i), cast(out[i], f_.type(n.output(i)).dtype, n.origin.loc));
  }

  // The node with its regions lowered; false: there was nothing in them.
  Result<bool> take_regions(const Node& n) {
    std::vector<uint8_t> weights, rounded;
    for (ValueId v : n.inputs) {
      weights.push_back(is_weight(v));
      rounded.push_back(f_.type(v).dtype == DType::kF32 && is_rounded(rw_.at(v)));
    }
    RegionsKey key{n.regions, std::move(weights), std::move(rounded)};
    auto known = known_regions_.find(key);
    if (known == known_regions_.end()) {
      Lowered lowered = TEGULA_TRY(lower_regions(n, key));
      known = known_regions_.emplace(std::move(key), std::move(lowered)).first;
    }
    const Lowered& to = known->second;
    if (to.regions.empty()) return rw_.clone(n), false;
    Node node = n;
    node.regions = to.regions;
    rw_.builder().set_origin(n.origin);
    rw_.builder().set_phase(n.phase);
    std::vector<ValueId> in;
    for (size_t i = 0; i < n.inputs.size(); ++i)
      in.push_back((to.takes_low[i] ? lowered(rw_.at(n.inputs[i])) : rw_.at(n.inputs[i])).id());
    const ValueId first = rw_.builder().append(std::move(node), std::move(in), f_.output_types(n));
    for (uint32_t i = 0; i < n.n_outputs; ++i)
      rw_.bind(n.output(i), Var(&rw_.builder(), first + i));
    return true;
  }

  Result<Lowered> lower_regions(const Node& n, const RegionsKey& key) {
    const RegionLayout l(*n.op->regions, n.attrs, n.inputs.size());
    const auto& [ids, weights, rounded] = key;
    const std::vector<uint8_t> is_weight(weights.begin() + static_cast<std::ptrdiff_t>(l.first),
                                         weights.end());
    std::vector<Function> made;
    bool changed = false;
    for (FuncId id : ids) {
      const Function region = module_[id];  // a copy: the module grows
      Function& out = made.emplace_back();
      if (TEGULA_TRY(Autocast(module_, region, options_, &is_weight, known_regions_).run(out)))
        changed = true;
      else
        out = region;
    }
    Lowered lowered{{}, std::vector<uint8_t>(n.inputs.size(), 0)};
    if (!changed) return lowered;
    for (size_t i = l.first; i < n.inputs.size(); ++i)
      lowered.takes_low[i] = !l.is_carry(i) && are_served(made, i - l.first, rounded[i] != 0);
    const std::vector<uint8_t> is_low(
        lowered.takes_low.begin() + static_cast<std::ptrdiff_t>(l.first), lowered.takes_low.end());
    for (const Function& f : made) {
      Function out = TEGULA_TRY(with_low(f, is_low));
      out.name = cat(f.name, ".", dtype_name(low_), module_.functions.size());
      lowered.regions.push_back(module_.add(std::move(out)));
    }
    return lowered;
  }

  // Do the functions want parameter p in the low dtype? If they only cast it; or if it is rounded
  // anyway, and then they widen what they read of it.
  bool are_served(const std::vector<Function>& functions, size_t p, bool is_rounded) const {
    bool any = false;
    for (const Function& f : functions) {
      const ValueId v = f.params[p].value;
      if (f.type(v).dtype != DType::kF32) return false;
      for (const Output& r : f.results)
        if (r.value == v) return false;
      for (const Node& n : f.nodes)
        for (ValueId x : n.inputs) {
          if (x != v) continue;
          if (!casts_down(f, n) && (!is_rounded || has_bodies(*n.op))) return false;
          any = true;
        }
    }
    return any;
  }

  bool casts_down(const Function& f, const Node& n) const {
    return n.op == &cast_op && f.type(n.output()).dtype == low_;
  }

  // f with some parameters in the low dtype: who cast them reads them as they are, who reads f32
  // reads them widened.
  Result<Function> with_low(const Function& f, const std::vector<uint8_t>& is_low) {
    Rewriter rw(module_, f);
    Builder& b = rw.builder();
    std::vector<Var> low(f.values.size());
    for (size_t p = 0; p < f.params.size(); ++p) {
      const ValueId v = f.params[p].value;
      if (!is_low[p]) continue;
      low[v] = rw.at(v);
      b.function().values[low[v].id()].type.dtype = low_;
      for (const Node& n : f.nodes)
        if (std::count(n.inputs.begin(), n.inputs.end(), v) > 0 && !casts_down(f, n)) {
          b.set_origin(n.origin), b.set_phase(n.phase);
          rw.bind(v, cast(low[v], DType::kF32));
          break;
        }
    }
    for (const Node& n : f.nodes) {
      if (casts_down(f, n) && low[n.inputs[0]].valid())
        rw.bind(n.output(), low[n.inputs[0]]);
      else
        rw.clone(n);
    }
    return rw.finish();
  }

  // In the function being written; valid until the next node.
  const Node* maker(Var v) { return rw_.builder().function().producer(v.id()); }

  // Is x there in the low dtype already, up to moving it?
  bool is_rounded(Var x) {
    const Node* n = maker(x);
    if (known_.contains(x.id())) return true;
    if (!n) return false;
    const auto input = [&](size_t i) { return Var(&rw_.builder(), n->inputs[i]); };
    if (n->op == &cast_op) return input(0).dtype() == low_;
    if (!moves(*n)) return false;
    for (size_t i = 0; i < n->inputs.size(); ++i)
      if (!is_rounded(input(i))) return false;
    return true;
  }

  static bool moves(const Node& n) {
    return (n.op->is_view && n.inputs.size() == 1) || n.op == &concat_op || n.op == &pad_op;
  }

  // Not more to cast than before the view; weights, each of which is cast once.
  bool is_cheaper_before(const Node& n) {
    const Function& g = rw_.builder().function();
    const bool are_weights = std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) {
      return !g.producer(v) && g.params[g.values[v].index].role == Role::kWeight;
    });
    if (n.op == &concat_op) return are_weights;
    if (!n.op->is_view || n.inputs.size() != 1) return false;
    return are_weights || g.type(n.inputs[0]).bytes() <= g.type(n.output()).bytes();
  }

  Var lowered(Var x) {
    if (x.dtype() == low_) return x;
    if (const auto it = known_.find(x.id()); it != known_.end())
      return Var(&rw_.builder(), it->second);
    Var y;
    const Node* n = maker(x);
    if (n && n->op == &cast_op && Var(&rw_.builder(), n->inputs[0]).dtype() == low_) {
      y = Var(&rw_.builder(), n->inputs[0]);
    } else if (n && ((moves(*n) && is_rounded(x)) || is_cheaper_before(*n))) {
      const Node copy = *n;
      std::vector<Var> in;
      for (ValueId v : copy.inputs) in.push_back(lowered(Var(&rw_.builder(), v)));
      y = rw_.builder().emit_n(*copy.op, copy.attrs, in, {}, copy.origin.loc)[0];
    } else {
      y = cast(x, low_);
    }
    known_[x.id()] = y.id();
    return y;
  }

  Module& module_;
  const Function& f_;
  const PassOptions& options_;
  DType low_;
  Rewriter rw_;
  std::vector<uint8_t> is_kept_;                // read by ops that do not insist on f32
  std::unordered_map<ValueId, ValueId> known_;  // values of the new function -> in the low dtype
  std::vector<uint8_t> is_weight_;              // per parameter
  KnownRegions& known_regions_;
};

bool has_any(const Module& module, const Function& f) {
  for (const Node& n : f.nodes) {
    if (n.op->precision == Precision::kLow) return true;
    if (has_bodies(*n.op))
      for (FuncId r : n.regions)
        if (has_any(module, module[r])) return true;
  }
  return false;
}

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  if (options.compute_dtype == DType::kF32) return false;
  if (!has_any(module, f)) return false;
  Function out;
  KnownRegions known;
  if (!TEGULA_TRY(Autocast(module, f, options, nullptr, known).run(out))) return false;
  f = std::move(out);
  return true;
}

}  // namespace

extern const PassDef autocast_pass = {
    .name = "autocast",
    .doc = "contractions in bf16 with f32 sums and masters",
    .sums = "operands are rounded to 16 bits, products of weights, too; sums stay f32",
    .phase = PassPhase::kPrecision,
    .needs = kIsLowered,
    .run = run,
};

}  // namespace tegula
