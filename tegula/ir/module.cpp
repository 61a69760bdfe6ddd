#include "tegula/ir/module.h"

namespace tegula {

Node::Node() = default;
Node::Node(const Node&) = default;
Node::Node(Node&&) noexcept = default;
Node& Node::operator=(const Node&) = default;
// Passes move thousands of nodes: the other one gets, and frees, what this one had.
Node& Node::operator=(Node&& other) noexcept {
  op = other.op, first_output = other.first_output, n_outputs = other.n_outputs;
  origin = other.origin, phase = other.phase;
  attrs = std::move(other.attrs), inputs.swap(other.inputs), regions.swap(other.regions);
  return *this;
}
Node::~Node() = default;

Function::Function() = default;
Function::Function(const Function&) = default;
Function::Function(Function&&) noexcept = default;
Function& Function::operator=(const Function&) = default;
Function& Function::operator=(Function&&) noexcept = default;
Function::~Function() = default;

Module::Module() = default;
Module::Module(const Module&) = default;
Module::Module(Module&&) noexcept = default;
Module& Module::operator=(const Module&) = default;
Module& Module::operator=(Module&&) noexcept = default;
Module::~Module() = default;

std::vector<Type> Function::input_types(const Node& n) const {
  std::vector<Type> types;
  types.reserve(n.inputs.size());
  for (ValueId v : n.inputs) types.push_back(type(v));
  return types;
}

std::vector<Type> Function::output_types(const Node& n) const {
  std::vector<Type> types;
  types.reserve(n.n_outputs);
  for (uint32_t i = 0; i < n.n_outputs; ++i) types.push_back(type(n.output(i)));
  return types;
}

std::vector<uint32_t> Function::use_counts() const {
  std::vector<uint32_t> uses(values.size(), 0);
  for (const Node& n : nodes)
    for (ValueId v : n.inputs) ++uses[v];
  for (const Output& r : results) ++uses[r.value];
  return uses;
}

void Function::set_sharding(ValueId v, Sharding s) {
  if (shardings.size() <= v) shardings.resize(v + 1);
  shardings[v] = std::move(s);
}

int Function::find_param(std::string_view wanted) const {
  for (size_t i = 0; i < params.size(); ++i)
    if (params[i].name == wanted) return static_cast<int>(i);
  return -1;
}

int Function::find_result(std::string_view wanted) const {
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i].name == wanted) return static_cast<int>(i);
  return -1;
}

Dim Module::add_symbol(std::string name, int64_t bound) {
  symbols.push_back({std::move(name), bound});
  return Dim::of(static_cast<int32_t>(symbols.size()) - 1, bound);
}

uint32_t Module::scope(std::string_view name) {
  // Those near the one before are asked for most, then the last ones.
  thread_local size_t before = 0;
  for (size_t i = before; i < std::min(before + 8, scopes.size()); ++i)
    if (scopes[i] == name) return static_cast<uint32_t>(before = i);
  for (size_t i = scopes.size(); i-- > 0;)
    if (scopes[i] == name) return static_cast<uint32_t>(before = i);
  scopes.emplace_back(name);
  return static_cast<uint32_t>(scopes.size() - 1);
}

FuncId Module::add(Function f) {
  functions.push_back(std::move(f));
  return static_cast<FuncId>(functions.size() - 1);
}

FuncId Module::find(std::string_view name) const {
  for (size_t i = 0; i < functions.size(); ++i)
    if (functions[i].name == name) return static_cast<FuncId>(i);
  return kNone;
}

Status check_function(const Module& module, FuncId f, std::string_view what) {
  if (f < module.functions.size()) return {};
  return invalid_argument(cat(what, ": function ", f, " of a module of ", module.functions.size()));
}

Module module_of(const Module& module, FuncId f) {
  Module out;
  out.symbols = module.symbols, out.scopes = module.scopes, out.mesh = module.mesh;
  std::vector<FuncId> number(module.functions.size(), kNone), order = {f};
  number[f] = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    Function copy = module[order[i]];
    for (Node& n : copy.nodes)
      for (FuncId& r : n.regions) {
        if (number[r] == kNone) number[r] = static_cast<FuncId>(order.size()), order.push_back(r);
        r = number[r];
      }
    out.add(std::move(copy));
  }
  return out;
}

}  // namespace tegula
