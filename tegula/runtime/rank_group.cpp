#include "tegula/runtime/rank_group.h"

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

namespace tegula {

struct RankGroup::Waiting {
  std::mutex mutex;
  std::condition_variable changed;
};

// One group: everybody comes, then everybody goes on.
struct RankGroup::Meeting {
  std::vector<Shown> all;
  size_t n_there = 0;
  uint64_t round = 0;
  // Errands by number. Each rank posts once a round and takes once a round, in any order; it posts
  // again only when all have taken, so counts of all rounds say enough.
  struct Board {
    std::vector<Shown> all;
    uint64_t n_posted = 0, n_taken = 0;
  };
  std::vector<std::unique_ptr<Board>> boards;
};

// One rank's side of a board.
struct RankGroup::Posted final : Errand {
  RankGroup* group = nullptr;
  Meeting::Board* board = nullptr;
  size_t index = 0;
  Counter* sent = nullptr;
  uint64_t round = 0;  // how often this rank has posted

  uint64_t all_of_round() const { return round * board->all.size(); }
  bool wait_for(const uint64_t& count) {
    std::unique_lock lock(group->waiting_->mutex);
    group->waiting_->changed.wait(lock, [&] { return count >= all_of_round() || group->failed_; });
    return count >= all_of_round() && !group->failed_;
  }
  void note(uint64_t& count) {
    const std::lock_guard lock(group->waiting_->mutex);
    if (++count == all_of_round()) group->waiting_->changed.notify_all();
  }

  void post(const TensorRef& in, const TensorRef& out) override {
    board->all[index] = {in, out, sent};
    ++round;
    note(board->n_posted);
  }
  bool is_ready() const override {
    const std::lock_guard lock(group->waiting_->mutex);
    return board->n_posted >= all_of_round() && !group->failed_;
  }
  Met meet(std::string_view, const TensorRef&, const TensorRef&) override {
    if (!wait_for(board->n_posted)) return {};
    return {board->all, index};
  }
  bool meet(std::string_view) override {
    note(board->n_taken);
    return true;
  }
  bool end() override { return wait_for(board->n_taken); }
  bool has_failed() const override {
    const std::lock_guard lock(group->waiting_->mutex);
    return group->failed_;
  }
  Errand& errand(std::string_view, int) override { return *this; }
};

struct RankGroup::Member final : Peers {
  struct Place {
    Meeting* meeting = nullptr;
    size_t index = 0;
  };
  RankGroup* group = nullptr;
  std::vector<Place> places;  // per axis
  std::map<std::pair<Meeting*, int>, std::unique_ptr<Posted>> errands;
  Counter sent;

  Place place(std::string_view axis) const {
    const int a = group->mesh_.find(axis);
    TEGULA_CHECK(a >= 0, "the mesh ", to_text(group->mesh_), " has no axis ", axis);
    return places[static_cast<size_t>(a)];
  }

  bool wait(Meeting& m) {
    std::unique_lock lock(group->waiting_->mutex);
    if (group->failed_) return false;
    const uint64_t round = m.round;
    if (++m.n_there == m.all.size()) {
      m.n_there = 0, ++m.round;
      group->waiting_->changed.notify_all();
      return true;
    }
    group->waiting_->changed.wait(lock, [&] { return m.round != round || group->failed_; });
    return m.round != round;
  }

  Met meet(std::string_view axis, const TensorRef& in, const TensorRef& out) override {
    const Place p = place(axis);
    p.meeting->all[p.index] = {in, out, &sent};
    if (!wait(*p.meeting)) return {};
    return {p.meeting->all, p.index};
  }
  bool meet(std::string_view axis) override { return wait(*place(axis).meeting); }
  bool has_failed() const override {
    const std::lock_guard lock(group->waiting_->mutex);
    return group->failed_;
  }
  Errand& errand(std::string_view axis, int number) override {
    const std::lock_guard lock(group->waiting_->mutex);
    const Place p = place(axis);
    std::unique_ptr<Posted>& errand = errands[{p.meeting, number}];
    if (errand) return *errand;
    auto& boards = p.meeting->boards;
    const auto at = static_cast<size_t>(number);
    if (boards.size() <= at) boards.resize(at + 1);
    if (!boards[at]) {
      boards[at] = std::make_unique<Meeting::Board>();
      boards[at]->all.resize(p.meeting->all.size());
    }
    errand = std::make_unique<Posted>();
    errand->group = group, errand->board = boards[at].get();
    errand->index = p.index, errand->sent = &sent;
    return *errand;
  }
};

RankGroup::RankGroup(Mesh mesh) : mesh_(std::move(mesh)), waiting_(std::make_unique<Waiting>()) {
  std::map<std::pair<size_t, int64_t>, Meeting*> of_group;  // by axis and first rank
  for (int64_t r = 0; r < mesh_.n_ranks(); ++r) {
    auto member = std::make_unique<Member>();
    member->group = this;
    for (size_t a = 0; a < mesh_.axes.size(); ++a) {
      const auto ranks = mesh_.group(r, a);
      Meeting*& meeting = of_group[{a, ranks[0]}];
      if (!meeting) {
        meeting = meetings_.emplace_back(std::make_unique<Meeting>()).get();
        meeting->all.resize(ranks.size());
      }
      member->places.push_back({meeting, static_cast<size_t>(mesh_.at(r)[a])});
    }
    members_.push_back(std::move(member));
  }
}
RankGroup::~RankGroup() = default;

Peers& RankGroup::peers(int64_t rank) { return *members_[static_cast<size_t>(rank)]; }

int64_t RankGroup::sent_bytes(int64_t rank) const {
  return members_[static_cast<size_t>(rank)]->sent;
}

Status RankGroup::agree(int64_t rank, std::string_view what, uint64_t number) {
  const TensorRef mine = contiguous_ref(&number, {DType::kI64, {}});
  Status differs;
  for (size_t a = 0; a < mesh_.axes.size() && differs.ok(); ++a) {
    const std::string& axis = mesh_.axes[a].name;
    const Peers::Met met = peers(rank).meet(axis, mine, {});
    for (size_t i = 0; i < met.all.size() && differs.ok(); ++i) {
      uint64_t other = 0;
      std::memcpy(&other, met.all[i].in.data, sizeof other);
      if (other != number)
        differs = internal_error(cat("ranks ", rank, " and ", mesh_.group(rank, a)[i], " of ",
                                     to_text(mesh_), " have other ", what, " (hashes ", number,
                                     " and ", other, "): run one build with one configuration"));
    }
    // Nobody's number goes before all have read it.
    if (met.all.empty() || !peers(rank).meet(axis)) return io_error("another rank failed");
  }
  return differs;
}

Status RankGroup::run_all(Status (*fn)(void*, int64_t), void* context) {
  std::vector<Status> status(static_cast<size_t>(mesh_.n_ranks()));
  std::vector<std::thread> threads;
  begin();
  const auto run_one = [&](int64_t r) {
    status[static_cast<size_t>(r)] = ended(r, fn(context, r));
  };
  for (int64_t r = 1; r < mesh_.n_ranks(); ++r) threads.emplace_back(run_one, r);
  run_one(0);
  for (std::thread& t : threads) t.join();
  return first_cause(status);
}

void RankGroup::begin() {
  failed_ = false, failed_first_ = -1;
  for (const auto& m : meetings_) {
    m->n_there = 0;
    for (const auto& b : m->boards)
      if (b) b->n_posted = b->n_taken = 0;
  }
  for (const auto& m : members_)
    for (const auto& [key, errand] : m->errands) errand->round = 0;
}

Status RankGroup::ended(int64_t rank, Status status) {
  if (status.ok()) return status;
  const std::lock_guard lock(waiting_->mutex);
  if (!failed_) failed_first_ = rank;
  failed_ = true;
  waiting_->changed.notify_all();
  return status;
}

Status RankGroup::first_cause(std::vector<Status>& status) const {
  if (failed_first_ < 0) return {};
  Error e = std::move(status[static_cast<size_t>(failed_first_)]).error();
  e.message = cat("rank ", failed_first_, ": ", e.message);
  return e;
}

}  // namespace tegula
