// Module, Function, Node, Value: the one IR. SSA; nodes stand in topological order.
//
// A module holds functions over shared symbols. Structured control flow (cond, while, scan, call)
// and fusion refer to other functions of the module as regions. State is a donated parameter: the
// run overwrites it with the result it is aliased to. Beside its type a value may say where it lies
// on the module's mesh.
#pragma once

#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "tegula/base/attrs.h"
#include "tegula/base/shape.h"
#include "tegula/ir/sharding.h"

namespace tegula {

struct OpDef;

using ValueId = uint32_t;
using NodeId = uint32_t;
using FuncId = uint32_t;
inline constexpr uint32_t kNone = 0xffffffffu;

struct Value {
  Type type;
  NodeId node = kNone;  // kNone: a parameter
  uint32_t index = 0;   // result index of the node, or parameter index
};

// Which part of a training step a node belongs to (rematerialisation and reports read it).
enum class Phase : uint8_t { kForward, kBackward, kUpdate };

// Where a node comes from: the line that wrote it, and its place in the model. Gradients, and what
// stands for a node after a rewriting, have the node's own.
struct Origin {
  std::source_location loc;
  uint32_t scope = 0;  // of Module::scopes
};

struct Node {
  Node();
  Node(const Node& other);
  Node(Node&& other) noexcept;
  Node& operator=(const Node& other);
  Node& operator=(Node&& other) noexcept;
  ~Node();
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<ValueId> inputs;
  ValueId first_output = kNone;  // results have consecutive ids
  uint32_t n_outputs = 1;
  std::vector<FuncId> regions;
  Origin origin;
  Phase phase = Phase::kForward;

  ValueId output(uint32_t i = 0) const { return first_output + i; }
};

// The role of a parameter to the run. State and weights persist between runs.
enum class Role : uint8_t { kInput, kWeight, kState };

struct Param {
  std::string name;
  ValueId value = kNone;
  Role role = Role::kInput;
  int donated_to = -1;  // index of the result that takes over this buffer; -1: not donated
};

struct Output {
  std::string name;
  ValueId value = kNone;
};

struct Function {
  Function();
  Function(const Function& other);
  Function(Function&& other) noexcept;
  Function& operator=(const Function& other);
  Function& operator=(Function&& other) noexcept;
  ~Function();
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<Param> params;
  std::vector<Output> results;
  // Where values lie on the module's mesh; of what is missing here or empty nothing is said. As
  // annotations (Builder::annotate) a given to `shard` (passes/shard.h), which then says it of all.
  std::vector<Sharding> shardings;

  const Type& type(ValueId v) const { return values[v].type; }
  const Node* producer(ValueId v) const {
    return values[v].node == kNone ? nullptr : &nodes[values[v].node];
  }
  std::vector<Type> input_types(const Node& n) const;
  std::vector<Type> output_types(const Node& n) const;
  // Null: nothing is said of it.
  const Sharding* sharding(ValueId v) const {
    return v < shardings.size() && !shardings[v].empty() ? &shardings[v] : nullptr;
  }
  void set_sharding(ValueId v, Sharding s);
  // How many times each value is read, results included.
  std::vector<uint32_t> use_counts() const;
  int find_param(std::string_view name) const;   // -1: none
  int find_result(std::string_view name) const;  // -1: none
};

struct Module {
  Module();
  Module(const Module& other);
  Module(Module&& other) noexcept;
  Module& operator=(const Module& other);
  Module& operator=(Module&& other) noexcept;
  ~Module();
  std::vector<Symbol> symbols;
  std::vector<std::string> scopes = {""};  // "layers.3.attn"; each once, none first
  std::vector<Function> functions;
  Mesh mesh;  // of the functions' shardings; no axes: there are none

  Dim add_symbol(std::string name, int64_t bound);
  uint32_t scope(std::string_view name);  // its index, added if it is new
  FuncId add(Function f);
  FuncId find(std::string_view name) const;  // kNone: none
  Function& operator[](FuncId f) { return functions[f]; }
  const Function& operator[](FuncId f) const { return functions[f]; }
};

// Error: the module has no such function.
Status check_function(const Module& module, FuncId f, std::string_view what);

// A module of that function and its regions, theirs included, alone.
Module module_of(const Module& module, FuncId f);

}  // namespace tegula
