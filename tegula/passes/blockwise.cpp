// Feed-forward blocks go over blocks of rows: norm, product, activation, product and residual of
// some tokens at a time, so that the wide activations (tokens × d_ff) never stand in memory whole.
// [Blockwise Parallel Transformer, Liu and Abbeel 2023, §3]
//
// The forward part of a region (row_region.h) becomes a scan over blocks of rows. Its backward part
// becomes another, which computes the block's hidden activations again instead of keeping them;
// gradients of weights are carried from block to block and each goes on as one chain of
// multiply-adds (dot with `accumulate`), tokens ascending. Random numbers stay outside, so that
// dropout replays.
//
// Bits: results per token are those of the whole. Gradients of the region's weights are one chain
// over all tokens: whatever the size of a block, and as without this pass in mode fast; in mode
// exact they leave out the shards of long sums, so their last bits differ.
#include <map>

#include "tegula/base/algorithm.h"
#include "tegula/base/memory.h"
#include "tegula/ir/builder.h"
#include "tegula/ir/sum_shards.h"
#include "tegula/ops/common/regions.h"
#include "tegula/ops/control.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/edit.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/row_region.h"

namespace tegula {

namespace {

// auto: a quarter of the rows, within limits: a block packs the weights anew (measured: 1.6 ns an
// element, 7 % of a step in blocks of 256 rows, 2 % of 1024), and above that little more is saved.
constexpr int64_t kAutoBlocks = 4, kAutoLeast = 512, kAutoMost = 1024;
constexpr int64_t kAutoBytes = 1 << 20;  // activations in all below which it does not pay

// Extents of one block: trailing row dims whole, one cut, those before it 1. Empty: none fits.
Shape block_shape(const Shape& rows, int64_t most) {
  Shape block = rows;
  int64_t inner = rows.numel();
  for (int d = 0; d < rows.rank(); ++d) {
    const int64_t n = rows[d].bound();
    inner /= n;
    for (int64_t part = n; part > 0; --part)
      if (n % part == 0 && part * inner <= most) {
        block[d] = part;
        return block.numel() < rows.numel() && block.numel() >= kLeastBlockRows ? block : Shape();
      }
    block[d] = 1;
  }
  return {};
}

int64_t rows_wanted(const RowRegion& r, int64_t option) {
  if (option != PassOptions::kAutoBlock) return option;
  if (r.wide_bytes < kAutoBytes) return 0;
  return std::clamp(r.n_rows() / kAutoBlocks, kAutoLeast, kAutoMost);
}

// The scan over the blocks of one part of a region.
class BlockLoop {
 public:
  BlockLoop(Module& module, const Function& f, const RowRegion& r, const Shape& block, uint8_t part)
      : module_(module),
        f_(f),
        r_(r),
        block_(block),
        part_(part),
        body_(module, cat("ffn_block_", module.functions.size())) {
    body_.set_phase(part == RowRegion::kForward ? Phase::kForward : Phase::kBackward);
    write();
  }

  // The values of the old function that must be known before the loop runs.
  std::vector<ValueId> operands() const {
    std::vector<ValueId> all(xs_);
    all.insert(all.end(), invariants_.begin(), invariants_.end());
    return all;
  }

  // Adds the loop and binds what leaves it.
  Status emit(Rewriter& rw) {
    Builder& b = rw.builder();
    // Parameters in the order of a scan: carries, xs, invariants.
    Function body = TEGULA_TRY(body_.finish());
    std::vector<Param> params;
    std::vector<Var> carry, xs, invariants;
    for (const auto& [sum, param] : sums_) {
      params.push_back(body.params[body.values[param].index]);
      carry.push_back(fill(b, 0, f_.type(sum)));
    }
    const Dim n_blocks = r_.n_rows() / block_.numel();
    for (ValueId v : xs_) {
      params.push_back(body.params[body.values[known_.at({v, true})].index]);
      xs.push_back(reshape(rw.at(v), stacked(body.type(params.back().value).shape, n_blocks)));
    }
    for (ValueId v : invariants_) {
      params.push_back(body.params[body.values[known_.at({v, false})].index]);
      invariants.push_back(rw.at(v));
    }
    for (size_t i = 0; i < params.size(); ++i)
      body.values[params[i].value].index = static_cast<uint32_t>(i);
    body.params = std::move(params);
    const FuncId id = module_.add(std::move(body));
    const auto out =
        control::emit_scan(b, id, carry, xs, invariants, {.length = n_blocks}, Loc::current());
    if (b.failed()) return b.error();
    for (size_t i = 0; i < sums_.size(); ++i) rw.bind(sums_[i].first, out.carry[i]);
    for (size_t i = 0; i < leaving_.size(); ++i)
      rw.bind(leaving_[i], reshape(out.ys[i], f_.type(leaving_[i]).shape));
    return {};
  }

 private:
  static Shape stacked(const Shape& s, Dim n) {
    Shape out{n};
    for (const Dim& d : s) out.push_back(d);
    return out;
  }
  Type block_type(const Type& t) const {
    Type out = t;
    for (int d = 0; d < block_.rank(); ++d) out.shape[d] = block_[d];
    return out;
  }

  void write() {
    const auto& nodes = part_ == RowRegion::kForward ? r_.forward : r_.backward;
    const std::vector<uint8_t> leaves = find_leaving();
    std::vector<Var> next;
    for (NodeId n : nodes) {
      std::vector<uint8_t> has_rows;
      const Node& node = f_.nodes[n];
      if (row_use(module_, f_, node, r_.rows, &has_rows) == RowUse::kSum) {
        next.push_back(add_sum(node));
        continue;
      }
      if (part_ == RowRegion::kForward) add(n);
      for (uint32_t i = 0; i < node.n_outputs; ++i)
        if (leaves[node.output(i)]) leaving_.push_back(node.output(i));
    }
    for (size_t i = 0; i < next.size(); ++i) body_.result(cat("sum", i), next[i]);
    for (size_t i = 0; i < leaving_.size(); ++i) body_.result(cat("y", i), read(leaving_[i], true));
  }

  // Per value: is it read outside the region? (The backward part makes again what it reads of the
  // forward part.)
  std::vector<uint8_t> find_leaving() const {
    std::vector<uint8_t> leaves(f_.values.size(), 0);
    for (NodeId n = 0; n < f_.nodes.size(); ++n)
      if (r_.in[n] == RowRegion::kOutside)
        for (ValueId v : f_.nodes[n].inputs) leaves[v] = 1;
    for (const Output& o : f_.results) leaves[o.value] = 1;
    return leaves;
  }

  // The value as the body sees it.
  Var read(ValueId v, bool has_rows) {
    if (const auto it = known_.find({v, has_rows}); it != known_.end())
      return Var(&body_, it->second);
    const NodeId n = f_.values[v].node;
    const bool is_inside = n != kNone && r_.in[n] != RowRegion::kOutside;
    const bool is_made = has_rows ? is_inside || (n != kNone && f_.nodes[n].op == &broadcast_op)
                                  : n != kNone && f_.nodes[n].op == &constant_op;
    if (is_made) {
      add(n);
      return Var(&body_, known_.at({v, has_rows}));
    }
    (has_rows ? xs_ : invariants_).push_back(v);
    const Var p = body_.param(cat(has_rows ? "x" : "w", known_.size()),
                              has_rows ? block_type(f_.type(v)) : f_.type(v));
    known_[{v, has_rows}] = p.id();
    return p;
  }

  // A node on a block's rows: its attributes cut as for a rank that holds them.
  void add(NodeId n) {
    const Node& node = f_.nodes[n];
    std::vector<uint8_t> has_rows(node.inputs.size(), 0);
    const bool is_rowed = row_use(module_, f_, node, r_.rows, &has_rows) == RowUse::kEach;
    if (known_.contains({node.output(), is_rowed})) return;
    std::vector<Var> in;
    for (size_t i = 0; i < node.inputs.size(); ++i) in.push_back(read(node.inputs[i], has_rows[i]));
    Attrs attrs = is_rowed ? local_attrs(node) : node.attrs;
    body_.set_origin(node.origin);
    body_.set_phase(part_ == RowRegion::kForward ? Phase::kForward : node.phase);
    const auto out = body_.emit_n(*node.op, std::move(attrs), in, {}, node.origin.loc);
    for (uint32_t i = 0; i < node.n_outputs; ++i) known_[{node.output(i), is_rowed}] = out[i].id();
  }

  Attrs local_attrs(const Node& node) const {
    Node cut = node;
    if (!node.op->localize) return node.attrs;
    const auto in = f_.input_types(node), out = f_.output_types(node);
    // The map of the whole: with one dim cut, attributes and operands no longer agree.
    const auto map = dim_map({node.op, &node.attrs, in, out, &module_, {}});
    for (int d = 0; map.ok() && d < block_.rank(); ++d) {
      if (r_.rows[d] == block_[d]) continue;
      const OpCall call{node.op, &cut.attrs, in, out, &module_, {}};
      const int factor = map->results[0][static_cast<size_t>(d)].terms[0].factor;
      cut.attrs = node.op->localize(call, *map, factor, 0, block_[d].bound());
    }
    return cut.attrs;
  }

  // A sum over rows goes on from the carry.
  Var add_sum(const Node& node) {
    const ValueId v = node.output();
    std::vector<Var> in;
    for (ValueId x : node.inputs) in.push_back(read(x, true));
    const Var carry = body_.param(cat("sum", sums_.size()), f_.type(v));
    sums_.emplace_back(v, carry.id());
    body_.set_origin(node.origin);
    Attrs attrs = node.attrs;
    if (node.op == &reduce_sum_op) {
      // 1·x + sum rounds as x + sum does.
      std::string rows, rest;
      for (int d = 0; d < in[0].rank(); ++d)
        (d < block_.rank() ? rows : rest) += cat(rows.empty() && d == 0 ? "" : " ", "d", d);
      attrs = {{"dims", cat(rows, ", ", rows, rest, " -> ", rest)}};
      in.insert(in.begin(), fill(body_, 1, {in[0].dtype(), block_}));
    }
    attrs.erase("k_shards"), attrs.erase(kSumShards);
    attrs.set("accumulate", true);
    return body_.emit(dot_op, std::move(attrs), {in[0], in[1], carry});
  }

  Module& module_;
  const Function& f_;
  const RowRegion& r_;
  const Shape block_;
  const uint8_t part_;
  Builder body_;
  std::map<std::pair<ValueId, bool>, ValueId> known_;  // (old value, has rows) -> the body's
  std::vector<ValueId> xs_, invariants_, leaving_;
  std::vector<std::pair<ValueId, ValueId>> sums_;  // old value, the body's carry
};

// The function with one region as loops: nodes in their order, each after what it reads.
class Blocker {
 public:
  Blocker(Module& module, const Function& f, const RowRegion& r, const Shape& block)
      : f_(f), r_(r), rw_(module, f) {
    loops_.push_back(std::make_unique<BlockLoop>(module, f, r, block, RowRegion::kForward));
    if (!r.backward.empty())
      loops_.push_back(std::make_unique<BlockLoop>(module, f, r, block, RowRegion::kBackward));
  }

  Result<Function> run() {
    for (NodeId n = 0; n < f_.nodes.size(); ++n)
      if (r_.in[n] == RowRegion::kOutside) TEGULA_TRY(need(f_.nodes[n].output()));
    for (const Output& o : f_.results) TEGULA_TRY(need(o.value));
    return rw_.finish();
  }

 private:
  Status need(ValueId v) {
    if (rw_.has(v)) return {};
    const NodeId n = f_.values[v].node;
    const uint8_t part = r_.in[n];
    if (part == RowRegion::kOutside) {
      for (ValueId x : f_.nodes[n].inputs) TEGULA_TRY(need(x));
      rw_.clone(f_.nodes[n]);
      return {};
    }
    BlockLoop& loop = *loops_[part - 1];
    for (ValueId x : loop.operands()) TEGULA_TRY(need(x));
    rw_.builder().set_phase(part == RowRegion::kForward ? Phase::kForward : Phase::kBackward);
    return loop.emit(rw_);
  }

  const Function& f_;
  const RowRegion& r_;
  Rewriter rw_;
  std::vector<std::unique_ptr<BlockLoop>> loops_;
};

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  if (options.block_rows == 0) return false;
  bool changed = false;
  RowRegion region;
  for (NodeId n = 0; n < f.nodes.size(); ++n) {
    if (f.nodes[n].op != &dot_op || !find_row_region(module, f, n, &region)) continue;
    const Shape block = block_shape(region.rows, rows_wanted(region, options.block_rows));
    if (block.rank() == 0) continue;
    Function out = TEGULA_TRY(Blocker(module, f, region, block).run());
    f = std::move(out);
    remove_dead_nodes(f);
    changed = true;
    n = 0;
  }
  return changed;
}

}  // namespace

extern const PassDef blockwise_pass = {
    .name = "blockwise",
    .doc = "feed-forward blocks go over blocks of rows, recomputed in the backward part",
    .sums =
        "a weight's gradient is one chain over all rows: in mode exact without shards, a bias's "
        "beyond 8,192 rows without parts",
    .phase = PassPhase::kCombine,
    .needs = kIsUnfused,
    .run = run,
};

}  // namespace tegula
