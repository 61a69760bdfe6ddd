#include "tegula/models/checkpoint.h"

#include "tegula/ir/reference.h"
#include "tegula/models/common/names.h"

namespace tegula {

std::vector<std::string> checkpoint_part_names(const ModelConfig& config, const std::string& name,
                                               int64_t n) {
  const std::string_view stacked = names_of(config).stacked;
  const size_t at = stacked.empty() ? std::string::npos : name.find(stacked);
  if (at == std::string::npos) return {name};
  const size_t end = at + stacked.size();
  std::vector<std::string> names;
  for (int64_t e = 0; e < n; ++e)
    names.push_back(cat(name.substr(0, end), e, ".", name.substr(end)));
  return names;
}

std::vector<std::pair<std::string, TensorRef>> checkpoint_parts(const ModelConfig& config,
                                                                const std::string& name,
                                                                const TensorRef& t) {
  const std::vector<std::string> names =
      checkpoint_part_names(config, name, t.rank > 0 ? t.shape[0] : 0);
  if (names.size() == 1 && names[0] == name) return {{name, t}};
  std::vector<std::pair<std::string, TensorRef>> parts;
  for (int64_t e = 0; e < t.shape[0]; ++e) {
    TensorRef part =
        contiguous_ref(static_cast<std::byte*>(t.data) + e * t.stride[0] * size_bytes(t.dtype),
                       {t.dtype, Shape(std::span(shape_of(t)).subspan(1))});
    parts.emplace_back(names[static_cast<size_t>(e)], part);
  }
  return parts;
}

std::vector<std::pair<std::string, TensorRef>> checkpoint_tensors(
    const ModelConfig& config, const std::vector<std::pair<std::string, TensorRef>>& weights,
    std::vector<std::vector<float>>& zeros) {
  std::vector<std::pair<std::string, TensorRef>> out;
  for (const auto& [name, t] : weights)
    for (auto& part : checkpoint_parts(config, name, t)) out.push_back(std::move(part));
  if (config.has_bias) return out;
  const std::string_view biased = names_of(config).biased;
  for (const auto& [name, t] : weights) {
    if (!any_word(biased, [&, &n = name](auto part) { return n.find(part) != n.npos; })) continue;
    zeros.emplace_back(static_cast<size_t>(t.shape[t.rank - 1]), 0.0f);
    const Type type{DType::kF32, {t.shape[t.rank - 1]}};
    out.emplace_back(name.substr(0, name.rfind('.')) + ".bias",
                     contiguous_ref(zeros.back().data(), type));
  }
  return out;
}

}  // namespace tegula
