#include "tegula/serve/page_pool.h"

#include "tegula/base/algorithm.h"

namespace tegula {

namespace {
std::vector<int32_t> all_of(int64_t n) {
  std::vector<int32_t> pages;
  for (int64_t page = n; page-- > 0;) pages.push_back(static_cast<int32_t>(page));
  return pages;
}
void take(std::vector<int32_t>& free, std::vector<int32_t>& pages, int64_t n) {
  for (; n > 0; --n) pages.push_back(free.back()), free.pop_back();
}
void give(std::vector<int32_t>& free, std::vector<int32_t>& pages, int64_t that_stay) {
  for (; static_cast<int64_t>(pages.size()) > that_stay; pages.pop_back())
    free.push_back(pages.back());
}
}  // namespace

PagePool::PagePool(int64_t n_pages, int64_t page_size, const PageRing& ring)
    : n_pages_(n_pages),
      page_size_(page_size),
      ring_(ring),
      free_(all_of(n_pages)),
      free_in_rings_(all_of(ring.count)) {}

Status PagePool::grow(CachedText& text, int64_t n_tokens) {
  const auto check = [&](int64_t more, int64_t free, int64_t all, const char* of) -> Status {
    if (more <= free) return {};
    return out_of_memory(cat("a text of ", n_tokens, " tokens needs ", more, " more pages", of,
                             " of ", page_size_, " tokens, and of ", all, " ", free,
                             " are free: give a smaller --batch"));
  };
  const int64_t more = pages_of(n_tokens) - static_cast<int64_t>(text.pages.size());
  const int64_t in_ring = ring_pages_of(n_tokens) - static_cast<int64_t>(text.ring.size());
  TEGULA_TRY(check(more, n_free(), n_pages_, ""));
  TEGULA_TRY(check(in_ring, n_free_in_rings(), ring_.count, " of layers with a window,"));
  take(free_, text.pages, more), take(free_in_rings_, text.ring, in_ring);
  text.most_tokens = std::max(text.most_tokens, n_tokens);
  return {};
}

bool PagePool::holds(const CachedText& text, int64_t n_tokens) const {
  if (ring_.pages == 0) return true;
  const int64_t first_seen = std::max<int64_t>(n_tokens - ring_.window + 1, 0);
  return text.most_tokens - first_seen <= ring_.pages * page_size_;
}

void PagePool::shrink(CachedText& text, int64_t n_tokens) {
  give(free_, text.pages, pages_of(n_tokens));
  give(free_in_rings_, text.ring, ring_pages_of(n_tokens));
  text.n_tokens = n_tokens;
}

void PagePool::give_back(CachedText& text) {
  give(free_, text.pages, 0), give(free_in_rings_, text.ring, 0);
  text = {};
}

}  // namespace tegula
