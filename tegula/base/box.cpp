#include "tegula/base/box.h"

#include <cstring>

#include "tegula/base/algorithm.h"

namespace tegula {

int64_t Box::numel() const {
  int64_t n = 1;
  for (const int64_t e : extent) n *= e;
  return n;
}

Share Share::of(Box box) {
  const std::vector<int64_t> extent = box.extent;
  return {{std::move(box)}, {Box::whole(extent)}};
}

std::vector<int64_t> Share::extent() const {
  std::vector<int64_t> n(places.empty() ? 0 : places[0].extent.size(), 0);
  for (const Box& p : places)
    for (size_t d = 0; d < n.size(); ++d) n[d] = std::max(n[d], p.offset[d] + p.extent[d]);
  return n;
}

Share share_of_ranges(std::span<const Ranges> dims) {
  Share all{{Box{}}, {Box{}}};
  for (const Ranges& ranges : dims) {
    Share next;
    for (size_t i = 0; i < all.boxes.size(); ++i) {
      int64_t at = 0;
      for (const auto& [begin, end] : ranges) {
        Box box = all.boxes[i], place = all.places[i];
        box.offset.push_back(begin), box.extent.push_back(end - begin);
        place.offset.push_back(at), place.extent.push_back(end - begin);
        next.boxes.push_back(std::move(box)), next.places.push_back(std::move(place));
        at += end - begin;
      }
    }
    all = std::move(next);
  }
  return all;
}

Status check_box(std::string_view name, std::span<const int64_t> shape, const Box& box) {
  const auto refuse = [&](auto... why) {
    return invalid_argument(cat(name, ": the box at ", box.offset, " of ", box.extent, " ", why...,
                                ", the tensor is ", std::vector(shape.begin(), shape.end())));
  };
  if (box.offset.size() != shape.size() || box.extent.size() != shape.size())
    return refuse("has not its dims");
  for (size_t d = 0; d < shape.size(); ++d)
    if (box.offset[d] < 0 || box.extent[d] < 0 || box.offset[d] > shape[d] - box.extent[d])
      return refuse("leaves its dim ", d);
  return {};
}

bool overlap(const Box& a, const Box& b) {
  for (size_t d = 0; d < a.offset.size(); ++d)
    if (std::max(a.offset[d], b.offset[d]) >=
        std::min(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d]))
      return false;
  return true;
}

TensorRef part_of(const TensorRef& whole, const Box& box) {
  TensorRef part = whole;
  int64_t at = 0;
  for (int d = 0; d < whole.rank; ++d) {
    const auto i = static_cast<size_t>(d);
    at += box.offset[i] * whole.stride[d], part.shape[d] = box.extent[i];
  }
  part.data = static_cast<std::byte*>(whole.data) + at * size_bytes(whole.dtype);
  return part;
}

void copy_elements(const TensorRef& from, const TensorRef& to) {
  if (to.numel() == 0) return;
  const int64_t width = size_bytes(to.dtype);
  // The dims from `outer` on lie in one piece on both sides.
  int outer = to.rank;
  int64_t run = 1;
  while (outer > 0) {
    const int d = outer - 1;
    if (to.shape[d] != 1 && (from.stride[d] != run || to.stride[d] != run)) break;
    run *= to.shape[d], --outer;
  }
  int64_t index[kMaxRank] = {};
  const auto* source = static_cast<const std::byte*>(from.data);
  auto* target = static_cast<std::byte*>(to.data);
  for (;;) {
    std::memcpy(target, source, static_cast<size_t>(run * width));
    int d = outer - 1;
    for (; d >= 0; --d) {
      source += from.stride[d] * width, target += to.stride[d] * width;
      if (++index[d] < to.shape[d]) break;
      source -= to.shape[d] * from.stride[d] * width, target -= to.shape[d] * to.stride[d] * width;
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace tegula
