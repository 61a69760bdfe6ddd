#include "tegula/io/shared_safetensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tegula/base/algorithm.h"

namespace tegula {

namespace {
constexpr size_t kPiece_bytes = 1 << 20;
}  // namespace

Result<SharedSafetensors> SharedSafetensors::plan(std::span<const NamedTensor> tensors,
                                                  const Metadata& metadata) {
  SharedSafetensors file;
  const SafetensorsLayout layout = TEGULA_TRY(safetensors_layout(tensors, metadata));
  file.head_ = layout.head;
  file.n_bytes_ = layout.n_bytes;
  for (const auto& [tensor, at] : layout.places) {
    const TensorRef& t = tensor->tensor;
    file.places_[tensor->name] = {{t.shape, t.shape + t.rank}, t.dtype, at};
  }
  return file;
}

Status SharedSafetensors::create(const std::string& path, const std::string& shown_path) const {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return file_error("create", shown_path, errno);
  Writer w(*this, fd, shown_path);
  if (::ftruncate(fd, static_cast<off_t>(n_bytes_)) != 0)
    return file_error("write", shown_path, errno);
  TEGULA_TRY(w.put(0, head_.data(), head_.size()));
  return w.finish();
}

Result<SharedSafetensors::Writer> SharedSafetensors::open(const std::string& path,
                                                          const std::string& shown_path) const {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return file_error("open", shown_path, errno);
  return Writer(*this, fd, shown_path);
}

SharedSafetensors::Writer::Writer(Writer&& other) noexcept
    : file_(other.file_),
      fd_(std::exchange(other.fd_, -1)),
      shown_(std::move(other.shown_)),
      buffer_(std::move(other.buffer_)),
      buffer_at_(other.buffer_at_) {}

SharedSafetensors::Writer::~Writer() {
  if (fd_ >= 0) ::close(fd_);
}

Status SharedSafetensors::Writer::flush() {
  const char* from = buffer_.data();
  for (size_t left = buffer_.size(); left > 0;) {
    const ssize_t n = ::pwrite(fd_, from, left, static_cast<off_t>(buffer_at_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error("write", shown_, errno);
    from += n, left -= static_cast<size_t>(n), buffer_at_ += static_cast<uint64_t>(n);
  }
  buffer_.clear();
  return {};
}

// A box that follows the last one in the file is written with it.
Status SharedSafetensors::Writer::put(uint64_t at, const char* bytes, size_t n) {
  if (at != buffer_at_ + buffer_.size() || buffer_.size() >= kPiece_bytes) {
    TEGULA_TRY(flush());
    buffer_at_ = at;
  }
  buffer_.append(bytes, n);
  return {};
}

Status SharedSafetensors::Writer::write(std::string_view name, const Box& box,
                                        const TensorRef& data) {
  const auto found = file_->places_.find(name);
  if (found == file_->places_.end())
    return invalid_argument(cat("'", shown_, "' has no tensor ", name));
  const Place& place = found->second;
  TEGULA_TRY(check_box(name, place.shape, box));
  if (data.dtype != place.dtype ||
      !std::equal(box.extent.begin(), box.extent.end(), data.shape, data.shape + data.rank))
    return invalid_argument(cat("'", shown_, "': the box at ", box.offset, " of ", name, " is ",
                                data.dtype, " ", std::vector(data.shape, data.shape + data.rank),
                                ", not ", place.dtype, " ", box.extent));
  const auto width = static_cast<int64_t>(size_bytes(data.dtype));
  const int last = data.rank - 1;
  const int64_t run = data.rank == 0 ? 1 : box.extent.back();
  std::string row;
  int64_t index[kMaxRank] = {};
  for (int64_t left = data.numel(); left > 0; left -= run) {
    int64_t element = 0, from = 0;
    for (int d = 0; d < data.rank; ++d) {
      const auto i = static_cast<size_t>(d);
      element = element * place.shape[i] + box.offset[i] + index[d];
      from += index[d] * data.stride[d];
    }
    const char* bytes = data.as<char>() + from * width;
    if (data.rank > 0 && data.stride[last] != 1) {
      row.clear();
      for (int64_t i = 0; i < run; ++i)
        row.append(bytes + i * data.stride[last] * width, static_cast<size_t>(width));
      bytes = row.data();
    }
    TEGULA_TRY(put(place.at + static_cast<uint64_t>(element * width), bytes,
                   static_cast<size_t>(run * width)));
    for (int d = last - 1; d >= 0 && ++index[d] == data.shape[d]; --d) index[d] = 0;
  }
  return {};
}

Status SharedSafetensors::Writer::finish() {
  TEGULA_TRY(flush());
  if (::fsync(fd_) != 0) return file_error("write", shown_, errno);
  // Late news of a full disk, where the file system tells it then.
  if (::close(std::exchange(fd_, -1)) != 0) return file_error("write", shown_, errno);
  return {};
}

}  // namespace tegula
