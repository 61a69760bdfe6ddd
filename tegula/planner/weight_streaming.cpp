
#include "tegula/planner/layer_work.h"
#include "tegula/planner/other_price.h"

namespace tegula::planner {

namespace {

// CS-3, from memory of its data sheet: 125 PFLOP/s count sparsity of the weights eightfold and a
// little; dense f16 is taken as twice WSE-2's 7.5.
constexpr double kPeak = 15e15, kReached = 0.75;
constexpr double kSramBytes = 44e9, kLinkBytes = 150e9;  // twelve links of 100 Gb/s

}  // namespace

Result<OtherPrice> price_weight_streaming(const ModelSpec& model, const ParamCount& params,
                                          int64_t n, const OtherJob& job) {
  if (job.serve)
    return unsupported(
        "cerebras-wse3 is priced for training, where weights are streamed. Decoding keeps them in "
        "SRAM and is bound by the latency of a layer across the wafer, for which no public number "
        "was found");
  OtherPrice p;
  p.of = "a training step";
  const double tokens = job.tokens / real(n), bytes = 2.0 * real(params.total);
  const double compute = tokens * token_flops(model, job.keys).train() / (kPeak * kReached);
  const double streamed = 3 * bytes / kLinkBytes;
  const bool is_streaming = streamed > compute;
  p.terms = {{"products, a share of the batch each", compute, is_streaming},
             {"weights in for forward and backward, gradients out", streamed, !is_streaming}};
  p.assumed = {"15 PFLOP/s of dense f16, of which .75 is reached", "a link of 150 GB/s a system",
               "the fabric copies weights and adds gradients at the link's rate"};
  p.memory_bytes = kSramBytes;
  // One layer's weights on their way, and what a layer keeps of the tokens that are within.
  p.memory_needed = 2 * real(params.layer);
  return p;
}

PublishedFigure published_weight_streaming() {
  ModelSpec m;  // a trillion parameters, GPT-3's form
  m.n_layers = 128, m.d_model = 25600, m.n_heads = m.n_kv_heads = 160, m.head_dim = 160;
  m.d_ff = 4 * m.d_model, m.vocab_size = 51200, m.is_tied = true;
  const auto params = count_params(m);
  const auto seconds = [&](int64_t n) {
    const OtherJob job{false, 256.0 * 2048 * static_cast<double>(n), 1, 2048, Number::kBf16};
    return price_weight_streaming(m, *params, n, job)->seconds();
  };
  return {"a trillion parameters on 16 systems against one",
          "times as fast",
          "Cerebras and Sandia National Laboratories, 2024-12-10",
          "each system keeps its batch of 256 sequences; nothing of the fabric is lost",
          15.3,
          16 * seconds(1) / seconds(16)};
}

}  // namespace tegula::planner
