#include "cli/plan_slices.h"

#include "tegula/base/algorithm.h"
#include "tegula/plan/token_slices.h"

namespace tegula::cli {

namespace {
constexpr int64_t kMostUnits = 64;
}

double PartTime::of(double begin, double end) const {
  // A roofline that bends between the points may leave a little less than nothing.
  return std::max(0.0, fixed + linear * (end - begin) + square * (end * end - begin * begin));
}

PartTime part_time(const std::array<int64_t, 3>& tokens, const std::array<double, 3>& seconds) {
  const auto x = [&](size_t i) { return static_cast<double>(tokens[i]); };
  const double first = (seconds[1] - seconds[0]) / (x(1) - x(0)),
               second = (seconds[2] - seconds[1]) / (x(2) - x(1));
  PartTime t;
  t.square = (second - first) / (x(2) - x(0));
  t.linear = first - t.square * (x(0) + x(1));
  t.fixed = seconds[0] - t.linear * x(0) - t.square * x(0) * x(0);
  return t;
}

Result<Slices> cut_slices(const Program& program, const std::vector<PartTime>& times,
                          int64_t n_tokens, int n_ranks, int n_slices) {
  int64_t units = std::min(n_tokens, kMostUnits);
  while (n_tokens % units != 0) --units;
  const int64_t tokens_per_unit = n_tokens / units;
  const auto per_unit = static_cast<double>(tokens_per_unit);
  // The slowest stage sets the pace.
  SliceTimes slowest = slice_times(static_cast<int>(units));
  for (int begin = 0; begin < slowest.n_units; ++begin)
    for (int end = begin + 1; end <= slowest.n_units; ++end)
      for (int stage = 0; stage < program.n_stages; ++stage) {
        double t = 0;
        for (size_t i = 0; i < program.parts.size(); ++i)
          if (program.parts[i].stage == stage && is_per_micro_batch(program.parts[i].kind))
            t += times[i].of(begin * per_unit, end * per_unit);
        slowest.at(begin, end) = std::max(slowest.at(begin, end), t);
      }
  const TokenSlices cut =
      TEGULA_TRY(slice_tokens(slowest, n_ranks, program.n_micro_batches, n_slices));
  Slices out;
  for (int length : cut.lengths) out.tokens.push_back(length * tokens_per_unit);
  for (size_t i = 0; i < program.parts.size(); ++i) {
    double begin = 0;
    for (int64_t tokens : out.tokens) {
      const double end = begin + static_cast<double>(tokens);
      out.seconds.push_back(is_per_micro_batch(program.parts[i].kind) ? times[i].of(begin, end)
                            : begin == 0                              ? times[i].fixed
                                                                      : 0);
      begin = end;
    }
  }
  return out;
}

}  // namespace tegula::cli
