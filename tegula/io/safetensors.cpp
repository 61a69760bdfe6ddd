#include "tegula/io/safetensors.h"

#include <bit>
#include <cstring>

#include "tegula/base/algorithm.h"
#include "tegula/base/amounts.h"
#include "tegula/io/json.h"
#include "tegula/io/wrong_file.h"

namespace tegula {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little endian");

constexpr std::pair<DType, std::string_view> kNames[] = {
    {DType::kF64, "F64"},       {DType::kF32, "F32"}, {DType::kBF16, "BF16"},
    {DType::kF16, "F16"},       {DType::kI64, "I64"}, {DType::kI32, "I32"},
    {DType::kI8, "I8"},         {DType::kU8, "U8"},   {DType::kBool, "BOOL"},
    {DType::kF8E4M3, "F8_E4M3"}};
constexpr std::string_view kMetadataKey = "__metadata__";

std::string_view format_name(DType dtype) {
  for (const auto& [t, name] : kNames)
    if (t == dtype) return name;
  return "";
}

size_t n_bytes_of(const TensorRef& t) {
  return static_cast<size_t>(t.numel()) * static_cast<size_t>(size_bytes(t.dtype));
}

// Row-major bytes of a strided view, gathered through a small buffer.
Status write_strided(OutputFile& out, const TensorRef& t) {
  constexpr size_t kChunk_bytes = 1 << 16;
  const auto width = static_cast<size_t>(size_bytes(t.dtype));
  std::string chunk;
  int64_t index[kMaxRank] = {};
  for (int64_t left = t.numel(); left > 0; --left) {
    int64_t at = 0;
    for (int i = 0; i < t.rank; ++i) at += index[i] * t.stride[i];
    chunk.append(static_cast<const char*>(t.data) + at * static_cast<int64_t>(width), width);
    if (chunk.size() >= kChunk_bytes) {
      TEGULA_TRY(out.write(chunk));
      chunk.clear();
    }
    for (int i = t.rank - 1; i >= 0 && ++index[i] == t.shape[i]; --i) index[i] = 0;
  }
  return out.write(chunk);
}

// Row-major bytes of a tensor in parts, a run of its last dim at a time.
Status write_parts(OutputFile& out, const NamedTensor& t) {
  const TensorRef& whole = t.tensor;
  const auto width = static_cast<int64_t>(size_bytes(whole.dtype));
  const auto last = static_cast<size_t>(whole.rank - 1);
  std::vector<int64_t> index(static_cast<size_t>(whole.rank), 0);
  std::string run;
  for (int64_t left = whole.numel(); left > 0;) {
    const auto part = std::find_if(t.parts.begin(), t.parts.end(), [&](const TensorPart& p) {
      for (size_t d = 0; d < index.size(); ++d)
        if (index[d] < p.box.offset[d] || index[d] >= p.box.offset[d] + p.box.extent[d])
          return false;
      return true;
    });
    TEGULA_CHECK(part != t.parts.end(), "nobody has an element of ", t.name);
    if (whole.rank == 0) return out.write(part->data.data, static_cast<size_t>(width));
    const int64_t n = part->box.offset[last] + part->box.extent[last] - index[last];
    const auto* from = static_cast<const char*>(part->data.data);
    for (size_t d = 0; d < index.size(); ++d)
      from += (index[d] - part->box.offset[d]) * part->data.stride[d] * width;
    const int64_t step = part->data.stride[last] * width;
    if (step == width) {
      TEGULA_TRY(out.write(from, static_cast<size_t>(n * width)));
    } else {
      run.clear();
      for (int64_t i = 0; i < n; ++i) run.append(from + i * step, static_cast<size_t>(width));
      TEGULA_TRY(out.write(run));
    }
    left -= n, index[last] += n;
    for (size_t d = last; d > 0 && index[d] == whole.shape[d]; --d) index[d] = 0, ++index[d - 1];
  }
  return {};
}

// Inside, apart, and as many elements as the whole: so each of them once.
Status check_parts(const NamedTensor& t) {
  const std::vector<int64_t> shape(t.tensor.shape, t.tensor.shape + t.tensor.rank);
  int64_t n = 0;
  for (size_t i = 0; i < t.parts.size(); ++i) {
    const TensorPart& p = t.parts[i];
    TEGULA_TRY(check_box(t.name, shape, p.box));
    if (p.data.dtype != t.tensor.dtype || !std::equal(p.box.extent.begin(), p.box.extent.end(),
                                                      p.data.shape, p.data.shape + p.data.rank))
      return invalid_argument(cat(t.name, ": the part at ", p.box.offset, " is ", p.data.dtype, " ",
                                  std::vector(p.data.shape, p.data.shape + p.data.rank), ", not ",
                                  t.tensor.dtype, " ", p.box.extent));
    for (size_t j = 0; j < i; ++j)
      if (overlap(p.box, t.parts[j].box))
        return invalid_argument(cat(t.name, ": its parts at ", t.parts[j].box.offset, " and ",
                                    p.box.offset, " overlap: which one counts?"));
    n += p.box.numel();
  }
  if (n == t.tensor.numel()) return {};
  return invalid_argument(cat(t.name, ": its ", t.parts.size(), " parts have ", n, " of ",
                              t.tensor.numel(), " elements: a rank's part is missing"));
}

// The tensors in file order: wide dtypes first, so that each begins at a multiple of its width.
Result<std::vector<const NamedTensor*>> file_order(std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& t : tensors) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    const int wa = size_bytes(a->tensor.dtype), wb = size_bytes(b->tensor.dtype);
    return wa != wb ? wa > wb : a->name < b->name;
  });
  std::vector<std::string_view> names;
  for (const NamedTensor& t : tensors) names.push_back(t.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    return invalid_argument(cat("two tensors have the name '", *twice, "'"));
  if (std::binary_search(names.begin(), names.end(), kMetadataKey))
    return invalid_argument(cat("'", kMetadataKey, "' is no name for a tensor"));
  return order;
}

std::string format_header(std::span<const NamedTensor* const> order, const Metadata& metadata) {
  Json::Object header;
  if (!metadata.empty()) {
    Json strings = Json::object();
    for (const auto& [key, value] : metadata) strings.set(key, value);
    header.push_back({std::string(kMetadataKey), std::move(strings)});
  }
  size_t begin = 0;
  for (const NamedTensor* t : order) {
    Json::Array shape(t->tensor.shape, t->tensor.shape + t->tensor.rank);
    const size_t end = begin + n_bytes_of(t->tensor);
    header.push_back({t->name, Json::object({{"dtype", format_name(t->tensor.dtype)},
                                             {"shape", std::move(shape)},
                                             {"data_offsets", Json::Array{begin, end}}})});
    begin = end;
  }
  std::string text = Json(std::move(header)).dump();
  constexpr size_t kLine = 64;  // of a cache
  text.append((kLine - (sizeof(uint64_t) + text.size()) % kLine) % kLine, ' ');
  return text;
}

// One tensor as the header states it, checked against nothing but itself.
struct Entry {
  std::string name;
  Type type;
  uint64_t begin = 0, end = 0;
};

// A non-negative integer, or -1.
int64_t size_value(const Json& value) {
  const int64_t* i = value.as<int64_t>();
  return i != nullptr && *i >= 0 ? *i : -1;
}

Result<Entry> parse_entry(const std::string& name, const Json& value) {
  const auto* dtype_text = value.find_as<std::string>("dtype");
  const auto* dims = value.find_as<Json::Array>("shape");
  const auto* ends = value.find_as<Json::Array>("data_offsets");
  if (!dtype_text || !dims || !ends || ends->size() != 2)
    return invalid_argument("it needs a dtype, a shape and two data_offsets");
  Entry entry{name, {}, 0, 0};
  const auto* found = std::find_if(std::begin(kNames), std::end(kNames),
                                   [&](const auto& n) { return n.second == *dtype_text; });
  if (found == std::end(kNames))
    return unsupported(cat("its dtype ", dtype_text->substr(0, 20),
                           " is not one that tegula holds (F64 F32 BF16 F16 I64 I32 I8 U8 BOOL)"));
  entry.type.dtype = found->first;
  if (dims->size() > kMaxRank)
    return unsupported(cat("it has ", dims->size(), " dims; tegula holds at most ", kMaxRank));
  int64_t n_bytes = size_bytes(entry.type.dtype);
  bool is_empty = false;
  for (const Json& dim : *dims) {
    const int64_t d = size_value(dim);
    if (d < 0) return invalid_argument("a dim of its shape is not a size");
    // A dim of 0 is left out: the strides before it must not overflow either.
    if (__builtin_mul_overflow(n_bytes, std::max<int64_t>(d, 1), &n_bytes))
      return invalid_argument("its shape has more bytes than 64 bits can count");
    is_empty |= d == 0;
    entry.type.shape.push_back(d);
  }
  if (is_empty) n_bytes = 0;
  const int64_t begin = size_value((*ends)[0]), end = size_value((*ends)[1]);
  if (begin < 0 || end < begin)
    return invalid_argument("its data_offsets are not two ascending sizes");
  if (end - begin != n_bytes)
    return invalid_argument(cat("its shape and dtype need ", n_bytes, " bytes but data_offsets [",
                                begin, ", ", end, "] hold ", end - begin));
  entry.begin = static_cast<uint64_t>(begin), entry.end = static_cast<uint64_t>(end);
  return entry;
}

Result<Metadata> parse_metadata(const Json& value) {
  const auto* members = value.as<Json::Object>();
  if (members == nullptr) return invalid_argument("its __metadata__ is not an object");
  Metadata metadata;
  for (const Json::Member& m : *members) {
    const auto* text = m.value.as<std::string>();
    if (text == nullptr) return invalid_argument("its __metadata__ holds more than strings");
    metadata.emplace_back(m.key, *text);
  }
  return metadata;
}

// The data must be covered exactly: a hole could hide bytes, an overlap could alias them.
Status check_cover(std::span<const Entry> sorted, size_t n_data_bytes) {
  uint64_t expected = 0;
  for (const Entry& e : sorted) {
    if (e.begin != expected)
      return invalid_argument(cat("tensor '", e.name, "' begins at byte ", e.begin,
                                  e.begin < expected ? ", inside the one before it, which ends at "
                                                     : ", leaving a hole after byte ",
                                  expected));
    if (e.end > n_data_bytes)
      return invalid_argument(cat("tensor '", e.name, "' ends at byte ", e.end, " of only ",
                                  n_data_bytes, ": the file is truncated"));
    expected = e.end;
  }
  if (expected != n_data_bytes)
    return invalid_argument(
        cat("its tensors end at byte ", expected, " of ", n_data_bytes, ": bytes are left over"));
  return {};
}

// Names the file in front of a message about its content.
Error in_file(const std::string& path, std::string_view bytes, Error error) {
  const bool has_header = bytes.size() > sizeof(uint64_t) && bytes[sizeof(uint64_t)] == '{';
  const std::string other = has_header ? "" : what_it_is_instead(bytes, false);
  if (!other.empty() && error.code == Code::kInvalidArgument)
    error.message = cat("'", path, "' is not a valid safetensors file: ", other);
  else if (error.code == Code::kUnsupported)
    error.message = cat("cannot use '", path, "': ", error.message);
  else
    error.message = cat("'", path, "' is not a valid safetensors file: ", error.message,
                        ". Copy or save it again");
  return error;
}

}  // namespace

Result<SafetensorsLayout> safetensors_layout(std::span<const NamedTensor> tensors,
                                             const Metadata& metadata) {
  const auto order = TEGULA_TRY(file_order(tensors));
  const std::string header = format_header(order, metadata);
  if (header.size() > kMaxSafetensorsHeader_bytes)
    return invalid_argument(cat("the names of ", tensors.size(), " tensors need a header of ",
                                header.size(), " bytes; the format allows ",
                                kMaxSafetensorsHeader_bytes));
  SafetensorsLayout layout;
  const uint64_t n = header.size();
  layout.head.assign(reinterpret_cast<const char*>(&n), sizeof n).append(header);
  layout.n_bytes = layout.head.size();
  for (const NamedTensor* t : order) {
    layout.places.emplace_back(t, layout.n_bytes);
    layout.n_bytes += n_bytes_of(t->tensor);
  }
  return layout;
}

Status write_safetensors(OutputFile& out, std::span<const NamedTensor> tensors,
                         const Metadata& metadata) {
  return write_safetensors(out, tensors, metadata, nullptr);
}

Status write_safetensors(OutputFile& out, std::span<const NamedTensor> tensors,
                         const Metadata& metadata, TensorSource* source) {
  for (const NamedTensor& t : tensors)
    if (!t.parts.empty()) TEGULA_TRY(check_parts(t));
  const SafetensorsLayout layout = TEGULA_TRY(safetensors_layout(tensors, metadata));
  TEGULA_TRY(out.write(layout.head));
  for (const auto& [t, at] : layout.places) {
    if (source != nullptr) {
      const uint64_t begin = out.n_bytes();
      TEGULA_TRY(source->write(t->name, out));
      TEGULA_CHECK(out.n_bytes() - begin == n_bytes_of(t->tensor), t->name);
    } else if (!t->parts.empty())
      TEGULA_TRY(write_parts(out, *t));
    else if (t->tensor.is_contiguous())
      TEGULA_TRY(out.write(t->tensor.data, n_bytes_of(t->tensor)));
    else
      TEGULA_TRY(write_strided(out, t->tensor));
  }
  return {};
}

Status write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                         const Metadata& metadata) {
  auto out = TEGULA_TRY(OutputFile::create(path));
  TEGULA_TRY(write_safetensors(out, tensors, metadata));
  TEGULA_TRY(out.finish());
  return {};
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile opened;
  opened.path_ = path;
  opened.file_ = TEGULA_TRY(MappedFile::open(path));
  if (Status s = opened.read_header(); !s.ok())
    return in_file(path, opened.file_.bytes(), std::move(s).error());
  return opened;
}

Status SafetensorsFile::read_header() {
  const std::string_view bytes = file_.bytes();
  uint64_t n = 0;
  if (bytes.size() < sizeof n)
    return invalid_argument(cat("it has ", bytes.size(), " bytes, less than the header's length"));
  std::memcpy(&n, bytes.data(), sizeof n);
  if (n > kMaxSafetensorsHeader_bytes)
    return invalid_argument(cat("its header claims ", n, " bytes; at most ",
                                kMaxSafetensorsHeader_bytes, " are allowed"));
  if (n > bytes.size() - sizeof n)
    return invalid_argument(cat("its header claims ", n, " bytes but only ",
                                bytes.size() - sizeof n, " follow: the file is truncated"));
  const std::string_view header = bytes.substr(sizeof n, n);
  if (!header.starts_with('{')) return invalid_argument("its header does not begin with '{'");
  const Json json = TEGULA_TRY(Json::parse(header, "header"));

  std::vector<Entry> entries;
  for (const Json::Member& m : *json.as<Json::Object>()) {
    if (m.key == kMetadataKey) {
      metadata_ = TEGULA_TRY(parse_metadata(m.value));
      continue;
    }
    entries.push_back(TEGULA_TRY(named(cat("tensor '", m.key, "'"), parse_entry(m.key, m.value))));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  const std::string_view data = bytes.substr(sizeof n + n);
  TEGULA_TRY(check_cover(entries, data.size()));

  for (Entry& e : entries) {
    // The views are read-only by contract; TensorRef has one pointer for readers and writers.
    auto* begin = const_cast<char*>(data.data()) + e.begin;
    const auto width = static_cast<uintptr_t>(size_bytes(e.type.dtype));
    if (reinterpret_cast<uintptr_t>(begin) % width != 0) {
      realigned_.push_back(std::make_unique<char[]>(e.end - e.begin));
      std::memcpy(realigned_.back().get(), begin, e.end - e.begin);
      begin = realigned_.back().get();
    }
    tensors_.push_back({std::move(e.name), contiguous_ref(begin, e.type)});
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  return {};
}

void SafetensorsFile::rename(std::string (*new_name)(std::string_view)) {
  for (NamedTensor& t : tensors_) t.name = new_name(t.name);
  std::erase_if(tensors_, [](const NamedTensor& t) { return t.name.empty(); });
  std::sort(tensors_.begin(), tensors_.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
}

const TensorRef* SafetensorsFile::find(std::string_view name) const {
  const auto at =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const NamedTensor& t, std::string_view n) { return t.name < n; });
  return at != tensors_.end() && at->name == name ? &at->tensor : nullptr;
}

}  // namespace tegula
