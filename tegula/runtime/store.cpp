#include "tegula/runtime/store.h"

#include <cstring>

#include "tegula/base/algorithm.h"
#include "tegula/base/sizes.h"
#include "tegula/kernels/device.h"

namespace tegula {

namespace {

std::vector<int64_t> sizes_of(const Shape& s) {
  std::vector<int64_t> out;
  for (const Dim& d : s) out.push_back(d.bound());
  return out;
}

Shape shape_of_share(const Share& s) { return Shape(std::span<const int64_t>(s.extent())); }

}  // namespace

std::vector<TensorPart> Store::Entry::parts(const TensorRef& held) const {
  std::vector<TensorPart> all;
  for (size_t i = 0; i < share.boxes.size(); ++i)
    all.push_back({share.boxes[i], part_of(held, share.places[i])});
  return all;
}

Status Store::allocate(Entry& e) {
  e.region =
      TEGULA_TRY(Region::on(rank_->device, rank_->memory, std::max<int64_t>(e.type.bytes(), 1)));
  e.space = rank_->device ? DeviceKind::kCuda : DeviceKind::kCpu;
  e.ref = contiguous_ref(e.region.data(), e.type);
  return {};
}

Result<TensorRef> Store::get(const std::string& name, const Type& type) {
  if (const auto it = entries_.find(name); it != entries_.end() && it->second.type == type)
    return it->second.ref;
  return get(name, type, Share::whole(sizes_of(type.shape)));
}

namespace {
Status check_type(const std::string& name, const Type& type) {
  if (!type.shape.is_const())
    return invalid_argument(cat("tensor ", name, " is ", type, ": a tensor has constant sizes"));
  return check_sizes(cat("tensor ", name), type.shape);
}
}  // namespace

Result<TensorRef> Store::get(const std::string& name, const Type& type, const Share& share) {
  TEGULA_TRY(check_type(name, type));
  if (share.boxes.empty() || share.boxes.size() != share.places.size())
    return invalid_argument(cat("tensor ", name, ": a share of ", share.boxes.size(), " boxes at ",
                                share.places.size(), " places"));
  auto it = entries_.find(name);
  if (it == entries_.end()) {
    for (const Box& box : share.boxes) TEGULA_TRY(check_box(name, sizes_of(type.shape), box));
    Entry e{.shape = type.shape, .share = share, .type = {type.dtype, shape_of_share(share)}};
    TEGULA_TRY(allocate(e));
    it = entries_.emplace(name, std::move(e)).first;
  }
  const Entry& e = it->second;
  if (e.type.dtype != type.dtype || !(e.shape == type.shape))
    return invalid_argument(
        cat("tensor ", name, " is ", Type{e.type.dtype, e.shape}, ", not ", type));
  if (!(e.share == share)) {
    const Box &has = e.share.boxes[0], &wanted = share.boxes[0];
    return invalid_argument(cat("tensor ", name, ": here lies the box at ", has.offset, " of ",
                                has.extent, ", not that at ", wanted.offset, " of ",
                                wanted.extent));
  }
  return e.ref;
}

Status Store::borrow(const std::string& name, const Type& type, const Box& box, const void* data,
                     std::shared_ptr<const void> lender) {
  TEGULA_TRY(check_type(name, type));
  TEGULA_TRY(check_box(name, sizes_of(type.shape), box));
  if (!lender || (!data && box.numel() > 0))
    return invalid_argument(cat("tensor ", name, ": ",
                                lender ? "no memory" : "nobody keeps the memory",
                                " of what is borrowed"));
  Entry e{.shape = type.shape, .share = Share::of(box)};
  e.type = {type.dtype, shape_of_share(e.share)};
  if (rank_->device) {
    TEGULA_TRY(allocate(e));
    TEGULA_TRY(rank_->device->copy(e.ref.data, data, e.type.bytes()));
  } else {
    e.lender = std::move(lender);
    e.ref = contiguous_ref(const_cast<void*>(data), e.type);
  }
  if (!entries_.emplace(name, std::move(e)).second)
    return invalid_argument(cat("tensor ", name, " is there already"));
  return {};
}

Result<TensorRef> Store::own(std::string_view name) {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return invalid_argument(cat("there is no tensor ", name));
  Entry& e = it->second;
  if (!e.is_borrowed()) return e.ref;
  const TensorRef lent = e.ref;
  TEGULA_TRY(allocate(e));
  copy_elements(lent, e.ref);
  e.lender = nullptr;
  return e.ref;
}

bool Store::is_borrowed(std::string_view name) const {
  const auto it = entries_.find(name);
  return it != entries_.end() && it->second.is_borrowed();
}

TensorRef Store::find(std::string_view name) const {
  const auto it = entries_.find(name);
  return it == entries_.end() ? TensorRef{} : it->second.ref;
}

Status Store::fill(std::string_view name, const TensorRef& whole) {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return invalid_argument(cat("there is no tensor ", name));
  const Entry& e = it->second;
  const std::vector<int64_t> has(whole.shape, whole.shape + whole.rank);
  if (whole.dtype != e.type.dtype || has != sizes_of(e.shape))
    return invalid_argument(cat("tensor ", name, " is ", Type{e.type.dtype, e.shape}, ", not ",
                                Type{whole.dtype, Shape(std::span<const int64_t>(has))}));
  if (!whole.data && whole.numel() > 0)
    return invalid_argument(cat("tensor ", name, ": there is no data to fill it with"));
  TEGULA_TRY(own(name));
  std::vector<uint8_t> buffer;
  TensorRef host = e.ref;
  if (rank_->device) {
    buffer.resize(static_cast<size_t>(e.type.bytes()));
    host.data = buffer.data();
  }
  for (const TensorPart& p : e.parts(host)) copy_elements(part_of(whole, p.box), p.data);
  return rank_->device ? rank_->device->copy(e.ref.data, host.data, e.type.bytes()) : Status{};
}

Status Store::fill_boxes(std::string_view name, ReadBox read, void* context) {
  const TensorRef at = TEGULA_TRY(own(name));
  const Entry& e = entries_.find(name)->second;
  std::vector<uint8_t> all, piece;
  TensorRef host = at;
  if (rank_->device) {
    all.resize(static_cast<size_t>(e.type.bytes()));
    host.data = all.data();
  }
  for (const TensorPart& p : e.parts(host)) {
    if (p.data.is_contiguous()) {
      TEGULA_TRY(read(context, p.box, p.data));
      continue;
    }
    const Type type{e.type.dtype, Shape(std::span<const int64_t>(p.box.extent))};
    piece.resize(static_cast<size_t>(type.bytes()));
    const TensorRef dense = contiguous_ref(piece.data(), type);
    TEGULA_TRY(read(context, p.box, dense));
    copy_elements(dense, p.data);
  }
  return rank_->device ? rank_->device->copy(at.data, host.data, e.type.bytes()) : Status{};
}

Status Store::zero(std::string_view name) {
  const TensorRef t = TEGULA_TRY(own(name));
  const int64_t bytes = entries_.find(name)->second.type.bytes();
  if (rank_->device) return rank_->device->fill(t.data, 0, bytes);
  std::memset(t.data, 0, static_cast<size_t>(bytes));
  return {};
}

Status Store::read(std::string_view name, const TensorRef& to) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return invalid_argument(cat("there is no tensor ", name));
  const Entry& e = it->second;
  const std::vector<int64_t> has(to.shape, to.shape + to.rank);
  if (to.dtype != e.type.dtype || has != sizes_of(e.shape) || (!to.data && to.numel() > 0))
    return invalid_argument(cat("tensor ", name, " is ", Type{e.type.dtype, e.shape},
                                ", read into ", to.data ? "" : "no memory of ",
                                Type{to.dtype, Shape(std::span<const int64_t>(has))}));
  std::vector<uint8_t> buffer;
  const TensorRef host = TEGULA_TRY(on_host(it->second.ref, rank_->device, buffer));
  for (const TensorPart& p : it->second.parts(host)) copy_elements(p.data, part_of(to, p.box));
  return {};
}

int64_t Store::bytes() const {
  int64_t n = 0;
  for (const auto& [name, e] : entries_) n += e.type.bytes();
  return n;
}

int64_t Store::owned_bytes() const {
  int64_t n = 0;
  for (const auto& [name, e] : entries_) n += e.is_borrowed() ? 0 : e.type.bytes();
  return n;
}

}  // namespace tegula
