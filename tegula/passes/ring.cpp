#include "tegula/passes/ring.h"

#include "tegula/base/range.h"
#include "tegula/ops/collective.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"

namespace tegula {

namespace {

int factor_named(const DimMap& m, std::string_view name) {
  for (size_t f = 0; f < m.factors.size(); ++f)
    if (m.factors[f].name == name) return static_cast<int>(f);
  return -1;
}

bool has_factor(const std::vector<DimExpr>& dims, int factor) {
  return any_of(dims, [&](const DimExpr& e) {
    return any_of(e.terms, [&](const DimTerm& t) { return t.factor == factor; });
  });
}

// The run that is not empty, if there is but one; else none.
std::span<const int64_t> only_run(std::span<const int64_t> positions) {
  std::span<const int64_t> only;
  if (positions.size() % 3 != 0) return only;
  for (size_t r = 0; r < positions.size(); r += 3) {
    if (positions[r + 2] == 0) continue;
    if (!only.empty()) return {};
    only = positions.subspan(r, 3);
  }
  return only;
}

// Stripes see each other as rows that lie in order do: of queries r, r + n, … and keys j, j + n, …
// the i-th query sees the keys up to the i-th where j <= r, else up to the one before. So the call
// is a plain causal one, at most a token further on. [Brandon et al. 2023, section 3.1]
void make_plain(Attrs& a) {
  if (!a.flag("is_causal") || a.get_or<int64_t>("window_left", -1) >= 0 || a.flag("alibi")) return;
  const std::span<const int64_t> q = only_run(a.ints("q_runs")), k = only_run(a.ints("k_runs"));
  if (q.empty() || k.empty()) return;
  const int64_t stride = q[1], apart = q[0] - k[0];
  if (stride <= 1 || k[1] != stride || apart >= stride || apart < -stride) return;
  a.set("q_runs", std::vector<int64_t>{0});
  a.set("k_runs", std::vector<int64_t>{apart < 0 ? 1 : 0});
}

// The call of rank r's queries and rank j's keys.
Result<LocalCall> part_of_ring(const LocalCall& whole, int64_t n, int64_t r, int64_t j) {
  LocalCall part = whole;
  const DimMap map = TEGULA_TRY(dim_map(whole.call()));
  const RingFactors f = ring_factors(whole, map, n);
  TEGULA_TRY(part.cut({AxisCut::kAlong, f.queries, 1}, n, r, &map));
  TEGULA_TRY(part.cut({AxisCut::kAlong, f.keys, 1}, n, j));
  make_plain(part.attrs);
  return part;
}

// Who sees whose keys: sees[r][j].
using Sees = std::vector<std::vector<uint8_t>>;
Result<Sees> who_sees(const LocalCall& call, int64_t n) {
  Sees sees(static_cast<size_t>(n), std::vector<uint8_t>(static_cast<size_t>(n)));
  for (int64_t r = 0; r < n; ++r)
    for (int64_t j = 0; j < n; ++j) {
      const LocalCall part = TEGULA_TRY(part_of_ring(call, n, r, j));
      sees[r][j] = flops_of(part.call()) > 0;
    }
  return sees;
}

// From whom each rank gets the block of keys that it attends to in a step.
std::vector<int64_t> passed_on(const Sees& sees, int64_t step) {
  const auto n = static_cast<int64_t>(sees.size());
  std::vector<int64_t> from(sees.size(), -1);
  for (int64_t r = 0; r < n; ++r) {
    const int64_t block = (r - step + n) % n;
    for (int64_t later = step; later < n; ++later)
      if (sees[(block + later) % n][block]) from[r] = (r + n - 1) % n;
  }
  return from;
}

// Who sends each rank what a step found for its keys.
std::vector<int64_t> sent_home(const Sees& sees, int64_t step) {
  const auto n = static_cast<int64_t>(sees.size());
  std::vector<int64_t> from(sees.size(), -1);
  for (int64_t j = 0; j < n; ++j) {
    const int64_t r = (j + step) % n;
    if (sees[r][j]) from[j] = r;
  }
  return from;
}

int64_t n_sent(const std::vector<int64_t>& from) {
  return std::count_if(from.begin(), from.end(), [](int64_t giver) { return giver >= 0; });
}

class Ring {
 public:
  Ring(Builder& b, const LocalCall& call, std::span<const Var> in, const Group& group,
       int64_t index, Sees sees)
      : b_(b), call_(call), in_(in), group_(group), index_(index), sees_(std::move(sees)) {}

  Result<std::vector<Var>> run() {
    Var k = in_[1], v = in_[2];
    for (int64_t step = 0; step < group_.n_ranks; ++step) {
      Var next_k, next_v;
      if (step + 1 < group_.n_ranks) {
        const std::vector<int64_t> from = passed_on(sees_, step + 1);
        next_k = send_recv(k, group_, from), next_v = send_recv(v, group_, from);
      }
      LocalCall part = TEGULA_TRY(part_of_ring(call_, group_.n_ranks, index_,
                                               (index_ - step + group_.n_ranks) % group_.n_ranks));
      std::vector<Var> in(in_.begin(), in_.end());
      in[1] = k, in[2] = v;
      if (call_.op == &attention_op) {
        go_on(part, in, step);
      } else {
        part.attrs.set("part", std::string("middle"));
        add(b_.emit_n(*call_.op, part.attrs, in), step);
      }
      k = next_k, v = next_v;
    }
    if (call_.op == &attention_op) return sum_;
    add_from_others();
    for (size_t r = 0; r < sum_.size(); ++r) sum_[r] = cast(sum_[r], call_.out[r].dtype);
    return sum_;
  }

 private:
  // Attention to one more block, from the o and lse of those before; what others follow is f32.
  void go_on(const LocalCall& part, std::vector<Var> in, int64_t step) {
    const bool is_last = step + 1 == group_.n_ranks && call_.out[0].dtype == call_.in[0].dtype;
    Attrs attrs = part.attrs;
    attrs.set("part", std::string(step == 0 ? "first" : is_last ? "last" : "middle"));
    in.insert(in.end(), sum_.begin(), sum_.end());
    sum_ = b_.emit_n(*call_.op, std::move(attrs), in);
  }

  // dQ stays; dK and dV of another one's keys are on their way home during the next step.
  void add(const std::vector<Var>& found, int64_t step) {
    if (step == 0) {
      sum_ = found;
      return;
    }
    sum_[0] = sum_[0] + found[0];
    add_from_others();
    const std::vector<int64_t> from = sent_home(sees_, step);
    if (n_sent(from) > 0)
      coming_ = {send_recv(found[1], group_, from), send_recv(found[2], group_, from)};
  }
  void add_from_others() {
    for (size_t k = 0; k < coming_.size(); ++k) sum_[k + 1] = sum_[k + 1] + coming_[k];
    coming_.clear();
  }

  Builder& b_;
  const LocalCall& call_;
  std::span<const Var> in_;
  const Group group_;
  const int64_t index_;
  const Sees sees_;
  std::vector<Var> sum_;     // results so far, f32
  std::vector<Var> coming_;  // dK and dV of the step before
};

}  // namespace

RingFactors ring_factors(const LocalCall& c, const DimMap& m, int64_t n) {
  if (c.op != &attention_op && c.op != &attention_bwd_op) return {};
  const RingFactors f = {factor_named(m, "sq"), factor_named(m, "sk")};
  if (f.queries < 0 || f.keys < 0) return {};
  for (size_t k = 0; k < m.operands.size(); ++k) {
    const bool is_key = k == 1 || k == 2;
    if (has_factor(m.operands[k], f.keys) != is_key) return {};
    if (is_key && has_factor(m.operands[k], f.queries)) return {};
  }
  for (const int factor : {f.queries, f.keys}) {
    const Factor& of = m.factors[factor];
    const bool can = !of.whole && of.index_operand < 0 && of.ragged_by < 0 && of.size.is_const() &&
                     of.size.bound() > 0 && of.size.bound() % n == 0;
    if (!can) return {};
  }
  return f;
}

Result<RingTransfers> ring_transfers(const LocalCall& call, int64_t n) {
  const Sees sees = TEGULA_TRY(who_sees(call, n));
  RingTransfers t;
  for (int64_t step = 1; step < n; ++step) {
    t.n_blocks += n_sent(passed_on(sees, step));
    if (call.op == &attention_bwd_op) t.n_gradients += n_sent(sent_home(sees, step));
  }
  return t;
}

Result<std::vector<Var>> emit_ring(Builder& b, const LocalCall& call, std::span<const Var> in,
                                   std::string_view axis, int64_t n, int64_t index) {
  Sees sees = TEGULA_TRY(who_sees(call, n));
  return Ring(b, call, in, {axis, n, true}, index, std::move(sees)).run();
}

}  // namespace tegula
