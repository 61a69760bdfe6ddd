#include <algorithm>
#include <bit>

#include "tegula/base/round.h"
#include "tegula/kernels/cuda/describe/dot_query.h"
#include "tegula/kernels/cuda/matvec_params.h"
#include "tegula/kernels/cuda/plugin/inner.h"
#include "tegula/kernels/cuda/plugin/plain.h"
#include "tegula/kernels/cuda/plugin/texts.h"
#include "tegula/kernels/cuda/plugin/tile_launch.h"
#include "tegula/kernels/cuda/tile_prologue_text.h"
#include "tegula/tile/program.h"

namespace tegula::cuda {

namespace {
// What a block makes of c.
struct Tile {
  int64_t rows, columns;
  bool is_mn_major = false;
  int64_t blocks(const MatmulShape& s) const {
    return ceil_div(s.n, columns) * ceil_div(s.m, rows);
  }
};

Tile tile_of(const MatmulShape& s, DType in, int64_t n_shards, int multiprocessors) {
  const auto power_of_2 = int64_t{1} << std::bit_width(static_cast<uint64_t>(s.m - 1));
  if (!s.b_mn_major) {
    // b is read once for so many rows. Shards of more would not find room in registers.
    const int64_t most = n_shards > 1 ? 2 : 16, times = ceil_div(s.m, most);
    const int64_t rows = s.m <= 4 ? std::min(most, power_of_2) : round_up(ceil_div(s.m, times), 2);
    return {rows, rows > 8 || in != DType::kF32 ? 16 : 8, false};
  }
  // The shape whose blocks load the multiprocessors least: a block takes about its columns times
  // its rows and what a step takes besides. b is read once for so many rows.
  Tile best{};
  int64_t least = 0;
  const int64_t most = n_shards > 1 ? 2 : 10;
  for (int64_t columns : {64, 32, 16})
    for (int64_t times = ceil_div(s.m, most); times <= ceil_div(s.m, int64_t{2}) + 1; ++times) {
      const int64_t share = ceil_div(s.m, times);
      const Tile t{share <= 6 ? share : round_up(share, 2), columns, true};
      const int64_t time = ceil_div(t.blocks(s), multiprocessors) * columns * (t.rows + 2);
      if (least == 0 || time < least) best = t, least = time;
    }
  return best;
}

class MatvecLaunch final : public JoinableLaunch {
 public:
  MatvecLaunch(const JoinableKernel& kernel, const MatvecParams& p, const Tile& tile,
               int64_t n_blocks, std::vector<std::string> defines, DType in, int64_t n_shards,
               const Target& target)
      : JoinableLaunch(kernel, words_of(p), n_blocks),
        tile_(tile),
        in_(in),
        n_shards_(n_shards),
        defines_(std::move(defines)),
        target_(target) {
    defines_.emplace_back("TEGULA_AFTER=1");
  }

  Status settle(std::span<const MemoryRange> constant) override {
    if (is_after_) return {};  // made anew, it would lack the program that it begins with
    std::vector<MatvecParams> own = calls();
    for (MatvecParams& p : own) {
      const auto b = reinterpret_cast<uintptr_t>(p.b);
      p.is_settled = std::any_of(constant.begin(), constant.end(),
                                 [&](const MemoryRange& r) { return r.begin <= b && b < r.end; });
    }
    std::memcpy(words_.data(), own.data(), words_.size() * sizeof(uint64_t));
    return make();
  }

  Result<bool> begin_with(const Prepared& before) override {
    const auto* first = dynamic_cast<const TileLaunch*>(&before);
    if (first == nullptr || first->is_joined() || !pays(*first)) return false;
    const size_t wanted = output_read(*first);
    const auto call = tile_call(*first->program, first->in, first->out, target_, kernel_.n_threads);
    if (wanted == first->out.size() || !call.ok() ||
        tile_prologue_bytes(*first->program, *call, first->out) + own_bytes() > kSmemBytes)
      return false;
    std::string name = cat("matvecs_after ", wanted, " blocks ", call->n_blocks);
    for (const TensorRef& t : first->out) name += cat(" ", t.numel());
    for (const std::string& d : defines_) name += cat(" ", d);
    const KernelText text = {
        cat(name, "\n", call->layout.key(), "\n", tile::to_text(*first->program)),
        "tegula/kernels/cuda/matvec_after.cu",
        [&] {
          return cat(tile_prologue_text(*first->program, *call, first->out, wanted),
                     "#include \"tegula/kernels/cuda/matvec.cu\"\n");
        },
        tile_defines(defines_)};
    const Module* module = TEGULA_TRY(loaded_text(text));
    FunctionHandle f = TEGULA_TRY(module->function("matvecs_after", 0));
    std::vector<uint64_t> words;
    for (const TileParam& p : call->params) words.push_back(p.value);
    const std::vector<uint64_t> calls = joined_words(kMostMatvecsAfter);
    words.insert(words.end(), calls.begin(), calls.end());
    list = LaunchList();
    const LaunchArgument argument{words.data(), words.size() * sizeof(uint64_t)};
    const Grid grid{{n_blocks(), 1, 1}, {kernel_.n_threads, 1, 1}, 0, true};
    const Driver* d = TEGULA_TRY(Driver::get());
    TEGULA_TRY(d->start_with(f, grid, list, kernel_.what, {&argument, 1}));
    is_after_ = true;
    return true;
  }

 private:
  static constexpr int64_t kSmemBytes = 48 << 10;  // of a block, without asking for more
  // Where a block makes few elements, and few blocks wait for others, that takes less than a
  // launch: on an H200 a token of SmolLM2 135M's shape (rows of 576 and 1,536) gained 6 %, one of
  // Llama 3.2 1B's (2,048 and 8,192) lost half a percent.
  static constexpr int64_t kMostElements = 1792, kMostThreads = 2048;

  bool pays(const TileLaunch& first) const {
    int64_t n = 0;
    for (const TensorRef& t : first.out) n = std::max(n, t.numel());
    return n <= kMostElements &&
           n_blocks() * kernel_.n_threads <= kMostThreads * target_.multiprocessors &&
           blocks_.size() <= kMostMatvecsAfter;
  }

  std::vector<MatvecParams> calls() const {
    std::vector<MatvecParams> all(blocks_.size());
    std::memcpy(all.data(), words_.data(), words_.size() * sizeof(uint64_t));
    return all;
  }

  // Which of its results is a of all calls; their number: none is, or they lie with gaps.
  size_t output_read(const TileLaunch& first) const {
    const std::vector<MatvecParams> calls = this->calls();
    size_t o = 0;
    while (o < first.out.size() && first.out[o].data != calls[0].a) ++o;
    const bool fits = o < first.out.size() && first.out[o].dtype == in_ &&
                      std::all_of(first.out.begin(), first.out.end(),
                                  [](const TensorRef& t) { return t.is_contiguous(); }) &&
                      std::all_of(calls.begin(), calls.end(), [&](const MatvecParams& p) {
                        return p.a == first.out[o].data && p.m <= kMostRowsAfter &&
                               int64_t{p.m} * p.k == first.out[o].numel() &&
                               (p.m == 1 || p.lda == p.k);
                      });
    return fits ? o : first.out.size();
  }

  // Shared memory of matvec.cu.
  int64_t own_bytes() const {
    const int64_t sums = 4 * tile_.rows * tile_.columns;  // of a part of the block
    if (tile_.is_mn_major)
      return std::max(int64_t{4} * kFloatsAfter, 4 * 16 / size_bytes(in_) * sums);
    return in_ == DType::kF32 ? 0 : kRingAlign + kRingBytes + 4 * n_shards_ * sums;
  }

  const Tile tile_;
  const DType in_;
  const int64_t n_shards_;
  std::vector<std::string> defines_;
  const Target& target_;
  bool is_after_ = false;  // begins with a program
};

Result<std::unique_ptr<Prepared>> prepare(const DeviceCall& call) {
  if (!are_aligned(call)) {
    auto inner = std::make_unique<PreparedLaunches>();
    TEGULA_TRY(launch_inner(call, "dot", *call.attrs, call.in, call.out, inner->list));
    return std::unique_ptr<Prepared>(std::move(inner));
  }
  const DType in = call.in[0].dtype, out = call.out[0].dtype;
  const DotCall d = TEGULA_TRY(parse_dot(call, in, out, 8));
  const MatmulShape& s = d.shape;
  if (s.m == 0 || s.n == 0) return std::unique_ptr<Prepared>(std::make_unique<PreparedLaunches>());
  MatvecParams p{};
  p.a = d.a->data, p.b = d.b->data, p.c = d.out->data;
  p.lda = d.lda, p.ldb = d.ldb, p.ldc = d.ldc;
  p.m = static_cast<int>(s.m), p.n = static_cast<int>(s.n), p.k = static_cast<int>(s.k);
  const Tile t = tile_of(s, in, d.c.k_shards, call.target->multiprocessors);
  const std::vector<std::string> defines = {cat("TEGULA_M=", t.rows),
                                            cat("TEGULA_SHARDS=", d.c.k_shards),
                                            cat("TEGULA_B_MN_MAJOR=", int{s.b_mn_major}),
                                            cat("TEGULA_COLUMNS=", t.columns),
                                            cat("TEGULA_IN16=", int{in != DType::kF32}),
                                            cat("TEGULA_OUT16=", int{out != DType::kF32}),
                                            cat("TEGULA_F16=", int{in == DType::kF16})};
  std::vector<std::string> flags = defines;
  flags.emplace_back("--ftz=true");  // as behind a tile program
  JoinableKernel k;
  k.one = TEGULA_TRY(plain_kernel("matvec.cu", "matvec", flags));
  k.joined = TEGULA_TRY(plain_kernel("matvec.cu", "matvecs", flags));
  k.n_threads = s.b_mn_major ? static_cast<int>(16 / size_bytes(in) * t.columns) : 128,
  k.what = "launching matvec";
  const int64_t flops = s.m * s.n * (2 * s.k + d.c.k_shards - 1);
  call.counters->add(flops, flops);
  return prepare_joinable(std::make_unique<MatvecLaunch>(k, p, t, t.blocks(s), defines, in,
                                                         d.c.k_shards, *call.target));
}
}  // namespace

extern constinit const KernelLaunch matvec_launch{"matvec", prepare};

}  // namespace tegula::cuda
