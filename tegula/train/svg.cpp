#include "tegula/train/svg.h"

#include <cmath>
#include <numeric>

#include "tegula/base/range.h"
#include "tegula/base/str.h"
#include "tegula/base/text.h"
#include "tegula/io/html.h"

namespace tegula {

namespace {

constexpr int kLeft = 70, kRight = 24, kTop = 36, kBottom = 46;
// How wide a letter of the charts' 11 pixels is at most, on average, in the fonts of systems.
constexpr double kLetter = 7;
constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P", "E"};

double position(const Axis& a, double v) {
  if (a.is_log)
    return (std::log10(v) - std::log10(a.low)) / (std::log10(a.high) - std::log10(a.low));
  return (v - a.low) / (a.high - a.low);
}

std::string number(double v) { return printed("%.1f", v); }

struct Tick {
  double at;
  std::string text;
};

// The same prefix and the same decimals for all of an axis, as many as its step needs.
std::string tick_text(double v, double step, double largest) {
  const int e =
      largest < 1e5  // steps and the like are read best as they are
          ? 0
          : std::clamp(static_cast<int>(std::floor(std::log10(largest) / 3 + 1e-9)), 0, 6);
  const double scale = std::pow(1000.0, e);
  const int decimals = std::max(0, -static_cast<int>(std::floor(std::log10(step / scale) + 1e-9)));
  if (v == 0) return "0";
  return cat(decimals > 6 ? printed("%.3g", v / scale) : printed("%.*f", decimals, v / scale),
             e ? " " : "", kPrefixes[e]);
}

// About `n` of them at most.
std::vector<Tick> ticks(const Axis& a, int n) {
  std::vector<Tick> t;
  if (a.is_log) {
    const double low = std::ceil(std::log10(a.low) - 1e-9),
                 high = std::floor(std::log10(a.high) + 1e-9);
    const double step = std::max(1.0, std::ceil((high - low) / n));
    for (double e = low; e <= high; e += step) t.push_back({std::pow(10, e), si(std::pow(10, e))});
    return t;
  }
  const double raw = (a.high - a.low) / n, power = std::pow(10, std::floor(std::log10(raw)));
  double step = power * 10;
  for (double m : {1.0, 2.0, 5.0})
    if (power * m >= raw) {
      step = power * m;
      break;
    }
  const double largest = std::max(std::fabs(a.low), std::fabs(a.high));
  for (double v = std::ceil(a.low / step) * step; v <= a.high + step * 1e-9; v += step)
    t.push_back({v, tick_text(std::fabs(v) < step * 1e-9 ? 0 : v, step, largest)});
  return t;
}

// At most two points a pixel column: its lowest and highest.
std::vector<std::pair<double, double>> thinned(const Series& s, const Axis& x, int width) {
  if (s.points.size() <= size_t{4} * static_cast<size_t>(width)) return s.points;
  std::vector<std::pair<double, double>> out;
  int column = -1;
  size_t low = 0, high = 0;
  auto flush = [&] {
    if (column < 0) return;
    out.push_back(s.points[std::min(low, high)]);
    if (low != high) out.push_back(s.points[std::max(low, high)]);
  };
  for (size_t i = 0; i < s.points.size(); ++i) {
    const int c = static_cast<int>(position(x, s.points[i].first) * width);
    if (c != column) {
      flush();
      column = c, low = high = i;
    }
    if (s.points[i].second < s.points[low].second) low = i;
    if (s.points[i].second > s.points[high].second) high = i;
  }
  flush();
  return out;
}

// Dots in the order of height, so that labels that would meet give way downwards or upwards.
class Labels {
 public:
  Labels(double end, double top, double bottom) : end_(end), top_(top), bottom_(bottom) {}
  // A label right of (x, y), or left where the right is too near the end.
  std::string place(double x, double y, const std::string& text) {
    const double w = kLetter * static_cast<double>(text.size());
    const bool is_left = x + 8 + w > end_;
    Box box{is_left ? x - 8 - w : x + 8, 0, is_left ? x - 8 : x + 8 + w, 0};
    for (int i = 0; i < 80; ++i) {
      const int lines = (i + 1) / 2;  // 0, 1 down, 1 up, 2 down, …
      box.top = y - 6 + (i % 2 ? 6 : -6) * lines, box.bottom = box.top + 13;
      if (box.top < top_ || box.bottom > bottom_) continue;
      if (!any_of(used_, [&](const Box& b) {
            return box.left < b.right && b.left < box.right && box.top < b.bottom &&
                   b.top < box.bottom;
          }))
        break;
    }
    used_.push_back(box);
    const double edge = is_left ? box.right : box.left;
    std::string line;  // from a label that had to go far to its dot
    if (std::fabs(box.top + 6 - y) > 9)
      line = cat("<path class=\"grid\" d=\"M", number(x), " ", number(y), "L", number(edge), " ",
                 number(box.top + 6), "\"/>");
    return line + cat("<text x=\"", number(edge), "\" y=\"", number(box.bottom - 3),
                      "\" text-anchor=\"", is_left ? "end" : "start", "\">", escape_html(text),
                      "</text>\n");
  }
  void avoid(double x, double y) { used_.push_back({x - 4, y - 4, x + 4, y + 4}); }

 private:
  struct Box {
    double left, top, right, bottom;
  };
  double end_, top_, bottom_;
  std::vector<Box> used_;
};

// The shade of a band is that of its name. Names go over the widest bands first, and only where
// they meet no other.
std::string draw_bands(const std::vector<Band>& bands, const Axis& x, double width, int height) {
  std::string out;
  std::vector<std::string> names;
  std::vector<std::pair<double, double>> used;  // by names, in pixels
  std::vector<size_t> order(bands.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto size = [&](size_t i) { return bands[i].high - bands[i].low; };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return size(a) > size(b); });
  for (const Band& b : bands)
    if (!contains(names, b.name)) names.push_back(b.name);
  for (size_t i : order) {
    const Band& b = bands[i];
    const double left = kLeft + position(x, b.low) * width,
                 right = kLeft + position(x, b.high) * width;
    if (right <= left) continue;
    const auto shade = std::find(names.begin(), names.end(), b.name) - names.begin();
    out += cat("<rect class=\"band", shade % 3, "\" x=\"", number(left), "\" y=\"", kTop,
               "\" width=\"", number(right - left), "\" height=\"", height, "\"><title>",
               escape_html(b.name), "</title></rect>");
    const double middle = (left + right) / 2,
                 half = kLetter * static_cast<double>(b.name.size()) / 2 + 4;
    if (2 * half > right - left || any_of(used, [&](const auto& u) {
          return middle - half < u.second && u.first < middle + half;
        }))
      continue;
    used.emplace_back(middle - half, middle + half);
    out += cat("<text x=\"", number(middle), "\" y=\"", kTop - 5, "\" text-anchor=\"middle\">",
               escape_html(b.name), "</text>\n");
  }
  return out;
}

}  // namespace

std::string grouped(int64_t v) {
  std::string out = std::to_string(v);
  for (size_t at = out.size(); at > 3 && out[at - 4] != '-';) out.insert(at -= 3, "\u202f");
  return out;
}

std::string si(double v) {
  if (v == 0) return "0";
  int e = std::clamp(static_cast<int>(std::floor(std::log10(std::fabs(v)) / 3 + 1e-9)), 0, 6);
  if (e < 6 && std::fabs(v) / std::pow(1000.0, e) >= 999.5) ++e;  // would round to 1000
  return cat(printed("%.3g", v / std::pow(1000.0, e)), e ? " " : "", kPrefixes[e]);
}

void fit(Axis& x, Axis& y, const std::vector<Series>& series) {
  auto extend = [](double& low, double& high, double v) {
    low = std::min(low, v), high = std::max(high, v);
  };
  x.low = y.low = HUGE_VAL, x.high = y.high = -HUGE_VAL;
  for (const Series& s : series)
    for (auto [px, py] : s.points) {
      if (!std::isfinite(py)) continue;
      extend(x.low, x.high, px), extend(y.low, y.high, py);
    }
  for (Axis* a : {&x, &y}) {
    if (!(a->low <= a->high)) a->low = 0, a->high = 1;
    if (a->is_log) {
      a->low /= 1.5, a->high *= 1.5;
    } else {
      const double air = a->low == a->high ? 1 : (a->high - a->low) * 0.04;
      a->low -= a == &x ? 0 : air, a->high += air;
    }
  }
}

std::string chart(const Axis& x, const Axis& y, const std::vector<Series>& series,
                  const std::vector<Band>& bands, int width, int height) {
  const int w = width - kLeft - kRight, h = height - kTop - kBottom;
  auto px = [&](double v) { return kLeft + position(x, v) * w; };
  auto py = [&](double v) { return kTop + (1 - position(y, v)) * h; };
  std::string out = cat("<svg viewBox=\"0 0 ", width, " ", height,
                        "\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\">\n");
  out += draw_bands(bands, x, w, h);
  for (const Tick& t : ticks(x, w / 90))
    out += cat("<path class=\"grid\" d=\"M", number(px(t.at)), " ", kTop, "v", h, "\"/><text x=\"",
               number(px(t.at)), "\" y=\"", kTop + h + 18, "\" text-anchor=\"middle\">", t.text,
               "</text>\n");
  for (const Tick& t : ticks(y, h / 36))
    out += cat("<path class=\"grid\" d=\"M", kLeft, " ", number(py(t.at)), "h", w, "\"/><text x=\"",
               kLeft - 6, "\" y=\"", number(py(t.at) + 4), "\" text-anchor=\"end\">", t.text,
               "</text>\n");
  out += cat("<text x=\"", kLeft + w / 2, "\" y=\"", height - 6, "\" text-anchor=\"middle\">",
             escape_html(x.label), "</text><text x=\"", 4, "\" y=\"14\">", escape_html(y.label),
             "</text>\n");
  int legend = kLeft + w;
  for (size_t i = series.size(); i-- > 0;) {
    const Series& s = series[i];
    if (s.name.empty()) continue;
    out += cat("<text x=\"", legend, "\" y=\"14\" text-anchor=\"end\" style=\"fill:", s.color,
               "\">", escape_html(s.name), "</text>\n");
    legend -= 9 * static_cast<int>(s.name.size()) + 12;
  }
  for (const Series& s : series) {
    if (s.is_line) {
      std::string d;
      double last = 0;
      for (auto [vx, vy] : thinned(s, x, w)) {
        if (!std::isfinite(vy)) continue;
        if (!d.empty() && s.is_step) d += cat("L", number(px(vx)), " ", number(last));
        last = py(vy);
        d += cat(d.empty() ? "M" : "L", number(px(vx)), " ", number(last));
      }
      out += cat("<path class=\"line", s.is_faint ? " faint" : "", "\" style=\"stroke:", s.color,
                 "\" d=\"", d, "\"/>\n");
    } else {
      for (size_t i = 0; i < s.points.size(); ++i)
        out += cat("<circle r=\"4\" cx=\"", number(px(s.points[i].first)), "\" cy=\"",
                   number(py(s.points[i].second)), "\" style=\"fill:", s.color, "\"><title>",
                   i < s.titles.size() ? escape_html(s.titles[i]) : "", "</title></circle>\n");
      Labels labels(kLeft + w, kTop, kTop + h);
      for (auto [vx, vy] : s.points) labels.avoid(px(vx), py(vy));
      for (size_t i = 0; i < s.labels.size(); ++i)
        out += labels.place(px(s.points[i].first), py(s.points[i].second), s.labels[i]);
    }
  }
  return out + "</svg>\n";
}

}  // namespace tegula
