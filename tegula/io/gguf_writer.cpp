#include "tegula/io/gguf_writer.h"

#include "tegula/io/gguf.h"
#include "tegula/io/gguf_types.h"

namespace tegula {
namespace {

constexpr uint64_t kAlignment = 32;
uint64_t padded(uint64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

class Header {
 public:
  template <class T>
  void put(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put(GgufType type) { put(static_cast<uint32_t>(type)); }
  void put(std::string_view text) {
    put(static_cast<uint64_t>(text.size()));
    bytes += text;
  }
  void value(uint32_t x) { put(GgufType::kU32), put(x); }
  void value(float x) { put(GgufType::kF32), put(x); }
  void value(bool x) { put(GgufType::kBool), put(static_cast<uint8_t>(x)); }
  void value(const std::string& x) { put(GgufType::kString), put(std::string_view(x)); }
  void value(const std::vector<std::string>& x) {
    array(GgufType::kString, x.size());
    for (const std::string& each : x) put(std::string_view(each));
  }
  void value(const std::vector<float>& x) {
    array(GgufType::kF32, x.size());
    for (const float each : x) put(each);
  }
  void value(const std::vector<int32_t>& x) {
    array(GgufType::kI32, x.size());
    for (const int32_t each : x) put(each);
  }
  std::string bytes;

 private:
  void array(GgufType type, size_t n) {
    put(GgufType::kArray), put(type), put(static_cast<uint64_t>(n));
  }
};

}  // namespace

Status write_gguf(OutputFile& out, const std::vector<GgufOutKey>& keys,
                  const std::vector<GgufOutTensor>& tensors, TensorSource& source) {
  Header h;
  h.bytes = "GGUF";
  h.put(uint32_t{3});
  h.put(static_cast<uint64_t>(tensors.size()));
  h.put(static_cast<uint64_t>(keys.size()));
  for (const GgufOutKey& key : keys) {
    h.put(std::string_view(key.name));
    std::visit([&](const auto& x) { h.value(x); }, key.value);
  }
  uint64_t offset = 0;
  std::vector<uint64_t> sizes;
  for (const GgufOutTensor& t : tensors) {
    const GgufTensorType* type = find_gguf_type(t.dtype);
    if (type == nullptr)
      return unsupported(cat("tensor ", t.name, " is ", t.dtype, ", which GGUF has not"));
    h.put(std::string_view(t.name));
    h.put(static_cast<uint32_t>(t.shape.size()));
    uint64_t n_bytes = static_cast<uint64_t>(size_bytes(t.dtype));
    for (size_t d = t.shape.size(); d-- > 0;) {
      h.put(static_cast<uint64_t>(t.shape[d]));
      n_bytes *= static_cast<uint64_t>(t.shape[d]);
    }
    h.put(type->id);
    h.put(offset);
    sizes.push_back(n_bytes);
    offset += padded(n_bytes);
  }
  h.bytes.append(padded(h.bytes.size()) - h.bytes.size(), '\0');
  TEGULA_TRY(out.write(h.bytes));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t begin = out.n_bytes();
    TEGULA_TRY(source.write(tensors[i].name, out));
    TEGULA_CHECK(out.n_bytes() - begin == sizes[i], tensors[i].name, " has ", out.n_bytes() - begin,
                 " bytes, not ", sizes[i]);
    TEGULA_TRY(out.write(std::string(padded(sizes[i]) - sizes[i], '\0')));
  }
  return {};
}

}  // namespace tegula
