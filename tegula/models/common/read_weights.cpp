// Reading a model's weights, and refusing what is not this model's.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <set>

#include "tegula/io/weight_files.h"
#include "tegula/ir/reference.h"
#include "tegula/models/checkpoint.h"
#include "tegula/models/common/names.h"
#include "tegula/models/common/why_missing.h"

namespace tegula {

namespace {

// The exponent's bits of a dtype, and its lowest one, in each of the lanes of a word.
struct Exponent {
  uint64_t bits = 0, lowest = 0;
};

Exponent exponent_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {0x7ff0000000000000, 0x0010000000000000};
    case DType::kF32:
      return {0x7f8000007f800000, 0x0080000000800000};
    case DType::kBF16:
      return {0x7f807f807f807f80, 0x0080008000800080};
    case DType::kF16:
      return {0x7c007c007c007c00, 0x0400040004000400};
    default:
      return {};
  }
}

// Whether n bytes hold a value whose exponent is all ones: adding its lowest bit carries into the
// sign's place of the lane, and no further. A word holds all lanes, so that the check costs little
// beside the copy; the bytes are those of whole words.
bool has_full_exponent(const std::byte* data, int64_t n_bytes, Exponent e) {
  uint64_t carries[4] = {};
  for (int64_t at = 0; at < n_bytes; at += sizeof carries) {
    uint64_t words[4];
    std::memcpy(words, data + at, sizeof words);
    for (int k = 0; k < 4; ++k) carries[k] |= (words[k] & e.bits) + e.lowest;
  }
  const uint64_t signs = e.bits + e.lowest;
  return ((carries[0] | carries[1] | carries[2] | carries[3]) & signs) != 0;
}

// The first of n values from `begin` on that is an infinity or a NaN, or n.
int64_t first_not_finite(const TensorRef& t, int64_t begin, int64_t n) {
  const Exponent e = exponent_of(t.dtype);
  const int64_t width = size_bytes(t.dtype);
  int64_t i = 0;
  if (e.bits != 0) {
    const int64_t whole = n * width / 32 * 32;
    const auto* data = static_cast<const std::byte*>(t.data) + begin * width;
    if (!has_full_exponent(data, whole, e)) i = whole / width;
  }
  for (; i < n; ++i)
    if (!std::isfinite(load_element(t, begin + i))) return i;
  return n;
}

// Row-major copy with conversion to the target's dtype; the index of a value that is not finite,
// in the file or in the target, or -1. By blocks, so that a value is checked while it lies in a
// cache.
int64_t copy_finite(const TensorRef& from, const TensorRef& to) {
  constexpr int64_t kBlock = 4096;
  const int64_t n = to.numel(), width = size_bytes(to.dtype);
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t here = std::min(kBlock, n - begin);
    if (from.dtype == to.dtype)
      std::memcpy(static_cast<std::byte*>(to.data) + begin * width,
                  static_cast<const std::byte*>(from.data) + begin * width,
                  static_cast<size_t>(here * width));
    else
      for (int64_t i = begin; i < begin + here; ++i) store_element(to, i, load_element(from, i));
    if (const int64_t at = first_not_finite(from, begin, here); at < here) return begin + at;
    if (from.dtype == to.dtype) continue;
    if (const int64_t at = first_not_finite(to, begin, here); at < here) return begin + at;
  }
  return -1;
}

// A tensor that is read by rows has no data here.
bool is_same(const TensorRef& a, const TensorRef& b) {
  return a.data != nullptr && b.data != nullptr && a.dtype == b.dtype &&
         std::ranges::equal(shape_of(a), shape_of(b)) &&
         std::memcmp(a.data, b.data, static_cast<size_t>(a.numel() * size_bytes(a.dtype))) == 0;
}

bool is_zero(const TensorRef& t) {
  if (t.data == nullptr) return false;
  for (int64_t i = 0; i < t.numel(); ++i)
    if (load_element(t, i) != 0) return false;
  return true;
}

// Some exporters leave out the prefix that others write; some have other names.
WeightFiles::Found find(const WeightFiles& files, const TensorNames& names, std::string_view name) {
  const auto either = [&](std::string_view its) {
    const WeightFiles::Found found = files.find(its);
    const bool has_prefix = !names.prefix.empty() && its.starts_with(names.prefix);
    if (found.tensor != nullptr || !has_prefix) return found;
    return files.find(its.substr(names.prefix.size()));
  };
  WeightFiles::Found found = either(name);
  if (found.tensor == nullptr)
    any_word(names.aliases, [&](std::string_view alias) {
      const size_t at = alias.find('=');
      const std::string_view ending = alias.substr(0, at);
      if (name.ends_with(ending))
        found = either(cat(name.substr(0, name.size() - ending.size()), alias.substr(at + 1)));
      return found.tensor != nullptr;
    });
  if (found.tensor == nullptr && name == names.head && !names.other_head.empty())
    found = files.find(names.other_head);
  return found;
}

// Whether a tensor that the model does not ask for says nothing of its own; else why it is refused.
Status check_extra(const ModelConfig& config, const WeightFiles& files, std::string_view name,
                   const TensorRef& t, const std::set<const TensorRef*>& used) {
  const TensorNames& names = names_of(config);
  if (any_word(names.ignored, [&](auto ending) { return name.ends_with(ending); })) return {};
  std::string why = why_extra(config, name);
  if (config.is_tied() && (name == names.head || name == names.other_head)) {
    if (const auto e = find(files, names, names.table);
        e.tensor != nullptr && is_same(*e.tensor, t))
      return {};
    why =
        "which differs from the embedding, though config.json ties the two: set "
        "tie_word_embeddings to false if the head is one of its own";
  } else if (!names.biased.empty() && !config.has_bias && name.ends_with(".bias")) {
    const std::string weight = cat(name.substr(0, name.rfind('.')), ".weight");
    if (used.contains(files.find(weight).tensor)) {
      if (is_zero(t)) return {};
      why =
          "which is not zero, though config.json says that there is no bias: set \"bias\" to true";
    }
  }
  return invalid_argument(cat(files.path(), ": it has the tensor ", name, " ",
                              Type{t.dtype, Shape(shape_of(t))}, ", ", why));
}

Result<WeightFiles::Found> match(const WeightFiles& files, const ModelConfig& config,
                                 const std::string& name, std::span<const int64_t> shape) {
  const WeightFiles::Found from = find(files, names_of(config), name);
  if (from.tensor == nullptr)
    return invalid_argument(cat(files.path(), ": ", why_missing(files, config, name)));
  const Type has{from.tensor->dtype, Shape(shape_of(*from.tensor))};
  if (!std::ranges::equal(shape_of(*from.tensor), shape))
    return invalid_argument(cat(from.path, ": tensor ", name, " is ", has, ", the model needs ",
                                Type{has.dtype, Shape(shape)},
                                keys_of_sizes(config, shape_of(*from.tensor), shape)));
  if (!is_float(has.dtype))
    return invalid_argument(cat(from.path, ": tensor ", name, " is ", has, ", not of floating ",
                                "point: quantised weights are not read; save it as f32 or bf16"));
  return from;
}

Error not_finite(std::string_view path, const std::string& name, double value, int64_t at,
                 int64_t n, DType dtype) {
  return invalid_argument(
      cat(path, ": tensor ", name, " has ", value, " as its element ", at, " of ", n,
          std::isfinite(value)
              ? cat(", too large for ", dtype, ": read it in a dtype of larger range")
              : std::string(": the file is damaged, or its training diverged; use another "
                            "checkpoint")));
}

// copy_finite of a view, a piece of it after the other; the index is the box's.
int64_t copy_finite_view(const TensorRef& from, const TensorRef& to) {
  if (from.is_contiguous()) return copy_finite(from, to);
  int outer = from.rank;
  int64_t run = 1;
  while (outer > 0 && (from.shape[outer - 1] == 1 || from.stride[outer - 1] == run))
    run *= from.shape[--outer];
  const int64_t width = size_bytes(from.dtype), n = to.numel();
  const int64_t row[] = {run};
  for (int64_t at = 0; at < n; at += run) {
    int64_t rest = at / run, offset = 0;
    for (int d = outer - 1; d >= 0; --d)
      offset += rest % from.shape[d] * from.stride[d], rest /= from.shape[d];
    const int64_t bad =
        copy_finite(contiguous_ref(static_cast<std::byte*>(from.data) + offset * width,
                                   {from.dtype, Shape(std::span(row))}),
                    contiguous_ref(static_cast<std::byte*>(to.data) + at * size_bytes(to.dtype),
                                   {to.dtype, Shape(std::span(row))}));
    if (bad >= 0) return at + bad;
  }
  return -1;
}

// The box of a tensor that is read by rows, row-major.
Status copy_stored(const StoredTensor& s, const Box& box, const TensorRef& to) {
  std::vector<float> row(static_cast<size_t>(s.n_values()));
  const auto fault = [&](int64_t at, float value) {
    return not_finite(s.path, s.name, value, at, to.numel(), to.dtype);
  };
  if (s.is_transposed) {
    const int64_t n = box.extent[1];
    for (int64_t j = 0; j < n; ++j) {
      s.read_row(box.offset[1] + j, row.data());
      for (int64_t i = 0; i < box.extent[0]; ++i) {
        const float value = row[static_cast<size_t>(box.offset[0] + i)];
        store_element(to, i * n + j, value);
        if (!std::isfinite(load_element(to, i * n + j))) return fault(i * n + j, value);
      }
    }
    return {};
  }
  const size_t rank = box.extent.size();
  const bool is_one = s.n_values() == 1;  // every element is a row
  const int64_t n = is_one ? 1 : box.extent[rank - 1], first = is_one ? 0 : box.offset[rank - 1];
  const int64_t width[] = {n};
  for (int64_t at = 0; at < to.numel(); at += n) {
    int64_t rest = at / n, index = 0, step = 1;  // of the row, in the tensor
    for (size_t d = is_one ? rank : rank - 1; d-- > 0;) {
      index += (box.offset[d] + rest % box.extent[d]) * step;
      rest /= box.extent[d], step *= s.tensor.shape[d];
    }
    s.read_row(index, row.data());
    const int64_t bad =
        copy_finite(contiguous_ref(row.data() + first, {DType::kF32, Shape(std::span(width))}),
                    contiguous_ref(static_cast<std::byte*>(to.data) + at * size_bytes(to.dtype),
                                   {to.dtype, Shape(std::span(width))}));
    if (bad >= 0) return fault(at + bad, row[static_cast<size_t>(first + bad)]);
  }
  return {};
}

// The rest of a box behind its first dim.
Box without_first(const Box& box) {
  return {{box.offset.begin() + 1, box.offset.end()}, {box.extent.begin() + 1, box.extent.end()}};
}

}  // namespace

Result<std::vector<WeightSpec>> stored_weights(const WeightFiles& files,
                                               const ModelConfig& config) {
  std::vector<WeightSpec> all = TEGULA_TRY(model_weights(config));
  const TensorNames& names = names_of(config);
  const auto is_optional = [&](const WeightSpec& w) {
    return !names.optional.empty() && w.name.starts_with(names.optional);
  };
  const auto is_there = [&](const WeightSpec& w) {
    return is_optional(w) && find(files, names, w.name).tensor != nullptr;
  };
  if (std::ranges::none_of(all, is_there)) std::erase_if(all, is_optional);
  return all;
}

Result<std::shared_ptr<ModelWeights>> ModelWeights::open(WeightFiles files,
                                                         const ModelConfig& config,
                                                         const std::vector<Weight>& weights) {
  std::shared_ptr<ModelWeights> w(new ModelWeights(std::move(files)));
  std::set<const TensorRef*> used;
  for (const auto& [whole, shape] : weights) {
    auto names = checkpoint_part_names(config, whole, shape.empty() ? 0 : shape[0]);
    if (w->files_.find(whole).tensor != nullptr) names = {whole};  // its parts in one
    const bool is_one = names.size() == 1 && names[0] == whole;
    std::vector<Part>& parts = w->parts_[whole];
    for (const std::string& name : names) {
      const auto from =
          TEGULA_TRY(match(w->files_, config, name, std::span(shape).subspan(is_one ? 0 : 1)));
      parts.push_back({name, from});
      used.insert(from.tensor);
    }
  }
  Status extra;
  w->files_.for_each([&](std::string_view name, const WeightFiles::Found& found) {
    if (extra.ok() && !used.contains(found.tensor))
      extra = check_extra(config, w->files_, name, *found.tensor, used);
  });
  TEGULA_TRY(std::move(extra));
  return w;
}

TensorRef ModelWeights::mapped(std::string_view name, const Box& box, DType dtype) const {
  const auto found = parts_.find(name);
  if (found == parts_.end() || found->second.size() != 1) return {};
  const TensorRef& from = *found->second[0].from.tensor;
  if (found->second[0].from.stored != nullptr) return {};
  if (from.dtype != dtype || from.rank != static_cast<int>(box.offset.size())) return {};
  const TensorRef part = part_of(from, box);
  return part.is_contiguous() ? part : TensorRef{};
}

const StoredTensor* ModelWeights::stored(std::string_view name) const {
  const auto found = parts_.find(name);
  return found != parts_.end() && found->second.size() == 1 ? found->second[0].from.stored
                                                            : nullptr;
}

DType ModelWeights::stored_dtype(std::string_view name) const {
  const auto found = parts_.find(name);
  TEGULA_CHECK(found != parts_.end(), "no weight ", name);
  return found->second[0].from.tensor->dtype;
}

Status ModelWeights::copy(std::string_view name, const Box& box, const TensorRef& to) const {
  const auto found = parts_.find(name);
  if (found == parts_.end()) return invalid_argument(cat("the model has no weight ", name));
  const std::vector<Part>& parts = found->second;
  const bool is_one =
      parts.size() == 1 && parts[0].from.tensor->rank == static_cast<int>(box.offset.size());
  const auto one = [&](const Part& p, const Box& of, const TensorRef& into) -> Status {
    if (p.from.stored != nullptr) return copy_stored(*p.from.stored, of, into);
    const TensorRef from = part_of(*p.from.tensor, of);
    const int64_t at = copy_finite_view(from, into);
    if (at < 0) return {};
    int64_t rest = at, offset = 0;  // in the file's tensor
    for (int d = from.rank - 1; d >= 0; --d)
      offset += rest % from.shape[d] * from.stride[d], rest /= from.shape[d];
    const double value = load_element(from, offset);
    const auto first = (static_cast<const std::byte*>(from.data) -
                        static_cast<const std::byte*>(p.from.tensor->data)) /
                       size_bytes(from.dtype);
    return not_finite(p.from.path, p.name, value, first + offset, p.from.tensor->numel(),
                      into.dtype);
  };
  if (is_one) return one(parts[0], box, to);
  const Box rest = without_first(box);
  const Type type{to.dtype, Shape(std::span<const int64_t>(rest.extent))};
  for (int64_t e = 0; e < box.extent[0]; ++e)
    TEGULA_TRY(one(parts[static_cast<size_t>(box.offset[0] + e)], rest,
                   contiguous_ref(static_cast<std::byte*>(to.data) + e * type.bytes(), type)));
  return {};
}

Status ModelWeights::check(ThreadPool& pool) const {
  constexpr int64_t kBlock = 1 << 18;
  for (const auto& [name, parts] : parts_)
    for (const Part& p : parts) {
      if (p.from.stored != nullptr) {  // else it is checked where it is copied
        if (p.from.stored->format) TEGULA_TRY(check_blocks(*p.from.stored, pool));
        continue;
      }
      const TensorRef& t = *p.from.tensor;
      const int64_t n = t.numel();
      std::atomic<int64_t> first{n};
      pool.parallel_for((n + kBlock - 1) / kBlock, [&](int64_t i, int) {
        const int64_t begin = i * kBlock, here = std::min(kBlock, n - begin);
        const int64_t at = first_not_finite(t, begin, here);
        if (at == here) return;
        int64_t known = first.load();
        while (begin + at < known && !first.compare_exchange_weak(known, begin + at)) {
        }
      });
      if (first < n)
        return not_finite(p.from.path, p.name, load_element(t, first), first, n, t.dtype);
    }
  return {};
}

Status read_weights(WeightFiles files, const ModelConfig& config,
                    const std::vector<std::pair<std::string, TensorRef>>& into) {
  std::vector<ModelWeights::Weight> weights;
  for (const auto& [name, t] : into) weights.push_back({name, {t.shape, t.shape + t.rank}});
  const auto opened = TEGULA_TRY(ModelWeights::open(std::move(files), config, weights));
  for (const auto& [name, t] : into) TEGULA_TRY(opened->copy(name, Box::whole(shape_of(t)), t));
  return {};
}

Result<Tokenizer> load_model_tokenizer(const ModelFiles& files, const ModelConfig& config,
                                       std::string& note) {
  Tokenizer tokenizer = TEGULA_TRY(files.tokenizer());
  const int64_t has = tokenizer.vocab_size();
  if (has > config.vocab_size)
    return invalid_argument(
        cat("the tokenizer of '", files.path(), "' has ", has,
            " tokens, but the model has a vocabulary of ", config.vocab_size, ": ids from ",
            config.vocab_size, " on, such as '",
            tokenizer.token(static_cast<int32_t>(config.vocab_size)),
            "', mean nothing to it. Use the tokenizer that it was trained with"));
  if (has < config.vocab_size)
    note = cat("the tokenizer has ", has, " of the ", config.vocab_size,
               " ids of the model's vocabulary: the others decode to U+FFFD");
  return tokenizer;
}

}  // namespace tegula
