#include "tegula/train/svg.h"

#include <algorithm>
#include <cmath>

#include "tegula/base/str.h"

namespace tegula {

namespace {

constexpr int kLeft = 70, kRight = 16, kTop = 28, kBottom = 44;

double position(const Axis& a, double v) {
  if (a.is_log)
    return (std::log10(v) - std::log10(a.low)) / (std::log10(a.high) - std::log10(a.low));
  return (v - a.low) / (a.high - a.low);
}

std::string number(double v) {
  char b[32];
  std::snprintf(b, sizeof b, "%.1f", v);
  return b;
}

std::vector<double> ticks(const Axis& a) {
  std::vector<double> t;
  if (a.is_log) {
    for (double e = std::ceil(std::log10(a.low) - 1e-9); e <= std::log10(a.high) + 1e-9; ++e)
      t.push_back(std::pow(10, e));
    return t;
  }
  const double raw = (a.high - a.low) / 6, power = std::pow(10, std::floor(std::log10(raw)));
  double step = power * 10;
  for (double m : {1.0, 2.0, 5.0})
    if (power * m >= raw) {
      step = power * m;
      break;
    }
  for (double v = std::ceil(a.low / step) * step; v <= a.high + step * 1e-9; v += step)
    t.push_back(std::fabs(v) < step * 1e-9 ? 0 : v);
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
  // A label right of (x, y), or left where the right is too near the end.
  std::string place(double x, double y, double end, const std::string& text) {
    const double w = 6.2 * static_cast<double>(text.size());
    const bool is_left = x + 8 + w > end;
    Box box{is_left ? x - 8 - w : x + 8, 0, is_left ? x - 8 : x + 8 + w, 0};
    for (int i = 0; i < 16; ++i) {
      const int lines = (i + 1) / 2;  // 0, 1 down, 1 up, 2 down, …
      box.top = y - 5 + (i % 2 ? 6 : -6) * lines, box.bottom = box.top + 11;
      if (std::none_of(used_.begin(), used_.end(), [&](const Box& b) {
            return box.left < b.right && b.left < box.right && box.top < b.bottom &&
                   b.top < box.bottom;
          }))
        break;
    }
    used_.push_back(box);
    const double edge = is_left ? box.right : box.left;
    std::string line;  // from a label that had to go far to its dot
    if (std::fabs(box.top + 5 - y) > 9)
      line = cat("<path class=\"grid\" d=\"M", number(x), " ", number(y), "L", number(edge), " ",
                 number(box.top + 6), "\"/>");
    return line + cat("<text x=\"", number(edge), "\" y=\"", number(box.bottom - 2),
                      "\" text-anchor=\"", is_left ? "end" : "start", "\">", escape_html(text),
                      "</text>\n");
  }
  void avoid(double x, double y) { used_.push_back({x - 4, y - 4, x + 4, y + 4}); }

 private:
  struct Box {
    double left, top, right, bottom;
  };
  std::vector<Box> used_;
};

}  // namespace

std::string grouped(int64_t v) {
  std::string out = std::to_string(v);
  for (size_t at = out.size(); at > 3 && out[at - 4] != '-';) out.insert(at -= 3, "\u202f");
  return out;
}

std::string escape_html(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string si(double v) {
  const char* prefix[] = {"p", "n", "µ", "m", "", "k", "M", "G", "T", "P", "E"};
  if (v == 0) return "0";
  const int e = std::clamp(static_cast<int>(std::floor(std::log10(std::fabs(v)) / 3)), -4, 6);
  char b[32];
  std::snprintf(b, sizeof b, "%.3g", v / std::pow(1000.0, e));
  return cat(b, prefix[e + 4][0] ? " " : "", prefix[e + 4]);
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
  for (size_t i = 0; i < bands.size(); ++i) {
    const double left = px(bands[i].low), right = px(bands[i].high);
    if (right <= left) continue;
    out += cat("<rect class=\"band", i % 2, "\" x=\"", number(left), "\" y=\"", kTop, "\" width=\"",
               number(right - left), "\" height=\"", h, "\"/><text x=\"",
               number((left + right) / 2), "\" y=\"", kTop - 3, "\" text-anchor=\"middle\">",
               escape_html(bands[i].name), "</text>\n");
  }
  for (double t : ticks(x))
    out += cat("<path class=\"grid\" d=\"M", number(px(t)), " ", kTop, "v", h, "\"/><text x=\"",
               number(px(t)), "\" y=\"", kTop + h + 16, "\" text-anchor=\"middle\">", si(t),
               "</text>\n");
  for (double t : ticks(y))
    out +=
        cat("<path class=\"grid\" d=\"M", kLeft, " ", number(py(t)), "h", w, "\"/><text x=\"",
            kLeft - 6, "\" y=\"", number(py(t) + 4), "\" text-anchor=\"end\">", si(t), "</text>\n");
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
      Labels labels;
      for (auto [vx, vy] : s.points) labels.avoid(px(vx), py(vy));
      for (size_t i = 0; i < s.labels.size(); ++i)
        out += labels.place(px(s.points[i].first), py(s.points[i].second), kLeft + w, s.labels[i]);
    }
  }
  return out + "</svg>\n";
}

}  // namespace tegula
