#include "tegula/kernels/cuda/plugin/persistent.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "tegula/base/algorithm.h"
#include "tegula/base/round.h"
#include "tegula/kernels/cuda/plugin/chain.h"
#include "tegula/kernels/cuda/plugin/texts.h"

namespace tegula::cuda {

namespace {
constexpr int kOldestPersistent = 90, kMostRows = 8;
constexpr int64_t kFewestStages = 7, kMostStages = 12;
constexpr int64_t kMostRecord_bytes = 16 * kWorkers;
// The numbers that attention keeps: a number, and one a thread.
constexpr int64_t kKept_bytes = 4 + 4 * kWorkers;
constexpr int64_t kBarriers_bytes = 16, kNext_bytes = 32;  // of a stage; of the next step

class PersistentLaunch final : public PreparedLaunches {
 public:
  // The piece of work of each step, of so many pieces.
  PersistentLaunch(std::vector<size_t> work, size_t n_pieces)
      : work_(std::move(work)), n_pieces_(n_pieces) {}
  int64_t* clocks = nullptr;

  Result<std::vector<double>> shares() const override {
    std::vector<int64_t> at(work_.size() + 1);
    Device* device = TEGULA_TRY(open_cuda_device());
    TEGULA_TRY(device->wait());
    TEGULA_TRY(device->copy(at.data(), clocks, static_cast<int64_t>(at.size() * sizeof at[0])));
    std::vector<double> shares(n_pieces_);
    const auto all = static_cast<double>(std::max<int64_t>(at.back() - at.front(), 1));
    for (size_t i = 0; i < work_.size(); ++i)
      shares[work_[i]] += static_cast<double>(at[i + 1] - at[i]) / all;
    return shares;
  }

 private:
  const std::vector<size_t> work_;
  const size_t n_pieces_;
};
}  // namespace

// Shared memory of a block: nothing where the ring would be too short.
std::optional<Chain::Sizes> Chain::sizes() const {
  Sizes z;
  for (const Step& s : steps_)
    z.record =
        std::max(z.record, static_cast<int64_t>(sizeof(PersistentStep) + 8 * s.words.size()));
  z.record = round_up(z.record, int64_t{16});
  z.scratch = kLeastScratch_bytes;
  for (const Step& s : steps_) z.scratch = std::max(z.scratch, s.a_bytes + s.unit_bytes);
  z.scratch = round_up(z.scratch, int64_t{128});
  if (attention_)
    z.lent =
        ceil_div(std::max(int64_t{attention_->smem_bytes()} - z.scratch, int64_t{0}) + kKept_bytes,
                 int64_t{kStageBytes});
  // Dynamic memory begins aligned behind it.
  const int64_t fixed = round_up(
      std::accumulate(fixed_bytes_.begin(), fixed_bytes_.end(), int64_t{0}), int64_t{1024});
  const int64_t beside = z.scratch + kPersistentRecords * z.record + kNext_bytes;
  z.stages = std::min((target_->smem_bytes - fixed - beside) / (kStageBytes + kBarriers_bytes),
                      kMostStages);
  z.smem = beside + z.stages * (kStageBytes + kBarriers_bytes);
  if (z.stages - z.lent < kFewestStages || z.record > kMostRecord_bytes) return {};
  return z;
}

Result<FunctionHandle> Chain::load(const Sizes& z) const {
  std::vector<std::string> defines = {
      cat("TEGULA_M=", rows_), cat("TEGULA_STAGES=", z.stages), cat("TEGULA_LENT=", z.lent),
      cat("TEGULA_SCRATCH_BYTES=", z.scratch), cat("TEGULA_RECORD_BYTES=", z.record)};
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

Result<std::unique_ptr<Prepared>> Chain::make(size_t first, size_t n) const {
  const std::optional<Sizes> z = sizes();
  if (!z) return std::unique_ptr<Prepared>();
  const FunctionHandle f = TEGULA_TRY(load(*z));
  std::vector<size_t> work_of;
  for (const Step& s : steps_) work_of.push_back(s.work - first);
  auto prepared = std::make_unique<PersistentLaunch>(std::move(work_of), n);
  const auto keep = [&](const auto& host) {
    return prepared->keep(host.data(), static_cast<int64_t>(host.size() * sizeof host[0]));
  };
  void* workspace = nullptr;
  if (workspace_bytes_ > 0)
    workspace = TEGULA_TRY(keep(std::vector<char>(static_cast<size_t>(workspace_bytes_))));
  const auto bytes = static_cast<size_t>(z->record);
  std::vector<char> records(steps_.size() * bytes);
  int n_waits = 0;
  for (size_t i = 0; i < steps_.size(); ++i) {
    PersistentStep head = steps_[i].head;
    if (head.waits) head.waits = ++n_waits;
    if (const Step& s = steps_[i]; s.unit_bytes > 0) {
      head.parts_at = static_cast<int>(s.a_bytes);
      head.at_once = static_cast<int>((z->scratch - s.a_bytes) / s.unit_bytes);
    }
    std::memcpy(&records[i * bytes], &head, sizeof head);
    std::memcpy(&records[i * bytes + sizeof(PersistentStep)], steps_[i].words.data(),
                8 * steps_[i].words.size());
  }
  for (const size_t i : workspaces_)
    std::memcpy(&records[i * bytes + sizeof(PersistentStep) + offsetof(AttentionPointers, partial)],
                &workspace, sizeof workspace);
  PersistentParams p{};
  p.steps = static_cast<const char*>(TEGULA_TRY(keep(records)));
  p.products = static_cast<const PersistentProduct*>(TEGULA_TRY(keep(products_)));
  p.arrived = static_cast<unsigned*>(TEGULA_TRY(keep(std::vector<unsigned>(1))));
  prepared->clocks =
      static_cast<int64_t*>(TEGULA_TRY(keep(std::vector<int64_t>(steps_.size() + 1))));
  p.clocks = reinterpret_cast<long long*>(prepared->clocks);
  p.n_steps = static_cast<int>(steps_.size());
  p.n_products = static_cast<int>(products_.size());
  p.n_waits = n_waits;
  p.n_attending = n_attending_;
  Grid grid{{target_->multiprocessors, 1, 1}, {kWorkers + kFeeders, 1, 1}, z->smem};
  grid.is_cooperative = true;
  const Driver* d = TEGULA_TRY(Driver::get());
  TEGULA_TRY(d->start(f, grid, prepared->list, "launching a persistent kernel", p));
  return std::unique_ptr<Prepared>(std::move(prepared));
}

Result<std::vector<WorkInOne>> put_in_persistent_kernels(std::span<const WorkInOrder> work,
                                                         std::span<const MemoryRange> constant,
                                                         const Target& target) {
  std::vector<WorkInOne> all;
  const char* set = std::getenv("TEGULA_CUDA_PERSISTENT");
  const bool is_forced = set != nullptr && std::strcmp(set, "1") == 0;
  if (target.capability < kOldestPersistent || (set != nullptr && !is_forced)) return all;
  for (size_t i = 0; i < work.size();) {
    Chain chain(work, constant, target, is_forced ? kMostRows : 1);
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
    if (!chain.is_long() || !(is_forced || chain.attends())) continue;
    std::unique_ptr<Prepared> made = TEGULA_TRY(chain.make(first, i - first));
    if (made) all.push_back({first, i - first, std::move(made)});
  }
  return all;
}

}  // namespace tegula::cuda
