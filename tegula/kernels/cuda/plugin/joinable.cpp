#include "tegula/kernels/cuda/plugin/joinable.h"

#include <algorithm>

#include "tegula/kernels/cuda/joined_params.h"

namespace tegula::cuda {

namespace {

constexpr int64_t kPastTheLast = int64_t{1} << 40;

class JoinableLaunch final : public PreparedLaunches {
 public:
  JoinableLaunch(const JoinableKernel& kernel, std::vector<uint64_t> params, int64_t n_blocks)
      : kernel_(kernel), n_words_(params.size()), words_(std::move(params)), blocks_{n_blocks} {}

  Status make() {
    list = LaunchList();
    const Driver* d = TEGULA_TRY(Driver::get());
    std::vector<uint64_t> words = words_;
    int64_t n_blocks = blocks_[0];
    const bool is_joined = blocks_.size() > 1;
    if (is_joined) {
      words.resize(most() * n_words_);
      n_blocks = 0;
      for (size_t k = 0; k < most(); ++k) {
        words.push_back(static_cast<uint64_t>(k < blocks_.size() ? n_blocks : kPastTheLast));
        if (k < blocks_.size()) n_blocks += blocks_[k];
      }
    }
    const LaunchArgument argument{words.data(), words.size() * sizeof(uint64_t)};
    const Grid grid{{n_blocks, 1, 1}, {kernel_.n_threads, 1, 1}, 0, true};
    return d->start_with(is_joined ? kernel_.joined : kernel_.one, grid, list, kernel_.what,
                         {&argument, 1});
  }

  const void* kind() const override { return kernel_.joined; }
  bool take(const Prepared& other) override {
    const auto& o = static_cast<const JoinableLaunch&>(other);
    if (blocks_.size() + o.blocks_.size() > most()) return false;
    words_.insert(words_.end(), o.words_.begin(), o.words_.end());
    blocks_.insert(blocks_.end(), o.blocks_.begin(), o.blocks_.end());
    return make().ok();
  }

 private:
  // kMostJoinedOf of a struct of so many words.
  size_t most() const {
    return std::clamp(kJoinedBytes / (8 * n_words_ + 8), size_t{kFewestJoined},
                      size_t{kMostJoined});
  }

  const JoinableKernel kernel_;
  const size_t n_words_;         // of a call
  std::vector<uint64_t> words_;  // of all calls
  std::vector<int64_t> blocks_;  // of each
};

}  // namespace

Result<std::unique_ptr<Prepared>> prepare_joinable(const JoinableKernel& kernel,
                                                   std::vector<uint64_t> params, int64_t n_blocks) {
  auto launch = std::make_unique<JoinableLaunch>(kernel, std::move(params), n_blocks);
  TEGULA_TRY(launch->make());
  return std::unique_ptr<Prepared>(std::move(launch));
}

}  // namespace tegula::cuda
