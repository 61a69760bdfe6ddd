#include "tegula/kernels/cuda/plugin/persistent.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "tegula/base/round.h"
#include "tegula/kernels/cuda/attention_params.h"
#include "tegula/kernels/cuda/count.h"
#include "tegula/kernels/cuda/describe/check.h"
#include "tegula/kernels/cuda/persistent_params.h"
#include "tegula/kernels/cuda/persistent_text.h"
#include "tegula/kernels/cuda/plugin/decode_launch.h"
#include "tegula/kernels/cuda/plugin/indexed.h"
#include "tegula/kernels/cuda/plugin/matvec_launch.h"
#include "tegula/kernels/cuda/plugin/texts.h"
#include "tegula/kernels/cuda/tile_prologue_text.h"

namespace tegula::cuda {

namespace {

constexpr int kOldestPersistent = 90;
constexpr size_t kFewestSteps = 4;
constexpr int64_t kMostRows = 8, kFewestStages = 4, kMostStages = 12;
constexpr int64_t kLeastPartFloats = 4096, kMostPartFloats = 16384;
constexpr int64_t kMostRecord_bytes = 16 * kWorkers;
constexpr int kPastTheLast = 1 << 30, kMostRepeatedTasks = 64;

using Ranges = std::vector<MemoryRange>;

bool meet(const Ranges& a, const Ranges& b) {
  return std::any_of(a.begin(), a.end(), [&](const MemoryRange& x) {
    return std::any_of(b.begin(), b.end(),
                       [&](const MemoryRange& y) { return x.begin < y.end && y.begin < x.end; });
  });
}

// What stands for the workspace that attention has of the kernel itself, in place of the plan's,
// which lies where others still read.
constexpr MemoryRange kOwnWorkspace{1, 2};

struct Touched {
  Ranges read, written;
  Touched() = default;
  explicit Touched(const WorkInOrder& w) : read(w.read), written(w.written) {
    if (const auto* attention = dynamic_cast<const DecodeLaunch*>(w.prepared)) {
      const auto at = reinterpret_cast<uintptr_t>(attention->workspace());
      for (MemoryRange& r : written)
        if (r.begin == at) r = kOwnWorkspace;
    }
    // Slices are put where others stay as they are: those are not read.
    if (dynamic_cast<const PutLaunch*>(w.prepared) != nullptr)
      std::erase_if(read, [&](const MemoryRange& r) {
        return std::any_of(written.begin(), written.end(), [&](const MemoryRange& x) {
          return x.begin == r.begin && x.end == r.end;
        });
      });
  }
  void add(const Touched& t) {
    read.insert(read.end(), t.read.begin(), t.read.end());
    written.insert(written.end(), t.written.begin(), t.written.end());
  }
  // Whether one must have ended before the other begins.
  bool is_ordered_with(const Touched& o) const {
    return meet(written, o.written) || meet(written, o.read) || meet(read, o.written);
  }
};

// As AttentionDecodeParams and what its blocks need of their grid.
struct AttentionWords {
  AttentionDecodeParams call;
  int n_heads, n_batch;
};

// A persistent kernel as it grows.
class Chain {
 public:
  Chain(std::span<const WorkInOrder> work, std::span<const MemoryRange> constant,
        const Target& target)
      : work_(work), constant_(constant), target_(&target) {}

  // Takes work[i], and maybe some after it; how much. 0: it cannot be part of this.
  size_t take(size_t i) {
    const Prepared* p = work_[i].prepared;
    if (const auto* products = dynamic_cast<const MatvecLaunch*>(p))
      return take_products(i, i, *products, {});
    const auto* program = dynamic_cast<const TileLaunch*>(p);
    if (program != nullptr && i + 1 < work_.size())
      if (const auto* next = dynamic_cast<const MatvecLaunch*>(work_[i + 1].prepared))
        if (std::optional<TilePart> first = beginning(i, *program, *next))
          if (const size_t n = take_products(i, i + 1, *next, std::move(*first))) return n;
    if (steps_.empty()) return 0;  // what comes before products is none of this
    if (const auto* attention = dynamic_cast<const DecodeLaunch*>(p))
      return add_attention(new_step(i, i + 1), *attention) ? 1 : 0;
    return take_small(i);
  }

  // Whether it is worth while: products, and enough steps.
  bool is_long() const { return steps_.size() >= kFewestSteps && !products_.empty(); }
  Result<std::unique_ptr<Prepared>> make() const;

 private:
  struct Step {
    PersistentStep head;
    std::vector<uint64_t> words;
  };
  struct Sizes {
    int64_t record = 0, scratch = 0, stages = 0, smem = 0;
  };
  std::optional<Sizes> sizes() const;
  Result<FunctionHandle> load(const Sizes& z) const;

  // As what each block does to have a of the products behind it.
  std::optional<TilePart> beginning(size_t i, const TileLaunch& program,
                                    const MatvecLaunch& next) const {
    const WorkInOrder &a = work_[i], &b = work_[i + 1];
    if (meet(a.read, a.written) || meet(a.read, b.written) || meet(a.written, b.written)) return {};
    return next.beginning(program, kWorkers);
  }

  bool is_constant(const void* data) const {
    const auto at = reinterpret_cast<uintptr_t>(data);
    return std::any_of(constant_.begin(), constant_.end(),
                       [at](const MemoryRange& r) { return r.begin <= at && at < r.end; });
  }

  bool fits(const MatvecLaunch& launch) const {
    const std::vector<MatvecParams> calls = launch.calls();
    const DType in = launch.in();
    if (!is_narrow_float(in) || launch.n_shards() != 1 || launch.is_mn_major()) return false;
    if (launch.out() != in && launch.out() != DType::kF32) return false;
    if (rows_ > 0 && (rows_ != calls[0].m || is_f16_ != (in == DType::kF16))) return false;
    return std::all_of(calls.begin(), calls.end(), [&](const MatvecParams& p) {
      return p.a == calls[0].a && p.lda == calls[0].lda && p.m == calls[0].m && p.k == calls[0].k &&
             p.m <= kMostRows && p.k % kPartK == 0 && p.n > 0 &&
             int64_t{p.k} / kPartK * p.m * kUnitColumns <= kMostPartFloats && is_constant(p.b);
    });
  }

  size_t take_products(size_t begin, size_t at, const MatvecLaunch& launch, TilePart first) {
    if (!fits(launch)) return 0;
    const std::vector<MatvecParams> calls = launch.calls();
    PersistentFunction f;
    f.kind = PersistentFunction::kProducts;
    f.is_out16 = launch.out() != DType::kF32;
    size_t end = at + 1;
    if (end < work_.size() && !meet(work_[end].written, work_[at].read))
      if (const auto* last = dynamic_cast<const TileLaunch*>(work_[end].prepared))
        if (std::optional<TilePart> part = launch.end(*last)) {
          f.last = std::move(*part), f.n_calls = static_cast<int>(calls.size());
          ++end;
        }
    f.n_products = f.last.is_there() ? 1 : static_cast<int>(calls.size());
    Step step = new_step(begin, end);
    const int64_t row_bytes = int64_t{calls[0].m} * calls[0].k * 2;
    if (first.is_there()) {
      add_params(step, first.call);
      const int64_t results = tile_results_bytes(first.out);
      fixed_bytes_.insert(tile_prologue_bytes(*first.program, first.call, first.out) - results);
      scratch_bytes_ = std::max(scratch_bytes_, results);
    } else {
      step.words.push_back(reinterpret_cast<uintptr_t>(calls[0].a));
      step.words.push_back(static_cast<uint64_t>(calls[0].lda));
      scratch_bytes_ = std::max(scratch_bytes_, row_bytes);
    }
    f.first = std::move(first);
    for (int k = 0; k < f.n_products; ++k) {
      PersistentProduct p{};
      const MatvecParams& of = calls[static_cast<size_t>(k)];
      for (int pair = 0; pair < kUnitColumns / 2; ++pair) {
        const MatvecParams& call =
            calls[static_cast<size_t>(k + pair * f.n_calls * 2 / kUnitColumns)];
        p.b[pair] = call.b, p.c[pair] = call.c;
      }
      p.ldb = of.ldb, p.ldc = of.ldc, p.n = of.n, p.k = of.k, p.n_calls = f.n_calls;
      p.n_units = static_cast<int>(ceil_div(int64_t{of.n}, int64_t{kUnitColumns / f.n_calls}));
      p.first = next_block(p.n_units);
      products_.push_back(p);
      const std::vector<uint64_t> words = words_of(p);
      step.words.insert(step.words.end(), words.begin(), words.end());
      part_floats_ = std::max(part_floats_, int64_t{of.k} / kPartK * of.m * kUnitColumns);
    }
    if (f.last.is_there()) add_params(step, f.last.call);
    rows_ = calls[0].m, is_f16_ = launch.in() == DType::kF16;
    add(std::move(step), std::move(f));
    return end - begin;
  }

  // Calls of one program or kernel as the tasks of a step, where they are as many as one may have.
  template <class TasksOf>
  static bool add_calls(Step& step, const JoinableLaunch& launch, TasksOf tasks_of) {
    PersistentCalls calls{};
    if (launch.n_calls() > std::size(calls.first)) return false;
    int64_t n_tasks = 0;
    for (size_t k = 0; k < std::size(calls.first); ++k) {
      calls.first[k] = k < launch.n_calls() ? static_cast<int>(n_tasks) : kPastTheLast;
      if (k < launch.n_calls()) n_tasks += tasks_of(launch.call_words(k));
    }
    step.words = words_of(calls);
    for (size_t k = 0; k < launch.n_calls(); ++k) {
      const std::span<const uint64_t> words = launch.call_words(k);
      step.words.insert(step.words.end(), words.begin(), words.end());
    }
    step.head.n_tasks = static_cast<int>(n_tasks);
    return n_tasks < kPastTheLast;
  }

  bool add_elements(Step step, const TileLaunch& launch) {
    const std::optional<TileCall> tiles = as_warps(launch.tiles, launch.call_words(0));
    if (!tiles || !add_calls(step, launch, [&](std::span<const uint64_t> words) {
          return as_warps(launch.tiles, words)->n_blocks;
        }))
      return false;
    PersistentFunction f;
    f.kind = PersistentFunction::kElements;
    f.n_calls = static_cast<int>(launch.n_calls());
    f.first = {launch.program, *tiles, launch.out, 0, {}};
    add(std::move(step), std::move(f));
    return true;
  }

  bool add_put(Step step, const PutLaunch& launch) {
    const std::vector<std::string>& d = launch.defines;
    if (std::find(d.begin(), d.end(), "TEGULA_T=unsigned short") == d.end()) return false;
    if (!put_defines_.empty() && put_defines_ != d) return false;
    bool are_single = true;
    if (!add_calls(step, launch,
                   [&](std::span<const uint64_t> words) {
                     IndexParams p;
                     std::memcpy(&p, words.data(), sizeof p);
                     are_single = are_single && p.index.count == 1;
                     return put_blocks(p, 32);
                   }) ||
        !are_single)
      return false;
    put_defines_ = d;
    PersistentFunction f;
    f.kind = PersistentFunction::kPut;
    f.n_calls = static_cast<int>(launch.n_calls());
    add(std::move(step), std::move(f));
    return true;
  }

  // What is no product and no attention.
  bool add_small(size_t i, Step step) {
    const Prepared* p = work_[i].prepared;
    if (const auto* program = dynamic_cast<const TileLaunch*>(p))
      return add_elements(std::move(step), *program);
    if (const auto* put = dynamic_cast<const PutLaunch*>(p)) return add_put(std::move(step), *put);
    return false;
  }

  // Small work, and the attention behind it, whose blocks may each do all of it for themselves:
  // they write the same, and nothing that one of them may still have to read.
  size_t take_small(size_t i) {
    size_t end = i;
    while (end < work_.size() && (dynamic_cast<const TileLaunch*>(work_[end].prepared) ||
                                  dynamic_cast<const PutLaunch*>(work_[end].prepared)))
      ++end;
    const auto* attention =
        end < work_.size() ? dynamic_cast<const DecodeLaunch*>(work_[end].prepared) : nullptr;
    if (attention != nullptr && may_be_repeated(i, end) && !counts_flops())
      if (const size_t n = take_repeated(i, end, *attention)) return n;
    return add_small(i, new_step(i, i + 1)) ? 1 : 0;
  }

  bool may_be_repeated(size_t begin, size_t end) const {
    std::vector<Touched> of;
    for (size_t i = begin; i <= end; ++i) of.emplace_back(work_[i]);
    for (size_t i = 0; i + 1 < of.size(); ++i)
      for (size_t k = i; k < of.size(); ++k)
        if (meet(of[i].read, of[k].written) || (k > i && meet(of[i].written, of[k].written)))
          return false;
    return true;
  }

  size_t take_repeated(size_t begin, size_t end, const DecodeLaunch& attention) {
    Chain with = *this;
    Step step = with.new_step(begin, end + 1);
    const size_t first = with.steps_.size();
    for (size_t i = begin; i < end; ++i) {
      if (!with.add_small(i, std::move(step))) return 0;
      step = Step{};
    }
    if (!with.add_attention(std::move(step), attention)) return 0;
    const PersistentStep& last = with.steps_.back().head;
    if (last.n_tasks > target_->multiprocessors) return 0;
    for (size_t k = first; k + 1 < with.steps_.size(); ++k) {
      PersistentStep& head = with.steps_[k].head;
      if (head.n_tasks > kMostRepeatedTasks) return 0;
      head.first = last.first, head.n_owners = last.n_tasks;
    }
    *this = std::move(with);
    return end + 1 - begin;
  }

  bool add_attention(Step step, const DecodeLaunch& launch) {
    DecodeVariant v = launch.variant;
    if (32 * v.n_warps != kWorkers || launch.list.size() != 1) return false;
    v.n_slots = 1;  // the weights' ring needs the room
    if (attention_ && attention_->defines() != v.defines()) return false;
    if (rows_ > 0 && v.is_f16 != is_f16_) return false;
    AttentionWords words{};
    std::memcpy(&words.call, launch.list.argument(0), sizeof words.call);
    words.call.n_slots = 1;
    workspaces_.push_back(steps_.size());
    workspace_bytes_ = std::max(workspace_bytes_, launch.workspace_bytes());
    const Grid& grid = launch.list.grid(0);
    words.n_heads = static_cast<int>(grid.blocks[1]);
    words.n_batch = static_cast<int>(grid.blocks[2]);
    attention_ = v;
    scratch_bytes_ = std::max(scratch_bytes_, int64_t{v.smem_bytes()});
    step.words = words_of(words);
    step.head.n_tasks = static_cast<int>(grid.blocks[0] * grid.blocks[1] * grid.blocks[2]);
    PersistentFunction f;
    f.kind = PersistentFunction::kAttention;
    add(std::move(step), std::move(f));
    return true;
  }

  // A step of work[begin, end), in order.
  Step new_step(size_t begin, size_t end) {
    Step step{};
    Touched touched;
    for (size_t i = begin; i < end; ++i) touched.add(Touched(work_[i]));
    step.head.waits = int{since_.is_ordered_with(touched)};
    if (step.head.waits) since_ = {};
    since_.add(touched);
    return step;
  }
  static void add_params(Step& step, const TileCall& call) {
    for (const TileParam& p : call.params) step.words.push_back(p.value);
  }
  // Blocks and units of steps go round the grid.
  int next_block(int64_t n) {
    const int first = next_block_;
    next_block_ = static_cast<int>((first + n) % target_->multiprocessors);
    return first;
  }
  void add(Step step, PersistentFunction f) {
    if (f.kind != PersistentFunction::kProducts) step.head.first = next_block(step.head.n_tasks);
    const auto [at, is_new] = numbers_.try_emplace(f.key(), functions_.size());
    if (is_new) functions_.push_back(std::move(f));
    step.head.function = static_cast<int>(at->second);
    steps_.push_back(std::move(step));
  }

  std::span<const WorkInOrder> work_;
  std::span<const MemoryRange> constant_;
  const Target* target_;
  std::vector<PersistentFunction> functions_;
  std::map<std::string, size_t> numbers_;
  std::vector<Step> steps_;
  std::vector<PersistentProduct> products_;
  Touched since_;  // blocks last waited for one another
  int next_block_ = 0;
  int rows_ = 0;
  bool is_f16_ = false;
  std::optional<DecodeVariant> attention_;
  std::vector<size_t> workspaces_;  // steps of attention
  int64_t workspace_bytes_ = 0;
  std::vector<std::string> put_defines_;
  std::set<int64_t> fixed_bytes_;  // static memory of beginnings: those of one size share it
  int64_t scratch_bytes_ = 0, part_floats_ = kLeastPartFloats;
};

// Shared memory of a block: nothing where the ring would be too short.
std::optional<Chain::Sizes> Chain::sizes() const {
  Sizes z;
  for (const Step& s : steps_)
    z.record =
        std::max(z.record, static_cast<int64_t>(sizeof(PersistentStep) + 8 * s.words.size()));
  z.record = round_up(z.record, int64_t{16});
  z.scratch = round_up(scratch_bytes_, int64_t{1024});
  const int64_t fixed = std::accumulate(fixed_bytes_.begin(), fixed_bytes_.end(), int64_t{0});
  constexpr int64_t kBarriersOfStage = 16;
  const int64_t beside = z.scratch + 4 * part_floats_ + 2 * z.record;
  z.stages = std::min((target_->smem_bytes - fixed - beside) / (kStageBytes + kBarriersOfStage),
                      kMostStages);
  z.smem = beside + z.stages * (kStageBytes + kBarriersOfStage);
  if (z.stages < kFewestStages || z.record > kMostRecord_bytes) return {};
  return z;
}

Result<FunctionHandle> Chain::load(const Sizes& z) const {
  std::vector<std::string> defines = {cat("TEGULA_M=", rows_), cat("TEGULA_STAGES=", z.stages),
                                      cat("TEGULA_PART_FLOATS=", part_floats_),
                                      cat("TEGULA_SCRATCH_BYTES=", z.scratch),
                                      cat("TEGULA_RECORD_BYTES=", z.record)};
  const auto add = [&](const std::vector<std::string>& more) {
    for (const std::string& d : more)
      if (std::find(defines.begin(), defines.end(), d) == defines.end()) defines.push_back(d);
  };
  add({cat("TEGULA_F16=", int{is_f16_})});
  if (attention_) add(attention_->defines());
  add(put_defines_);
  std::string name = "persistent kernel\n";
  for (const PersistentFunction& f : functions_) name += f.key();
  for (const std::string& d : defines) name += cat(" ", d);
  const KernelText text = {name, "tegula/kernels/cuda/persistent_kernel.cu",
                           [&] { return persistent_text(functions_); }, tile_defines(defines)};
  const Module* module = TEGULA_TRY(loaded_text(text));
  return module->function(kPersistentEntry, static_cast<int>(z.smem));
}

Result<std::unique_ptr<Prepared>> Chain::make() const {
  const std::optional<Sizes> z = sizes();
  if (!z) return std::unique_ptr<Prepared>();
  const FunctionHandle f = TEGULA_TRY(load(*z));
  auto prepared = std::make_unique<PreparedLaunches>();
  const auto keep = [&](const auto& host) {
    return prepared->keep(host.data(), static_cast<int64_t>(host.size() * sizeof host[0]));
  };
  void* workspace = nullptr;
  if (workspace_bytes_ > 0)
    workspace = TEGULA_TRY(keep(std::vector<char>(static_cast<size_t>(workspace_bytes_))));
  const auto bytes = static_cast<size_t>(z->record);
  std::vector<char> records(steps_.size() * bytes);
  for (size_t i = 0; i < steps_.size(); ++i) {
    std::memcpy(&records[i * bytes], &steps_[i].head, sizeof(PersistentStep));
    std::memcpy(&records[i * bytes + sizeof(PersistentStep)], steps_[i].words.data(),
                8 * steps_[i].words.size());
  }
  for (const size_t i : workspaces_)
    std::memcpy(&records[i * bytes + sizeof(PersistentStep) + offsetof(AttentionWords, call) +
                         offsetof(AttentionDecodeParams, partial)],
                &workspace, sizeof workspace);
  PersistentParams p{};
  p.steps = static_cast<const char*>(TEGULA_TRY(keep(records)));
  p.products = static_cast<const PersistentProduct*>(TEGULA_TRY(keep(products_)));
  p.arrived = static_cast<unsigned*>(TEGULA_TRY(keep(std::vector<unsigned>(1))));
  p.n_steps = static_cast<int>(steps_.size());
  p.n_products = static_cast<int>(products_.size());
  Grid grid{{target_->multiprocessors, 1, 1}, {kWorkers + kFeeders, 1, 1}, z->smem};
  grid.is_cooperative = true;
  const Driver* d = TEGULA_TRY(Driver::get());
  TEGULA_TRY(d->start(f, grid, prepared->list, "launching a persistent kernel", p));
  return std::unique_ptr<Prepared>(std::move(prepared));
}

}  // namespace

Result<std::vector<WorkInOne>> put_in_persistent_kernels(std::span<const WorkInOrder> work,
                                                         std::span<const MemoryRange> constant,
                                                         const Target& target) {
  std::vector<WorkInOne> all;
  const char* is_on = std::getenv("TEGULA_CUDA_PERSISTENT");
  if (is_on == nullptr || std::strcmp(is_on, "1") != 0 || target.capability < kOldestPersistent)
    return all;
  for (size_t i = 0; i < work.size();) {
    Chain chain(work, constant, target);
    const size_t first = i;
    while (i < work.size()) {
      const size_t n = work[i].prepared != nullptr ? chain.take(i) : 0;
      if (n == 0) break;
      i += n;
    }
    if (i == first) {
      ++i;
      continue;
    }
    if (!chain.is_long()) continue;
    std::unique_ptr<Prepared> made = TEGULA_TRY(chain.make());
    if (made) all.push_back({first, i - first, std::move(made)});
  }
  return all;
}

}  // namespace tegula::cuda
