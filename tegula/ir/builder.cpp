#include "tegula/ir/builder.h"

#include <algorithm>

#include "tegula/base/sizes.h"

namespace tegula {

void Var::let_go(VarCount* count) {
  if (--count->holders == 0) delete count;
}

Builder::Builder(Module& module, std::string name) : module_(module) {
  function_.name = std::move(name);
}

Var Builder::param(std::string name, Type type, Role role) {
  if (auto st = check_sizes(cat("parameter ", name), type.shape); !st.ok())
    return fail(std::move(st).error());
  const auto id = static_cast<ValueId>(function_.values.size());
  function_.values.push_back({type, kNone, static_cast<uint32_t>(function_.params.size())});
  function_.params.push_back({std::move(name), id, role, -1});
  return Var(this, id);
}

bool Builder::is_poison(ValueId v) const {
  return std::find(poison_.begin(), poison_.end(), v) != poison_.end();
}

Dim Builder::no_dim(Var v, int i) {
  if (!failed() || !is_poison(v.id()))
    fail(invalid_argument(cat("there is no dim ", i, " of ", v.type())));
  return 1;
}

Var Builder::fail(Error error) {
  if (!error_) error_ = std::move(error);
  const auto id = static_cast<ValueId>(function_.values.size());
  function_.values.push_back({Type{DType::kF32, {}}, kNone, kNone});
  poison_.push_back(id);
  return Var(this, id);
}

Builder::Emitted Builder::add(const OpDef& op, Attrs attrs, std::span<const Var> inputs,
                              std::vector<FuncId> regions, Loc loc) {
  if (origin_) loc = origin_->loc;
  Node node;
  node.op = &op;
  node.attrs = std::move(attrs);
  node.regions = std::move(regions);
  node.origin = {loc, origin_ ? origin_->scope : scope_};
  node.phase = phase_;
  std::vector<ValueId> ids;
  ids.reserve(inputs.size());
  operand_types_.clear();
  bool poisoned = false;
  for (const Var& v : inputs) {
    if (!v.valid() || &v.builder() != this) {
      fail(invalid_argument(cat(op.name, ": an operand belongs to another builder"), loc));
      poisoned = true;
      continue;
    }
    poisoned |= error_.has_value() && is_poison(v.id());
    ids.push_back(v.id());
    operand_types_.push_back(type(v.id()));
  }
  if (poisoned) return {};
  auto out = infer({&op, &node.attrs, operand_types_, {}, &module_, node.regions});
  if (!out.ok()) {
    Error e = std::move(out).error();
    e.where = loc;
    fail(std::move(e));
    return {};
  }
  return {append(std::move(node), std::move(ids), *out), static_cast<uint32_t>(out->size())};
}

std::vector<Var> Builder::emit_n(const OpDef& op, Attrs attrs, std::span<const Var> inputs,
                                 std::vector<FuncId> regions, Loc loc) {
  const Emitted e = add(op, std::move(attrs), inputs, std::move(regions), loc);
  std::vector<Var> vars;
  if (e.first == kNone) {
    // As many poison results as any op has, so that callers may unpack them.
    for (int i = 0; i < 8; ++i) vars.push_back(fail(internal_error("poison")));
    return vars;
  }
  vars.reserve(e.n);
  for (uint32_t i = 0; i < e.n; ++i) vars.emplace_back(this, e.first + i);
  return vars;
}

Var Builder::emit(const OpDef& op, Attrs attrs, std::initializer_list<Var> inputs, Loc loc) {
  const Emitted e = add(op, std::move(attrs), {inputs.begin(), inputs.size()}, {}, loc);
  return e.first == kNone ? fail(internal_error("poison")) : Var(this, e.first);
}

ValueId Builder::append(Node node, std::vector<ValueId> inputs, std::span<const Type> types) {
  const auto first = static_cast<ValueId>(function_.values.size());
  const auto id = static_cast<NodeId>(function_.nodes.size());
  for (uint32_t i = 0; i < types.size(); ++i) function_.values.push_back({types[i], id, i});
  node.inputs = std::move(inputs);
  node.first_output = first;
  node.n_outputs = static_cast<uint32_t>(types.size());
  function_.nodes.push_back(std::move(node));
  return first;
}

void Builder::result(std::string name, Var v) {
  if (!v.valid() || &v.builder() != this) {
    fail(invalid_argument(cat("result ", name, " belongs to another builder")));
    return;
  }
  function_.results.push_back({std::move(name), v.id()});
}

void Builder::annotate(Var v,
                       std::initializer_list<std::pair<std::string_view, AxisSharding>> where) {
  if (!v.valid() || &v.builder() != this) {
    fail(invalid_argument("annotate: the value belongs to another builder"));
    return;
  }
  if (failed() && is_poison(v.id())) return;
  const Mesh& mesh = module_.mesh;
  const auto wrong = [&](const auto&... what) {
    fail(invalid_argument(cat("annotate: value %", v.id(), ", ", v.type(), ": ", what...)));
  };
  Sharding s = replicated(mesh);
  std::vector<uint8_t> is_named(s.size());
  for (const auto& [name, state] : where) {
    const int a = mesh.find(name);
    if (a < 0)
      return wrong("the mesh \"", to_text(mesh), "\" has no axis ", name, ": set Module::mesh");
    if (is_named[static_cast<size_t>(a)]) return wrong("axis ", name, " is named twice");
    is_named[static_cast<size_t>(a)] = 1, s[static_cast<size_t>(a)] = state;
  }
  for (size_t a = 0; a < s.size(); ++a)
    if (s[a].is_pending())
      return wrong("axis ", mesh.axes[a].name,
                   ": that a sum pends follows from the op that makes it: say where it shall lie");
  if (auto st = check_sharding(mesh, v.shape(), s); !st.ok()) return wrong(st.error().message);
  function_.set_sharding(v.id(), std::move(s));
}

void Builder::donate(std::string_view param, std::string_view result) {
  const int p = function_.find_param(param);
  const int r = function_.find_result(result);
  if (p < 0 || r < 0) {
    fail(invalid_argument(
        cat("donate: no ", p < 0 ? "parameter " : "result ", p < 0 ? param : result)));
    return;
  }
  Param& from = function_.params[static_cast<size_t>(p)];
  const Type& have = type(from.value);
  const Type& want = type(function_.results[static_cast<size_t>(r)].value);
  if (!(have == want) && !failed()) {
    fail(invalid_argument(cat("donate: parameter ", param, " is ", have, ", result ", result,
                              " is ", want, ": they must have one type")));
    return;
  }
  for (const Param& other : function_.params)
    if (other.donated_to == r) {
      fail(invalid_argument(
          cat("donate: result ", result, " already takes over parameter ", other.name)));
      return;
    }
  from.donated_to = r;
}

Result<Function> Builder::finish() {
  if (error_) return *error_;
  return std::move(function_);
}

Result<FuncId> Builder::finish_into_module() {
  Function f = TEGULA_TRY(finish());
  return module_.add(std::move(f));
}

Rewriter::Rewriter(Module& module, const Function& from)
    : from_(from), builder_(module, from.name), map_(from.values.size(), kNone) {
  builder_.function().values.reserve(from.values.size());
  builder_.function().nodes.reserve(from.nodes.size());
  builder_.function().params.reserve(from.params.size());
  for (const Param& p : from.params)
    bind(p.value, builder_.param(p.name, from.type(p.value), p.role));
}

void Rewriter::clone(const Node& node) {
  std::vector<ValueId> inputs;
  inputs.reserve(node.inputs.size());
  for (ValueId v : node.inputs) {
    TEGULA_CHECK(map_[v] != kNone, "clone before its operand: ", v);
    inputs.push_back(map_[v]);
  }
  const std::vector<Type> types = from_.output_types(node);
  const ValueId first = builder_.append(node, std::move(inputs), types);
  for (uint32_t i = 0; i < node.n_outputs; ++i) map_[node.output(i)] = first + i;
}

void Rewriter::take(Node& node) {
  Function& to = builder_.function();
  const auto first = static_cast<ValueId>(to.values.size());
  const auto id = static_cast<NodeId>(to.nodes.size());
  for (ValueId& v : node.inputs) {
    TEGULA_CHECK(map_[v] != kNone, "take before its operand: ", v);
    v = map_[v];
  }
  for (uint32_t i = 0; i < node.n_outputs; ++i) {
    to.values.push_back({from_.type(node.output(i)), id, i});
    map_[node.output(i)] = first + i;
  }
  node.first_output = first;
  to.nodes.push_back(std::move(node));
}

Result<Function> Rewriter::finish() {
  for (const Output& r : from_.results) builder_.result(r.name, at(r.value));
  Function f = TEGULA_TRY(builder_.finish());
  for (size_t i = 0; i < from_.params.size(); ++i)
    f.params[i].donated_to = from_.params[i].donated_to;
  // What stands for two annotated values keeps what was said of the first.
  for (ValueId v = 0; v < from_.shardings.size(); ++v)
    if (const Sharding* s = from_.sharding(v); s && has(v) && !f.sharding(id(v)))
      f.set_sharding(id(v), *s);
  return f;
}

}  // namespace tegula
