// Efficiency: how many times what a device sustains (sustained.h) calls reach. Three sets make an
// interval: a fast, an expected and a slow one. None is fitted to a training run.
//
// Slow and fast are the ends of what an H200's runs gave over shapes and messages. Of networks
// between nodes nothing was measured: .6 to .95 of a card's rate. Known devices sustain .44 to .75
// of their peaks in products, which bounds one of which nothing is known. A file of microbenchmarks
// says ends of its own (microbenchmarks.h).
#pragma once

namespace tegula {

struct Efficiency {
  double products = 1, attention = 1;
  double memory = 1;
  double inside = 1, between = 1;  // of links
  double overlap = 1;  // share of the time that can hide communication which does hide it
  double host = 1;     // times as long as the host that was measured (host_time.h)
};

inline constexpr Efficiency kExpected = {};
inline constexpr Efficiency kFast = {1.1, 1.15, .95 / .9, .85 / .78, .95 / .85, 1, 0.5};
inline constexpr Efficiency kSlow = {0.85, 0.75, .8 / .9, .5 / .78, .6 / .85, 0, 1.6};
inline constexpr Efficiency kSlowUnknown = {0.6, 0.5, .8 / .9, .5 / .78, .6 / .85, 0, 1.6};

}  // namespace tegula
