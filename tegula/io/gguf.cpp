#include "tegula/io/gguf.h"

#include <bit>
#include <cstring>

#include "tegula/base/algorithm.h"
#include "tegula/base/amounts.h"
#include "tegula/io/gguf_types.h"
#include "tegula/io/utf8.h"
#include "tegula/io/wrong_file.h"

namespace tegula {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little endian");

constexpr uint32_t kMostDims = 4;
constexpr uint64_t kMostNameBytes = 65535;

// Takes what stands next, if the file has so much.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}
  size_t at() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }
  template <class T>
  Result<T> take(std::string_view what) {
    return load_gguf<T>(TEGULA_TRY(skip(sizeof(T), what)));
  }
  Result<const char*> skip(uint64_t n, std::string_view what) {
    if (n > left())
      return invalid_argument(cat(what, " at byte ", at_, " needs ", n, " bytes, and the file has ",
                                  left(), " more: it is cut off or damaged"));
    const char* here = bytes_.data() + at_;
    at_ += n;
    return here;
  }
  Result<std::string_view> string(std::string_view what) {
    const auto n = TEGULA_TRY(take<uint64_t>(what));
    return std::string_view(TEGULA_TRY(skip(n, what)), n);
  }
  // The name of a key or a tensor, so that it can be shown.
  Result<std::string_view> name(std::string_view what) {
    const size_t at = at_;
    const std::string_view name = TEGULA_TRY(string(what));
    bool is_plain = !name.empty() && name.size() <= kMostNameBytes;
    for (std::string_view rest = name; is_plain && !rest.empty();) {
      const CodePoint c = first_code_point(rest);
      is_plain = c.is_valid && c.value >= 0x20 && c.value != 0x7f;
      rest.remove_prefix(c.n_bytes);
    }
    if (is_plain) return name;
    return invalid_argument(cat(what, " at byte ", at, " has ", name.size(),
                                " bytes that are no name: empty, too long, or no text"));
  }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

Result<GgufType> take_type(Cursor& from, std::string_view what) {
  const auto type = TEGULA_TRY(from.take<uint32_t>(what));
  if (type > static_cast<uint32_t>(GgufType::kF64))
    return invalid_argument(cat(what, " is the number ", type, ", which names no type"));
  return static_cast<GgufType>(type);
}

Status check_flags(const char* at, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i)
    if (at[i] != 0 && at[i] != 1)
      return invalid_argument(
          cat("it has a bool of ", static_cast<int>(static_cast<uint8_t>(at[i]))));
  return {};
}

Result<GgufValue> take_array(Cursor& from) {
  const GgufType type = TEGULA_TRY(take_type(from, "the type of its elements"));
  if (type == GgufType::kArray)
    return unsupported("it is an array of arrays, which no model needs: remove the key");
  const auto n = TEGULA_TRY(from.take<uint64_t>("its length"));
  const uint64_t width = type == GgufType::kString ? sizeof(uint64_t) : gguf_width(type);
  if (n > from.left() / width)
    return invalid_argument(cat("it claims ", n, " elements of ", gguf_type_name(type),
                                ", and the file ", "has ", from.left(),
                                " bytes more: it is cut off or damaged"));
  const char* at = TEGULA_TRY(from.skip(0, "its elements"));
  if (type == GgufType::kString)
    for (uint64_t i = 0; i < n; ++i) TEGULA_TRY(from.string(cat("its element ", i)));
  else
    TEGULA_TRY(from.skip(n * width, "its elements"));
  if (type == GgufType::kBool) TEGULA_TRY(check_flags(at, n));
  return GgufValue::array(type, n, at);
}

Result<GgufValue> take_value(Cursor& from) {
  const GgufType type = TEGULA_TRY(take_type(from, "its type"));
  if (type == GgufType::kArray) return take_array(from);
  if (type == GgufType::kString) {
    const std::string_view text = TEGULA_TRY(from.string("its string"));
    return GgufValue(type, text.size(), text.data());
  }
  const char* at = TEGULA_TRY(from.skip(gguf_width(type), "its value"));
  if (type == GgufType::kBool) TEGULA_TRY(check_flags(at, 1));
  return GgufValue(type, 1, at);
}

struct Entry {
  GgufTensor tensor;
  uint64_t offset = 0, n_bytes = 0;
};

Result<Entry> take_tensor(Cursor& from, std::string_view name) {
  Entry e;
  e.tensor.name = name;
  const auto rank = TEGULA_TRY(from.take<uint32_t>("its number of dims"));
  if (rank == 0 || rank > kMostDims)
    return invalid_argument(cat("it has ", rank, " dims; there are from 1 to ", kMostDims));
  uint64_t n = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    const auto dim = TEGULA_TRY(from.take<uint64_t>("its dims"));
    if (dim == 0) return invalid_argument("a dim of it is 0");
    if (__builtin_mul_overflow(n, dim, &n) || n > uint64_t{INT64_MAX} / 8)
      return invalid_argument("its dims have more values than 64 bits can count");
    e.tensor.shape.insert(e.tensor.shape.begin(), static_cast<int64_t>(dim));
  }
  const auto id = TEGULA_TRY(from.take<uint32_t>("its type"));
  const GgufTensorType* type = find_gguf_type(id);
  if (type == nullptr)
    return invalid_argument(cat("its type is the number ", id, ", which names none"));
  if (!type->dtype && !type->format)
    return unsupported(cat("it is of the type ", type->name, ", which tegula does not read: get ",
                           "the model in another one (", readable_gguf_types(), ")"));
  std::vector<int64_t> bytes = e.tensor.shape;
  if (type->format) {
    const BlockLayout& layout = layout_of(*type->format);
    if (bytes.back() % layout.n_values != 0)
      return invalid_argument(cat("its rows have ", bytes.back(), " values, and a block of ",
                                  type->name, " has ", layout.n_values));
    bytes.back() = bytes.back() / layout.n_values * layout.n_bytes;
  }
  const Type t{type->dtype.value_or(DType::kU8), Shape(std::span<const int64_t>(bytes))};
  e.tensor.format = type->format;
  e.tensor.bytes = contiguous_ref(nullptr, t);
  e.n_bytes = static_cast<uint64_t>(t.bytes());
  e.offset = TEGULA_TRY(from.take<uint64_t>("its offset"));
  return e;
}

// Inside, aligned, and apart.
Status check_places(std::span<const Entry> entries, uint64_t n_data, uint64_t alignment) {
  std::vector<const Entry*> order;
  for (const Entry& e : entries) {
    order.push_back(&e);
    if (e.offset % alignment != 0)
      return invalid_argument(cat("tensor ", e.tensor.name, ": its offset ", e.offset,
                                  " is no multiple of the file's alignment, ", alignment));
    if (e.offset > n_data || e.n_bytes > n_data - e.offset)
      return invalid_argument(cat("tensor ", e.tensor.name, ": its ", e.n_bytes, " bytes at ",
                                  e.offset, " end behind the ", n_data,
                                  " bytes of data: the file is cut off or damaged"));
  }
  std::sort(order.begin(), order.end(),
            [](const Entry* a, const Entry* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i - 1]->offset + order[i - 1]->n_bytes > order[i]->offset)
      return invalid_argument(cat("tensor ", order[i]->tensor.name, " begins at ", order[i]->offset,
                                  ", inside of ", order[i - 1]->tensor.name));
  return {};
}

Error in_file(const std::string& path, std::string_view bytes, Error error) {
  const std::string other = bytes.starts_with("GGUF") ? "" : what_it_is_instead(bytes, false);
  if (!other.empty())
    error.message = cat("'", path, "' is not a GGUF file: ", other);
  else if (!bytes.starts_with("GGUF"))
    error.message = cat("'", path, "' is no model: a file that is one begins with GGUF; of other ",
                        "models give the directory");
  else if (error.code == Code::kUnsupported)
    error.message = cat("cannot use '", path, "': ", error.message);
  else
    error.message =
        cat("'", path, "' is not a valid GGUF file: ", error.message, ". Download it again");
  return error;
}

// NAME-00002-of-00003.gguf: where "00002" begins, or npos.
size_t shard_number_at(const std::string& path, int64_t n_shards) {
  std::string n = std::to_string(n_shards);
  n.insert(0, n.size() < 5 ? 5 - n.size() : 0, '0');
  const std::string end = cat("-of-", n, ".gguf");
  if (!path.ends_with(end) || path.size() < end.size() + 6) return path.npos;
  const size_t at = path.size() - end.size() - 5;
  return path[at - 1] == '-' ? at : path.npos;
}

}  // namespace

std::string_view GgufTensor::type_name() const { return gguf_type_of(*this).name; }

const GgufValue* GgufFile::find(std::string_view key) const {
  for (const GgufKey& k : keys_)
    if (k.name == key) return &k.value;
  return nullptr;
}

const GgufTensor* GgufFile::tensor(std::string_view name) const {
  const auto at =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  return at != by_name_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

namespace {

// The content of one file, before it is part of a model.
struct Header {
  uint32_t version = 0;
  std::vector<GgufKey> keys;
  std::vector<Entry> tensors;
  const GgufValue* find(std::string_view name) const {
    for (const GgufKey& k : keys)
      if (k.name == name) return &k.value;
    return nullptr;
  }
};

Result<uint32_t> take_version(Cursor& from) {
  const char* magic = TEGULA_TRY(from.skip(4, "the magic"));
  if (std::string_view(magic, 4) != "GGUF") return invalid_argument("it does not begin with GGUF");
  const auto version = TEGULA_TRY(from.take<uint32_t>("the version"));
  if (version == 2 || version == 3) return version;
  if (version != 0 && version % 65536 == 0)
    return unsupported("it is big endian: get the little endian file");
  return unsupported(cat("it is of version ", version, "; tegula reads 2 and 3"));
}

Status take_keys(Cursor& from, uint64_t n, Header& h) {
  std::vector<std::string_view> names;
  for (uint64_t i = 0; i < n; ++i) {
    const std::string_view name = TEGULA_TRY(from.name(cat("the name of key ", i)));
    h.keys.push_back({name, TEGULA_TRY(named(cat("key ", name), take_value(from)))});
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    return invalid_argument(cat("key ", *twice, " is there twice"));
  return {};
}

Result<uint64_t> alignment_of(const Header& h) {
  const GgufValue* said = h.find("general.alignment");
  if (said == nullptr) return uint64_t{32};
  const auto n = said->whole();
  if (n && *n >= 8 && *n <= 1 << 20 && std::has_single_bit(static_cast<uint64_t>(*n)))
    return static_cast<uint64_t>(*n);
  return invalid_argument(
      cat("key general.alignment: it is ", said->shown(), ", not a power of two from 8 on"));
}

Result<Header> read_header(std::string_view bytes) {
  Header h;
  Cursor from(bytes);
  h.version = TEGULA_TRY(take_version(from));
  const auto n_tensors = TEGULA_TRY(from.take<uint64_t>("the number of tensors"));
  const auto n_keys = TEGULA_TRY(from.take<uint64_t>("the number of keys"));
  // The fewest bytes that one takes.
  if (n_tensors > from.left() / 33 || n_keys > from.left() / 14)
    return invalid_argument(cat("it claims ", n_tensors, " tensors and ", n_keys, " keys in ",
                                bytes.size(), " bytes: it is cut off or damaged"));
  TEGULA_TRY(take_keys(from, n_keys, h));
  for (uint64_t i = 0; i < n_tensors; ++i) {
    const std::string_view name = TEGULA_TRY(from.name(cat("the name of tensor ", i)));
    h.tensors.push_back(TEGULA_TRY(named(cat("tensor ", name), take_tensor(from, name))));
  }
  const uint64_t alignment = TEGULA_TRY(alignment_of(h));
  const uint64_t begin = (from.at() + alignment - 1) / alignment * alignment;
  const uint64_t n_data = bytes.size() > begin ? bytes.size() - begin : 0;
  TEGULA_TRY(check_places(h.tensors, n_data, alignment));
  // The views are read-only by contract; TensorRef has one pointer for readers and writers.
  for (Entry& e : h.tensors)
    e.tensor.bytes.data = const_cast<char*>(bytes.data()) + begin + e.offset;
  return h;
}

struct Split {
  int64_t no = 0, n = 1, n_tensors = -1;
};
Result<Split> split_of(const Header& h) {
  Split s;
  for (const auto& [key, to] : {std::pair{"split.no", &s.no},
                                {"split.count", &s.n},
                                {"split.tensors.count", &s.n_tensors}}) {
    const GgufValue* value = h.find(key);
    if (value == nullptr) continue;
    const auto n = value->whole();
    if (!n || *n < 0 || *n > 1 << 30)
      return invalid_argument(cat("key ", key, ": it is ", value->shown(), ", not a small number"));
    *to = *n;
  }
  if (s.n == 0) s.n = 1;
  if (s.n > 99999 || s.no >= s.n)
    return invalid_argument(cat("key split.no: it is the shard ", s.no, " of ", s.n));
  return s;
}

}  // namespace

Status GgufFile::add(const std::string& path, bool is_first) {
  MappedFile map = TEGULA_TRY(MappedFile::open(path));
  const auto in_it = [&](Error e) { return in_file(path, map.bytes(), std::move(e)); };
  auto header = read_header(map.bytes());
  if (!header.ok()) return in_it(std::move(header).error());
  const auto split = split_of(*header);
  if (!split.ok()) return in_it(split.error());
  if (is_first)
    shard_ = split->no, n_split_ = split->n, n_split_tensors_ = split->n_tensors;
  else if (split->no != static_cast<int64_t>(maps_.size()) || split->n != n_split_)
    return in_it(invalid_argument(cat("key split.no: it is the shard ", split->no, " of ", split->n,
                                      ", in the place of shard ", maps_.size(), " of ", n_split_)));
  paths_.push_back(path);
  maps_.push_back(std::move(map));
  if (is_first) version_ = header->version, keys_ = std::move(header->keys);
  for (const GgufKey& key : header->keys)
    if (!key.name.starts_with("split.") && find(key.name) == nullptr)
      return in_it(invalid_argument(cat("key ", key.name, ": the first shard does not have it")));
  for (Entry& e : header->tensors) tensors_.push_back(std::move(e.tensor));
  shard_of_.resize(tensors_.size(), static_cast<uint32_t>(paths_.size() - 1));
  return {};
}

Status GgufFile::check_names() {
  by_name_.resize(tensors_.size());
  for (uint32_t i = 0; i < by_name_.size(); ++i) by_name_[i] = i;
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return tensors_[a].name < tensors_[b].name; });
  for (size_t i = 1; i < by_name_.size(); ++i)
    if (tensors_[by_name_[i - 1]].name == tensors_[by_name_[i]].name)
      return invalid_argument(cat("'", path_of(by_name_[i]), "' is not a valid GGUF file: tensor ",
                                  tensors_[by_name_[i]].name, " is there twice, also in '",
                                  path_of(by_name_[i - 1]), "'"));
  return {};
}

// The files of a model of which `path` is one; some are not there: an error that names them.
Result<std::vector<std::string>> GgufFile::shards_of(const std::string& path) const {
  const size_t at = shard_number_at(path, n_split_);
  if (at == path.npos)
    return invalid_argument(cat("'", path, "' is the shard ", shard_, " of ", n_split_,
                                ", and its name does not end in -0000N-of-0000M.gguf, by which ",
                                "the others are found: rename them"));
  std::vector<std::string> paths;
  std::string missing;
  for (int64_t i = 1; i <= n_split_; ++i) {
    std::string number = std::to_string(i);
    number.insert(0, 5 - number.size(), '0');
    paths.push_back(cat(path.substr(0, at), number, path.substr(at + 5)));
    if (!path_exists(paths.back()) && missing.size() < 300)
      missing += cat(missing.empty() ? "" : ", ", paths.back());
  }
  if (missing.empty()) return paths;
  return Error{Code::kIo, cat("'", path, "' is one of ", n_split_, " shards, of which these are ",
                              "not there: ", missing, ": download the rest")};
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  GgufFile file;
  TEGULA_TRY(file.add(path, true));
  if (file.n_split_ > 1) {
    const auto paths = TEGULA_TRY(file.shards_of(path));
    if (file.shard_ != 0) {
      const int64_t n = file.n_split_;
      file = GgufFile();
      TEGULA_TRY(file.add(paths[0], true));
      if (file.shard_ != 0 || file.n_split_ != n)
        return invalid_argument(cat("'", paths[0], "' says that it is the shard ", file.shard_,
                                    " of ", file.n_split_, ", and '", path, "' of ", n,
                                    ": keep the shards of one model only"));
    }
    for (size_t i = 1; i < paths.size(); ++i) TEGULA_TRY(file.add(paths[i], false));
    const auto n_tensors = static_cast<int64_t>(file.tensors_.size());
    if (file.n_split_tensors_ >= 0 && n_tensors != file.n_split_tensors_)
      return invalid_argument(cat("'", path, "': the shards have ", n_tensors,
                                  " tensors together, and split.tensors.count is ",
                                  file.n_split_tensors_, ": download them again"));
  }
  TEGULA_TRY(file.check_names());
  return file;
}

}  // namespace tegula
