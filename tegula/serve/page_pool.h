// Pages of a cache, which texts take as they grow and give back when they end.
//
// Layers whose attention has a window need a text's last tokens alone. Theirs lie in a ring of a
// few pages: the page of tokens [j·size, (j + 1)·size) is ring[j mod ring pages], and takes the
// place of those that no window sees any more.
#pragma once

#include <cstdint>
#include <vector>

#include "tegula/base/result.h"

namespace tegula {

// The pages that the cache holds of a text: its tokens so far, and in which pages, in order.
struct CachedText {
  int64_t n_tokens = 0;
  std::vector<int32_t> pages, ring;
  int64_t most_tokens = 0;  // that it has had
};

// For the layers with a window: tokens that attention sees at most, pages of a text and of all.
struct PageRing {
  int64_t window = 0, pages = 0, count = 0;  // pages: 0: there is none
};

class PagePool {
 public:
  PagePool() = default;  // of no pages
  PagePool(int64_t n_pages, int64_t page_size, const PageRing& ring = {});

  // Room for n tokens. Error: as many pages are not free; nothing is taken then.
  Status grow(CachedText& text, int64_t n_tokens);
  // Whether all that a token behind the text's first n sees is still there.
  bool holds(const CachedText& text, int64_t n_tokens) const;
  // The text's first n tokens stay.
  void shrink(CachedText& text, int64_t n_tokens);
  // The text is forgotten.
  void give_back(CachedText& text);

  int64_t pages_of(int64_t n_tokens) const { return (n_tokens + page_size_ - 1) / page_size_; }
  int64_t ring_pages_of(int64_t n_tokens) const {
    const int64_t n = pages_of(n_tokens);
    return n < ring_.pages ? n : ring_.pages;
  }
  int64_t page_size() const { return page_size_; }
  int64_t n_pages() const { return n_pages_; }
  int64_t n_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t n_free_in_rings() const { return static_cast<int64_t>(free_in_rings_.size()); }

 private:
  int64_t n_pages_ = 0, page_size_ = 1;
  PageRing ring_;
  std::vector<int32_t> free_, free_in_rings_;  // the next one last: the lowest at first
};

}  // namespace tegula
