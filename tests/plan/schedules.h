// Schedules of chains of priced stages, for tests.
#pragma once

#include <gtest/gtest.h>

#include "tegula/plan/schedule_check.h"
#include "tegula/plan/simulate.h"
#include "tegula/plan/stage_chain.h"

namespace tegula::testing {

// Times of one stage's parts for one micro-batch; backward parts without weight gradients.
struct Times {
  double f = 1, b = 1, w = 1;
};
inline constexpr int64_t kSavedBytes = 64;

inline Schedule made(std::string_view name, const ScheduleShape& shape) {
  auto def = find_schedule(name);
  EXPECT_TRUE(def.ok());
  auto s = make_schedule(**def, shape);
  EXPECT_TRUE(s.ok()) << s.error().to_string();
  return s.ok() ? std::move(*s) : Schedule{};
}

// p ranks with as many stages each as the schedule has by default.
inline ScheduleShape shape_of(std::string_view name, int p, int m) {
  return {p, p * (*find_schedule(name))->stages_per_rank, m, 1};
}

// All stages alike, messages for nothing.
inline Simulated run(const Schedule& s, const Times& times, double together = 1) {
  const std::vector<StagePrice> stages(static_cast<size_t>(s.shape.n_stages),
                                       {.forward_s = times.f,
                                        .backward_s = times.b,
                                        .weight_gradients_s = times.w,
                                        .saved_bytes = kSavedBytes});
  const StageChain chain = chain_of(s, stages);
  auto out = simulate(chain.program, s, {.seconds = chain.seconds, .together = together});
  EXPECT_TRUE(out.ok()) << out.error().to_string();
  return out.ok() ? std::move(*out) : Simulated{};
}

inline Simulated run(std::string_view name, int p, int m, const Times& times = {}) {
  return run(made(name, shape_of(name, p, m)), times);
}

// Can the schedule serve these numbers? What it refuses it must refuse with them.
inline bool serves(const ScheduleDef& def, const ScheduleShape& shape) {
  const auto s = make_schedule(def, shape);
  if (!s.ok()) {
    EXPECT_NE(s.error().message.find(cat(shape.n_ranks)), std::string::npos) << s.error().message;
  }
  return s.ok();
}

}  // namespace tegula::testing
