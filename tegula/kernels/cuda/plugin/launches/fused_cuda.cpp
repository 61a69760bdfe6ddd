#include <mutex>
#include <set>

#include "tegula/kernels/cuda/plugin/launch.h"
#include "tegula/kernels/cuda/tile_text.h"

namespace tegula::cuda {

namespace {

struct TileKernel {
  Module module;
  FunctionHandle one = nullptr, joined = nullptr;
};

// Calls of one text, as one launch.
class TileLaunches final : public PreparedLaunches {
 public:
  TileLaunches(const TileKernel& kernel, const TileCall& call)
      : kernel_(kernel), n_threads_(call.layout.n_threads), n_words_(call.params.size()) {
    for (const TileParam& param : call.params) words_.push_back(param.value);
    blocks_.push_back(call.n_blocks);
  }
  Status make() {
    list = LaunchList();
    const bool is_one = blocks_.size() == 1;
    std::vector<uint64_t> words = words_;
    int64_t n_blocks = 0;
    if (!is_one) {
      const size_t most = most_joined(n_words_);
      words.resize(most * n_words_);
      for (size_t k = 0; k < most; ++k) {
        words.push_back(static_cast<uint64_t>(k < blocks_.size() ? n_blocks : kNone));
        if (k < blocks_.size()) n_blocks += blocks_[k];
      }
    }
    const LaunchArgument argument{words.data(), words.size() * sizeof(uint64_t)};
    const Grid grid{{is_one ? blocks_[0] : n_blocks, 1, 1}, {n_threads_, 1, 1}, 0, true};
    const Driver* d = TEGULA_TRY(Driver::get());
    return d->start_with(is_one ? kernel_.one : kernel_.joined, grid, list,
                         "launching a tile program", {&argument, 1});
  }
  const void* kind() const override { return kernel_.joined; }
  bool take(const Prepared& other) override {
    const auto& o = static_cast<const TileLaunches&>(other);
    if (blocks_.size() + o.blocks_.size() > most_joined(n_words_)) return false;
    words_.insert(words_.end(), o.words_.begin(), o.words_.end());
    blocks_.insert(blocks_.end(), o.blocks_.begin(), o.blocks_.end());
    return make().ok();
  }

 private:
  static constexpr int64_t kNone = int64_t{1} << 40;
  const TileKernel& kernel_;  // lives as long as the process
  const int n_threads_;
  const size_t n_words_;
  std::vector<uint64_t> words_;  // n_words_ of each
  std::vector<int64_t> blocks_;
};

// Of each program and layout: the code, from when one thread begins to make it, then the kernel.
struct Tiles {
  std::mutex one;
  std::set<std::string> begun;
  std::map<std::string, std::string> cubins;
  std::map<std::string, TileKernel> kernels;  // of the thread that launches
  // Never destroyed: the driver goes before statics do.
  static Tiles& all() {
    static auto& tiles = *new Tiles();
    return tiles;
  }
};

std::string name_of(const tile::Program& p, const TileCall& call) {
  return cat(call.layout.key(), "\n", tile::to_text(p));
}

Result<CachedKernel> code_of(const tile::Program& p, const TileCall& call) {
  const std::vector<std::string> flags(std::begin(kTileFlags), std::end(kTileFlags));
  return cubin_of_text("tegula/kernels/cuda/tile_program.cu", tile_text(p, call), flags);
}

Result<bool> compile(const DeviceCall& given) {
  const tile::Program& p = *given.program;
  const TileCall call = TEGULA_TRY(tile_call(p, given.in, given.out, *given.target));
  if (call.n_blocks == 0) return false;
  const std::string name = name_of(p, call);
  Tiles& tiles = Tiles::all();
  {
    const std::lock_guard lock(tiles.one);
    if (!tiles.begun.insert(name).second) return false;
  }
  CachedKernel code = TEGULA_TRY(code_of(p, call));
  const std::lock_guard lock(tiles.one);
  tiles.cubins[name] = std::move(code.kernel.cubin);
  return !code.was_found;
}

Result<const TileKernel*> loaded_tile(const tile::Program& p, const TileCall& call) {
  Tiles& tiles = Tiles::all();
  const std::string name = name_of(p, call);
  const auto found = tiles.kernels.find(name);
  if (found != tiles.kernels.end()) return &found->second;
  std::string cubin;
  {
    const std::lock_guard lock(tiles.one);
    if (const auto made = tiles.cubins.extract(name)) cubin = std::move(made.mapped());
  }
  if (cubin.empty()) cubin = TEGULA_TRY(code_of(p, call)).kernel.cubin;
  Module module = TEGULA_TRY(Module::load(cubin));
  FunctionHandle one = TEGULA_TRY(module.function(kTileEntry, 0));
  FunctionHandle joined = TEGULA_TRY(module.function(kJoinedEntry, 0));
  return &tiles.kernels.emplace(name, TileKernel{std::move(module), one, joined}).first->second;
}

Result<std::unique_ptr<Prepared>> prepare(const DeviceCall& call) {
  const tile::Program& p = *call.program;
  const TileCall c = TEGULA_TRY(tile_call(p, call.in, call.out, *call.target));
  const tile::Space space = TEGULA_TRY(tile::space_of(p, call.in, call.out));
  const int64_t flops = tile::flops(p, {space.shape, static_cast<size_t>(p.rank)});
  call.counters->add(flops, flops);
  if (c.n_blocks == 0) return std::unique_ptr<Prepared>(std::make_unique<PreparedLaunches>());
  auto launches = std::make_unique<TileLaunches>(*TEGULA_TRY(loaded_tile(p, c)), c);
  TEGULA_TRY(launches->make());
  return std::unique_ptr<Prepared>(std::move(launches));
}

}  // namespace

extern constinit const KernelLaunch fused_cuda_launch{"fused_cuda", prepare, compile};

}  // namespace tegula::cuda
