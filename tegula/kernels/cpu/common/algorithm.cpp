#include "tegula/kernels/cpu/common/algorithm.h"

#include "tegula/kernels/cpu/common/algorithms/all.h"

namespace tegula {

namespace {
constexpr const AlgorithmDef* kAll[] = {&direct_algorithm, &mst_algorithm, &ring_algorithm,
                                        &halving_algorithm};
constexpr std::string_view kNames[] = {"broadcast", "scatter",        "gather",     "all_gather",
                                       "reduce",    "reduce_scatter", "all_reduce", "all_to_all"};
}  // namespace

int64_t CollectiveJob::begin(int64_t rank) const {
  if (sizes.empty()) return n * rank / n_ranks;
  int64_t at = 0;
  for (int64_t r = 0; r < rank; ++r) at += sizes[static_cast<size_t>(r)];
  return at;
}
int64_t CollectiveJob::size(int64_t from, int64_t to) const {
  return sizes.empty() ? size(to) : sizes[static_cast<size_t>(from * n_ranks + to)];
}
int64_t CollectiveJob::in_operand(int64_t from, int64_t to) const {
  int64_t at = 0;
  for (int64_t r = 0; r < to; ++r) at += size(from, r);
  return at;
}
int64_t CollectiveJob::in_result(int64_t from, int64_t to) const {
  int64_t at = 0;
  for (int64_t r = 0; r < from; ++r) at += size(r, to);
  return at;
}

std::span<const AlgorithmDef* const> all_algorithms() { return kAll; }

const AlgorithmDef* find_algorithm(std::string_view name) {
  for (const AlgorithmDef* a : kAll)
    if (a->name == name) return a;
  return nullptr;
}

std::string_view kind_name(CollectiveKind kind) { return kNames[static_cast<size_t>(kind)]; }

bool is_exact(const AlgorithmDef& a, CollectiveKind kind) {
  const bool adds = kind == CollectiveKind::kReduce || kind == CollectiveKind::kReduceScatter ||
                    kind == CollectiveKind::kAllReduce;
  return a.does(kind) && !(adds && a.adds_on_the_way);
}

int64_t rounds_of_tree(int64_t n_ranks) {
  int64_t rounds = 0;
  while (int64_t{1} << rounds < n_ranks) ++rounds;
  return rounds;
}

}  // namespace tegula
