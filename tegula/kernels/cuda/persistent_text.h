// The text of a persistent kernel (persistent.cuh) for the kinds of steps that it has.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tegula/kernels/cuda/attention_params.h"
#include "tegula/kernels/cuda/strided_params.h"
#include "tegula/kernels/cuda/tile_part.h"

namespace tegula::cuda {

// A function of the kernel: what steps that differ by their parameters alone share.
struct PersistentFunction {
  enum Kind : uint8_t {
    kProducts,  // that read the same a
    kElements,  // a tile program, of warps (as_warps)
    kAttention,
    kPut,
    kPutRows,  // the same, of rows in one piece
  };
  Kind kind = kProducts;
  TilePart first;      // kProducts: makes a, in each block; kElements: the program
  TilePart last;       // kProducts: what each ends with
  int n_products = 0;  // of a step
  int n_calls = 1;     // kProducts: of each that ends with `last`; else of a step
  int k = 0;           // of a product
  bool is_out16 = true;
  // kAttention, its blocks and what they look up: constants, but for the pointers.
  AttentionDecodeParams attention = {};
  int n_heads = 1, n_batch = 1;
  AttentionLookUp look = kLookUp;
  RowsParams rows = {};  // kPutRows: constants, but for the pointers

  std::string key() const;
};

inline constexpr const char* kPersistentEntry = "persistent_kernel";

// A call of a tile program as a warp's tasks: what a task has, and how many there are. none: its
// threads are not apart.
std::optional<TileCall> as_warps(const TileCall& call, std::span<const uint64_t> params);

// Parameters of a function, 8-byte words: kProducts those of `first`, or a and its stride lda; then
// a PersistentProduct for each; then those of `last`. kElements, kPut and kPutRows PersistentCalls,
// then the program's parameters, IndexParams, or RowsParams' three pointers of each call. Of a
// program's, those that are no constants. kAttention AttentionPointers.
std::string persistent_text(const std::vector<PersistentFunction>& functions);

}  // namespace tegula::cuda
