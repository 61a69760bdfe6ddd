#include "tegula/ops/common/elementwise.h"

namespace tegula {

bool is_zero(Var v) {
  const Function& f = v.builder().function();
  const Node* n = f.producer(v.id());
  while (n && n->op == &broadcast_op) n = f.producer(n->inputs[0]);
  return n && n->op == &constant_op && n->attrs.has("value") && n->attrs.f("value") == 0;
}

}  // namespace tegula
