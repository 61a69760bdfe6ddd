// The order of batches as a file says it, so that another program can see the same data:
// `tegula train --batches FILE`.
//
// One line a batch (a micro-batch, with --accumulate), in the order in which they are trained on:
// for each of its sequences the place of its first token in the training split, counted from 0, as
// whole numbers with spaces or commas between. A sequence reads seqlen tokens from there, its
// targets stand one later. Empty lines and lines that begin with # are passed over. Lines beyond
// the last step are not used. The tokens are those of `tegula encode`.
//
// Errors name file and line: what is no number, another count of numbers than --batch, a place
// whose sequence and last target do not lie in the training split; and fewer batches than
// --steps times --accumulate.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tegula/base/result.h"

namespace tegula {

struct BatchOrder {
  int64_t batch = 0;
  std::vector<int64_t> places;  // of all batches, one after another

  int64_t n_batches() const { return static_cast<int64_t>(places.size()) / batch; }
  std::span<const int64_t> of(int64_t index) const {
    return std::span(places).subspan(static_cast<size_t>(index * batch),
                                     static_cast<size_t>(batch));
  }
};

// Describes what a batch must be, and how many there must be at least.
struct BatchShape {
  int64_t batch = 0, seqlen = 0;
  int64_t n_tokens = 0;  // of the training split
  int64_t steps = 0, accumulate = 1;
};

// `path` is for messages.
Result<BatchOrder> parse_batches(std::string_view text, std::string_view path,
                                 const BatchShape& shape);

}  // namespace tegula
