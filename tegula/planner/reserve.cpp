#include "tegula/planner/reserve.h"

#include "tegula/planner/print.h"

namespace tegula::planner {

namespace {

constexpr double kArena = 1.05, kOwnError = 0.04;
constexpr double kLeastContext = 0.5e9, kMostContext = 0.9e9, kBuffers = 0.5e9;

struct Terms {
  double low, high, low_share, high_share;  // of allocated bytes
};

Terms terms_of(const ClusterSpec& c, const Job& job, const Layout& l) {
  const bool is_gpu = c.device.multiprocessors > 0;
  const int groups = (l.zero_ranks() > 1) + (l.tp > 1) + (l.cp > 1) + (l.pp > 1) + (l.ep > 1);
  return {is_gpu ? kLeastContext : 0, is_gpu ? kMostContext + groups * kBuffers : 0, 1 - kOwnError,
          (1 + kOwnError) * (job.framework ? job.framework->fragmentation : kArena)};
}

}  // namespace

std::string_view fit_name(Fit fit) {
  constexpr std::string_view kNames[] = {"fits", "may not fit", "does not fit"};
  return kNames[static_cast<int>(fit)];
}

double visible_bytes(const Accelerator& a) {
  return a.visible_bytes > 0 ? static_cast<double>(a.visible_bytes) : a.memory_bytes;
}

Reserve reserve_of(const ClusterSpec& c, const Job& job, const Layout& l, double allocated) {
  const Terms t = terms_of(c, job, l);
  const Fit fit = allocated <= usable_bytes(c, job, l)                    ? Fit::kFits
                  : allocated <= usable_bytes(c, job, l, Fit::kMayNotFit) ? Fit::kMayNotFit
                                                                          : Fit::kDoesNotFit;
  return {t.low + t.low_share * allocated, t.high + t.high_share * allocated, fit};
}

double usable_bytes(const ClusterSpec& c, const Job& job, const Layout& l, Fit fit) {
  const Terms t = terms_of(c, job, l);
  const double all = visible_bytes(c.device);
  return fit == Fit::kFits ? (all - t.high) / t.high_share : (all - t.low) / t.low_share;
}

std::string reserve_text(const ClusterSpec& c, const Job& job, const Layout& l, double allocated) {
  const Reserve r = reserve_of(c, job, l, allocated);
  std::string text;
  print(text, "needs %.1f GB, with what is reserved %.1f to %.1f GB of %.1f: %s", allocated / 1e9,
        r.low / 1e9, r.high / 1e9, visible_bytes(c.device) / 1e9,
        std::string(fit_name(r.fit)).c_str());
  return text;
}

}  // namespace tegula::planner
