#include "tegula/planner/other_kinds.h"

#include "tegula/base/amounts.h"
#include "tegula/base/str.h"
#include "tegula/planner/cluster.h"
#include "tegula/planner/model_presets.h"
#include "tegula/planner/print.h"

namespace tegula::planner {

namespace {

constexpr OtherKind kKinds[] = {
    {"cerebras-wse3",
     "in training weights are streamed from outside through a wafer that holds activations alone, "
     "and gradients stream back",
     "44 GB of SRAM, 21 PB/s, 1.2 Tb/s of links to outside, 125 PFLOP/s with sparsity", "",
     price_weight_streaming, published_weight_streaming},
    {"groq-lpu",
     "no DRAM: weights lie in the SRAM of many chips, and a static schedule passes a token from "
     "chip to chip",
     "230 MB of SRAM a chip, 80 TB/s, 188 TFLOP/s of f16, 750 TOP/s of int8", "",
     price_static_schedule, published_static_schedule},
    {"sambanova-sn40l",
     "three tiers of memory, SRAM, HBM and DDR; whole layers are one dataflow; experts are models "
     "that are switched",
     "638 TFLOP/s of bf16, 520 MB of SRAM, 64 GB of HBM, 1.5 TB of DDR", "", price_three_tiers,
     published_three_tiers},
    {"tenstorrent-wormhole", "attention's scores stay in SRAM spread over a grid of cores",
     "72 cores of 1.5 MB, 12 GB at 288 GB/s, 74 TFLOP/s of f16, 262 of f8 (n150s)", "",
     price_wormhole, published_wormhole},
    {"tenstorrent-grayskull", "as Wormhole, without links",
     "120 cores of 1 MB, 8 GB at 118.4 GB/s, 92 TFLOP/s of f16, 332 of f8 (e150)", "",
     price_grayskull, published_grayskull},
    {"graphcore-gc200",
     "many small local memories and no shared one: computing, exchange and a barrier take turns",
     "900 MB in 1,472 tiles, 47.5 TB/s, 250 TFLOP/s of f16, links of 320 GB/s", "",
     price_local_memories, published_local_memories},
    {"d-matrix", "products within the memory's arrays",
     "2,400 TFLOP/s of 8 bits and 2 GB of SRAM at 150 TB/s a card (Corsair); 60,000 tokens/s of "
     "Llama 3 8B on a server, which its maker projects",
     "a throughput that was measured, and what links between cards reach"},
    {"furiosa", "tensor contractions as the instruction",
     "512 TFLOP/s of f8, 256 of bf16, 1.5 TB/s of HBM3 (RNGD); 3,935 tokens/s of Llama 3.1 8B",
     "the batch of that throughput, without which it is no figure to be held to"},
    {"lightmatter", "light between chips, or products in light", "",
     "peak, bandwidth, or a time that was measured"},
    {"matx", "one large array for language models alone", "",
     "peak, bandwidth, or a time that was measured"},
    {"taalas", "a model's weights are wired into the chip",
     "17,000 tokens/s of Llama 3.1 8B a user (HC1, by its maker)",
     "clock, lanes and the width of what is wired, so that no other model could be priced"}};

}  // namespace

std::span<const OtherKind> other_kinds() { return kKinds; }

const OtherKind* find_other_kind(std::string_view name) {
  for (const OtherKind& k : kKinds)
    if (is_same_name(k.name, name)) return &k;
  return nullptr;
}

std::string why_not_priced(const OtherKind& k) {
  if (k.price)
    return cat(k.name, " executes otherwise (", k.executes,
               "): it has a price of its own, by "
               "--gpus Nx",
               k.name, ", and no layouts that could be compared");
  std::string text = cat(k.name, " is not priced. It executes otherwise: ", k.executes, ".");
  if (!k.known.empty()) text += cat(" Public: ", k.known, ".");
  return text + cat(" No public number was found for: ", k.missing);
}

OtherCluster find_other_cluster(std::string_view text) {
  OtherCluster c;
  if (const size_t x = text.find_first_of("xX"); x != text.npos && x > 0) {
    if (const auto n = read_count(text.substr(0, x), 1, kMostDevices); n.ok())
      c.n = *n, text.remove_prefix(x + 1);
  }
  const OtherKind* kind = find_other_kind(text);
  if (kind && kind->price) c.kind = kind;
  return c;
}

std::string to_text(const PublishedFigure& f) {
  std::string out;
  print(out, "%s: %.4g %s published (%s), %.4g by this model, %+.1f %%; assumed: %s",
        std::string(f.what).c_str(), f.published, std::string(f.unit).c_str(),
        std::string(f.source).c_str(), f.planned, 100 * f.error(), std::string(f.assumed).c_str());
  return out;
}

double tokens_per_s(Result<OtherPrice> (*price)(const ModelSpec&, const ParamCount&, int64_t,
                                                const OtherJob&),
                    std::string_view preset, int64_t n, const OtherJob& job) {
  const ModelSpec model = find_model_preset(preset)->model;
  return 1 / price(model, *count_params(model), n, job)->seconds();
}

double OtherPrice::seconds() const {
  double sum = 0;
  for (const OtherTerm& t : terms)
    if (!t.is_hidden) sum += t.seconds;
  return sum;
}

}  // namespace tegula::planner
