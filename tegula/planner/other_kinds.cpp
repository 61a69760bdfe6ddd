#include "tegula/planner/other_kinds.h"

#include <cctype>

#include "tegula/base/str.h"

namespace tegula::planner {

namespace {

constexpr OtherKind kKinds[] = {
    {"cerebras-wse3",
     "weights are streamed from outside (training) or lie in the wafer's SRAM (decoding); no DRAM "
     "beside it",
     "44 GB of SRAM, 21 PB/s, 1.2 Tb/s of links to outside",
     "the latency of a layer across the wafer; by bandwidth alone a token takes a small part of "
     "the "
     "published time"},
    {"groq-lpu",
     "no DRAM: weights lie in the SRAM of many chips, and a static schedule passes a token from "
     "chip "
     "to chip",
     "230 MB of SRAM a chip, 80 TB/s, 188 TFLOP/s of f16, 750 TOP/s of int8",
     "the latency of a hop between chips and of a product of one row, which decide its rate"},
    {"sambanova-sn40l",
     "three tiers of memory, SRAM, HBM and DDR; whole layers are one dataflow; experts are models "
     "that "
     "are switched",
     "638 TFLOP/s of bf16, 520 MB of SRAM, 64 GB of HBM, 1.5 TB of DDR",
     "the bandwidth of a socket's HBM in its data sheet"},
    {"tenstorrent-grayskull", "attention's scores stay in SRAM spread over a grid of cores",
     "a fused kernel 1.8 times as fast as softmax alone (Thüning 2024)",
     "operations and bytes a second of a core"},
    {"tenstorrent-wormhole", "as Grayskull, with links between chips", "",
     "operations and bytes a second of a core, and of a link"},
    {"graphcore-gc200",
     "many small local memories and no shared one: computing and exchange take turns",
     "900 MB in 1,472 tiles, 47.5 TB/s, 250 TFLOP/s of f16, links of 320 GB/s",
     "how long a synchronisation of all tiles takes"},
    {"d-matrix", "products within the memory's arrays", "", "peak, memory and bandwidth"},
    {"furiosa", "tensor contractions as the instruction", "", "peak and bandwidth of a chip"},
    {"lightmatter", "light between chips, or products in light", "", "anything that is measured"},
    {"matx", "one large array for language models alone", "", "anything that is measured"},
    {"taalas", "a model's weights are wired into the chip", "", "anything that is measured"}};

std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name)
    if (c != '-' && c != '_' && c != ' ')
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

std::span<const OtherKind> other_kinds() { return kKinds; }

const OtherKind* find_other_kind(std::string_view name) {
  for (const OtherKind& k : kKinds)
    if (plain(k.name) == plain(name)) return &k;
  return nullptr;
}

std::string why_not_priced(const OtherKind& k) {
  std::string text = cat(k.name, " is not priced. It executes otherwise: ", k.executes, ".");
  if (!k.known.empty()) text += cat(" Public: ", k.known, ".");
  return text + cat(" No public number was found for: ", k.missing);
}

}  // namespace tegula::planner
