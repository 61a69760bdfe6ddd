#include "tegula/serve/page_pool.h"

namespace tegula {

PagePool::PagePool(int64_t n_pages, int64_t page_size) : n_pages_(n_pages), page_size_(page_size) {
  for (int64_t page = n_pages; page-- > 0;) free_.push_back(static_cast<int32_t>(page));
}

Status PagePool::grow(CachedText& text, int64_t n_tokens) {
  const auto have = static_cast<int64_t>(text.pages.size());
  const int64_t more = pages_of(n_tokens) - have;
  if (more > n_free())
    return out_of_memory(cat("a text of ", n_tokens, " tokens needs ", more, " more pages of ",
                             page_size_, " tokens, and of ", n_pages_, " ", n_free(),
                             " are free: give a smaller --batch"));
  for (int64_t i = 0; i < more; ++i) {
    text.pages.push_back(free_.back());
    free_.pop_back();
  }
  return {};
}

void PagePool::shrink(CachedText& text, int64_t n_tokens) {
  while (static_cast<int64_t>(text.pages.size()) > pages_of(n_tokens)) {
    free_.push_back(text.pages.back());
    text.pages.pop_back();
  }
  text.n_tokens = n_tokens;
}

void PagePool::give_back(CachedText& text) {
  free_.insert(free_.end(), text.pages.rbegin(), text.pages.rend());
  text = {};
}

}  // namespace tegula
