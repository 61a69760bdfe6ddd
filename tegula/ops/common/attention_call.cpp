#include "tegula/ops/common/attention_call.h"

#include <cmath>
#include <numeric>

#include "tegula/base/philox.h"
#include "tegula/base/saturating.h"

namespace tegula {

AttentionOperands::AttentionOperands(const Attrs& a, bool is_bwd) {
  count = is_bwd ? 6 : 3;
  auto next = [&](bool is_there) { return is_there ? count++ : -1; };
  bias = next(a.flag("bias"));
  slopes = next(a.flag("alibi"));
  cu_q = next(a.flag("varlen"));
  const bool is_paged = !is_bwd && a.flag("paged");
  cu_k = next(a.flag("varlen") && !is_paged);
  seqlens_k = next(is_paged), table = next(is_paged);
  seed = next(a.get_or<double>("dropout", 0) > 0);
  dlse = next(is_bwd && a.flag("dlse"));
  descale = next(!is_bwd && a.flag("descale"));
  if (descale >= 0) count += 2;
  const std::string part = is_bwd ? std::string() : a.get_or<std::string>("part", "");
  before = next(part == "middle" || part == "last");
  if (before >= 0) ++count;
}

AttentionCall::AttentionCall(const OpCall& c, bool is_bwd) : operands(*c.attrs, is_bwd) {
  const Attrs& a = *c.attrs;
  auto size = [&](size_t k, int dim) { return c.shape(k)[dim].bound(); };
  b = size(0, 0), sq = size(0, 1), hq = size(0, 2), d = size(0, 3);
  sk = size(1, 1), hk = size(1, 2), dv = size(2, 3);
  g = hk > 0 ? hq / hk : 0;
  if (operands.table >= 0) {
    const auto t = static_cast<size_t>(operands.table);
    n_pages = size(1, 0), page = sk, n = size(t, 0);
    sk = n_pages > 0 ? saturating_mul(page, size(t, 1)) : 0;
  }
  is_e4m3 = c.in[0].dtype == DType::kF8E4M3;
  scale = a.f("scale");
  softcap = a.get_or<double>("softcap", 0);
  dropout = a.get_or<double>("dropout", 0);
  left = a.get_or<int64_t>("window_left", -1);
  right = a.flag("is_causal") ? 0 : a.get_or<int64_t>("window_right", -1);
  stream = a.get_or<int64_t>("stream", 0);
  q_at.start = a.flag("varlen") ? 0 : sk - sq;
  if (a.has("q_runs")) q_at = PositionRuns::of(a.ints("q_runs"));
  if (a.has("k_runs")) k_given = PositionRuns::of(a.ints("k_runs"));
  k_at = k_given;
  if (!k_given.ascends()) sort_keys();
  whole = {hq, sq, sk};
  if (a.has("within") && a.ints("within").size() == 7) {
    std::copy_n(a.ints("within").begin(), 4, origin.begin());
    std::copy_n(a.ints("within").begin() + 4, 3, whole.begin());
  }
  const auto part = a.get_or<std::string>("part", "");
  is_part = !part.empty() && part != "last";
}

void AttentionCall::sort_keys() {
  const int64_t n = sk;
  if (k_given.count() != n) return;  // refused later
  key_rows_.resize(static_cast<size_t>(n));
  std::iota(key_rows_.begin(), key_rows_.end(), 0);
  std::stable_sort(key_rows_.begin(), key_rows_.end(),
                   [&](int64_t a, int64_t b) { return k_given.at(a) < k_given.at(b); });
  for (const int64_t row : key_rows_) {
    const int64_t at = k_given.at(row);
    const size_t last = ascending_.size() - 3;  // the run that may go on
    if (!ascending_.empty() && at == ascending_[last] + ascending_[last + 2])
      ++ascending_[last + 2];
    else
      ascending_.insert(ascending_.end(), {at, 1, 1});
  }
  k_at = PositionRuns::of(ascending_);
}

double AttentionCall::keep(int64_t seed, int64_t batch, int64_t h, int64_t i, int64_t j) const {
  const int64_t head = (origin[0] + batch) * whole[0] + origin[1] + h;
  const int64_t at = (head * whole[1] + origin[2] + i) * whole[2] + origin[3] + j;
  const double u = philox_uniform(static_cast<uint64_t>(seed), static_cast<uint64_t>(stream),
                                  static_cast<uint64_t>(at));
  return u >= dropout_bound() ? 1 / (1 - dropout) : 0;
}

AttentionMask::AttentionMask(const AttentionCall& call, std::vector<int64_t> cu_q,
                             std::vector<int64_t> cu_k)
    : call_(call), cu_q_(std::move(cu_q)), cu_k_(std::move(cu_k)) {
  // A part holds whole sequences; the others are empty in it.
  for (int64_t& at : cu_q_) at = std::clamp<int64_t>(at - call.q_at.start, 0, call.sq);
  for (int64_t& at : cu_k_) at = std::clamp<int64_t>(at - call.k_at.start, 0, call.sk);
}

// Before masks by position.
KeyRange AttentionMask::of_sequence(int64_t b, int64_t i) const {
  const bool is_paged = call_.operands.table >= 0;
  if (cu_q_.empty()) {
    // For keys in pages whose numbers are not known: as if all were there.
    if (cu_k_.empty())
      return {0, call_.sk, call_.q_at.at(i) - (call_.k_at.is_one() ? call_.k_at.start : 0), b};
    const int64_t keys = cu_k_[b];
    return {0, keys, keys - call_.sq + i, b};
  }
  const auto next =
      static_cast<size_t>(std::upper_bound(cu_q_.begin(), cu_q_.end(), i) - cu_q_.begin());
  if (next == 0 || next == cu_q_.size()) return {0, 0, 0, -1};
  const int64_t left = cu_q_[next] - i;
  if (!is_paged) return {cu_k_[next - 1], cu_k_[next], cu_k_[next] - left, b};
  const int64_t keys = cu_k_[next - 1];
  return {0, keys, keys - left, static_cast<int64_t>(next) - 1};
}

KeyRange AttentionMask::keys(int64_t b, int64_t i) const {
  KeyRange r = of_sequence(b, i);
  if (r.sequence < 0) return r;
  if (!call_.k_at.is_one()) {
    if (call_.left >= 0) r.lo = call_.k_at.before(r.aligned - call_.left, call_.sk);
    if (call_.right >= 0) r.hi = call_.k_at.before(r.aligned + call_.right + 1, call_.sk);
    return r;
  }
  if (call_.left >= 0) r.lo = std::max(r.lo, r.aligned - call_.left);
  if (call_.right >= 0) r.hi = std::min(r.hi, r.aligned + call_.right + 1);
  r.hi = std::max(r.lo, r.hi);
  return r;
}

namespace {
// Pairs of queries and keys, before it is known that 64 bits hold them.
using Wide = __int128;

// Σ min(x, limit) over x = first, first + 1, …, n of them.
Wide sum_below(int64_t first, int64_t n, int64_t limit) {
  const Wide below = std::clamp<int64_t>(limit - first, 0, n);
  return below * first + below * (below - 1) / 2 + (n - below) * limit;
}
int64_t count_of(Wide n) { return n < kUncountable ? static_cast<int64_t>(n) : kUncountable; }
}  // namespace

namespace {
// Query by query.
AttentionWork work_in_runs(const AttentionCall& call) {
  AttentionWork w;
  const AttentionMask mask(call);
  std::vector<int64_t> seen(static_cast<size_t>(call.sk) +
                            1);  // how many more than of the key before
  for (int64_t i = 0; i < call.sq; ++i) {
    const KeyRange r = mask.keys(0, i);
    if (r.lo >= r.hi) continue;
    w.pairs += r.hi - r.lo, ++w.rows;
    ++seen[r.lo], --seen[r.hi];
  }
  int64_t by = 0;
  for (const int64_t more : seen) w.keys += (by += more) > 0;
  return w;
}
}  // namespace

AttentionWork attention_work(const AttentionCall& call) {
  if (!call.q_at.is_one() || !call.k_at.is_one()) return work_in_runs(call);
  AttentionWork w;
  const bool is_packed = call.operands.cu_q >= 0;
  // The queries that see a key are neighbours, and so are the keys they see: ranges only move up,
  // by at most one key a query.
  // A whole pack counts as one sequence, which ends with its keys.
  const int64_t starts = call.q_at.start - call.k_at.start;
  const int64_t offset = is_packed && starts == 0 ? call.sk - call.sq : starts;
  int64_t begin = 0, end = call.sq;
  if (call.right >= 0) begin = std::max(begin, -offset - call.right);
  if (call.left >= 0) end = std::min(end, call.sk - offset + call.left);
  if (begin < end && call.sk > 0) {
    w.rows = end - begin;
    const int64_t aligned = begin + offset, right = call.right, left = call.left;
    const Wide to =
        right < 0 ? Wide{w.rows} * call.sk : sum_below(aligned + right + 1, w.rows, call.sk);
    // max(0, x) is -min(-x, 0), and -x rises from that of the last query.
    const Wide from = left < 0 ? 0 : -sum_below(left - (end - 1 + offset), w.rows, 0);
    w.pairs = count_of(to - from);
    const AttentionMask mask(call);
    w.keys = mask.keys(0, end - 1).hi - mask.keys(0, begin).lo;
  }
  if (!is_packed) return w;
  if (call.operands.table >= 0) {
    const int64_t window = call.left < 0 || call.right < 0
                               ? kUncountable
                               : saturating_add(call.left, saturating_add(call.right, 1));
    return {saturating_mul(call.sq, std::min(call.sk, window)), call.sq,
            saturating_mul(call.sk, call.n)};
  }
  // Cut into sequences, no query sees more than in one sequence of the same kind, as long as
  // nothing but the aligned key and the sequence's end limits it on the right.
  if (call.right > 0)
    w.pairs = saturating_mul(
        call.sq, call.left < 0
                     ? call.sk
                     : std::min(call.sk, saturating_add(call.left, saturating_add(call.right, 1))));
  w.rows = call.sq, w.keys = call.sk;
  return w;
}

int64_t score_flops(const AttentionCall& call) {
  return 2 * call.d + 1 + (call.softcap > 0 ? 3 : 0) + (call.operands.bias >= 0 ? 1 : 0) +
         (call.operands.slopes >= 0 ? 2 : 0);
}

int64_t attention_bytes_read(const OpCall& c, const AttentionCall& call,
                             const AttentionWork& work) {
  const AttentionOperands& o = call.operands;
  int64_t read = call.b * (size_bytes(c.in[0].dtype) * work.rows * call.hq * call.d +
                           size_bytes(c.in[1].dtype) * work.keys * call.hk * (call.d + call.dv));
  if (o.bias >= 0) {
    const Type& t = c.in[o.bias];
    const bool per_query = t.shape[2].bound() == call.sq;
    read += size_bytes(t.dtype) * t.shape[0].bound() * t.shape[1].bound() *
            (per_query ? work.pairs : work.keys);
  }
  for (int k : {o.slopes, o.cu_q, o.cu_k, o.seqlens_k, o.table, o.seed})
    if (k >= 0) read += c.in[k].bytes();
  for (size_t k = 0; o.descale >= 0 && k < 3; ++k)
    read += c.in[static_cast<size_t>(o.descale) + k].bytes();
  for (size_t k = 0; o.before >= 0 && k < 2; ++k)
    read += c.in[static_cast<size_t>(o.before) + k].bytes();
  return read;
}

Result<DimMap> attention_dims(const OpCall& c, bool is_bwd) {
  const AttentionOperands o(*c.attrs, is_bwd);
  const bool is_paged = o.table >= 0;
  std::string spec = is_paged ? "q: b sq (hk g) d, k: p r hk d, v: p r hk dv"
                              : "q: b sq (hk g) d, k: b sk hk d, v: b sk hk dv";
  std::string bias;
  if (is_bwd) spec += ", o: b sq (hk g) dv, lse: b (hk g) sq, do: b sq (hk g) dv";
  if (o.bias >= 0) {
    const Shape &s = c.shape(static_cast<size_t>(o.bias)), &q = c.shape(0);
    if (s.rank() != 4 || q.rank() != 4)
      return invalid_argument(cat(c.op->name, ": bias is ", s, ", must be [b|1, hq|1, sq|1, sk]"));
    auto dim = [&](int at, int of_q, const char* name) {
      return s[at] == Dim(1) && !(q[of_q] == Dim(1)) ? "1 " : name;
    };
    bias = cat(dim(0, 0, "b "), dim(1, 2, "(hk g) "), dim(2, 1, "sq "), "sk");
    spec += ", bias: " + bias;
  }
  if (o.slopes >= 0) spec += ", alibi: (hk g)";
  if (o.cu_q >= 0) spec += ", cu_seqlens_q: n";
  if (o.cu_k >= 0) spec += ", cu_seqlens_k: n";
  if (is_paged)
    spec += o.cu_q >= 0 ? ", seqlens_k: s, block_table: s c" : ", seqlens_k: b, block_table: b c";
  if (o.seed >= 0) spec += ", seed:";
  if (o.dlse >= 0) spec += ", dlse: b (hk g) sq";
  for (size_t k = 0; o.descale >= 0 && k < 3; ++k) {
    const Shape& s = c.shape(static_cast<size_t>(o.descale) + k);
    if (s.rank() != 2)
      return invalid_argument(cat(c.op->name, ": descale is ", s, ", must be [b|1, hk|1]"));
    const auto is_one = [&](int at, const Dim& whole) {
      return s[at] == Dim(1) && whole != Dim(1);
    };
    spec += cat(", descale_", "qkv"[k], is_one(0, c.shape(0)[0]) ? ": 1 " : ": b ",
                is_one(1, c.shape(1)[2]) ? "1" : "hk");
  }
  if (o.before >= 0) spec += ", o_before: b sq (hk g) dv, lse_before: b (hk g) sq";
  spec += is_bwd ? " -> b sq (hk g) d, b sk hk d, b sk hk dv" : " -> b sq (hk g) dv, b (hk g) sq";
  if (is_bwd && o.bias >= 0) spec += ", " + bias;
  DimMap m = TEGULA_TRY(solve_dims(c.op->name, spec, c.in));
  auto factor = [&](std::string_view name) -> Factor& { return m.factors[m.find(name)]; };
  if (o.cu_k >= 0) {
    factor("n").whole = true;
    factor("sq").ragged_by = o.cu_q, factor("sk").ragged_by = o.cu_k;
  }
  if (is_paged) {  // a part of some queries or pages would not know its place in a sequence
    for (std::string_view name : {"sq", "p", "r", "c"}) factor(name).whole = true;
    if (o.cu_q >= 0) factor("n").whole = factor("s").whole = true;
  }
  if (o.before >= 0) factor("sk").whole = true;  // what was before would be in each part
  if (o.seed >= 0) factor("g").whole = true;  // a part's heads would not be neighbours in the whole
  m.finish();
  return m;
}

namespace {
// The part of positions [lo, hi).
std::vector<int64_t> part_of(const PositionRuns& p, int64_t lo = 0, int64_t hi = INT64_MAX) {
  if (p.is_one()) return {p.start + lo};
  std::vector<int64_t> part;
  for (size_t r = 0; r < p.runs.size(); r += 3) {
    const int64_t count = p.runs[r + 2];
    const int64_t from = std::clamp<int64_t>(lo, 0, count), to = std::clamp(hi, from, count);
    part.insert(part.end(), {p.runs[r] + from * p.runs[r + 1], p.runs[r + 1], to - from});
    lo -= count, hi -= count;
  }
  return part;
}
}  // namespace

Attrs localize_attention(const OpCall& c, const DimMap& m, int factor, int64_t lo, int64_t hi) {
  const AttentionCall call(c, c.op == &attention_bwd_op);
  const std::string& name = m.factors[factor].name;
  Attrs a = *c.attrs;
  // A value that is absent is taken from the sizes, which are the part's from now on.
  a.set("q_runs", name == "sq" ? part_of(call.q_at, lo, hi) : part_of(call.q_at));
  a.set("k_runs", name == "sk" ? part_of(call.k_given, lo, hi) : part_of(call.k_given));
  if (call.operands.seed < 0) return a;
  const int64_t begin[] = {name == "b" ? lo : 0, name == "hk" ? lo * call.g : 0,
                           name == "sq" ? lo : 0, name == "sk" ? lo : 0};
  std::vector<int64_t> within(call.origin.begin(), call.origin.end());
  for (size_t i = 0; i < 4; ++i) within[i] += begin[i];
  within.insert(within.end(), call.whole.begin(), call.whole.end());
  a.set("within", within);
  return a;
}

double sum_of_e4m3_products(std::span<const double> q, std::span<const double> k) {
  constexpr int kBits = 13;
  const auto power = [](double x) { return x == 0 ? -1000 : std::ilogb(x); };
  const auto cut = [](double x, int unit) {
    return std::ldexp(std::trunc(std::ldexp(x, -unit)), unit);
  };
  double sum = 0;
  for (size_t first = 0; first < q.size(); first += 32) {
    const size_t end = std::min(first + 32, q.size());
    int top = power(sum);
    for (size_t e = first; e < end; ++e) top = std::max(top, power(q[e]) + power(k[e]));
    if (top <= -1000) continue;
    sum = cut(sum, top - kBits);
    for (size_t e = first; e < end; ++e) sum += cut(q[e] * k[e], top - kBits);
    if (sum != 0) sum = cut(sum, power(sum) - kBits);
  }
  return sum;
}

}  // namespace tegula
