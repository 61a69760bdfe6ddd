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
// Collectives take multiprocessors and bandwidth from what they hide behind. Messages of 32 MiB to
// 1 GiB of NCCL beside products, copies and both on two H200 (bench/layouts_torch.py --part host).
constexpr double kHides = 0.68, kStartBeside = 40e-6;
constexpr double kDdpBucket = 25 << 20, kDeepspeedBucket = 5e8 * 2;  // their defaults

constexpr double kShardedFactor = 1.05, kDeepspeedFactor = 1.15;

constexpr double kGaps = 1.12, kGapsOfGathers = 1.2;  // reserve.h

constexpr Framework torch(std::string_view name, bool one_by_one, bool is_sharded) {
  Framework f;
  f.name = name, f.one_by_one = one_by_one, f.keeps_like_torch = true;
  f.has_f32_weights = true, f.is_sharded = is_sharded;
  f.logit_bytes = kTorchLogits, f.fragmentation = is_sharded ? kGapsOfGathers : kGaps;
  f.loss_forward = kTorchLossForward, f.loss_backward = kTorchLossBackward;
  f.hides = kHides, f.start_beside_s = kStartBeside;
  f.factor = is_sharded ? kShardedFactor : 1;
  if (!is_sharded) f.message_bytes = kDdpBucket;
  return f;
}

constexpr Framework transformers() {
  Framework f = torch("transformers", true, false);
  f.in_steps = true;
  return f;
}

constexpr Framework torchtitan() {
  Framework f = torch("torchtitan", false, true);
  f.counts_ends = true, f.selective = Selective::kProducts;
  return f;
}

constexpr double kMatrices = 4;  // of a layer; what is smaller than 10^5 elements stays whole

constexpr Framework fused(std::string_view name, double gradient_bytes, double hides,
                          double factor = 1) {
  Framework f;
  f.name = name, f.gradient_bytes = gradient_bytes, f.hides = hides;
  f.start_beside_s = kStartBeside, f.message_bytes = kDeepspeedBucket, f.factor = factor;
  f.gathers_a_layer = kMatrices;
  f.logit_bytes = kMegatronLogits, f.fragmentation = kGaps;
  f.loss_forward = kMegatronLossForward, f.loss_backward = kMegatronLossBackward;
  return f;
}

constexpr Framework kFrameworks[] = {
    {.name = "tegula"},
    torch("torch", true, false),
    torch("torch-compile", false, false),
    transformers(),
    torch("fsdp", true, true),
    torchtitan(),
    fused("megatron", 4, 0),
    fused("deepspeed", 2, kHides, kDeepspeedFactor),
};

}  // namespace

Selective selective_of(const Framework* f, bool flash) {
  if (f && f->selective != Selective::kUsual) return f->selective;
  return flash ? Selective::kNorms : Selective::kScores;
}

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
