#include "tegula/serve/schedule.h"

#include "tegula/base/range.h"

namespace tegula {

namespace {

// Pages, and those of layers with a window, that a text has not taken and may still need.
struct Needs {
  int64_t pages = 0, in_rings = 0;
};
Needs needs_of(const ScheduledText& t, const PagePool& pages) {
  return {pages.pages_of(t.most_tokens) - static_cast<int64_t>(t.cached.pages.size()),
          pages.ring_pages_of(t.most_tokens) - static_cast<int64_t>(t.cached.ring.size())};
}
// Those that are free, and no text under way may still need.
Needs room_in(const BatchSchedule& s) {
  Needs room{s.pages.n_free(), s.pages.n_free_in_rings()};
  for (const ScheduledText& t : s.texts) {
    const Needs needs = needs_of(t, s.pages);
    room.pages -= needs.pages, room.in_rings -= needs.in_rings;
  }
  return room;
}

Status check_arrival(const ScheduledText& t, const PagePool& pages) {
  const auto has = static_cast<int64_t>(t.cached.pages.size());
  const int64_t needs = pages.pages_of(t.cached.n_tokens);
  const bool has_ring =
      static_cast<int64_t>(t.cached.ring.size()) == pages.ring_pages_of(t.cached.n_tokens);
  if (has_ring && t.n_unread >= 1 && t.cached.n_tokens + t.n_unread <= t.most_tokens &&
      has == needs)
    return {};
  return invalid_argument(cat("text ", t.id, " has ", t.n_unread, " tokens to read behind ",
                              t.cached.n_tokens, " and may have ", t.most_tokens, " in all, with ",
                              has, " pages: it must have 1 at least, and ", needs, " pages"));
}

Result<int64_t> admit(BatchSchedule& s, std::span<const ScheduledText> arrivals, int64_t batch) {
  int64_t n = 0;
  Needs room = room_in(s);
  for (const ScheduledText& t : arrivals) {
    if (static_cast<int64_t>(s.texts.size()) >= batch) break;
    TEGULA_TRY(check_arrival(t, s.pages));
    const Needs needs = needs_of(t, s.pages);
    const bool fits = needs.pages <= room.pages && needs.in_rings <= room.in_rings;
    if (!fits && s.texts.empty())
      return out_of_memory(cat("a text of ", t.most_tokens, " tokens needs ", needs.pages,
                               " pages of ", s.pages.page_size(), " tokens, and of ",
                               s.pages.n_pages(), " ", room.pages,
                               " are free: give the cache more pages"));
    if (!fits) break;
    room.pages -= needs.pages, room.in_rings -= needs.in_rings;
    s.texts.push_back(t);
    ++n;
  }
  return n;
}

}  // namespace

ScheduledText* BatchSchedule::find(int64_t id) {
  const auto it =
      std::find_if(texts.begin(), texts.end(), [&](const ScheduledText& t) { return t.id == id; });
  return it == texts.end() ? nullptr : &*it;
}

bool BatchSchedule::end(int64_t id) {
  ScheduledText* t = find(id);
  if (t == nullptr) return false;
  pages.give_back(t->cached);
  texts.erase(texts.begin() + (t - texts.data()));
  return true;
}

bool BatchSchedule::read_again(int64_t id, int64_t n_tokens) {
  ScheduledText* t = find(id);
  if (t == nullptr) return false;
  pages.give_back(t->cached);
  t->n_unread = n_tokens;
  return true;
}

Result<ScheduledStep> next_step(BatchSchedule now, std::span<const ScheduledText> arrivals,
                                const ScheduleLimits& limits) {
  if (limits.batch < 1 || limits.chunk < 1)
    return invalid_argument(cat("a batch of ", limits.batch, " texts that reads ", limits.chunk,
                                " tokens at once: both must be at least 1"));
  ScheduledStep step{.after = std::move(now)};
  BatchSchedule& s = step.after;
  step.n_admitted = TEGULA_TRY(admit(s, arrivals, limits.batch));
  step.reads = any_of(s.texts, [](const ScheduledText& t) { return t.n_unread > 0; });
  int64_t room = limits.chunk;
  for (ScheduledText& t : s.texts) {
    if (step.reads && (t.n_unread == 0 || room == 0)) continue;
    const int64_t n = step.reads ? std::min(t.n_unread, room) : 1, first = t.cached.n_tokens;
    if (first + n > t.most_tokens)
      return invalid_argument(cat("text ", t.id, " has ", first, " tokens and comes to ", first + n,
                                  ", more than the ", t.most_tokens, " that it may have"));
    TEGULA_TRY(s.pages.grow(t.cached, first + n));
    t.cached.n_tokens += n;
    if (step.reads) t.n_unread -= n, room -= n;
    step.pieces.push_back({t.id, first, n, t.n_unread == 0});
    if (step.reads && limits.reads_alone) break;
  }
  return step;
}

}  // namespace tegula
