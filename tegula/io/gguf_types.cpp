#include "tegula/io/gguf_types.h"

#include "tegula/io/gguf.h"

namespace tegula {
namespace {

constexpr GgufTensorType kTypes[] = {{0, "F32", DType::kF32},
                                     {1, "F16", DType::kF16},
                                     {30, "BF16", DType::kBF16},
                                     {28, "F64", DType::kF64},
                                     {2, "Q4_0", {}, BlockFormat::kQ4_0},
                                     {3, "Q4_1", {}, BlockFormat::kQ4_1},
                                     {6, "Q5_0", {}, BlockFormat::kQ5_0},
                                     {7, "Q5_1", {}, BlockFormat::kQ5_1},
                                     {8, "Q8_0", {}, BlockFormat::kQ8_0},
                                     {10, "Q2_K", {}, BlockFormat::kQ2_K},
                                     {11, "Q3_K", {}, BlockFormat::kQ3_K},
                                     {12, "Q4_K", {}, BlockFormat::kQ4_K},
                                     {13, "Q5_K", {}, BlockFormat::kQ5_K},
                                     {14, "Q6_K", {}, BlockFormat::kQ6_K},
                                     {20, "IQ4_NL", {}, BlockFormat::kIQ4_NL},
                                     {23, "IQ4_XS", {}, BlockFormat::kIQ4_XS},
                                     {24, "I8", DType::kI8},
                                     {26, "I32", DType::kI32},
                                     {27, "I64", DType::kI64},
                                     {9, "Q8_1"},
                                     {15, "Q8_K"},
                                     {16, "IQ2_XXS"},
                                     {17, "IQ2_XS"},
                                     {18, "IQ3_XXS"},
                                     {19, "IQ1_S"},
                                     {21, "IQ3_S"},
                                     {22, "IQ2_S"},
                                     {25, "I16"},
                                     {29, "IQ1_M"},
                                     {34, "TQ1_0"},
                                     {35, "TQ2_0"},
                                     {39, "MXFP4"},
                                     {40, "NVFP4"}};

}  // namespace

const GgufTensorType* find_gguf_type(uint32_t id) {
  for (const GgufTensorType& t : kTypes)
    if (t.id == id) return &t;
  return nullptr;
}

const GgufTensorType* find_gguf_type(DType dtype) {
  for (const GgufTensorType& t : kTypes)
    if (t.dtype == dtype) return &t;
  return nullptr;
}

const GgufTensorType& gguf_type_of(const GgufTensor& tensor) {
  for (const GgufTensorType& t : kTypes)
    if (tensor.format ? t.format == tensor.format : t.dtype == tensor.bytes.dtype) return t;
  return kTypes[0];
}

std::string readable_gguf_types() {
  std::string names;
  for (const GgufTensorType& t : kTypes)
    if (t.dtype || t.format) names += cat(names.empty() ? "" : ", ", t.name);
  return names;
}

}  // namespace tegula
