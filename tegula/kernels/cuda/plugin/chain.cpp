#include "tegula/kernels/cuda/plugin/chain.h"

#include <array>
#include <cstring>

#include "tegula/base/algorithm.h"
#include "tegula/base/round.h"
#include "tegula/kernels/cuda/count.h"
#include "tegula/kernels/cuda/describe/check.h"
#include "tegula/kernels/cuda/plugin/decode_launch.h"
#include "tegula/kernels/cuda/plugin/indexed.h"
#include "tegula/kernels/cuda/plugin/matvec_launch.h"
#include "tegula/kernels/cuda/tile_prologue_text.h"

namespace tegula::cuda {

namespace {
constexpr int64_t kMostPart_bytes = 64 << 10;
constexpr int kPastTheLast = 1 << 30, kMostRepeatedTasks = 64;

// Stands for the workspace that attention has of the kernel itself, in place of the plan's, which
// lies where others still read.
constexpr MemoryRange kOwnWorkspace{1, 2};

Touched touched_by(const WorkInOrder& w) {
  Touched t = *w.touched;
  if (const auto* attention = dynamic_cast<const DecodeLaunch*>(w.prepared)) {
    const auto at = reinterpret_cast<uintptr_t>(attention->workspace());
    for (MemoryRange& r : t.written)
      if (r.begin == at) r = kOwnWorkspace;
  }
  // Slices are put where others stay as they are: those are not read.
  if (dynamic_cast<const PutLaunch*>(w.prepared) != nullptr)
    std::erase_if(t.read, [&](const MemoryRange& r) {
      return std::any_of(t.written.begin(), t.written.end(), [&](const MemoryRange& x) {
        return x.begin == r.begin && x.end == r.end;
      });
    });
  return t;
}

// The bytes of the parts of a unit.
int64_t unit_bytes(const MatvecParams& p) {
  return int64_t{p.k} / kPartK * p.m * kUnitColumns * int64_t{sizeof(float)};
}

// A parameter that is no pointer and the same in all calls, whose words these are, is the text's:
// numbers that the compiler knows cost no instructions.
void make_constant(TileCall& call, std::span<const std::vector<uint64_t>> calls) {
  for (size_t i = 0; i < call.params.size(); ++i) {
    TileParam& p = call.params[i];
    p.value = calls[0][i];
    p.is_constant = p.type == "i64" && std::all_of(calls.begin(), calls.end(), [&](const auto& of) {
                      return of[i] == p.value;
                    });
  }
}

std::vector<uint64_t> passed(const TileCall& call, const std::vector<uint64_t>& words) {
  std::vector<uint64_t> some;
  for (size_t i = 0; i < words.size(); ++i)
    if (!call.params[i].is_constant) some.push_back(words[i]);
  return some;
}

void add_params(std::vector<uint64_t>& words, TileCall& call) {
  std::vector<uint64_t> all;
  for (const TileParam& p : call.params) all.push_back(p.value);
  make_constant(call, {&all, 1});
  const std::vector<uint64_t> some = passed(call, all);
  words.insert(words.end(), some.begin(), some.end());
}

// Calls of one program or kernel as the tasks of a step, where they are as many as one may have:
// words(k) is what call k is passed, tasks(k) how many it has.
template <class Words, class Tasks>
bool add_calls(std::vector<uint64_t>& out, int& n_of_step, size_t n_calls, Words words,
               Tasks tasks) {
  PersistentCalls calls{};
  if (n_calls > std::size(calls.first)) return false;
  int64_t n_tasks = 0;
  for (size_t k = 0; k < std::size(calls.first); ++k) {
    calls.first[k] = k < n_calls ? static_cast<int>(n_tasks) : kPastTheLast;
    if (k < n_calls) n_tasks += tasks(k);
  }
  out = words_of(calls);
  for (size_t k = 0; k < n_calls; ++k) {
    const auto of = words(k);
    out.insert(out.end(), of.begin(), of.end());
  }
  n_of_step = static_cast<int>(n_tasks);
  return n_tasks < kPastTheLast;
}
}  // namespace

size_t Chain::take(size_t i) {
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

// As what each block does to have a of the products behind it.
std::optional<TilePart> Chain::beginning(size_t i, const TileLaunch& program,
                                         const MatvecLaunch& next) const {
  const Touched &a = *work_[i].touched, &b = *work_[i + 1].touched;
  if (meet(a.read, a.written) || meet(a.read, b.written) || meet(a.written, b.written)) return {};
  return next.beginning(program, kWorkers);
}

bool Chain::fits(const MatvecLaunch& launch) const {
  const std::vector<MatvecParams> calls = launch.calls();
  const DType in = launch.in();
  if (!is_narrow_float(in) || launch.n_shards() != 1 || launch.is_mn_major()) return false;
  if (launch.out() != in && launch.out() != DType::kF32) return false;
  if (rows_ > 0 && (rows_ != calls[0].m || is_f16_ != (in == DType::kF16))) return false;
  return std::all_of(calls.begin(), calls.end(), [&](const MatvecParams& p) {
    return p.a == calls[0].a && p.lda == calls[0].lda && p.m == calls[0].m && p.k == calls[0].k &&
           p.m <= most_rows_ && p.k % kPartK == 0 && p.n > 0 && unit_bytes(p) <= kMostPart_bytes &&
           lies_in(p.b, constant_);
  });
}

size_t Chain::take_products(size_t begin, size_t at, const MatvecLaunch& launch, TilePart first) {
  if (!fits(launch)) return 0;
  const std::vector<MatvecParams> calls = launch.calls();
  PersistentFunction f;
  f.kind = PersistentFunction::kProducts;
  f.is_out16 = launch.out() != DType::kF32;
  size_t end = at + 1;
  if (end < work_.size() && !meet(work_[end].touched->written, work_[at].touched->read) &&
      (begin == at || !work_[begin].touched->is_ordered_with(*work_[end].touched)))
    if (const auto* last = dynamic_cast<const TileLaunch*>(work_[end].prepared))
      if (std::optional<TilePart> part = launch.end(*last)) {
        f.last = std::move(*part), f.n_calls = static_cast<int>(calls.size());
        ++end;
      }
  f.k = calls[0].k;
  f.n_products = f.last.is_there() ? 1 : static_cast<int>(calls.size());
  Step step = new_step(begin, end);
  step.work = at;
  if (first.is_there()) {
    add_params(step.words, first.call);
    const int64_t results = tile_results_bytes(first.out);
    fixed_bytes_.insert(tile_prologue_bytes(*first.program, first.call, first.out) - results);
    step.a_bytes = round_up(results, int64_t{128});
  } else {
    step.words.push_back(reinterpret_cast<uintptr_t>(calls[0].a));
    step.words.push_back(static_cast<uint64_t>(calls[0].lda));
    step.a_bytes = round_up(int64_t{calls[0].m} * calls[0].k * 2, int64_t{128});
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
    const int64_t n_units = ceil_div(int64_t{of.n}, int64_t{kUnitColumns / f.n_calls});
    p.n_whole = static_cast<int>(n_units / target_->multiprocessors);
    p.n_left = static_cast<int>(n_units % target_->multiprocessors);
    p.first = next_block(n_units);
    products_.push_back(p);
    const std::vector<uint64_t> words = words_of(p);
    step.words.insert(step.words.end(), words.begin(), words.end());
  }
  if (f.last.is_there()) add_params(step.words, f.last.call);
  step.unit_bytes = unit_bytes(calls[0]);
  rows_ = calls[0].m, is_f16_ = launch.in() == DType::kF16;
  add(std::move(step), std::move(f));
  return end - begin;
}

bool Chain::add_elements(Step step, const TileLaunch& launch) {
  const auto tiles = [&](size_t k) { return as_warps(launch.tiles, launch.call_words(k)); };
  std::optional<TileCall> first = tiles(0);
  std::vector<std::vector<uint64_t>> words;
  for (size_t k = 0; k < launch.n_calls(); ++k) {
    const std::span<const uint64_t> of = launch.call_words(k);
    words.emplace_back(of.begin(), of.end());
  }
  if (first) make_constant(*first, words);
  if (!first || !add_calls(
                    step.words, step.head.n_tasks, launch.n_calls(),
                    [&](size_t k) { return passed(*first, words[k]); },
                    [&](size_t k) { return tiles(k)->n_blocks; }))
    return false;
  PersistentFunction f;
  f.kind = PersistentFunction::kElements;
  f.n_calls = static_cast<int>(launch.n_calls());
  f.first = {launch.program, *first, launch.out, 0, {}};
  add(std::move(step), std::move(f));
  return true;
}

// Rows of the calls, if all put some, as many and as long ones.
std::vector<RowsParams> Chain::equal_rows(const PutLaunch& launch) {
  std::vector<RowsParams> all;
  for (size_t k = 0; k < launch.n_calls(); ++k) {
    const std::optional<RowsParams> of = launch.rows(k);
    const auto is_equal = [](const RowsParams& a, const RowsParams& b) {
      return a.x_step == b.x_step && a.y_step == b.y_step && a.n == b.n && a.n_ids == b.n_ids &&
             a.bytes == b.bytes;
    };
    if (!of || (k > 0 && !is_equal(*of, all[0]))) return {};
    all.push_back(*of);
  }
  return all;
}

bool Chain::add_rows(Step step, const std::vector<RowsParams>& rows) {
  const int64_t n_tasks = rows[0].n_ids * ceil_div(int64_t{rows[0].bytes}, int64_t{kRowTaskBytes});
  const auto pointers = [&](size_t k) {
    const RowsParams& r = rows[k];
    return std::vector<uint64_t>{reinterpret_cast<uintptr_t>(r.x), reinterpret_cast<uintptr_t>(r.y),
                                 reinterpret_cast<uintptr_t>(r.ids)};
  };
  if (!add_calls(step.words, step.head.n_tasks, rows.size(), pointers,
                 [&](size_t) { return n_tasks; }))
    return false;
  PersistentFunction f;
  f.rows = rows[0];
  f.kind = PersistentFunction::kPutRows;
  f.n_calls = static_cast<int>(rows.size());
  add(std::move(step), std::move(f));
  return true;
}

bool Chain::add_put(Step step, const PutLaunch& launch) {
  if (const auto rows = equal_rows(launch); !rows.empty()) return add_rows(std::move(step), rows);
  const std::vector<std::string>& d = launch.defines;
  if (std::find(d.begin(), d.end(), "TEGULA_T=unsigned short") == d.end()) return false;
  if (!put_defines_.empty() && put_defines_ != d) return false;
  if (!add_calls(
          step.words, step.head.n_tasks, launch.n_calls(),
          [&](size_t k) { return launch.call_words(k); },
          [&](size_t k) {
            IndexParams p;
            std::memcpy(&p, launch.call_words(k).data(), sizeof p);
            return put_blocks(p, 32);
          }))
    return false;
  put_defines_ = d;
  PersistentFunction f;
  f.kind = PersistentFunction::kPut;
  f.n_calls = static_cast<int>(launch.n_calls());
  add(std::move(step), std::move(f));
  return true;
}

// Adds a call that is no product and no attention.
bool Chain::add_small(size_t i, Step step) {
  const Prepared* p = work_[i].prepared;
  if (const auto* program = dynamic_cast<const TileLaunch*>(p))
    return add_elements(std::move(step), *program);
  if (const auto* put = dynamic_cast<const PutLaunch*>(p)) return add_put(std::move(step), *put);
  return false;
}

// Small work, and the attention behind it, whose blocks may each do all of it for themselves:
// they write the same, and nothing that one of them may still have to read.
size_t Chain::take_small(size_t i) {
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

bool Chain::may_be_repeated(size_t begin, size_t end) const {
  std::vector<Touched> of;
  for (size_t i = begin; i <= end; ++i) of.push_back(touched_by(work_[i]));
  for (size_t i = 0; i + 1 < of.size(); ++i)
    for (size_t k = i; k < of.size(); ++k)
      if (meet(of[i].read, of[k].written) || (k > i && meet(of[i].written, of[k].written)))
        return false;
  return true;
}

size_t Chain::take_repeated(size_t begin, size_t end, const DecodeLaunch& attention) {
  Chain with = *this;
  Step step = with.new_step(begin, end + 1);
  const size_t first = with.steps_.size();
  for (size_t i = begin; i < end; ++i) {
    step.work = i;
    if (!with.add_small(i, std::move(step))) return 0;
    step = Step{};
  }
  step.work = end;
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

bool Chain::add_attention(Step step, const DecodeLaunch& launch) {
  DecodeVariant v = launch.variant;
  if (32 * v.n_warps != kWorkers || launch.list.size() != 1) return false;
  for (const TensorRef& t : launch.early())
    if (!lies_in(t.data, constant_)) return false;
  v.n_slots = 1;  // the weights' ring needs the room
  if (attention_ && attention_->defines() != v.defines()) return false;
  if (rows_ > 0 && v.is_f16 != is_f16_) return false;
  PersistentFunction f;
  f.kind = PersistentFunction::kAttention;
  AttentionDecodeParams& call = f.attention;
  std::memcpy(&call, launch.list.argument(0), sizeof call);
  call.n_slots = 1;
  workspaces_.push_back(steps_.size());
  workspace_bytes_ = std::max(workspace_bytes_, launch.workspace_bytes());
  const Grid& grid = launch.list.grid(0);
  f.n_heads = static_cast<int>(grid.blocks[1]), f.n_batch = static_cast<int>(grid.blocks[2]);
  f.look = look_up(call, grid);
  attention_ = v;
  step.words =
      words_of(AttentionPointers{call.q.data, call.k.data, call.v.data, call.o.data, call.lse,
                                 call.partial, call.counters, call.seqlens_k, call.pages});
  step.head.n_tasks = static_cast<int>(grid.blocks[0] * grid.blocks[1] * grid.blocks[2]);
  add(std::move(step), std::move(f));
  return true;
}

// Lengths and pages are constant: blocks of one task each keep what the first step has looked up.
AttentionLookUp Chain::look_up(AttentionDecodeParams of, const Grid& grid) {
  const std::array blocks{grid.blocks[0], grid.blocks[1], grid.blocks[2]};
  if (blocks[0] * blocks[1] * blocks[2] > target_->multiprocessors) return kLookUp;
  for (AttentionTensor* t : {&of.q, &of.k, &of.v, &of.o}) t->data = nullptr;
  of.lse = nullptr, of.partial = nullptr, of.counters = nullptr;
  if (!looked_up_) {
    looked_up_ = {of, blocks};
    return kLookUpAndKeep;
  }
  const bool is_same =
      blocks == looked_up_->second && std::memcmp(&of, &looked_up_->first, sizeof of) == 0;
  return is_same ? kTakeKept : kLookUp;
}

// A step of work[begin, end), in order.
Chain::Step Chain::new_step(size_t begin, size_t end) {
  Step step{};
  step.work = begin;
  Touched touched;
  for (size_t i = begin; i < end; ++i) touched.add(touched_by(work_[i]));
  step.head.waits = int{since_.is_ordered_with(touched)};
  if (step.head.waits) since_ = {};
  since_.add(touched);
  return step;
}

// Blocks and units of steps go round the grid.
int Chain::next_block(int64_t n) {
  const int first = next_block_;
  next_block_ = static_cast<int>((first + n) % target_->multiprocessors);
  return first;
}

void Chain::add(Step step, PersistentFunction f) {
  // Attention is always the first blocks', which have a shorter ring for it.
  if (f.kind == PersistentFunction::kAttention)
    n_attending_ = std::max(n_attending_, std::min(step.head.n_tasks, target_->multiprocessors));
  else if (f.kind != PersistentFunction::kProducts)
    step.head.first = next_block(step.head.n_tasks);
  const auto [at, is_new] = numbers_.try_emplace(f.key(), functions_.size());
  if (is_new) functions_.push_back(std::move(f));
  step.head.function = static_cast<int>(at->second);
  steps_.push_back(std::move(step));
}

}  // namespace tegula::cuda
