#include "tegula/passes/sum_buckets.h"

#include "tegula/cost/price.h"
#include "tegula/ops/collective.h"
#include "tegula/ops/math.h"

namespace tegula {

namespace {
// "layers.3" of "layers.3.attn"; other scopes as they are.
std::string layer_of(const std::string& scope) {
  constexpr std::string_view kLayers = "layers.";
  const size_t at = scope.find(kLayers);
  return at == scope.npos ? scope : scope.substr(0, scope.find('.', at + kLayers.size()));
}
}  // namespace

bool SumBuckets::is_full(int64_t n_bytes, size_t n_axes) const {
  const double copying = 2 * static_cast<double>(n_bytes) / bytes_per_s(target_);
  return copying >= price_of_exchange(target_, static_cast<int>(2 * n_axes), 0);
}

size_t SumBuckets::open_bucket(Var x, const std::vector<size_t>& axes) {
  const std::string layer = layer_of(b_.scope());
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (buckets_[i].is_begun) continue;
    if (buckets_[i].layer != layer)
      begin(buckets_[i]);
    else if (buckets_[i].axes == axes && buckets_[i].values[0].second.dtype() == x.dtype())
      return i;
  }
  buckets_.push_back({axes, layer, b_.origin()});
  return buckets_.size() - 1;
}

void SumBuckets::add(ValueId v, Var x, const std::vector<size_t>& axes) {
  const bool is_alone = is_full(x.type().bytes(), axes.size());
  if (is_alone) buckets_.push_back({axes, {}, b_.origin()});  // it is begun at once
  const size_t at = is_alone ? buckets_.size() - 1 : open_bucket(x, axes);
  Bucket& bucket = buckets_[at];
  bucket.values.emplace_back(v, x);
  bucket.bytes += x.type().bytes();
  places_[v].bucket = at;
  if (!is_full(bucket.bytes, axes.size())) return;
  begin(bucket);
  for (Bucket& other : buckets_)
    if (other.is_begun) advance(other);
}

// Side by side, filled up so that all axes can share it out.
void SumBuckets::begin(Bucket& bucket) {
  const There there(b_, bucket);
  int64_t n_ranks = 1, n = 0;
  for (const size_t a : bucket.axes) n_ranks *= mesh_.axes[a].size;
  std::vector<Var> flat;
  for (const auto& [v, x] : bucket.values) {
    flat.push_back(reshape(x, Shape{x.type().shape.numel()}));
    n += x.type().shape.numel();
  }
  if (const int64_t rest = (n_ranks - n % n_ranks) % n_ranks; rest > 0)
    flat.push_back(fill(b_, 0, {flat[0].dtype(), Shape{rest}}));
  bucket.x = flat.size() == 1 ? flat[0] : concat(flat, 0);
  bucket.is_begun = true;
}

// One more half; false: there is none left.
bool SumBuckets::advance(Bucket& bucket) {
  const size_t n_axes = bucket.axes.size();
  if (bucket.n_done == 2 * n_axes) return false;
  const There there(b_, bucket);
  const bool scatters = bucket.n_done < n_axes;
  const size_t at = scatters ? n_axes - 1 - bucket.n_done : bucket.n_done - n_axes;
  const MeshAxis& axis = mesh_.axes[bucket.axes[at]];
  const Group group{axis.name, axis.size, true};
  bucket.x = scatters ? reduce_scatter(bucket.x, group, 0) : all_gather(bucket.x, group, 0);
  return ++bucket.n_done < 2 * n_axes;
}

void SumBuckets::carve(const Bucket& bucket) {
  const There there(b_, bucket);
  int64_t from = 0;
  for (const auto& [v, part] : bucket.values) {
    const Shape& shape = part.type().shape;
    const int64_t n = shape.numel();
    const bool is_all = n == bucket.x.type().shape.numel();
    places_[v].whole = reshape(is_all ? bucket.x : slice(bucket.x, 0, from, n), shape);
    from += n;
  }
}

Var SumBuckets::take(ValueId v) {
  Place& place = places_.at(v);
  if (place.whole.valid()) return place.whole;
  for (Bucket& bucket : buckets_)
    if (!bucket.is_begun) begin(bucket);
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (Bucket& bucket : buckets_) goes_on |= advance(bucket);
  }
  for (const Bucket& bucket : buckets_)
    if (!places_.at(bucket.values[0].first).whole.valid()) carve(bucket);
  return place.whole;
}

}  // namespace tegula
