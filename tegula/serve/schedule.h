// Decides what a batch does next, as a function of its state and of what has arrived: which texts
// come in, which read how many tokens or decode one, and in which pages. Nothing is computed here.
//
// Reading comes first: a step reads at most `chunk` tokens, packed, of the texts that have some to
// read, oldest first; where none has, all texts decode a token each. A text comes in, in the order
// of arrival, when the batch has a place for it and all pages that it may ever need are free or
// will be: a text that came in never waits for pages. Pages are taken as tokens come.
// [Yu et al. 2022 (Orca), section 4.1; Kwon et al. 2023 (vLLM), section 4; Agrawal et al. 2024
// (Sarathi-Serve), section 4.1]
#pragma once

#include <span>

#include "tegula/serve/page_pool.h"

namespace tegula {

struct ScheduledText {
  int64_t id = 0;
  int64_t n_unread = 0;     // tokens that are known and not in the cache; 0: it decodes
  int64_t most_tokens = 0;  // that the cache will ever hold of it at once
  CachedText cached;
};

struct ScheduleLimits {
  int64_t batch = 1, chunk = 1;
  bool reads_alone = false;  // one text in a step: a model that carries a state
};

struct BatchSchedule {
  PagePool pages;
  std::vector<ScheduledText> texts;  // under way, in the order of their arrival

  ScheduledText* find(int64_t id);
  // It has ended: its pages are free. False: no text has that id.
  bool end(int64_t id);
  // Forgets what the cache holds of it, and n tokens are to be read instead.
  bool read_again(int64_t id, int64_t n_tokens);
};

struct ScheduledStep {
  struct Piece {
    int64_t id = 0;
    int64_t first = 0, n_tokens = 0;  // at which positions
    bool is_last = true;              // a token is drawn after it
  };
  bool reads = false;
  std::vector<Piece> pieces;  // none: nothing is under way
  int64_t n_admitted = 0;     // of the arrivals, the first ones
  BatchSchedule after;        // once the step is done; texts that decode have nothing unread
};

// A text may arrive with tokens that the cache holds already, as one that was kept does.
// Errors: limits of less than 1; a text with nothing to read, with more than its most_tokens, or
// with other pages than its cached tokens need; a first arrival that does not fit the pages though
// no text is under way.
Result<ScheduledStep> next_step(BatchSchedule now, std::span<const ScheduledText> arrivals,
                                const ScheduleLimits& limits);

}  // namespace tegula
