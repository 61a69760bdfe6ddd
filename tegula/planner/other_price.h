// The time that a step takes on an accelerator of another kind: its terms, and the figure that the
// same function is held against. The models stand in the .cpp of each kind; none is fitted to its
// figure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tegula/cost/accelerator.h"
#include "tegula/planner/model.h"

namespace tegula::planner {

struct OtherJob {
  bool serve = false;
  double tokens = 0;  // training: of a step, all devices
  double batch = 1;   // serving: sequences that decode at once
  double keys = 0;    // tokens that attention sees
  Number dtype = Number::kBf16;
};

struct OtherTerm {
  std::string what;
  double seconds = 0;
  bool is_hidden = false;  // behind the others
};

struct OtherPrice {
  std::string of;  // "a training step", "a token of every sequence"
  std::vector<OtherTerm> terms;
  std::vector<std::string> assumed;
  double memory_bytes = 0, memory_needed = 0;  // of one device
  double seconds() const;                      // of the terms that are not hidden
};

// A figure that others have published, and the same from the kind's own model.
struct PublishedFigure {
  std::string_view what, unit, source, assumed;
  double published = 0, planned = 0;
  double error() const { return planned / published - 1; }
};

// Tokens a second of each sequence, of a preset by a price of serving below.
double tokens_per_s(Result<OtherPrice> (*price)(const ModelSpec&, const ParamCount&, int64_t,
                                                const OtherJob&),
                    std::string_view preset, int64_t n, const OtherJob& job);

// Weights are streamed from outside through a wafer that holds activations alone; gradients stream
// back. Forward and backward read them once each:
//   step = max(6·N·tokens/n / (.75·peak), 3·bytes(N) / link)
// over n systems that take a share of the batch each, since the fabric copies weights to all of
// them and adds their gradients on the way. [Lie 2022]
Result<OtherPrice> price_weight_streaming(const ModelSpec& model, const ParamCount& params,
                                          int64_t n, const OtherJob& job);
PublishedFigure published_weight_streaming();

// No DRAM: n chips hold the weights in SRAM, L layers in a row over groups of g = n/L chips, and
// what every cycle does is fixed when the program is compiled. A token of every sequence passes
//   L·(bytes of a layer/(g·SRAM rate) + 2 all-reduces of 2 exchanges + 6 products that wait for one
//   another) + an exchange between groups
// Bytes alone do not decide: of the figures published for Llama 2 the one of 7B is 2.5 times the
// one of 70B, as its layers are 2.5 times fewer and its bytes ten times. [Abts et al. 2020, 2022]
Result<OtherPrice> price_static_schedule(const ModelSpec& model, const ParamCount& params,
                                         int64_t n, const OtherJob& job);
PublishedFigure published_static_schedule();

// SRAM, HBM and DDR: a model that is asked for is copied from DDR to HBM (a switch), then read from
// HBM for every token; whole layers are one pipeline, so that activations never leave SRAM.
//   switch = bytes(N)/(n·DDR rate),   token = bytes read/(n·.9·HBM rate) + 2·L collectives
// [Prabhakar et al. 2024]
Result<OtherPrice> price_three_tiers(const ModelSpec& model, const ParamCount& params, int64_t n,
                                     const OtherJob& job);
PublishedFigure published_three_tiers();

// A grid of cores, each with SRAM of its own beside DRAM that all share: weights come from DRAM,
// and attention's scores stay in SRAM where a head's block of them fits, else they are written and
// read again.
//   token = (weights + caches + scores that do not fit, twice)/(.9·DRAM rate) or products, the
//   longer
// [Thüning 2024]
Result<OtherPrice> price_wormhole(const ModelSpec& model, const ParamCount& params, int64_t n,
                                  const OtherJob& job);
PublishedFigure published_wormhole();
Result<OtherPrice> price_grayskull(const ModelSpec& model, const ParamCount& params, int64_t n,
                                   const OtherJob& job);
PublishedFigure published_grayskull();
// Softmax of n·n scores of two bytes on Grayskull, in SRAM behind their product or by itself.
struct SoftmaxTime {
  double exponentials_s = 0, passes_s = 0, dram_s = 0;
  double seconds() const { return exponentials_s + passes_s + dram_s; }
};
SoftmaxTime grayskull_softmax(double n, bool is_fused);

// Many small local memories, no shared one: bulk-synchronous. All tiles compute, then all exchange,
// then all wait for each other.
//   product = Σ supersteps of flops/peak + operands that other tiles hold/exchange rate + barrier
// [Valiant 1990; Jia et al. 2019]
Result<OtherPrice> price_local_memories(const ModelSpec& model, const ParamCount& params, int64_t n,
                                        const OtherJob& job);
PublishedFigure published_local_memories();

}  // namespace tegula::planner
