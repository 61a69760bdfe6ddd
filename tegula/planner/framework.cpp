#include "tegula/planner/framework.h"

#include "tegula/base/str.h"

namespace tegula::planner {

namespace {

// Whole logits: two bytes, and four of log-softmax, of its gradient and of theirs (PyTorch's
// cross_entropy of logits in f32): at the beginning of backward three times four are alive. Read
// and written: to f32 6, log-softmax 8; backward 4 of zeros, 12 and 6.
constexpr double kTorchLogits = 12, kTorchLossForward = 14, kTorchLossBackward = 26;
// Vocabulary-parallel cross-entropy keeps the exponentials in place of the f32 logits.
constexpr double kMegatronLogits = 8, kMegatronLossForward = 14, kMegatronLossBackward = 10;
// Collectives take multiprocessors and bandwidth from what they hide behind: NCCL some 24 to 32 of
// 132.
constexpr double kMostly = 0.75;

constexpr Framework torch(std::string_view name, bool one_by_one, bool is_sharded,
                          int norm_passes = 1) {
  Framework f;
  f.name = name, f.one_by_one = one_by_one, f.keeps_like_torch = true;
  f.norm_passes = norm_passes, f.has_f32_weights = true, f.is_sharded = is_sharded;
  f.logit_bytes = kTorchLogits;
  f.loss_forward = kTorchLossForward, f.loss_backward = kTorchLossBackward;
  f.hides = kMostly;
  return f;
}

constexpr Framework torchtitan() {
  Framework f = torch("torchtitan", false, true);
  f.counts_ends = true;
  return f;
}

constexpr Framework fused(std::string_view name, double gradient_bytes, double hides) {
  Framework f;
  f.name = name, f.gradient_bytes = gradient_bytes, f.hides = hides;
  f.logit_bytes = kMegatronLogits;
  f.loss_forward = kMegatronLossForward, f.loss_backward = kMegatronLossBackward;
  return f;
}

constexpr Framework kFrameworks[] = {
    {.name = "tegula"},
    torch("torch", true, false),
    torch("torch-compile", false, false),
    torch("transformers", true, false, 4),
    torch("fsdp", true, true),
    torchtitan(),
    fused("megatron", 4, 0),
    fused("deepspeed", 2, kMostly),
};

}  // namespace

Result<const Framework*> find_framework(std::string_view name) {
  if (name.empty()) return nullptr;
  std::string list;
  for (const Framework& f : kFrameworks) {
    if (f.name == name) return &f;
    list += cat(list.empty() ? "" : "|", f.name);
  }
  return invalid_argument(cat("--framework ", name, ": must be one of ", list));
}

}  // namespace tegula::planner
