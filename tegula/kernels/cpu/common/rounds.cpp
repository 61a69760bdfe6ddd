#include "tegula/kernels/cpu/common/rounds.h"

#include <cmath>

#include "tegula/kernels/cpu/common/workspace.h"

namespace tegula::kernel {

namespace {
using enum CollectiveKind;

// Bytes that a chain passes on at once, where nothing is known of the link.
constexpr int64_t kSegment = 64 << 10;

bool has_ones_before(const TensorRef& t, int64_t dim) {
  for (int64_t d = 0; d < dim; ++d)
    if (t.shape[d] != 1) return false;
  return true;
}

// Each rank's share is one run.
bool is_flat(CollectiveKind kind, const KernelQuery& q) {
  const TensorRef &x = q.in[0], &y = q.out[0];
  switch (kind) {
    case kScatter:
    case kGather:
    case kAllGather:
    case kReduceScatter:
      return q.attrs->get_or<int64_t>("parts", 1) == 1 && has_ones_before(x, q.attrs->i("dim"));
    case kAllToAll:
      return has_ones_before(x, q.attrs->i("split")) && has_ones_before(y, q.attrs->i("gather"));
    default:
      return true;
  }
}

uint8_t* place_of(const KernelCall& c, SpacePlace p) {
  const int64_t size = size_bytes(c.in[0].dtype);
  uint8_t* base = p.space == Space::kOperand  ? c.in[0].as<uint8_t>()
                  : p.space == Space::kResult ? c.out[0].as<uint8_t>()
                                              : static_cast<uint8_t*>(c.workspace);
  return base + p.at * size;
}

// A vector in segments takes least time where one more saves what its message costs.
int64_t best_segment(int64_t bytes, int64_t n_ranks, const Target& t) {
  if (t.link_s <= 0 || t.link_bytes_per_s <= 0 || n_ranks < 3) return kSegment;
  const double saved = static_cast<double>(bytes) * t.link_s * t.link_bytes_per_s;
  return static_cast<int64_t>(std::sqrt(saved / static_cast<double>(n_ranks - 2)));
}
}  // namespace

const AlgorithmDef* algorithm_of(const Attrs& attrs) {
  const auto name = attrs.get_or<std::string>("algorithm", "");
  return name.empty() ? nullptr : find_algorithm(name);
}

CollectiveJob job_of(CollectiveKind kind, const Attrs& attrs, const TensorRef& in,
                     const TensorRef& out, const Target& target) {
  CollectiveJob job;
  job.kind = kind, job.n_ranks = attrs.i("ranks"), job.root = attrs.get_or<int64_t>("root", 0);
  job.n = std::max(in.numel(), out.numel());
  const int64_t size = size_bytes(in.dtype);
  job.segment = std::max<int64_t>(best_segment(job.n * size, job.n_ranks, target) / size, 16);
  return job;
}

bool supports_rounds(CollectiveKind kind, const KernelQuery& q) {
  const AlgorithmDef* a = algorithm_of(*q.attrs);
  return a && a != find_algorithm("direct") && a->does(kind) && supports_collective(q) &&
         !q.attrs->flag("background") && (q.attrs->i("ranks") == 1 || is_flat(kind, q));
}

int64_t rounds_workspace(CollectiveKind kind, const KernelQuery& q) {
  const AlgorithmDef& a = *algorithm_of(*q.attrs);
  const CollectiveJob job = job_of(kind, *q.attrs, q.in[0], q.out[0], *q.target);
  int64_t most = 0;
  for (int64_t r = 0; a.workspace && r < job.n_ranks; ++r)
    most = std::max(most, a.workspace(job, r));
  return most * size_bytes(q.in[0].dtype);
}

int n_rounds(CollectiveKind kind, const KernelCall& c) {
  const CollectiveJob job = job_of(kind, *c.attrs, c.in[0], c.out[0], *c.target);
  return static_cast<int>(algorithm_of(*c.attrs)->n_rounds(job));
}

void list_round(CollectiveKind kind, const KernelCall& c, int64_t index, int round,
                std::vector<Move>& moves) {
  const AlgorithmDef& a = *algorithm_of(*c.attrs);
  const CollectiveJob job = job_of(kind, *c.attrs, c.in[0], c.out[0], *c.target);
  const int64_t size = size_bytes(c.in[0].dtype);
  if (round == 0)
    claim_workspace(c,
                    rounds_workspace(kind, {c.attrs, c.in, c.out, c.program, c.target, c.tuning}));
  thread_local Round all;
  all.clear();
  a.list(job, index, round, all);
  for (const Take& t : all.takes) {
    moves.push_back(move_of(t.giver, t.from.at * size, t.n * size, place_of(c, t.to)));
    moves.back().of = t.from.space == Space::kOperand  ? Move::kOperand
                      : t.from.space == Space::kResult ? Move::kResult
                                                       : Move::kWorkspace;
  }
}

void finish_round(CollectiveKind kind, const KernelCall& c, int64_t index, int round) {
  const AlgorithmDef& a = *algorithm_of(*c.attrs);
  const CollectiveJob job = job_of(kind, *c.attrs, c.in[0], c.out[0], *c.target);
  const DType dtype = c.in[0].dtype;
  const int64_t size = size_bytes(dtype);
  const auto combine = c.attrs->get_or<std::string>("combine", "sum");
  thread_local Round all;
  all.clear();
  a.list(job, index, round, all);
  const uint8_t* terms[kMostRanks];
  for (const Sum& s : all.sums) {
    TEGULA_CHECK(s.n_terms <= kMostRanks, "a sum of ", s.n_terms, " terms");
    for (size_t i = 0; i < s.n_terms; ++i) terms[i] = place_of(c, all.terms[s.first_term + i]);
    uint8_t* to = place_of(c, s.to);
    in_parts(*c.pool, 0, s.n, [&](int64_t from, int64_t n) {
      const uint8_t* here[kMostRanks];
      for (size_t i = 0; i < s.n_terms; ++i) here[i] = terms[i] + from * size;
      reduce_terms(dtype, combine, {here, s.n_terms}, n, to + from * size);
    });
  }
  if ((kind == kReduce || kind == kGather) && round == 0 && index != job.root)
    std::memset(c.out[0].data, 0, static_cast<size_t>(job.n * size));
}

}  // namespace tegula::kernel
