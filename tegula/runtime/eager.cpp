#include "tegula/runtime/eager.h"

#include <cstring>

#include "tegula/base/algorithm.h"
#include "tegula/base/text.h"
#include "tegula/ir/reference.h"

namespace tegula {

namespace {

// Everything that the compiled node depends on.
std::string key_of(const Node& node, const std::vector<Type>& types) {
  std::string key(node.op->name);
  for (const auto& [name, value] : node.attrs) {
    key += cat(";", name, "=", value.index(), ":");
    value.visit([&](const auto& v) {
      using T = std::decay_t<decltype(v)>;
      if constexpr (std::is_same_v<T, double>) {
        key += printed("%a", v);
      } else {
        append(key, v);
      }
    });
  }
  for (const Type& t : types) append(key, cat(";", t));
  for (FuncId r : node.regions) append(key, cat(";@", r));
  return key;
}

}  // namespace

Eager::Eager(Rank& rank, CompileOptions options)
    : Eager(std::make_shared<Module>(), rank, std::move(options)) {}

Eager::Eager(std::shared_ptr<Module> module, Rank& rank, CompileOptions options)
    : Builder(*module, "eager"),
      shared_(std::move(module)),
      rank_(rank),
      options_(std::move(options)) {
  options_.plan.target = Target::this_cpu(rank.pool.n_threads());
  counts_vars_ = true;
}

Eager::~Eager() {
  for (Held& h : held_) {
    if (!h.count) continue;
    h.count->id = kNone;  // what Vars that are left name is gone
    if (--h.count->holders == 0) delete h.count;
  }
}

VarCount* Eager::hold(ValueId v) {
  if (held_.size() < function_.values.size()) held_.resize(function_.values.size());
  VarCount*& count = held_[v].count;
  if (!count) count = new VarCount{v, 1};
  ++count->holders;
  return count;
}

void Eager::keep(ValueId v, std::shared_ptr<Region> memory) {
  if (held_.size() < function_.values.size()) held_.resize(function_.values.size());
  held_bytes_ += memory->bytes();
  held_[v].memory = std::move(memory);
}

Var Eager::tensor(const Type& type, const void* data) {
  collect();
  if (!type.shape.is_const())
    return fail(invalid_argument(cat("tensor: ", type, " has a symbolic size: an array has none")));
  const Var v = param(cat("x", named_++), type);
  if (failed()) return v;
  if (!data && type.bytes() > 0)
    return fail(invalid_argument(cat("tensor: no data for ", type, ", ", type.bytes(), " bytes")));
  auto region = Region::allocate(rank_.memory, std::max<int64_t>(type.bytes(), 1));
  if (!region.ok()) return fail(std::move(region).error());
  if (type.bytes() > 0) std::memcpy(region->data(), data, static_cast<size_t>(type.bytes()));
  keep(v.id(), std::make_shared<Region>(std::move(*region)));
  return v;
}

Var Eager::detach(Var v) {
  if (failed() || !has_memory(v, "detach")) return fail(error());
  collect();
  const Var leaf = param(cat("x", named_++), v.type());
  keep(leaf.id(), held_[v.id()].memory);
  return leaf;
}

Result<TensorRef> Eager::read(const Var& v) {
  if (failed() || !has_memory(v, "read")) return error();
  collect();
  return contiguous_ref(held_[v.id()].memory->data(), v.type());
}

// Whether tensor() or an op of this Eager made the value; else says what it is.
bool Eager::has_memory(const Var& v, std::string_view what) {
  if (rejects(v, cat(what, ": the value"))) return false;
  if (v.id() >= held_.size() || !held_[v.id()].memory)
    fail(invalid_argument(cat(what, ": ", v.type(), " has no memory: give it by tensor()")));
  return !failed();
}

// Values that a Var names, and what they were computed from.
std::vector<bool> Eager::reachable() const {
  std::vector<bool> live(held_.size());
  for (size_t v = 0; v < held_.size(); ++v) live[v] = held_[v].count && held_[v].count->holders > 1;
  for (const Output& r : function_.results) live[r.value] = true;
  for (auto n = function_.nodes.rbegin(); n != function_.nodes.rend(); ++n) {
    bool wanted = false;
    for (uint32_t i = 0; i < n->n_outputs; ++i) wanted = wanted || live[n->output(i)];
    if (!wanted) continue;
    for (uint32_t i = 0; i < n->n_outputs; ++i) live[n->output(i)] = true;
    for (ValueId v : n->inputs) live[v] = true;
  }
  return live;
}

// Leaves what is reachable, in its order, under new ids, which Vars learn from their counts. Never
// while ops are emitted: a rule of a derivative holds ids.
void Eager::collect() {
  if (failed() || (held_bytes_ <= most_bytes_ && held_values() <= most_values_)) return;
  held_.resize(function_.values.size());
  const std::vector<bool> live = reachable();
  std::vector<ValueId> now(held_.size(), kNone);
  Function left;
  left.name = std::move(function_.name);
  std::vector<Held> held;
  const auto move_value = [&](ValueId v, NodeId node, uint32_t index) {
    now[v] = static_cast<ValueId>(left.values.size());
    left.values.push_back({function_.values[v].type, node, index});
    if (held_[v].count) held_[v].count->id = now[v];
    held.push_back(std::move(held_[v]));
    held_[v].count = nullptr;
  };
  for (Param& p : function_.params) {
    if (!live[p.value]) continue;
    move_value(p.value, kNone, static_cast<uint32_t>(left.params.size()));
    p.value = now[p.value];
    left.params.push_back(std::move(p));
  }
  for (Node& n : function_.nodes) {
    if (!live[n.first_output]) continue;
    for (ValueId& v : n.inputs) v = now[v];
    const auto id = static_cast<NodeId>(left.nodes.size());
    for (uint32_t i = 0; i < n.n_outputs; ++i) move_value(n.output(i), id, i);
    n.first_output = now[n.first_output];
    left.nodes.push_back(std::move(n));
  }
  for (Output& r : function_.results) left.results.push_back({std::move(r.name), now[r.value]});
  for (Held& h : held_) delete h.count;  // no Var holds it
  held_ = std::move(held), function_ = std::move(left);
  held_bytes_ = 0;
  for (const Held& h : held_)
    if (h.memory) held_bytes_ += h.memory->bytes();
  constexpr int64_t kFewValues = 64, kFewBytes = 1 << 20;
  most_bytes_ = 2 * held_bytes_ + kFewBytes, most_values_ = 2 * held_values() + kFewValues;
}

Result<Session*> Eager::session_for(const Node& node, std::span<const ValueId> inputs) {
  std::vector<Type> types;
  for (ValueId v : inputs) types.push_back(type(v));
  const std::string key = key_of(node, types);
  if (auto it = cache_.find(key); it != cache_.end()) return it->second.get();
  // A loop whose attributes never come again (a learning rate that is a literal) would fill it.
  constexpr size_t kMostCompiled = 1024;
  if (cache_.size() >= kMostCompiled) cache_.clear();
  // Only regions need the module they stand in; passes add to it.
  const auto module = node.regions.empty() ? std::make_shared<Module>() : shared_;
  Builder b(*module, cat("eager.", node.op->name, ".", cache_.size()));
  std::vector<Var> args;
  for (size_t i = 0; i < types.size(); ++i) args.push_back(b.param(cat("x", i), types[i]));
  const auto out = b.emit_n(*node.op, node.attrs, args, node.regions, node.origin.loc);
  const size_t n_results =
      TEGULA_TRY(infer({node.op, &node.attrs, types, {}, module.get(), node.regions})).size();
  for (size_t i = 0; i < n_results; ++i) b.result(cat("y", i), out[i]);
  const FuncId f = TEGULA_TRY(b.finish_into_module());
  const Compiled c = TEGULA_TRY(compile(module, f, options_));
  auto session = TEGULA_TRY(Session::create(c.plan, rank_));
  Session* s = session.get();
  cache_.emplace(key, std::move(session));
  return s;
}

Status Eager::run_node(const Node& node, std::span<const ValueId> inputs,
                       std::span<const Type> types, ValueId first) {
  for (ValueId v : inputs)
    if (v >= held_.size() || !held_[v].memory)
      return invalid_argument(
          cat(node.op->name, ": an operand, ", type(v), ", has no memory: give it by tensor()"));
  Session& s = *TEGULA_TRY(session_for(node, inputs));
  for (size_t i = 0; i < inputs.size(); ++i)
    s.bind(static_cast<int>(i), held_[inputs[i]].memory->data());
  TEGULA_TRY(s.run());
  for (size_t i = 0; i < types.size(); ++i) {
    const int64_t bytes = types[i].bytes();
    Region region = TEGULA_TRY(Region::allocate(rank_.memory, std::max<int64_t>(bytes, 1)));
    const TensorRef from = s.result(static_cast<int>(i));
    const TensorRef to = contiguous_ref(region.data(), types[i]);
    const int64_t size = size_bytes(from.dtype);
    if (from.is_contiguous()) {
      std::memcpy(to.data, from.data, static_cast<size_t>(bytes));
    } else {
      for_each_index(shape_of(to), [&](const Index& index) {
        std::memcpy(static_cast<char*>(to.data) + size * RefTensors::offset_at(to, index),
                    static_cast<char*>(from.data) + size * RefTensors::offset_at(from, index),
                    static_cast<size_t>(size));
      });
    }
    keep(first + static_cast<ValueId>(i), std::make_shared<Region>(std::move(region)));
  }
  return {};
}

ValueId Eager::append(Node node, std::vector<ValueId> inputs, std::span<const Type> types) {
  const ValueId first = Builder::append(node, inputs, types);
  if (!failed()) {
    auto st = run_node(node, inputs, types, first);
    if (!st.ok()) fail(std::move(st).error());
  }
  return first;
}

}  // namespace tegula
