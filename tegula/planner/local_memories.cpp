#include <cmath>

#include "tegula/planner/layer_work.h"
#include "tegula/planner/other_price.h"

namespace tegula::planner {

namespace {

struct Tiles {
  double tiles, tile_bytes, peak, exchange, barrier;
};
// Data sheets; 124.5 TFLOP/s, 1,216 tiles and 304 MiB of GC2 as in Jia et al. 2019. Exchange of all
// tiles together and a barrier of some 200 cycles are that report's from memory, not found again.
constexpr Tiles kGc2{1216, 256 * 1024, 124.5e12, 7.7e12, 130e-9};
constexpr Tiles kGc200{1472, 624 * 1024, 250e12, 7.8e12, 150e-9};
constexpr double kLink = 160e9;  // GC200, to its neighbours, one way

// C [m, n] = A [m, k]·B [k, n] of 2 bytes: each tile makes a block of C, and its strips of A and B
// come through the exchange in as many supersteps as its memory needs (half of it for operands).
double product_seconds(const Tiles& t, double m, double k, double n) {
  const double side = std::sqrt(m * n / t.tiles);  // of a block
  const double strips = 2 * k * 2 * side;          // bytes of a tile
  const double supersteps = std::ceil(strips / (t.tile_bytes / 2));
  return 2 * m * k * n / t.peak + strips * t.tiles / t.exchange + supersteps * t.barrier;
}

}  // namespace

Result<OtherPrice> price_local_memories(const ModelSpec& model, const ParamCount& params, int64_t n,
                                        const OtherJob& job) {
  if (!job.serve)
    return unsupported(
        "graphcore-gc200 is priced for serving: add --serve. How long recomputing pipelines wait "
        "for memory outside is not public");
  OtherPrice p;
  p.of = "a token of every sequence";
  p.memory_bytes = kGc200.tiles * kGc200.tile_bytes;
  const double caches = job.batch * job.keys * kv_bytes_per_token(model, 2);
  p.memory_needed = (2.0 * real(params.total) + caches) / real(n);
  if (p.memory_needed > p.memory_bytes)
    return unsupported(cat(model.name, " takes ",
                           static_cast<int64_t>(p.memory_needed * real(n) / 1e6),
                           " MB in the memories of ", n, " devices, which have 940 each: take ",
                           static_cast<int64_t>(p.memory_needed * real(n) / p.memory_bytes) + 1));
  // Layers in a row over the devices, so a token passes them one after another.
  const double h = real(model.d_model), q = real(model.q_width()), kv = real(model.kv_width());
  const double f = real(model.d_ff), matrices = real(model.n_ff_matrices);
  const double b = job.batch;
  const double layer =
      product_seconds(kGc200, b, h, q + 2 * kv) + product_seconds(kGc200, b, q, h) +
      (matrices - 1) * product_seconds(kGc200, b, h, f) + product_seconds(kGc200, b, f, h) +
      4 * b * job.keys * q / kGc200.peak + 2 * kGc200.barrier;
  const double head = product_seconds(kGc200, b, h, real(model.vocab_size));
  p.terms = {{"layers: products, exchange and barriers", real(model.n_layers) * layer, false},
             {"head", head, false},
             {"from device to device", real(n - 1) * 2 * b * h / kLink, false}};
  p.assumed = {"exchange of 7.8 TB/s, barriers of 150 ns (from memory)",
               "layers in a row over the devices, all weights in the tiles' memories"};
  return p;
}

PublishedFigure published_local_memories() {
  constexpr double kSide = 2944;
  return {"a product of 2944³ in mixed precision on GC2",
          "TFLOP/s",
          "Jia et al. 2019, from memory, not found again",
          "square blocks, operands through the exchange once",
          58.9,
          2 * kSide * kSide * kSide / product_seconds(kGc2, kSide, kSide, kSide) / 1e12};
}

}  // namespace tegula::planner
