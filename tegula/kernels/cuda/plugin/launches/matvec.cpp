#include <bit>

#include "tegula/base/algorithm.h"
#include "tegula/base/round.h"
#include "tegula/kernels/cuda/describe/dot_query.h"
#include "tegula/kernels/cuda/plugin/inner.h"
#include "tegula/kernels/cuda/plugin/matvec_launch.h"
#include "tegula/kernels/cuda/plugin/plain.h"
#include "tegula/kernels/cuda/plugin/texts.h"
#include "tegula/kernels/cuda/tile_end_text.h"
#include "tegula/kernels/cuda/tile_prologue_text.h"
#include "tegula/tile/program.h"

namespace tegula::cuda {

namespace {
constexpr int64_t kLongColumn = 4096;
constexpr int64_t kBlocksAtOnce = 4;  // of a multiprocessor

int64_t blocks_of(const MatvecTile& t, const MatmulShape& s) {
  return ceil_div(s.n, t.columns) * ceil_div(s.m, t.rows);
}

MatvecTile tile_of(const MatmulShape& s, DType in, int64_t n_shards, int multiprocessors) {
  const auto power_of_2 = int64_t{1} << std::bit_width(static_cast<uint64_t>(s.m - 1));
  if (!s.b_mn_major) {
    // b is read once for so many rows. Shards of more would not find room in registers.
    const int64_t most = n_shards > 1 ? 2 : 16, times = ceil_div(s.m, most);
    const int64_t rows = s.m <= 4 ? std::min(most, power_of_2) : round_up(ceil_div(s.m, times), 2);
    if (in == DType::kF32) return {rows, rows > 8 ? 16 : 8, false};
    // Where long columns make few blocks, narrower ones have more of b on its way: down of Llama
    // 3.2 1B's shape 9.9 -> 9.3 us on an H200. Of short ones (o, q, k, v) they took 4.5 in place of
    // 3.7, and what is asked early for them slows the attention before them.
    const bool are_few =
        s.k >= kLongColumn && ceil_div(s.n, int64_t{16}) * ceil_div(s.m, rows) <= multiprocessors;
    return {rows, are_few ? 8 : 16, false};
  }
  // The shape whose blocks load the multiprocessors least: a block takes about its columns times
  // its rows and what a step takes besides. b is read once for so many rows.
  MatvecTile best{};
  int64_t least = 0;
  const int64_t most = n_shards > 1 ? 2 : 10;
  for (int64_t columns : {64, 32, 16})
    for (int64_t times = ceil_div(s.m, most); times <= ceil_div(s.m, int64_t{2}) + 1; ++times) {
      const int64_t share = ceil_div(s.m, times);
      const MatvecTile t{share <= 6 ? share : round_up(share, 2), columns, true};
      const int64_t time = ceil_div(blocks_of(t, s), multiprocessors) * columns * (t.rows + 2);
      if (least == 0 || time < least) best = t, least = time;
    }
  return best;
}

constexpr int kMostPasses = 3;
constexpr int64_t kSmemBytes = 48 << 10;  // of a block, without asking for more
// Where a block makes few elements, and few blocks wait for others, that takes less than a
// launch: on an H200 a token of SmolLM2 135M's shape (rows of 576 and 1,536) gained 6 % by
// beginnings and 3 % by ends, one of Llama 3.2 1B's (2,048 and 8,192) lost half a percent and
// 3 %: what the next product asks for while a small kernel runs is worth more than its launch.
constexpr int64_t kMostElements = 1792, kMostThreads = 2048;

bool is_short(const TileLaunch& program) {
  return std::all_of(program.out.begin(), program.out.end(),
                     [](const TensorRef& t) { return t.numel() <= kMostElements; });
}
}  // namespace

MatvecLaunch::MatvecLaunch(const JoinableKernel& kernel, const MatvecParams& p,
                           const MatvecTile& tile, int64_t n_blocks,
                           std::vector<std::string> defines, DType in, DType out, int64_t n_shards,
                           const Target& target)
    : JoinableLaunch(kernel, words_of(p), n_blocks),
      tile_(tile),
      in_(in),
      out_(out),
      n_shards_(n_shards),
      defines_(std::move(defines)),
      target_(target) {}

Status MatvecLaunch::settle(std::span<const MemoryRange> constant) {
  std::vector<MatvecParams> own = calls();
  for (MatvecParams& p : own) {
    p.is_settled = lies_in(p.b, constant);
  }
  // Blocks that end with a program have columns of all calls, which so begin together.
  if (last_.is_there()) {
    const bool are_settled =
        std::all_of(own.begin(), own.end(), [](const MatvecParams& p) { return p.is_settled; });
    for (MatvecParams& p : own) p.is_settled = are_settled;
  } else {
    pass_over(own);
  }
  std::memcpy(words_.data(), own.data(), words_.size() * sizeof(uint64_t));
  return first_.is_there() || last_.is_there() ? make_with_programs() : make();
}

// Blocks that would be a second or third round on the multiprocessors are passes of the first
// instead: a block's loads go on from one to the next. Of more rounds the GPU evens out what
// blocks take better.
void MatvecLaunch::pass_over(std::vector<MatvecParams>& own) {
  const int64_t at_once = kBlocksAtOnce * target_.multiprocessors;
  const auto passes = static_cast<int>(ceil_div(n_blocks(), at_once));
  if (tile_.is_mn_major || in_ == DType::kF32 || passes == 1 || passes > kMostPasses) return;
  for (size_t i = 0; i < own.size(); ++i) {
    own[i].passes = passes;
    blocks_[i] = ceil_div(ceil_div(int64_t{own[i].n}, tile_.columns), int64_t{passes}) *
                 ceil_div(int64_t{own[i].m}, tile_.rows);
  }
}

Result<bool> MatvecLaunch::begin_with(const Prepared& before) {
  const auto* first = dynamic_cast<const TileLaunch*>(&before);
  if (first == nullptr || !pays(*first)) return false;
  std::optional<TilePart> part = beginning(*first, kernel_.n_threads);
  if (!part) return false;
  first_ = std::move(*part);
  if (prologue_bytes() + own_bytes() > kSmemBytes) first_ = {};
  return first_.is_there();
}

std::optional<TilePart> MatvecLaunch::beginning(const TileLaunch& first, int n_threads) const {
  if (first.is_joined()) return {};
  const size_t wanted = output_read(first);
  const auto call = tile_call(*first.program, first.in, first.out, target_, n_threads);
  if (wanted == first.out.size() || !call.ok()) return {};
  return TilePart{first.program, *call, first.out, wanted, {}};
}

Result<bool> MatvecLaunch::end_with(const Prepared& after) {
  const auto* last = dynamic_cast<const TileLaunch*>(&after);
  if (last == nullptr || last_.is_there() || !is_short(*last)) return false;
  // One block writes what the beginning makes, and no other may read it yet.
  for (const TensorRef& made : first_.out)
    for (const TensorRef& t : last->in)
      if (meet(bytes_of(made), bytes_of(t))) return false;
  std::optional<TilePart> part = end(*last);
  if (part) last_ = std::move(*part);
  return part.has_value();
}

std::optional<TilePart> MatvecLaunch::end(const TileLaunch& last) const {
  if (last.is_joined() || !may_end()) return {};
  const auto call = tile_call(*last.program, last.in, last.out, target_);
  if (!call.ok() || call->layout.is_rows || call->layout.n_columns > 0 || call->layout.is_wide)
    return {};
  TilePart part{last.program, *call, last.out, 0, {}};
  if (!gives(last, part)) return {};
  part.call.layout.vector = 1;
  return part;
}

bool MatvecLaunch::pays(const TileLaunch& first) const {
  return is_short(first) &&
         n_blocks() * kernel_.n_threads <= kMostThreads * target_.multiprocessors &&
         blocks_.size() <= kMostMatvecsAfter;
}

// The launch of calls with the programs before and after them.
Status MatvecLaunch::make_with_programs() {
  std::string name = cat("matvec with programs, calls ", blocks_.size());
  std::vector<std::string> defines = defines_;
  std::vector<uint64_t> words;
  const auto add = [&](const TilePart& part) {
    name += cat("\n", part.call.layout.key(), "\n", tile::to_text(*part.program));
    for (const TileParam& p : part.call.params) words.push_back(p.value);
  };
  if (first_.is_there()) {
    defines.emplace_back("TEGULA_AFTER=1");
    name += cat("\nfirst ", first_.wanted, " blocks ", first_.call.n_blocks);
    for (const TensorRef& t : first_.out) name += cat(" ", t.numel());
    add(first_);
  }
  std::vector<uint64_t> of_calls;
  if (last_.is_there()) {
    defines.push_back(cat("TEGULA_CALLS=", blocks_.size()));
    of_calls = words_;
  } else {
    of_calls = joined_words(kMostMatvecsAfter);
  }
  words.insert(words.end(), of_calls.begin(), of_calls.end());
  if (last_.is_there()) {
    name += "\nlast";
    for (const int k : last_.of) name += cat(" ", k);
    add(last_);
  }
  for (const std::string& d : defines) name += cat(" ", d);
  const KernelText text = {name, "tegula/kernels/cuda/matvec_after.cu",
                           [&] {
                             std::string t;
                             if (first_.is_there())
                               t += tile_prologue_text(*first_.program, first_.call, first_.out,
                                                       first_.wanted);
                             if (last_.is_there())
                               t += tile_end_text(*last_.program, last_.call, last_.of);
                             return t + "#include \"tegula/kernels/cuda/matvec.cu\"\n";
                           },
                           tile_defines(defines)};
  const Module* module = TEGULA_TRY(loaded_text(text));
  const char* entry = last_.is_there() ? "matvecs_ended" : "matvecs_after";
  FunctionHandle f = TEGULA_TRY(module->function(entry, 0));
  list = LaunchList();
  const LaunchArgument argument{words.data(), words.size() * sizeof(uint64_t)};
  const int64_t n = last_.is_there() ? ended_blocks() : n_blocks();
  const Grid grid{{n, 1, 1}, {kernel_.n_threads, 1, 1}, 0, true};
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->start_with(f, grid, list, kernel_.what, {&argument, 1});
}

std::vector<MatvecParams> MatvecLaunch::calls() const {
  std::vector<MatvecParams> all(blocks_.size());
  std::memcpy(all.data(), words_.data(), words_.size() * sizeof(uint64_t));
  return all;
}

// Which of its results is a of all calls; their number: none is, or they lie with gaps.
size_t MatvecLaunch::output_read(const TileLaunch& first) const {
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

int64_t MatvecLaunch::ended_blocks() const {
  const auto n_calls = static_cast<int64_t>(blocks_.size());
  const MatvecParams one = calls()[0];
  return ceil_div(int64_t{one.n}, tile_.columns / n_calls) * ceil_div(int64_t{one.m}, tile_.rows);
}

// Calls differ by b and c alone, and share the columns of a block.
bool MatvecLaunch::may_end() const {
  const std::vector<MatvecParams> own = calls();
  const MatvecParams& one = own[0];
  return !tile_.is_mn_major && in_ != DType::kF32 && own.size() <= kMostMatvecsEnded &&
         std::has_single_bit(own.size()) &&
         std::all_of(own.begin(), own.end(), [&](const MatvecParams& p) {
           return p.a == one.a && p.lda == one.lda && p.m == one.m && p.n == one.n &&
                  p.k == one.k && (p.m == 1 || p.ldc == p.n);
         });
}

// Marks the inputs of `last` that calls make. False: it reads or writes these in another way than
// element by element, or none of them.
bool MatvecLaunch::gives(const TileLaunch& last, TilePart& part) const {
  const std::vector<MatvecParams> own = calls();
  const int64_t n = int64_t{own[0].m} * own[0].n, bytes = n * size_bytes(out_);
  const auto call_of = [&](const TensorRef& t) {
    int found = -1;
    for (size_t k = 0; k < own.size(); ++k) {
      const auto c = reinterpret_cast<uintptr_t>(own[k].c);
      const bool is_same = t.data == own[k].c && t.numel() == n && t.is_contiguous() &&
                           size_bytes(t.dtype) == size_bytes(out_);
      if (is_same) found = static_cast<int>(k);
      if (!is_same && meet(bytes_of(t), MemoryRange{c, c + static_cast<uintptr_t>(bytes)}))
        return -2;
    }
    return found;
  };
  bool is_any = false;
  for (size_t k = 0; k < last.in.size(); ++k) {
    int of = call_of(last.in[k]);
    if (of == -2 || (of >= 0 && last.in[k].dtype != out_)) return false;
    if (of >= 0 && part.call.layout.access[k] != TileAccess::kVector) return false;
    if (of >= 0) part.call.layout.access[k] = TileAccess::kGiven, is_any = true;
    part.of.push_back(of);
  }
  return is_any && std::all_of(last.out.begin(), last.out.end(), [&](const TensorRef& t) {
           return t.numel() == n && t.is_contiguous() && call_of(t) != -2;
         });
}

int64_t MatvecLaunch::prologue_bytes() const {
  return tile_prologue_bytes(*first_.program, first_.call, first_.out);
}

// Shared memory of matvec.cu.
int64_t MatvecLaunch::own_bytes() const {
  const int64_t sums = 4 * tile_.rows * tile_.columns;  // of a part of the block
  if (tile_.is_mn_major)
    return std::max(int64_t{4} * kFloatsAfter, 4 * 16 / size_bytes(in_) * sums);
  return in_ == DType::kF32 ? 0 : kRingAlign + kRingBytes + 4 * n_shards_ * sums;
}

namespace {
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
  p.passes = 1;
  const MatvecTile t = tile_of(s, in, d.c.k_shards, call.target->multiprocessors);
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
  return prepare_joinable(std::make_unique<MatvecLaunch>(k, p, t, blocks_of(t, s), defines, in, out,
                                                         d.c.k_shards, *call.target));
}
}  // namespace

extern constinit const KernelLaunch matvec_launch{"matvec", prepare};

}  // namespace tegula::cuda
