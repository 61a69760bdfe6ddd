// Text on its way out: the part that may be the beginning of a stop text waits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/algorithm.h"

namespace tegula {

class StopTexts {
 public:
  explicit StopTexts(const std::vector<std::string>* stops) : stops_(stops) {}

  // Returns what may be written once `piece` is there; valid until the next call.
  std::string_view add(std::string_view piece) {
    waiting_.erase(0, n_written_);
    waiting_ += piece;
    size_t at = waiting_.npos, held = 0;
    for (const std::string& stop : *stops_) {
      at = std::min(at, waiting_.find(stop));
      for (size_t n = std::min(stop.size() - 1, waiting_.size()); n > held; --n)
        if (waiting_.ends_with(std::string_view(stop).substr(0, n))) held = n;
    }
    is_found_ = at != waiting_.npos;
    n_written_ = is_found_ ? at : waiting_.size() - held;
    if (is_found_) waiting_.resize(at);
    return std::string_view(waiting_).substr(0, n_written_);
  }
  bool is_found() const { return is_found_; }
  std::string_view rest() const { return std::string_view(waiting_).substr(n_written_); }

 private:
  const std::vector<std::string>* stops_;
  std::string waiting_;
  size_t n_written_ = 0;  // of waiting_
  bool is_found_ = false;
};

}  // namespace tegula
