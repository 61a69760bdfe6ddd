// StoredTensor: a tensor that lies in a file otherwise than a model has it.
//
// Its rows may be blocks of a few bits a value, in another order, or apart by 1: a GGUF's weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tegula/base/block_format.h"
#include "tegula/base/tensor.h"

namespace tegula {

// Rows [.., b, a, n] of a model lie as [.., a, b, n]: 1 and 1, they lie as they are. A model's row
// i is (outer · b + y) · a + x of groups of n rows, the file's (outer · a + x) · b + y.
struct RowOrder {
  int64_t a = 1, b = 1, n = 1;
  int64_t in_file(int64_t row) const {
    const int64_t group = row / n, x = group % a, y = group / a % b;
    return (group / (a * b) * (a * b) + x * b + y) * n + row % n;
  }
  bool is_plain() const { return a == 1 || b == 1; }
};

struct StoredTensor {
  std::string name;  // as the model calls it
  // As the model has it: its shape; its dtype, of blocks f32. Null data: it is read by rows.
  TensorRef tensor;
  TensorRef rows;  // in the file, [rows, values], of blocks u8 [rows, bytes]
  std::optional<BlockFormat> format;
  RowOrder order;
  bool is_transposed = false;  // the model's columns are the rows
  float less = 0;              // the file's values are larger by this
  std::string_view path;

  int64_t n_rows() const { return rows.shape[0]; }
  // Values of a row.
  int64_t n_values() const { return tensor.numel() / n_rows(); }
  // Where row `i` of the model (of its columns, if transposed) begins.
  const uint8_t* row(int64_t i) const;
  void read_row(int64_t i, float* to) const;
  // Whether its rows are the model's but for their format and order.
  bool has_rows() const { return !is_transposed && less == 0; }
};

}  // namespace tegula
