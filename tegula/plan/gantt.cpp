#include "tegula/plan/gantt.h"

#include <cmath>

#include "tegula/base/range.h"
#include "tegula/base/text.h"
#include "tegula/io/html.h"

namespace tegula {

namespace {

constexpr double kLeft = 78, kRight = 84, kTop = 62, kGap = 6, kBottom = 40;
constexpr double kBox = 24, kBoxOfPairs = 42;  // height: a pair's parts lie one above the other
constexpr double kLeastWidth = 860, kMostWidth = 6000;
constexpr double kDigit = 6.2;          // width, of the font below
constexpr size_t kMostMessages = 4000;  // lines beyond that are a grey mass

// Fill of a rank's first, second, third and further stages.
constexpr int kShades = 4;
struct Colour {
  std::string_view name;
  std::string_view fill[kShades];
};
constexpr Colour kForwardColour{"forward", {"#a9c9f5", "#7aa7e8", "#4f83d1", "#3766b0"}};
constexpr Colour kBackwardColour{"backward", {"#f8c59b", "#efa05f", "#dd7d31", "#b95f1b"}};
constexpr Colour kWeightsColour{"weight gradients", {"#b5dfb3", "#86c583", "#57a854", "#3c8639"}};
constexpr Colour kUpdateColour{"update", {"#cfcfd6", "#cfcfd6", "#cfcfd6", "#cfcfd6"}};

const Colour& colour_of(PartKind kind) {
  switch (kind) {
    case PartKind::kForward:
      return kForwardColour;
    case PartKind::kWhole:
    case PartKind::kBackward:
      return kBackwardColour;
    case PartKind::kWeightGradient:
      return kWeightsColour;
    default:
      return kUpdateColour;
  }
}

std::string number(double v) { return printed("%.1f", v); }

// The unit that fits the whole step.
struct TimeUnit {
  double per_second;
  std::string_view name;
};
TimeUnit unit_of(double largest) {
  if (largest >= 1) return {1, "s"};
  if (largest >= 1e-3) return {1e3, "ms"};
  return {1e6, "us"};
}

double step_of_ticks(double length, double most) {
  const double raw = length / most, power = std::pow(10, std::floor(std::log10(raw)));
  for (double m : {1.0, 2.0, 5.0})
    if (power * m >= raw) return power * m;
  return 10 * power;
}

constexpr std::string_view kFaint = " fill-opacity=\"0.65\"";

class Gantt {
 public:
  Gantt(const Program& program, const Simulated& simulated)
      : program_(program), s_(simulated), unit_(unit_of(simulated.step_s)) {
    std::vector<double> lengths;
    size_t longest = 1;  // label
    for (size_t i = 0; i < s_.items.size(); ++i) {
      const Simulated::Item& item = s_.items[i];
      begin_ = i == 0 ? item.begin_s : std::min(begin_, item.begin_s);
      end_ = std::max(end_, item.end_s);
      if (item.end_s > item.begin_s) lengths.push_back(item.end_s - item.begin_s);
      longest = std::max(longest, label_of(item).size());
      if (i > 0 && is_together(item, s_.items[i - 1])) box_ = kBoxOfPairs;
    }
    inner_ = kLeastWidth;
    if (!lengths.empty()) {
      // Room for the labels of three boxes of four.
      const auto short_one = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 4);
      std::nth_element(lengths.begin(), short_one, lengths.end());
      const double wanted = kDigit * static_cast<double>(longest) + 6;
      inner_ = std::clamp(wanted * (end_ - begin_) / *short_one, kLeastWidth, kMostWidth);
    }
    shades_.resize(s_.ranks.size());
  }

  std::string draw(std::string_view title) && {
    const double height = kTop + row_height() * static_cast<double>(s_.ranks.size()) + kBottom,
                 width = kLeft + inner_ + kRight;
    out_ = cat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", number(width), " ",
               number(height), "\" width=\"", number(width), "\" height=\"", number(height),
               "\" role=\"img\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"11\">\n"
               "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    text(8, 20, "start", escape_html(title), " font-size=\"14\" font-weight=\"bold\"");
    legend();
    axis(height);
    for (size_t rank = 0; rank < s_.ranks.size(); ++rank) row(rank);
    for (size_t i = 0; i < s_.items.size(); ++i) box(i);
    if (s_.messages.size() <= kMostMessages)
      for (const Simulated::Message& m : s_.messages) message(m);
    return out_ + "</svg>\n";
  }

 private:
  double x(double seconds) const {
    return kLeft + (end_ > begin_ ? (seconds - begin_) / (end_ - begin_) * inner_ : 0);
  }
  double row_height() const { return box_ + kGap; }
  double y(int rank) const { return kTop + row_height() * rank; }  // its box's top
  std::string time(double seconds) const {
    return cat((seconds - begin_) * unit_.per_second, " ", unit_.name);
  }

  void text(double at_x, double at_y, std::string_view anchor, std::string_view what,
            std::string_view more = "") {
    out_ += cat("<text x=\"", number(at_x), "\" y=\"", number(at_y), "\" text-anchor=\"", anchor,
                "\" fill=\"#1c1c22\"", more, ">", what, "</text>\n");
  }

  void legend() {
    double at = 8;
    for (const Colour* c : {&kForwardColour, &kBackwardColour, &kWeightsColour, &kUpdateColour}) {
      const bool is_there = any_of(s_.items, [&](const Simulated::Item& i) {
        return &colour_of(part(i).kind) == c && i.end_s > i.begin_s;
      });
      if (!is_there) continue;
      out_ += cat("<rect x=\"", number(at), "\" y=\"30\" width=\"12\" height=\"12\" fill=\"",
                  c->fill[0], "\"/>\n");
      text(at + 17, 40, "start", c->name);
      at += 34 + kDigit * static_cast<double>(c->name.size());
    }
    if (has_several_stages())
      text(at, 40, "start", "deeper shades: a rank's further stages", kFaint);
    text(kLeft + inner_ + 10, kTop - 8, "start", "computes", kFaint);
  }

  bool has_several_stages() const {
    std::vector<int> stage(s_.ranks.size(), -1);
    for (const Simulated::Item& i : s_.items) {
      int& first = stage[i.rank];
      if (first < 0) first = part(i).stage;
      if (first != part(i).stage) return true;
    }
    return false;
  }

  void axis(double height) {
    const double length = (end_ - begin_) * unit_.per_second;
    if (!(length > 0)) return;
    const double step = step_of_ticks(length, std::max(4.0, inner_ / 110));
    for (int i = 0; i * step <= length * (1 + 1e-9); ++i) {
      const double at = x(begin_ + i * step / unit_.per_second);
      out_ += cat("<path d=\"M", number(at), " ", number(kTop - 4), "V",
                  number(height - kBottom + 4), "\" stroke=\"#e3e3ea\"/>\n");
      text(at, height - kBottom + 18, "middle", cat(i * step));
    }
    text(kLeft + inner_ + 10, height - kBottom + 18, "start", unit_.name);
  }

  void row(size_t rank) {
    const double top = y(static_cast<int>(rank));
    text(kLeft - 8, top + box_ / 2 + 4, "end", cat("rank ", rank));
    out_ += cat("<rect x=\"", number(kLeft), "\" y=\"", number(top), "\" width=\"", number(inner_),
                "\" height=\"", number(box_), "\" fill=\"#f4f4f7\"/>\n");
    text(kLeft + inner_ + 10, top + box_ / 2 + 4, "start",
         printed("%.1f %%", s_.step_s > 0 ? 100 * s_.ranks[rank].busy_s / s_.step_s : 0.0));
  }

  const Part& part(const Simulated::Item& i) const { return program_.parts[i.run.part]; }

  // The shade of a rank's stages in the order in which they come.
  size_t shade(int rank, int stage) {
    std::vector<int>& seen = shades_[rank];
    const auto at = std::find(seen.begin(), seen.end(), stage);
    const auto n = static_cast<size_t>(at - seen.begin());
    if (at == seen.end()) seen.push_back(stage);
    return std::min<size_t>(n, kShades - 1);
  }

  // Parts that go together have one time: they share its box, one above the other.
  static bool is_together(const Simulated::Item& a, const Simulated::Item& b) {
    return a.rank == b.rank && a.begin_s == b.begin_s && a.end_s == b.end_s && a.end_s > a.begin_s;
  }
  std::string label_of(const Simulated::Item& i) const {
    if (!is_per_micro_batch(part(i).kind)) return "";
    return i.run.slice > 0 ? cat(i.run.micro_batch, ".", i.run.slice) : cat(i.run.micro_batch);
  }

  void box(size_t index) {
    const Simulated::Item& i = s_.items[index];
    const Part& p = part(i);
    const size_t deep = shade(i.rank, p.stage);
    if (!(i.end_s > i.begin_s)) return;
    size_t first = index, last = index;
    while (first > 0 && is_together(i, s_.items[first - 1])) --first;
    while (last + 1 < s_.items.size() && is_together(i, s_.items[last + 1])) ++last;
    const double share = box_ / static_cast<double>(last - first + 1),
                 top = y(i.rank) + share * static_cast<double>(index - first), left = x(i.begin_s),
                 width = x(i.end_s) - left;
    out_ += cat("<rect x=\"", number(left), "\" y=\"", number(top), "\" width=\"", number(width),
                "\" height=\"", number(share), "\" fill=\"", colour_of(p.kind).fill[deep],
                "\" stroke=\"#ffffff\" stroke-width=\"", width > 4 ? "1" : "0.2", "\"><title>rank ",
                i.rank, ", ", text_of({p.kind, p.stage, i.run.micro_batch, i.run.slice}), ": ",
                time(i.begin_s), " to ", time(i.end_s), "</title></rect>\n");
    const std::string label = label_of(i);
    if (label.empty() || width < kDigit * static_cast<double>(label.size()) + 2) return;
    out_ += cat("<text x=\"", number(left + width / 2), "\" y=\"", number(top + share / 2 + 4),
                "\" text-anchor=\"middle\" fill=\"", deep < 2 ? "#16161c" : "#ffffff",
                "\" pointer-events=\"none\">", label, "</text>\n");
  }

  // From the edge of the sender's row to that of the receiver's.
  void message(const Simulated::Message& m) {
    if (!(m.end_s > m.begin_s)) return;
    const bool is_down = m.to > m.from;
    out_ +=
        cat("<path d=\"M", number(x(m.begin_s)), " ", number(y(m.from) + (is_down ? box_ - 4 : 4)),
            "L", number(x(m.end_s)), " ", number(y(m.to) + (is_down ? 4 : box_ - 4)),
            "\" stroke=\"#55555f\" stroke-opacity=\"0.6\" stroke-width=\"0.9\" "
            "fill=\"none\"><title>",
            m.bytes, " bytes from rank ", m.from, " to rank ", m.to, "</title></path>\n");
  }

  const Program& program_;
  const Simulated& s_;
  TimeUnit unit_;
  double begin_ = 0, end_ = 0, inner_ = 0, box_ = kBox;
  std::vector<std::vector<int>> shades_;  // per rank: stages seen
  std::string out_;
};

}  // namespace

std::string gantt_svg(const Program& program, const Simulated& simulated, std::string_view title) {
  return Gantt(program, simulated).draw(title);
}

}  // namespace tegula
