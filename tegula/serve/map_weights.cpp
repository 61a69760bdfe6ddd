#include "tegula/serve/map_weights.h"

#include <cstring>

#include "tegula/base/block_format.h"

namespace tegula {

namespace {

// Keeps a matrix in the blocks that it lies in, where the CPU computes on them. False: it has none.
Result<bool> map_blocks(const WeightSpec& spec, const std::shared_ptr<ModelWeights>& weights,
                        DType dtype, const Rank& rank, Store& store, BlockFormats& formats) {
  const StoredTensor* stored = weights->stored(spec.name);
  if (stored == nullptr || !stored->format || !stored->has_rows() || rank.device ||
      dtype != DType::kF32 || spec.type.shape.rank() < 2)
    return false;
  const TensorRef& rows = stored->rows;
  Shape whole = spec.type.shape;  // experts lie one behind the other
  whole[whole.rank() - 1] = rows.shape[1];
  const Type type{DType::kU8, whole};
  std::vector<int64_t> shape;
  for (int d = 0; d < whole.rank(); ++d) shape.push_back(whole[d].bound());
  formats[spec.name] = *stored->format;
  if (stored->order.is_plain()) {
    TEGULA_TRY(store.borrow(spec.name, type, Box::whole(shape), rows.data, weights));
    return true;
  }
  const TensorRef here = TEGULA_TRY(store.get(spec.name, type));
  for (int64_t i = 0; i < rows.shape[0]; ++i)
    std::memcpy(here.as<uint8_t>() + i * rows.shape[1], stored->row(i),
                static_cast<size_t>(rows.shape[1]));
  return true;
}

}  // namespace

Result<std::shared_ptr<ModelWeights>> map_weights(const ModelFiles& files,
                                                  const ModelConfig& config, DType dtype,
                                                  const Rank& rank, Store& store,
                                                  BlockFormats& formats,
                                                  BlockFormats* dequantised) {
  std::vector<ModelWeights::Weight> weights;
  WeightFiles stored = TEGULA_TRY(files.weights());
  const auto specs = TEGULA_TRY(stored_weights(stored, config));
  for (const WeightSpec& w : specs) {
    const TensorRef t = contiguous_ref(nullptr, w.type);
    weights.push_back({w.name, {t.shape, t.shape + t.rank}});
  }
  const auto from = TEGULA_TRY(ModelWeights::open(std::move(stored), config, weights));
  std::vector<uint8_t> converted;  // on its way to a device
  for (size_t i = 0; i < specs.size(); ++i) {
    if (TEGULA_TRY(map_blocks(specs[i], from, dtype, rank, store, formats))) continue;
    const auto& [name, shape] = weights[i];
    const StoredTensor* stored = from->stored(name);
    if (dequantised != nullptr && stored != nullptr && stored->format)
      dequantised->emplace(name, *stored->format);
    const Type type{dtype, specs[i].type.shape};
    const Box box = Box::whole(shape);
    if (const TensorRef t = from->mapped(name, box, dtype); t.data != nullptr) {
      TEGULA_TRY(store.borrow(name, type, box, t.data, from));
      continue;
    }
    const TensorRef here = TEGULA_TRY(store.get(name, type));
    TensorRef host = here;
    if (rank.device) {
      converted.resize(static_cast<size_t>(type.bytes()));
      host.data = converted.data();
    }
    TEGULA_TRY(from->copy(name, box, host));
    if (rank.device) TEGULA_TRY(store.fill(name, host));
  }
  return from;
}

}  // namespace tegula
