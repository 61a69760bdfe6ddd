// Groups: which nodes of a function become one fused node.
//
// Nodes start alone; edges between fusible nodes are tried in the order of the bytes they save, and
// two groups merge if (1) their iteration spaces agree (equal, or one is the rows of the other),
// (2) every value that flows between them lies the same way in both, (3) the merged group stays
// small, (4) it does not keep more bytes alive than it frees, and (5) no path leads from one to the
// other through a third. The last is a search among the groups that stand between them in a
// topological order, which each merge keeps up to date [Pearce and Kelly 2006]; a long search ends
// in no merge.
//
// Constants, iota and what is made of them without arithmetic (masks) are *free*: they belong to
// no group and are made anew wherever they are read. Views between members are free as well.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "tegula/passes/lower_tile.h"

namespace tegula {

// Where each dim of a value lies in an iteration space; FusedSpace::kOne for extent 1.
using DimsIn = std::array<int8_t, kMaxRank>;
// The dims other than 1, in order.
DimsIn natural_dims(const Shape& s);
// The dims of a view's operand, given those of its result.
DimsIn through_view(const Function& f, const Node& view, const DimsIn& dims);

struct FusedGroup {
  Shape space;  // without dims of extent 1
  int inner = 0;
  std::vector<NodeId> members;  // ascending; filled when all groups are known
  uint32_t n_members = 1;
  NodeId last = 0;        // of them
  size_t n_operands = 0;  // no fewer than it has, results included
  int n_columns = 0;      // members that sum columns
  int n_rows = 0;         // members that reduce rows
};

class Groups {
 public:
  // sums_columns: the target's kernel has column outputs (tile/program.h).
  Groups(const Function& f, bool merge, bool sums_columns);

  TileRole role(NodeId n) const { return role_[n]; }
  bool is_free(NodeId n) const { return free_size_[n] > 0; }
  // Is it in a group (alone, perhaps)?
  bool is_member(NodeId n) const { return is_fusible_[n]; }
  uint32_t group_of(NodeId n) const { return find(n); }
  const FusedGroup& group(uint32_t g) const { return groups_[g]; }
  // Is the node's value read by anything outside its group?
  bool is_output(NodeId n) const;

 private:
  struct Operand {          // of a node
    NodeId root = kNone;    // the node it depends on, through views
    NodeId source = kNone;  // the same if only views that a body can hold lie between
    ValueId value = kNone;  // what a body would read: source's value, or a parameter
    bool leads = false;     // source's dims are the first ones of the node's space
  };
  struct Edge {
    NodeId from, to;
    uint32_t operand;  // of `to`
    int64_t bytes;
  };

  uint32_t find(uint32_t n) const;
  // Calls visit(member) until one is true; says whether one was.
  template <class F>
  bool any_member(uint32_t g, F visit) const {
    NodeId n = g;
    do {
      if (visit(n)) return true;
      n = next_member_[n];
    } while (n != g);
    return false;
  }
  void find_free();
  void find_operands();
  void find_consumers();
  void make_groups();
  void merge_all();
  bool combine(const FusedGroup& a, const FusedGroup& b, const Edge& e, FusedGroup& out) const;
  bool try_merge(const Edge& e);
  bool has_registers(uint32_t a, uint32_t b, const FusedGroup& merged) const;
  bool flows_agree(uint32_t a, uint32_t b) const;
  bool has_full(uint32_t a, uint32_t b, const FusedGroup& merged) const;
  bool has_other_path(uint32_t a, uint32_t b);
  void reorder(uint32_t a, uint32_t b, uint32_t merged);
  void leave_lone_columns();
  void list_members();
  bool is_small(uint32_t a, uint32_t b, size_t& n_operands);
  bool frees_memory(uint32_t a, uint32_t b);
  std::span<const Operand> operands(NodeId n) const {
    return {operands_.data() + first_operand_[n], operands_.data() + first_operand_[n + 1]};
  }
  std::span<const NodeId> consumers(NodeId n) const {
    return {consumers_.data() + first_consumer_[n], consumers_.data() + first_consumer_[n + 1]};
  }
  const Function& f_;
  std::vector<TileRole> role_;
  std::vector<uint8_t> is_fusible_, is_result_;
  std::vector<uint8_t> free_size_;  // nodes of a free expression; 0: not free
  std::vector<int8_t> value_rank_;  // dims other than 1 of a fusible node's value …
  std::vector<int8_t> space_rank_;  // … and of what it runs over
  std::vector<uint32_t> first_operand_, first_consumer_;
  std::vector<Operand> operands_;
  std::vector<NodeId> consumers_;
  std::vector<uint32_t> n_heavy_;  // nodes before this one that cannot be fused
  mutable std::vector<uint32_t> parent_;
  std::vector<NodeId> next_member_;  // of the same group, in a ring
  std::vector<FusedGroup> groups_;   // at the index of the root node
  // A topological order of the groups: place of each, and the group at each place (kNone: none).
  std::vector<uint32_t> place_, order_;
  std::vector<uint32_t> stamp_, value_stamp_;
  uint32_t tick_ = 0;
  std::vector<uint32_t> after_;  // groups between a and b that depend on a, from has_other_path
};

}  // namespace tegula
