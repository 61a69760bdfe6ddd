// Collectives by an algorithm that is data (algorithm.h), round by round: the kernels *_rounds.
#pragma once

#include "tegula/kernels/cpu/common/algorithm.h"
#include "tegula/kernels/cpu/common/collective.h"

namespace tegula::kernel {

// The node's attribute "algorithm"; null: it has none.
const AlgorithmDef* algorithm_of(const Attrs& attrs);
// The work of a call's group, in elements. Shares that are several runs are not served.
CollectiveJob job_of(CollectiveKind kind, const Attrs& attrs, const TensorRef& in,
                     const TensorRef& out, const Target& target);
// Does an algorithm other than direct serve the call?
bool supports_rounds(CollectiveKind kind, const KernelQuery& q);
// The most of any rank.
int64_t rounds_workspace(CollectiveKind kind, const KernelQuery& q);
int n_rounds(CollectiveKind kind, const KernelCall& c);
void list_round(CollectiveKind kind, const KernelCall& c, int64_t index, int round,
                std::vector<Move>& moves);
void finish_round(CollectiveKind kind, const KernelCall& c, int64_t index, int round);

// The functions of a kernel of one kind.
template <CollectiveKind kind>
struct Rounds {
  static bool supports(const KernelQuery& q) { return supports_rounds(kind, q); }
  static int64_t workspace(const KernelQuery& q) { return rounds_workspace(kind, q); }
  static constexpr CollectiveMoves kMoves = {
      .n_rounds = [](const KernelCall& c) { return n_rounds(kind, c); },
      .list = [](const KernelCall& c, int64_t index, int round,
                 std::vector<Move>& moves) { list_round(kind, c, index, round, moves); },
      .finish = [](const KernelCall& c, int64_t index,
                   int round) { finish_round(kind, c, index, round); }};
  static void launch(const KernelCall& c) {
    if (!keeps_alone(c)) static_cast<const DeviceCall&>(c).peers->exchange(c, kMoves);
  }
};

// The descriptor of kernel `name`.
template <CollectiveKind kind>
constexpr KernelDef rounds_kernel(std::string_view name, std::string_view op,
                                  std::string_view order, std::string_view doc) {
  using By = Rounds<kind>;
  return {.name = name,
          .op = op,
          .order = order,
          .doc = doc,
          .priority = 1,
          .supports = By::supports,
          .workspace_bytes = By::workspace,
          .launch = By::launch,
          .moves = &By::kMoves};
}

}  // namespace tegula::kernel
