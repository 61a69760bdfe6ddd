// Pages of a cache, which texts take as they grow and give back when they end.
#pragma once

#include <cstdint>
#include <vector>

#include "tegula/base/result.h"

namespace tegula {

// The pages that the cache holds of a text: its tokens so far, and in which pages, in order.
struct CachedText {
  int64_t n_tokens = 0;
  std::vector<int32_t> pages;
};

class PagePool {
 public:
  PagePool() = default;  // of no pages
  PagePool(int64_t n_pages, int64_t page_size);

  // Room for n tokens. Error: as many pages are not free; nothing is taken then.
  Status grow(CachedText& text, int64_t n_tokens);
  // The text's first n tokens stay.
  void shrink(CachedText& text, int64_t n_tokens);
  // The text is forgotten.
  void give_back(CachedText& text);

  int64_t pages_of(int64_t n_tokens) const { return (n_tokens + page_size_ - 1) / page_size_; }
  int64_t page_size() const { return page_size_; }
  int64_t n_pages() const { return n_pages_; }
  int64_t n_free() const { return static_cast<int64_t>(free_.size()); }

 private:
  int64_t n_pages_ = 0, page_size_ = 1;
  std::vector<int32_t> free_;  // the next one last: the lowest at first
};

}  // namespace tegula
