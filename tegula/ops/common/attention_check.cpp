// The calls that attention and attention_bwd refuse, and the dtypes of their results.
#include "tegula/ops/common/attention_call.h"

namespace tegula {

Result<std::vector<DType>> attention_types(const OpCall& c, bool is_bwd) {
  const AttentionOperands o(*c.attrs, is_bwd);
  if (static_cast<int>(c.in.size()) != o.count)
    return invalid_argument(
        cat(c.op->name, ": takes ", o.count, " operands with these attributes, got ", c.in.size()));
  const DType t = c.in[0].dtype, sums = accumulator(t);
  const bool is_e4m3 = t == DType::kF8E4M3;
  if (is_e4m3 && is_bwd)
    return invalid_argument(
        cat(c.op->name, ": q is ", t, ", which is served forward only: cast q, k and v to bf16"));
  if (o.descale >= 0 && !is_e4m3)
    return invalid_argument(cat(c.op->name, ": descale is for f8e4m3, q is ", t));
  const DType of_k = c.in[1].dtype;
  const bool is_narrow = !is_bwd && t == DType::kF32 && size_bits(of_k) == 16;
  for (int k = 0; k < o.count; ++k) {
    const DType have = c.in[static_cast<size_t>(k)].dtype;
    bool ok = is_float(have);
    std::string_view want = "a float";
    if (k == o.cu_q || k == o.cu_k || k == o.seqlens_k || k == o.table) {
      ok = have == DType::kI32, want = "i32";
    } else if (k == o.seed) {
      ok = have == DType::kI64, want = "i64";
    } else if (o.descale >= 0 && k >= o.descale) {
      ok = have == DType::kF32, want = "f32";
    } else if (k == o.dlse || (is_bwd && k == 4) || (o.before >= 0 && k >= o.before)) {
      ok = have == sums, want = dtype_name(sums);
    } else if (is_narrow && (k == 1 || k == 2)) {
      ok = have == of_k, want = dtype_name(of_k);
    } else if (k > 0 && k < (is_bwd ? 6 : 3)) {
      ok = have == t, want = dtype_name(t);
    }
    if (!ok)
      return invalid_argument(cat(c.op->name, ": operand ", k, " is ", have, ", expected ", want));
  }
  const auto part = c.attrs->get_or<std::string>("part", "");
  const bool is_part = !part.empty() && part != "last";
  if (!is_bwd) return std::vector<DType>{is_part ? sums : is_e4m3 ? DType::kBF16 : t, sums};
  std::vector<DType> out(3, is_part ? sums : t);
  if (o.bias >= 0) out.push_back(c.in[static_cast<size_t>(o.bias)].dtype);
  return out;
}

namespace {
Status check_pages(const OpCall& c, const AttentionCall& call) {
  const AttentionOperands& o = call.operands;
  if (o.bias >= 0 || o.seed >= 0 || o.descale >= 0)
    return unsupported(cat(c.op->name, ": keys in pages go with no bias, dropout or descale: ",
                           "gather the pages first"));
  for (size_t k = 1; k < 3; ++k)
    if (!c.shape(k)[1].is_const() || c.shape(k)[0] == Dim(0) || c.shape(k)[1] == Dim(0))
      return invalid_argument(cat(c.op->name, ": operand ", k, " is ", c.in[k],
                                  ": there must be pages, of a constant number of keys"));
  const Shape& table = c.shape(static_cast<size_t>(o.table));
  if (!table[1].is_const())
    return unsupported(cat(c.op->name, ": block_table is ", table, ": pages must be constant"));
  if (o.cu_q >= 0 && !(c.shape(0)[0] == Dim(1)))
    return invalid_argument(
        cat(c.op->name, ": q is ", c.in[0], ": packed sequences stand in one batch entry"));
  if (o.cu_q >= 0 && c.shape(static_cast<size_t>(o.cu_q))[0].bound() != call.n + 1)
    return invalid_argument(cat(c.op->name, ": cu_seqlens_q has ",
                                c.shape(static_cast<size_t>(o.cu_q))[0], " offsets for ", call.n,
                                " sequences, expected one more"));
  return {};
}
}  // namespace

namespace {
Status check_runs(const OpCall& c, const AttentionCall& call, const PositionRuns& p, size_t k,
                  const char* name) {
  if (!c.attrs->has(name)) return {};
  const auto& numbers = c.attrs->ints(name);
  if (numbers.size() == 1) return {};
  if (numbers.empty() || numbers.size() % 3 != 0)
    return invalid_argument(cat(c.op->name, ": ", name, " has ", numbers.size(),
                                " numbers: one start, or start, stride and count of each run"));
  if (call.operands.cu_q >= 0 || call.operands.table >= 0)
    return invalid_argument(cat(c.op->name, ": ", name,
                                " has runs: packed sequences and pages have ",
                                "positions of their own"));
  for (size_t r = 0; r < numbers.size(); r += 3)
    if (numbers[r + 1] < 1 || numbers[r + 2] < 0)
      return invalid_argument(cat(c.op->name, ": ", name, " has a run of stride ", numbers[r + 1],
                                  " and count ", numbers[r + 2], ": at least 1 and 0"));
  const Dim rows = c.shape(k)[1];
  if (!rows.is_const() || rows.bound() != p.count())
    return invalid_argument(
        cat(c.op->name, ": ", name, " has ", p.count(), " positions for ", rows));
  return {};
}
}  // namespace

Status check_attention(const OpCall& c, bool is_bwd) {
  const AttentionCall call(c, is_bwd);
  const Attrs& a = *c.attrs;
  if (!(call.dropout >= 0 && call.dropout < 1) || !(call.softcap >= 0))
    return invalid_argument(cat(c.op->name, ": dropout ", call.dropout, " must lie in [0, 1), ",
                                "softcap ", call.softcap, " must not be negative"));
  for (size_t k = 0; k < 3; ++k)
    if (!c.shape(k)[2].is_const() || !c.shape(k)[3].is_const())
      return unsupported(cat(c.op->name, ": operand ", k, " is ", c.in[k],
                             ": heads and head_dim must be constant"));
  if (call.left < -1 || call.right < -1)
    return invalid_argument(
        cat(c.op->name, ": window (", call.left, ", ", call.right, "): -1 is no limit"));
  if (call.operands.cu_q >= 0 && call.b != 1)
    return invalid_argument(
        cat(c.op->name, ": packed sequences stand in one batch entry, q has ", call.b));
  if (call.operands.cu_q >= 0 && c.shape(static_cast<size_t>(call.operands.cu_q))[0] == Dim(0))
    return invalid_argument(cat(c.op->name, ": cu_seqlens hold at least the offset 0"));
  TEGULA_TRY(check_runs(c, call, call.q_at, 0, "q_runs"));
  TEGULA_TRY(check_runs(c, call, call.k_given, 1, "k_runs"));
  if (call.operands.table >= 0) TEGULA_TRY(check_pages(c, call));
  if (a.has("within") && a.ints("within").size() != 7)
    return invalid_argument(
        cat(c.op->name, ": within has ", a.ints("within").size(), " numbers, not 7"));
  const auto part = a.get_or<std::string>("part", "");
  if (!part.empty() && part != "first" && part != "middle" && part != "last")
    return invalid_argument(cat(c.op->name, ": part is ", part, ", not first, middle or last"));
  return {};
}

}  // namespace tegula
