// The correction of a program that is right in part: the original on wrong boxes alone. A box of an
// op's result needs a box of each operand; so slices move from the result to the inputs.
#include <map>

#include "tegula/base/algorithm.h"
#include "tegula/base/dot_dims.h"
#include "tools/rules/pet/pet.h"

namespace tegula::superopt {

namespace {

KindAttrs along(int64_t dim, std::initializer_list<std::pair<const char*, int64_t>> more) {
  KindAttrs a;
  a.polys["dim"] = {Poly(dim)};
  for (const auto& [name, value] : more) a.polys[name] = {Poly(value)};
  return a;
}

class Corrector {
 public:
  Corrector(const Rule& rule, const Assignment& at) : from_(rule.graph), at_(at) {
    for (const Input& x : from_.inputs) graph.add_input(x.name, fixed(x.shape));
  }

  // A whole node at these sizes.
  Result<int> whole(int node) {
    if (from(node).kind == "input") return node;
    if (const auto known = whole_.find(node); known != whole_.end()) return known->second;
    std::vector<int> in;
    for (const int x : from(node).in) in.push_back(TEGULA_TRY(whole(x)));
    KindAttrs attrs = from(node).attrs;
    for (auto& [name, list] : attrs.polys) list = fixed(list);
    return whole_[node] = TEGULA_TRY(graph.add(from(node).kind, std::move(in), std::move(attrs)));
  }

  // A box of a node.
  Result<int> part(int node, const Box& b) {
    const Node& n = from(node);
    if (is_whole(node, b)) return whole(node);
    if (n.kind == "add" || n.kind == "sub" || n.kind == "mul" || n.kind == "neg" ||
        n.kind == "scale")
      return of_parts(n, std::vector<Box>(n.in.size(), b), n.attrs);
    if (n.kind == "dot") return part_of_dot(n, b);
    if (n.kind == "concat") return part_of_concat(n, b);
    if (n.kind == "permute") {
      const std::vector<int64_t> order = n.attrs.integers("order");
      Box x = b;
      for (size_t d = 0; d < order.size(); ++d)
        x.lo[static_cast<size_t>(order[d])] = b.lo[d],
        x.hi[static_cast<size_t>(order[d])] = b.hi[d];
      return of_parts(n, {x}, n.attrs);
    }
    if (n.kind == "slice" && n.attrs.poly("step", 1) == Poly(1)) {
      const auto d = static_cast<size_t>(n.attrs.integers("dim")[0]);
      Box x = b;
      const int64_t start = at_.integer(n.attrs.poly("start", 0));
      x.lo[d] += start, x.hi[d] += start;
      return part(n.in[0], x);
    }
    if (n.kind == "pad" || n.kind == "conv")
      if (const auto windowed = TEGULA_TRY(part_of_window(n, b)); windowed >= 0) return windowed;
    return slices(TEGULA_TRY(whole(node)), b);
  }

  // y with the box replaced: an update, which is in place where it runs. Pieces in a row are
  // written one by one, so that none is moved twice.
  Result<int> patched(int y, const Box& b, int by) {
    if (const Node whole = graph.nodes[static_cast<size_t>(by)]; whole.kind == "concat") {
      const auto d = static_cast<size_t>(whole.attrs.integers("dim")[0]);
      Box piece = b;
      for (const int x : whole.in) {
        piece.hi[d] = piece.lo[d] + shape_of(x)[d];
        y = TEGULA_TRY(patched(y, piece, x));
        piece.lo[d] = piece.hi[d];
      }
      return y;
    }
    const std::vector<int64_t> shape = shape_of(y);
    KindAttrs attrs;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (b.lo[d] == 0 && b.hi[d] == shape[d]) continue;
      attrs.polys["dim"].emplace_back(static_cast<int64_t>(d));
      attrs.polys["start"].emplace_back(b.lo[d]);
    }
    if (attrs.polys.empty()) return by;
    return graph.add("dynamic_update_slice", {y, by}, std::move(attrs));
  }

  Graph graph;

 private:
  const Node& from(int node) const { return from_.nodes[static_cast<size_t>(node)]; }
  std::vector<Poly> fixed(const std::vector<Poly>& all) const {
    std::vector<Poly> out;
    for (const Poly& p : all) {
      bool has_scalar = false;
      for (const Symbol s : p.symbols()) has_scalar |= at_.scalars.contains(s);
      out.push_back(has_scalar ? p : Poly(at_.integer(p)));
    }
    return out;
  }
  std::vector<int64_t> shape_of(int node) const {
    std::vector<int64_t> shape;
    for (const Poly& p : graph.nodes[static_cast<size_t>(node)].shape)
      shape.push_back(p.constant());
    return shape;
  }
  std::vector<int64_t> extents(int node) const {
    std::vector<int64_t> shape;
    for (const Poly& p : from(node).shape) shape.push_back(at_.integer(p));
    return shape;
  }
  bool is_whole(int node, const Box& b) const {
    return std::all_of(b.lo.begin(), b.lo.end(), [](int64_t i) { return i == 0; }) &&
           b.hi == extents(node);
  }
  Result<int> slices(int y, const Box& b) {
    for (size_t d = 0; d < b.lo.size(); ++d)
      if (b.lo[d] > 0 || b.hi[d] < shape_of(y)[d])
        y = TEGULA_TRY(graph.add(
            "slice", {y},
            along(static_cast<int64_t>(d), {{"start", b.lo[d]}, {"size", b.hi[d] - b.lo[d]}})));
    return y;
  }
  Result<int> of_parts(const Node& n, const std::vector<Box>& boxes, KindAttrs attrs) {
    std::vector<int> in;
    for (size_t k = 0; k < boxes.size(); ++k) in.push_back(TEGULA_TRY(part(n.in[k], boxes[k])));
    for (auto& [name, list] : attrs.polys) list = fixed(list);
    return graph.add(n.kind, std::move(in), std::move(attrs));
  }

  Result<int> part_of_dot(const Node& n, const Box& b) {
    const auto words = n.attrs.words.find("dims");
    const DotDims dims = TEGULA_TRY(
        DotDims::parse(words == n.attrs.words.end() ? "m k, k n -> m n" : words->second));
    std::vector<Box> boxes;
    for (const auto& [side, x] : {std::pair(&dims.a, n.in[0]), std::pair(&dims.b, n.in[1])}) {
      Box of = {std::vector<int64_t>(static_cast<size_t>(side->size()), 0), extents(x)};
      for (int d = 0; d < side->size(); ++d)
        for (int o = 0; o < dims.out.size(); ++o)
          if (dims.out[o] == (*side)[d])
            of.lo[static_cast<size_t>(d)] = b.lo[static_cast<size_t>(o)],
            of.hi[static_cast<size_t>(d)] = b.hi[static_cast<size_t>(o)];
      boxes.push_back(std::move(of));
    }
    return of_parts(n, boxes, n.attrs);
  }

  Result<int> part_of_concat(const Node& n, const Box& b) {
    const auto d = static_cast<size_t>(n.attrs.integers("dim")[0]);
    std::vector<int> parts;
    int64_t offset = 0;
    for (const int x : n.in) {
      const int64_t size = extents(x)[d];
      Box of = b;
      of.lo[d] = std::max<int64_t>(b.lo[d] - offset, 0);
      of.hi[d] = std::min(b.hi[d] - offset, size);
      offset += size;
      if (of.lo[d] < of.hi[d]) parts.push_back(TEGULA_TRY(part(x, of)));
    }
    if (parts.size() == 1) return parts[0];
    return graph.add("concat", std::move(parts), along(static_cast<int64_t>(d), {}));
  }

  // The operand's box that windows reach, and as much padding as lies without; −1: nothing within.
  Result<int> part_of_window(const Node& n, const Box& b) {
    const bool is_conv = n.kind == "conv";
    if (n.attrs.has(is_conv ? "input_dilation" : "interior") || n.attrs.has("value")) return -1;
    const std::vector<int64_t> size = extents(n.in[0]);
    if (n.attrs.has("groups") && (b.lo[1] > 0 || b.hi[1] < extents(n.in[1])[0])) return -1;
    std::vector<Box> boxes = {b};
    KindAttrs attrs = n.attrs;
    const auto list = [&](std::string_view name, size_t k, int64_t otherwise) {
      const std::vector<Poly> all = n.attrs.list(name);
      return k < all.size() ? at_.integer(all[k]) : otherwise;
    };
    std::vector<Poly> lo, hi, out;
    const size_t begin = is_conv ? 2 : static_cast<size_t>(n.attrs.integers("dim")[0]);
    for (size_t d = begin; d < (is_conv ? size.size() : begin + 1); ++d) {
      const size_t k = d - begin;
      const int64_t stride = is_conv ? list("stride", k, 1) : 1;
      const int64_t reach =
          is_conv ? list("dilation", k, 1) * (extents(n.in[1])[d] - 1) : int64_t{0};
      const int64_t first = stride * b.lo[d] - list("lo", k, 0),
                    end = stride * (b.hi[d] - 1) - list("lo", k, 0) + reach + 1;
      boxes[0].lo[d] = std::max<int64_t>(first, 0), boxes[0].hi[d] = std::min(end, size[d]);
      if (boxes[0].lo[d] >= boxes[0].hi[d]) return -1;
      lo.emplace_back(boxes[0].lo[d] - first), hi.emplace_back(end - boxes[0].hi[d]);
      out.emplace_back(b.hi[d] - b.lo[d]);
    }
    attrs.polys["lo"] = lo, attrs.polys["hi"] = hi;
    if (is_conv) {
      attrs.polys["out"] = out;
      boxes[0].lo[1] = 0, boxes[0].hi[1] = size[1];
      boxes.push_back({std::vector<int64_t>(size.size(), 0), extents(n.in[1])});
      boxes[1].lo[0] = b.lo[1], boxes[1].hi[0] = b.hi[1];
    }
    return of_parts(n, boxes, std::move(attrs));
  }

  const Graph& from_;
  const Assignment& at_;
  std::map<int, int> whole_;
};

}  // namespace

Result<Rule> correct(const Rule& rule, const Assignment& at, std::span<const Box> wrong) {
  Corrector c(rule, at);
  Rule out;
  out.name = rule.name, out.scalars = rule.scalars, out.notes = rule.notes;
  out.left = TEGULA_TRY(c.whole(rule.left)), out.right = TEGULA_TRY(c.whole(rule.right));
  for (const Box& b : wrong)
    out.right = TEGULA_TRY(c.patched(out.right, b, TEGULA_TRY(c.part(rule.left, b))));
  out.graph = std::move(c.graph);
  return out;
}

}  // namespace tegula::superopt
