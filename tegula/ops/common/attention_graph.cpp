#include "tegula/ops/common/attention_call.h"
#include "tegula/ops/indexing.h"

namespace tegula {

namespace {

// i64, to broadcast over [sq, sk], with keys in pages over [b, hk, g, sq, sk]: the keys a query
// sees, and the one it is aligned with. An invalid bound is none.
struct Positions {
  Var key, aligned, begin, end;
};

std::vector<int64_t> all_of(const PositionRuns& p, int64_t n) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < n; ++i) all.push_back(p.at(i));
  return all;
}

// Keys in pages, of a batch of sequences, or of packed queries each as a sequence of its own.
struct Paged {
  Var table, seqlens;  // i64 [b, pages], [b]
  Var left;            // i64 [b, sq]: from a query to its sequence's end, the query included
};
Paged paged(Builder& b, const AttentionCall& call, std::span<const Var> in) {
  const DType i64 = DType::kI64;
  const auto at = [&](int k) { return cast(in[k], i64); };
  const Var lengths = at(call.operands.seqlens_k), table = at(call.operands.table);
  Paged p;
  p.seqlens = min(max(lengths, 0.0), static_cast<double>(call.sk));
  p.table = max(min(table, extent(in[1], 0, i64) - 1.0), 0.0);
  const Dim sq = in[0].dim(1);
  if (call.operands.cu_q < 0) {
    p.left = unsqueeze(extent(in[0], 1, i64) - iota(b, {sq}, 0, i64), 0);
    return p;
  }
  // Row i lies in the sequence after the last offset <= i; of rows outside, whose sequence is out
  // of range, gather gives no keys.
  const Var query = iota(b, {sq, 1}, 0, i64);
  const Var cu = min(max(at(call.operands.cu_q), 0.0), extent(in[0], 1, i64));
  const Var next = reduce_sum(cast(le(unsqueeze(cu, 0), query), i64), {1});  // [sq]
  p.seqlens = gather(p.seqlens, next - 1.0, 0);
  p.table = gather(p.table, next - 1.0, 0);
  p.left = unsqueeze(gather(cu, next, 0), 1) - query;
  return p;
}

Positions positions_in_pages(Builder& b, const AttentionCall& call, const Paged& p) {
  Positions r;
  const Dim n = p.seqlens.dim(0);
  r.key = iota(b, {1, call.sk}, 1, DType::kI64);
  r.begin = constant(b, 0, DType::kI64);
  r.end = reshape(p.seqlens, {n, 1, 1, 1, 1});
  r.aligned = r.end - reshape(p.left, {p.left.dim(0), 1, 1, p.left.dim(1), 1});
  return r;
}

Positions positions(Builder& b, const AttentionCall& call, const Attrs& attrs,
                    std::span<const Var> in) {
  const Dim sq = in[0].dim(1), sk = in[1].dim(1);
  const DType i64 = DType::kI64;
  Positions p;
  p.key = iota(b, {1, sk}, 1, i64);
  const Var query = iota(b, {sq, 1}, 0, i64);
  if (!call.q_at.is_one() || !call.k_at.is_one()) {
    p.key = reshape(constant_ints(b, all_of(call.k_given, call.sk), i64), {1, sk});
    p.aligned = reshape(constant_ints(b, all_of(call.q_at, call.sq), i64), {sq, 1});
    return p;
  }
  if (call.operands.cu_q < 0) {
    const Var shift = attrs.has("q_runs")
                          ? constant(b, static_cast<double>(call.q_at.start - call.k_at.start), i64)
                          : sub(extent(in[1], 1, i64), extent(in[0], 1, i64));
    p.aligned = query + shift;
    return p;
  }
  // Offsets in this part; row i lies in the sequence after the last offset <= i.
  Var cu[2];
  for (int side = 0; side < 2; ++side) {
    const Var at = cast(in[side ? call.operands.cu_k : call.operands.cu_q], i64);
    const auto begin = static_cast<double>(side ? call.k_at.start : call.q_at.start);
    const Var size = extent(in[side], 1, i64);
    cu[side] = min(max(at - begin, 0.0), size);
  }
  const Var passed = cast(le(unsqueeze(cu[0], 0), query), i64);  // [sq, n + 1]
  const Var next = reduce_sum(passed, {1});                      // [sq]
  // Out of range gives 0: rows outside every sequence see keys [0, 0) or [.., 0).
  p.begin = unsqueeze(gather(cu[1], next - 1.0, 0), 1);
  p.end = unsqueeze(gather(cu[1], next, 0), 1);
  p.aligned = p.end - unsqueeze(gather(cu[0], next, 0), 1) + query;
  return p;
}

// Which keys each query sees, [sq, sk]; invalid: all.
Var visible(const AttentionCall& call, const Positions& p) {
  Var seen;
  auto require = [&](Var v) { seen = seen.valid() ? logical_and(seen, v) : v; };
  if (p.begin.valid()) {
    require(ge(p.key, p.begin));
    require(lt(p.key, p.end));
  }
  if (call.left >= 0) require(ge(p.key, p.aligned - static_cast<double>(call.left)));
  if (call.right >= 0) require(le(p.key, p.aligned + static_cast<double>(call.right)));
  return seen;
}

// Uniform numbers for dropout, [b, hk, g, sq, sk]: a row-major index into [b, hq, sq, sk].
Var uniform(Var seed, const AttentionCall& call, const Attrs& attrs, const Shape& shape) {
  const Shape heads = {shape[0], call.hq, shape[3], shape[4]};
  Attrs a{{"shape", std::vector<Dim>(heads.begin(), heads.end())},
          {"stream", call.stream},
          {"dtype", DType::kF32}};
  if (attrs.has("within")) {
    a.set("origin", std::vector<int64_t>(call.origin.begin(), call.origin.end()));
    // The batch's own size does not enter an index.
    a.set("whole", std::vector<int64_t>{0, call.whole[0], call.whole[1], call.whole[2]});
  }
  return reshape(seed.builder().emit(random_uniform_op, std::move(a), {seed}), shape);
}

}  // namespace

AttentionGraph attention_graph(Builder& b, const AttentionCall& call, const Attrs& attrs,
                               std::span<const Var> in) {
  const DType sums = accumulator(in[0].dtype());
  const bool is_paged = call.operands.table >= 0;
  const bool is_packed = is_paged && call.operands.cu_q >= 0;
  const Dim batch = in[0].dim(is_packed ? 1 : 0), sq = is_packed ? Dim(1) : in[0].dim(1);
  const Dim sk = is_paged ? Dim(call.sk) : in[1].dim(1);
  AttentionGraph t;
  t.q = cast(reshape(in[0], {batch, sq, call.hk, call.g, call.d}), sums);
  t.k = cast(in[1], sums), t.v = cast(in[2], sums);
  Paged pages;
  if (is_paged) {
    pages = paged(b, call, in);
    const auto rows = [&](Var x) {  // [b, pages, page, hk, d] -> [b, sk, hk, d]
      return reshape(gather(x, pages.table, 0), {batch, sk, call.hk, x.dim(3)});
    };
    t.k = rows(t.k), t.v = rows(t.v);
  }
  Var s = dot("b i k g d, b j k d -> b k g i j", t.q, t.k) * call.scale;
  if (call.operands.descale >= 0) {
    const auto factor = [&](size_t which, bool of_values) {
      const Var f = in[static_cast<size_t>(call.operands.descale) + which];
      return of_values ? reshape(f, {f.dim(0), 1, f.dim(1), 1})
                       : reshape(f, {f.dim(0), f.dim(1), 1, 1, 1});
    };
    s = s * factor(0, false) * factor(1, false);
    t.v = t.v * factor(2, true);
  }
  if (call.softcap > 0) {
    t.capped = tanh(s * (1 / call.softcap));
    s = t.capped * call.softcap;
  }
  if (call.operands.bias >= 0) {
    const Var bias = in[call.operands.bias];
    const bool per_head = bias.dim(1) == Dim(call.hq);
    t.bias = {bias.dim(0), per_head ? call.hk : 1, per_head ? call.g : 1, bias.dim(2), sk};
    s = s + cast(reshape(bias, t.bias), sums);
  }
  const Positions p = is_paged ? positions_in_pages(b, call, pages) : positions(b, call, attrs, in);
  if (call.operands.slopes >= 0) {
    const Var slopes = cast(in[call.operands.slopes], sums);
    const Var distance = abs(cast(p.key - p.aligned, sums));
    s = s - reshape(slopes, {call.hk, call.g, 1, 1}) * distance;
  }
  if (const Var seen = visible(call, p); seen.valid())
    s = select(seen, s, constant(b, -kInfinity, sums));
  t.scores = s;
  if (call.operands.seed >= 0) {
    const Var seed = in[call.operands.seed];
    const Shape shape = {batch, call.hk, call.g, sq, sk};
    t.keep = ge(uniform(seed, call, attrs, shape), call.dropout_bound());
  }
  return t;
}

std::optional<Attrs> in_key_order(const OpCall& c) {
  if ((c.op != &attention_op && c.op != &attention_bwd_op) || !c.attrs->has("k_runs")) return {};
  const AttentionCall call(c, c.op == &attention_bwd_op);
  // Where a call goes on from other parts, these are joined first.
  if (!can_sort_keys(call) || call.operands.before >= 0) return {};
  return sorted(call, *c.attrs);
}

Attrs sorted(const AttentionCall& call, const Attrs& attrs) {
  Attrs a = attrs;
  a.set("k_runs", std::vector<int64_t>(call.k_at.runs.begin(), call.k_at.runs.end()));
  return a;
}
std::vector<Var> sorted(Builder& b, const AttentionCall& call, std::span<const Var> in) {
  std::vector<Var> out(in.begin(), in.end());
  const Var rows = constant_ints(b, call.key_rows(), DType::kI32);
  for (const size_t k : {1, 2}) out[k] = gather(in[k], rows, 1);
  return out;
}

Var AttentionGraph::weights(Var lse) const { return exp_less_lse(scores, lse); }

Var AttentionGraph::dropped(Var w, double dropout) const {
  if (!keep.valid()) return w;
  return select(keep, w * (1 / (1 - dropout)), zeros_like(w));
}

}  // namespace tegula
