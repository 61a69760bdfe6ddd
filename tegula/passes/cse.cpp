// Merges nodes that compute the same: equal op, attributes, operands and regions. The first stays.
//
// Operands of commutative ops may stand in either order. Ops with an effect (barrier) are never
// merged: a barrier is how rematerialisation says "compute this again".
#include <algorithm>
#include <bit>

#include "tegula/ir/hash.h"
#include "tegula/passes/edit.h"
#include "tegula/passes/pass.h"

namespace tegula {

namespace {

struct Key {
  const Node* node;
  ValueId swapped[2];  // sorted operands of a commutative node
  std::span<const ValueId> inputs() const {
    if (node->op->is_commutative && node->inputs.size() == 2) return swapped;
    return node->inputs;
  }
};

Key key_of(const Node& n) {
  Key k{&n, {kNone, kNone}};
  if (n.op->is_commutative && n.inputs.size() == 2)
    k.swapped[0] = std::min(n.inputs[0], n.inputs[1]),
    k.swapped[1] = std::max(n.inputs[0], n.inputs[1]);
  return k;
}

uint64_t hash_of_key(const Key& k) {
  uint64_t h = std::bit_cast<uintptr_t>(k.node->op);
  for (ValueId v : k.inputs()) h = mix(h, v);
  for (FuncId r : k.node->regions) h = mix(h, r);
  return mix(h, hash_of(k.node->attrs));
}

bool is_same(const Function& f, const Key& a, const Key& b) {
  const Node &m = *a.node, &n = *b.node;
  if (m.op != n.op || m.n_outputs != n.n_outputs || m.regions != n.regions ||
      !std::ranges::equal(a.inputs(), b.inputs()) || !same_attrs(m.attrs, n.attrs))
    return false;
  for (uint32_t i = 0; i < m.n_outputs; ++i)
    if (!(f.type(m.output(i)) == f.type(n.output(i)))) return false;
  // Said to lie in two places: two values.
  for (uint32_t i = 0; i < m.n_outputs && !f.shardings.empty(); ++i) {
    const Sharding *a = f.sharding(m.output(i)), *b = f.sharding(n.output(i));
    if (a && b && !(*a == *b)) return false;
  }
  return true;
}

Result<bool> run(Module&, Function& f, const PassOptions&) {
  Edit edit(f);
  // Open addressing, at most half full.
  std::vector<NodeId> table(std::bit_ceil(2 * f.nodes.size() + 1), kNone);
  const size_t mask = table.size() - 1;
  for (NodeId n = 0; n < f.nodes.size(); ++n) {
    Node& node = f.nodes[n];
    for (ValueId& v : node.inputs) v = edit.resolve(v);
    if (node.op->has_effect) continue;
    const Key key = key_of(node);
    size_t at = hash_of_key(key) & mask;
    while (table[at] != kNone && !is_same(f, key, key_of(f.nodes[table[at]]))) at = (at + 1) & mask;
    if (table[at] == kNone) {
      table[at] = n;
      continue;
    }
    const Node& first = f.nodes[table[at]];
    for (uint32_t i = 0; i < node.n_outputs; ++i) edit.replace(node.output(i), first.output(i));
    edit.drop(n);
  }
  if (!edit.any()) return false;
  edit.apply();
  return true;
}

}  // namespace

extern const PassDef cse_pass = {
    .name = "cse",
    .doc = "merges nodes that compute the same",
    .phase = PassPhase::kAny,
    .run = run,
};

}  // namespace tegula
