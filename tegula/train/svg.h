// Small pieces of inline SVG for reports: axes and lines, without a script or a library.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tegula {

struct Axis {
  double low = 0, high = 1;
  bool is_log = false;
  std::string label;
};

struct Series {
  std::string name, color;
  std::vector<std::pair<double, double>> points;
  bool is_line = true;              // else dots
  bool is_step = false;             // horizontal, then vertical
  bool is_faint = false;            // behind the others
  std::vector<std::string> titles;  // of dots: shown on hover
  std::vector<std::string> labels;  // of dots: beside them, moved up or down where they would meet
};

// A part of the x axis that has a name, drawn behind the series. Equal names have one shade; a name
// stands over its band where it fits, widest bands first, and is shown on hover in any case.
struct Band {
  double low = 0, high = 0;
  std::string name;
};

// A chart of the given size in pixels, complete with grid, labels and legend. Series with more
// points than pixels are thinned to the extremes of each pixel column.
std::string chart(const Axis& x, const Axis& y, const std::vector<Series>& series,
                  const std::vector<Band>& bands = {}, int width = 760, int height = 300);
// Smallest range that holds all points, with some air.
void fit(Axis& x, Axis& y, const std::vector<Series>& series);
// "1.23 M" with SI prefixes from thousands on; "0.05" below.
std::string si(double v);
// "1 234 567", its groups held together by narrow spaces.
std::string grouped(int64_t v);

}  // namespace tegula
