#include "tegula/comm/wire.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>

#include "tegula/base/algorithm.h"

namespace tegula {

Frame::Frame(Kind kind, std::initializer_list<uint64_t> words, const void* data, size_t bytes) {
  TEGULA_CHECK(bytes <= kMostBytes && words.size() <= std::size(head.words), "a frame of ", bytes,
               " bytes");
  head.kind = kind, head.bytes = static_cast<uint32_t>(bytes);
  std::copy(words.begin(), words.end(), head.words);
  const auto* from = static_cast<const uint8_t*>(data);
  body.assign(from, from + bytes);
}

FrameReader::FrameReader() : buffer_(sizeof(Frame::Head) + Frame::kMostBytes) {}

uint8_t* FrameReader::room(size_t& bytes) {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_, begin_ = 0;
  }
  bytes = is_broken_ ? 0 : buffer_.size() - end_;
  return buffer_.data() + end_;
}

bool FrameReader::next(Frame::Head& head, const uint8_t*& body) {
  if (is_broken_ || end_ - begin_ < sizeof head) return false;
  std::memcpy(&head, buffer_.data() + begin_, sizeof head);
  is_broken_ = !Frame::can_be(head);
  if (is_broken_ || end_ - begin_ < sizeof head + head.bytes) return false;
  body = buffer_.data() + begin_ + sizeof head;
  begin_ += sizeof head + head.bytes;
  return true;
}

Alarm::Alarm() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TEGULA_CHECK(fd_ >= 0, "no descriptor is left for an eventfd (ulimit -n)");
}
Alarm::~Alarm() { ::close(fd_); }
void Alarm::ring() const {
  const uint64_t one = 1;
  // It can only fail where it rings already.
  [[maybe_unused]] const ssize_t n = ::write(fd_, &one, sizeof one);
}
void Alarm::clear() const {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = ::read(fd_, &count, sizeof count);
}

}  // namespace tegula
