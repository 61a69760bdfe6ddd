// The planner's closed forms of schedules beside the schedules themselves, entry by entry.
#include <gtest/gtest.h>

#include "tegula/plan/schedule_check.h"
#include "tegula/planner/memory.h"

namespace tegula::planner {
namespace {

TEST(PlannerSchedules, LayersInFlightAreThoseOfTheSchedule) {
  int compared = 0;
  for (const Turns turns : kTurns)
    for (int p : {2, 3, 4, 8, 16})
      for (int v : {1, 2, 3})
        for (int m : {p, 2 * p, 5 * p}) {
          if ((turns == Turns::kInterleaved) != (v > 1)) continue;
          SCOPED_TRACE(cat(turns_name(turns), ", ", p, " ranks, ", v, " stages each, ", m,
                           " micro-batches"));
          const auto def = find_schedule(turns_name(turns));
          ASSERT_TRUE(def.ok());
          const auto schedule = make_schedule(**def, {p, p * v, m, 1});
          ASSERT_TRUE(schedule.ok()) << schedule.error().to_string();
          const auto facts = check_schedule(*schedule);
          ASSERT_TRUE(facts.ok()) << facts.error().to_string();
          Layout layout;
          layout.pp = p, layout.interleave = v, layout.turns = turns;
          for (int rank = 0; rank < p; ++rank, ++compared)
            EXPECT_DOUBLE_EQ(layers_in_flight(layout, m, rank, 6 * v),
                             6.0 * facts->peak_in_flight[static_cast<size_t>(rank)]);
        }
  EXPECT_GT(compared, 300);
}

}  // namespace
}  // namespace tegula::planner
