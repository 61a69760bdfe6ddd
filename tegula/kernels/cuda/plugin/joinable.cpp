#include "tegula/kernels/cuda/plugin/joinable.h"

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cuda/joined_params.h"

namespace tegula::cuda {

namespace {
constexpr uint64_t kPastTheLast = uint64_t{1} << 40;
}  // namespace

std::vector<uint64_t> JoinableLaunch::joined_words(size_t most) const {
  std::vector<uint64_t> words = words_;
  words.resize(most * n_words_);
  int64_t first = 0;
  for (size_t k = 0; k < most; ++k) {
    words.push_back(k < blocks_.size() ? static_cast<uint64_t>(first) : kPastTheLast);
    if (k < blocks_.size()) first += blocks_[k];
  }
  return words;
}

// kMostJoinedOf of a struct of so many words.
size_t JoinableLaunch::most() const {
  return std::clamp(kJoinedBytes / (8 * n_words_ + 8), size_t{kFewestJoined}, size_t{kMostJoined});
}

Status JoinableLaunch::make() {
  list = LaunchList();
  const Driver* d = TEGULA_TRY(Driver::get());
  const std::vector<uint64_t> words = is_joined() ? joined_words(most()) : words_;
  const LaunchArgument argument{words.data(), words.size() * sizeof(uint64_t)};
  const Grid grid{{n_blocks(), 1, 1}, {kernel_.n_threads, 1, 1}, 0, true};
  return d->start_with(is_joined() ? kernel_.joined : kernel_.one, grid, list, kernel_.what,
                       {&argument, 1});
}

bool JoinableLaunch::take(const Prepared& other) {
  const auto& o = static_cast<const JoinableLaunch&>(other);
  if (blocks_.size() + o.blocks_.size() > most()) return false;
  words_.insert(words_.end(), o.words_.begin(), o.words_.end());
  blocks_.insert(blocks_.end(), o.blocks_.begin(), o.blocks_.end());
  return make().ok();
}

Result<std::unique_ptr<Prepared>> prepare_joinable(std::unique_ptr<JoinableLaunch> launch) {
  TEGULA_TRY(launch->make());
  return std::unique_ptr<Prepared>(std::move(launch));
}

}  // namespace tegula::cuda
