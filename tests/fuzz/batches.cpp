// Orders of batches: what is taken has as many places as it must, all within the split.
#include "tegula/train/batches.h"

#include "tests/fuzz/target.h"

namespace tegula::fuzz {

namespace {

bool run(std::string_view input) {
  const BatchShape shape{2, 12, 100, 1, 2};
  const auto order = parse_batches(input, "batches.txt", shape);
  if (!order.ok()) return false;
  TEGULA_CHECK(order->n_batches() >= shape.steps * shape.accumulate);
  TEGULA_CHECK(order->n_batches() * shape.batch == static_cast<int64_t>(order->places.size()));
  for (const int64_t place : order->places)
    TEGULA_CHECK(place >= 0 && place + shape.seqlen < shape.n_tokens);
  return true;
}

}  // namespace

extern constinit const Target batches_target{"batches", run};

}  // namespace tegula::fuzz
