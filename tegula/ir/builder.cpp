#include "tegula/ir/builder.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/sizes.h"

namespace tegula {

const Type Builder::poison_type_;

namespace {

// Symbols are indices into the module's own list.
Status check_symbols(std::string_view what, const Module& module, std::span<const Dim> dims) {
  for (const Dim& d : dims) {
    if (d.is_const()) continue;
    const auto id = static_cast<size_t>(d.symbol);
    if (d.symbol < 0 || id >= module.symbols.size() || module.symbols[id].bound != d.symbol_bound)
      return invalid_argument(cat(what, ": ", std::vector<Dim>(dims.begin(), dims.end()),
                                  " has a symbol that the module has not: add_symbol() makes one"));
  }
  return {};
}

Status check_operands(const OpDef& op, const Module& module, const Attrs& attrs,
                      std::span<const FuncId> regions) {
  for (const auto& [name, value] : attrs)
    if (const auto* dims = value.get_if<std::vector<Dim>>())
      TEGULA_TRY(check_symbols(op.name, module, *dims));
  for (FuncId r : regions)
    if (r >= module.functions.size())
      return invalid_argument(
          cat(op.name, ": function ", r, " of a module of ", module.functions.size()));
  if (!regions.empty() && !op.regions)
    return invalid_argument(cat(op.name, ": takes no functions, got ", regions.size()));
  return {};
}

}  // namespace

Builder& nobody() {
  struct Nobody {
    Module module;
    Builder builder{module, "nobody"};
    Nobody() {
      builder.is_nobody_ = true;
      builder.error_ = invalid_argument("an empty Var: it names no value of any builder");
    }
  };
  thread_local Nobody nobody;
  return nobody.builder;
}

Builder& builder_of(std::initializer_list<const Var*> vars) {
  for (const Var* v : vars)
    if (v->valid()) return v->builder();
  return nobody();
}

void Var::let_go(VarCount* count) noexcept {
  if (--count->holders == 0) delete count;
}
Var::Var(Builder* b, ValueId id) : builder_(b), id_(id) {
  if (b && b->counts_vars()) count_ = b->hold(id);
}
Var::Var(const Var& other) noexcept
    : builder_(other.builder_), id_(other.id_), count_(other.count_) {
  if (count_) ++count_->holders;
}
Var& Var::operator=(const Var& other) noexcept { return *this = Var(other); }
Var& Var::operator=(Var&& other) noexcept {
  std::swap(builder_, other.builder_);
  std::swap(id_, other.id_), std::swap(count_, other.count_);
  return *this;
}
Builder& Var::builder() const { return valid() ? *builder_ : nobody(); }
bool Var::is_poison() const { return builder().failed(); }
Type Var::type() const { return builder().type(id()); }
DType Var::dtype() const { return builder().type(id()).dtype; }
int Var::rank() const { return builder().type(id()).shape.rank(); }
Dim Var::dim(int i) const {
  const Shape& s = builder().type(id()).shape;
  const int d = i < 0 ? s.rank() + i : i;
  return d >= 0 && d < s.rank() ? s[d] : builder().no_dim(*this, i);
}

Builder::~Builder() = default;
Rewriter::~Rewriter() = default;

Scope::Scope(Builder& b, std::string_view name) : b_(b), outer_(b.scope_) {
  const std::string around = b.module().scopes[outer_];
  if (!name.empty())
    b.scope_ = b.module().scope(around.empty() ? std::string(name) : cat(around, ".", name));
}

Builder::Builder(Module& module, std::string name) : module_(module) {
  function_.name = std::move(name);
}

Var Builder::param(std::string name, Type type, Role role) {
  if (failed()) return fail(*error_);
  Status st = check_sizes(name, type.shape);
  if (st.ok()) st = check_symbols(name, module_, {type.shape.begin(), type.shape.end()});
  if (!st.ok()) {
    Error e = std::move(st).error();
    e.message = cat("parameter ", e.message);
    return fail(std::move(e));
  }
  const auto id = static_cast<ValueId>(function_.values.size());
  function_.values.push_back({type, kNone, static_cast<uint32_t>(function_.params.size())});
  function_.params.push_back({std::move(name), id, role, -1});
  return Var(this, id);
}

Dim Builder::no_dim(Var v, int i) {
  if (!failed()) fail(invalid_argument(cat("there is no dim ", i, " of ", v.type())));
  return 1;
}

Var Builder::fail(Error error) {
  if (!error_) error_ = std::move(error);
  if (is_nobody_) return {};
  if (poison_ == kNone) {
    poison_ = static_cast<ValueId>(function_.values.size());
    function_.values.push_back({poison_type_, kNone, kNone});
  }
  return Var(this, poison_);
}

bool Builder::rejects(const Var& v, std::string_view what, Loc loc) {
  if (owns(v)) return false;
  fail(invalid_argument(cat(what, v.valid() ? " belongs to another builder" : " is an empty Var"),
                        loc));
  return true;
}

Builder::Emitted Builder::add(const OpDef& op, Attrs attrs, std::span<const Var> inputs,
                              std::vector<FuncId> regions, Loc loc) {
  if (failed()) return {};
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
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (!owns(inputs[k]) && rejects(inputs[k], cat(op.name, ": operand ", k), loc)) return {};
    ids.push_back(inputs[k].id());
    operand_types_.push_back(type(ids.back()));
  }
  if (auto st = check_operands(op, module_, node.attrs, node.regions); !st.ok()) {
    Error e = std::move(st).error();
    e.where = loc;
    fail(std::move(e));
    return {};
  }
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
    for (int i = 0; i < 8; ++i) vars.push_back(poison_of(inputs, loc));
    return vars;
  }
  vars.reserve(e.n);
  for (uint32_t i = 0; i < e.n; ++i) vars.emplace_back(this, e.first + i);
  return vars;
}

Var Builder::emit(const OpDef& op, Attrs attrs, std::initializer_list<Var> inputs, Loc loc) {
  const std::span<const Var> in(inputs.begin(), inputs.size());
  const Emitted e = add(op, std::move(attrs), in, {}, loc);
  return e.first == kNone ? poison_of(in, loc) : Var(this, e.first);
}

// The result of a node that was not added. Among empty Vars alone an error has nowhere to go; if
// one is not empty, its builder learns of it.
Var Builder::poison_of(std::span<const Var> inputs, Loc loc) {
  for (const Var& v : inputs)
    if (is_nobody_ && v.valid()) return v.builder().fail(invalid_argument(error_->message, loc));
  return fail(*error_);
}

ValueId Builder::append(Node node, std::vector<ValueId> inputs, std::span<const Type> types) {
  const auto first = static_cast<ValueId>(function_.values.size());
  for (const ValueId v : inputs) {
    if (v < first) continue;
    fail(invalid_argument(cat("append: value ", v, " of ", first)));
    function_.values.resize(first + types.size());  // results have consecutive ids
    return first;
  }
  const auto id = static_cast<NodeId>(function_.nodes.size());
  for (uint32_t i = 0; i < types.size(); ++i) function_.values.push_back({types[i], id, i});
  node.inputs = std::move(inputs);
  node.first_output = first;
  node.n_outputs = static_cast<uint32_t>(types.size());
  function_.nodes.push_back(std::move(node));
  return first;
}

void Builder::result(std::string name, Var v) {
  if (failed() || (!owns(v) && rejects(v, cat("result ", name)))) return;
  function_.results.push_back({std::move(name), v.id()});
}

void Builder::annotate(Var v,
                       std::initializer_list<std::pair<std::string_view, AxisSharding>> where) {
  if (failed() || rejects(v, "annotate: the value")) return;
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

namespace {
// The donations before: who donates thousands of weights and their moments goes through them in
// their order, and none of them has to look at all the others.
struct LastDonation {
  const Builder* builder = nullptr;
  size_t params[3] = {};  // the last three, the newest first: a weight and its two moments
  int most_result = -1;   // no result above has taken over a parameter
};
thread_local LastDonation last_donation;

// The parameter of that name, looked for behind the last ones first; -1: there is none.
int find_near(const Function& f, std::string_view name, const LastDonation& last) {
  for (const size_t before : last.params)
    if (before + 1 < f.params.size() && f.params[before + 1].name == name)
      return static_cast<int>(before + 1);
  return f.find_param(name);
}
}  // namespace

void Builder::donate(std::string_view param, std::string_view result) {
  if (failed()) return;
  LastDonation& last = last_donation;
  if (last.builder != this) {
    last = {this};
    for (const Param& each : function_.params)
      last.most_result = std::max(last.most_result, each.donated_to);
  }
  const auto& results = function_.results;
  const int p = find_near(function_, param, last);
  const int r = !results.empty() && results.back().name == result
                    ? static_cast<int>(results.size()) - 1
                    : function_.find_result(result);
  if (p < 0 || r < 0) {
    fail(invalid_argument(
        cat("donate: no ", p < 0 ? "parameter " : "result ", p < 0 ? param : result)));
    return;
  }
  Param& from = function_.params[static_cast<size_t>(p)];
  const Type& have = type(from.value);
  const Type& want = type(function_.results[static_cast<size_t>(r)].value);
  if (!(have == want)) {
    fail(invalid_argument(cat("donate: parameter ", param, " is ", have, ", result ", result,
                              " is ", want, ": they must have one type")));
    return;
  }
  if (r <= last.most_result)
    for (const Param& other : function_.params)
      if (other.donated_to == r) {
        fail(invalid_argument(
            cat("donate: result ", result, " already takes over parameter ", other.name)));
        return;
      }
  from.donated_to = r;
  last.params[2] = last.params[1], last.params[1] = last.params[0];
  last.params[0] = static_cast<size_t>(p), last.most_result = std::max(last.most_result, r);
}

Result<Function> Builder::finish() {
  if (error_) return *error_;
  error_ = invalid_argument(
      cat("function ", function_.name, " is finished already: a new Builder makes another"));
  poison_ = kNone;
  return std::exchange(function_, {});
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
  // A value that stands for two annotated values keeps what was said of the first.
  for (ValueId v = 0; v < from_.shardings.size(); ++v)
    if (const Sharding* s = from_.sharding(v); s && has(v) && !f.sharding(id(v)))
      f.set_sharding(id(v), *s);
  return f;
}

}  // namespace tegula
