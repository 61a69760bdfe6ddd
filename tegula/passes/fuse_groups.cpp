#include "tegula/passes/fuse_groups.h"

#include <numeric>

#include "tegula/base/algorithm.h"
#include "tegula/ops/table.h"

namespace tegula {

namespace {
constexpr size_t kMaxMembers = 64;
constexpr size_t kMaxGroupOperands = 24;
// For a device's kernel the compiler takes 2 s where there are 23 reductions of rows.
constexpr int kMostReductions = 4;
constexpr int kMaxFreeSize = 16;
constexpr size_t kSearchLimit = 256;  // groups visited before a merge is given up
// Merges across more unfusible nodes than this must free at least the bytes they keep alive.
constexpr uint32_t kFar = 8;
// Sums of columns in a group without reductions of rows; in one with them; and its longest row.
constexpr int kMostColumns = 4, kMostColumnsOfRows = 3;
constexpr int64_t kMostRowOfColumns = 8192;

bool is_plain_view(const Node& n) { return n.op->is_view && n.inputs.size() == 1; }
}  // namespace

DimsIn natural_dims(const Shape& s) {
  DimsIn dims;
  dims.fill(FusedSpace::kOne);
  int8_t at = 0;
  for (int d = 0; d < s.rank(); ++d)
    if (!(s[d] == Dim(1))) dims[static_cast<size_t>(d)] = at++;
  return dims;
}

DimsIn through_view(const Function& f, const Node& view, const DimsIn& dims) {
  const Shape& x = f.type(view.inputs[0]).shape;
  const Shape& y = f.type(view.output()).shape;
  DimsIn in;
  in.fill(FusedSpace::kOne);
  int e = view.op == &broadcast_op ? y.rank() - x.rank() : 0;
  for (int d = 0; d < x.rank(); ++d) {
    if (view.op == &broadcast_op) {
      if (!(x[d] == Dim(1))) in[static_cast<size_t>(d)] = dims[static_cast<size_t>(e)];
      ++e;
    } else if (!(x[d] == Dim(1))) {
      while (y[e] == Dim(1)) ++e;
      in[static_cast<size_t>(d)] = dims[static_cast<size_t>(e++)];
    }
  }
  return in;
}

Groups::Groups(const Function& f, bool merge, bool sums_columns)
    : f_(f),
      role_(f.nodes.size()),
      is_fusible_(f.nodes.size(), 0),
      is_result_(f.nodes.size(), 0),
      free_size_(f.nodes.size(), 0),
      stamp_(f.nodes.size(), 0),
      value_stamp_(f.values.size(), 0) {
  for (size_t n = 0; n < f.nodes.size(); ++n) {
    role_[n] = tile_role(f, f.nodes[n]);
    if (role_[n] == TileRole::kColumns && !(sums_columns && merge)) role_[n] = TileRole::kNone;
  }
  find_free();
  find_operands();
  find_consumers();
  make_groups();
  if (merge) merge_all();
  leave_lone_columns();
  list_members();
}

uint32_t Groups::find(uint32_t n) const {
  while (parent_[n] != n) n = parent_[n] = parent_[parent_[n]];
  return n;
}

void Groups::find_free() {
  for (size_t n = 0; n < f_.nodes.size(); ++n) {
    const Node& node = f_.nodes[n];
    const bool is_made_of_inputs =
        role_[n] == TileRole::kView || (role_[n] == TileRole::kElementwise && !node.op->flops);
    if (role_[n] != TileRole::kSource && !is_made_of_inputs) {
      is_fusible_[n] = role_[n] != TileRole::kNone;
      continue;
    }
    int size = 1;
    for (ValueId v : node.inputs) {
      const NodeId p = f_.values[v].node;
      size += p == kNone || !free_size_[p] ? 2 * kMaxFreeSize : free_size_[p];
    }
    if (size <= kMaxFreeSize) {
      free_size_[n] = static_cast<uint8_t>(size);
    } else {
      is_fusible_[n] = role_[n] == TileRole::kElementwise;
    }
  }
}

void Groups::find_operands() {
  first_operand_.reserve(f_.nodes.size() + 1);
  operands_.reserve(2 * f_.nodes.size());
  for (NodeId n = 0; n < f_.nodes.size(); ++n) {
    first_operand_.push_back(static_cast<uint32_t>(operands_.size()));
    if (free_size_[n] || is_plain_view(f_.nodes[n])) continue;
    for (ValueId v : f_.nodes[n].inputs) {
      Operand o;
      DimsIn dims = natural_dims(f_.type(v).shape);
      bool in_body = is_fusible_[n];
      NodeId p = f_.values[v].node;
      for (o.value = v; p != kNone && is_plain_view(f_.nodes[p]); p = f_.values[v].node) {
        if (in_body && role_[p] == TileRole::kView) {
          dims = through_view(f_, f_.nodes[p], dims);
          o.value = f_.nodes[p].inputs[0];
        } else {
          in_body = false;
        }
        v = f_.nodes[p].inputs[0];
      }
      if (p == kNone || !free_size_[p]) {
        o.root = p;
        // The result of a column is there after all rows.
        if (in_body && p != kNone && is_fusible_[p] && role_[p] != TileRole::kColumns) {
          o.source = p;
          o.leads = dims == natural_dims(f_.type(v).shape);
        }
      } else if (in_body) {
        o.value = kNone;
      }
      operands_.push_back(o);
    }
  }
  first_operand_.push_back(static_cast<uint32_t>(operands_.size()));
}

void Groups::find_consumers() {
  const size_t n_nodes = f_.nodes.size();
  first_consumer_.assign(n_nodes + 1, 0);
  for (const Operand& o : operands_)
    if (o.root != kNone) ++first_consumer_[o.root + 1];
  std::partial_sum(first_consumer_.begin(), first_consumer_.end(), first_consumer_.begin());
  consumers_.resize(first_consumer_.back());
  std::vector<uint32_t> at(first_consumer_.begin(), first_consumer_.end() - 1);
  for (NodeId n = 0; n < n_nodes; ++n)
    for (const Operand& o : operands(n))
      if (o.root != kNone) consumers_[at[o.root]++] = n;
  for (const Output& r : f_.results) {
    NodeId p = f_.values[r.value].node;
    while (p != kNone && is_plain_view(f_.nodes[p])) p = f_.values[f_.nodes[p].inputs[0]].node;
    if (p != kNone) is_result_[p] = 1;
  }
}

void Groups::make_groups() {
  const size_t n_nodes = f_.nodes.size();
  parent_.resize(n_nodes);
  std::iota(parent_.begin(), parent_.end(), 0u);
  place_ = order_ = next_member_ = parent_;
  groups_.resize(n_nodes);
  n_heavy_.resize(n_nodes);
  value_rank_.resize(n_nodes);
  space_rank_.resize(n_nodes);
  uint32_t heavy = 0;
  for (NodeId n = 0; n < n_nodes; ++n) {
    n_heavy_[n] = heavy;
    const Node& node = f_.nodes[n];
    FusedGroup& g = groups_[n];
    g.last = n;
    if (!is_fusible_[n]) {
      heavy += !free_size_[n] && !is_plain_view(node);
      continue;
    }
    const bool is_column = role_[n] == TileRole::kColumns;
    g.n_rows = role_[n] == TileRole::kReduction;
    g.n_columns = is_column;
    const Shape value = squeezed(f_.type(node.output()).shape);
    g.space = g.n_rows > 0 || is_column ? squeezed(f_.type(node.inputs[0]).shape) : value;
    value_rank_[n] = static_cast<int8_t>(value.rank());
    space_rank_[n] = static_cast<int8_t>(g.space.rank());
    g.inner = is_column ? value.rank() : g.space.rank() - value.rank();
    g.n_operands = node.inputs.size() + 1;
  }
}

void Groups::merge_all() {
  std::vector<Edge> edges;
  edges.reserve(operands_.size());
  for (NodeId n = 0; n < f_.nodes.size(); ++n) {
    if (!is_fusible_[n]) continue;
    const auto ops = operands(n);
    for (uint32_t k = 0; k < ops.size(); ++k)
      if (ops[k].source != kNone && ops[k].leads)
        edges.push_back({ops[k].source, n, k, f_.type(f_.nodes[ops[k].source].output()).bytes()});
  }
  std::stable_sort(edges.begin(), edges.end(),
                   [](const Edge& a, const Edge& b) { return a.bytes > b.bytes; });
  for (const Edge& e : edges) try_merge(e);
}

// A sum of columns that nothing in a group makes has a kernel of its own.
void Groups::leave_lone_columns() {
  for (NodeId n = 0; n < f_.nodes.size(); ++n)
    if (is_fusible_[n] && role_[n] == TileRole::kColumns && groups_[find(n)].n_members == 1)
      is_fusible_[n] = 0, role_[n] = TileRole::kNone;
}

void Groups::list_members() {
  for (NodeId n = 0; n < f_.nodes.size(); ++n)
    if (is_fusible_[n]) groups_[find(n)].members.push_back(n);
}

namespace {
bool is_prefix(const Shape& a, const Shape& b) {
  if (a.rank() > b.rank()) return false;
  for (int d = 0; d < a.rank(); ++d)
    if (!(a[d] == b[d])) return false;
  return true;
}
}  // namespace

// The space of both, if a value of `a` may be read by a node of `b` inside one group. A value and a
// node are full (of their group's rank) or row (of its outer dims).
bool Groups::combine(const FusedGroup& a, const FusedGroup& b, const Edge& e,
                     FusedGroup& out) const {
  const int ra = a.space.rank(), rb = b.space.rank();
  const int p = value_rank_[e.from], c = space_rank_[e.to];
  if (ra == 0 && rb > 0) {  // scalars, computed once per launch
    out.space = b.space, out.inner = b.inner;
    return true;
  }
  const bool p_full = p == ra, c_full = c == rb;
  if (p_full == c_full && p == c) {  // both full or both row, of one space
    if (!(a.space == b.space) || (a.inner && b.inner && a.inner != b.inner)) return false;
    if (!p_full && a.inner != b.inner) return false;
    out.space = a.space, out.inner = std::max(a.inner, b.inner);
    return true;
  }
  if (!p_full && c_full && p < c) {  // a row value spread over rows
    if (!(a.space == b.space) || (b.inner && a.inner != b.inner)) return false;
    out.space = a.space, out.inner = a.inner;
    return true;
  }
  if (!p_full && c_full && p == c) {  // b becomes arithmetic on a's rows
    if (b.inner || !is_prefix(b.space, a.space)) return false;
    out.space = a.space, out.inner = a.inner;
    return true;
  }
  if (p_full && p <= c) {  // a becomes arithmetic on b's rows
    const int inner = rb - ra;
    if (a.inner || !is_prefix(a.space, b.space) || (b.inner && b.inner != inner)) return false;
    out.space = b.space, out.inner = inner;
    return true;
  }
  return false;
}

bool Groups::try_merge(const Edge& e) {
  const uint32_t a = find(e.from), b = find(e.to);
  if (a == b) return false;
  FusedGroup merged;
  if (groups_[a].n_members + groups_[b].n_members > kMaxMembers ||
      groups_[a].n_rows + groups_[b].n_rows > kMostReductions ||
      !combine(groups_[a], groups_[b], e, merged) || !has_registers(a, b, merged) ||
      !flows_agree(a, b) || !has_full(a, b, merged) || !is_small(a, b, merged.n_operands) ||
      !frees_memory(a, b) || has_other_path(a, b))
    return false;
  const uint32_t root = groups_[a].n_members > groups_[b].n_members ? a : b;
  const uint32_t gone = root == a ? b : a;
  parent_[gone] = root;
  FusedGroup& g = groups_[root];
  g.space = merged.space, g.inner = merged.inner;
  g.last = std::max(g.last, groups_[gone].last);
  g.n_operands = merged.n_operands;
  g.n_columns += groups_[gone].n_columns, g.n_rows += groups_[gone].n_rows;
  g.n_members += groups_[gone].n_members;
  std::swap(next_member_[root], next_member_[gone]);  // two rings become one
  reorder(a, b, root);
  return true;
}

// A kernel keeps sums of columns in registers, beside what it keeps of a row.
bool Groups::has_registers(uint32_t a, uint32_t b, const FusedGroup& merged) const {
  const int n = groups_[a].n_columns + groups_[b].n_columns;
  if (n == 0) return true;
  if (groups_[a].n_rows + groups_[b].n_rows == 0) return n <= kMostColumns;
  int64_t row = 1;
  for (int d = merged.space.rank() - merged.inner; d < merged.space.rank(); ++d)
    row *= merged.space[d].bound();
  return n <= kMostColumnsOfRows && row <= kMostRowOfColumns;
}

// Between the places of a and b, what the search found to come after a moves behind the merged
// group, the rest before it.
void Groups::reorder(uint32_t a, uint32_t b, uint32_t merged) {
  const uint32_t end = place_[b];
  order_[place_[a]] = kNone;
  uint32_t at = end;
  for (uint32_t g : after_) at = std::min(at, place_[g]);
  uint32_t i = at;
  auto put = [&](uint32_t g) { order_[at] = g, place_[g] = at++; };
  after_.clear();
  for (; i < end; ++i) {
    const uint32_t g = order_[i];
    if (g == kNone) continue;
    if (stamp_[g] == tick_) {
      after_.push_back(g);
    } else {
      put(g);
    }
  }
  put(merged);
  for (uint32_t g : after_) put(g);
  while (at <= end) order_[at++] = kNone;
}

// Everything that flows from a to b must be readable inside the group, and scalars that join a
// larger space may have no other reader (they have no place among the results there).
bool Groups::flows_agree(uint32_t a, uint32_t b) const {
  const bool is_unreadable = any_member(b, [&](NodeId n) {
    for (const Operand& o : operands(n))
      if (o.root != kNone && (o.source == kNone || !o.leads) && find(o.root) == a) return true;
    return false;
  });
  if (is_unreadable) return false;
  if (groups_[a].space.rank() > 0 || groups_[b].space.rank() == 0) return true;
  return !any_member(a, [&](NodeId n) {
    if (is_result_[n]) return true;
    for (NodeId c : consumers(n))
      if (find(c) != a && find(c) != b) return true;
    return false;
  });
}

// Does a value or an operand of the merged group fill its space? A kernel takes the space from it.
// A reduction's operand does, unless it repeats a value that would stay inside.
bool Groups::has_full(uint32_t a, uint32_t b, const FusedGroup& merged) const {
  if (merged.inner == 0) return true;
  const auto fills = [&](NodeId n) {
    if (role_[n] != TileRole::kReduction && role_[n] != TileRole::kColumns)
      return value_rank_[n] == merged.space.rank();
    const NodeId from = operands(n)[0].root;
    return from == kNone || (find(from) != a && find(from) != b);
  };
  return any_member(b, fills) || any_member(a, fills);
}

bool Groups::has_other_path(uint32_t a, uint32_t b) {
  ++tick_;
  after_.clear();
  auto visit = [&](uint32_t g) {  // true: reaches b
    return any_member(g, [&](NodeId n) {
      for (NodeId c : consumers(n)) {
        const uint32_t to = find(c);
        if (to == b) {
          if (g != a) return true;
          continue;
        }
        if (to == a || stamp_[to] == tick_ || place_[to] > place_[b]) continue;
        stamp_[to] = tick_;
        after_.push_back(to);
      }
      return false;
    });
  };
  visit(a);
  for (size_t i = 0; i < after_.size(); ++i)
    if (i == kSearchLimit || visit(after_[i])) return true;
  return false;
}

bool Groups::is_small(uint32_t a, uint32_t b, size_t& n_operands) {
  n_operands = groups_[a].n_operands + groups_[b].n_operands;
  if (n_operands <= kMaxGroupOperands) return true;  // counted exactly only when it matters
  ++tick_;
  n_operands = 0;
  for (uint32_t g : {a, b})
    any_member(g, [&](NodeId n) {
      for (const Operand& o : operands(n)) {
        if (o.value == kNone || value_stamp_[o.value] == tick_) continue;
        value_stamp_[o.value] = tick_;
        const uint32_t from = o.source == kNone ? kNone : find(o.source);
        n_operands += from != a && from != b;
      }
      bool out = is_result_[n];
      for (NodeId c : consumers(n)) {
        if (out) break;
        const uint32_t to = find(c);
        out = to != a && to != b;
      }
      n_operands += out;
      return false;
    });
  return n_operands <= kMaxGroupOperands;
}

// A group runs when its last operand is there. If that is much later than a's own time, a's
// operands live longer; that must not cost more than a's values that are no longer kept until then.
bool Groups::frees_memory(uint32_t a, uint32_t b) {
  const NodeId end_a = groups_[a].last, end_b = groups_[b].last;
  if (end_b < end_a || n_heavy_[end_b] - n_heavy_[end_a] <= kFar) return true;
  int64_t kept = 0, freed = 0;
  ++tick_;
  any_member(a, [&](NodeId n) {
    for (const Operand& o : operands(n)) {
      if (o.root == kNone || find(o.root) == a || stamp_[o.root] == tick_) continue;
      stamp_[o.root] = tick_;
      if (!is_result_[o.root] && consumers(o.root).back() < end_b)
        kept += f_.type(f_.nodes[o.root].output()).bytes();
    }
    bool vanishes = !is_result_[n], flows = false;
    for (NodeId c : consumers(n)) {
      vanishes &= find(c) == a || find(c) == b;
      flows |= find(c) == b;
    }
    if (vanishes && flows) freed += f_.type(f_.nodes[n].output()).bytes();
    return false;
  });
  return kept <= freed;
}

bool Groups::is_output(NodeId n) const {
  if (is_result_[n]) return true;
  for (NodeId c : consumers(n))
    if (find(c) != find(n)) return true;
  return false;
}

}  // namespace tegula
