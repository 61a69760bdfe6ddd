// The logits of each text's last token, and what their log-probabilities need.
//
//   log p(v) = logits[v] - lse,  lse = log sum_v e^logits[v]
// Both have the bits of the loss's terms (hidden_losses in models/model.h), lse - logits[target]:
// logits are one chain each in any mode, and lse is in the order of the loss's op. [n, vocab_size]
// and [n], f32.
#pragma once

#include "tegula/models/model.h"

namespace tegula {

struct LastLogits {
  Var logits, lse;  // lse: invalid if it is not wanted
};
LastLogits last_logits(Context& c, const ModelDef& model, Var tokens, bool wants_lse);

}  // namespace tegula
