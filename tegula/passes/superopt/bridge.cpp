#include "tegula/passes/superopt/bridge.h"

#include "tegula/base/algorithm.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/plain_dot.h"

namespace tegula::superopt {

namespace {
// Attributes that a kind knows, by the op's names for them: "size=size" of lists of dims or
// integers, and of one integer.
struct Bridge {
  const OpDef* op;
  std::string_view kind;
  std::string_view attrs;  // by spaces; of these the kind and the op agree
};
const Bridge kBridges[] = {
    {&add_op, "add", ""},
    {&broadcast_op, "broadcast", "shape"},
    {&concat_op, "concat", "dim"},
    {&conv_op, "conv", "stride lo hi dilation groups"},
    {&dot_op, "dot", "dims"},
    {&max_op, "max", ""},
    {&mul_op, "mul", ""},
    {&neg_op, "neg", ""},
    {&pad_op, "pad", "dim lo hi interior"},
    {&permute_op, "permute", "order"},
    {&reduce_max_op, "reduce_max", "dims keep"},
    {&reduce_sum_op, "reduce_sum", "dims keep"},
    {&reshape_op, "reshape", "shape"},
    {&slice_op, "slice", "dim start size step"},
    {&sub_op, "sub", ""},
};

bool knows(const Bridge& b, std::string_view name) {
  return cat(" ", b.attrs, " ").find(cat(" ", name, " ")) != std::string::npos;
}

std::vector<Poly> polys_of(const AttrValue& v) {
  std::vector<Poly> all;
  if (const auto* is_set = v.get_if<bool>()) all.emplace_back(*is_set ? 1 : 0);
  if (const auto* i = v.get_if<int64_t>()) all.emplace_back(*i);
  if (const auto* is = v.get_if<std::vector<int64_t>>())
    for (const int64_t i : *is) all.emplace_back(i);
  if (const auto* ds = v.get_if<std::vector<Dim>>())
    for (const Dim& d : *ds) all.push_back(poly_of(d));
  return all;
}

// The attribute as its op declares it.
Result<AttrValue> value_of(const Module& module, const AttrDef& def, const std::vector<Poly>& of) {
  std::vector<Dim> dims;
  std::vector<int64_t> ints;
  for (const Poly& p : of) {
    const auto d = dim_of_poly(module, p);
    if (!d) return unsupported(cat(def.name, " would be ", p.text(), ", which no dim can say"));
    dims.push_back(*d);
    if (d->is_const()) ints.push_back(d->offset);
  }
  if (def.kind == AttrKind::kDims) return AttrValue(std::move(dims));
  if (ints.size() != of.size() || (def.kind == AttrKind::kInt && ints.size() != 1))
    return unsupported(cat(def.name, " must be known before the run"));
  if (def.kind == AttrKind::kBool) return AttrValue(ints == std::vector<int64_t>{1});
  if (def.kind == AttrKind::kInt) return AttrValue(ints[0]);
  return AttrValue(std::move(ints));
}

// The operands of concatenations along the dim, in a row.
std::vector<Var> flat(Builder& b, std::span<const Var> in, int64_t dim) {
  std::vector<Var> all;
  for (const Var& v : in) {
    const tegula::Node* n = b.function().producer(v.id());
    if (n == nullptr || n->op != &concat_op || n->attrs.i("dim") != dim) {
      all.push_back(v);
      continue;
    }
    for (const ValueId x : std::vector<ValueId>(n->inputs)) all.emplace_back(&b, x);
  }
  return all;
}
}  // namespace

Poly poly_of(const Dim& d) {
  if (d.is_const()) return d.offset;
  return Poly(d.offset) + Poly(d.scale) * Poly(Symbol("S", d.symbol));
}

Extents extents_of(const Shape& s) {
  Extents all;
  for (const Dim& d : s) all.push_back(poly_of(d));
  return all;
}

std::optional<Dim> dim_of_poly(const Module& module, const Poly& p) {
  if (p.is_const()) return Dim(p.constant());
  const std::vector<Symbol> symbols = p.symbols();
  if (symbols.size() != 1 || !p.is_affine_in(symbols[0])) return {};
  const Poly scale = p.factor_of(symbols[0]);
  for (size_t k = 0; k < module.symbols.size(); ++k) {
    const auto id = static_cast<int32_t>(k);
    if (Symbol("S", id) != symbols[0] || !scale.is_const()) continue;
    Dim d = Dim::of(id, module.symbols[k].bound);
    d.scale = static_cast<int32_t>(scale.constant()), d.offset = p.constant();
    return d;
  }
  return {};
}

const OpDef* op_of(std::string_view kind) {
  for (const Bridge& b : kBridges)
    if (b.kind == kind) return b.op;
  return nullptr;
}

std::optional<KindOfNode> kind_of(const Function& f, const tegula::Node& n) {
  if (n.n_outputs != 1 || !n.regions.empty() || n.op->has_effect || n.op->collective) return {};
  KindOfNode k;
  for (const Bridge& b : kBridges) {
    if (b.op != n.op) continue;
    k.kind = b.kind;
    for (const Attr& a : n.attrs) {
      if (!knows(b, a.name))
        k.rest.set(a.name, a.value);
      else if (const auto* text = a.value.get_if<std::string>())
        k.attrs.words[a.name] = *text;
      else
        k.attrs.polys[a.name] = polys_of(a.value);
    }
    if (n.op == &dot_op && !is_plain_dot(n)) return {};
    if (n.op == &pad_op) {
      if (n.attrs.f("value") != 0 || n.attrs.has("size")) return {};
      k.rest.erase("value");  // a pad of the kind is of zeros
    }
    if (n.op == &conv_op) {
      const Extents out = extents_of(f.type(n.output()).shape);
      k.attrs.polys["out"].assign(out.begin() + 2, out.end());
    }
    return k;
  }
  if (!n.op->is_elementwise) return {};
  k.kind = "function", k.attrs.words["name"] = std::string(n.op->name), k.rest = n.attrs;
  return k;
}

Result<Var> emit_kind(Builder& b, const KindOfNode& call, std::span<const Var> in,
                      const Type& like) {
  if (b.failed()) return b.error();  // its values are no operands
  Attrs attrs = call.rest;
  const OpDef* op = nullptr;
  std::vector<Var> operands(in.begin(), in.end());
  if (call.kind == "function") {
    op = find_op(call.attrs.words.at("name"));
  } else if (call.kind == "constant") {
    Shape shape;
    for (const Poly& p : call.attrs.list("shape")) {
      const auto d = dim_of_poly(b.module(), p);
      if (!d) return unsupported(cat("a constant of ", p.text(), " elements"));
      shape.push_back(*d);
    }
    const Poly value = call.attrs.poly("value", 0);
    if (!value.is_const()) return unsupported(cat("a constant ", value.text()));
    return fill(b, static_cast<double>(value.constant()), {like.dtype, shape});
  } else {
    op = op_of(call.kind);
    for (const Bridge& bridge : kBridges)
      if (bridge.op == op && op != nullptr) {
        for (const AttrDef& def : op->attrs)
          if (const auto at = call.attrs.polys.find(def.name); at != call.attrs.polys.end())
            attrs.set(def.name, TEGULA_TRY(value_of(b.module(), def, at->second)));
          else if (knows(bridge, def.name) && call.attrs.words.contains(def.name))
            attrs.set(def.name, call.attrs.words.find(def.name)->second);
      }
  }
  if (op == nullptr) return unsupported(cat("no op is ", call.kind));
  if (op == &dot_op && !attrs.has("dims")) attrs.set("dims", "m k, k n -> m n");
  if (op == &concat_op) operands = flat(b, in, attrs.i("dim"));
  if (op == &slice_op && !attrs.has("start")) attrs.set("start", 0);
  if (op == &slice_op && !attrs.has("step")) attrs.set("step", 1);
  if (op == &pad_op) {
    for (const char* name : {"lo", "hi", "interior"})
      if (!attrs.has(name)) attrs.set(name, 0);
    attrs.set("value", 0.0);
  }
  if (op == &conv_op) {
    const auto n = static_cast<size_t>(in[0].rank() - 2);
    for (const char* name : {"stride", "dilation"})
      if (!attrs.has(name)) attrs.set(name, std::vector<int64_t>(n, 1));
    for (const char* name : {"lo", "hi"})
      if (!attrs.has(name)) attrs.set(name, std::vector<int64_t>(n, 0));
    if (!attrs.has("groups")) attrs.set("groups", 1);
  }
  const std::vector<Var> out = b.emit_n(*op, std::move(attrs), operands);
  if (b.failed()) return b.error();
  return out[0];
}

}  // namespace tegula::superopt
